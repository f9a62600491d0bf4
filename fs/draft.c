// The table of drafts, and what happens to their names; draft_open.c has how they begin, draft_end.c how they end.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "fs/attr.h"
#include "fs/draft.h"
#include "fs/draft_table.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define WAIT_STEP_NS INT64_C(10000000)

// --- The table --------------------------------------------------------------------------------------------------------

struct drafts *drafts_new(void)
{
	struct drafts *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	ckpt_lock_init(&t->lock, CKPT_LOCK_DRAFTS);
	pthread_cond_init(&t->changed, NULL);
	return t;
}

static void draft_free(struct draft *d)
{
	while (d->invited) {
		struct invitation *i = d->invited;

		d->invited = i->next;
		free(i);
	}
	ckpt_draft_close(&d->disk);
	ckpt_step_unref(d->left);
	ckpt_step_unref(d->completed);
	if (d->fd >= 0)
		ckpt_sys.close(d->fd);
	free(d);
}

void drafts_free(struct drafts *t)
{
	if (!t)
		return;
	ckpt_lock_take(&t->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->changed);
	while (t->watching)
		ckpt_lock_wait(&t->changed, &t->lock);
	ckpt_lock_drop(&t->lock);
	while (t->first) {
		struct draft *d = t->first;

		t->first = d->next;
		draft_free(d); // its nodes go with their own table
	}
	pthread_cond_destroy(&t->changed);
	ckpt_lock_done(&t->lock);
	free(t);
}

void draft_unref(struct ckpt_fs *fs, struct draft *d)
{
	bool last;

	if (!d)
		return;
	ckpt_lock_take(&fs->drafts->lock);
	last = --d->refs == 0;
	ckpt_lock_drop(&fs->drafts->lock);
	if (last)
		draft_free(d);
}

static struct draft *find_locked(struct ckpt_fs *fs, const struct node *dir, const char *name)
{
	struct draft *d = fs->drafts->first;

	while (d && (d->dir != dir || strcmp(d->name, name)))
		d = d->next;
	return d;
}

struct draft *draft_find(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct draft *d;

	if (!drafts_any(fs))
		return NULL;
	LOCK_SCOPE(&fs->drafts->lock);
	d = find_locked(fs, dir, name);
	if (d)
		d->refs++;
	return d;
}

bool draft_is_at(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	if (!drafts_any(fs))
		return false;
	LOCK_SCOPE(&fs->drafts->lock);
	return find_locked(fs, dir, name);
}

bool draft_is_written(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	const struct draft *d;

	if (!drafts_any(fs))
		return false;
	LOCK_SCOPE(&fs->drafts->lock);
	d = find_locked(fs, dir, name);
	return d && !draft_is_resting_locked(d);
}

bool draft_is_of(struct ckpt_fs *fs, struct node *n)
{
	bool is;

	names_read_lock(fs);
	is = n->draft;
	names_unlock(fs);
	return is;
}

bool draft_is_below_locked(struct ckpt_fs *fs, const struct node *dir)
{
	LOCK_SCOPE(&fs->drafts->lock);

	for (const struct draft *d = fs->drafts->first; d; d = d->next)
		for (const struct node *n = d->dir; n; n = n->names ? n->names->parent : NULL)
			if (n == dir && !draft_is_resting_locked(d))
				return true;
	return false;
}

bool draft_is_below(struct ckpt_fs *fs, const struct node *dir)
{
	bool is;

	if (!drafts_any(fs))
		return false;
	names_read_lock(fs);
	is = draft_is_below_locked(fs, dir);
	names_unlock(fs);
	return is;
}

int draft_wait_below(struct ckpt_fs *fs, const struct node *dir, int64_t timeout_ns)
{
	int64_t until = ckpt_sys.mono_ns() + timeout_ns;

	while (draft_is_below(fs, dir)) {
		if (ckpt_sys.mono_ns() >= until)
			return -EBUSY;
		ckpt_sys.sleep_ns(WAIT_STEP_NS);
	}
	return 0;
}

bool drafts_insert(struct ckpt_fs *fs, struct draft *d)
{
	struct drafts *t = fs->drafts;

	LOCK_SCOPE(&t->lock);
	if (find_locked(fs, d->dir, d->name))
		return false;
	d->refs++;
	d->next = t->first;
	t->first = d;
	__atomic_store_n(&t->count, t->count + 1, __ATOMIC_RELAXED);
	return true;
}

void draft_end_locked(struct ckpt_fs *fs, struct draft *d, bool drop_name)
{
	struct drafts *t = fs->drafts;
	struct draft **slot = &t->first;
	struct node *dir, *n;

	ckpt_lock_take(&t->lock);
	dir = TAKE_PTR(d->dir);
	n = TAKE_PTR(d->node);
	while (*slot && *slot != d)
		slot = &(*slot)->next;
	if (*slot) {
		*slot = d->next;
		d->refs--; // the caller has one
		__atomic_store_n(&t->count, t->count - 1, __ATOMIC_RELAXED);
	}
	ckpt_lock_drop(&t->lock);
	if (n) {
		n->draft = NULL;
		if (drop_name)
			name_drop_locked(fs, n, dir, d->name);
		node_unref(fs, n);
	}
	node_unref(fs, dir);
}

bool draft_end(struct ckpt_fs *fs, struct draft *d)
{
	bool was;

	names_write_lock(fs);
	was = d->dir;
	if (was)
		draft_end_locked(fs, d, true);
	names_unlock(fs);
	return was;
}

void draft_cancel(struct ckpt_fs *fs, struct draft *d)
{
	(void)draft_end(fs, d);
	ckpt_draft_drop(&d->disk);
}

char *draft_path(struct ckpt_fs *fs, struct draft *d)
{
	struct place p = {.path = ""};
	char *path = NULL;

	names_read_lock(fs);
	if (d->dir && !place_of_locked(fs, d->dir, &p)) {
		if (asprintf(&path, "%s%s%s", p.path, *p.path ? "/" : "", d->name) < 0)
			path = NULL;
		place_done(&p);
	}
	names_unlock(fs);
	return path ? path : strdup(d->disk.name);
}

void draft_name(struct ckpt_fs *fs, const struct draft *d, char ret_name[CKPT_NAME_MAX + 1])
{
	LOCK_SCOPE(&fs->drafts->lock); // a rename may give it another

	memcpy(ret_name, d->name, sizeof(d->name));
}

// --- Lookup -----------------------------------------------------------------------------------------------------------

static int lookup_locked(struct ckpt_fs *fs, struct draft *d, struct fuse_entry_param *e)
{
	struct statx stx;
	struct node *n;
	int rc = !d->dir ? -ENOENT : statx(d->fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno : 0;

	if (!rc)
		rc = node_get_locked(fs, SPACE_LIVE, ckpt_store_ino(&stx), S_IFREG, d->dir, d->name, NULL, &n);
	if (rc)
		return rc;
	if (!d->node) {
		node_ref(fs, n);
		d->node = n;
		n->draft = d;
	}
	*e = (struct fuse_entry_param){
		.ino = node_id(fs, n),
		.generation = n->generation,
		.attr_timeout = TIMEOUT_ATTR,
		.entry_timeout = TIMEOUT_NONE, // for others, or after its end, the name may lead elsewhere
	};
	attr_from_statx(fs, n, &stx, &e->attr);
	return 0;
}

int draft_lookup(struct ckpt_fs *fs, struct draft *d, struct fuse_entry_param *ret_entry)
{
	int rc;

	names_write_lock(fs);
	rc = lookup_locked(fs, d, ret_entry);
	names_unlock(fs);
	return rc;
}

struct invitation **draft_invitation_locked(struct draft *d, pid_t tid)
{
	struct invitation **slot = &d->invited;

	while (*slot && (*slot)->tid != tid)
		slot = &(*slot)->next;
	return slot;
}

void draft_uninvite_locked(struct drafts *t, struct draft *d, pid_t tid)
{
	struct invitation **slot = draft_invitation_locked(d, tid), *i = *slot;

	if (i) {
		*slot = i->next;
		free(i);
		pthread_cond_broadcast(&t->changed);
	}
}

int draft_lookup_invited(fuse_req_t req, struct node *dir, const char *name, struct fuse_entry_param *ret_entry)
{
	struct ckpt_fs *fs = fs_of(req);
	struct draft *d = draft_find(fs, dir, name);
	struct invitation *i;
	int rc = -ENOENT;

	if (!d)
		return -ENOENT;
	ckpt_lock_take(&fs->drafts->lock);
	i = *draft_invitation_locked(d, fuse_req_ctx(req)->pid);
	if (i)
		i->looked = true;
	ckpt_lock_drop(&fs->drafts->lock);
	if (i)
		rc = draft_lookup(fs, d, ret_entry);
	draft_unref(fs, d);
	return rc;
}

int draft_read_check(fuse_req_t req, struct node *n)
{
	struct ckpt_fs *fs = fs_of(req);
	pid_t tid = fuse_req_ctx(req)->pid;
	int rc = 0;

	if (!drafts_any(fs))
		return 0;
	names_read_lock(fs);
	if (n->draft && n->draft->replaces) {
		LOCK_SCOPE(&fs->drafts->lock);
		if (*draft_invitation_locked(n->draft, tid)) {
			if (tid)
				draft_uninvite_locked(fs->drafts, n->draft, tid); // it never came to write
			rc = -ESTALE;
		}
	}
	names_unlock(fs);
	return rc;
}

int draft_lookup_plain(struct ckpt_fs *fs, struct node *parent, const char *name, struct fuse_entry_param *ret_entry)
{
	struct draft *draft = draft_find(fs, parent, name);
	int rc = lookup_live(fs, parent, name, ret_entry);

	draft = draft_check_left(fs, draft);
	if (!draft && rc == -ENOENT)
		draft = draft_find_left(fs, parent, name);
	if (!draft)
		return rc;
	if (rc == -ENOENT) {
		rc = draft_lookup(fs, draft, ret_entry);
		if (rc == -ENOENT) // it was published meanwhile
			rc = lookup_live(fs, parent, name, ret_entry);
	} else if (!rc) {
		ret_entry->entry_timeout = ret_entry->attr_timeout = TIMEOUT_NONE;
	}
	draft_unref(fs, draft);
	return rc;
}

// --- What renames and removals do to drafts ----------------------------------------------------------------------------

bool draft_remove(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct draft *d = draft_check_left(fs, draft_find(fs, dir, name));
	bool had = d && draft_end(fs, d);

	if (had)
		draft_drop(fs, d);
	draft_unref(fs, d);
	return had;
}

// Another file takes the name. A left-over draft stays a session.
static void make_way(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	struct draft *d = draft_find(fs, dir, name);
	bool resting;

	if (!d)
		return;
	ckpt_lock_take(&fs->drafts->lock);
	resting = draft_is_resting_locked(d);
	ckpt_lock_drop(&fs->drafts->lock);
	if (draft_end(fs, d) && !resting)
		draft_drop(fs, d);
	draft_unref(fs, d);
}

// Without the old name, under the new one.
static void move_locked(struct ckpt_fs *fs, struct draft *d, struct node *dir, const char *name, bool replaces)
{
	struct node *from = d->dir;

	if (d->node) {
		name_drop_locked(fs, d->node, d->dir, d->name);
		(void)name_add_locked(fs, d->node, dir, name);
	}
	node_ref(fs, dir);
	ckpt_lock_take(&fs->drafts->lock);
	d->dir = dir;
	snprintf(d->name, sizeof(d->name), "%s", name);
	d->replaces = replaces;
	ckpt_lock_drop(&fs->drafts->lock);
	node_unref(fs, from);
}

int draft_rename_check(struct call *c)
{
	bool from, to;

	if (!drafts_any(c->fs))
		return 0;
	from = !c->step && draft_is_at(c->fs, c->node, c->name);
	to = !c->other_step && draft_is_at(c->fs, c->other, c->other_name);
	if (from && c->other_step)
		return -EXDEV; // as any file that is open for writing
	if ((from || to) && (c->flags & RENAME_EXCHANGE))
		return -EBUSY;
	return to && (c->flags & RENAME_NOREPLACE) ? -EEXIST : 0;
}

// A left-over one is a file as any other to who renames it: it is published first.
int draft_rename_left(struct call *c)
{
	struct draft *d = c->step ? NULL : draft_check_left(c->fs, draft_find(c->fs, c->node, c->name));
	bool resting = false;
	int rc = -ENOENT;

	if (d) {
		ckpt_lock_take(&c->fs->drafts->lock);
		resting = draft_is_resting_locked(d);
		ckpt_lock_drop(&c->fs->drafts->lock);
	}
	if (resting)
		rc = c->mode ? draft_publish_left(c->fs, d) : -EINPROGRESS;
	draft_unref(c->fs, d);
	return rc;
}

int draft_rename_only(struct call *c)
{
	struct draft *d = c->step ? NULL : draft_find(c->fs, c->node, c->name);
	CLEANUP_FD int dirfd = d ? node_open(c->fs, c->other, O_RDONLY | O_DIRECTORY) : -ENOENT;
	bool same = c->node == c->other && !strcmp(c->name, c->other_name), replaces;
	int rc = MIN(dirfd, 0);
	struct stat st;

	replaces = !rc && !fstatat(dirfd, c->other_name, &st, AT_SYMLINK_NOFOLLOW);
	if (replaces)
		rc = c->flags & RENAME_NOREPLACE ? -EEXIST : S_ISDIR(st.st_mode) ? -EISDIR : 0;
	if (!rc && !same) {
		make_way(c->fs, c->other, c->other_name);
		names_write_lock(c->fs);
		if (d->dir)
			move_locked(c->fs, d, c->other, c->other_name, replaces);
		else
			rc = -ENOENT;
		names_unlock(c->fs);
	}
	draft_unref(c->fs, d);
	return rc;
}

void draft_renamed(struct call *c)
{
	struct draft *d;

	if (!drafts_any(c->fs) || (c->node == c->other && !strcmp(c->name, c->other_name)))
		return;
	if (!c->other_step)
		make_way(c->fs, c->other, c->other_name);
	d = c->step ? NULL : draft_find(c->fs, c->node, c->name);
	if (!d)
		return;
	names_write_lock(c->fs);
	if (d->dir)
		move_locked(c->fs, d, c->other, c->other_name, true);
	names_unlock(c->fs);
	draft_unref(c->fs, d);
}

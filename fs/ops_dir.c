// Listing directories. A listing is what opendir (or rewinddir) found: names do not move under a reader's offset.
// Staged steps are in none; the steps of a plain folder come from core, all else from the disk or the manifest.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/change.h"
#include "core/save/stage.h"
#include "core/step/follow.h"
#include "core/step/removal.h"
#include "core/step/reopened.h"
#include "fs/attr.h"
#include "fs/beside.h"
#include "fs/call.h"
#include "fs/control.h"
#include "fs/durable.h"
#include "fs/folder.h"
#include "fs/handle.h"
#include "fs/latest.h"
#include "fs/ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define LISTING_UNDER_WAY_NS INT64_C(2000000000) // longer than any is, from what it found to the kernel

// Names in one heap: a directory of a million costs tens of megabytes, not hundreds.
struct listing {
	struct listed {
		uint32_t name; // offset in the heap
		mode_t type;
		uint64_t number;
	} * items;
	size_t count, cap;
	char *heap;
	size_t heap_len, heap_cap;
};

static void listing_free(struct listing *l)
{
	if (!l)
		return;
	free(l->items);
	free(l->heap);
	free(l);
}

static int listing_add(void *arg, const char *name, mode_t type, uint64_t number)
{
	struct listing *l = arg;
	size_t len = strlen(name) + 1;
	int rc = ckpt_grow((void **)&l->items, &l->cap, l->count + 1, sizeof(*l->items));

	if (!rc)
		rc = ckpt_grow((void **)&l->heap, &l->heap_cap, l->heap_len + len, 1);
	if (rc || l->heap_len > UINT32_MAX - len)
		return -ENOMEM;
	memcpy(l->heap + l->heap_len, name, len);
	l->items[l->count++] = (struct listed){(uint32_t)l->heap_len, type, number};
	l->heap_len += len;
	return 0;
}

// Not every filesystem keeps the type in the directory (xfs without ftype, ext4 without filetype). 0: not to be shown, or
// gone meanwhile.
static mode_t type_of(int dirfd, const struct dirent *e)
{
	mode_t type = DTTOIF(e->d_type);
	struct stat st;

	if (e->d_type == DT_UNKNOWN)
		type = fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ? 0 : st.st_mode & S_IFMT;
	return type == S_IFREG || type == S_IFDIR || type == S_IFLNK ? type : 0;
}

typedef bool lists_fn(struct ckpt_fs *fs, struct node *dir, const char *name);

// Of a step that is being changed: what was in no listing before is in none now.
static bool is_hidden(const struct place *p, const char *name)
{
	char path[PATH_MAX];

	return p && p->step && strstr(name, CKPT_NAME_CONFLICT) &&
	       (size_t)snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name) < sizeof(path) &&
	       ckpt_reopen_is_conflict(p->step, path);
}

// Adds the files at fd (consumed) that are to be seen in dir. p: its place, if they are in its own tree.
static int list_disk(struct ckpt_fs *fs, struct node *dir, const struct place *p, int fd, lists_fn *lists,
		     struct listing *l)
{
	int rc = 0;
	DIR *d;
	struct dirent *e;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd; // removed while open: empty, as everywhere
	d = fdopendir(fd);
	if (!d) {
		ckpt_sys.close(fd);
		return -ENOMEM;
	}
	while (!rc && (errno = 0, e = readdir(d))) {
		mode_t type;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !lists(fs, dir, e->d_name) ||
		    is_hidden(p, e->d_name))
			continue;
		type = type_of(dirfd(d), e);
		if (type)
			rc = listing_add(l, e->d_name, type, e->d_ino);
	}
	if (!rc)
		rc = -errno;
	closedir(d);
	return rc;
}

static bool lists_live(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	return dir != node_root(fs) || strcmp(name, CKPT_CONTROL_NAME) != 0; // what stands beside steps is below it
}

static bool lists_beside(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	return !beside_is_own(fs, dir, name);
}

static int list_steps(struct ckpt_fs *fs, struct node *dir, struct listing *l)
{
	unsigned states = 1u << CKPT_STEP_COMMITTED;
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step **steps;
	size_t count;
	int rc = folder_id_of(fs, dir, false, id);

	if (rc)
		return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc;
	if (fs->mount->readonly)
		(void)ckpt_follow_refresh(fs->store);
	if (fs->store->settings.show_staged)
		states |= 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING;
	rc = ckpt_step_list(fs->store, id, states, &steps, &count);
	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		struct ckpt_step_name now;
		uint64_t ino;

		ckpt_step_name(steps[i], &now);
		ckpt_lock_take(&steps[i]->lock); // a change of it may be loaded meanwhile
		ino = steps[i]->born.dir_ino;
		ckpt_lock_drop(&steps[i]->lock);
		rc = listing_add(l, now.name, S_IFDIR, ino);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

static int by_name(const void *a, const void *b, void *heap)
{
	const struct listed *x = a, *y = b;

	return strcmp((char *)heap + x->name, (char *)heap + y->name);
}

static bool has_name(const struct listed *sorted, size_t count, const struct listed *item, char *heap)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = by_name(&sorted[mid], item, heap);

		if (!order)
			return true;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return false;
}

// A step hides a plain file of its name, which another node has made (core/remote/tree_plan.h): a lookup finds the step. The files are those
// from `files` up to `steps`, the steps are behind them.
static int drop_hidden(struct listing *l, size_t files, size_t steps)
{
	size_t step_count = l->count - steps, kept = files;
	CLEANUP_FREE struct listed *sorted = ckpt_calloc(step_count + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, l->items + steps, step_count * sizeof(*sorted));
	qsort_r(sorted, step_count, sizeof(*sorted), by_name, l->heap);
	for (size_t i = files; i < l->count; i++)
		if (i >= steps || !has_name(sorted, step_count, &l->items[i], l->heap))
			l->items[kept++] = l->items[i];
	l->count = kept;
	return 0;
}

// The link comes first: `rm -r` would not find it any more when the steps are gone.
static int list_live(struct ckpt_fs *fs, struct node *dir, const struct place *p, struct listing *l)
{
	size_t files, steps;
	uint64_t number;
	int rc = 0;

	if (!p->step && latest_is_listed(fs, dir, &number))
		rc = listing_add(l, "latest", S_IFLNK, number);
	files = l->count;
	if (!rc)
		rc = list_disk(fs, dir, p, node_open(fs, dir, O_RDONLY | O_DIRECTORY), lists_live, l);
	steps = l->count;
	if (!rc && !p->step)
		rc = list_steps(fs, dir, l);
	return rc || l->count == steps ? rc : drop_hidden(l, files, steps);
}

static int list_committed(struct node *dir, const struct place *p, struct listing *l)
{
	static const mode_t types[] = {
		[CKPT_ENTRY_FILE] = S_IFREG, [CKPT_ENTRY_DIR] = S_IFDIR, [CKPT_ENTRY_SYMLINK] = S_IFLNK};
	struct ckpt_manifest *m;
	struct ckpt_entry self, e;
	int rc = entry_of_node(dir, p, &m, &self);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < self.child_count && !rc; i++) {
		if (ckpt_removal_has(p->step, m, self.child_first + i))
			continue;
		ckpt_manifest_entry(m, self.child_first + i, &e);
		if (!e.conflict) // loaders that glob do not see it
			rc = listing_add(l, e.name, types[e.type], e.ino);
	}
	ckpt_manifest_unref(m);
	return rc;
}

static int fill_listing(struct ckpt_fs *fs, struct node *dir, struct listing *l)
{
	struct place p;
	int rc;

	if (dir->kind == NODE_CONTROL)
		return control_each(fs, dir, listing_add, l);
	rc = place_of(fs, dir, &p);
	if (rc)
		return rc == -ESTALE ? 0 : rc;
	rc = place_is_committed(&p) ? list_committed(dir, &p, l) : list_live(fs, dir, &p, l);
	if (!rc && p.step)
		rc = list_disk(fs, dir, NULL, beside_open(fs, dir), lists_beside, l);
	place_done(&p);
	return rc;
}

static uint64_t number_above(struct ckpt_fs *fs, const struct node *dir)
{
	uint64_t number;

	names_read_lock(fs);
	number = dir->names ? dir->names->parent->number : FUSE_ROOT_ID;
	names_unlock(fs);
	return number;
}

static int listing_new(struct ckpt_fs *fs, struct node *dir, struct listing **ret_listing)
{
	struct listing *l = calloc(1, sizeof(*l));
	int rc = l ? listing_add(l, ".", S_IFDIR, dir->number) : -ENOMEM;

	if (!rc)
		rc = listing_add(l, "..", S_IFDIR, number_above(fs, dir));
	if (!rc)
		rc = fill_listing(fs, dir, l);
	if (rc) {
		listing_free(l);
		return rc;
	}
	*ret_listing = l;
	return 0;
}

// --- Requests ---------------------------------------------------------------------------------------------------------

// What a committed directory holds never changes, so the kernel may keep it (before the commit it kept nothing), until the step
// has another version. A listing that was under way then comes to the kernel after it was told to forget: so for a while it
// keeps nothing, and what is there from before it drops with the first open after that.
static void keep_listing(struct ckpt_fs *fs, struct node *dir, struct ckpt_step *step, struct fuse_file_info *fi)
{
	uint32_t version;
	int64_t age_ns;

	ckpt_lock_take(&step->lock);
	version = step->version->is.version;
	age_ns = ckpt_sys.now_ns() - step->version->is.committed_ns;
	ckpt_lock_drop(&step->lock);
	if (version > 1 && (age_ns < LISTING_UNDER_WAY_NS || node_use(dir)))
		return;
	fi->cache_readdir = 1;
	// A mount for reading is not told of new versions: one that has had some may have another by now.
	fi->keep_cache = !step->base && !(fs->mount->readonly && version > 1);
	if (version > 1) {
		LOCK_SCOPE(&dir->use->lock);

		fi->keep_cache &= dir->use->listed_version == version;
		dir->use->listed_version = version;
	}
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct node *dir = node_of(fs, ino);
	struct handle *h;
	struct place p;
	int rc = handle_new(fs, dir, fi->flags, &h);

	if (rc) {
		reply_error(req, rc);
		return;
	}
	fi->fh = (uintptr_t)h;
	if (fs->mount->readonly)
		(void)ckpt_follow_refresh(fs->store);
	if (dir->kind == NODE_FILES && !place_of(fs, dir, &p)) {
		handle_uses(h, p.step);
		if (place_is_committed(&p) && node_is_top(dir))
			ckpt_removal_dir_opened(p.step, &h->top, fuse_req_ctx(req)->pid);
		if (place_is_committed(&p) && !ckpt_removal_any(p.step))
			keep_listing(fs, dir, p.step, fi);
		place_done(&p);
	}
	if (fuse_reply_open(req, fi) == -ENOENT) {
		ckpt_removal_dir_closed(&h->top);
		handle_free(fs, h);
	}
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);

	(void)ino;
	listing_free(h->listing);
	ckpt_removal_dir_closed(&h->top);
	handle_free(fs_of(req), h);
	reply_error(req, 0);
}

// Some requests carry attributes: then each entry but "." and ".." counts as a lookup of it.
static size_t add_entry(fuse_req_t req, struct node *dir, const struct listed *item, const char *name, bool plus,
			char *buf, size_t room, off_t next)
{
	struct fuse_entry_param e = {.attr = {.st_ino = item->number, .st_mode = item->type}};
	struct ckpt_fs *fs = fs_of(req);
	size_t need;

	if (!plus)
		return fuse_add_direntry(req, buf, room, name, &e.attr, next);
	need = fuse_add_direntry_plus(req, NULL, 0, name, NULL, 0);
	if (need > room)
		return need;
	if (strcmp(name, ".") && strcmp(name, "..") && lookup_child(fs, beside_find(fs, dir, name), name, &e)) {
		// Gone since the listing: told without attributes, the kernel will ask.
		e = (struct fuse_entry_param){.attr = {.st_ino = item->number, .st_mode = item->type}};
	}
	return fuse_add_direntry_plus(req, buf, room, name, &e, next);
}

static void reply_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi,
			  bool plus)
{
	struct ckpt_fs *fs = fs_of(req);
	struct node *dir = node_of(fs, ino);
	struct handle *h = handle_of(fi);
	CLEANUP_FREE char *buf = malloc(size);
	size_t used = 0;
	int rc = buf ? 0 : -ENOMEM;

	if (!rc && (!h->listing || offset == 0)) {
		listing_free(TAKE_PTR(h->listing));
		rc = listing_new(fs, dir, &h->listing);
	}
	if (rc) {
		reply_error(req, rc);
		return;
	}
	for (size_t i = (size_t)offset; i < h->listing->count; i++) {
		const struct listed *item = &h->listing->items[i];
		size_t n = add_entry(req, dir, item, h->listing->heap + item->name, plus, buf + used, size - used,
				     (off_t)i + 1);

		if (n > size - used)
			break;
		used += n;
	}
	fuse_reply_buf(req, buf, used);
}

struct listing_read {
	fuse_ino_t ino;
	size_t size;
	off_t offset;
	bool plus;
};

static void run_readdir(struct call *c)
{
	const struct listing_read *r = (const struct listing_read *)c->data;

	reply_listing(c->req, r->ino, r->size, r->offset, &c->fi, r->plus);
}

static void read_listing(fuse_req_t req, struct fuse_file_info *fi, struct listing_read r)
{
	struct call c = {.run = run_readdir,
			 .req = req,
			 .fs = fs_of(req),
			 .node = node_of(fs_of(req), r.ino),
			 .data = (char *)&r,
			 .data_len = sizeof(r),
			 .fi = *fi};

	if (c.node->control == CONTROL_CONFLICTS || c.node->control == CONTROL_COPY || control_is_array(c.node))
		call_detach(&c); // it may read the manifest of every step, or the headers of one
	else
		run_readdir(&c);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	read_listing(req, fi, (struct listing_read){ino, size, offset, false});
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
	read_listing(req, fi, (struct listing_read){ino, size, offset, true});
}

// A committed step is on disk already, but for attributes that were changed a moment ago.
static void run_fsyncdir(struct call *c)
{
	struct place p;
	int rc = 0;

	if (!place_of(c->fs, c->node, &p)) {
		if (!place_is_committed(&p)) {
			CLEANUP_FD int fd = node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);

			rc = fd < 0 ? fd : ckpt_sys.fsync(fd);
			if (!rc && p.step)
				rc = ckpt_stage_make_durable(p.step, true);
		} else {
			rc = ckpt_change_publish(p.step);
			if (!rc)
				rc = durable_wait(p.step, (struct waiter){&c->fs->ending, fuse_req_ctx(c->req)->pid});
		}
		place_done(&p);
	}
	reply_error(c->req, rc);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct ckpt_fs *fs = fs_of(req);
	struct call c = {.run = run_fsyncdir, .req = req, .fs = fs, .node = node_of(fs, ino)};

	(void)datasync;
	(void)fi;
	if (c.node->kind == NODE_FILES)
		call_detach(&c); // it waits for the disk
	else
		reply_error(req, 0);
}

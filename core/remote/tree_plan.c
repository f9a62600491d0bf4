#include "core/remote/tree_plan.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/tree_change.h"
#include "core/state/journal.h"
#include "core/state/plain.h"
#include "core/step/store_folder.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define HASH_BYTES (1u << 20)
#define ROUNDS_MAX 100                     // of looks at the disk, each after folders were changed there
#define YOUNG_NS (INT64_C(1) * 1000000000) // a file that was changed just now may be about to be renamed, or written on
#define GROWS_NS (INT64_C(300) * 1000000000) // between two looks at a large one that is open for writing

// An entry of the log's tree, and where that says its bytes are.
struct logged {
	char folder_id[CKPT_FOLDER_ID_LEN + 1], id[CKPT_FOLDER_ID_LEN + 1];
	char name[CKPT_NAME_MAX + 1];
	bool link, large, mine;
	uint32_t mode, uid, gid;
	int64_t mtime_ns;
	uint64_t version, size;
	uint8_t sha256[CKPT_SHA256_LEN];
};

struct plan {
	struct ckpt_tree_plan *p;
	struct ckpt_tree_view view;
	struct logged *logged; // by folder and name
	size_t logged_count;
	uint64_t number; // of this node's newest act
	bool changed;    // a folder on disk: look again
	bool stale;      // something has another name than the view says: look again at once
	int error;       // the first
};

static void plan_done(struct plan *x)
{
	ckpt_tree_view_done(&x->view);
	free(x->logged);
}

// --- Looking ------------------------------------------------------------------------------------------------------------

static int by_place(const void *a, const void *b)
{
	const struct logged *x = a, *y = b;
	int order = strcmp(x->folder_id, y->folder_id);

	return order ? order : strcmp(x->name, y->name);
}

static int copy_log(void *arg, const struct ckpt_state *state)
{
	struct plan *x = arg;
	size_t count;
	struct ckpt_plain *const *all = ckpt_state_plains(state, &count);

	x->number = ckpt_state_number(state, x->p->node);
	x->logged = ckpt_calloc(count + 1, sizeof(*x->logged));
	if (!x->logged)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct logged *l = &x->logged[i];

		*l = (struct logged){.link = all[i]->link,
				     .large = all[i]->large,
				     .mine = !strcmp(ckpt_state_node(state, all[i]->node), x->p->node),
				     .mode = all[i]->mode,
				     .uid = all[i]->uid,
				     .gid = all[i]->gid,
				     .mtime_ns = all[i]->mtime_ns,
				     .version = all[i]->version,
				     .size = all[i]->size};
		memcpy(l->folder_id, all[i]->folder_id, sizeof(l->folder_id));
		memcpy(l->id, all[i]->id, sizeof(l->id));
		snprintf(l->name, sizeof(l->name), "%s", all[i]->name);
		memcpy(l->sha256, all[i]->sha256, sizeof(l->sha256));
	}
	x->logged_count = count;
	return 0;
}

static int look(struct plan *x)
{
	int rc;

	plan_done(x);
	x->logged = NULL;
	x->changed = x->stale = false;
	rc = ckpt_journal_look(x->p->store->journal, copy_log, x);
	if (rc)
		return rc;
	qsort(x->logged, x->logged_count, sizeof(*x->logged), by_place);
	return ckpt_tree_look(x->p->store, &x->view);
}

static const struct logged *find_logged(const struct plan *x, const char *folder_id, const char *name)
{
	struct logged key;

	snprintf(key.folder_id, sizeof(key.folder_id), "%s", folder_id);
	snprintf(key.name, sizeof(key.name), "%s", name);
	return bsearch(&key, x->logged, x->logged_count, sizeof(key), by_place);
}

static const struct logged *find_logged_folder(const struct plan *x, const char *id)
{
	for (size_t i = 0; i < x->logged_count; i++)
		if (!strcmp(x->logged[i].id, id))
			return &x->logged[i];
	return NULL;
}

static bool is_there(const struct plan *x, const char *folder_id)
{
	const struct ckpt_tree_entry *e = *folder_id ? ckpt_tree_find_folder(&x->view, folder_id) : NULL;

	return !*folder_id || (e && !e->unreadable);
}

static void failed(struct plan *x, int rc)
{
	if (rc == -EAGAIN || rc == -EBUSY || rc == -ENOENT || rc == -ENOTEMPTY)
		*x->p->again = true;
	else if (rc && !x->error)
		x->error = rc;
}

// --- Taking, for the queue ------------------------------------------------------------------------------------------------

static int take_bytes(int fd, const struct stat *st, struct ckpt_tree_item *it)
{
	ssize_t n;

	it->content_len = (size_t)st->st_size;
	it->content = malloc(it->content_len + 1);
	if (!it->content)
		return -ENOMEM;
	n = ckpt_sys.pread(fd, it->content, it->content_len, 0);
	if (n < 0 || (size_t)n < it->content_len) { // it is being written: there will be another look
		free(TAKE_PTR(it->content));
		return n < 0 ? (int)n : -EAGAIN;
	}
	return 0;
}

static int take_link(int dirfd, const char *name, struct ckpt_tree_item *it)
{
	ssize_t n;

	it->link = true;
	it->content = malloc(PATH_MAX);
	if (!it->content)
		return -ENOMEM;
	n = readlinkat(dirfd, name, it->content, PATH_MAX);
	if (n <= 0 || n > CKPT_PLAIN_TARGET_MAX || !ckpt_act_is_target(it->content, (size_t)n)) {
		free(TAKE_PTR(it->content));
		return n < 0 ? -errno : 1;
	}
	it->content_len = (size_t)n;
	return 0;
}

int ckpt_tree_take(int dirfd, const char *name, struct ckpt_tree_item *it)
{
	CLEANUP_FD int fd = -1;
	struct stat st;

	*it = (struct ckpt_tree_item){.kind = CKPT_ACT_FILE};
	snprintf(it->name, sizeof(it->name), "%s", name);
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!S_ISLNK(st.st_mode) && !S_ISREG(st.st_mode))
		return 1;
	if (S_ISREG(st.st_mode)) {
		fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
		if (fd < 0 || fstat(fd, &st))
			return fd < 0 ? fd : -errno;
		if (!S_ISREG(st.st_mode))
			return 1;
		it->mode = st.st_mode & CKPT_ACT_MODE_MAX;
	}
	it->uid = st.st_uid;
	it->gid = st.st_gid;
	ckpt_tree_file(&st, &it->file);
	if (S_ISREG(st.st_mode) && st.st_size > CKPT_PLAIN_INLINE_MAX)
		return 1;
	return S_ISLNK(st.st_mode) ? take_link(dirfd, name, it) : take_bytes(fd, &st, it);
}

static int hash_file(int dirfd, const char *name, uint8_t ret_sha256[CKPT_SHA256_LEN])
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	CLEANUP_FREE uint8_t *part = malloc(HASH_BYTES);
	struct ckpt_sha256 sum;
	ssize_t n = part ? fd : -ENOMEM;

	ckpt_sha256_begin(&sum);
	for (off_t at = 0; n >= 0 && (n = ckpt_sys.pread(fd, part, HASH_BYTES, at)) > 0; at += n)
		ckpt_sha256_add(&sum, part, (size_t)n);
	ckpt_sha256_end(&sum, ret_sha256);
	return (int)n;
}

// The bytes on disk are those that the log says. False, too, where they cannot be read.
static bool has_bytes_of(struct plan *x, const struct ckpt_tree_entry *e, const struct logged *l)
{
	struct ckpt_tree_item it;
	uint8_t sha256[CKPT_SHA256_LEN];
	CLEANUP_FD int dirfd = -1;

	if ((e->kind == CKPT_TREE_LINK) != l->link || (uint64_t)e->st.st_size != l->size)
		return false;
	dirfd = ckpt_tree_open_folder(x->p->store, &x->view, e->folder_id);
	if (dirfd >= 0 && l->large)
		return !hash_file(dirfd, e->name, sha256) && !memcmp(sha256, l->sha256, sizeof(sha256));
	if (dirfd < 0 || ckpt_tree_take(dirfd, e->name, &it))
		return false;
	ckpt_sha256(it.content, it.content_len, sha256);
	free(it.content);
	return !memcmp(sha256, l->sha256, sizeof(sha256));
}

static bool is_written_at(const struct plan *x, int dirfd, const char *name)
{
	const struct ckpt_store_calls *calls = &x->p->store->calls;

	return dirfd >= 0 && calls->is_written && calls->is_written(calls->is_written_arg, dirfd, name);
}

static bool is_written(const struct plan *x, const struct ckpt_tree_entry *e)
{
	CLEANUP_FD int dirfd = ckpt_tree_open_folder(x->p->store, &x->view, e->folder_id);

	return is_written_at(x, dirfd, e->name);
}

static bool is_young(const struct plan *x, const struct ckpt_tree_entry *e, const struct ckpt_tree_file *file)
{
	const struct ckpt_tree_seen *seen = ckpt_tree_seen_find(x->p->seen, e->folder_id, e->name);
	int64_t pushed_ns = seen && seen->pushed_ns ? seen->pushed_ns : x->p->started_ns;
	int64_t now_ns = ckpt_sys.now_ns();

	if (file->ctime_ns > now_ns - YOUNG_NS && file->ctime_ns < now_ns + YOUNG_NS)
		return true;
	return file->size > CKPT_PLAIN_INLINE_MAX && ckpt_sys.mono_ns() - pushed_ns < GROWS_NS && is_written(x, e);
}

// One that is large and open for writing may be young for as long as the run goes on: nobody waits for it.
static bool may_grow(const struct plan *x, const struct ckpt_tree_entry *e, const struct ckpt_tree_file *file)
{
	return file->size > CKPT_PLAIN_INLINE_MAX && is_written(x, e);
}

static void queue_file(struct plan *x, const struct ckpt_tree_entry *e)
{
	struct ckpt_tree_file file;
	CLEANUP_FD int dirfd = -1;
	struct ckpt_tree_item it;
	int rc;

	ckpt_tree_file(&e->st, &file);
	if (ckpt_tree_queue_has(x->p->queue, CKPT_ACT_FILE, e->folder_id, e->name, &file))
		return;
	if (is_young(x, e, &file)) {
		*(may_grow(x, e, &file) ? x->p->again : x->p->soon) = true;
		return;
	}
	dirfd = ckpt_tree_open_folder(x->p->store, &x->view, e->folder_id);
	rc = dirfd < 0 ? dirfd : ckpt_tree_take(dirfd, e->name, &it);
	it.large = rc == 1 && it.file.size > CKPT_PLAIN_INLINE_MAX;
	if (!rc || it.large) {
		it.path = strdup(e->path);
		rc = it.path ? 0 : -ENOMEM;
	}
	if (rc) {
		if (rc == -ENOMEM && dirfd >= 0)
			free(it.content);
		failed(x, MIN(rc, 0));
		return;
	}
	memcpy(it.folder_id, e->folder_id, sizeof(it.folder_id));
	it.number = x->number;
	failed(x, ckpt_tree_queue_add(x->p->queue, &it));
}

// MKDIR, or MOVE: of the log's version `before`.
static void queue_folder(struct plan *x, enum ckpt_act_kind kind, const struct ckpt_tree_entry *e, uint64_t before)
{
	struct ckpt_tree_item it = {.kind = kind, .before = before, .number = x->number};

	if (ckpt_tree_queue_has(x->p->queue, kind, e->folder_id, e->name, NULL))
		return;
	it.path = strdup(e->path);
	if (!it.path) {
		failed(x, -ENOMEM);
		return;
	}
	if (kind == CKPT_ACT_MKDIR) {
		it.mode = e->st.st_mode & CKPT_ACT_MODE_MAX;
		it.uid = e->st.st_uid;
		it.gid = e->st.st_gid;
	}
	memcpy(it.folder_id, e->folder_id, sizeof(it.folder_id));
	memcpy(it.id, e->id, sizeof(it.id));
	snprintf(it.name, sizeof(it.name), "%s", e->name);
	failed(x, ckpt_tree_queue_add(x->p->queue, &it));
}

static void queue_remove(struct plan *x, const struct logged *l)
{
	struct ckpt_tree_item it = {.kind = CKPT_ACT_REMOVE, .before = l->version, .number = x->number};

	if (ckpt_tree_queue_has(x->p->queue, CKPT_ACT_REMOVE, l->folder_id, l->name, NULL))
		return;
	memcpy(it.folder_id, l->folder_id, sizeof(it.folder_id));
	memcpy(it.name, l->name, sizeof(it.name));
	failed(x, ckpt_tree_queue_add(x->p->queue, &it));
}

// --- Carrying out -------------------------------------------------------------------------------------------------------

// On disk before it is seen: a name that a power cut takes back would look as if a user had changed it.
static int change(struct plan *x, const struct ckpt_tree_change *c)
{
	const struct ckpt_store_calls *calls = &x->p->store->calls;
	int rc = calls->change_tree ? calls->change_tree(calls->change_tree_arg, c) : ckpt_tree_change(c);

	if (!rc)
		rc = ckpt_sys.fsync(c->dirfd);
	return rc || !c->moves ? rc : ckpt_sys.fsync(c->from_dirfd);
}

static int name_temp(char ret_name[64])
{
	uint64_t salt;
	int rc = ckpt_sys.random(&salt, sizeof(salt));

	if (!rc)
		snprintf(ret_name, 64, CKPT_TRASH_COPY "%016llx-tree", (unsigned long long)salt);
	return rc;
}

static int write_bytes(struct plan *x, const struct logged *l, const void *content, size_t len, int fd)
{
	struct ckpt_plain_large large;
	ssize_t n;

	if (!l->large) {
		n = ckpt_sys.pwrite(fd, content, len, 0);
		return (int)MIN(n, 0);
	}
	ckpt_plain_large_decode(content, &large);
	return ckpt_tree_large_get(x->p->store->objects, &large, fd, x->p->pace);
}

// In the trash, from where it is renamed. A symbolic link has no bytes that could be lost.
static int write_temp(struct plan *x, const struct logged *l, const void *content, size_t len, const char *temp)
{
	int trash_fd = x->p->store->trash_fd, fd, rc;
	int64_t ns = (l->mtime_ns % 1000000000 + 1000000000) % 1000000000; // of a time before 1970, too
	struct timespec times[2] = {{0, UTIME_OMIT}, {(l->mtime_ns - ns) / 1000000000, ns}};

	if (l->link) {
		CLEANUP_FREE char *target = strndup(content, len);

		rc = target ? ckpt_sys.symlink(target, trash_fd, temp) : -ENOMEM;
		return rc ? rc : utimensat(trash_fd, temp, times, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
	}
	fd = ckpt_sys.open(trash_fd, temp, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	rc = write_bytes(x, l, content, len, fd);
	rc = rc ? rc : futimens(fd, times) ? -errno : ckpt_sys.fdatasync(fd);
	ckpt_sys.close(fd);
	return rc;
}

// Only root gives files away. The mode comes after the owner, whose change takes bits of it away.
static int give_to_owner(struct plan *x, const struct logged *l, const char *temp)
{
	int trash_fd = x->p->store->trash_fd;

	if (!geteuid() && fchownat(trash_fd, temp, l->uid, l->gid, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return !l->link && fchmodat(trash_fd, temp, l->mode, 0) ? -errno : 0;
}

static int make_temp(struct plan *x, const struct logged *l, const char *temp)
{
	CLEANUP_FREE void *content = NULL;
	int trash_fd = x->p->store->trash_fd, rc;
	CLEANUP_FD int fd = -1;
	size_t len;

	if (!*l->id) {
		rc = ckpt_journal_plain(x->p->store->journal, l->folder_id, l->name, l->version, &content, &len);
		if (!rc)
			rc = write_temp(x, l, content, len, temp);
	} else {
		rc = ckpt_sys.mkdir(trash_fd, temp, 0700);
		fd = rc ? -1 : ckpt_sys.open(trash_fd, temp, O_RDONLY | O_DIRECTORY, 0);
		if (!rc)
			rc = fd < 0 ? fd : ckpt_store_folder_set(fd, l->id);
	}
	return rc ? rc : give_to_owner(x, l, temp);
}

// A step has the name, or is about to: it is carried out once that is gone.
static bool is_a_steps(struct plan *x, const struct logged *l)
{
	struct ckpt_step *step = ckpt_step_find(x->p->store, l->folder_id, l->name);

	ckpt_step_unref(step);
	return step;
}

static int name_aside(struct plan *x, int dirfd, const char *name, char ret_name[CKPT_NAME_MAX + 1])
{
	struct stat st;

	for (unsigned n = 1; n < 1000; n++) {
		int rc = ckpt_journal_other_name(x->p->store->journal, "", name, n, ret_name);

		if (rc && rc != -EEXIST)
			return rc;
		if (!rc && fstatat(dirfd, ret_name, &st, AT_SYMLINK_NOFOLLOW) && errno == ENOENT)
			return 0;
	}
	return -EEXIST;
}

static void tell_aside(struct plan *x, const struct ckpt_tree_entry *e, const char *aside)
{
	ckpt_errlog_add(x->p->store->errlog, e->path, -EEXIST, "look at both, and remove the one that is not wanted",
			"another node has changed it, too: that of this node is called %s now", aside);
	*x->p->soon = true; // the next look finds it under that name
}

// It has the version of the log now, if it is still what was put there.
static int see(struct plan *x, const struct logged *l, int dirfd, const struct stat *was)
{
	struct ckpt_tree_file file;
	struct stat st;

	if (fstatat(dirfd, l->name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (st.st_ino != was->st_ino ||
	    (!*l->id && (st.st_size != was->st_size || memcmp(&st.st_mtim, &was->st_mtim, sizeof(st.st_mtim)))))
		return -EAGAIN;
	ckpt_tree_file(&st, &file);
	return ckpt_tree_seen_set(x->p->seen, l->folder_id, l->name, *l->id ? l->id : NULL, l->version, &file);
}

// Not twice in a row, and not where the disk would be full then.
static int may_fetch(struct plan *x, const struct logged *l)
{
	uint64_t left, all;
	int rc = ckpt_sys.room(x->p->store->trash_fd, &left, &all);

	if (!rc && l->size + all / 100 > left)
		rc = -ENOSPC;
	return rc ? rc : ckpt_tree_queue_try(x->p->queue, l->folder_id, l->name, l->version) ? 0 : -EAGAIN;
}

// e: what has its place, NULL: nothing. aside: that is not to be lost.
static int put_in_place(struct plan *x, const struct logged *l, const struct ckpt_tree_entry *e, bool aside)
{
	CLEANUP_FD int dirfd = ckpt_tree_open_folder(x->p->store, &x->view, l->folder_id);
	char temp[64], other[CKPT_NAME_MAX + 1];
	struct stat made;
	int rc = dirfd < 0 ? dirfd : is_a_steps(x, l) || is_written_at(x, dirfd, l->name) ? -EBUSY : name_temp(temp);

	if (!rc && l->large)
		rc = may_fetch(x, l);
	if (!rc && aside)
		rc = name_aside(x, dirfd, l->name, other);
	if (rc)
		return rc;
	rc = make_temp(x, l, temp);
	if (!rc && fstatat(x->p->store->trash_fd, temp, &made, AT_SYMLINK_NOFOLLOW))
		rc = -errno;
	if (!rc)
		rc = change(x, &(struct ckpt_tree_change){.dirfd = dirfd,
							  .name = l->name,
							  .expect = e ? &e->st : NULL,
							  .aside = aside ? other : NULL,
							  .from_dirfd = x->p->store->trash_fd,
							  .from = temp});
	if (rc) {
		(void)ckpt_sys.unlink(x->p->store->trash_fd, temp, *l->id ? AT_REMOVEDIR : 0);
		return rc;
	}
	if (aside)
		tell_aside(x, e, other);
	x->changed |= *l->id || aside;
	x->stale |= aside;
	return see(x, l, dirfd, &made);
}

// A step keeps the log's version from its place. This node's change must not wait with it: it is pushed under its new name.
static int move_aside(struct plan *x, const struct ckpt_tree_entry *e)
{
	CLEANUP_FD int dirfd = ckpt_tree_open_folder(x->p->store, &x->view, e->folder_id);
	char other[CKPT_NAME_MAX + 1];
	int rc = dirfd < 0 ? dirfd : is_written_at(x, dirfd, e->name) ? -EBUSY : name_aside(x, dirfd, e->name, other);

	if (!rc)
		rc = change(
			x,
			&(struct ckpt_tree_change){
				.dirfd = dirfd, .name = other, .from_dirfd = dirfd, .from = e->name, .moves = &e->st});
	if (rc)
		return rc;
	tell_aside(x, e, other);
	x->changed = x->stale = true;
	return 0;
}

static int take_away(struct plan *x, const struct ckpt_tree_entry *e)
{
	CLEANUP_FD int dirfd = ckpt_tree_open_folder(x->p->store, &x->view, e->folder_id);
	int rc = dirfd < 0 ? dirfd
			   : change(x, &(struct ckpt_tree_change){.dirfd = dirfd, .name = e->name, .expect = &e->st});

	if (!rc)
		ckpt_tree_seen_drop(x->p->seen, e->folder_id, e->name);
	return rc;
}

static int move_folder(struct plan *x, const struct logged *l, const struct ckpt_tree_entry *e)
{
	CLEANUP_FD int from = ckpt_tree_open_folder(x->p->store, &x->view, e->folder_id);
	CLEANUP_FD int to = ckpt_tree_open_folder(x->p->store, &x->view, l->folder_id);
	const struct ckpt_tree_entry *there = ckpt_tree_find(&x->view, l->folder_id, l->name);
	struct ckpt_tree_seen *was = ckpt_tree_seen_folder(x->p->seen, l->id);
	char other[CKPT_NAME_MAX + 1];
	int rc = from < 0 ? from : to < 0 ? to : is_a_steps(x, l) ? -EBUSY : 0;

	if (!rc && there)
		rc = name_aside(x, to, l->name, other);
	if (!rc)
		rc = change(x, &(struct ckpt_tree_change){.dirfd = to,
							  .name = l->name,
							  .expect = there ? &there->st : NULL,
							  .aside = there ? other : NULL,
							  .from_dirfd = from,
							  .from = e->name,
							  .moves = &e->st});
	if (rc)
		return rc;
	if (there)
		tell_aside(x, there, other);
	if (was)
		ckpt_tree_seen_drop(x->p->seen, was->folder_id, was->name);
	x->changed = x->stale = true;
	return see(x, l, to, &e->st);
}

// --- Folders ------------------------------------------------------------------------------------------------------------

static bool is_at(const struct ckpt_tree_entry *e, const struct logged *l)
{
	return !strcmp(e->folder_id, l->folder_id) && !strcmp(e->name, l->name);
}

static int make_folder(struct plan *x, const struct logged *l)
{
	const struct ckpt_tree_entry *there = ckpt_tree_find(&x->view, l->folder_id, l->name);

	return put_in_place(x, l, there, there);
}

// This node has removed the folder; another one has put something into it that this node has not seen, or has a step in it.
static bool has_news_in(const struct plan *x, const struct logged *folder)
{
	for (size_t i = 0; i < x->logged_count; i++) {
		const struct logged *l = &x->logged[i];
		const struct ckpt_tree_seen *seen;

		if (strcmp(l->folder_id, folder->id))
			continue;
		seen = ckpt_tree_seen_find(x->p->seen, l->folder_id, l->name);
		if (!seen || seen->version != l->version || (*l->id && has_news_in(x, l)))
			return true;
	}
	return ckpt_step_any(x->p->store, folder->id);
}

static int make_again(struct plan *x, const struct logged *l)
{
	ckpt_tree_queue_drop(x->p->queue, CKPT_ACT_REMOVE, l->folder_id, l->name);
	return make_folder(x, l);
}

static bool is_hidden(const struct plan *x, const struct logged *l)
{
	const struct ckpt_tree_entry *there = ckpt_tree_find(&x->view, l->folder_id, l->name);

	return there && there->kind == CKPT_TREE_OTHER;
}

static void plan_folder(struct plan *x, const struct logged *l)
{
	const struct ckpt_tree_entry *e = ckpt_tree_find_folder(&x->view, l->id);
	const struct ckpt_tree_seen *seen = ckpt_tree_seen_folder(x->p->seen, l->id);
	bool known = seen && seen->version == l->version;

	if (!e && x->view.unknown && (seen || is_hidden(x, l)))
		return;
	if (e && is_at(e, l))
		ckpt_tree_queue_drop(x->p->queue, CKPT_ACT_REMOVE, l->folder_id, l->name);
	if (e && is_at(e, l))
		failed(x, known ? 0 : ckpt_tree_seen_set(x->p->seen, l->folder_id, l->name, l->id, l->version, NULL));
	else if (known && !e && has_news_in(x, l) && is_there(x, l->folder_id))
		failed(x, make_again(x, l));
	else if (known && e)
		queue_folder(x, CKPT_ACT_MOVE, e, l->version);
	else if (known)
		queue_remove(x, l);
	else if (is_there(x, l->folder_id))
		failed(x, e ? move_folder(x, l, e) : make_folder(x, l));
}

static bool is_empty(const struct plan *x, const struct ckpt_tree_entry *folder)
{
	for (const struct ckpt_tree_entry *e = folder + 1; e < x->view.at + x->view.count; e++)
		if (!strcmp(e->folder_id, folder->id))
			return false;
	return true;
}

// One that the log has not. Another node has removed it, or this one has made it; or removed, while something of this node is in it.
static void plan_own_folder(struct plan *x, const struct ckpt_tree_entry *e)
{
	int rc;

	if (find_logged_folder(x, e->id))
		return;
	if (e->unreadable && ckpt_tree_seen_folder(x->p->seen, e->id)) {
		*x->p->again = true;
		return;
	}
	if (!ckpt_tree_seen_folder(x->p->seen, e->id) || !is_empty(x, e) || ckpt_step_any(x->p->store, e->id)) {
		queue_folder(x, CKPT_ACT_MKDIR, e, 0);
		return;
	}
	rc = take_away(x, e);
	failed(x, rc);
	x->changed |= !rc;
}

// --- Files --------------------------------------------------------------------------------------------------------------

// Only root can have given the file to its owner.
static bool has_owner_of(const struct ckpt_tree_entry *e, const struct logged *l)
{
	return (geteuid() || (e->st.st_uid == l->uid && e->st.st_gid == l->gid)) &&
	       (l->link || (e->st.st_mode & CKPT_ACT_MODE_MAX) == l->mode);
}

// A user's own file that has the same bytes: on disk before it is seen, as those of others are.
static int see_alike(struct plan *x, const struct logged *l, const struct ckpt_tree_entry *e)
{
	CLEANUP_FD int dirfd = ckpt_tree_open_folder(x->p->store, &x->view, l->folder_id);
	CLEANUP_FD int fd = dirfd < 0 || l->link ? -1 : ckpt_sys.open(dirfd, l->name, O_RDONLY | O_NONBLOCK, 0);
	int rc = dirfd < 0 ? dirfd : fd < 0 && !l->link ? fd : 0;

	if (!rc && fd >= 0)
		rc = ckpt_sys.fsync(fd);
	if (!rc)
		rc = ckpt_sys.fsync(dirfd);
	return rc ? rc : see(x, l, dirfd, &e->st);
}

static void plan_both(struct plan *x, const struct logged *l, const struct ckpt_tree_entry *e)
{
	const struct ckpt_tree_seen *seen = ckpt_tree_seen_find(x->p->seen, l->folder_id, l->name);
	bool changed = !seen || *seen->id || !ckpt_tree_file_is(&seen->file, &e->st);
	bool known = seen && seen->version == l->version, same;

	ckpt_tree_queue_drop(x->p->queue, CKPT_ACT_REMOVE, l->folder_id, l->name);
	if (!changed && known)
		return;
	if (e->kind == CKPT_TREE_FOLDER || e->kind == CKPT_TREE_OTHER) {
		failed(x, put_in_place(x, l, e, true));
		return;
	}
	same = has_bytes_of(x, e, l);
	if (same && (has_owner_of(e, l) || !seen))
		failed(x, see_alike(x, l, e));
	else if (changed && (known || l->mine))
		queue_file(x, e);
	else if (changed && !same && is_a_steps(x, l))
		failed(x, move_aside(x, e));
	else
		failed(x, put_in_place(x, l, e, changed && !same));
}

static void plan_logged(struct plan *x, const struct logged *l)
{
	const struct ckpt_tree_entry *e = ckpt_tree_find(&x->view, l->folder_id, l->name);
	const struct ckpt_tree_seen *seen = ckpt_tree_seen_find(x->p->seen, l->folder_id, l->name);

	if (e && e->kind == CKPT_TREE_FOLDER && find_logged_folder(x, e->id))
		return; // which is about to move
	if (e)
		plan_both(x, l, e);
	else if (x->view.unknown && (seen || !is_there(x, l->folder_id)))
		return;
	else if (seen && seen->version == l->version)
		queue_remove(x, l);
	else if (is_there(x, l->folder_id))
		failed(x, put_in_place(x, l, NULL, false));
}

// A file that the log has not: another node has removed it, or this one has made or changed it.
static void plan_own(struct plan *x, const struct ckpt_tree_entry *e)
{
	const struct ckpt_tree_seen *seen = ckpt_tree_seen_find(x->p->seen, e->folder_id, e->name);

	if (find_logged(x, e->folder_id, e->name) || e->kind == CKPT_TREE_OTHER)
		return;
	if (seen && !*seen->id && ckpt_tree_file_is(&seen->file, &e->st))
		failed(x, take_away(x, e));
	else
		queue_file(x, e);
}

static void forget_gone(struct plan *x)
{
	for (size_t i = x->p->seen->count; i-- > 0;) {
		const struct ckpt_tree_seen *seen = &x->p->seen->at[i];

		if (!find_logged(x, seen->folder_id, seen->name) &&
		    !(*seen->id && (find_logged_folder(x, seen->id) || ckpt_tree_find_folder(&x->view, seen->id))) &&
		    !ckpt_tree_find(&x->view, seen->folder_id, seen->name))
			ckpt_tree_seen_drop(x->p->seen, seen->folder_id, seen->name);
	}
}

// --- The whole ----------------------------------------------------------------------------------------------------------

// Of the log's folders those that are in one which is not there yet come in the next round.
static int plan_folders(struct plan *x)
{
	int rc = 0;

	for (int round = 0; round < ROUNDS_MAX && !rc; round++) {
		rc = look(x);
		for (size_t i = 0; i < x->logged_count && !rc && !x->stale; i++)
			if (*x->logged[i].id)
				plan_folder(x, &x->logged[i]);
		if (!x->changed)
			break;
	}
	return rc;
}

int ckpt_tree_reconcile(struct ckpt_tree_plan *p)
{
	CLEANUP(plan_done) struct plan x = {.p = p};
	int rc;

	rc = plan_folders(&x);
	if (rc)
		return rc;
	for (size_t i = 0; i < x.view.count && !x.stale; i++)
		if (x.view.at[i].kind != CKPT_TREE_FOLDER)
			plan_own(&x, &x.view.at[i]);
	for (size_t i = 0; i < x.logged_count && !x.stale; i++)
		if (!*x.logged[i].id)
			plan_logged(&x, &x.logged[i]);
	for (size_t i = 0; i < x.view.count && !x.stale; i++)
		if (x.view.at[i].kind == CKPT_TREE_FOLDER)
			plan_own_folder(&x, &x.view.at[i]);
	if (!x.stale && !x.view.unknown)
		forget_gone(&x);
	if (x.changed || x.stale)
		*p->soon = true;
	return x.error;
}

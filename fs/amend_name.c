// Names in committed steps: what is renamed within one, moved or linked into one, or moved out of one.
//
//   within, to a free name, or over a file where neither holds array data     a version (core/save/amend_move.h)
//   link within                                                               a version with a hard link
//   from elsewhere in the mount into it                                       an addition: first the version, then the old name goes
//   out of it                                                                 a file of its own there first, then a removal mark
//   over a file, and one of the two holds array data; an exchange             the step is reopened
//   a directory into or out of it, a file that is open for writing            EXDEV: mv then copies
//
// After a crash between the two acts of a move both names have the file.
#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/amend_move.h"
#include "core/save/clone.h"
#include "core/save/pin.h"
#include "core/save/remove.h"
#include "core/save/session.h"
#include "core/save/share.h"
#include "core/save/share_chunks.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "fs/amend_shared.h"
#include "fs/attr.h"
#include "fs/draft.h"
#include "fs/latest.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define RELEASE_NS INT64_C(500000000) // that a closed descriptor is waited for
#define RELEASE_NAP_NS 1000000

// --- New names ------------------------------------------------------------------------------------------------------------

int amend_open_session(struct ckpt_fs *fs __attribute__((unused)), const struct place *p)
{
	return ckpt_session_open(p->step);
}

// The directory at p, as the step has it.
static int entry_at(const struct place *p, struct ckpt_entry *ret_entry)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(p->step, &m);

	if (rc)
		return rc;
	rc = ckpt_manifest_lookup(m, p->path, &ret_entry->index);
	if (!rc) {
		ckpt_manifest_entry(m, ret_entry->index, ret_entry);
		ckpt_attributes_apply(p->step, m, ret_entry);
	}
	ckpt_manifest_unref(m);
	return rc;
}

// The answer that a disk gives to users who are not root: raw files are not in the step's own directories.
static int may_write(const struct place *dir)
{
	struct ckpt_entry e;
	int rc = geteuid() == 0 ? 0 : entry_at(dir, &e);

	return rc || geteuid() == 0 ? rc : e.mode & S_IWUSR ? 0 : -EACCES;
}

int amend_check_place(const struct call *c, struct node *dir, const struct place *p, const char *name, const char *path,
		      char ret_raw[CKPT_AMENDING_RAW_MAX])
{
	int rc = check_new_name(c->fs, dir, p->step, name);

	ckpt_removal_dir_forget(p->step, fuse_req_ctx(c->req)->pid);
	if (!rc)
		rc = may_write(p);
	if (!rc)
		rc = ckpt_amending_check_free(p->step, path);
	return rc ? rc : ckpt_amending_raw_name(ret_raw);
}

int amend_give(struct call *c, const struct place *p, int dirfd, const char *raw)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);
	struct ckpt_entry dir;
	struct stat st;
	mode_t mode = c->mode & 07777;
	bool root = geteuid() == 0, setgid;
	int rc = entry_at(p, &dir);

	if (rc)
		return rc;
	if (fstatat(dirfd, raw, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	setgid = dir.mode & S_ISGID;
	if ((root || setgid) &&
	    fchownat(dirfd, raw, root ? ctx->uid : (uid_t)-1, setgid ? dir.gid : ctx->gid, AT_SYMLINK_NOFOLLOW) && root)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return 0;
	if (S_ISDIR(st.st_mode))
		mode = (mode & ~(mode_t)S_ISGID) | (setgid ? S_ISGID : 0);
	return (st.st_mode & 07777) != mode && fchmodat(dirfd, raw, mode, 0) ? -errno : 0;
}

bool amend_raw_of(const struct place *p, const char *name, char *ret_raw, size_t cap)
{
	char path[sizeof(p->buf) + CKPT_NAME_MAX + 2];

	snprintf(path, sizeof(path), "%s%s%s", p->path, *p->path ? "/" : "", name);
	return ckpt_amending_raw_of(p->step, path, ret_raw, cap);
}

// --- The two ends ---------------------------------------------------------------------------------------------------------

static int ends_of(struct call *c, struct amend_ends *ret)
{
	int rc = amend_path_of(c->fs, c->node, c->name, &ret->from, ret->path, sizeof(ret->path));

	if (rc)
		return rc;
	rc = amend_path_of(c->fs, c->other, c->other_name, &ret->to, ret->to_path, sizeof(ret->to_path));
	if (rc) {
		place_done(&ret->from);
		return rc;
	}
	c->step = ret->from.step; // borrowed: who looks at the call wants to know
	c->other_step = ret->to.step;
	return 0;
}

static void ends_done(struct call *c, struct amend_ends *e)
{
	c->step = c->other_step = NULL;
	place_done(&e->from);
	place_done(&e->to);
}

static bool is_committed(const struct ckpt_step *step)
{
	return step && ckpt_step_state((struct ckpt_step *)(uintptr_t)step) == CKPT_STEP_COMMITTED;
}

int amend_find_entry(struct ckpt_step *step, const char *path, struct ckpt_manifest **ret_m, struct ckpt_entry *ret)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(step, &m);

	if (rc)
		return rc;
	rc = ckpt_manifest_lookup(m, path, &ret->index);
	if (!rc && ckpt_removal_has(step, m, ret->index))
		rc = -ENOENT;
	if (rc) {
		ckpt_manifest_unref(m);
		return rc;
	}
	ckpt_manifest_entry(m, ret->index, ret);
	*ret_m = m;
	return 0;
}

static uint64_t number_at(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;

	if (amend_find_entry(step, path, &m, &e))
		return 0;
	ckpt_manifest_unref(m);
	return e.ino;
}

// The number of the file that loses its name. A process that has it open reads on.
static uint64_t replaced_at(struct call *c, struct ckpt_step *step, const char *path)
{
	uint64_t number = number_at(step, path);

	if (number)
		handle_back_file(c->fs, step, number);
	return number;
}

// In a step that was read from the store nodes of files that were added since are live ones.
static void drop_name_locked(struct ckpt_fs *fs, uint64_t space, uint64_t number, struct node *dir, const char *name)
{
	struct node *n = number ? node_find(fs, space, number) : NULL;

	if (n)
		name_drop_locked(fs, n, dir, name);
	node_unref(fs, n);
}

static void give_name_locked(struct ckpt_fs *fs, uint64_t space, uint64_t number, struct call *c)
{
	struct node *n = number ? node_find(fs, space, number) : NULL;

	if (n) {
		name_drop_locked(fs, n, c->node, c->name);
		(void)name_add_locked(fs, n, c->other, c->other_name);
	}
	node_unref(fs, n);
}

static void move_names(struct call *c, const struct ckpt_step *step, uint64_t number, uint64_t replaced)
{
	names_write_lock(c->fs);
	drop_name_locked(c->fs, node_space(step), replaced, c->other, c->other_name);
	drop_name_locked(c->fs, SPACE_LIVE, replaced, c->other, c->other_name);
	give_name_locked(c->fs, node_space(step), number, c);
	give_name_locked(c->fs, SPACE_LIVE, number, c);
	names_unlock(c->fs);
}

// --- Within a step --------------------------------------------------------------------------------------------------------

// A file that is not closed yet: no version has it, and its raw file stays where it is.
static int move_pending_names(void *arg)
{
	struct call *c = arg;
	struct live_child child;
	CLEANUP_FD int dirfd = -1;
	char raw[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = place_of(c->fs, c->node, &p);

	if (rc)
		return rc;
	dirfd = amend_open_session(c->fs, &p);
	rc = dirfd < 0                                      ? dirfd
	     : !amend_raw_of(&p, c->name, raw, sizeof(raw)) ? -EAGAIN
							    : stat_live_child(c->node, &p, dirfd, raw, &child);
	place_done(&p);
	if (rc)
		return rc;
	names_write_lock(c->fs);
	give_name_locked(c->fs, SPACE_LIVE, child.number, c);
	names_unlock(c->fs);
	return 0;
}

static int rename_pending(struct call *c, const struct amend_ends *e)
{
	int rc = ckpt_amending_check_free(c->step, e->to_path);

	if (!rc)
		rc = ckpt_amending_rename(c->step, e->path, e->to_path, move_pending_names, c);
	return rc == -EEXIST || rc == -EAGAIN ? CALL_REOPENS : rc;
}

static int rename_within(struct call *c, const struct amend_ends *e)
{
	struct ckpt_names names = {e->path, e->to_path, !(c->flags & RENAME_NOREPLACE)};
	uint64_t number, replaced;
	int rc;

	if (ckpt_amending_is_pending(c->step, e->path))
		return rename_pending(c, e);
	if (ckpt_amending_is_pending(c->step, e->to_path) || ckpt_amending_any_below(c->step, e->path))
		return CALL_REOPENS;
	if (ckpt_pin_is(c->step)) {
		ckpt_pin_tell(c->step);
		return -EPERM;
	}
	ckpt_removal_dir_forget(c->step, fuse_req_ctx(c->req)->pid);
	number = number_at(c->step, e->path);
	replaced = replaced_at(c, c->step, e->to_path);
	rc = ckpt_amend_move(c->step, &names);
	if (rc == -EMEDIUMTYPE || rc == -EBUSY || rc == -ESTALE)
		return CALL_REOPENS;
	if (rc)
		return rc;
	if (number != replaced)
		move_names(c, c->step, number, replaced);
	amend_show_change(c->fs, c->node);
	amend_show_change(c->fs, c->other);
	return 0;
}

// --- Into a step ----------------------------------------------------------------------------------------------------------

struct incoming {
	int session_fd; // of the step
	char raw[CKPT_AMENDING_RAW_MAX];
	uint64_t number; // of the node that the name goes to; 0: the kernel looks it up
};

// A copy with all that belongs to it, of a file that nobody writes.
static int copy_open(int from, const struct incoming *in)
{
	CLEANUP_FD int to = -1;
	struct statx stx;
	int rc = statx(from, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno : 0;

	if (rc)
		return rc;
	to = ckpt_sys.open(in->session_fd, in->raw, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (to < 0)
		return to;
	(void)ckpt_amending_mark(to);
	rc = ckpt_clone_file(from, to, &stx, false);
	if (rc)
		ckpt_sys.unlink(in->session_fd, in->raw, 0);
	return rc;
}

static int copy_live(int dirfd, const char *name, const struct incoming *in)
{
	CLEANUP_FD int from = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);

	return from < 0 ? from : copy_open(from, in);
}

// Until its old name is gone it has two: the mark sees to it that nobody changes it by that one.
static int link_live(int dirfd, const char *name, const struct incoming *in)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	int rc = fd < 0 ? fd : ckpt_share_mark(fd);

	if (!rc)
		rc = ckpt_amending_mark(fd);
	return rc ? rc : ckpt_sys.link(dirfd, name, in->session_fd, in->raw);
}

// *ret_ending: a descriptor was closed, and its release may be under way.
static bool has_writers(struct ckpt_fs *fs, uint64_t number, bool *ret_ending)
{
	struct node *n = node_find(fs, SPACE_LIVE, number);
	bool is = false;

	*ret_ending = false;
	if (n && node_used(n)) {
		ckpt_lock_take(&n->use->lock);
		is = n->use->write_opens;
		*ret_ending = __atomic_load_n(&n->use->ending_writers, __ATOMIC_RELAXED);
		ckpt_lock_drop(&n->use->lock);
	}
	node_unref(fs, n);
	return is;
}

// close(2) returns before its release has come. A rename right after it waits for that, a moment.
static bool is_written(struct ckpt_fs *fs, uint64_t number)
{
	int64_t until_ns = ckpt_sys.mono_ns() + RELEASE_NS;
	bool ending;

	while (has_writers(fs, number, &ending)) {
		if (!ending || ckpt_sys.mono_ns() >= until_ns)
			return true;
		ckpt_sys.sleep_ns(RELEASE_NAP_NS);
	}
	return false;
}

static int bring_live(struct call *c, int from_fd, const struct live_child *child, struct incoming *in)
{
	int rc;

	if (S_ISDIR(child->stx.stx_mode) || is_written(c->fs, child->number))
		return -EXDEV;
	if (c->step && ckpt_stage_has_failed(c->step, ckpt_store_ino(&child->stx)))
		return -EIO; // a fsync of the client's has said so
	if (S_ISLNK(child->stx.stx_mode) && child->stx.stx_nlink == 1) {
		rc = ckpt_sys.link(from_fd, c->name, in->session_fd, in->raw);
	} else if (S_ISREG(child->stx.stx_mode) && child->stx.stx_nlink == 1 && !child->shared) {
		rc = link_live(from_fd, c->name, in);
	} else {
		return S_ISREG(child->stx.stx_mode) ? copy_live(from_fd, c->name, in) : -EXDEV;
	}
	in->number = rc ? 0 : child->number;
	return rc == -EPERM || rc == -EACCES || rc == -EMLINK ? -EXDEV : rc;
}

// Whether the file under the new name, or the new one, holds array data: then it is no edit.
static int meets_arrays(const struct amend_ends *e, int from_fd, const char *name)
{
	CLEANUP_FD int fd = -1;
	struct ckpt_manifest *m;
	struct ckpt_entry was;
	int rc = amend_find_entry(e->to.step, e->to_path, &m, &was);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = ckpt_amend_is_array(e->to.step, m, was.index);
	ckpt_manifest_unref(m);
	if (rc || from_fd < 0)
		return rc;
	fd = ckpt_sys.open(from_fd, name, O_RDONLY | O_NONBLOCK, 0);
	return fd == -ELOOP ? 0 : fd < 0 ? fd : ckpt_data_is_open(fd, -1, e->to_path);
}

static int check_incoming(struct call *c, const struct amend_ends *e)
{
	int rc = check_new_name(c->fs, c->other, c->other_step, c->other_name);

	if (!rc)
		rc = may_write(&e->to);
	if (!rc)
		rc = ckpt_amending_settle(c->other_step);
	if (!rc && ckpt_amending_is_pending(c->other_step, e->to_path))
		rc = CALL_REOPENS;
	if (!rc && ckpt_removal_has_path(c->other_step, e->to_path))
		rc = ckpt_remove_publish(c->other_step);
	if (!rc && (c->flags & RENAME_NOREPLACE) && number_at(c->other_step, e->to_path))
		rc = -EEXIST;
	return rc;
}

static int take_in(struct call *c, const struct amend_ends *e, const struct incoming *in)
{
	int rc = ckpt_amend_add_over(c->other_step, e->to_path, in->raw);

	if (rc && rc != -EIO) // that one may be in place
		ckpt_sys.unlink(in->session_fd, in->raw, 0);
	return rc == -EBUSY || rc == -ESTALE ? CALL_REOPENS : rc;
}

static int move_in_live(struct call *c, const struct amend_ends *e, struct incoming *in)
{
	CLEANUP_FD int from_fd = node_open(c->fs, c->node, O_RDONLY | O_DIRECTORY);
	struct live_child child;
	uint64_t replaced;
	int rc = from_fd < 0 ? from_fd : draft_rename_check(c);

	if (!rc)
		rc = look_at_child(c->fs, c->node, from_fd, c->name, &child);
	if (rc == -ENOENT)
		return -EXDEV; // a left-over file, or the link `latest`
	if (!rc)
		rc = ckpt_share_chunks_guard(c->step, from_fd, c->name);
	if (!rc)
		rc = meets_arrays(e, from_fd, c->name);
	if (rc)
		return rc > 0 ? CALL_REOPENS : rc;
	replaced = replaced_at(c, c->other_step, e->to_path);
	rc = bring_live(c, from_fd, &child, in);
	if (!rc)
		rc = take_in(c, e, in);
	if (!rc)
		rc = ckpt_sys.unlink(from_fd, c->name, 0);
	if (rc)
		return rc;
	names_write_lock(c->fs);
	drop_name_locked(c->fs, node_space(c->other_step), replaced, c->other, c->other_name);
	drop_name_locked(c->fs, SPACE_LIVE, replaced, c->other, c->other_name);
	if (in->number)
		give_name_locked(c->fs, SPACE_LIVE, in->number, c);
	else
		drop_name_locked(c->fs, SPACE_LIVE, child.number, c->node, c->name);
	names_unlock(c->fs);
	if (!c->step && latest_is_name(c->name))
		(void)latest_remove(c->fs, c->node);
	return 0;
}

int amend_mark_removed(struct call *c, const struct place *dir)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	int rc = amend_find_entry(dir->step, dir->path, &m, &e);

	if (rc)
		return rc;
	handle_back_child(c->fs, dir->step, m, e.index, c->name);
	rc = ckpt_remove_entry(dir->step, m, e.index, c->name, false, fuse_req_ctx(c->req)->pid);
	ckpt_manifest_unref(m);
	return rc == -EAGAIN ? -EBUSY : rc;
}

int amend_find_outgoing(struct call *c, const struct amend_ends *e, struct ckpt_manifest **ret_m,
			struct ckpt_entry *ret)
{
	int rc = may_write(&e->from);

	if (!rc && ckpt_pin_is(c->step)) {
		ckpt_pin_tell(c->step);
		rc = -EPERM;
	}
	if (!rc)
		rc = amend_find_entry(c->step, e->path, ret_m, ret);
	if (rc == -ENOENT && ckpt_amending_is_pending(c->step, e->path))
		rc = -EXDEV;
	if (!rc && ret->type == CKPT_ENTRY_DIR) {
		ckpt_manifest_unref(*ret_m);
		rc = -EXDEV;
	}
	return rc;
}

static int move_across(struct call *c, const struct amend_ends *e, struct incoming *in)
{
	const struct ckpt_share_progress durable = {.durable = true};
	struct ckpt_manifest *m;
	struct ckpt_entry it;
	int rc = amend_find_outgoing(c, e, &m, &it);

	if (rc)
		return rc;
	rc = meets_arrays(e, -1, NULL);
	if (!rc && number_at(c->other_step, e->to_path))
		rc = ckpt_amend_is_array(c->step, m, it.index);
	if (!rc)
		rc = it.type == CKPT_ENTRY_SYMLINK
			     ? ckpt_share_entry(c->step, m, it.index, in->session_fd, in->raw)
			     : ckpt_share_copy_entry(c->step, m, it.index, in->session_fd, in->raw, &durable);
	else if (rc > 0)
		rc = CALL_REOPENS;
	ckpt_manifest_unref(m);
	if (!rc)
		rc = take_in(c, e, in);
	return rc ? rc : amend_mark_removed(c, &e->from);
}

static int move_in(struct call *c, const struct amend_ends *e, bool *ret_other)
{
	CLEANUP_FD int session_fd = amend_open_session(c->fs, &e->to);
	struct incoming in = {.session_fd = session_fd};
	bool staged = c->step && !is_committed(c->step);
	int rc = session_fd < 0 ? session_fd : check_incoming(c, e);

	if (!rc)
		rc = ckpt_amending_raw_name(in.raw);
	if (!rc && staged)
		rc = ckpt_stage_enter(c->step, true);
	if (rc)
		return rc == -EROFS ? CALL_REOPENS : rc;
	rc = is_committed(c->step) ? move_across(c, e, &in) : move_in_live(c, e, &in);
	if (staged)
		ckpt_stage_leave(c->step);
	*ret_other = !in.number;
	if (!rc)
		amend_show_change(c->fs, c->other);
	return rc;
}

// --- The requests ---------------------------------------------------------------------------------------------------------

// The same in the step reopened, or in what it has become meanwhile.
static void run_live(struct call *c)
{
	c->run = c->live;
	c->committed = NULL;
	c->reopens = true;
	call_run(c);
}

static void reply_renamed(struct call *c, int rc, bool other)
{
	fuse_ino_t dir = c->other_dir;
	struct ckpt_fs *fs = c->fs;
	char name[CKPT_NAME_MAX + 1];

	memcpy(name, c->other_name, sizeof(name));
	// The kernel takes it for the file that was renamed, until it looks all names up again, or this one; for that it takes the lock
	// of the folder, of which our answer lets go.
	if (!rc && other)
		other = fuse_lowlevel_notify_increment_epoch(fs->se);
	reply_error(c->req, rc);
	if (!rc && other)
		(void)fuse_lowlevel_notify_inval_entry(fs->se, dir, name, strlen(name));
}

static void run_rename(struct call *c)
{
	struct amend_ends e;
	bool other = false;
	int rc = ends_of(c, &e);

	if (!rc) {
		if (c->step == c->other_step) {
			rc = is_committed(c->step) ? rename_within(c, &e) : CALL_REOPENS;
		} else if (is_committed(c->other_step)) {
			rc = move_in(c, &e, &other);
		} else {
			other = true;
			rc = is_committed(c->step) ? amend_move_out(c, &e) : CALL_REOPENS;
		}
		ends_done(c, &e);
	}
	if (rc == CALL_REOPENS)
		run_live(c);
	else
		reply_renamed(c, rc, other);
}

static int detach(struct call *c, void (*run)(struct call *c))
{
	c->live = c->run;
	c->run = run;
	c->waits_for_clients = true; // for changes of a staged step that are under way
	call_detach(c);
	return CALL_ANSWERED;
}

static bool may_change(const struct call *c)
{
	return !c->fs->mount->readonly && c->fs->store->settings.amend != CKPT_AMEND_DENY;
}

int amend_rename(struct call *c)
{
	if (!may_change(c))
		return -EROFS;
	if (c->flags & RENAME_EXCHANGE)
		return c->step == c->other_step ? CALL_REOPENS : -EXDEV;
	if ((c->step && ckpt_removal_hides(c->step)) || (c->other_step && ckpt_removal_hides(c->other_step)))
		return CALL_REOPENS; // it is being removed, or made anew
	return detach(c, run_rename);
}

static struct node *linked_node(const struct call *c)
{
	struct node *n = c->other;

	if (!n)
		memcpy(&n, c->data, sizeof(n)); // its lookup count is held by the request
	return n;
}

static int bring_link(struct call *c, struct node *n, const struct place *from, const struct incoming *in)
{
	CLEANUP_FD int fd = -1;
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	int rc;

	if (place_is_committed(from)) {
		rc = entry_of_node(n, from, &m, &e);
		if (rc)
			return rc;
		rc = e.type == CKPT_ENTRY_SYMLINK
			     ? ckpt_share_entry(from->step, m, e.index, in->session_fd, in->raw)
			     : ckpt_share_copy_entry(from->step, m, e.index, in->session_fd, in->raw, NULL);
		ckpt_manifest_unref(m);
		return rc;
	}
	if (draft_is_of(c->fs, n))
		return -EBUSY; // its content would show before its end
	if (!S_ISREG(n->type) || is_written(c->fs, n->number))
		return -EXDEV;
	fd = node_open(c->fs, n, O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return fd == -ENOENT ? -ESTALE : fd;
	rc = ckpt_share_chunks_guard(from->step, fd, "");
	return rc ? rc : copy_open(fd, in);
}

static int link_in(struct call *c, const struct place *p, const char *path)
{
	CLEANUP_FD int session_fd = amend_open_session(c->fs, p);
	struct incoming in = {.session_fd = session_fd};
	struct node *n = linked_node(c);
	struct place from;
	int rc = MIN(session_fd, 0);

	if (!rc && ckpt_removal_has_path(p->step, path))
		rc = ckpt_remove_publish(p->step); // the name is free, which no version says yet
	if (!rc)
		rc = amend_check_place(c, c->node, p, c->name, path, in.raw);
	if (!rc)
		rc = place_of(c->fs, n, &from);
	if (rc)
		return rc;
	if (from.step == p->step && amend_is_changing(n)) {
		rc = CALL_REOPENS;
	} else if (from.step == p->step) {
		struct ckpt_names names = {from.path, path, false};

		rc = ckpt_amend_link_to(p->step, &names);
	} else {
		rc = bring_link(c, n, &from, &in);
		if (!rc)
			rc = ckpt_amend_add_raw(p->step, path, in.raw);
		if (rc && rc != -EIO)
			ckpt_sys.unlink(session_fd, in.raw, 0);
	}
	place_done(&from);
	return rc;
}

static void run_link(struct call *c)
{
	char path[sizeof(((struct place *)0)->buf)];
	struct place p;
	int rc = amend_path_of(c->fs, c->node, c->name, &p, path, sizeof(path));

	if (!rc) {
		rc = is_committed(p.step) ? link_in(c, &p, path) : CALL_REOPENS;
		place_done(&p);
	}
	if (rc == CALL_REOPENS || rc == -EBUSY || rc == -ESTALE) {
		run_live(c);
		return;
	}
	if (rc == -ENOENT)
		rc = -ESTALE; // the source was moved out of the step just now: the kernel looks its name up again
	amend_reply_made(c, rc);
}

// node is the new parent.
int amend_link(struct call *c)
{
	if (!may_change(c))
		return -EROFS;
	if (c->step && ckpt_removal_hides(c->step))
		return CALL_REOPENS;
	if (!c->step || ckpt_step_state(c->step) != CKPT_STEP_COMMITTED)
		return CALL_REOPENS; // a file of a committed step, as a shared one of a staged step
	return detach(c, run_link);
}

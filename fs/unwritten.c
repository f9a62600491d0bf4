#include "fs/unwritten.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/clone.h"
#include "core/commit/remove.h"
#include "core/commit/reopen.h"
#include "core/stage/makers.h"
#include "core/stage/stage.h"
#include "core/store/store.h"
#include "fs/amend.h"
#include "fs/copy_up.h"
#include "fs/latest.h"
#include "fs/look_again.h"
#include "fs/ops.h"

#include <fcntl.h>
#include <sys/stat.h>

// The step may be committed, or given up, between its being found and its being entered.
#define TRIES 100
#define PATIENT_TRIES 20
#define TRY_NS INT64_C(1000000)

// Guards the lists. It is taken before the lock of a twin's use.
static struct ckpt_lock lists = CKPT_LOCK_INIT(CKPT_LOCK_UNWRITTEN);

bool unwritten_any(const struct node *n)
{
	struct node_use *use = node_used(n);

	return use && __atomic_load_n(&use->unwritten, __ATOMIC_RELAXED);
}

int unwritten_enlist(struct handle *h)
{
	struct node *of = h->node->twin;
	int rc = node_use(of);

	if (rc)
		return rc;
	LOCK_SCOPE(&lists);
	h->unwritten_next = of->use->unwritten;
	__atomic_store_n(&of->use->unwritten, h, __ATOMIC_RELAXED); // unwritten_any() looks without the lock
	__atomic_store_n(&h->unwritten, true, __ATOMIC_RELEASE);
	return 0;
}

void unwritten_strike_off(struct handle *h)
{
	struct handle **slot;

	if (!unwritten_is(h))
		return;
	LOCK_SCOPE(&lists);
	slot = &h->node->twin->use->unwritten;
	while (*slot && *slot != h)
		slot = &(*slot)->unwritten_next;
	if (*slot)
		__atomic_store_n(slot, h->unwritten_next, __ATOMIC_RELAXED);
	__atomic_store_n(&h->unwritten, false, __ATOMIC_RELEASE);
}

int unwritten_open(struct call *c)
{
	pid_t tid = fuse_req_ctx(c->req)->pid;
	struct handle *h;
	int rc;

	// Only for opens that hardly ever write: touch(1) opens so. After a first write the twin and the copy's own node are two inodes
	// of one file, and a mapping of one does not see a write to the other (tests/datapath, reopened).
	if (!c->fs->passthrough || !(c->fi.flags & O_NONBLOCK) || (c->fi.flags & O_TRUNC) || !S_ISREG(c->node->type) ||
	    amend_is_on(c->node))
		return CALL_REOPENS;
	if (!c->node->twin)
		return look_again_told_writer(c->fs, tid, c->node) ? -ESTALE : CALL_REOPENS;
	look_again_done(c->fs, tid);
	rc = handle_open(c->fs, c->req, c->node, -1, -1, NULL, true, &c->fi);
	if (rc)
		return rc;
	h = handle_of(&c->fi);
	h->writer.pid = tid;
	h->through_latest = c->step && latest_led_to(c->step, tid);
	if (fuse_reply_open(c->req, &c->fi) == -ENOENT)
		handle_release(c->fs, NULL, h);
	return CALL_ANSWERED;
}

// --- The first change ---------------------------------------------------------------------------------------------------

static int give_file_locked(struct handle *h, struct ckpt_step *step, uint64_t ino)
{
	h->fd = handle_reopen(h);
	if (h->fd < 0)
		return TAKE_FD(h->fd);
	if (step) {
		h->changes = ckpt_step_ref(step);
		h->writer.ino = ino;
		h->writer.fd = h->node->use->fd;
		ckpt_stage_writer_add(step, &h->writer);
	}
	return 0;
}

// A descriptor that is in use goes on being one, of another file.
static int change_file_locked(struct node *twin, int fd, uint64_t ino)
{
	struct node_use *use = twin->use;
	int own = use->fd >= 0 ? dup3(fd, use->fd, O_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own < 0)
		return -errno;
	__atomic_store_n(&use->fd, own, __ATOMIC_RELEASE);
	__atomic_store_n(&twin->file, ino, __ATOMIC_RELAXED);
	use->written = true;
	return 0;
}

static int give_copy(struct ckpt_fs *fs, struct handle *h, struct node *copy, struct ckpt_step *step, int fd,
		     uint64_t ino)
{
	struct node *twin = h->node;
	int rc;

	ckpt_lock_take(&twin->use->lock);
	rc = twin->file == ino ? 0 : change_file_locked(twin, fd, ino);
	if (!rc)
		rc = give_file_locked(h, step, ino);
	ckpt_lock_drop(&twin->use->lock);
	// A thread that was led to the twin, and opens it only now, finds its place by that.
	if (copy)
		__atomic_store_n(&copy->shadowed, true, __ATOMIC_RELAXED);
	if (copy && twin->twin != copy)
		node_set_twin(fs, twin, copy);
	return rc;
}

int unwritten_follow(struct ckpt_fs *fs, struct node *n, struct node *copy, struct ckpt_step *step, int fd)
{
	struct node_use *use = node_used(n);
	struct handle *h;
	struct statx stx;
	int rc = 0;

	if (!use)
		return 0;
	if (statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx))
		return -errno;
	node_retire(fs, SPACE_TWIN, n->number); // who opens the file from now on has another twin
	node_ref(fs, n);
	ckpt_lock_take(&lists);
	while ((h = use->unwritten)) {
		int given = give_copy(fs, h, copy, step, fd, ckpt_store_ino(&stx));

		rc = rc ? rc : given;
		__atomic_store_n(&use->unwritten, h->unwritten_next, __ATOMIC_RELAXED);
		__atomic_store_n(&h->unwritten, false, __ATOMIC_RELEASE); // without a descriptor its writes fail
	}
	ckpt_lock_drop(&lists);
	node_unref(fs, n);
	return rc;
}

// It has no name any more: what is written now is seen by those that have it open.
static int write_nameless(struct ckpt_fs *fs, struct handle *h)
{
	int from = handle_backing(fs, h);
	CLEANUP_FD int to = -1;
	struct statx stx;
	int rc;

	if (from < 0)
		return from == -EXDEV ? -ESTALE : from;
	to = ckpt_sys.open(fs->store->sessions_fd, ".", O_TMPFILE | O_RDWR, 0600);
	if (to < 0)
		return to;
	if (statx(from, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx))
		return -errno;
	rc = ckpt_clone_file(from, to, &stx, false);
	return rc ? rc : unwritten_follow(fs, h->node->twin, NULL, NULL, to);
}

// The step is entered. A file that is not shared is the step's own there, and needs no copy.
static int write_copy(struct ckpt_fs *fs, struct handle *h, struct ckpt_step *step)
{
	CLEANUP_FD int fd = -1;
	int rc;

	ckpt_makers_note(step, h->writer.pid, false);
	rc = copy_up(fs, h->node->twin, false, NULL);
	if (rc || !unwritten_is(h))
		return rc;
	fd = node_open(fs, h->node->twin, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
	return fd == -ENOENT ? -ESTALE : fd < 0 ? fd : unwritten_follow(fs, h->node->twin, NULL, step, fd);
}

// -EAGAIN: it is another step's by now, or nobody's.
static int write_in(struct ckpt_fs *fs, struct handle *h, struct ckpt_step *step)
{
	struct ckpt_step *now = NULL;
	int rc = 0;

	if (ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		rc = ckpt_reopen(step, &now);
	else
		now = ckpt_step_ref(step);
	if (!rc && h->through_latest)
		__atomic_store_n(&now->through_latest, true, __ATOMIC_RELEASE);
	if (!rc)
		rc = ckpt_stage_enter(now, true);
	if (!rc) {
		rc = write_copy(fs, h, now);
		ckpt_stage_leave(now);
	} else if (rc == -EROFS) {
		rc = -EAGAIN; // its commit came first
	}
	ckpt_step_unref(now);
	return rc == -ESTALE ? -EAGAIN : rc;
}

// By a mark, which no version has yet.
static bool is_marked_removed(struct ckpt_fs *fs, struct node *n)
{
	struct place p;
	bool is;

	if (place_of(fs, n, &p))
		return false;
	is = p.step && ckpt_remove_has_path(p.step, p.path);
	place_done(&p);
	return is;
}

// patient: a file without a name may be about to have that of its copy, which another thread has just placed.
static int begin_once(struct ckpt_fs *fs, struct handle *h, bool patient)
{
	struct ckpt_step *step = node_step(fs, h->node);
	int rc;

	if (step && !is_marked_removed(fs, h->node))
		rc = write_in(fs, h, step);
	else if (!step && patient)
		rc = -EAGAIN;
	else
		rc = write_nameless(fs, h);
	ckpt_step_unref(step);
	return rc;
}

int unwritten_begin(struct ckpt_fs *fs, struct handle *h)
{
	int rc = 0;

	for (int i = 0; i < TRIES && unwritten_is(h); i++) {
		rc = begin_once(fs, h, i < PATIENT_TRIES);
		if (rc != -EAGAIN)
			return rc;
		ckpt_sys.sleep_ns(TRY_NS);
	}
	return unwritten_is(h) ? -EBUSY : 0;
}

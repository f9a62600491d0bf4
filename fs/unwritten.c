#include "fs/unwritten.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/clone.h"
#include "core/save/makers.h"
#include "core/save/reopen.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/step/removal.h"
#include "core/step/reopened.h"
#include "core/step/store.h"
#include "core/step/successor.h"
#include "fs/amend_file.h"
#include "fs/attr.h"
#include "fs/copy_up.h"
#include "fs/latest_led.h"
#include "fs/limit.h"
#include "fs/look_again.h"

#include <fcntl.h>
#include <sys/stat.h>

// The step may be committed, or given up, between its being found and its being entered.
#define TRIES 100
#define NOBODYS 1 // what has the name is another file
#define TRY_NS INT64_C(1000000)

static struct ckpt_lock nameless =
	CKPT_LOCK_INIT(CKPT_LOCK_COPY_UP); // of two first writes at once only one makes the copy

// Another reopens it from when the step was entered: its files change their nodes.
static bool is_in_its_step(const struct call *c)
{
	struct ckpt_step *now = node_step(c->fs, c->node);
	bool is = now == c->step;

	ckpt_step_unref(now);
	return is;
}

int unwritten_open(struct call *c)
{
	pid_t tid = fuse_req_ctx(c->req)->pid;
	struct handle *h;
	int rc;

	if ((c->fi.flags & O_TRUNC) || !S_ISREG(c->node->type) || amend_is_on(c->node))
		return CALL_REOPENS;
	if (!node_twin(c->node)) {
		// It may be a twin that has become the file of its copy: the kernel does not look again twice.
		if (!is_in_its_step(c)) {
			call_again(c);
			return CALL_ANSWERED;
		}
		return look_again_told_writer(c->fs, tid, c->node) ? -ESTALE : CALL_REOPENS;
	}
	look_again_done(c->fs, tid);
	rc = handle_open(c->fs, c->req, c->node, -1, -1, NULL, true, &c->fi);
	if (rc == -EAGAIN) { // it has become the file of its copy
		call_again_soon(c);
		return CALL_ANSWERED;
	}
	if (rc)
		return rc;
	h = handle_of(&c->fi);
	(void)handle_backing(c->fs, h); // whatever becomes of the step meanwhile
	h->writer.pid = tid;
	h->through_latest = c->step && latest_led_to(c->step, tid);
	if (fuse_reply_open(c->req, &c->fi) == -ENOENT)
		handle_release(c->fs, NULL, h);
	return CALL_ANSWERED;
}

int unwritten_open_staged(struct call *c)
{
	int rc = copy_up(c->fs, c->node, c->fi.flags & O_TRUNC, NULL);

	return rc ? rc : node_twin(c->node) ? -ESTALE : 0;
}

bool unwritten_lead(struct ckpt_fs *fs, const struct node *dir, const char *name, struct fuse_entry_param *found)
{
	struct node *n = node_of(fs, found->ino), *twin;
	int rc = node_twin(n) ? -EEXIST : node_get_twin(fs, n, dir, name, &twin);

	if (rc)
		return rc != -ESTALE;
	found->ino = node_id(fs, twin);
	found->generation = twin->generation;
	found->entry_timeout = found->attr_timeout = TIMEOUT_NONE;
	node_forget(fs, n, 1);
	return true;
}

// --- The first change ---------------------------------------------------------------------------------------------------

// It has no name any more: what is written now is seen by those that have it open.
static int write_nameless(struct ckpt_fs *fs, struct handle *h)
{
	LOCK_SCOPE(&nameless);
	struct node *of = node_twin(h->node);
	int from = handle_backing(fs, h);
	CLEANUP_FD int to = -1;
	struct statx stx;
	int rc;

	if (!of || !unwritten_is(h))
		return -EAGAIN;
	if (from < 0 && from != -EXDEV)
		return from;
	to = ckpt_sys.open(fs->store->sessions_fd, ".", O_TMPFILE | O_RDWR, 0600);
	if (to < 0)
		return to;
	if (from < 0)
		rc = ckpt_file_copy(handle_packed(h), to, NULL, NULL, NULL);
	else
		rc = statx(from, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -errno
									   : ckpt_clone_file(from, to, &stx, false);
	if (rc)
		return rc;
	node_retire(fs, SPACE_TWIN, h->node->number); // who opens the file from now on has another twin
	return unwritten_follow(of, h->node, NULL, to);
}

// The name still has the file that it opened, in the reopened step (NULL: the plain tree) as it was made from the version.
static bool is_the_file(struct ckpt_fs *fs, const struct handle *h, const struct ckpt_step *step)
{
	CLEANUP_FD int fd = node_open(fs, h->node, O_PATH | O_NOFOLLOW);
	struct statx stx;

	return fd >= 0 && !statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) &&
	       (node_is_still(fs, h->node, &stx) || (step && ckpt_share_comes_from(step, &stx, h->node->number)));
}

// -EAGAIN: it is another step's by now, or nobody's.
static int write_in(struct ckpt_fs *fs, struct handle *h, struct ckpt_step *step)
{
	struct ckpt_step *now = NULL;
	int rc = 0;

	if (ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		rc = limit_first_write(fs, step) ?: ckpt_reopen(step, &now);
	else
		now = ckpt_step_ref(step);
	if (!rc && h->through_latest)
		__atomic_store_n(&ckpt_reopen_of(now)->through_latest, true, __ATOMIC_RELEASE);
	if (!rc)
		rc = ckpt_stage_enter(now, true);
	if (!rc) {
		ckpt_makers_note(now, h->writer.pid, false);
		rc = is_the_file(fs, h, now) ? copy_up(fs, h->node, false, NULL) : NOBODYS;
		ckpt_stage_leave(now);
	} else if (rc == -EROFS) {
		rc = -EAGAIN; // its commit came first
	}
	ckpt_step_unref(now);
	return rc == -ESTALE ? -EAGAIN : rc;
}

static int write_plain(struct ckpt_fs *fs, struct handle *h)
{
	int rc;

	if (!call_plain_enter(fs, h->node))
		return -EAGAIN;
	rc = is_the_file(fs, h, NULL) ? copy_up(fs, h->node, false, NULL) : NOBODYS;
	call_plain_leave();
	return rc == -ESTALE ? -EAGAIN : rc;
}

// By a mark, which no version has yet, or with its step.
static bool is_removed(const struct place *p)
{
	enum ckpt_step_state state = p->step ? ckpt_step_state(p->step) : CKPT_STEP_STAGED;

	return state == CKPT_STEP_DELETED || state == CKPT_STEP_GONE ||
	       (p->step && ckpt_removal_has_path(p->step, p->path));
}

// Another node's edit of the step has its place since, and the mount is about to know that.
static bool is_between(const struct place *p)
{
	struct ckpt_step *to =
		p->step && ckpt_step_state(p->step) == CKPT_STEP_DELETED ? ckpt_successor_find(p->step) : NULL;

	ckpt_step_unref(to);
	return to;
}

// In its version another file has the name. Of one in packs nobody can say so before the step is reopened.
static bool is_replaced(struct ckpt_fs *fs, struct handle *h, const struct place *p)
{
	CLEANUP_FD int fd = -1;
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	struct statx stx;
	int rc = place_is_committed(p) ? entry_of_node(h->node, p, &m, &e) : -EAGAIN;

	if (!rc)
		ckpt_manifest_unref(m);
	if (rc != -ESTALE)
		return false;
	fd = node_open(fs, h->node, O_PATH | O_NOFOLLOW);
	return fd >= 0 && !statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) &&
	       !ckpt_share_comes_from(p->step, &stx, h->node->number);
}

static int begin_once(struct ckpt_fs *fs, struct handle *h)
{
	struct place p;
	int rc = place_of(fs, h->node, &p);

	if (rc == -ESTALE)
		return write_nameless(fs, h);
	if (rc)
		return rc;
	if (is_between(&p))
		rc = -EAGAIN;
	else if (is_removed(&p) || is_replaced(fs, h, &p))
		rc = NOBODYS;
	else
		rc = p.step ? write_in(fs, h, p.step) : write_plain(fs, h);
	place_done(&p);
	// Its node changed while it was looked at: what has the name is its own copy, which it is about to have.
	if (rc == NOBODYS && node_is_adopted(fs, h->node))
		return -EAGAIN;
	return rc == NOBODYS && unwritten_is(h) ? write_nameless(fs, h) : MIN(rc, 0);
}

int unwritten_begin(struct ckpt_fs *fs, struct handle *h)
{
	int rc = 0;

	for (int i = 0; i < TRIES && unwritten_is(h); i++) {
		rc = begin_once(fs, h);
		if (rc && rc != -EAGAIN)
			return rc;
		if (unwritten_is(h))
			ckpt_sys.sleep_ns(TRY_NS);
	}
	return unwritten_is(h) ? -EBUSY : 0;
}

#include "fs/limit.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/profile.h"
#include "core/remote/evict.h"
#include "core/remote/remote.h"
#include "core/save/limit.h"
#include "fs/complete_watch.h"
#include "fs/draft.h"
#include "fs/waiter.h"

#include <sys/stat.h>

static bool ends_step(struct ckpt_fs *fs, const struct node *dir, const char *name)
{
	return node_is_top(dir) && (complete_watches_close(fs, dir, NULL, name) ||
				    ckpt_profile_renames(fs->store->settings.profiles, name));
}

static bool node_ends_step(struct ckpt_fs *fs, const struct node *n)
{
	bool ends;

	names_read_lock(fs);
	ends = n->names && ends_step(fs, n->names->parent, n->names->text);
	names_unlock(fs);
	return ends;
}

// --- Waiting ------------------------------------------------------------------------------------------------------------

#define LOOK_NS INT64_C(50000000)
#define HURRY_LOOKS 40 // the object store is tried again as often as it is where it answers
#define WRITES_MAX 6   // that wait at once, of the threads which serve the kernel

// The queue of the push is asked last: it has a lock that acts want.
static bool may_come(struct ckpt_fs *fs, uid_t uid, uint64_t bytes, int64_t since_ns)
{
	struct ckpt_limit *limit = *ckpt_limit_of(fs->store);

	return limit && *ckpt_remote_of(fs->store) && ckpt_limit_try(limit, uid, bytes) == -ENOSPC &&
	       ckpt_evict_may_help(fs->store, since_ns);
}

static void pause_for_room(struct ckpt_store *s, unsigned looks)
{
	if (looks % HURRY_LOOKS == 0)
		ckpt_evict_hurry(s);
	ckpt_sys.sleep_ns(LOOK_NS);
}

static void wait_for_room(struct ckpt_fs *fs, uid_t uid, uint64_t bytes, pid_t tid)
{
	struct waiter waiter = {&fs->ending, tid};
	int64_t began_ns = ckpt_sys.mono_ns();

	for (unsigned i = 0; may_come(fs, uid, bytes, began_ns) && !waiter_is_gone(&waiter); i++)
		pause_for_room(fs->store, i);
}

// Bytes written since the last look were written past us.
void limit_wait(struct call *c)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);
	struct ckpt_store *s = c->fs->store;
	struct waiter waiter = {&c->fs->ending, ctx->pid};
	int64_t began_ns = ckpt_sys.mono_ns();

	if (!*ckpt_limit_of(s) || !ckpt_evict_may_help(s, began_ns))
		return;
	ckpt_limit_freed(*ckpt_limit_of(s));
	for (unsigned i = 0; may_come(c->fs, ctx->uid, ckpt_evict_expected(s), began_ns) && !waiter_is_gone(&waiter);
	     i++)
		pause_for_room(s, i);
}

static void run_with_room(struct call *c)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);

	wait_for_room(c->fs, ctx->uid, 0, ctx->pid);
	c->run = c->then;
	c->then = NULL;
	c->waits_for_clients = false;
	call_run(c);
}

static bool is_in_staged(struct ckpt_fs *fs, struct node *n)
{
	struct ckpt_step *step = node_step(fs, n);
	bool is = step && ckpt_step_state(step) == CKPT_STEP_STAGED;

	ckpt_step_unref(step);
	return is;
}

static void run_when(struct call *c, bool asks)
{
	if (!asks || !is_in_staged(c->fs, c->node) ||
	    !may_come(c->fs, fuse_req_ctx(c->req)->uid, 0, ckpt_sys.mono_ns())) {
		call_run(c);
		return;
	}
	c->then = c->run;
	c->run = run_with_room;
	c->waits_for_clients = true;
	call_detach(c);
}

void limit_run(struct call *c)
{
	run_when(c, *ckpt_limit_of(c->fs->store) && !ends_step(c->fs, c->node, c->name));
}

void limit_run_open(struct call *c)
{
	run_when(c, *ckpt_limit_of(c->fs->store) && !node_ends_step(c->fs, c->node));
}

// The threads that serve the kernel serve all: only a few of them may wait.
static void wait_to_write(struct ckpt_fs *fs, uid_t uid, uint64_t bytes)
{
	static unsigned waiting; // atomic

	if (!may_come(fs, uid, bytes, ckpt_sys.mono_ns()))
		return;
	if (__atomic_add_fetch(&waiting, 1, __ATOMIC_RELAXED) <= WRITES_MAX)
		wait_for_room(fs, uid, bytes, 0);
	__atomic_sub_fetch(&waiting, 1, __ATOMIC_RELAXED);
}

// --- Asking -------------------------------------------------------------------------------------------------------------

int limit_create(struct call *c)
{
	struct ckpt_limit *limit = *ckpt_limit_of(c->fs->store);

	if (!limit || !c->step || ends_step(c->fs, c->node, c->name))
		return 0;
	return ckpt_limit_ask(limit, fuse_req_ctx(c->req)->uid, 0);
}

int limit_open(struct call *c)
{
	struct ckpt_limit *limit = *ckpt_limit_of(c->fs->store);
	CLEANUP_FD int fd = -1;
	struct stat st;

	if (!limit || !c->step || node_ends_step(c->fs, c->node))
		return 0;
	fd = node_open(c->fs, c->node, O_PATH | O_NOFOLLOW);
	return fd < 0 || fstat(fd, &st) ? 0 : ckpt_limit_ask(limit, st.st_uid, 0); // the open itself says what is wrong
}

int limit_draft(struct call *c)
{
	return ckpt_limit_ask(*ckpt_limit_of(c->fs->store), fuse_req_ctx(c->req)->uid, 0);
}

int limit_reopen(struct call *c)
{
	return !*ckpt_limit_of(c->fs->store) || node_ends_step(c->fs, c->node) ? 0 : limit_draft(c);
}

int limit_first_write(struct ckpt_fs *fs, struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);

	return *ckpt_limit_of(fs->store) ? ckpt_limit_ask(*ckpt_limit_of(fs->store), v->is.dir_uid, 0) : 0;
}

int limit_set_size(struct call *c, int fd)
{
	struct ckpt_limit *limit = *ckpt_limit_of(c->fs->store);
	const struct handle *h = handle_of(&c->fi);
	struct stat st;

	if (!limit || (h && h->amend) || (!c->step && !(h && draft_is_limited(h))) || fstat(fd, &st) ||
	    c->attr.st_size <= st.st_size)
		return 0;
	return ckpt_limit_ask(limit, st.st_uid, 0); // it takes no room yet
}

static bool is_staged(struct ckpt_fs *fs, const struct handle *h)
{
	struct ckpt_step *step = node_step(fs, h->node);
	bool is = step && ckpt_step_state(step) != CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return is;
}

#define BLOCK_BYTES UINT64_C(4096)

static uint64_t in_blocks(uint64_t bytes)
{
	return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

// What has blocks already takes none. Holes are taken to be at the end.
int limit_write(struct ckpt_fs *fs, const struct handle *h, int fd, off_t offset, uint64_t bytes)
{
	struct ckpt_limit *limit = *ckpt_limit_of(fs->store);
	uint64_t begin = (uint64_t)offset / BLOCK_BYTES * BLOCK_BYTES, end = in_blocks((uint64_t)offset + bytes), has;
	struct stat st;
	int rc;

	if (!limit || h->amend || (!draft_is_limited(h) && !is_staged(fs, h)) || fstat(fd, &st))
		return 0;
	has = (uint64_t)st.st_blocks * 512;
	if (end <= has || (!h->draft && node_ends_step(fs, h->node)))
		return 0;
	wait_to_write(fs, st.st_uid, end - MAX(begin, has));
	rc = ckpt_limit_ask(limit, st.st_uid, end - MAX(begin, has));
	if (rc)
		draft_lacks_room(fs, h);
	return rc;
}

#include "fs/limit.h"

#include "core/base/util.h"
#include "core/profile/profile.h"
#include "core/save/limit.h"
#include "fs/complete.h"
#include "fs/draft.h"

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
	rc = ckpt_limit_ask(limit, st.st_uid, end - MAX(begin, has));
	if (rc)
		draft_lacks_room(fs, h);
	return rc;
}

#include "fs/control_file.h"

#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/step/errlog.h"
#include "fs/control.h"
#include "fs/decider.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>

// One byte more tells that there is too much.
#define BYTES_MAX (CKPT_POLICY_BYTES_MAX + 1)

int control_refuse(struct ckpt_fs *fs, const struct node *dir, const char *name)
{
	if (control_is_array(dir))
		return -EROFS;
	if (dir->control == CONTROL_DIR && strstr(name, CONTROL_POLICY_NAME)) // policy.json~, .policy.json.swp, too
		ckpt_errlog_add(fs->store->errlog, name, -EPERM,
				"write " CONTROL_POLICY_NAME " in place, as cp does, or use `ckptfs policy set`",
				"in " CKPT_CONTROL_NAME
				" nothing is made, renamed or removed but " CONTROL_PREEMPTED_NAME);
	return -EPERM;
}

// --- Open -------------------------------------------------------------------------------------------------------------

static bool may_be_written(const struct node *n)
{
	return n->control == CONTROL_POLICY || n->control == CONTROL_PREEMPTED;
}

static int fill_text(struct ckpt_fs *fs, struct handle *h)
{
	if (h->node->control == CONTROL_COPY)
		return control_conflicts_open(fs, h->node, &h->copy);
	if (control_is_array(h->node))
		return control_arrays_open(fs, h->node, &h->array);
	if (!(h->flags & O_TRUNC))
		return control_text(fs, h->node, &h->text, &h->text_len);
	h->text = calloc(1, 1);
	return h->text ? 0 : -ENOMEM;
}

static int open_one(struct ckpt_fs *fs, struct node *n, struct fuse_file_info *fi, struct handle **ret_handle)
{
	bool writes = (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC);
	struct handle *h;
	int rc = writes && (n->control == CONTROL_COPY || control_is_array(n)) ? -EROFS
		 : writes && !may_be_written(n)                                ? -EACCES
		 : writes                                                      ? node_use(n)
									       : 0;

	if (!rc)
		rc = handle_new(fs, n, fi->flags, &h);
	if (rc)
		return rc;
	h->writes = writes;
	rc = fill_text(fs, h);
	if (rc) {
		handle_free(fs, h);
		return rc;
	}
	fi->fh = (uintptr_t)h;
	fi->direct_io = !h->copy && !h->array; // its size is known only now
	fi->keep_cache = h->array != NULL;     // another version is another node
	fi->noflush = !writes;
	*ret_handle = h;
	return 0;
}

void control_open(struct call *c)
{
	struct handle *h;
	int rc = open_one(c->fs, c->node, &c->fi, &h);

	if (rc)
		reply_error(c->req, rc);
	else if (fuse_reply_open(c->req, &c->fi) == -ENOENT)
		handle_free(c->fs, h);
}

void control_create(struct call *c)
{
	struct fuse_entry_param e = {0};
	struct handle *h;
	struct node *n;
	double timeout;
	int rc = c->node->control != CONTROL_DIR || strcmp(c->name, CONTROL_PREEMPTED_NAME)
			 ? control_refuse(c->fs, c->node, c->name)
			 : control_preempted(c->fs, c->node, &n);

	if (rc) {
		reply_error(c->req, rc);
		return;
	}
	rc = open_one(c->fs, n, &c->fi, &h);
	if (rc) {
		node_forget(c->fs, n, 1);
		reply_error(c->req, rc);
		return;
	}
	h->text_made = true;
	(void)control_attr(n, &e.attr, &timeout);
	e.ino = node_id(c->fs, n);
	e.generation = n->generation;
	if (fuse_reply_create(c->req, &e, &c->fi) == -ENOENT) {
		handle_free(c->fs, h);
		node_forget(c->fs, n, 1);
	}
}

// --- Content ----------------------------------------------------------------------------------------------------------

// Who has the answer may close the file before the call that gave it has returned, and what that looks at must be there: sanitizers
// do.
static char *copy_range(const struct handle *h, size_t size, off_t offset, size_t *ret_len)
{
	size_t from = MIN((size_t)offset, h->text_len);
	char *copy;

	*ret_len = MIN(size, h->text_len - from);
	copy = malloc(*ret_len + 1);
	if (copy)
		memcpy(copy, h->text + from, *ret_len);
	return copy;
}

void control_read(fuse_req_t req, struct handle *h, size_t size, off_t offset)
{
	CLEANUP_FREE char *copy = NULL;
	size_t len;

	if (h->writes)
		ckpt_lock_take(&h->node->use->lock);
	copy = copy_range(h, size, offset, &len);
	if (h->writes)
		ckpt_lock_drop(&h->node->use->lock);
	if (copy)
		fuse_reply_buf(req, copy, len);
	else
		reply_error(req, -ENOMEM);
}

static int resize_locked(struct handle *h, size_t len)
{
	char *text = len > BYTES_MAX ? NULL : realloc(h->text, len + 1);

	if (!text)
		return len > BYTES_MAX ? -EFBIG : -ENOMEM;
	if (len > h->text_len)
		memset(text + h->text_len, 0, len - h->text_len);
	text[len] = '\0';
	h->text = text;
	h->text_len = len;
	return 0;
}

ssize_t control_write(struct handle *h, const void *data, size_t len, off_t offset)
{
	LOCK_SCOPE(&h->node->use->lock);
	size_t from = h->flags & O_APPEND ? h->text_len : (size_t)offset, end;
	int rc = __builtin_add_overflow(from, len, &end) ? -EFBIG : end > h->text_len ? resize_locked(h, end) : 0;

	if (rc)
		return rc;
	memcpy(h->text + from, data, len);
	h->text_written = true;
	return (ssize_t)len;
}

int control_truncate(struct handle *h, off_t size)
{
	if (!h->writes || size < 0)
		return -EINVAL;
	LOCK_SCOPE(&h->node->use->lock);

	return resize_locked(h, (size_t)size);
}

// --- Close ------------------------------------------------------------------------------------------------------------

static int judge_policy(struct ckpt_fs *fs, const char *text, size_t len)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_policy p = {0};
	int rc = ckpt_policy_parse(text, len, &p, &why);

	if (!rc)
		rc = ckpt_policy_set(fs->store, &p);
	ckpt_policy_done(&p);
	if (rc)
		ckpt_errlog_add(fs->store->errlog, CONTROL_POLICY_NAME, rc,
				"the policy before it stays in force; write it again",
				"the policy was not accepted: %s", why ? why : strerror(-rc));
	return rc;
}

static int judge_preempted(struct ckpt_fs *fs, const char *text)
{
	size_t digits;

	while (isspace((unsigned char)*text))
		text++;
	digits = strspn(text, "0123456789");
	if (digits > 18 || text[digits + strspn(text + digits, " \t\n")])
		return -EINVAL;
	decider_preempt(fs->decider, digits ? strtoll(text, NULL, 10) : 0);
	return 0;
}

// With what the handle holds now.
static int judge(struct ckpt_fs *fs, struct handle *h)
{
	CLEANUP_FREE char *text = NULL;
	size_t len;
	int rc;

	ckpt_lock_take(&h->node->use->lock);
	len = h->text_len;
	text = malloc(len + 1);
	if (text)
		memcpy(text, h->text, len + 1);
	h->text_written = h->text_made = false;
	ckpt_lock_drop(&h->node->use->lock);
	rc = !text                                ? -ENOMEM
	     : h->node->control == CONTROL_POLICY ? judge_policy(fs, text, len)
						  : judge_preempted(fs, text);
	ckpt_lock_take(&h->node->use->lock);
	h->text_result = rc;
	ckpt_lock_drop(&h->node->use->lock);
	return rc;
}

static void run_flush(struct call *c)
{
	reply_error(c->req, judge(c->fs, handle_of(&c->fi)));
}

// Whether there is something to judge; else what the last judgement was.
static bool is_due(struct handle *h, int *ret_result)
{
	LOCK_SCOPE(&h->node->use->lock);

	*ret_result = h->text_result;
	return h->text_written;
}

void control_flush(fuse_req_t req, struct handle *h)
{
	struct call c = {.run = run_flush, .req = req, .fs = fs_of(req), .node = h->node, .fi = {.fh = (uintptr_t)h}};
	int result = 0;

	if (h->writes && is_due(h, &result))
		call_detach(&c);
	else
		reply_error(req, result);
}

void control_touch(struct ckpt_fs *fs, const struct node *n)
{
	if (n->control == CONTROL_PREEMPTED && decider_preempted_at(fs->decider) < 0)
		decider_preempt(fs->decider, 0);
}

void control_release(struct ckpt_fs *fs, struct handle *h)
{
	if (h->text_made)
		control_touch(fs, h->node);
	handle_free(fs, h);
}

int control_unlink(struct ckpt_fs *fs, struct node *dir, const char *name)
{
	if (dir->control != CONTROL_DIR || strcmp(name, CONTROL_PREEMPTED_NAME))
		return control_refuse(fs, dir, name);
	if (fs->mount->readonly)
		return -EROFS;
	if (decider_preempted_at(fs->decider) < 0)
		return -ENOENT;
	decider_preempt(fs->decider, -1);
	return 0;
}

// Names within a committed step: renames and hard links.
#include "core/save/amend_move.h"

#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/record/event.h"
#include "core/record/metadata.h"
#include "core/save/edit.h"
#include "core/save/remove.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define DONE 1 // nothing is to be done: an act before did it

// --- Array data -----------------------------------------------------------------------------------------------------------

static int read_packed(void *arg, uint64_t offset, void *buf, size_t len)
{
	ssize_t n = ckpt_file_read(arg, buf, len, offset);

	return n < 0 ? (int)n : (size_t)n < len ? -ENODATA : 0;
}

int ckpt_amend_is_array(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index)
{
	CLEANUP_FD int top = ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	struct ckpt_source source = {.read = read_packed};
	struct ckpt_file *file;
	char path[PATH_MAX];
	struct ckpt_entry e;
	int rc = MIN(ckpt_manifest_path(m, index, path, sizeof(path)), 0);

	ckpt_manifest_entry(m, index, &e);
	if (rc || e.type != CKPT_ENTRY_FILE || !e.bytes)
		return rc;
	rc = ckpt_file_open(step, m, index, &file);
	if (rc)
		return rc;
	source.bytes = e.bytes;
	source.arg = file;
	rc = ckpt_file_fd(file) >= 0 ? ckpt_data_is_open(ckpt_file_fd(file), MAX(top, -1), path)
				     : ckpt_data_is_source(&source, MAX(top, -1), path);
	ckpt_file_close(file);
	return rc;
}

// --- Renames --------------------------------------------------------------------------------------------------------------

struct target {
	uint32_t parent;
	const char *name;
	uint32_t replaced; // what has the name; 0: nothing
	struct ckpt_entry was;
};

static int find_target(const struct ckpt_edit *d, const char *path, struct target *ret)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX] = "";
	int rc;

	*ret = (struct target){.name = slash ? slash + 1 : path};
	if (slash && (size_t)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path) >= sizeof(folder))
		return -ENAMETOOLONG;
	rc = ckpt_manifest_lookup(d->m, folder, &ret->parent);
	if (rc)
		return rc;
	rc = ckpt_manifest_child(d->m, ret->parent, ret->name, &ret->replaced);
	if (!rc)
		ckpt_manifest_entry(d->m, ret->replaced, &ret->was);
	return rc == -ENOENT ? 0 : rc;
}

// But for conflict copies, which go with it.
static bool is_empty(const struct ckpt_manifest *m, const struct ckpt_entry *dir)
{
	struct ckpt_entry e;

	for (uint32_t i = 0; i < dir->child_count; i++) {
		ckpt_manifest_entry(m, dir->child_first + i, &e);
		if (!e.conflict)
			return false;
	}
	return true;
}

// As rename(2) has it; and array data is not replaced by an edit.
static int check_replaced(const struct ckpt_edit *d, const struct ckpt_entry *e, const struct target *to, bool replaces)
{
	int is;

	if (!to->replaced)
		return 0;
	if (!replaces)
		return -EEXIST;
	if (e->type == CKPT_ENTRY_DIR)
		return to->was.type != CKPT_ENTRY_DIR ? -ENOTDIR : is_empty(d->m, &to->was) ? 0 : -ENOTEMPTY;
	if (to->was.type == CKPT_ENTRY_DIR)
		return -EISDIR;
	is = ckpt_amend_is_array(d->step, d->m, to->replaced);
	if (!is)
		is = ckpt_amend_is_array(d->step, d->m, e->index);
	return is > 0 ? -EMEDIUMTYPE : is;
}

static bool is_at_or_below(const struct ckpt_edit *d, uint32_t index, uint32_t dir)
{
	struct ckpt_entry e;

	for (; index != dir; index = e.parent) {
		if (!index)
			return false;
		ckpt_manifest_entry(d->m, index, &e);
	}
	return true;
}

static int learn_metrics(struct ckpt_edit *d, const struct ckpt_entry *e, const char *from, const char *to)
{
	CLEANUP_FD int dirfd = -1;

	if (strcmp(to, CKPT_METRICS_FILE) || e->type != CKPT_ENTRY_FILE || e->content == CKPT_CONTENT_NONE)
		return 0;
	dirfd = ckpt_sys.open(d->step->store->sessions_fd, d->step->session, O_RDONLY | O_DIRECTORY, 0);
	return dirfd < 0 ? 0
			 : ckpt_metadata_of_metrics(dirfd, e->raw_path ? e->raw_path : from, d->step->store->errlog,
						    d->step->name, &d->says);
}

static int move(struct ckpt_edit *d, const struct ckpt_names *names)
{
	struct ckpt_entry e;
	struct target to;
	uint32_t index;
	int rc = find_target(d, names->to, &to);

	if (rc)
		return rc;
	rc = ckpt_manifest_lookup(d->m, names->from, &index);
	if (rc == -ENOENT && d->adopted && to.replaced)
		return DONE;
	if (rc || !index)
		return rc ? rc : -EINVAL;
	ckpt_manifest_entry(d->m, index, &e);
	if (is_at_or_below(d, to.parent, index))
		return -EINVAL;
	if (to.replaced && to.was.ino == e.ino)
		return DONE; // two links of one file: rename(2) does nothing
	rc = check_replaced(d, &e, &to, names->replaces);
	if (rc)
		return rc;
	d->moved = index;
	d->moved_to = d->parent = to.parent;
	d->moved_name = to.name;
	d->dirs_in_parent = (e.type == CKPT_ENTRY_DIR) - (to.replaced && to.was.type == CKPT_ENTRY_DIR);
	rc = ckpt_edit_copy(d, to.replaced);
	return rc ? rc : learn_metrics(d, &e, names->from, names->to);
}

static int link_to(struct ckpt_edit *d, const struct ckpt_names *names)
{
	struct ckpt_entry e;
	struct target to;
	uint32_t index;
	int rc = find_target(d, names->to, &to);

	if (!rc)
		rc = ckpt_manifest_lookup(d->m, names->from, &index);
	if (rc)
		return rc;
	ckpt_manifest_entry(d->m, index, &e);
	if (to.replaced)
		return d->adopted && to.was.ino == e.ino ? DONE : -EEXIST;
	if (e.type == CKPT_ENTRY_DIR)
		return -EPERM;
	rc = ckpt_edit_copy(d, 0);
	return rc ? rc : ckpt_edit_link(d, index, to.parent, to.name);
}

// --- The acts -------------------------------------------------------------------------------------------------------------

typedef int names_fn(struct ckpt_edit *d, const struct ckpt_names *names);

static int try(struct ckpt_step *step, names_fn *change, const struct ckpt_names *names, bool *adopted)
{
	struct ckpt_edit d = {.step = step, .event = CKPT_EVENT_AMEND, .attributes = true, .names = true};
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc)
		rc = change(&d, names);
	if (!rc)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc == DONE ? 0 : rc;
}

static int act(struct ckpt_step *step, names_fn *change, const struct ckpt_names *names, const char *what)
{
	bool adopted = false;
	int rc = ckpt_remove_publish(step); // marks are by path, and one may be of the name that is given

	if (rc)
		return rc;
	LOCK_SCOPE(&step->store->acts_lock);
	rc = -EAGAIN;
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++) {
		rc = try(step, change, names, &adopted);
		adopted |= rc == -EAGAIN;
	}
	rc = rc == -EAGAIN ? -EIO : rc;
	if (rc == -EIO || ckpt_is_full(rc) || rc == -ENOMEM)
		ckpt_errlog_add(step->store->errlog, step->name, rc,
				"the step is unchanged; remove the cause, then try again", "%s could not be %s %s",
				names->from, what, names->to);
	return rc;
}

int ckpt_amend_move(struct ckpt_step *step, const struct ckpt_names *names)
{
	return act(step, move, names, "renamed to");
}

int ckpt_amend_link_to(struct ckpt_step *step, const struct ckpt_names *names)
{
	return act(step, link_to, names, "linked to");
}

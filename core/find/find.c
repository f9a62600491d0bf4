#include "core/find/find.h"

#include "core/base/util.h"
#include "core/find/timestamp.h"
#include "core/find/tracker.h"
#include "core/step/store.h"

#include <stdio.h>

struct ckpt_step *ckpt_find_committed(struct ckpt_store *s, const char *folder_id, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, folder_id, name);

	// Beside a mount, names of the table may be those of sessions that are live there.
	if (step && ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		return step;
	ckpt_step_unref(step);
	return NULL;
}

int ckpt_find_unfinished(struct ckpt_store *s, const char *session, struct ckpt_step **ret_step)
{
	struct ckpt_step **steps, *found = NULL;
	size_t count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_LEFT, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !found; i++)
		if (!strcmp(steps[i]->session, session))
			found = ckpt_step_ref(steps[i]);
	ckpt_step_list_free(steps, count);
	if (!found)
		return -ENOENT;
	*ret_step = found;
	return 0;
}

static struct ckpt_step *tracked(struct ckpt_store *s, const struct ckpt_folders *f, const char *folder)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	return ckpt_folders_id(f, folder, strlen(folder), id) ? NULL : ckpt_tracker_step(s, folder, id);
}

static int newest_of(struct ckpt_store *s, const char *folder_id, enum ckpt_latest_by by, size_t back,
		     struct ckpt_latest *ret_found)
{
	int rc = by == CKPT_LATEST_BY_TIMESTAMP ? ckpt_timestamp_look(s, folder_id) : 0;

	return rc ? rc : ckpt_latest(s, folder_id, by, back, ret_found);
}

int ckpt_find_newest(struct ckpt_store *s, const struct ckpt_folders *f, const char *folder, enum ckpt_latest_by by,
		     size_t back, struct ckpt_step **ret_step)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_latest found;
	int rc = ckpt_folders_id(f, folder, strlen(folder), id);

	if (by == CKPT_LATEST_BY_TRACKER) {
		*ret_step = back ? NULL : tracked(s, f, folder);
		return *ret_step ? 0 : -ENOENT;
	}
	if (!rc)
		rc = newest_of(s, id, by, back, &found);
	if (rc == -ENOENT && !*folder && (!back || ckpt_latest(s, "", by, 0, &found)))
		rc = newest_of(s, NULL, by, back, &found);
	if (rc)
		return rc;
	*ret_step = ckpt_find_committed(s, found.folder_id, found.name);
	return *ret_step ? 0 : -ENOENT;
}

int64_t ckpt_find_back(const char *name)
{
	char *end;
	unsigned long back;

	if (strncmp(name, "latest", 6))
		return -1;
	if (!name[6])
		return 0;
	if (name[6] != '~' || name[7] < '0' || name[7] > '9')
		return -1;
	back = strtoul(name + 7, &end, 10);
	return *end || back > INT32_MAX ? -1 : (int64_t)back;
}

struct search {
	struct ckpt_store *store;
	const struct ckpt_folders *folders;
	ckpt_find_newest_fn *newest;
	void *arg;
};

// The step that the component of path from start to end is; -ENOENT: none.
static int find_component(const struct search *s, const char *path, const char *start, const char *end,
			  struct ckpt_step **ret_step)
{
	size_t folder_len = start > path ? (size_t)(start - path) - 1 : 0;
	CLEANUP_FREE char *folder = strndup(path, folder_len), *name = strndup(start, (size_t)(end - start));
	char id[CKPT_FOLDER_ID_LEN + 1];
	int64_t back;

	if (!folder || !name)
		return -ENOMEM;
	if (ckpt_folders_id(s->folders, folder, folder_len, id))
		return -ENOENT;
	*ret_step = ckpt_find_committed(s->store, id, name);
	back = *ret_step ? -1 : ckpt_find_back(name);
	if (back >= 0)
		return s->newest(s->arg, folder, (size_t)back, ret_step);
	return *ret_step ? 0 : -ENOENT;
}

int ckpt_find_step(struct ckpt_store *s, const struct ckpt_folders *f, const char *path, ckpt_find_newest_fn *newest,
		   void *arg, struct ckpt_step **ret_step, const char **ret_rest)
{
	const struct search search = {s, f, newest, arg};

	// The first component that is a step wins: there is none inside of another.
	for (const char *start = path; *start;) {
		const char *end = start + strcspn(start, "/");
		int rc = find_component(&search, path, start, end, ret_step);

		end += strspn(end, "/");
		if (!rc)
			*ret_rest = end;
		if (rc != -ENOENT)
			return rc;
		start = end;
	}
	return -ENOENT;
}

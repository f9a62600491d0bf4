#include "tools/copy_plan.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "core/step/holder.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/rows.h"
#include "tools/same_files.h"
#include "tools/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#define MARK_MAX (512 + CKPT_NAME_MAX)

// --- Unfinished copies ----------------------------------------------------------------------------------------------------

// "BOOT STORE SESSION VERSION NAME". Without the first word: what it is a copy of.
static const char *subject_of(const char *mark)
{
	const char *space = strchr(mark, ' ');

	return space ? space : mark;
}

static char *mark_of(const struct ckpt_copy_row *row)
{
	char boot[37];

	ckpt_boot_id(boot);
	return ckpt_text("%s %s %s %u %.*s", boot, row->step->store->id, row->step->session, row->version->is.version,
			 CKPT_NAME_MAX, row->name);
}

static bool read_mark(const char *store, const char *session, char ret_mark[MARK_MAX])
{
	CLEANUP_FREE char *path = ckpt_text("%s/sessions/%s", store, session);
	ssize_t n = lgetxattr(path, CKPT_COPY_XATTR, ret_mark, MARK_MAX - 1);

	ret_mark[MAX(n, 0)] = '\0';
	return n > 0;
}

static void take_up(struct ckpt_copy_row *row, const json_t *session, const char *mark)
{
	char **to = strcmp(mark, row->mark) ? &row->stale : &row->resumes;

	if (*to || strcmp(subject_of(mark), subject_of(row->mark)))
		return;
	*to = ckpt_text("%s", ckpt_session_text(session, "id"));
	if (to == &row->resumes)
		row->left = !strcmp(ckpt_session_text(session, "state") ?: "left", "left");
}

static int find_unfinished(struct ckpt_copy_plan *plan, const struct ckpt_listing *dst)
{
	json_t *rows, *session;
	size_t i;
	int rc = ckpt_rows_sessions(dst, &rows);

	if (rc)
		return rc;
	json_array_foreach(rows, i, session)
	{
		const char *id = ckpt_session_text(session, "id");
		char mark[MARK_MAX];

		if (!id || !read_mark(dst->store->path, id, mark))
			continue;
		for (size_t k = 0; k < plan->count; k++)
			take_up(&plan->rows[k], session, mark);
	}
	json_decref(rows);
	return 0;
}

// --- Steps --------------------------------------------------------------------------------------------------------------

static struct ckpt_step *find_there(const struct ckpt_listing *dst, const char *name)
{
	const char *slash = strrchr(name, '/');
	char id[CKPT_FOLDER_ID_LEN + 1] = "";

	if (slash && ckpt_folders_id(&dst->folders, name, (size_t)(slash - name), id))
		return NULL;
	return ckpt_find_committed(dst->store, id, slash ? slash + 1 : name);
}

static void compare(struct ckpt_copy_row *row, const struct ckpt_listing *dst)
{
	struct ckpt_step *there = find_there(dst, row->name);
	CLEANUP_VERSION struct ckpt_version *has = there ? ckpt_step_version(there) : NULL;
	int same;

	if (!there)
		return;
	same = ckpt_same_files(row->step, there, ckpt_progress_add);
	row->what = same > 0 ? CKPT_COPY_SAME : same ? CKPT_COPY_UNKNOWN : CKPT_COPY_OTHER;
	row->there = ckpt_text("%s", there->session);
	row->pins = row->version->is.pinned && !has->is.pinned;
	if (same < 0)
		ckpt_fail(row->name, "`ckptfs verify` says what is damaged", "the two steps cannot be compared: %s",
			  strerror(-same));
	ckpt_step_unref(there);
}

static int look_there(struct ckpt_copy_plan *plan, const char *store)
{
	struct ckpt_listing dst;
	int rc = ckpt_listing_open(store, CKPT_STORE_READ, &dst);

	if (rc)
		return rc;
	ckpt_progress_start("comparing", 0, 1);
	for (size_t i = 0; i < plan->count; i++)
		compare(&plan->rows[i], &dst);
	ckpt_progress_stop();
	rc = find_unfinished(plan, &dst);
	ckpt_listing_close(&dst);
	return rc;
}

int ckpt_copy_plan_make(const struct ckpt_listing *src, const struct ckpt_selection *chosen, const char *dst,
			struct ckpt_copy_plan *ret_plan)
{
	struct ckpt_copy_plan plan = {.count = chosen->count};
	int rc = 0;

	plan.rows = ckpt_need(calloc(plan.count + 1, sizeof(*plan.rows)));
	for (size_t i = 0; i < plan.count; i++) {
		struct ckpt_copy_row *row = &plan.rows[i];

		row->step = ckpt_step_ref(chosen->steps[i]);
		row->version = ckpt_step_version(row->step);
		row->name = ckpt_listing_name(src, row->step->folder_id, row->step->name);
		row->mark = mark_of(row);
	}
	if (dst)
		rc = look_there(&plan, dst);
	if (rc) {
		ckpt_copy_plan_done(&plan);
		return rc;
	}
	*ret_plan = plan;
	return 0;
}

void ckpt_copy_plan_done(struct ckpt_copy_plan *plan)
{
	for (size_t i = 0; i < plan->count; i++) {
		struct ckpt_copy_row *row = &plan->rows[i];

		ckpt_step_unref(row->step);
		ckpt_version_unref(row->version);
		free(row->name);
		free(row->there);
		free(row->mark);
		free(row->resumes);
		free(row->stale);
	}
	free(plan->rows);
	*plan = (struct ckpt_copy_plan){0};
}

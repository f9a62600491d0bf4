#include "fs/verbs_session.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/commit.h"
#include "core/save/move.h"
#include "core/save/reopen.h"
#include "core/save/replace.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/folders.h"
#include "fs/draft.h"
#include "fs/folder.h"
#include "fs/verbs_answer.h"

// Of a commit. Whoever has asked for it waits for the object store by himself, as `ckptfs wait` does: a request holds one of few places.
static char *committed(const struct ckpt_fs *fs)
{
	return strdup(fs->store->settings.durability == CKPT_DURABILITY_REMOTE
			      ? "{\"ok\":true,\"durability\":\"remote\"}"
			      : "{\"ok\":true}");
}

// --- abort --------------------------------------------------------------------------------------------------------------

#define UNFINISHED (1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING | 1u << CKPT_STEP_LEFT)

// How well a step fits the words of a user; 0: not at all.
static size_t fitness(struct ckpt_step *step, const char *session)
{
	struct ckpt_step_name now;

	if (!strcmp(step->session, session))
		return 3;
	ckpt_step_name(step, &now);
	return strcmp(now.name, session) ? 0 : ckpt_step_state(step) == CKPT_STEP_LEFT ? 1 : 2;
}

// The unfinished step that session names: by its uuid, or its name, where a staged one comes before left ones. A reference; or
// NULL and why not, malloc'ed.
static struct ckpt_step *find_session(struct ckpt_fs *fs, const char *session, char **ret_refusal)
{
	struct ckpt_step **steps, *found = NULL;
	size_t count, matches = 0, best = 0;
	int rc = ckpt_step_list(fs->store, NULL, UNFINISHED, &steps, &count);

	if (rc) {
		*ret_refusal = answer_failure(rc, NULL);
		return NULL;
	}
	for (size_t i = 0; i < count; i++) {
		size_t fit = fitness(steps[i], session);

		matches = fit > best ? 1 : matches + (fit && fit == best);
		found = fit > best ? steps[i] : found;
		best = MAX(best, fit);
	}
	if (matches == 1)
		ckpt_step_ref(found);
	ckpt_step_list_free(steps, count);
	if (matches == 1)
		return found;
	*ret_refusal = matches ? answer_refusal(EINVAL, "several sessions have this name",
						"name one by its id: `ckptfs sessions`")
			       : answer_refusal(ESTALE, "there is no such session", "`ckptfs sessions` lists them");
	return NULL;
}

// The node of a session's directory with a reference, or NULL.
static struct node *session_top(struct ckpt_fs *fs, const struct ckpt_step *step)
{
	struct statx stx;

	if (statx(fs->store->sessions_fd, step->session, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return NULL;
	if (ckpt_reopen_shares(step))
		return node_find(fs, SPACE_LIVE, step->base->born.dir_ino);
	return node_find(fs, SPACE_LIVE, ckpt_store_ino(&stx));
}

char *answer_abort(struct ckpt_fs *fs, const char *session)
{
	char *no = NULL;
	struct ckpt_step *step = find_session(fs, session, &no);
	struct node *top;
	int rc;

	if (!step)
		return no;
	top = session_top(fs, step);
	rc = ckpt_stage_abort(step, false);
	if (!rc && top)
		folder_forget(fs, top);
	node_unref(fs, top);
	ckpt_step_unref(step);
	return rc ? answer_failure(rc, rc == -EBUSY ? "it is being committed" : NULL) : answer_done();
}

// --- begin, resume, commit ----------------------------------------------------------------------------------------------

char *answer_begin(struct ckpt_fs *fs, const char *path, const char *from_session, const json_t *request)
{
	bool force = json_is_true(json_object_get(request, "force"));
	struct ckpt_step *from = from_session ? ckpt_step_of_session(fs->store, from_session) : NULL;
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step = NULL;
	json_t *reply = NULL;
	const char *name;
	char *text;
	int rc = from_session && !from ? -ESTALE : 0;

	if (!rc && json_is_true(json_object_get(request, "parents"))) {
		rc = ckpt_folders_make(fs->store, path);
		folder_touch(fs, node_root(fs));
	}
	if (!rc)
		rc = ckpt_folders_place(fs->store, path, id, &name);
	if (!rc && force)
		rc = ckpt_replace_begin(fs->store, id, name, 0755, geteuid(), getegid(), 0, &step);
	else if (!rc)
		rc = ckpt_stage_begin_from(fs->store, id, name, from,
					   json_is_true(json_object_get(request, "add_only")), &step);
	ckpt_step_unref(from);
	if (rc)
		return answer_failure(rc, ckpt_replace_hint(rc));
	reply = json_pack("{s:b, s:s}", "ok", 1, "session", step->session);
	text = json_dumps(reply, JSON_COMPACT);
	json_decref(reply);
	ckpt_step_unref(step);
	return text;
}

static int resume(struct ckpt_fs *fs, struct ckpt_step *step)
{
	struct node *top = session_top(fs, step); // it has a name under .ckptfs/staged
	int rc = ckpt_stage_resume(step);

	if (!rc && top)
		folder_forget(fs, top);
	node_unref(fs, top);
	return rc;
}

char *answer_resume(struct ckpt_fs *fs, const char *session)
{
	char *no = NULL;
	struct ckpt_step *step = find_session(fs, session, &no);
	int rc = step ? resume(fs, step) : 0;

	if (rc == -ESTALE && ckpt_stage_is_interrupted(step))
		rc = 0; // it was staged again when the store was opened
	ckpt_step_unref(step);
	return !step            ? no
	       : rc == -ESTALE  ? answer_refusal(ESTALE, "it is staged already", NULL)
	       : rc == -ENOTDIR ? answer_refusal(ENOTDIR, "it is one file, not a step",
						 "copy it from .ckptfs/staged in the mount")
	       : rc             ? answer_failure(rc, ckpt_move_hint(rc))
				: answer_done();
}

static bool is_ending(void *arg)
{
	const struct ckpt_fs *fs = arg;

	return __atomic_load_n(&fs->ending, __ATOMIC_ACQUIRE);
}

// over: what the step is called from then on, instead of one that is there; NULL: as it is.
static int commit_as(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_commit *how, const char *over)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *replaced;
	struct node *top;
	int rc = over ? ckpt_folders_place(fs->store, over, id, &how->name) : 0;

	if (rc || !over)
		return rc ? rc : ckpt_commit(step, how);
	how->folder_id = id;
	top = session_top(fs, step); // it has another name so far
	rc = ckpt_replace_commit(step, how, &replaced);
	if (!rc && top)
		folder_forget(fs, top);
	if (!rc && replaced)
		folder_step_gone(fs, replaced);
	if (!rc)
		ckpt_step_unref(replaced);
	node_unref(fs, top);
	return rc;
}

// A left-over file is published under its name.
static char *answer_commit_file(struct ckpt_fs *fs, struct ckpt_step *left)
{
	int rc = draft_commit(fs, left);

	return rc == -ENOENT  ? answer_refusal(ENOENT, "its folder does not exist any more",
					       "copy it from .ckptfs/staged in the mount")
	       : rc == -EBUSY ? answer_refusal(EBUSY, "a process is writing it",
					       "it is published when the last process closes it")
	       : rc == -EINVAL
		       ? answer_refusal(EINVAL, "it is cut off, and would replace a whole file of its name",
					"copy it from .ckptfs/staged in the mount, or move the other file away first")
	       : rc ? answer_failure(rc, ".ckptfs/errors in the mount says more")
		    : answer_done();
}

char *answer_commit(struct ckpt_fs *fs, const char *session, const json_t *request)
{
	const char *over = json_string_value(json_object_get(request, "to"));
	struct ckpt_commit how = {
		.event = json_string_value(json_object_get(request, "event")) ?: "verb",
		.profile = json_string_value(json_object_get(request, "profile")) ?: "generic",
		.metadata = json_string_value(json_object_get(request, "metadata")),
		.writers_ns = fs->store->settings.open_writers_ns,
		.abandoned = is_ending,
		.abandoned_arg = fs,
	};
	char *no = NULL;
	struct ckpt_step *step = find_session(fs, session, &no);
	bool whole = true;
	struct node *top;
	int rc = 0;

	// Who asks again had no answer: of this process, or of one that died before all was on disk.
	if (!step && (step = ckpt_step_live_session(fs->store, session))) {
		free(no);
		rc = ckpt_sys.syncfs(fs->store->dirfd);
	}
	if (!step)
		return no;
	if (!rc && ckpt_step_state(step) == CKPT_STEP_LEFT && ckpt_staging_of(step)->is_file && !over) {
		char *answer = answer_commit_file(fs, step);

		ckpt_step_unref(step);
		return answer;
	}
	if (!rc)
		whole = !ckpt_reopen_check_whole(step);
	if (!rc && whole && ckpt_step_state(step) == CKPT_STEP_LEFT) {
		rc = resume(fs, step);
		whole = rc || !ckpt_reopen_check_whole(step);
	}
	if (!rc && whole)
		rc = commit_as(fs, step, &how, over);
	if (!rc && whole) {
		top = session_top(fs, step);
		if (top)
			folder_touch_above(fs, top);
		else if (!*step->folder_id)
			folder_touch(fs, node_root(fs));
		node_unref(fs, top);
	}
	ckpt_step_unref(step);
	if (!whole)
		return answer_refusal(EINVAL, "a file of it, which .ckptfs/errors names, is cut off",
				      "`ckptfs abort` keeps the version before; or write that file again first");
	if (rc == -ENOTDIR)
		return answer_refusal(ENOTDIR, "it is one file, not a step",
				      "copy it from .ckptfs/staged in the mount");
	return rc ? answer_failure(rc, ".ckptfs/errors in the mount says more") : committed(fs);
}

#include "tools/new_step.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "core/save/commit.h"
#include "core/save/pin.h"
#include "core/save/replace.h"
#include "core/save/stage.h"
#include "core/step/folders.h"
#include "core/step/trash.h"
#include "tools/act.h"
#include "tools/arrival.h"
#include "tools/output.h"
#include "tools/stop.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

// The directory is the caller's to close: it stays open until the commit, for who locks it.
static int fill(struct ckpt_new_step *n, int sessions_fd, int *ret_fd)
{
	*ret_fd = openat(sessions_fd, n->session, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? ckpt_fail_errno(n->name, NULL, -errno) : n->fill(n->arg, *ret_fd);
}

static bool drops(const struct ckpt_new_step *n)
{
	return !n->stays_when_stopped || !ckpt_stopped;
}

// --- Mounted --------------------------------------------------------------------------------------------------------------

// Without its answer nobody would know which session to give up: a signal waits for it.
static int begin_mounted(struct ckpt_new_step *n)
{
	const struct ckpt_verb_act begin = {
		.verb = "begin", .to = n->name, .force = n->force, .parents = n->makes_folders};
	json_t *reply = NULL;
	const char *session;
	sigset_t stops, before;
	int rc;

	ckpt_stop_signals(&stops);
	sigprocmask(SIG_BLOCK, &stops, &before);
	rc = ckpt_act_ask(n->store, n->name, NULL, &begin, &reply);
	sigprocmask(SIG_SETMASK, &before, NULL);
	session = rc ? NULL : json_string_value(json_object_get(reply, "session"));
	snprintf(n->session, sizeof(n->session), "%s", session ? session : "");
	json_decref(reply);
	return rc;
}

// -ENOENT: nobody has the store mounted.
static int resume_mounted(struct ckpt_new_step *n)
{
	static const struct ckpt_verb_act resume = {.verb = "resume"}, look = {.verb = "status"};

	snprintf(n->session, sizeof(n->session), "%s", n->resumes);
	return ckpt_act_ask(n->store, n->name, n->session, n->left ? &resume : &look, NULL);
}

static int commit_mounted(struct ckpt_new_step *n)
{
	const struct ckpt_verb_act commit = {.verb = "commit",
					     .metadata = n->metadata,
					     .profile = n->profile,
					     .event = n->event,
					     .to = n->force ? n->name : NULL};
	static const struct ckpt_verb_act pin = {.verb = "pin"};
	int rc = ckpt_act_ask(n->store, n->name, n->session, &commit, &n->reply);

	return rc || !n->pinned ? rc : ckpt_act_ask(n->store, n->name, n->session, &pin, NULL);
}

static int make_mounted(struct ckpt_new_step *n)
{
	static const struct ckpt_verb_act abort_it = {.verb = "abort"};
	CLEANUP_FREE char *sessions = ckpt_text("%s/sessions", n->store);
	CLEANUP_FD int sessions_fd = open(sessions, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FD int fd = -1;
	int rc = sessions_fd < 0 ? ckpt_fail_errno(sessions, NULL, -errno)
		 : n->resumes    ? resume_mounted(n)
				 : begin_mounted(n);

	if (rc)
		return rc;
	rc = fill(n, sessions_fd, &fd);
	if (!rc)
		rc = commit_mounted(n);
	if (rc && !n->reply && *n->session && drops(n))
		(void)ckpt_act_ask(n->store, n->name, n->session, &abort_it, NULL);
	return rc == -ENOENT ? ckpt_fail(n->store, "start it again", "the mount ended meanwhile") : rc;
}

// --- At rest --------------------------------------------------------------------------------------------------------------

static int commit_at_rest(struct ckpt_new_step *n, struct ckpt_step *step, const char *folder_id, const char *name)
{
	const struct ckpt_commit how = {.folder_id = folder_id,
					.name = name,
					.event = n->event ? n->event : "verb",
					.profile = n->profile ? n->profile : "generic",
					.metadata = n->metadata};
	struct ckpt_step *replaced = NULL;
	int rc = n->force ? ckpt_replace_commit(step, &how, &replaced) : ckpt_commit(step, &how);

	ckpt_step_unref(replaced);
	return rc;
}

static int resume_at_rest(struct ckpt_store *s, const char *session, struct ckpt_step **ret_step)
{
	int rc = ckpt_find_unfinished(s, session, ret_step);

	if (rc)
		return rc;
	rc = ckpt_step_state(*ret_step) == CKPT_STEP_LEFT ? ckpt_stage_resume(*ret_step) : 0;
	if (rc)
		ckpt_step_unref(TAKE_PTR(*ret_step));
	return rc;
}

// One that cannot be taken up any more is begun again.
static int begin_at_rest(struct ckpt_new_step *n, struct ckpt_store *s, char id[CKPT_FOLDER_ID_LEN + 1],
			 const char **ret_name, struct ckpt_step **ret_step)
{
	int rc = n->makes_folders ? ckpt_folders_make(s, n->name) : 0;

	if (!rc)
		rc = ckpt_folders_place(s, n->name, id, ret_name);
	if (!rc && (!n->resumes || resume_at_rest(s, n->resumes, ret_step)))
		rc = (n->force ? ckpt_replace_begin : ckpt_stage_begin)(s, id, *ret_name, 0755, geteuid(), getegid(),
									getpid(), ret_step);
	if (!rc)
		memcpy(n->session, (*ret_step)->session, sizeof(n->session));
	return rc ? ckpt_fail_errno(n->name, ckpt_replace_hint(rc), rc) : 0;
}

static int make_here(struct ckpt_new_step *n, struct ckpt_store *s)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step = NULL;
	CLEANUP_FD int fd = -1;
	const char *name;
	bool committed = false;
	int rc = begin_at_rest(n, s, id, &name, &step), error;

	if (rc)
		return rc;
	rc = fill(n, s->sessions_fd, &fd);
	if (!rc) {
		error = commit_at_rest(n, step, id, name);
		committed = !error;
		if (!error && n->pinned)
			error = ckpt_pin(step, true);
		rc = error ? ckpt_fail_errno(n->name, "the file errors in the store says more", error) : 0;
	}
	if (rc && !committed && drops(n))
		(void)ckpt_stage_abort(step, false);
	ckpt_step_unref(step);
	return rc;
}

static int make_at_rest(struct ckpt_new_step *n)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(n->store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	rc = make_here(n, l.store);
	ckpt_trash_drain(*ckpt_trash_of(l.store)); // what was given up, or temporary steps that are over
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_new_step_make(struct ckpt_new_step *n)
{
	int rc = make_mounted(n);

	return rc == -ENOENT ? make_at_rest(n) : rc;
}

int ckpt_new_step_run(struct ckpt_new_step *n)
{
	int rc;

	ckpt_stop_begin();
	rc = ckpt_stop_end(ckpt_new_step_make(n));
	if (!rc)
		rc = ckpt_arrival_await(n->store, n->name, n->session, n->reply);
	json_decref(n->reply);
	n->reply = NULL;
	return rc;
}

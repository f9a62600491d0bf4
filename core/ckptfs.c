// The public library (ckptfs.h). An open store is a path: each call opens the store for reading, as a verb does, and so has nothing to
// keep in step with whoever changes it. What changes the store is asked of its mount, or done here while nobody else has it.
//
// All that others may link to is in ckptfs.map. Its names are no other file's of core: both headers are included here.
#include "core/ckptfs.h"

#include "core/ckptfs_look.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/find/find.h"
#include "core/policy/history.h"
#include "core/policy/should_save.h"
#include "core/record/metadata.h"
#include "core/request/hold.h"
#include "core/request/reach.h"
#include "core/request/resolve.h"
#include "core/request/should_save_ask.h"
#include "core/save/commit.h"
#include "core/save/replace.h"
#include "core/save/stage.h"
#include "core/step/ask.h"
#include "core/step/locate.h"
#include "core/step/store.h"
#include "core/step/trash.h"
#include "core/store/open.h"

#include <stdio.h>
#include <sys/stat.h>

#define POLL_NS INT64_C(100000000)
#define POLLS_BLIND 10 // of which only the last looks at a store to which no step has come

const char *ckpt_version(void)
{
	return CKPT_VERSION;
}

// --- A look at the store ------------------------------------------------------------------------------------------------

void ckpt_look_end(struct ckpt_look *l)
{
	ckpt_folders_done(&l->folders);
	ckpt_mounts_done(&l->mounts);
	ckpt_store_close(l->view.store);
}

int ckpt_look_begin(const struct ckpt *c, struct ckpt_look *ret_look)
{
	struct ckpt_look *l = ret_look;
	int rc;

	*l = (struct ckpt_look){.view = {.folders = &l->folders, .mounts = &l->mounts}};
	rc = ckpt_view_store(c->directory, &l->view.store);
	if (!rc)
		rc = ckpt_folders_read(l->view.store, &l->folders);
	if (!rc)
		rc = ckpt_mounts_read(&l->mounts);
	if (!rc && c->mountpoint)
		l->view.first = ckpt_mounts_find(&l->mounts, c->mountpoint, NULL);
	if (rc)
		ckpt_look_end(l);
	return rc;
}

// malloc'ed; NULL and 0: none was given.
static int absolute(const char *path, char **ret_path)
{
	*ret_path = path && *path ? ckpt_locate_absolute(path) : NULL;
	return path && *path && !*ret_path ? -errno : 0;
}

static int locate(const char *path, struct ckpt *c)
{
	CLEANUP_FREE char *whole = NULL;
	struct ckpt_location l;
	struct ckpt_mounts mounts;
	int rc = *path ? absolute(path, &whole) : -ENOENT;

	if (!rc)
		rc = ckpt_mounts_read(&mounts);
	if (rc)
		return rc;
	rc = ckpt_locate(&mounts, whole, &l);
	if (rc == -ENOENT) { // opening it says what it is instead
		c->directory = TAKE_PTR(whole);
		rc = 0;
	} else if (!rc) {
		rc = *l.name ? -EINVAL : 0;
		c->directory = TAKE_PTR(l.store);
		c->mountpoint = l.mount ? strdup(l.mount->mountpoint) : NULL;
		if (l.mount && !c->mountpoint)
			rc = -ENOMEM;
		ckpt_location_done(&l);
	}
	ckpt_mounts_done(&mounts);
	return rc;
}

int ckpt_open(const char *path, unsigned flags, struct ckpt **ret_ckpt)
{
	struct ckpt *c = calloc(1, sizeof(*c));
	struct ckpt_look l;
	int rc = !c ? -ENOMEM : flags & ~CKPT_CREATE ? -EINVAL : locate(path, c);

	if (!rc && (flags & CKPT_CREATE) && !c->mountpoint && !ckpt_store_probe(c->directory))
		rc = ckpt_store_init(c->directory);
	if (!rc || rc == -EEXIST) // somebody else was quicker
		rc = ckpt_look_begin(c, &l);
	if (rc) {
		ckpt_close(c);
		return rc;
	}
	ckpt_look_end(&l);
	*ret_ckpt = c;
	return 0;
}

void ckpt_close(struct ckpt *ckpt)
{
	if (!ckpt)
		return;
	free(ckpt->directory);
	free(ckpt->mountpoint);
	free(ckpt);
}

const char *ckpt_directory(const struct ckpt *ckpt)
{
	return ckpt->directory;
}

// --- Steps --------------------------------------------------------------------------------------------------------------

// One block with its texts.
static struct ckpt_info *info_new(const struct ckpt_summary *s, const char *name, const char *path,
				  const char *metadata)
{
	size_t name_size = strlen(name) + 1, path_size = path ? strlen(path) + 1 : 0;
	struct ckpt_info *info = calloc(1, sizeof(*info) + name_size + path_size + strlen(metadata) + 1);
	char *text = (char *)(info + 1);

	if (!info)
		return NULL;
	*info = (struct ckpt_info){
		.name = memcpy(text, name, name_size),
		.path = path ? memcpy(text + name_size, path, path_size) : NULL,
		.metadata = strcpy(text + name_size + path_size, metadata),
		.number = s->number,
		.version = s->version,
		.files = s->files,
		.bytes = s->bytes,
		.committed_ns = s->committed_ns,
		.first_committed_ns = s->first_committed_ns,
		.flags = (s->temporary ? CKPT_INFO_TEMPORARY : 0) | (s->pinned ? CKPT_INFO_PINNED : 0) |
			 (s->sealed ? CKPT_INFO_SEALED : 0),
	};
	return info;
}

static int info_of(const struct ckpt_look *l, struct ckpt_step *step, struct ckpt_info **ret_info)
{
	CLEANUP_FREE char *name = ckpt_folders_name(&l->folders, step->folder_id, step->name), *path = NULL;
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	CLEANUP_FREE char *metadata = NULL;
	struct ckpt_record record;
	int rc = name ? ckpt_view_path(&l->view, step, "", &path) : -ENOMEM;

	if (!rc)
		rc = ckpt_step_record(step, v->is.version, &record);
	if (rc)
		return rc;
	rc = ckpt_metadata_set_findings(record.metadata, NULL, &metadata); // what a save may say again
	ckpt_record_done(&record);
	if (rc)
		return rc;
	*ret_info = info_new(&v->is, name, path, metadata ? metadata : "{}");
	return *ret_info ? 0 : -ENOMEM;
}

void ckpt_info_free(struct ckpt_info *info)
{
	free(info);
}

struct ckpt_list {
	size_t count;
	struct ckpt_info *at[];
};

// folder_id NULL: of the whole store.
static int list_of(const struct ckpt_look *l, const char *folder_id, struct ckpt_list **ret_list)
{
	struct ckpt_step **steps;
	struct ckpt_list *list;
	size_t count;
	int rc = ckpt_step_choose(l->view.store, folder_id, 1u << CKPT_STEP_COMMITTED, NULL, NULL, &steps, &count);

	if (rc)
		return rc;
	list = calloc(1, sizeof(*list) + count * sizeof(list->at[0]));
	rc = list ? 0 : -ENOMEM;
	for (size_t i = 0; i < count && !rc; i++) {
		rc = info_of(l, steps[i], &list->at[list->count]);
		list->count += !rc;
		if (rc == -ENOENT) // it is gone since
			rc = 0;
	}
	ckpt_step_list_free(steps, count);
	if (rc)
		ckpt_list_free(list);
	else
		*ret_list = list;
	return rc;
}

int ckpt_list(struct ckpt *ckpt, const char *folder, struct ckpt_list **ret_list)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_look l;
	int rc = ckpt_look_begin(ckpt, &l);

	if (rc)
		return rc;
	if (!folder || !ckpt_folders_id(&l.folders, folder, strlen(folder), id)) {
		rc = list_of(&l, folder ? id : NULL, ret_list);
	} else {
		*ret_list = calloc(1, sizeof(**ret_list));
		rc = *ret_list ? 0 : -ENOMEM;
	}
	ckpt_look_end(&l);
	return rc;
}

size_t ckpt_list_count(const struct ckpt_list *list)
{
	return list->count;
}

const struct ckpt_info *ckpt_list_at(const struct ckpt_list *list, size_t i)
{
	return i < list->count ? list->at[i] : NULL;
}

void ckpt_list_free(struct ckpt_list *list)
{
	for (size_t i = 0; list && i < list->count; i++)
		ckpt_info_free(list->at[i]);
	free(list);
}

static int find(const struct ckpt_look *l, const char *name, struct ckpt_info **ret_info)
{
	struct ckpt_step *step;
	const char *rest;
	int rc = ckpt_view_find(&l->view, name, &step, &rest);

	if (rc)
		return rc;
	rc = *rest ? -ENOENT : info_of(l, step, ret_info);
	ckpt_step_unref(step);
	return rc;
}

int ckpt_find(struct ckpt *ckpt, const char *name, struct ckpt_info **ret_info)
{
	struct ckpt_look l;
	int rc = ckpt_look_begin(ckpt, &l);

	if (rc)
		return rc;
	rc = find(&l, name, ret_info);
	ckpt_look_end(&l);
	return rc;
}

int ckpt_find_latest(struct ckpt *ckpt, const char *folder, const char *by, struct ckpt_info **ret_info)
{
	enum ckpt_latest_by order;
	struct ckpt_step *step;
	struct ckpt_look l;
	int rc = by ? ckpt_latest_by_word(by, &order) : 0;

	if (!rc)
		rc = ckpt_look_begin(ckpt, &l);
	if (rc)
		return rc;
	rc = ckpt_view_newest(&l.view, folder ? folder : "", by ? order : l.view.store->settings.latest_by, &step);
	if (!rc) {
		rc = info_of(&l, step, ret_info);
		ckpt_step_unref(step);
	}
	ckpt_look_end(&l);
	return rc;
}

// --- What to load -------------------------------------------------------------------------------------------------------

_Static_assert((int)CKPT_MODE_SCRATCH == (int)CKPT_RESOLVE_SCRATCH &&
		       (int)CKPT_MODE_RESUME == (int)CKPT_RESOLVE_RESUME &&
		       (int)CKPT_MODE_FULL_STATE == (int)CKPT_RESOLVE_FULL_STATE &&
		       (int)CKPT_MODE_PARAMETERS == (int)CKPT_RESOLVE_PARAMETERS,
	       "what is promised outside is what is meant inside");

// The texts of the choice are those of `found`, which is no part of the promise.
struct choice {
	struct ckpt_choice choice;
	struct ckpt_resolved found;
};

int ckpt_resolve(struct ckpt *ckpt, const char *folder, const char *by, const char *load_parameters_path,
		 const char *load_full_state_path, struct ckpt_choice **ret_choice)
{
	CLEANUP_FREE char *parameters = NULL, *full_state = NULL;
	struct ckpt_resolve how = {.folder = folder ? folder : "", .by = CKPT_LATEST_BY_STEP};
	CLEANUP_FREE struct choice *c = calloc(1, sizeof(*c));
	struct ckpt_look l;
	bool of_path;
	int rc = !c ? -ENOMEM : by ? ckpt_latest_by_word(by, &how.by) : 0;

	if (!rc)
		rc = absolute(load_parameters_path, &parameters);
	if (!rc)
		rc = absolute(load_full_state_path, &full_state);
	if (!rc)
		rc = ckpt_look_begin(ckpt, &l);
	if (rc)
		return rc;
	how.parameters = parameters;
	how.full_state = full_state;
	rc = ckpt_resolve_run(&l.view, &how, &c->found, &of_path);
	ckpt_look_end(&l);
	if (rc)
		return rc;
	c->choice = (struct ckpt_choice){
		.mode = (int)c->found.mode, .path = c->found.path, .store = c->found.store, .step = c->found.step};
	*ret_choice = &TAKE_PTR(c)->choice;
	return 0;
}

void ckpt_choice_free(struct ckpt_choice *choice)
{
	struct choice *c = (struct choice *)choice;

	if (c)
		ckpt_resolved_done(&c->found);
	free(c);
}

// --- Whether to save ----------------------------------------------------------------------------------------------------

_Static_assert((int)CKPT_ANSWER_NO == (int)CKPT_DECIDE_NO && (int)CKPT_ANSWER_TEMPORARY == (int)CKPT_DECIDE_TEMPORARY &&
		       (int)CKPT_ANSWER_PERMANENT == (int)CKPT_DECIDE_PERMANENT,
	       "what is promised outside is what is meant inside");

// A folder without a step may have no id.
static int history_of(const struct ckpt_look *l, const char *folder, struct ckpt_history *ret_history)
{
	char id[CKPT_FOLDER_ID_LEN + 1];

	if (!folder)
		return ckpt_history_read_run(l->view.store, false, id, ret_history);
	if (ckpt_folders_id(&l->folders, folder, strlen(folder), id)) {
		*ret_history = (struct ckpt_history){0};
		return 0;
	}
	return ckpt_history_read(l->view.store, id, false, ret_history);
}

static int question_steps(const struct ckpt *c, const char *folder, struct ckpt_question *q)
{
	struct ckpt_decide of = {0};
	struct ckpt_history h;
	int64_t preempted_at;
	struct ckpt_look l;
	int rc = ckpt_look_begin(c, &l);

	if (rc)
		return rc;
	rc = history_of(&l, folder, &h);
	preempted_at = ckpt_should_save_preempted_at(l.view.store); // a mount's own is asked of it
	if (preempted_at >= 0 && q->step >= preempted_at)
		q->flags |= CKPT_QUESTION_PREEMPTED;
	if (!rc) {
		of.steps = h.steps;
		of.count = h.count;
		q->latest = ckpt_decide_latest(&of);
		q->committed_ns = h.count ? h.steps[h.count - 1].committed_ns : 0;
		q->count = h.count;
		ckpt_history_done(&h);
	}
	ckpt_look_end(&l);
	return rc;
}

static int question_mount(const struct ckpt *c, struct ckpt_question *q)
{
	const json_t *at;
	json_t *status;
	int rc;

	ckpt_json_begin();
	rc = ckpt_ask_json(c->directory, json_pack("{s:s}", "verb", "status"), CKPT_SOCKET_TIMEOUT_S, &status, NULL);
	if (rc)
		return rc == -ENOTCONN || ckpt_reach_is_end(rc) ? 0 : rc;
	at = json_object_get(status, "preempted_at"); // null: at the next step that is asked for
	if (json_is_true(json_object_get(status, "preempted")) && q->step >= json_integer_value(at))
		q->flags |= CKPT_QUESTION_PREEMPTED;
	if (json_is_true(json_object_get(status, "saving_in_progress")))
		q->flags |= CKPT_QUESTION_SAVING;
	json_decref(status);
	return 0;
}

static int decide_outside(const struct ckpt *c, ckpt_decide_fn *decide, void *arg, struct ckpt_decide *q)
{
	struct ckpt_question question = {.step = q->step, .now_ns = ckpt_sys.now_ns()};
	int rc = question_steps(c, q->run, &question), answer;

	if (!rc)
		rc = question_mount(c, &question);
	if (rc)
		return rc;
	answer = decide(arg, &question);
	if (answer < 0 || answer > CKPT_ANSWER_PERMANENT)
		return answer < 0 ? answer : -EINVAL;
	q->answered = true;
	q->answer = (enum ckpt_decide_answer)answer;
	return 0;
}

int ckpt_should_save(struct ckpt *ckpt, const char *folder, int64_t step, unsigned flags, ckpt_decide_fn *decide,
		     void *arg, int *ret_answer)
{
	struct ckpt_decide q = {.step = step, .run = folder, .force = flags & CKPT_FORCE, .preempted_at = -1};
	int rc = step < 0 || flags & ~CKPT_FORCE ? -EINVAL : decide ? decide_outside(ckpt, decide, arg, &q) : 0;
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decided_step answer;

	if (!rc)
		rc = ckpt_should_save_ask(ckpt->directory, &q, &answer, &why);
	if (!rc)
		*ret_answer = !answer.save       ? CKPT_ANSWER_NO
			      : answer.permanent ? CKPT_ANSWER_PERMANENT
						 : CKPT_ANSWER_TEMPORARY;
	return rc;
}

// --- Saving -------------------------------------------------------------------------------------------------------------

struct ckpt_save {
	char *directory; // of the store
	char *replaces;  // CKPT_FORCE: its name, which a committed step may have; else NULL
	char session[37];
	char *path;
	bool over; // committed or aborted
	// Where it is in our hands; NULL where a mount has it.
	struct ckpt_store *store;
	struct ckpt_step *step;
};

// An act of the mount on the session; -ENOTCONN there is none.
static int ask(const struct ckpt_save *save, const char *verb, const char *metadata)
{
	json_t *reply;
	int rc;

	ckpt_json_begin();
	rc = ckpt_ask_json(save->directory,
			   json_pack("{s:s, s:s, s:s?, s:s?}", "verb", verb, "session", save->session, "metadata",
				     metadata, "to", save->replaces),
			   CKPT_SOCKET_PATIENT, &reply, NULL);
	if (!rc)
		json_decref(reply);
	return rc;
}

static int begin_mounted(struct ckpt_save *save, const char *name)
{
	const char *session;
	json_t *reply;
	int rc;

	ckpt_json_begin();
	rc = ckpt_ask_json(save->directory,
			   json_pack("{s:s, s:s, s:b}", "verb", "begin", "to", name, "force", save->replaces != NULL),
			   CKPT_SOCKET_PATIENT, &reply, NULL);
	if (rc)
		return rc;
	session = json_string_value(json_object_get(reply, "session"));
	rc = session && strlen(session) < sizeof(save->session) ? 0 : -EPROTO;
	if (!rc)
		strcpy(save->session, session);
	json_decref(reply);
	return rc;
}

static int begin_here(struct ckpt_save *save, const char *name)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	const char *leaf;
	int rc = ckpt_hold(save->directory, &save->store);

	if (!rc)
		rc = ckpt_folders_place(save->store, name, id, &leaf);
	if (!rc)
		rc = (save->replaces ? ckpt_replace_begin : ckpt_stage_begin)(save->store, id, leaf, 0755, geteuid(),
									      getegid(), getpid(), &save->step);
	if (!rc)
		memcpy(save->session, save->step->session, sizeof(save->session));
	return rc;
}

// The mount that had it is gone, and the session is unfinished.
static int take_over(struct ckpt_save *save)
{
	int rc = save->store ? 0 : ckpt_hold(save->directory, &save->store);

	if (!rc)
		rc = ckpt_find_unfinished(save->store, save->session, &save->step);
	return rc == -ENOENT ? -ESTALE : rc;
}

// The mount that had it has committed it, but its answer was lost, and it may have died before all was on disk; or somebody else has.
static int take_committed(struct ckpt_save *save)
{
	struct ckpt_step *step = ckpt_step_live_session(save->store, save->session);
	int rc = step ? ckpt_sys.syncfs(save->store->dirfd) : -ESTALE;

	if (rc)
		ckpt_step_unref(step);
	else
		save->step = step;
	return rc;
}

static int commit_over(struct ckpt_save *save, struct ckpt_commit *how)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *replaced;
	int rc = ckpt_folders_place(save->store, save->replaces, id, &how->name);

	how->folder_id = id;
	if (!rc)
		rc = ckpt_replace_commit(save->step, how, &replaced);
	if (!rc)
		ckpt_step_unref(replaced);
	return rc;
}

static int commit_here(struct ckpt_save *save, const char *metadata)
{
	struct ckpt_commit how = {.event = "verb", .profile = "generic", .metadata = metadata};
	int rc = save->step ? 0 : take_over(save);

	if (rc == -ESTALE && save->store)
		rc = take_committed(save);
	if (!rc && ckpt_step_state(save->step) == CKPT_STEP_LEFT)
		rc = ckpt_stage_resume(save->step);
	if (rc)
		return rc;
	how.writers_ns = save->store->settings.open_writers_ns;
	rc = save->replaces ? commit_over(save, &how) : ckpt_commit(save->step, &how);
	if (!rc)
		ckpt_trash_drain(*ckpt_trash_of(save->store));
	return rc;
}

static int abort_here(struct ckpt_save *save)
{
	int rc = save->step ? 0 : take_over(save);

	if (!rc)
		rc = ckpt_stage_abort(save->step, false);
	if (!rc)
		ckpt_trash_drain(*ckpt_trash_of(save->store));
	return rc;
}

static void close_here(struct ckpt_save *save)
{
	ckpt_step_unref(TAKE_PTR(save->step));
	ckpt_let_go(TAKE_PTR(save->store));
}

int ckpt_begin(struct ckpt *ckpt, const char *name, unsigned flags, struct ckpt_save **ret_save)
{
	bool known = !(flags & ~CKPT_FORCE);
	struct ckpt_save *save = known ? calloc(1, sizeof(*save)) : NULL;
	sigset_t before;
	int rc;

	if (!save)
		return known ? -ENOMEM : -EINVAL;
	save->directory = strdup(ckpt->directory);
	save->replaces = flags & CKPT_FORCE ? strdup(name) : NULL;
	rc = save->directory && !save->replaces == !(flags & CKPT_FORCE) ? begin_mounted(save, name) : -ENOMEM;
	if (rc == -ENOTCONN) {
		ckpt_hold_signals(&before);
		rc = begin_here(save, name);
		ckpt_let_signals_go(&before);
	}
	if (!rc && asprintf(&save->path, "%s/sessions/%s", save->directory, save->session) < 0) {
		save->path = NULL;
		(void)ckpt_save_abort(save);
		rc = -ENOMEM;
	}
	if (rc)
		ckpt_save_free(save);
	else
		*ret_save = save;
	return rc;
}

const char *ckpt_save_path(const struct ckpt_save *save)
{
	return save->path;
}

// Metadata where it is committed; NULL here: none.
static int finish(struct ckpt_save *save, bool commits, const char *metadata)
{
	sigset_t before;
	int rc = save->over ? -EALREADY : save->store ? -ENOTCONN : ask(save, commits ? "commit" : "abort", metadata);

	if (rc == -ENOTCONN) {
		ckpt_hold_signals(&before);
		rc = commits ? commit_here(save, metadata) : abort_here(save);
		if (!rc || !save->step)
			close_here(save);
		ckpt_let_signals_go(&before);
	}
	save->over |= !rc;
	return rc;
}

int ckpt_save_commit(struct ckpt_save *save, const char *metadata)
{
	CLEANUP_FREE char *canonical = NULL, *why = NULL;
	int rc = metadata ? ckpt_metadata_parse(metadata, strlen(metadata), &canonical, &why) : 0;

	return rc ? rc : finish(save, true, canonical);
}

int ckpt_save_abort(struct ckpt_save *save)
{
	return finish(save, false, NULL);
}

void ckpt_save_free(struct ckpt_save *save)
{
	if (!save)
		return;
	close_here(save);
	free(save->directory);
	free(save->replaces);
	free(save->path);
	free(save);
}

// --- Waiting ------------------------------------------------------------------------------------------------------------

// What is listed may not be on disk before its commit has been answered. -EAGAIN: it has not, for all we know.
static int is_answered(const struct ckpt *c, const char *name)
{
	json_t *status, *one;
	size_t i;
	int rc;

	ckpt_json_begin();
	rc = ckpt_ask_json(c->directory, json_pack("{s:s}", "verb", "status"), CKPT_SOCKET_TIMEOUT_S, &status, NULL);
	if (rc)
		return rc == -ENOTCONN ? 0 : rc == -ENOMEM || rc == -EACCES ? rc : -EAGAIN;
	json_array_foreach(json_object_get(status, "committing"), i, one)
	{
		if (json_is_string(one) && !strcmp(json_string_value(one), name))
			rc = -EAGAIN;
	}
	json_decref(status);
	return rc;
}

static int look_for(struct ckpt *c, const char *name, unsigned flags)
{
	struct ckpt_info *info;
	int rc = ckpt_find(c, name, &info);

	if (rc)
		return rc == -ENOENT ? -EAGAIN : rc;
	rc = (flags & CKPT_WAIT_SEALED) && !(info->flags & CKPT_INFO_SEALED) ? -EAGAIN : is_answered(c, info->name);
	ckpt_info_free(info);
	return rc;
}

// When a step came to the store, or a name's first version; 0: nobody knows.
static int64_t steps_ns(const struct ckpt *c)
{
	CLEANUP_FREE char *path = NULL;
	struct stat st;

	if (asprintf(&path, "%s/steps", c->directory) < 0) {
		path = NULL;
		return 0;
	}
	return stat(path, &st) ? 0 : st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
}

int ckpt_wait(struct ckpt *ckpt, const char *name, unsigned flags, int64_t timeout_ns)
{
	int64_t began_ns = ckpt_sys.mono_ns(), seen_ns = -1;
	int rc = flags & ~CKPT_WAIT_SEALED ? -EINVAL : -EAGAIN;

	for (unsigned polls = 0; rc == -EAGAIN; polls++) {
		int64_t now_ns = steps_ns(ckpt);

		if (polls)
			ckpt_sys.sleep_ns(POLL_NS);
		if (now_ns != seen_ns || polls % POLLS_BLIND == 0)
			rc = look_for(ckpt, name, flags);
		seen_ns = now_ns;
		if (rc == -EAGAIN && timeout_ns >= 0 && ckpt_sys.mono_ns() - began_ns >= timeout_ns)
			rc = -ETIMEDOUT;
	}
	return rc;
}

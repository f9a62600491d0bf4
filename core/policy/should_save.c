#include "core/policy/should_save.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/history.h"
#include "core/policy/policy_store.h"
#include "core/record/name.h"
#include "core/save/stage.h"
#include "core/state/journal.h"
#include "core/step/folders.h"
#include "core/step/follow.h"
#include "core/step/store.h"

#include <stdio.h>

#define KEY "decisions" // of what the log says

static const char *const answers[] = {
	[CKPT_DECIDE_NO] = "no", [CKPT_DECIDE_TEMPORARY] = "temporary", [CKPT_DECIDE_PERMANENT] = "permanent"};

const char *ckpt_should_save_word(enum ckpt_decide_answer answer)
{
	return answers[answer];
}

bool ckpt_should_save_answer(const char *word, enum ckpt_decide_answer *ret_answer)
{
	for (size_t i = 0; word && i < ARRAY_LEN(answers); i++) {
		if (strcmp(word, answers[i]))
			continue;
		*ret_answer = (enum ckpt_decide_answer)i;
		return true;
	}
	return false;
}

// Of the steps in a folder.
struct events {
	int64_t number;     // of this step
	int64_t changed_ns; // it was last committed or deleted; INT64_MIN: never
	int64_t latest;     // the highest number of a committed one; -1: there is none
};

static int look_at(void *arg, struct ckpt_step *step)
{
	struct events *e = arg;
	LOCK_SCOPE(&step->lock);

	if (step->version->is.number != e->number)
		return 0;
	e->changed_ns =
		MAX(e->changed_ns, step->version->is.committed_ns); // that of a save anew, or of what else somebody did
	if (step->state == CKPT_STEP_DELETED)
		e->changed_ns = MAX(e->changed_ns, step->deleted_ns);
	return 0;
}

static struct events look_in(struct ckpt_store *s, const char *folder_id, int64_t number, int64_t latest)
{
	struct events e = {number, INT64_MIN, latest};
	LOCK_SCOPE(&s->lock);

	(void)ckpt_step_each_locked(s, folder_id, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, look_at, &e);
	return e;
}

// The path of this folder, malloc'ed: what is found, else as the run was named, as it may still be to be made. 0, -ENOMEM.
static int path_of(struct ckpt_store *s, const char *folder_id, const char *run, char **ret_path)
{
	const char *path = run ? run : "";
	struct ckpt_folders folders;
	int rc = ckpt_folders_read(s, &folders);

	if (rc)
		return rc;
	for (size_t i = 0; i < folders.count; i++)
		if (!strcmp(folders.at[i].id, folder_id))
			path = folders.at[i].path;
	*ret_path = strdup(path);
	ckpt_folders_done(&folders);
	return *ret_path ? 0 : -ENOMEM;
}

static int decide(struct ckpt_store *s, const struct ckpt_policy *p, struct ckpt_decide *q, const char *folder_id,
		  struct ckpt_decision *ret_decision, char **ret_why)
{
	bool runs = !q->answered && ckpt_policy_has(&p->save, CKPT_POLICY_EXEC);
	int rc = runs ? ckpt_policy_check_programs(s, p, ret_why) : 0;
	CLEANUP_FREE char *path = NULL;

	if (!rc && runs)
		rc = path_of(s, folder_id, q->run, &path);
	if (rc)
		return rc;
	q->folder = path;
	q->store = s->path;
	rc = ckpt_decide(p, q, ret_decision, ret_why);
	q->folder = q->store = NULL;
	return rc;
}

// By which decisions are known of a folder that is still to be made: no folder has it.
static void id_to_be(const char *path, char *ret_id)
{
	uint8_t digest[CKPT_SHA256_LEN];

	ckpt_sha256(path, strlen(path), digest);
	ckpt_hex(digest, CKPT_FOLDER_ID_LEN / 2, ret_id);
}

static int no_history(const char *path, char *ret_folder_id, struct ckpt_history *ret_history)
{
	id_to_be(path, ret_folder_id);
	*ret_history = (struct ckpt_history){0};
	return 0;
}

// The folder may have been made since.
static const struct ckpt_decided_step *find_decided(const struct ckpt_decided *decided, const char *folder_id,
						    const char *path, int64_t now_ns, const struct events *e)
{
	const struct ckpt_decided_step *found =
		ckpt_decided_find(decided, folder_id, e->number, now_ns, e->changed_ns, e->latest);
	char id[CKPT_FOLDER_ID_LEN + 1];

	if (found || !path)
		return found;
	id_to_be(path, id);
	return ckpt_decided_find(decided, id, e->number, now_ns, e->changed_ns, e->latest);
}

static int read_run(struct ckpt_store *s, const struct ckpt_decide *q, char *ret_folder_id,
		    struct ckpt_history *ret_history, char **ret_why)
{
	int rc = q->run ? ckpt_folders_place_folder(s, q->run, ret_folder_id)
			: ckpt_history_read_run(s, false, ret_folder_id, ret_history);

	if (rc == -EMLINK)
		*ret_why = strdup("several folders have steps: name the one of the run, as in FOLDER/1000");
	else if (rc == -ENOENT && q->run) // no step was ever saved there
		return no_history(q->run, ret_folder_id, ret_history);
	else if (rc && q->run && asprintf(ret_why, "the run's folder: %s", strerror(-rc)) < 0)
		*ret_why = NULL;
	return rc || !q->run ? rc : ckpt_history_read(s, ret_folder_id, false, ret_history);
}

static int answer(struct ckpt_store *s, const struct ckpt_policy *p, struct ckpt_decide *q,
		  struct ckpt_decided *decided, struct ckpt_decided_step *ret_answer, bool *ret_changed, char **ret_why)
{
	const struct ckpt_decided_step *found;
	struct ckpt_decision decision;
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_history history;
	struct events events;
	int rc = read_run(s, q, folder_id, &history, ret_why);

	if (rc)
		return rc;
	q->steps = history.steps;
	q->count = history.count;
	q->now_ns = ckpt_sys.now_ns();
	q->clock_ns = ckpt_decided_clock(decided, folder_id, q->now_ns);
	q->saving = ckpt_stage_is_saving(s, q->run || q->count ? folder_id : NULL); // the first save is in any
	events = look_in(s, folder_id, q->step, ckpt_decide_latest(q));
	found = find_decided(decided, folder_id, q->run, q->now_ns, &events);
	if (!found || (q->force && !found->permanent)) {
		rc = decide(s, p, q, folder_id, &decision, ret_why);
		*ret_changed = !rc;
		if (!rc)
			found = ckpt_decided_add(decided, folder_id, q->step, q->now_ns, events.latest, &decision);
	}
	if (!rc)
		*ret_answer = *found;
	ckpt_history_done(&history);
	q->steps = NULL;
	q->count = 0;
	return rc;
}

int ckpt_should_save_by(struct ckpt_store *s, struct ckpt_decide *q, struct ckpt_decided *decided,
			struct ckpt_decided_step *ret_answer, bool *ret_changed, char **ret_why)
{
	struct ckpt_policy policy;
	uint64_t seq;
	int rc = ckpt_policy_load(s, &policy, &seq, ret_why);

	*ret_changed = false;
	if (rc)
		return rc;
	ckpt_decided_under(decided, seq);
	rc = answer(s, &policy, q, decided, ret_answer, ret_changed, ret_why);
	ckpt_policy_done(&policy);
	return rc;
}

// --- At rest ----------------------------------------------------------------------------------------------------------

static int read_decided(struct ckpt_store *s, struct ckpt_decided *ret, uint64_t *ret_seq)
{
	CLEANUP_FREE char *text = NULL;
	int rc;

	*ret_seq = 0;
	rc = ckpt_follow_value(s, KEY, &text, ret_seq);
	if (rc && rc != -ENOENT)
		return rc;
	return ckpt_decided_parse(text ? text : "", text ? strlen(text) : 0, ckpt_sys.now_ns(), ret);
}

// In the place of what was read: another thread may have decided something meanwhile.
static int put_decided(struct ckpt_store *s, const struct ckpt_decided *decided, uint64_t seq)
{
	CLEANUP_FREE char *text = ckpt_decided_text(decided);

	return text ? ckpt_journal_set(s->journal, KEY, seq, text) : -ENOMEM;
}

int ckpt_should_save_load(struct ckpt_store *s, struct ckpt_decided *ret_decided)
{
	uint64_t seq;
	int rc = read_decided(s, ret_decided, &seq);

	if (!rc)
		ckpt_decided_restart(ret_decided, ckpt_sys.now_ns());
	return rc;
}

int ckpt_should_save_keep(struct ckpt_store *s, const struct ckpt_decided *decided)
{
	return put_decided(s, decided, CKPT_ACT_ANY);
}

int ckpt_should_save_at_rest(struct ckpt_store *s, struct ckpt_decide *q, struct ckpt_decided_step *ret_answer,
			     char **ret_why)
{
	CLEANUP_FREE struct ckpt_decided *decided = malloc(sizeof(*decided));
	uint64_t seq;
	bool changed;
	int rc;

	*ret_why = NULL;
	rc = decided ? read_decided(s, decided, &seq) : -ENOMEM;
	if (!rc) {
		q->preempted_at = decided->preempted_at;
		rc = ckpt_should_save_by(s, q, decided, ret_answer, &changed, ret_why);
	}
	return rc || !changed ? rc : put_decided(s, decided, seq);
}

int ckpt_should_save_preempt_at_rest(struct ckpt_store *s, int64_t at_step)
{
	CLEANUP_FREE struct ckpt_decided *decided = malloc(sizeof(*decided));
	uint64_t seq;
	int rc = decided ? read_decided(s, decided, &seq) : -ENOMEM;

	if (rc || decided->preempted_at == at_step)
		return rc;
	decided->preempted_at = at_step;
	return put_decided(s, decided, seq);
}

int64_t ckpt_should_save_preempted_at(struct ckpt_store *s)
{
	CLEANUP_FREE struct ckpt_decided *decided = malloc(sizeof(*decided));
	uint64_t seq;

	return decided && !read_decided(s, decided, &seq) ? decided->preempted_at : -1;
}

// --- Of a step that is committed ----------------------------------------------------------------------------------------

static int all_decided(struct ckpt_store *s, struct ckpt_decided *ret)
{
	uint64_t seq;

	if (!s->calls.decided)
		return read_decided(s, ret, &seq);
	s->calls.decided(s->calls.decided_arg, ret);
	return 0;
}

// Of a run's first step, for which it was asked before there was a folder, or which run it is.
static const struct ckpt_decided_step *find_of_first(struct ckpt_store *s, const struct ckpt_decided *decided,
						     const char *folder_id, int64_t began_ns, const struct events *e)
{
	const struct ckpt_decided_step *found = NULL;
	struct ckpt_folders folders;

	if (ckpt_folders_read(s, &folders))
		return NULL;
	for (size_t i = 0; i < folders.count && !found; i++)
		if (!strcmp(folders.at[i].id, folder_id))
			found = find_decided(decided, folder_id, folders.at[i].path, began_ns, e);
	ckpt_folders_done(&folders);
	return found ? found : find_decided(decided, "", NULL, began_ns, e);
}

static int find_latest(struct ckpt_store *s, const char *folder_id, int64_t *ret_latest)
{
	struct ckpt_history history;
	int rc = ckpt_history_read(s, folder_id, false, &history);

	if (rc)
		return rc;
	*ret_latest = ckpt_decide_latest(&(struct ckpt_decide){.steps = history.steps, .count = history.count});
	ckpt_history_done(&history);
	return 0;
}

bool ckpt_should_save_was_temporary(struct ckpt_step *step, const char *folder_id, const char *name)
{
	CLEANUP_FREE struct ckpt_decided *decided = malloc(sizeof(*decided));
	const struct ckpt_decided_step *found;
	struct ckpt_store *s = step->store;
	int64_t number = ckpt_name_number(name), latest;
	struct events e;

	if (number < 0 || !decided || all_decided(s, decided) || !decided->count || find_latest(s, folder_id, &latest))
		return false;
	e = look_in(s, folder_id, number, latest);
	found = find_decided(decided, folder_id, NULL, ckpt_staging_of(step)->began_ns, &e);
	if (!found && *folder_id && e.latest < 0)
		found = find_of_first(s, decided, folder_id, ckpt_staging_of(step)->began_ns, &e);
	return found && found->save && !found->permanent && ckpt_policy_seq(s) == decided->policy;
}

const char *ckpt_should_save_hint(int error)
{
	switch (error) {
	case -EBADMSG:
		return "`ckptfs policy set` replaces it";
	case -EPERM:
		return "take that right away (chmod go-w, chown), and see what `ckptfs policy show` says";
	default:
		return NULL;
	}
}

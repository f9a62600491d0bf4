// A directory may also show to be no step. It becomes a plain folder
//   - at once, when a log in it is open LOG_NS after it was seen to be written first, and none of its files is array data;
//   - when it is quiet for long enough and has no array data (quiet.h).
//
// One step's way through here: still (nothing changes any more, for half a unit) -> surveyed -> for long enough, surveyed again with the
// same stamp -> committed. Any change begins it anew: touched_ns of the step says so where the change came by a request, and the stamp
// where it did not (a mapping, or a descriptor that outlived its daemon).
//
// Invariants:
//  1. `still` of a step is made and written by the looker alone, but for what its lock guards; it goes with what the step has staged,
//     or at the end of a look that runs then.
//  2. No lock is held over a look at files or processes.
#include "core/save/looker.h"

#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/profile.h"
#include "core/profile/tracker.h"
#include "core/save/commit.h"
#include "core/save/makers.h"
#include "core/save/neighbour.h"
#include "core/save/quiet.h"
#include "core/save/stage.h"
#include "core/save/survey.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#define SECOND_NS INT64_C(1000000000)
#define TELL_UNITS 6
#define LOG_NS (5 * SECOND_NS)
#define LOG_LOOK_NS SECOND_NS     // how often logs are looked at
#define TICK_NS INT64_C(20000000) // times of files move in ticks
#define REST_FACTOR 20            // it rests so many times as long as a turn had a processor
#define POLL_MIN_NS (SECOND_NS / 20)
#define POLL_MAX_NS (2 * SECOND_NS)

// What the last look at a step has found.
struct ckpt_still {
	// The looker's alone.
	bool had_arrays;    // once: no log makes a run's folder of it
	int64_t touched_ns; // of the step
	bool surveyed;
	bool told; // that it is not complete
	uint64_t stamp;
	bool has_files, has_arrays, has_known, has_beginning, has_earlier_array, has_later_file, has_old_times;
	char *cut;
	char *claim; // the profile that claims it, or NULL
	struct ckpt_lack lack;

	// Guarded by step->lock.
	int64_t since_ns; // nothing has changed since, monotonic
	int64_t after_ns; // how long that must be; INT64_MAX: time alone does not do it
	char what[CKPT_WAITS_FOR_MAX];
};

// What is to be known of a step before a look at its files.
struct glance {
	bool is_staged;
	bool by_client;
	int64_t touched_ns;
	bool is_open, is_changing;
	char path[PATH_MAX]; // of a file that is open
	pid_t pid;           // of its opener
	bool array_is_open;  // a file that is open has a name of array files
	int64_t log_ns;      // a log is open that was seen to be written first then, monotonic; 0: none
	struct ckpt_step_name name;
};

static int64_t unit_ns(const struct ckpt_store *s)
{
	return ckpt_settings_quiet_ns(&s->settings, 1);
}

// --- Open files ---------------------------------------------------------------------------------------------------------

enum { KIND_OTHER = 1, KIND_ARRAYS, KIND_LOG };

// A log lies in the top directory. DeepSpeed appends to its files of arrays, too.
static char kind_locked(const struct ckpt_step *step, const struct ckpt_writer *w)
{
	char path[PATH_MAX];
	const char *slash;

	ckpt_stage_writer_path_locked(step, w, path);
	slash = strrchr(path, '/');
	if (ckpt_name_is_file_step(slash ? slash + 1 : path) || ckpt_data_is_known(slash ? slash + 1 : path))
		return KIND_ARRAYS;
	return !slash && (w->appends_ns || ckpt_tracker_is_log(path)) ? KIND_LOG : KIND_OTHER;
}

// The kernel writes it without a word to us.
static bool is_written(const struct ckpt_writer *w)
{
	struct stat st;

	return w->fd >= 0 && !fstat(w->fd, &st) && st.st_size > 0 &&
	       st.st_mtim.tv_sec * SECOND_NS + st.st_mtim.tv_nsec >= w->appends_ns - TICK_NS;
}

static void look_at_writer_locked(const struct ckpt_step *step, struct ckpt_writer *w, struct glance *g)
{
	if (!w->kind)
		w->kind = kind_locked(step, w);
	g->array_is_open |= w->kind == KIND_ARRAYS;
	if (w->kind != KIND_LOG)
		return;
	if (!w->log_ns && is_written(w))
		w->log_ns = ckpt_sys.mono_ns();
	if (w->log_ns && (!g->log_ns || w->log_ns < g->log_ns))
		g->log_ns = w->log_ns;
}

static struct glance glance_at(struct ckpt_step *step)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	struct glance g = {.touched_ns = __atomic_load_n(&staged->touched_ns, __ATOMIC_RELAXED)};

	ckpt_step_name(step, &g.name);
	LOCK_SCOPE(&step->lock);
	g.is_staged = step->state == CKPT_STEP_STAGED && !staged->outcome_unknown &&
		      !__atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);
	g.by_client = staged->by_client;
	g.is_changing = staged->changers;
	g.is_open = staged->writers;
	if (g.is_open) {
		ckpt_stage_writer_path_locked(step, staged->writers, g.path);
		g.pid = staged->writers->pid;
	}
	for (struct ckpt_writer *w = g.by_client ? staged->writers : NULL; w; w = w->next)
		look_at_writer_locked(step, w, &g);
	return g;
}

// --- Still --------------------------------------------------------------------------------------------------------------

static void forget_survey(struct ckpt_still *still)
{
	free(TAKE_PTR(still->cut));
	free(TAKE_PTR(still->claim));
	free(TAKE_PTR(still->lack.file));
	*still->lack.neighbour = '\0';
	still->surveyed = false;
}

static void still_free(struct ckpt_still *still)
{
	forget_survey(still);
	free(still);
}

// Nothing is known of it any more, but that it changed then.
static void begin_anew(struct ckpt_step *step, int64_t touched_ns, int64_t since_ns)
{
	struct ckpt_still *still = ckpt_staging_of(step)->still;

	forget_survey(still);
	still->touched_ns = touched_ns;
	still->told = false;
	LOCK_SCOPE(&step->lock);
	still->since_ns = since_ns;
	still->after_ns = unit_ns(step->store);
	*still->what = '\0';
}

// False: there is no memory. A step that was staged at the start of the daemon has not been touched since.
static bool be_still(struct ckpt_step *step, const struct glance *g)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	bool is_new;

	ckpt_lock_take(&step->lock);
	is_new = !staged->still;
	if (is_new) {
		staged->still = calloc(1, sizeof(*staged->still));
		staged->still_free = still_free;
	}
	staged->still_used = staged->still;
	ckpt_lock_drop(&step->lock);
	if (!staged->still_used)
		return false;
	if (is_new || staged->still->touched_ns != g->touched_ns)
		begin_anew(step, g->touched_ns, g->touched_ns ? g->touched_ns : ckpt_sys.mono_ns());
	return true;
}

// The end of a look. The step may have been committed or dropped meanwhile, by others too.
static void still_end(struct ckpt_step *step)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	LOCK_SCOPE(&step->lock);

	staged->still_used = false;
	if (staged->still_over)
		still_free(TAKE_PTR(staged->still));
	staged->still_over = false;
}

// --- Files --------------------------------------------------------------------------------------------------------------

static void take_survey(struct ckpt_still *still, struct ckpt_survey *survey)
{
	still->stamp = survey->stamp;
	still->has_files = survey->file_count;
	still->has_arrays = survey->has_arrays;
	still->had_arrays |= survey->has_arrays;
	still->has_known = survey->has_known;
	still->has_beginning = survey->has_beginning;
	still->has_earlier_array = survey->has_earlier_array;
	still->has_later_file = survey->has_later_file;
	still->has_old_times = survey->has_old_times;
	still->cut = TAKE_PTR(survey->cut);
	still->surveyed = true;
}

static struct ckpt_survey survey_of(struct ckpt_step *step, bool leases)
{
	return (struct ckpt_survey){.step = step, .attempt_ns = ckpt_stage_attempt_ns(step), .leases = leases};
}

// By the names in the top directory.
static const char *claimed_by(uint64_t profiles, const struct ckpt_survey *survey)
{
	struct ckpt_claims seen = {0};

	for (size_t i = 0; i < survey->file_count; i++) {
		char name[CKPT_NAME_MAX + 1];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(survey->files[i], "/"), survey->files[i]);
		ckpt_profile_see(&seen, name);
	}
	return ckpt_profile_claims(profiles, &seen);
}

static int look_at_files(struct ckpt_step *step)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);
	struct ckpt_survey survey = survey_of(step, false);
	int rc = ckpt_survey_run(&survey);

	if (!rc) {
		forget_survey(staged->still);
		rc = ckpt_neighbour_compare(step, &survey, &staged->still->lack);
	}
	if (!rc) {
		const char *claim = claimed_by(step->store->settings.profiles, &survey);

		staged->still->claim = claim ? strdup(claim) : NULL;
		take_survey(staged->still, &survey);
	}
	ckpt_survey_done(&survey);
	return rc;
}

// False: something has changed that came past us, or it cannot be looked at now. A step that is completed beside it meanwhile may
// be another neighbour.
static bool know_files(struct ckpt_step *step, const struct glance *g)
{
	const struct ckpt_still *still = ckpt_staging_of(step)->still;
	bool surveyed = still->surveyed;
	uint64_t stamp = still->stamp;

	if (surveyed && still->lack.sequence == ckpt_neighbour_sequence(step))
		return true;
	if (look_at_files(step))
		return false;
	if (surveyed && still->stamp != stamp) {
		begin_anew(step, g->touched_ns, ckpt_sys.mono_ns());
		return false;
	}
	return true;
}

// --- The facts ----------------------------------------------------------------------------------------------------------

static struct ckpt_quiet_facts facts_of(struct ckpt_step *step, const struct glance *g,
					const struct ckpt_makers_facts *m)
{
	const struct ckpt_still *still = ckpt_staging_of(step)->still;
	bool copied =
		m->copied || still->has_old_times || __atomic_load_n(&ckpt_staging_of(step)->copied, __ATOMIC_RELAXED);

	return (struct ckpt_quiet_facts){
		.unit_ns = step->store->settings.commit_quiet_ns,
		.plain_unit_ns = unit_ns(step->store),
		.still_ns = ckpt_sys.mono_ns() - still->since_ns,
		.has_files = still->has_files,
		.has_arrays = still->has_arrays,
		.has_known = still->has_known,
		.has_beginning = still->has_beginning || g->array_is_open,
		.is_declared = step->store->settings.steps_at,
		.is_open = g->is_open,
		.is_cut = still->cut,
		.is_claimed = still->claim && !copied,
		.name_is_used = ckpt_profile_of_name(g->name.name),
		.has_neighbour = *still->lack.neighbour,
		.lacks_file = still->lack.file,
		.copier_ended = m->copier_made && !m->living && !m->later && !m->stopped && !m->failed && !m->unknown,
		.living = m->living,
		.stopped = m->stopped,
		.failed = m->failed,
		.unknown = m->unknown + !m->any,
		.any_lives = m->living || m->later || m->stopped,
		.all_ended = m->any && !m->unseen && !m->living && !m->later && !m->stopped,
		.was_interrupted = ckpt_stage_is_interrupted(step),
		.has_earlier_array = still->has_earlier_array,
		.has_later_file = still->has_later_file,
		.copied_since = m->copier_ended,
	};
}

// --- In words -----------------------------------------------------------------------------------------------------------

static const char *event_of(const struct ckpt_store *s, const char *name)
{
	const char *act = ckpt_profile_awaits(s->settings.profiles, name);

	return act ? act : s->settings.marker;
}

static void say(struct ckpt_step *step, const struct glance *g, const struct ckpt_makers_facts *m,
		const struct ckpt_quiet_verdict *v, char *text)
{
	const struct ckpt_still *still = ckpt_staging_of(step)->still;
	const char *event = event_of(step->store, g->name.name);

	switch (v->reason) {
	case CKPT_QUIET_TIME:
		if (still->lack.file)
			snprintf(text, CKPT_WAITS_FOR_MAX, "%.200s, which %.100s has", still->lack.file,
				 still->lack.neighbour);
		else if (still->claim)
			snprintf(text, CKPT_WAITS_FOR_MAX, "the last file of %s", still->claim);
		break;
	case CKPT_QUIET_NEVER:
		snprintf(text, CKPT_WAITS_FOR_MAX, "%s", event);
		break;
	case CKPT_QUIET_NO_ARRAYS:
		snprintf(text, CKPT_WAITS_FOR_MAX, "a file with array data%s",
			 v->after_ns == INT64_MAX ? "" : ", without which it becomes a plain folder");
		break;
	case CKPT_QUIET_OPEN:
		snprintf(text, CKPT_WAITS_FOR_MAX, "the close of %.300s, which process %d has open", g->path,
			 (int)g->pid);
		break;
	case CKPT_QUIET_CUT:
		snprintf(text, CKPT_WAITS_FOR_MAX, "the rest of %.300s, which is cut off", still->cut);
		break;
	case CKPT_QUIET_STOPPED:
		snprintf(text, CKPT_WAITS_FOR_MAX, "%s", m->stopped_text);
		break;
	case CKPT_QUIET_LIVING:
		snprintf(text, CKPT_WAITS_FOR_MAX, "%s: %s", event, m->living_text);
		break;
	case CKPT_QUIET_UNKNOWN:
		snprintf(text, CKPT_WAITS_FOR_MAX, "%s: %s", event,
			 *m->unknown_text ? m->unknown_text : "nobody knows how its writers ended");
		break;
	case CKPT_QUIET_INTERRUPTED:
		snprintf(text, CKPT_WAITS_FOR_MAX,
			 "%s or `ckptfs commit`: it was interrupted, and may have files of two attempts", event);
		break;
	}
}

static void publish(struct ckpt_step *step, int64_t after_ns, const char *what)
{
	struct ckpt_still *still = ckpt_staging_of(step)->still;
	LOCK_SCOPE(&step->lock);

	still->after_ns = after_ns;
	snprintf(still->what, sizeof(still->what), "%s", what);
}

void ckpt_looker_waits_for(struct ckpt_step *step, char ret_text[CKPT_WAITS_FOR_MAX])
{
	const char *event = event_of(step->store, step->name);
	LOCK_SCOPE(&step->lock);
	const struct ckpt_still *still = ckpt_staging_of(step)->still;
	size_t len = 0;

	*ret_text = '\0';
	if (!still || !ckpt_staging_of(step)->by_client) {
		snprintf(ret_text, CKPT_WAITS_FOR_MAX, "%s", event);
		return;
	}
	if (*still->what)
		len = (size_t)snprintf(ret_text, CKPT_WAITS_FOR_MAX, "%s", still->what);
	if (still->after_ns != INT64_MAX)
		snprintf(ret_text + len, CKPT_WAITS_FOR_MAX - len, "%squiet for %lld s of %lld s", len ? "; " : "",
			 (long long)((ckpt_sys.mono_ns() - still->since_ns) / SECOND_NS),
			 (long long)((still->after_ns + SECOND_NS - 1) / SECOND_NS));
}

// Once, until it changes again.
static void tell(struct ckpt_step *step, const struct glance *g)
{
	char what[CKPT_WAITS_FOR_MAX], hint[2 * CKPT_NAME_MAX + 128];

	ckpt_staging_of(step)->still->told = true;
	ckpt_looker_waits_for(step, what);
	snprintf(hint, sizeof(hint), "`ckptfs commit %s` completes it, `ckptfs abort %s` drops it", g->name.name,
		 g->name.name);
	ckpt_errlog_add(step->store->errlog, g->name.name, 0, hint, "the step is not complete: it waits for %s", what);
}

// A file that stays open may be written all the time without a word to us.
static void tell_if_still(struct ckpt_step *step, const struct glance *g)
{
	const struct ckpt_staging *staged = ckpt_staging_of(step);
	uint64_t stamp = staged->still->stamp;

	if (staged->still->told || ckpt_sys.mono_ns() - staged->still->since_ns < TELL_UNITS * unit_ns(step->store))
		return;
	if (look_at_files(step))
		return;
	if (staged->still->stamp == stamp)
		tell(step, g);
	else
		begin_anew(step, g->touched_ns, ckpt_sys.mono_ns());
}

// --- The acts -----------------------------------------------------------------------------------------------------------

static bool stops(void *looker)
{
	const struct ckpt_looker *l = looker;

	return !l->ends && ckpt_job_stops(l->job);
}

// Just before the act: 0 nothing has changed; -EAGAIN something has; with leases, -EBUSY somebody can still write a file.
static int confirm(struct ckpt_step *step, bool leases, char *ret_busy)
{
	struct ckpt_survey survey = survey_of(step, leases);
	int rc = ckpt_survey_run(&survey);

	if (!rc && survey.stamp != ckpt_staging_of(step)->still->stamp)
		rc = -EAGAIN;
	if (!rc && survey.busy) {
		snprintf(ret_busy, PATH_MAX, "%s", survey.busy);
		rc = -EBUSY;
	}
	ckpt_survey_done(&survey);
	return rc;
}

static int commit(struct ckpt_looker *l, struct ckpt_step *step, const struct glance *g)
{
	struct ckpt_store *s = l->store;
	struct ckpt_commit how = {.event = "quiet",
				  .profile = ckpt_staging_of(step)->still->claim ? ckpt_staging_of(step)->still->claim
										 : "generic",
				  .unless_touched_ns = &g->touched_ns,
				  .abandoned = stops,
				  .abandoned_arg = l};
	int rc = ckpt_commit(step, &how);

	if (!rc && s->calls.listed)
		s->calls.listed(s->calls.listed_arg, step);
	return rc;
}

// When to look at it again. A commit that failed is in the log; it is tried again when it has been still for as long again.
static int64_t complete(struct ckpt_looker *l, struct ckpt_step *step, struct glance *g)
{
	int64_t now = ckpt_sys.mono_ns();
	int rc = confirm(step, true, g->path);

	if (rc == -EBUSY) {
		char what[CKPT_WAITS_FOR_MAX];

		snprintf(what, sizeof(what), "the end of all mappings of %.300s", g->path);
		publish(step, INT64_MAX, what);
		tell_if_still(step, g);
		return now + POLL_MAX_NS;
	}
	if (!rc)
		rc = commit(l, step, g);
	if (rc)
		begin_anew(step, g->touched_ns, ckpt_sys.mono_ns());
	return now + unit_ns(l->store) / 2;
}

static int64_t poll_ns(const struct ckpt_store *s)
{
	return MIN(MAX(unit_ns(s) / 4, POLL_MIN_NS), POLL_MAX_NS);
}

// --- A look at one step -------------------------------------------------------------------------------------------------

static int64_t wait_on(struct ckpt_looker *l, struct ckpt_step *step, const struct glance *g,
		       const struct ckpt_makers_facts *m, const struct ckpt_quiet_verdict *v)
{
	int64_t now = ckpt_sys.mono_ns(), unit = unit_ns(l->store);
	char what[CKPT_WAITS_FOR_MAX] = "";

	say(step, g, m, v, what);
	publish(step, v->after_ns, what);
	tell_if_still(step, g);
	if (v->reason == CKPT_QUIET_TIME) // a neighbour may come before
		return MIN(ckpt_staging_of(step)->still->since_ns + v->after_ns, now + unit);
	return now + (v->reason == CKPT_QUIET_INTERRUPTED ? unit : poll_ns(l->store));
}

static int64_t interrupt(struct ckpt_looker *l, struct ckpt_step *step, const struct glance *g,
			 const struct ckpt_makers_facts *m)
{
	ckpt_stage_interrupt(step);
	ckpt_makers_forget_ended(step);
	ckpt_errlog_add(l->store->errlog, g->name.name, 0,
			"save again; or complete it as it is with `ckptfs commit`, or drop it with `ckptfs "
			"abort`",
			"the save was interrupted: %s", m->failed_text);
	begin_anew(step, g->touched_ns, ckpt_sys.mono_ns());
	return ckpt_sys.mono_ns() + poll_ns(l->store);
}

// The rename or commit that it waits for does not come by itself: only whether it is told.
static int64_t look_at_others(struct ckpt_looker *l, struct ckpt_step *step, const struct glance *g)
{
	publish(step, INT64_MAX, event_of(l->store, g->name.name));
	if (g->by_client)
		tell_if_still(step, g);
	return ckpt_sys.mono_ns() + unit_ns(l->store);
}

// It is a plain folder from now on, and the step GONE.
static int unstage(struct ckpt_looker *l, struct ckpt_step *step, const struct glance *g, bool no_arrays)
{
	const struct ckpt_store *s = l->store;

	return s->calls.unstage ? s->calls.unstage(s->calls.unstage_arg, step, g->touched_ns, no_arrays) : -ENOTSUP;
}

static int64_t unstage_without_arrays(struct ckpt_looker *l, struct ckpt_step *step, struct glance *g)
{
	int rc = confirm(step, false, g->path);

	if (!rc)
		rc = unstage(l, step, g, true);
	if (rc)
		begin_anew(step, g->touched_ns, ckpt_sys.mono_ns());
	return ckpt_sys.mono_ns() + unit_ns(l->store) / 2;
}

// Whether a log is written in it all the time, and no arrays are.
static bool is_run_by_log(struct ckpt_step *step, const struct glance *g)
{
	struct ckpt_survey survey = survey_of(step, false);
	bool is = false;

	if (!g->log_ns || g->array_is_open || ckpt_staging_of(step)->still->had_arrays ||
	    ckpt_sys.mono_ns() - g->log_ns < LOG_NS)
		return false;
	if (!ckpt_survey_run(&survey)) {
		ckpt_staging_of(step)->still->had_arrays = survey.has_arrays;
		is = !survey.has_arrays && !survey.has_beginning;
	}
	ckpt_survey_done(&survey);
	return is;
}

static int64_t look_at_files_of(struct ckpt_looker *l, struct ckpt_step *step, struct glance *g)
{
	int64_t now = ckpt_sys.mono_ns(), unit = unit_ns(l->store);
	struct ckpt_makers_facts makers;
	struct ckpt_quiet_verdict verdict;
	struct ckpt_quiet_facts facts;

	if (now - ckpt_staging_of(step)->still->since_ns < unit / 2)
		return ckpt_staging_of(step)->still->since_ns + unit / 2;
	if (!g->by_client || ckpt_name_is_temp(g->name.name))
		return look_at_others(l, step, g);
	if (!know_files(step, g))
		return now + unit / 2;
	ckpt_makers_ask(step, &makers);
	facts = facts_of(step, g, &makers);
	verdict = ckpt_quiet_decide(&facts);
	switch (verdict.act) {
	case CKPT_QUIET_COMMIT:
		return complete(l, step, g);
	case CKPT_QUIET_INTERRUPT:
		return interrupt(l, step, g, &makers);
	case CKPT_QUIET_UNSTAGE:
		return unstage_without_arrays(l, step, g);
	default:
		return wait_on(l, step, g, &makers, &verdict);
	}
}

static int64_t look_at_step(struct ckpt_looker *l, struct ckpt_step *step)
{
	int64_t now = ckpt_sys.mono_ns(), unit = unit_ns(l->store), next_ns;
	struct glance g = glance_at(step);
	bool may_be_run = g.by_client && !ckpt_name_is_temp(g.name.name) && !l->store->settings.steps_at;

	if (!g.is_staged)
		return now + unit / 2;
	if (g.is_changing || !be_still(step, &g)) {
		next_ns = now + unit / 2;
	} else {
		may_be_run &= !ckpt_staging_of(step)->still->had_arrays;
		if (may_be_run && is_run_by_log(step, &g) && !unstage(l, step, &g, false))
			return now + unit / 2;
		next_ns = look_at_files_of(l, step, &g);
	}
	return may_be_run ? MIN(next_ns, now + LOG_LOOK_NS) : next_ns;
}

// --- The end ------------------------------------------------------------------------------------------------------------

// As if it had been quiet for ever.
static void complete_at_end(struct ckpt_looker *l, struct ckpt_step *step)
{
	struct glance g = glance_at(step);
	struct ckpt_makers_facts makers;
	struct ckpt_quiet_facts facts;
	bool ended_well, is_whole;

	if (!g.is_staged || g.is_changing || !g.by_client || ckpt_name_is_temp(g.name.name) || !be_still(step, &g) ||
	    look_at_files(step))
		return;
	ckpt_makers_ask(step, &makers);
	facts = facts_of(step, &g, &makers);
	facts.still_ns = INT64_MAX;
	ended_well =
		makers.any && !makers.living && !makers.later && !makers.stopped && !makers.failed && !makers.unknown;
	is_whole = facts.has_neighbour && !facts.lacks_file;
	if ((ended_well || is_whole) && ckpt_quiet_decide(&facts).act == CKPT_QUIET_COMMIT &&
	    !confirm(step, true, g.path))
		(void)commit(l, step, &g);
}

void ckpt_looker_end(struct ckpt_store *s, int64_t until_ns)
{
	struct ckpt_looker *l = ckpt_looker_of(s);
	struct ckpt_step **steps;
	size_t count;

	if (!l->job || ckpt_step_list(s, NULL, 1u << CKPT_STEP_STAGED, &steps, &count))
		return;
	l->ends = true;
	for (size_t i = 0; i < count && ckpt_sys.mono_ns() < until_ns; i++) {
		complete_at_end(l, steps[i]);
		still_end(steps[i]);
	}
	ckpt_step_list_free(steps, count);
}

// --- The job ----------------------------------------------------------------------------------------------------------

// Of this thread. The time that a turn waited for a disk, or for a processor, is no work of its.
static int64_t processor_ns(void)
{
	struct timespec t = {0};

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); // of the calling thread it cannot fail
	return t.tv_sec * SECOND_NS + t.tv_nsec;
}

static int64_t turn(void *looker, struct ckpt_job *job __attribute__((unused)))
{
	struct ckpt_looker *l = looker;
	int64_t began_ns = ckpt_sys.mono_ns(), worked_ns = processor_ns(), next_ns = INT64_MAX;
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING, &steps, &count))
		return began_ns + unit_ns(l->store);
	for (size_t i = 0; i < count && !stops(l); i++) {
		next_ns = MIN(next_ns, look_at_step(l, steps[i]));
		still_end(steps[i]);
	}
	ckpt_step_list_free(steps, count);
	if (!count)
		return INT64_MAX;
	worked_ns = processor_ns() - worked_ns;
	return MAX(next_ns, ckpt_sys.mono_ns() + MAX(worked_ns * REST_FACTOR, POLL_MIN_NS));
}

int ckpt_looker_start(struct ckpt_store *s)
{
	struct ckpt_looker *l = ckpt_looker_of(s);

	l->store = s;
	return ckpt_job_new(s->jobs, &(struct ckpt_job_of){"look", CKPT_JOB_PROMPT, turn, l, false}, &l->job);
}

struct ckpt_part ckpt_looker_part = {.bytes = sizeof(struct ckpt_looker)};

// wait: until a step is committed, or until nothing is under way.
//
// Looks again and again: a commit tells nobody but who asked for it.
#include "core/remote/arrival.h"
#include "core/remote/remote.h"
#include "core/step/follow.h"
#include "core/step/holder.h"
#include "tools/verb.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/ask.h"
#include "tools/arrival.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/push.h"
#include "tools/units.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define POLL_NS INT64_C(100000000)
#define POLLS_BLIND 10 // of which only the last looks at steps whose folder has not changed
#define WAKE_NS INT64_C(2000000000)

enum { NOT_YET = -1 }; // beside exit statuses

struct wait {
	bool sealed, remote, idle;
	int64_t timeout_ns; // -1: none
	int64_t began_ns;   // monotonic: opening the store counts
	struct ckpt_operand o;
	struct ckpt_listing l;
	int64_t seen_ns; // the time of log/ at the last look
	unsigned polls;
	int64_t woken_ns; // monotonic
};

// --- What the mount says ------------------------------------------------------------------------------------------------

// It is slow to answer, and may have a commit under way for all we know.
static bool is_slow(int rc)
{
	return rc == -ETIMEDOUT || rc == -EAGAIN || rc == -EPIPE || rc == -ECONNRESET || rc == -EINTR;
}

// 0 with its status; NULL: nobody has the store mounted. NOT_YET, or an exit status.
static int ask(const struct wait *w, json_t **ret_status)
{
	CLEANUP_FREE char *reply = NULL;
	int rc = ckpt_ask(w->o.store, "{\"verb\":\"status\"}", CKPT_SOCKET_TIMEOUT_S, &reply);

	*ret_status = NULL;
	if (is_slow(rc))
		return NOT_YET;
	if (rc)
		return rc == -ENOENT ? 0
				     : ckpt_fail(w->o.store, NULL,
						 "the process that has it mounted does not answer: %s", strerror(-rc));
	*ret_status = ckpt_need(json_loads(reply, 0, NULL));
	return 0;
}

static json_int_t number(const json_t *status, const char *group, const char *field)
{
	return json_integer_value(json_object_get(group ? json_object_get(status, group) : status, field));
}

static int look_idle(const struct wait *w)
{
	json_t *status;
	bool busy;
	int rc = ask(w, &status);

	if (rc)
		return rc;
	if (!status) // a verb may be at work
		return ckpt_store_holder(w->o.store, NULL) ? 0 : NOT_YET;
	busy = json_array_size(json_object_get(status, "committing")) || number(status, NULL, "indexing") ||
	       number(status, NULL, "removing") || number(status, NULL, "on_commit") ||
	       number(status, "sealing", "files") || number(status, "cooling", "steps") ||
	       number(status, "warming", "files");
	json_decref(status);
	return busy ? NOT_YET : 0;
}

// --- The step -----------------------------------------------------------------------------------------------------------

static bool has_news(struct wait *w)
{
	struct stat st;
	int64_t now_ns = 0;
	bool news;

	if (!fstatat(w->l.store->dirfd, "log", &st, AT_SYMLINK_NOFOLLOW))
		now_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
	news = now_ns != w->seen_ns || w->polls++ % POLLS_BLIND == 0;
	w->seen_ns = now_ns;
	return news;
}

static int refresh(struct wait *w)
{
	int rc = ckpt_follow_refresh(w->l.store);

	if (rc)
		return ckpt_fail_errno(w->o.store, NULL, rc);
	ckpt_folders_done(&w->l.folders);
	if (ckpt_folders_read(w->l.store, &w->l.folders))
		ckpt_need(NULL);
	return 0;
}

// What is listed may not be durable before its commit has been answered.
static int look_answered(const struct wait *w, struct ckpt_step *step)
{
	CLEANUP_FREE char *name = ckpt_listing_name(&w->l, step->folder_id, step->name);
	json_t *status, *one;
	size_t i;
	int rc = ask(w, &status);

	json_array_foreach(json_object_get(status, "committing"), i,
			   one) if (json_is_string(one) && !strcmp(json_string_value(one), name)) rc = NOT_YET;
	json_decref(status);
	return rc;
}

static int look_step(struct wait *w)
{
	CLEANUP_FREE char *path = NULL;
	const char *word = w->o.steps[0];
	struct ckpt_step *step;
	int rc;

	if (!has_news(w))
		return NOT_YET;
	rc = refresh(w);
	if (rc)
		return rc;
	step = ckpt_listing_look(&w->l, &w->o, word, &path);
	if (!step)
		return NOT_YET;
	rc = *path ? ckpt_usage(word, "name the step alone", "a file in a step, where a whole step is wanted")
		   : look_answered(w, step);
	if (rc == NOT_YET)
		w->polls = 0;
	ckpt_step_unref(step);
	return rc;
}

static bool is_sealed(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->version->is.sealed;
}

static int look_sealed(struct wait *w)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_step **steps, *one;
	size_t count, sealed = 0;
	int rc = has_news(w) ? refresh(w) : NOT_YET;

	if (rc)
		return rc;
	if (w->o.count) {
		one = ckpt_listing_look(&w->l, &w->o, w->o.steps[0], &path);
		rc = !one ? ckpt_fail(w->o.steps[0], "`ckptfs ls --all` lists the steps", "is not a step any more")
		     : is_sealed(one) ? 0
				      : NOT_YET;
		ckpt_step_unref(one);
		return rc;
	}
	if (ckpt_step_list(w->l.store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		sealed += is_sealed(steps[i]);
	ckpt_step_list_free(steps, count);
	return sealed == count ? 0 : NOT_YET;
}

// After failures the mount tries again more and more seldom: up to a minute later. Somebody waits now.
static void wake(struct wait *w)
{
	CLEANUP_FREE char *reply = NULL;
	int64_t now_ns = ckpt_sys.mono_ns();

	if (w->woken_ns && now_ns - w->woken_ns < WAKE_NS)
		return;
	w->woken_ns = now_ns;
	(void)ckpt_ask(w->o.store, "{\"verb\":\"remote\",\"sync\":true}", CKPT_SOCKET_TIMEOUT_S, &reply);
}

// It was pushed before the wait, unless a mount had the store then.
static int not_there_yet(struct wait *w)
{
	wake(w);
	return ckpt_store_holder(w->o.store, NULL)
		       ? ckpt_fail(w->o.store, "try again",
				   "its mount has ended, and something is not in the object store yet")
		       : NOT_YET;
}

// The mount alone knows plain files, and steps that cannot be uploaded.
static int look_all_remote(struct wait *w, const struct ckpt_remote_queue *queue)
{
	json_int_t steps = (json_int_t)queue->steps;
	json_t *status, *failed;
	json_int_t files;
	int rc = ask(w, &status);

	if (rc)
		return rc;
	files = number(status, "uploading", "files");
	failed = json_object_get(json_object_get(status, "uploading"), "failed");
	steps -= (json_int_t)json_array_size(failed);
	if (steps <= 0 && json_array_size(failed))
		rc = ckpt_arrival_fail(json_array_get(failed, 0));
	else if (steps > 0 || (files && !queue->holds))
		rc = not_there_yet(w);
	json_decref(status);
	return rc;
}

static int look_step_remote(struct wait *w, const char *session)
{
	struct ckpt_arrival a = {0};
	const json_t *failure;
	json_t *status;
	int rc;

	if (ckpt_remote_has(w->l.store, session))
		return 0;
	snprintf(a.session, sizeof(a.session), "%s", session);
	if (ckpt_arrival_look(w->l.store, &a) == -ECANCELED)
		return ckpt_arrival_fail_dropped(w->o.steps[0]);
	rc = ask(w, &status);
	if (rc)
		return rc;
	rc = not_there_yet(w);
	if ((failure = ckpt_arrival_failure(status, session)))
		rc = ckpt_arrival_fail(failure);
	json_decref(status);
	return rc;
}

static int look_remote(struct wait *w)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_remote_queue queue;
	struct ckpt_step *one;
	int rc = refresh(w);

	if (rc)
		return rc;
	if (!w->o.count) {
		ckpt_remote_queue(*ckpt_remote_of(w->l.store), &queue);
		return look_all_remote(w, &queue);
	}
	one = ckpt_listing_look(&w->l, &w->o, w->o.steps[0], &path);
	if (!one)
		return ckpt_fail(w->o.steps[0], "`ckptfs ls --all` lists the steps", "is not a step any more");
	rc = look_step_remote(w, one->session);
	ckpt_step_unref(one);
	return rc;
}

static int no_remote(const struct wait *w)
{
	return ckpt_fail(w->o.store, "leave --remote out: a step is durable on its disk once it is committed",
			 "a local store has no object store");
}

// --- The verb -----------------------------------------------------------------------------------------------------------

static int timed_out(const struct wait *w, bool committed)
{
	CLEANUP_FREE char *hint = NULL;
	char after[CKPT_DURATION_MAX];

	ckpt_duration_text(w->timeout_ns, after);
	if (committed && w->remote) {
		hint = ckpt_text("`ckptfs status %s` shows what waits, and .ckptfs/errors in the mount why",
				 w->o.store);
		return ckpt_fail(w->o.count ? w->o.steps[0] : w->o.store, hint, "not in the object store after %s",
				 after);
	}
	if (committed && w->sealed) {
		hint = ckpt_text("`ckptfs seal %s` seals it now, and says what prevents it", w->o.store);
		return ckpt_fail(w->o.count ? w->o.steps[0] : w->o.store, hint, "not sealed after %s", after);
	}
	if (committed) {
		hint = ckpt_text("`ckptfs status %s` shows what is under way", w->o.store);
		return ckpt_fail(w->o.store, hint, "still at work after %s", after);
	}
	hint = ckpt_text("`ckptfs sessions %s` lists the steps that are not completed", w->o.store);
	return ckpt_fail(w->o.steps[0], hint, "not committed after %s", after);
}

static int wait_for(struct wait *w)
{
	const char *what = w->o.count ? w->o.steps[0] : w->o.store;
	CLEANUP_FREE char *label = ckpt_text("waiting for %s", what);
	bool committed = !w->o.count, idle = w->o.count && !w->idle && !w->sealed && !w->remote;
	int rc = NOT_YET;

	ckpt_progress_start(label, 0, 0);
	while (rc == NOT_YET) {
		rc = !committed ? look_step(w) : 0;
		committed |= !rc;
		if (committed && !idle)
			rc = w->sealed ? look_sealed(w) : w->remote ? look_remote(w) : look_idle(w);
		if (rc == NOT_YET && w->timeout_ns >= 0 && ckpt_sys.mono_ns() - w->began_ns >= w->timeout_ns)
			rc = timed_out(w, committed);
		if (rc == NOT_YET)
			ckpt_sys.sleep_ns(POLL_NS);
		ckpt_progress_update(0);
	}
	ckpt_progress_stop();
	return rc;
}

static int check(const struct wait *w)
{
	if (w->sealed + w->remote + w->idle > 1)
		return ckpt_usage("wait", "give one of --sealed, --remote, --idle", "more than one condition");
	if (w->o.count > 1)
		return ckpt_usage(w->o.steps[1], "usage: ckptfs wait [STORE] [STEP]", "one operand too many");
	if (w->o.count && ckpt_listing_is_trash(w->o.steps[0]))
		return ckpt_usage(w->o.steps[0], "`ckptfs undelete` restores it", "is in the trash");
	return 0;
}

static int wait_option(int key, char *arg, void *input)
{
	struct wait *w = input;

	switch (key) {
	case 's':
		w->sealed = true;
		return 0;
	case 'r':
		w->remote = true;
		return 0;
	case 'i':
		w->idle = true;
		return 0;
	default:
		return ckpt_duration_parse(arg, &w->timeout_ns)
			       ? ckpt_usage(arg, "--timeout wants a duration: 30s, 10m, 24h", "not understood")
			       : 0;
	}
}

static int64_t until_ns(const struct wait *w)
{
	return w->timeout_ns < 0 ? INT64_MAX : w->began_ns + w->timeout_ns;
}

int ckpt_verb_wait(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"sealed", 's', NULL, 0, "until it is sealed (`ckptfs seal` does it now)", 0},
		{"remote", 'r', NULL, 0,
		 "until it is durable in the object store; without STEP: all that was done here", 0},
		{"idle", 'i', NULL, 0,
		 "until all background work is done: no commit runs, the index is up to date, all is "
		 "sealed, no files are being removed, and none that were read whole are being kept",
		 0},
		{"timeout", 't', "DURATION", 0, "give up after this, with exit status 1 (default: never)", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [STEP]",
		.doc = "Waits until STEP is committed. It need not exist yet. Without STEP: as with "
		       "--idle.\v"
		       "Examples:\n"
		       "  ckptfs wait /ckpt 1000\n"
		       "  ckptfs wait --idle --timeout 10m /data/run42",
		.options = options,
		.option = wait_option,
		.operands_max = 2,
	};
	struct wait w = {.timeout_ns = -1, .began_ns = ckpt_sys.mono_ns()};
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &w, &words);
	rc = ckpt_operand_take(&words, &w.o);
	if (rc)
		return rc;
	rc = check(&w);
	if (!rc && w.remote)
		rc = ckpt_push(w.o.store, until_ns(&w));
	if (!rc)
		rc = ckpt_listing_open(w.o.store, CKPT_STORE_READ, &w.l);
	if (!rc) {
		rc = w.remote && !*ckpt_remote_of(w.l.store) ? no_remote(&w) : wait_for(&w);
		ckpt_listing_close(&w.l);
	}
	ckpt_operand_done(&w.o);
	return rc;
}

#include "fs/hook.h"

#include "core/base/lock.h"
#include "core/base/run.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/errlog.h"
#include "core/step/folders.h"

#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

struct hook {
	struct hook *next;
	struct ckpt_step *step; // a reference
};

struct hooks {
	struct ckpt_fs *fs;
	pthread_t thread;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct hook *first, **last;
	size_t waiting;
	bool runs, lost; // one is running; one was not kept
	bool stop;
	int64_t end_ns; // with stop: monotonic
};

static void hook_free(struct hook *h)
{
	ckpt_step_unref(h->step);
	free(h);
}

// --- One ----------------------------------------------------------------------------------------------------------------

static bool goes_on(void *arg)
{
	struct hooks *hooks = arg;
	LOCK_SCOPE(&hooks->lock);

	return !__atomic_load_n(&hooks->fs->ending, __ATOMIC_ACQUIRE) &&
	       (!hooks->stop || ckpt_sys.mono_ns() < hooks->end_ns);
}

static void tell(const struct hooks *hooks, const char *step, int error, const char *what)
{
	ckpt_errlog_add(hooks->fs->store->errlog, step, error, "the step is committed; only the program failed",
			"on_commit: %s %s", hooks->fs->mount->on_commit, what);
}

static void tell_end(const struct hooks *hooks, const char *step, int rc, struct ckpt_ran *ran)
{
	CLEANUP_FREE char *last = ckpt_name_clean(ckpt_run_last_line(ran));
	char what[CKPT_RUN_OUTPUT_MAX + 64];

	if (rc == -ETIMEDOUT)
		snprintf(what, sizeof(what), "was killed: it ran for more than %lld minutes",
			 (long long)(HOOK_NS / 60000000000));
	else if (rc == -EINTR)
		snprintf(what, sizeof(what), "was killed: the mount ended");
	else if (rc)
		snprintf(what, sizeof(what), "could not be started: %s", strerror(-rc));
	else
		snprintf(what, sizeof(what), "ended with exit status %d%s%s", ran->status, last && *last ? ": " : "",
			 last ? last : "");
	tell(hooks, step, rc, what);
}

// All in one text, malloc'ed; NULL: no memory.
static char *join(const char *a, const char *b, const char *c)
{
	char *text;

	return asprintf(&text, "%s%s%s", a, b, c) < 0 ? NULL : text;
}

// As it is called now, "checkpoints/1000", malloc'ed.
static int name_of(struct hooks *hooks, struct ckpt_step *step, char **ret_name)
{
	struct ckpt_folders folders = {0};
	struct ckpt_step_name now;
	int rc = ckpt_folders_read(hooks->fs->store, &folders);

	ckpt_step_name(step, &now);
	if (!rc)
		*ret_name = ckpt_folders_name(&folders, now.folder_id, now.name);
	ckpt_folders_done(&folders);
	return rc ? rc : *ret_name ? 0 : -ENOMEM;
}

static int metadata_of(struct ckpt_step *step, char **ret_json)
{
	struct ckpt_record r;
	uint32_t version;
	int rc;

	ckpt_lock_take(&step->lock);
	version = step->version->is.version;
	ckpt_lock_drop(&step->lock);
	rc = ckpt_step_record(step, version, &r);
	if (rc)
		return rc;
	*ret_json = r.metadata ? TAKE_PTR(r.metadata) : strdup("{}");
	ckpt_record_done(&r);
	return *ret_json ? 0 : -ENOMEM;
}

static int run(struct hooks *hooks, const char *name, const char *metadata, struct ckpt_ran *ret_ran)
{
	CLEANUP_FREE char *step = join("CKPT_STEP=", name, ""), *says = join("CKPT_METADATA=", metadata, "");
	CLEANUP_FREE char *below = join(hooks->fs->mountpoint, "/", name);
	CLEANUP_FREE char *path = below ? join("CKPT_PATH=", below, "") : NULL;
	const char *const argv[] = {hooks->fs->mount->on_commit, NULL}, *const env[] = {step, path, says, NULL};
	const struct ckpt_run how = {.argv = argv, .env = env, .timeout_ns = HOOK_NS, .go_on = goes_on, .arg = hooks};

	return step && says && path ? ckpt_run(&how, ret_ran) : -ENOMEM;
}

// A step that is gone again needs it no more.
static void run_one(struct hooks *hooks, struct ckpt_step *step)
{
	CLEANUP_FREE char *name = NULL, *metadata = NULL;
	struct ckpt_ran ran = {0};
	int rc;

	if (ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		return;
	rc = name_of(hooks, step, &name);
	if (!rc)
		rc = metadata_of(step, &metadata);
	if (!rc)
		rc = run(hooks, name, metadata, &ran);
	if (rc || ran.status)
		tell_end(hooks, name ? name : step->name, rc, &ran);
}

// --- All ----------------------------------------------------------------------------------------------------------------

static struct hook *take_next(struct hooks *hooks, bool *ret_lost)
{
	LOCK_SCOPE(&hooks->lock);
	struct hook *h;

	hooks->runs = false;
	while (!hooks->first && !hooks->stop)
		ckpt_lock_wait(&hooks->changed, &hooks->lock);
	h = hooks->stop ? NULL : hooks->first;
	if (h) {
		hooks->first = h->next;
		if (!h->next)
			hooks->last = &hooks->first;
		hooks->waiting--;
		hooks->runs = true;
	}
	*ret_lost = hooks->lost;
	hooks->lost = false;
	return h;
}

// The daemon makes files with the modes that clients ask for, and has no umask: this thread has the one of who mounted, for
// what it starts.
static void *hooks_thread(void *arg)
{
	struct hooks *hooks = arg;
	struct hook *h;
	bool lost;

	if (!unshare(CLONE_FS))
		umask(hooks->fs->umask);
	while ((h = take_next(hooks, &lost))) {
		if (lost)
			tell(hooks, h->step->name, -ENOBUFS, "is too slow: it does not run for some steps");
		run_one(hooks, h->step);
		hook_free(h);
	}
	return NULL;
}

static void add(void *arg, struct ckpt_step *step)
{
	struct hooks *hooks = arg;
	struct hook *h = calloc(1, sizeof(*h));
	LOCK_SCOPE(&hooks->lock);

	if (!h || hooks->waiting >= HOOKS_MAX) {
		hooks->lost = true;
		free(h);
		return;
	}
	h->step = ckpt_step_ref(step);
	*hooks->last = h;
	hooks->last = &h->next;
	hooks->waiting++;
	pthread_cond_signal(&hooks->changed);
}

size_t hooks_pending(struct hooks *hooks)
{
	if (!hooks)
		return 0;
	LOCK_SCOPE(&hooks->lock);

	return hooks->waiting + hooks->runs;
}

int hooks_start(struct ckpt_fs *fs)
{
	struct hooks *hooks = fs->mount->on_commit ? calloc(1, sizeof(*hooks)) : NULL;

	if (!hooks)
		return fs->mount->on_commit ? -ENOMEM : 0;
	hooks->fs = fs;
	hooks->last = &hooks->first;
	ckpt_lock_init(&hooks->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&hooks->changed, NULL);
	if (pthread_create(&hooks->thread, NULL, hooks_thread, hooks)) {
		pthread_cond_destroy(&hooks->changed);
		ckpt_lock_done(&hooks->lock);
		free(hooks);
		return -EAGAIN;
	}
	fs->hooks = hooks;
	fs->store->calls.committed_arg = hooks;
	fs->store->calls.committed = add;
	return 0;
}

void hooks_stop(struct hooks *hooks)
{
	if (!hooks)
		return;
	ckpt_lock_take(&hooks->lock);
	hooks->stop = true;
	hooks->end_ns = ckpt_sys.mono_ns() + HOOK_END_NS;
	pthread_cond_signal(&hooks->changed);
	ckpt_lock_drop(&hooks->lock);
	pthread_join(hooks->thread, NULL);
	while (hooks->first) {
		struct hook *h = hooks->first;

		hooks->first = h->next;
		tell(hooks, h->step->name, -EINTR, "was not run: the mount ended");
		hook_free(h);
	}
	pthread_cond_destroy(&hooks->changed);
	ckpt_lock_done(&hooks->lock);
	free(hooks);
}

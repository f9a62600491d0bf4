// States of a job, and what moves it on:
//
//   WAITS    --its time comes, or it is woken, and a thread is free-->  RUNS
//   RUNS     --its turn returns-->  WAITS; due at once if it was woken meanwhile
//   either   --ckpt_job_stop()-->  STOPPED, when its turn has returned
//
// States of a thread:
//
//   RUNS     a turn of a job
//   WATCHES  waits for the time of the job that is due first; one thread at most
//   SPARE    waits for work, beside one that watches, for SPARE_NS; then it ends
//
//   1. While a job has a time and does not run, a thread watches, or one is on its way. Only where no thread can be started the job waits
//      until one is free.
//   2. A thread that ends joins the one that ended before it. ckpt_jobs_by_hand() joins the last one.
#include "core/jobs/jobs.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#define AGAIN_NS INT64_C(1000000000) // until a step is tried again that is being changed
#define SPELL_NS INT64_C(4000000)    // a reader reads at least so long before it looks around
#define SAVE_SHARE 8                 // of a reader's time: what it takes while a save runs
#define GIVE_WAY 15                  // times as long as it waited for a processor it leaves them to others,
#define REST_MAX_NS INT64_C(1000000000)
#define NAP_NS INT64_C(20000000) // so long at once, to hear of its end
#define SPARE_NS INT64_C(5000000000)

struct ckpt_job {
	struct ckpt_jobs *jobs;
	struct ckpt_job *next;
	struct ckpt_job_of of;
	bool stop; // set under the lock; atomic
	// Guarded by the lock.
	bool runs, woken;
	int64_t due_ns;
};

struct ckpt_jobs {
	int saves; // atomic

	struct ckpt_lock lock;
	pthread_cond_t due, spare, ended; // for the thread that watches; for one that is spare; for callers
	// Guarded by lock.
	struct ckpt_job *first; // in the order of their creation
	bool by_hand;
	bool watched;
	int64_t until_ns;       // by the thread that watches
	unsigned threads, free; // free: spare, or not at work yet
	pthread_t last;         // that ended, if has_last
	bool has_last;
};

// --- How fast -----------------------------------------------------------------------------------------------------------

bool ckpt_job_stops(const struct ckpt_job *job)
{
	return __atomic_load_n(&job->stop, __ATOMIC_RELAXED);
}

void ckpt_jobs_saves(struct ckpt_jobs *jobs, int more)
{
	__atomic_add_fetch(&jobs->saves, more, __ATOMIC_RELAXED);
}

int ckpt_jobs_saving(const struct ckpt_jobs *jobs)
{
	return __atomic_load_n(&jobs->saves, __ATOMIC_RELAXED);
}

// Of a reader, since it last looked around.
static _Thread_local struct {
	int64_t began_ns; // 0: it is new
	int64_t waited_ns;
} spell;

// The kernel prefers all others to a reader only among those who share its group: the processes of a session have a group of
// their own (sched_autogroup), and so has a service or a container. Against others it has a fair half, as anybody. But whoever
// takes the processor from others waits for it just as they do. So it leaves the processors alone GIVE_WAY times as long as it
// had to wait: where all are busy it takes a sixteenth of the half, where one is idle it never waits. (A limit on what a
// container may use of them makes it wait, too.)
static int64_t rest_ns(int64_t waited_ns)
{
	return MIN(MAX(waited_ns - spell.waited_ns, 0), REST_MAX_NS / GIVE_WAY) * GIVE_WAY;
}

static void rest(const struct ckpt_job *job, int64_t now_ns)
{
	bool gives_way = job->of.class == CKPT_JOB_GIVES_WAY;
	int64_t for_others_ns = now_ns + (gives_way ? rest_ns(ckpt_sys.waited_ns()) : 0),
		for_saves_ns = now_ns + MIN((now_ns - spell.began_ns) * (SAVE_SHARE - 1), REST_MAX_NS);

	while (!ckpt_job_stops(job)) {
		int64_t until_ns = ckpt_jobs_saving(job->jobs) > 0 ? MAX(for_others_ns, for_saves_ns) : for_others_ns;

		now_ns = ckpt_sys.mono_ns();
		if (now_ns >= until_ns)
			return;
		ckpt_sys.sleep_ns(MIN(until_ns - now_ns, NAP_NS));
	}
}

bool ckpt_job_go_on(void *arg, uint64_t bytes __attribute__((unused)))
{
	const struct ckpt_job *job = arg;
	int64_t now_ns = ckpt_sys.mono_ns();

	if (spell.began_ns && now_ns - spell.began_ns < SPELL_NS)
		return !ckpt_job_stops(job);
	if (spell.began_ns)
		rest(job, now_ns);
	spell.waited_ns = ckpt_sys.waited_ns();
	spell.began_ns = ckpt_sys.mono_ns();
	return !ckpt_job_stops(job);
}

// A file that cannot be read, or a step that is too large to say it all, will be no other until the step is.
int64_t ckpt_job_again_ns(int error)
{
	return error == -EBUSY || error == -ESTALE || error == -ENODATA ? ckpt_sys.mono_ns() + AGAIN_NS
	       : error == -EIO || error == -EBADMSG || error == -E2BIG  ? INT64_MAX
									: ckpt_sys.mono_ns() + CKPT_JOB_LATER_NS;
}

// --- Which job ----------------------------------------------------------------------------------------------------------

static bool waits(const struct ckpt_job *job)
{
	return !job->runs && !job->stop;
}

static int64_t next_due_ns_locked(const struct ckpt_jobs *jobs)
{
	int64_t due_ns = INT64_MAX;

	for (const struct ckpt_job *job = jobs->first; job; job = job->next)
		if (waits(job))
			due_ns = MIN(due_ns, job->due_ns);
	return due_ns;
}

static struct ckpt_job *due_job_locked(const struct ckpt_jobs *jobs)
{
	int64_t now_ns = ckpt_sys.mono_ns();
	struct ckpt_job *found = NULL;

	for (struct ckpt_job *job = jobs->first; job; job = job->next)
		if (waits(job) && job->due_ns <= now_ns &&
		    (!found || job->of.class < found->of.class ||
		     (job->of.class == found->of.class && job->due_ns < found->due_ns)))
			found = job;
	return found;
}

// --- Threads ------------------------------------------------------------------------------------------------------------

static void *worker(void *arg);

// Somebody looks for due jobs from now on. False: nobody can, before a turn ends.
static bool call_worker_locked(struct ckpt_jobs *jobs)
{
	pthread_t thread;

	if (jobs->by_hand)
		return true;
	if (jobs->watched)
		return !pthread_cond_signal(&jobs->due);
	if (jobs->free)
		return !pthread_cond_signal(&jobs->spare);
	if (pthread_create(&thread, NULL, worker, jobs))
		return false;
	jobs->threads++;
	jobs->free++;
	return true;
}

// Without the lock meanwhile.
static void run_locked(struct ckpt_jobs *jobs, struct ckpt_job *job)
{
	int64_t next_ns;

	job->runs = true;
	job->woken = false;
	if (!jobs->watched && next_due_ns_locked(jobs) < INT64_MAX)
		(void)call_worker_locked(jobs);
	ckpt_lock_drop(&jobs->lock);
	spell.began_ns = 0; // this thread has waited since its last turn
	next_ns = job->of.turn(job->of.arg, job);
	ckpt_lock_take(&jobs->lock);
	job->runs = false;
	job->due_ns = job->woken || !next_ns ? ckpt_sys.mono_ns() : next_ns;
	if (jobs->watched && job->due_ns < jobs->until_ns)
		pthread_cond_signal(&jobs->due);
	pthread_cond_broadcast(&jobs->ended);
}

// Until there may be something to do. False: this thread is not needed.
static bool wait_locked(struct ckpt_jobs *jobs)
{
	bool had_time = true;

	if (!jobs->watched) {
		jobs->watched = true;
		jobs->until_ns = next_due_ns_locked(jobs);
		ckpt_lock_wait_ns(&jobs->due, &jobs->lock, jobs->until_ns - ckpt_sys.mono_ns());
		jobs->watched = false;
	} else {
		jobs->free++;
		had_time = ckpt_lock_wait_ns(&jobs->spare, &jobs->lock, SPARE_NS) != ETIMEDOUT;
		jobs->free--;
	}
	return had_time || !jobs->watched;
}

static void *worker(void *arg)
{
	struct ckpt_jobs *jobs = arg;
	pthread_t before;
	bool joins;

	ckpt_lock_take(&jobs->lock);
	jobs->free--;
	for (bool goes_on = true; goes_on && !jobs->by_hand;) {
		struct ckpt_job *job = due_job_locked(jobs);

		if (job)
			run_locked(jobs, job);
		else
			goes_on = wait_locked(jobs);
	}
	jobs->threads--;
	joins = jobs->has_last;
	before = jobs->last;
	jobs->last = pthread_self();
	jobs->has_last = true;
	pthread_cond_broadcast(&jobs->ended);
	ckpt_lock_drop(&jobs->lock);
	if (joins)
		pthread_join(before, NULL);
	return NULL;
}

void ckpt_jobs_by_hand(struct ckpt_jobs *jobs)
{
	bool joins;

	ckpt_lock_take(&jobs->lock);
	jobs->by_hand = true;
	pthread_cond_broadcast(&jobs->due);
	pthread_cond_broadcast(&jobs->spare);
	while (jobs->threads)
		ckpt_lock_wait(&jobs->ended, &jobs->lock);
	joins = jobs->has_last;
	jobs->has_last = false;
	ckpt_lock_drop(&jobs->lock);
	if (joins)
		pthread_join(jobs->last, NULL);
}

const char *ckpt_jobs_run_next(struct ckpt_jobs *jobs, int64_t *ret_due_ns)
{
	LOCK_SCOPE(&jobs->lock);
	struct ckpt_job *job = due_job_locked(jobs);

	if (job)
		run_locked(jobs, job);
	if (ret_due_ns)
		*ret_due_ns = next_due_ns_locked(jobs);
	return job ? job->of.name : NULL;
}

int ckpt_jobs_new(struct ckpt_jobs **ret_jobs)
{
	struct ckpt_jobs *jobs = calloc(1, sizeof(*jobs));

	if (!jobs)
		return -ENOMEM;
	ckpt_lock_init(&jobs->lock, CKPT_LOCK_JOBS);
	pthread_cond_init(&jobs->due, NULL);
	pthread_cond_init(&jobs->spare, NULL);
	pthread_cond_init(&jobs->ended, NULL);
	*ret_jobs = jobs;
	return 0;
}

void ckpt_jobs_free(struct ckpt_jobs *jobs)
{
	if (!jobs)
		return;
	for (struct ckpt_job *job = jobs->first; job; job = job->next)
		ckpt_job_stop(job);
	ckpt_jobs_by_hand(jobs);
	while (jobs->first) {
		struct ckpt_job *job = jobs->first;

		jobs->first = job->next;
		free(job);
	}
	pthread_cond_destroy(&jobs->due);
	pthread_cond_destroy(&jobs->spare);
	pthread_cond_destroy(&jobs->ended);
	ckpt_lock_done(&jobs->lock);
	free(jobs);
}

// --- A job --------------------------------------------------------------------------------------------------------------

int ckpt_job_new(struct ckpt_jobs *jobs, const struct ckpt_job_of *of, struct ckpt_job **ret_job)
{
	struct ckpt_job *job = calloc(1, sizeof(*job)), **last = &jobs->first;

	if (!job)
		return -ENOMEM;
	*job = (struct ckpt_job){.jobs = jobs, .of = *of, .due_ns = of->sleeps ? INT64_MAX : ckpt_sys.mono_ns()};
	LOCK_SCOPE(&jobs->lock);
	if (!of->sleeps && !call_worker_locked(jobs) && !jobs->threads) { // else a thread comes to it after its turn
		free(job);
		return -EAGAIN;
	}
	while (*last)
		last = &(*last)->next;
	*last = job;
	__atomic_store_n(ret_job, job, __ATOMIC_RELEASE);
	return 0;
}

bool ckpt_job_wake(struct ckpt_job *job)
{
	if (!job)
		return false;
	LOCK_SCOPE(&job->jobs->lock);
	if (job->stop)
		return false;
	job->woken = true;
	job->due_ns = MIN(job->due_ns, ckpt_sys.mono_ns());
	return !job->jobs->by_hand && (job->runs || call_worker_locked(job->jobs));
}

void ckpt_jobs_ending(struct ckpt_jobs *jobs)
{
	if (!jobs)
		return;
	LOCK_SCOPE(&jobs->lock);

	for (struct ckpt_job *job = jobs->first; job; job = job->next)
		if (job->of.class != CKPT_JOB_PROMPT)
			__atomic_store_n(&job->stop, true, __ATOMIC_RELAXED);
}

void ckpt_job_stop(struct ckpt_job *job)
{
	if (!job)
		return;
	LOCK_SCOPE(&job->jobs->lock);
	__atomic_store_n(&job->stop, true, __ATOMIC_RELAXED);
	while (job->runs)
		ckpt_lock_wait(&job->jobs->ended, &job->jobs->lock);
}

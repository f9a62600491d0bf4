#include "core/remote/warmer.h"

#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/cold/reading.h"
#include "core/remote/evict.h"
#include "core/remote/near.h"
#include "core/save/limit.h"
#include "core/save/warm.h"
#include "core/step/latest.h"
#include "core/step/store.h"

#include <stdlib.h>

#define FILES_MAX 4096 // that wait; more are passed over
#define AT_ONCE 256    // of one step
#define TRIES 3
#define AGAIN_NS INT64_C(60000000000)
#define DISK_PART 20                      // of the disk stays free
#define RESERVE_BYTES (UINT64_C(1) << 30) // that a mount keeps free by itself, at most (store/room.h)

struct waiting {
	struct waiting *next;
	struct ckpt_reading *reading; // a reference
	unsigned tries;
	int64_t due_ns; // of the next try, monotonic
};

struct ckpt_warmer {
	struct ckpt_store *store;
	struct ckpt_readings *readings;
	struct ckpt_job *job;
	struct ckpt_lock lock;
	// Guarded by lock.
	struct waiting *first, **last;
	size_t count;  // with those of the batch
	size_t failed; // of them, that are tried again
	// The job's.
	struct waiting *batch[AT_ONCE];
	struct ckpt_reading *files[AT_ONCE];
	size_t batch_count;
	int64_t full_ns; // when no room could be made, monotonic
};

// --- Room ---------------------------------------------------------------------------------------------------------------

static bool disk_has(struct ckpt_store *s, uint64_t bytes)
{
	uint64_t said = s->settings.trash_reserve, newest = ckpt_latest_bytes(s), room, all, reserve;

	if (ckpt_sys.room(s->dirfd, &room, &all))
		return false;
	reserve = said == CKPT_SHARE_AUTO ? MAX(newest, RESERVE_BYTES) : ckpt_share_of(said, all);
	return room > bytes && room - bytes > newest + reserve && room - bytes - newest - reserve > all / DISK_PART;
}

static bool has_room(const struct ckpt_warmer *w, uint64_t bytes)
{
	return ckpt_evict_left(w->store) >= bytes && disk_has(w->store, bytes);
}

static bool may_begin(void *arg, uint64_t bytes, uint64_t promised)
{
	const struct ckpt_warmer *w = arg;

	return has_room(w, bytes + promised) && !ckpt_limit_ask(*ckpt_limit_of(w->store), 0, bytes);
}

static bool goes_on(void *job)
{
	return !ckpt_job_stops(job);
}

// Files that were read in part until now, and those that were kept for as long as they may stay.
static bool make_room(struct ckpt_warmer *w, uint64_t bytes)
{
	uint64_t left, freed;

	if (has_room(w, bytes) || (ckpt_readings_yield(w->readings, bytes) && has_room(w, bytes)))
		return true;
	left = ckpt_evict_left(w->store);
	if (left >= bytes || (w->full_ns && ckpt_sys.mono_ns() - w->full_ns < AGAIN_NS))
		return false;
	(void)ckpt_evict_read(w->store, bytes - left, ckpt_sys.now_ns() - CKPT_WARMER_STAYS_NS, &freed, goes_on,
			      w->job);
	w->full_ns = freed ? 0 : ckpt_sys.mono_ns();
	return freed && has_room(w, bytes);
}

// --- What waits ---------------------------------------------------------------------------------------------------------

static void add_locked(struct ckpt_warmer *w, struct waiting *waiting)
{
	waiting->next = NULL;
	*w->last = waiting;
	w->last = &waiting->next;
	w->count++;
}

static void waiting_free(struct waiting *waiting)
{
	ckpt_reading_unref(waiting->reading);
	free(waiting);
}

// It was read whole once more while it waits.
static bool waits_locked(const struct ckpt_warmer *w, const struct ckpt_reading_file *file)
{
	const struct waiting *waiting = w->first;

	while (waiting && (ckpt_reading_file(waiting->reading)->number != file->number ||
			   strcmp(ckpt_reading_file(waiting->reading)->session, file->session) != 0))
		waiting = waiting->next;
	return waiting;
}

static void add_whole(void *arg, struct ckpt_reading *reading)
{
	struct ckpt_warmer *w = arg;
	struct waiting *waiting = ckpt_calloc(1, sizeof(*waiting));
	bool added = false;

	if (waiting) {
		ckpt_lock_take(&w->lock);
		added = w->count < FILES_MAX && !waits_locked(w, ckpt_reading_file(reading));
		if (added) {
			waiting->reading = ckpt_reading_ref(reading);
			add_locked(w, waiting);
		}
		ckpt_lock_drop(&w->lock);
	}
	if (added)
		(void)ckpt_job_wake(w->job);
	else
		free(waiting);
	ckpt_reading_unref(reading);
}

static const char *session_of(const struct waiting *waiting)
{
	return ckpt_reading_file(waiting->reading)->session;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = ckpt_reading_file(*(struct ckpt_reading *const *)a)->number,
		 y = ckpt_reading_file(*(struct ckpt_reading *const *)b)->number;

	return (x > y) - (x < y);
}

// All of one step, that of the one that has waited longest. Without any: when one is due.
static int64_t take_batch(struct ckpt_warmer *w)
{
	LOCK_SCOPE(&w->lock);
	struct waiting **at = &w->first, *waiting;
	int64_t now_ns = ckpt_sys.mono_ns(), due_ns = INT64_MAX;

	w->batch_count = 0;
	while ((waiting = *at) && w->batch_count < AT_ONCE) {
		if (waiting->due_ns > now_ns)
			due_ns = MIN(due_ns, waiting->due_ns);
		if (waiting->due_ns > now_ns ||
		    (w->batch_count && strcmp(session_of(waiting), session_of(w->batch[0])) != 0)) {
			at = &waiting->next;
			continue;
		}
		*at = waiting->next;
		w->batch[w->batch_count++] = waiting;
	}
	while (*at)
		at = &(*at)->next;
	w->last = at;
	return due_ns;
}

static void end_batch(struct ckpt_warmer *w, bool again)
{
	size_t gone = 0;

	ckpt_lock_take(&w->lock);
	w->count -= w->batch_count;
	for (size_t i = 0; i < w->batch_count; i++) {
		struct waiting *waiting = w->batch[i];

		w->failed -= waiting->tries > 0;
		if (again && ++waiting->tries < TRIES) {
			w->failed++;
			waiting->due_ns = ckpt_sys.mono_ns() + AGAIN_NS;
			add_locked(w, waiting);
		} else {
			w->batch[gone++] = waiting;
		}
	}
	ckpt_lock_drop(&w->lock);
	for (size_t i = 0; i < gone; i++)
		waiting_free(w->batch[i]);
	w->batch_count = 0;
}

size_t ckpt_warmer_pending(struct ckpt_warmer *w)
{
	if (!w)
		return 0;
	LOCK_SCOPE(&w->lock);

	return w->count - w->failed;
}

// --- The job ----------------------------------------------------------------------------------------------------------

// Those of the batch that there is room for: one that is too large does not take the others with it. How many.
static size_t choose_files(struct ckpt_warmer *w)
{
	uint64_t bytes = 0;
	size_t count = 0;

	for (size_t i = 0; i < w->batch_count; i++) {
		struct ckpt_reading *reading = w->batch[i]->reading;
		uint64_t with = bytes + ckpt_reading_lacks(reading);

		if (!make_room(w, with) || ckpt_limit_ask(*ckpt_limit_of(w->store), 0, with))
			continue;
		w->files[count++] = reading;
		bytes = with;
	}
	qsort(w->files, count, sizeof(struct ckpt_reading *), by_number);
	return count;
}

static int keep(struct ckpt_warmer *w, struct ckpt_step *step)
{
	const struct ckpt_tier_how how = {
		.go_on = ckpt_job_go_on, .arg = w->job, .readings = w->files, .reading_count = choose_files(w)};
	struct ckpt_tier_done done = {0};
	char size[CKPT_SIZE_MAX];
	int rc;

	if (!how.reading_count)
		return -ENOSPC;
	rc = ckpt_warm(step, &how, &done);
	if (!rc && done.files)
		ckpt_log(CKPT_LOG_INFO, "kept %llu files (%s) of %s here, which were read whole",
			 (unsigned long long)done.files, ckpt_size_text(done.bytes, size), step->name);
	return rc;
}

// Damage was told to who has read it; a step that has gone, or a full disk, needs no file.
static bool is_worth_another(int rc)
{
	return rc && rc != -EINTR && rc != -ESTALE && !ckpt_is_full(rc) && ckpt_job_again_ns(rc) != INT64_MAX;
}

static int64_t turn(void *arg, struct ckpt_job *job)
{
	struct ckpt_warmer *w = arg;
	struct ckpt_step *step;
	int64_t due_ns = take_batch(w);
	int rc = -ESTALE;

	if (!w->batch_count)
		return due_ns;
	step = ckpt_step_live_session(w->store, session_of(w->batch[0]));
	if (step)
		rc = keep(w, step);
	ckpt_step_unref(step);
	end_batch(w, is_worth_another(rc) && !ckpt_job_stops(job));
	return 0;
}

static bool is_far(void *arg, const struct ckpt_pack *pack)
{
	const struct ckpt_warmer *w = arg;
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;

	ckpt_pack_key(pack->id, key);
	return ckpt_objects_head(ckpt_near_here(w->store->objects), key, &object) == -ENOENT;
}

static void warmer_done(struct ckpt_warmer *w)
{
	ckpt_lock_done(&w->lock);
	free(w);
}

int ckpt_warmer_new(struct ckpt_store *s, struct ckpt_warmer **ret_warmer)
{
	struct ckpt_warmer *w = ckpt_calloc(1, sizeof(*w));
	const struct ckpt_readings_watch watch = {
		.is_far = is_far, .has_room = may_begin, .whole = add_whole, .arg = w};
	int rc;

	if (!w)
		return -ENOMEM;
	w->store = s;
	w->last = &w->first;
	ckpt_lock_init(&w->lock, CKPT_LOCK_LEAF);
	rc = ckpt_job_new(s->jobs, &(struct ckpt_job_of){"warm", CKPT_JOB_GIVES_WAY, turn, w, false}, &w->job);
	if (!rc)
		rc = ckpt_readings_new(s, &watch, &w->readings);
	if (rc) {
		ckpt_job_stop(w->job);
		warmer_done(w);
		return rc;
	}
	__atomic_store_n(ckpt_readings_of(s), w->readings, __ATOMIC_RELEASE);
	*ret_warmer = w;
	return 0;
}

void ckpt_warmer_stop(struct ckpt_warmer *w)
{
	if (!w)
		return;
	ckpt_readings_stop(w->readings);
	ckpt_job_stop(w->job);
}

void ckpt_warmer_free(struct ckpt_warmer *w)
{
	struct waiting *waiting;

	if (!w)
		return;
	while ((waiting = w->first)) {
		w->first = waiting->next;
		waiting_free(waiting);
	}
	__atomic_store_n(ckpt_readings_of(w->store), NULL, __ATOMIC_RELEASE);
	ckpt_readings_free(w->readings);
	warmer_done(w);
}

struct ckpt_part ckpt_warmer_part = {.bytes = sizeof(struct ckpt_warmer *)};

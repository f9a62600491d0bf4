// States of the job, and what moves it on:
//
//   asleep   --opened, expect, make-->  awake: it looks at once, and then every CKPT_ROOM_LOOK_NS
//   awake    --a look without anything open, expected or asked for since the one before-->  asleep
//
// A look that finds too little room, or too much trash, frees one step after the other, and measures again after each.
#include "core/store/room.h"

#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/cold/garbage.h"
#include "core/cold/reading.h"
#include "core/cold/stored.h"
#include "core/gc/gc.h"
#include "core/remote/evict.h"
#include "core/remote/remote.h"
#include "core/save/delete.h"
#include "core/save/stage.h"
#include "core/step/latest.h"
#include "core/step/store.h"

#include <stdio.h>
#include <sys/statvfs.h>

#define INODES_LEAST 128             // fewer free ones are too few, on a disk that counts them
#define FULL_PART 512                // of the disk: with less free, writes fail
#define TELL_NS INT64_C(60000000000) // between two lines that say the same
#define TOLD_LEFT_MAX 8              // left-over sessions, the largest
#define RETRY_NS INT64_C(2000000000) // what could not be removed
#define WAKE_NS INT64_C(1000000000)
#define GC_REST 4 // times as long as it took, while room is not short

struct ckpt_room {
	struct ckpt_store *store;
	struct ckpt_job *job;
	unsigned writers; // atomic
	bool opened;      // atomic: something was, since the last look
	bool is_short;    // atomic
	bool awake;       // atomic; changed under lock

	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	bool stop;
	bool dirty; // the trash has changed, or something is expected
	uint64_t expected_bytes;
	uint64_t asked, answered; // calls of ckpt_room_make(), and those whose look has ended
	uint64_t freed;           // steps, and copies of some at once, so far

	// The job's.
	uint64_t sequence, newest_bytes; // as of the last commit that it has seen
	int64_t short_told_ns, full_told_ns;
	int64_t gc_after_ns;
	bool retries; // some could not be removed, and are tried again
};

// --- What goes ----------------------------------------------------------------------------------------------------------

size_t ckpt_room_choose(const struct ckpt_room_want *want, const uint64_t *bytes, size_t count)
{
	uint64_t trash = 0, room = want->free_bytes;
	size_t go = 0;

	for (size_t i = 0; i < count; i++)
		trash += bytes[i];
	for (; go < count; go++) {
		bool over = trash > want->limit_bytes && go + 1 < count;
		bool few = room < want->reserve_bytes || (want->no_inodes && !go);

		if (!over && !few)
			break;
		trash -= bytes[go];
		room += bytes[go];
	}
	return go;
}

uint64_t ckpt_room_reserve(uint64_t newest_bytes, uint64_t disk_bytes)
{
	return MAX(newest_bytes, MIN(CKPT_ROOM_RESERVE_MAX, disk_bytes / CKPT_ROOM_RESERVE_PART));
}

// --- What a deleted step takes ------------------------------------------------------------------------------------------

static int add_blocks(void *arg, int dirfd __attribute__((unused)), const char *name __attribute__((unused)),
		      const struct statx *stx)
{
	uint64_t *bytes = arg;

	if (S_ISREG(stx->stx_mode) && stx->stx_nlink == 1)
		*bytes += stx->stx_blocks * 512;
	return 0;
}

static uint64_t packed_bytes(struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_stored stored = {0};
	struct ckpt_manifest *m;
	uint64_t bytes;

	if ((!v->is.packed && !v->is.sealed) || ckpt_step_read_manifest(step, &v->is, &m))
		return 0;
	(void)ckpt_stored_add(&stored, m);
	ckpt_manifest_unref(m);
	bytes = stored.out_bytes;
	ckpt_stored_done(&stored);
	return bytes;
}

static bool is_measured(struct ckpt_step *step, uint64_t *ret_bytes, uint32_t *ret_deleted_by)
{
	const struct ckpt_trashed *t = ckpt_trashed_of(step);
	LOCK_SCOPE(&step->lock);

	*ret_bytes = t->bytes;
	*ret_deleted_by = step->deleted_by;
	return t->deleted_by && t->deleted_by == step->deleted_by;
}

uint64_t ckpt_room_of_deleted(struct ckpt_step *step)
{
	uint64_t bytes;
	uint32_t deleted_by;

	if (is_measured(step, &bytes, &deleted_by))
		return bytes;
	bytes = 0;
	(void)ckpt_walk(step->store->sessions_fd, step->session, add_blocks,
			&bytes); // what cannot be read frees nothing
	bytes += packed_bytes(step);
	LOCK_SCOPE(&step->lock);
	*ckpt_trashed_of(step) = (struct ckpt_trashed){bytes, deleted_by};
	return bytes;
}

struct ckpt_part ckpt_trashed_part = {.bytes = sizeof(struct ckpt_trashed)};

// --- Measuring ----------------------------------------------------------------------------------------------------------

struct trash {
	struct ckpt_step **steps; // the oldest first
	uint64_t *bytes;
	size_t count;
};

static void trash_done(struct trash *t)
{
	ckpt_step_list_free(t->steps, t->count);
	free(t->bytes);
}

static int64_t deleted_at(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return step->deleted_ns;
}

static int by_age(const void *a, const void *b)
{
	struct ckpt_step *x = *(struct ckpt_step *const *)a, *y = *(struct ckpt_step *const *)b;
	int64_t x_ns = deleted_at(x), y_ns = deleted_at(y);

	return x_ns != y_ns ? (x_ns > y_ns) - (x_ns < y_ns) : strcmp(x->session, y->session);
}

static int trash_list(struct ckpt_store *s, struct trash *ret_trash)
{
	int rc = ckpt_deleted_list(s, &ret_trash->steps, &ret_trash->count);

	if (rc)
		return rc;
	ret_trash->bytes = ckpt_calloc(ret_trash->count + 1, sizeof(*ret_trash->bytes));
	if (!ret_trash->bytes)
		return -ENOMEM;
	if (ret_trash->count)
		qsort(ret_trash->steps, ret_trash->count, sizeof(*ret_trash->steps), by_age);
	for (size_t i = 0; i < ret_trash->count; i++)
		ret_trash->bytes[i] = ckpt_room_of_deleted(ret_trash->steps[i]);
	return 0;
}

static uint64_t reserve_of(const struct ckpt_store *s, uint64_t newest, uint64_t disk_bytes)
{
	uint64_t said = s->settings.trash_reserve;

	return said == CKPT_SHARE_AUTO ? ckpt_room_reserve(newest, disk_bytes) : ckpt_share_of(said, disk_bytes);
}

int ckpt_room_measure(struct ckpt_store *s, struct ckpt_room_state *ret_state)
{
	CLEANUP(trash_done) struct trash trash = {0};
	struct ckpt_room_state state = {.is_short = ckpt_room_is_short(*ckpt_room_of(s))};
	int rc = ckpt_sys.room(s->dirfd, &state.free_bytes, &state.disk_bytes);

	if (!rc)
		rc = trash_list(s, &trash);
	if (rc)
		return rc;
	state.reserve_bytes = reserve_of(s, ckpt_latest_bytes(s), state.disk_bytes);
	state.trash_steps = trash.count;
	for (size_t i = 0; i < trash.count; i++)
		state.trash_bytes += trash.bytes[i];
	*ret_state = state;
	return 0;
}

static uint64_t reserve(struct ckpt_room *r, uint64_t disk_bytes)
{
	uint64_t sequence;

	ckpt_lock_take(&r->store->lock);
	sequence = *ckpt_step_sequence_locked(r->store);
	ckpt_lock_drop(&r->store->lock);
	if (sequence != r->sequence) {
		r->newest_bytes = ckpt_latest_bytes(r->store);
		r->sequence = sequence;
	}
	return reserve_of(r->store, r->newest_bytes, disk_bytes);
}

static bool lacks_inodes(struct ckpt_store *s)
{
	struct statvfs st;

	return !fstatvfs(s->dirfd, &st) && st.f_files && st.f_favail < INODES_LEAST && st.f_files > 2 * INODES_LEAST;
}

// False: it cannot be known.
static bool look(struct ckpt_room *r, struct ckpt_room_want *ret_want, uint64_t *ret_disk_bytes)
{
	struct ckpt_store *s = r->store;

	if (ckpt_sys.room(s->dirfd, &ret_want->free_bytes, ret_disk_bytes))
		return false;
	ret_want->no_inodes = lacks_inodes(s);
	ret_want->limit_bytes = ckpt_share_of(s->settings.trash_limit, *ret_disk_bytes);
	ret_want->reserve_bytes = reserve(r, *ret_disk_bytes);
	ckpt_lock_take(&r->lock);
	if (r->expected_bytes <= *ret_disk_bytes) // else it is mostly holes, or fails anyhow
		ret_want->reserve_bytes += r->expected_bytes;
	ckpt_lock_drop(&r->lock);
	return true;
}

static bool is_short(const struct ckpt_room_want *want)
{
	return want->free_bytes < want->reserve_bytes || want->no_inodes;
}

// --- Freeing ------------------------------------------------------------------------------------------------------------

static bool goes_on(void *arg)
{
	const struct ckpt_room *r = arg;

	return !ckpt_job_stops(r->job);
}

// Steps have gone whose packs may be needed by nobody now. Who is short of room does not wait for the next round of the trash.
static void free_packs(struct ckpt_room *r, bool at_once)
{
	const struct ckpt_gc_how how = {.repack = {.none = true}, .go_on = goes_on, .arg = r};
	int64_t began_ns = ckpt_sys.mono_ns();
	struct ckpt_gc_done done;

	if (!ckpt_garbage_packs(r->store) || (!at_once && began_ns < r->gc_after_ns))
		return;
	(void)ckpt_gc(r->store, &how, &done); // what fails is told by the next round of the trash
	r->gc_after_ns = ckpt_sys.mono_ns() + GC_REST * (ckpt_sys.mono_ns() - began_ns);
}

// Without this the blocks may be free in name only: ext4 gives them away after its journal's next commit.
static void make_usable(struct ckpt_store *s)
{
	(void)ckpt_sys.fsync(s->trash_fd);
	ckpt_objects_refill(s->objects);
}

static void free_step(struct ckpt_room *r, struct ckpt_step *step, uint64_t bytes, const struct ckpt_room_want *want)
{
	char size[CKPT_SIZE_MAX];
	int rc = ckpt_expire_at_once(step);

	if (rc) {
		ckpt_log(CKPT_LOG_DEBUG, "trash: %s could not be removed: %s", step->name, strerror(-rc));
		return;
	}
	make_usable(r->store);
	ckpt_log(CKPT_LOG_INFO, "freed %s of the deleted step %s: %s", ckpt_size_text(bytes, size), step->name,
		 is_short(want) ? "the disk has less than the reserve free" : "the trash was over its limit");
	ckpt_lock_take(&r->lock);
	r->freed++;
	ckpt_lock_drop(&r->lock);
}

// What cannot be removed is passed over. True: some trash is left that could go.
static bool free_room(struct ckpt_room *r)
{
	size_t passed = 0;

	r->retries = false;
	while (goes_on(r)) {
		CLEANUP(trash_done) struct trash trash = {0};
		struct ckpt_room_want want;
		uint64_t disk_bytes;
		size_t count;

		if (!look(r, &want, &disk_bytes) || trash_list(r->store, &trash))
			return false;
		passed = MIN(passed, trash.count);
		count = ckpt_room_choose(&want, trash.bytes + passed, trash.count - passed);
		if (!count)
			return trash.count > passed;
		free_step(r, trash.steps[passed], trash.bytes[passed], &want);
		if (ckpt_step_state(trash.steps[passed]) == CKPT_STEP_DELETED) {
			r->retries = true;
			passed++;
		}
		free_packs(r, is_short(&want));
	}
	return false;
}

// With a remote the trash is that of all nodes: this one drops its own copies alone, of what the remote has.
// Copies of files that are being read go first, then packs of unfinished steps.
static bool drop_copies(struct ckpt_room *r, const struct ckpt_room_want *want)
{
	uint64_t lacks = want->reserve_bytes - MIN(want->free_bytes, want->reserve_bytes), freed, evicted = 0;

	freed = ckpt_readings_yield(__atomic_load_n(ckpt_readings_of(r->store), __ATOMIC_ACQUIRE), lacks);
	if (freed < lacks)
		freed += ckpt_remote_give_back(*ckpt_remote_of(r->store));
	if (freed < lacks)
		(void)ckpt_evict_round(r->store, lacks - freed, &evicted, goes_on, r);
	if (!freed && !evicted)
		return false;
	make_usable(r->store);
	LOCK_SCOPE(&r->lock);
	r->freed++;
	return true;
}

// --- Telling ------------------------------------------------------------------------------------------------------------

struct left {
	struct ckpt_step *step;
	uint64_t bytes;
};

static int by_bytes_descending(const void *a, const void *b)
{
	const struct left *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void tell_left(struct ckpt_room *r, const struct left *left)
{
	CLEANUP_FREE char *hint = NULL;
	char size[CKPT_SIZE_MAX];

	if (asprintf(&hint, "`ckptfs abort --yes %s %s` drops it", r->store->path, left->step->session) < 0)
		hint = NULL;
	ckpt_errlog_add(r->store->errlog, *left->step->name ? left->step->name : left->step->session, -ENOSPC, hint,
			"left over from a save that was not completed: %s", ckpt_size_text(left->bytes, size));
}

static bool is_left_over(struct ckpt_step *step)
{
	return strcmp(ckpt_stage_state_name(step), "live");
}

// Left-over sessions are no trash: somebody decides.
static void tell_of_left(struct ckpt_room *r)
{
	CLEANUP_FREE struct left *left = NULL;
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(r->store, NULL, 1u << CKPT_STEP_LEFT | 1u << CKPT_STEP_STAGED, &steps, &count))
		return;
	left = ckpt_calloc(count + 1, sizeof(*left));
	for (size_t i = 0; left && i < count; i++) {
		struct ckpt_stage_usage u = {0};

		if (is_left_over(steps[i]))
			(void)ckpt_stage_usage(steps[i], &u);
		left[i] = (struct left){steps[i], u.bytes};
	}
	if (left && count)
		qsort(left, count, sizeof(*left), by_bytes_descending);
	for (size_t i = 0; left && i < MIN(count, (size_t)TOLD_LEFT_MAX); i++)
		if (left[i].bytes)
			tell_left(r, &left[i]);
	ckpt_step_list_free(steps, count);
}

static bool is_time(int64_t *told_ns)
{
	int64_t now_ns = ckpt_sys.mono_ns();

	if (*told_ns && now_ns - *told_ns < TELL_NS)
		return false;
	*told_ns = now_ns;
	return true;
}

static void tell(struct ckpt_room *r, const struct ckpt_room_want *want, uint64_t disk_bytes)
{
	static const char hint[] = "make room: remove steps or files; `ckptfs status` says what takes it";
	char room[CKPT_SIZE_MAX], least[CKPT_SIZE_MAX];
	bool full = want->free_bytes < disk_bytes / FULL_PART || (want->no_inodes && want->free_bytes);

	ckpt_size_text(want->free_bytes, room);
	ckpt_size_text(want->reserve_bytes, least);
	if (full && is_time(&r->full_told_ns))
		ckpt_errlog_add(r->store->errlog, "room", -ENOSPC, hint,
				want->no_inodes ? "the disk has no inodes left for new files, and the trash is empty"
						: "the disk is full: %s are free, and the trash is empty",
				room);
	else if (!full && is_time(&r->short_told_ns))
		ckpt_errlog_add(r->store->errlog, "room", -ENOSPC, hint,
				"the disk has %s free, less than the reserve of %s, and the trash is empty", room,
				least);
	else
		return;
	tell_of_left(r);
}

// --- The job ----------------------------------------------------------------------------------------------------------

static bool has_writers(const struct ckpt_room *r)
{
	return __atomic_load_n(&r->writers, __ATOMIC_RELAXED) > 0;
}

// What was expected when the look began counts as written afterwards: the next look sees it in what is free.
static void look_and_free(struct ckpt_room *r, bool dirty, bool asked, bool used)
{
	struct ckpt_room_want want;
	uint64_t disk_bytes;
	bool trash_left = true;

	if (!look(r, &want, &disk_bytes))
		return;
	if (dirty || is_short(&want)) {
		trash_left = *ckpt_remote_of(r->store) ? drop_copies(r, &want) : free_room(r);
		if (!look(r, &want, &disk_bytes))
			return;
	}
	__atomic_store_n(&r->is_short, is_short(&want) && !trash_left, __ATOMIC_RELAXED);
	if (!is_short(&want))
		r->short_told_ns = r->full_told_ns = 0;
	else if (!trash_left && (asked || used))
		tell(r, &want, disk_bytes);
}

// The time until the next look. 0: there is something to do.
static int64_t rest_ns_locked(struct ckpt_room *r)
{
	bool used;

	if (r->dirty || r->asked != r->answered)
		return 0;
	used = has_writers(r) || __atomic_exchange_n(&r->opened, false, __ATOMIC_RELAXED);
	if (!used)
		__atomic_store_n(&r->awake, false, __ATOMIC_SEQ_CST);
	// A file may have been opened before by who saw us awake.
	if (!used && __atomic_load_n(&r->opened, __ATOMIC_SEQ_CST))
		return 0;
	return r->retries ? RETRY_NS : used ? CKPT_ROOM_LOOK_NS : INT64_MAX;
}

static int64_t turn(void *arg, struct ckpt_job *job __attribute__((unused)))
{
	struct ckpt_room *r = arg;
	bool dirty, used = has_writers(r) || __atomic_load_n(&r->opened, __ATOMIC_RELAXED);
	uint64_t asked, expected;
	int64_t ns;

	__atomic_store_n(&r->awake, true, __ATOMIC_RELAXED);
	ckpt_lock_take(&r->lock);
	dirty = r->dirty || r->retries;
	asked = r->asked;
	expected = r->expected_bytes;
	r->dirty = false;
	ckpt_lock_drop(&r->lock);
	look_and_free(r, dirty, asked > r->answered, used);
	LOCK_SCOPE(&r->lock);
	r->answered = asked;
	r->expected_bytes -= MIN(expected, r->expected_bytes);
	pthread_cond_broadcast(&r->changed);
	ns = rest_ns_locked(r);
	return ns && ns < INT64_MAX ? ckpt_sys.mono_ns() + ns : ns;
}

// --- Calls --------------------------------------------------------------------------------------------------------------

void ckpt_room_opened(struct ckpt_room *r)
{
	if (!r)
		return;
	__atomic_add_fetch(&r->writers, 1, __ATOMIC_RELAXED);
	if (!__atomic_load_n(&r->opened, __ATOMIC_RELAXED))
		__atomic_store_n(&r->opened, true, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&r->awake, __ATOMIC_SEQ_CST))
		(void)ckpt_job_wake(r->job);
}

void ckpt_room_closed(struct ckpt_room *r)
{
	if (r)
		__atomic_sub_fetch(&r->writers, 1, __ATOMIC_RELAXED);
}

void ckpt_room_expect(struct ckpt_room *r, uint64_t bytes)
{
	if (!r)
		return;
	LOCK_SCOPE(&r->lock);

	r->expected_bytes += MIN(bytes, UINT64_MAX / 4 - MIN(r->expected_bytes, UINT64_MAX / 4));
	r->dirty = true;
	(void)ckpt_job_wake(r->job);
}

bool ckpt_room_make(struct ckpt_room *r, uint64_t bytes)
{
	uint64_t mine, before;

	if (!r)
		return false;
	LOCK_SCOPE(&r->lock);
	if (r->stop)
		return false;
	before = r->freed;
	mine = ++r->asked;
	r->expected_bytes += MIN(bytes, UINT64_MAX / 4 - MIN(r->expected_bytes, UINT64_MAX / 4));
	// A thread that was free for it may have come to another job first, and there may be no more threads.
	while (r->answered < mine && ckpt_job_wake(r->job))
		ckpt_lock_wait_ns(&r->changed, &r->lock, WAKE_NS);
	return r->freed > before;
}

bool ckpt_room_is_short(const struct ckpt_room *r)
{
	return r && __atomic_load_n(&r->is_short, __ATOMIC_RELAXED);
}

int ckpt_room_new(struct ckpt_store *s, struct ckpt_room **ret_room)
{
	struct ckpt_room *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->store = s;
	r->dirty = r->awake = true;
	r->sequence = UINT64_MAX;
	ckpt_lock_init(&r->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&r->changed, NULL);
	rc = ckpt_job_new(s->jobs, &(struct ckpt_job_of){"room", CKPT_JOB_PROMPT, turn, r, false}, &r->job);
	if (rc)
		ckpt_room_free(r);
	else
		*ret_room = r;
	return rc;
}

void ckpt_room_stop(struct ckpt_room *r)
{
	if (!r)
		return;
	ckpt_lock_take(&r->lock);
	r->stop = true;
	ckpt_lock_drop(&r->lock);
	ckpt_job_stop(r->job);
	LOCK_SCOPE(&r->lock);
	r->answered = UINT64_MAX; // nobody waits any more
	pthread_cond_broadcast(&r->changed);
}

void ckpt_room_free(struct ckpt_room *r)
{
	if (!r)
		return;
	ckpt_room_stop(r);
	pthread_cond_destroy(&r->changed);
	ckpt_lock_done(&r->lock);
	free(r);
}

struct ckpt_part ckpt_room_part = {.bytes = sizeof(struct ckpt_room *)};

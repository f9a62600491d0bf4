// What is known of the use is what the last walk found, and what was asked for since it began:
//   used = walked + asked - asked when it began
// so that it is never too little by what was asked for during the walk. The first two terms that a walk knows are one word, `base`.
//
// One walk runs at a time; who needs one waits for its end and judges then whether it will do. It does when nothing was freed since
// it began, and it ended less than REST times ago what it took.
#include "core/save/limit.h"

#include "core/base/keys.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/base/walk.h"
#include "core/save/share.h"
#include "core/state/shared.h"
#include "core/step/drafts.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <inttypes.h>
#include <sys/stat.h>

#define LOOK_NS INT64_C(1000000000)
#define REST 10 // times as long as a walk took
#define TELL_NS INT64_C(60000000000)
#define UNFINISHED (1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING | 1u << CKPT_STEP_LEFT)

// Of all, or of one user.
struct use {
	uint64_t base, asked; // wrap
	int64_t told_ns;      // monotonic; 0: never
};

struct user {
	uid_t uid;
	uint64_t asked_before; // the walk that runs began
	struct use use;
};

struct ckpt_limit {
	struct ckpt_store *store;
	uint64_t work_max, user_max;
	struct ckpt_job *job; // NULL: nobody watches
	bool stop;            // atomic
	bool known;           // atomic: there was a walk
	uint64_t freed;       // atomic: counts
	struct use all;       // atomic

	struct ckpt_lock lock;
	pthread_cond_t walked;
	// Guarded by lock.
	struct user *users; // those that ever had something
	size_t user_count, user_cap;
	bool walking;
	uint64_t freed_before; // the last walk
	int64_t rests_until_ns;
};

// --- The walk ---------------------------------------------------------------------------------------------------------

struct session {
	char id[CKPT_UUID_LEN + 1];
};

struct tally {
	const bool *stop; // atomic; NULL: never
	struct session *sessions;
	size_t session_count, session_cap;
	struct ckpt_keys seen; // files of several names
	uint64_t bytes;
	struct user_bytes {
		uid_t uid;
		uint64_t bytes;
	} * users;
	size_t user_count, user_cap;
};

static void tally_done(struct tally *t)
{
	free(t->sessions);
	free(t->users);
	ckpt_keys_done(&t->seen);
}

static int add_session(struct tally *t, const char *id)
{
	int rc = ckpt_grow((void **)&t->sessions, &t->session_cap, t->session_count + 1, sizeof(*t->sessions));

	if (!rc)
		memcpy(t->sessions[t->session_count++].id, id, sizeof(t->sessions->id));
	return rc;
}

static int add_step_locked(void *arg, struct ckpt_step *step)
{
	return add_session(arg, step->session);
}

static int add_bytes(struct tally *t, uid_t uid, uint64_t bytes)
{
	size_t i = 0;
	int rc;

	t->bytes += bytes;
	while (i < t->user_count && t->users[i].uid != uid)
		i++;
	if (i == t->user_count) {
		rc = ckpt_grow((void **)&t->users, &t->user_cap, t->user_count + 1, sizeof(*t->users));
		if (rc)
			return rc;
		t->users[t->user_count++] = (struct user_bytes){.uid = uid};
	}
	t->users[i].bytes += bytes;
	return 0;
}

// A file counts once, however many names it has.
static int look_at_file(struct tally *t, const struct statx *stx, bool *ret_counts)
{
	uint64_t ino = stx->stx_ino;

	*ret_counts = false;
	if (t->stop && __atomic_load_n(t->stop, __ATOMIC_RELAXED))
		return -EINTR;
	if (!S_ISREG(stx->stx_mode))
		return 0;
	*ret_counts = true;
	return stx->stx_nlink > 1 ? ckpt_keys_add(&t->seen, &ino, 1, ret_counts) : 0;
}

static int add_file(void *arg, int dirfd, const char *name, const struct statx *stx)
{
	struct tally *t = arg;
	bool counts;
	int rc;

	if (S_ISREG(stx->stx_mode) && ckpt_share_is(dirfd, name, stx))
		return 0;
	rc = look_at_file(t, stx, &counts);
	return rc || !counts ? rc : add_bytes(t, stx->stx_uid, stx->stx_blocks * 512);
}

// All of the directory counts.
static int look_attached(void *arg __attribute__((unused)), const struct ckpt_state *state)
{
	return ckpt_state_is_attached(state);
}

static bool counts_all(const struct ckpt_store *s)
{
	return ckpt_journal_look(s->journal, look_attached, NULL);
}

static int add_any_file(void *arg, int dirfd __attribute__((unused)), const char *name __attribute__((unused)),
			const struct statx *stx)
{
	struct tally *t = arg;
	bool counts;
	int rc = look_at_file(t, stx, &counts);

	t->bytes += !rc && counts ? stx->stx_blocks * 512 : 0;
	return rc;
}

static int take_all(struct ckpt_store *s, struct tally *t)
{
	CLEANUP(tally_done) struct tally all = {.stop = t->stop};
	int rc = ckpt_walk(s->dirfd, ".", add_any_file, &all);

	if (!rc)
		t->bytes = all.bytes;
	return rc;
}

// What is committed meanwhile is counted once more, and dropped ones are not there: who frees something says so.
static int take_tally(struct ckpt_store *s, struct tally *t)
{
	int rc;

	ckpt_lock_take(&s->lock);
	rc = ckpt_step_each_locked(s, NULL, UNFINISHED, add_step_locked, t);
	for (const struct ckpt_draft *d = ckpt_drafts_of(s)->first; d && !rc; d = d->next)
		rc = add_session(t, d->session);
	ckpt_lock_drop(&s->lock);
	for (size_t i = 0; i < t->session_count && !rc; i++) {
		rc = ckpt_walk(s->sessions_fd, t->sessions[i].id, add_file, t);
		rc = rc == -ENOENT || rc == -EACCES ? 0 : rc; // nobody gets around a limit by a mode
	}
	return rc || !counts_all(s) ? rc : take_all(s, t);
}

static bool is_limited(const struct ckpt_settings *settings)
{
	return settings->work_limit != CKPT_LIMIT_NONE || settings->user_limit != CKPT_LIMIT_NONE;
}

int ckpt_limit_measure(struct ckpt_store *s, uint64_t *ret_bytes)
{
	CLEANUP(tally_done) struct tally t = {0};
	int rc = is_limited(&s->settings) ? take_tally(s, &t) : -ENODATA;

	if (!rc)
		*ret_bytes = t.bytes;
	return rc;
}

// --- What is known ----------------------------------------------------------------------------------------------------

static uint64_t used(const struct use *u)
{
	return __atomic_load_n(&u->base, __ATOMIC_RELAXED) + __atomic_load_n(&u->asked, __ATOMIC_RELAXED);
}

static bool has_room(const struct use *u, uint64_t bytes, uint64_t max)
{
	uint64_t now;

	if (max == CKPT_LIMIT_NONE)
		return true;
	now = used(u);
	return now < max && bytes <= max - now;
}

// NULL: he has nothing yet, and there is no memory to know more.
static struct user *user_locked(struct ckpt_limit *l, uid_t uid)
{
	for (size_t i = 0; i < l->user_count; i++)
		if (l->users[i].uid == uid)
			return &l->users[i];
	if (ckpt_grow((void **)&l->users, &l->user_cap, l->user_count + 1, sizeof(*l->users)))
		return NULL;
	l->users[l->user_count] = (struct user){.uid = uid};
	return &l->users[l->user_count++];
}

// -EAGAIN: nothing is known yet. taken: it counts from now on.
static int take_if(struct ckpt_limit *l, uid_t uid, uint64_t bytes, bool taken)
{
	if (!__atomic_load_n(&l->known, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	if (!has_room(&l->all, bytes, l->work_max))
		return -ENOSPC;
	if (l->user_max != CKPT_LIMIT_NONE && uid) {
		LOCK_SCOPE(&l->lock);
		struct user *user = user_locked(l, uid);

		if (user && !has_room(&user->use, bytes, l->user_max))
			return -EDQUOT;
		if (user && taken)
			user->use.asked += bytes;
	}
	if (taken)
		__atomic_add_fetch(&l->all.asked, bytes, __ATOMIC_RELAXED);
	return 0;
}

static int take(struct ckpt_limit *l, uid_t uid, uint64_t bytes)
{
	return take_if(l, uid, bytes, true);
}

static int check(struct ckpt_limit *l, uid_t uid, uint64_t bytes)
{
	int rc = take_if(l, uid, bytes, false);

	return rc == -EAGAIN ? 0 : rc;
}

// --- What is said -----------------------------------------------------------------------------------------------------

// Whether it is time; only one thread is told so.
static bool is_to_tell(struct use *u)
{
	int64_t now_ns = ckpt_sys.mono_ns(), told_ns = __atomic_load_n(&u->told_ns, __ATOMIC_RELAXED);

	return (!told_ns || now_ns >= told_ns + TELL_NS) &&
	       __atomic_compare_exchange_n(&u->told_ns, &told_ns, now_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void tell_all(struct ckpt_limit *l)
{
	char now[CKPT_SIZE_EXACT_MAX], max[CKPT_SIZE_EXACT_MAX];

	if (!is_to_tell(&l->all))
		return;
	if (counts_all(l->store))
		ckpt_errlog_add(l->store->errlog, "work_limit", -ENOSPC,
				"wait until the object store has taken what waits (`ckptfs status`), unpin steps, or "
				"raise work_limit",
				"the work directory takes %s of the %s of work_limit, and nothing of it is in the "
				"object store that could go: "
				"nothing more can be written",
				ckpt_size_exact(used(&l->all), now), ckpt_size_exact(l->work_max, max));
	else
		ckpt_errlog_add(l->store->errlog, "work_limit", -ENOSPC,
				"commit, or `ckptfs abort`, what `ckptfs sessions` shows, or raise work_limit",
				"unfinished work takes %s of the %s of work_limit: nothing more can be written",
				ckpt_size_exact(used(&l->all), now), ckpt_size_exact(l->work_max, max));
}

static void tell_user(struct ckpt_limit *l, uid_t uid)
{
	char now[CKPT_SIZE_EXACT_MAX], max[CKPT_SIZE_EXACT_MAX];
	struct user *user;
	uint64_t bytes = 0;
	bool is;

	ckpt_lock_take(&l->lock);
	user = user_locked(l, uid);
	is = user && is_to_tell(&user->use);
	if (is)
		bytes = used(&user->use);
	ckpt_lock_drop(&l->lock);
	if (is)
		ckpt_errlog_add(l->store->errlog, "user_limit", -EDQUOT,
				"commit, or `ckptfs abort`, what `ckptfs sessions` shows, or raise user_limit",
				"unfinished work of user %" PRIu32 " takes %s of the %s that it may: "
				"nothing more of it is written",
				(uint32_t)uid, ckpt_size_exact(bytes, now), ckpt_size_exact(l->user_max, max));
}

// --- Walks ------------------------------------------------------------------------------------------------------------

static void keep_locked(struct ckpt_limit *l, const struct tally *t, uint64_t asked_before)
{
	__atomic_store_n(&l->all.base, t->bytes - asked_before, __ATOMIC_RELAXED);
	for (size_t i = 0; i < l->user_count; i++)
		l->users[i].use.base = 0 - l->users[i].asked_before;
	for (size_t i = 0; i < t->user_count; i++) {
		struct user *user = user_locked(l, t->users[i].uid);

		if (user)
			user->use.base += t->users[i].bytes;
	}
	__atomic_store_n(&l->known, true, __ATOMIC_RELEASE);
}

static void walk(struct ckpt_limit *l)
{
	CLEANUP(tally_done) struct tally t = {.stop = &l->stop};
	uint64_t freed = __atomic_load_n(&l->freed, __ATOMIC_ACQUIRE);
	uint64_t asked = __atomic_load_n(&l->all.asked, __ATOMIC_RELAXED);
	int64_t began_ns = ckpt_sys.mono_ns(), now_ns;
	int rc;

	ckpt_lock_take(&l->lock);
	for (size_t i = 0; i < l->user_count; i++)
		l->users[i].asked_before = l->users[i].use.asked;
	ckpt_lock_drop(&l->lock);
	rc = take_tally(l->store, &t);
	now_ns = ckpt_sys.mono_ns();
	ckpt_lock_take(&l->lock);
	if (!rc)
		keep_locked(l, &t, asked);
	l->freed_before = freed;
	l->rests_until_ns = now_ns + (now_ns - began_ns) * REST;
	l->walking = false;
	pthread_cond_broadcast(&l->walked);
	ckpt_lock_drop(&l->lock);
}

// Walks, if what is known may be better by now.
static void look(struct ckpt_limit *l)
{
	bool is_due;

	ckpt_lock_take(&l->lock);
	while (l->walking)
		ckpt_lock_wait(&l->walked, &l->lock);
	is_due = l->freed_before != __atomic_load_n(&l->freed, __ATOMIC_ACQUIRE) ||
		 ckpt_sys.mono_ns() >= l->rests_until_ns;
	l->walking = is_due;
	ckpt_lock_drop(&l->lock);
	if (is_due)
		walk(l);
}

// The next of them who is to be told, from *at on.
static bool next_over(struct ckpt_limit *l, size_t *at, uid_t *ret_uid)
{
	LOCK_SCOPE(&l->lock);

	for (; *at < l->user_count; ++*at)
		if (l->users[*at].uid && !has_room(&l->users[*at].use, 0, l->user_max)) {
			*ret_uid = l->users[(*at)++].uid;
			return true;
		}
	return false;
}

// What the kernel writes to open files is found here first.
static int64_t watch(void *arg, struct ckpt_job *job __attribute__((unused)))
{
	struct ckpt_limit *l = arg;
	size_t at = 0;
	uid_t uid;

	look(l);
	if (!has_room(&l->all, 0, l->work_max) && !counts_all(l->store)) // of a remote's, room may come
		tell_all(l);
	while (next_over(l, &at, &uid))
		tell_user(l, uid);
	LOCK_SCOPE(&l->lock);
	return MAX(l->rests_until_ns, ckpt_sys.mono_ns() + LOOK_NS);
}

// --- The door ---------------------------------------------------------------------------------------------------------

int ckpt_limit_ask(struct ckpt_limit *l, uid_t uid, uint64_t bytes)
{
	int rc = l ? take(l, uid, bytes) : 0;

	if (!rc)
		return 0;
	look(l);
	rc = take(l, uid, bytes);
	if (rc == -ENOSPC)
		tell_all(l);
	else if (rc == -EDQUOT)
		tell_user(l, uid);
	return rc == -EAGAIN ? 0 : rc;
}

int ckpt_limit_try(struct ckpt_limit *l, uid_t uid, uint64_t bytes)
{
	if (l)
		look(l);
	return l ? check(l, uid, bytes) : 0;
}

int ckpt_limit_used(struct ckpt_limit *l, uint64_t *ret_bytes)
{
	if (!l)
		return -ENODATA;
	look(l);
	*ret_bytes = used(&l->all);
	return __atomic_load_n(&l->known, __ATOMIC_ACQUIRE) ? 0 : -ENODATA;
}

void ckpt_limit_freed(struct ckpt_limit *l)
{
	if (l)
		__atomic_add_fetch(&l->freed, 1, __ATOMIC_RELEASE);
}

int ckpt_limit_new(struct ckpt_store *s, struct ckpt_limit **ret_limit)
{
	struct ckpt_limit *l;

	*ret_limit = NULL;
	if (!is_limited(&s->settings))
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->store = s;
	l->work_max = s->settings.work_limit;
	l->user_max = s->settings.user_limit;
	ckpt_lock_init(&l->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&l->walked, NULL);
	*ret_limit = l;
	return 0;
}

int ckpt_limit_watch(struct ckpt_limit *l)
{
	const struct ckpt_job_of of = {"limit", CKPT_JOB_PROMPT, watch, l, false};

	return l ? ckpt_job_new(l->store->jobs, &of, &l->job) : 0;
}

void ckpt_limit_stop(struct ckpt_limit *l)
{
	if (!l)
		return;
	__atomic_store_n(&l->stop, true, __ATOMIC_RELAXED);
	ckpt_job_stop(l->job);
}

void ckpt_limit_free(struct ckpt_limit *l)
{
	if (!l)
		return;
	free(l->users);
	pthread_cond_destroy(&l->walked);
	ckpt_lock_done(&l->lock);
	free(l);
}

struct ckpt_part ckpt_limit_part = {.bytes = sizeof(struct ckpt_limit *)};

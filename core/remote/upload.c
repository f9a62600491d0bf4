// States of an object:
//
//   WAITING   _add() put it into the list
//   RUNNING   a thread of the unit sends it, or the caller's in _wait()
//   DONE      it is in the remote
//   GONE      it was removed here, and nobody needed it; _add() makes it WAITING again
//
//   1. Objects are begun in the order of the list, so that all before `next` have been.
//   2. After the first failure none is begun.
#include "core/remote/upload.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/jobs/jobs.h"

#include <pthread.h>

#define READ_BYTES ((size_t)256 << 10)
#define LOOK_NS INT64_C(100000000) // at the end of `job`

enum state { WAITING, RUNNING, DONE, GONE };

struct upload {
	char *key; // malloc'ed
	uint8_t sha256[CKPT_SHA256_LEN];
	enum state state;
	bool has_sha256, may_go;
};

struct ckpt_uploads {
	struct ckpt_uploads_of of;
	bool cancelled; // atomic
	pthread_t threads[CKPT_UPLOADS_AT_ONCE];
	size_t thread_count; // of the caller's thread

	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct upload *list;
	size_t count, cap, next, idle; // threads that wait for work
	size_t running;
	int failed;
	bool failed_here;
	bool closing;
};

int ckpt_uploads_new(const struct ckpt_uploads_of *of, struct ckpt_uploads **ret_uploads)
{
	struct ckpt_uploads *u = ckpt_calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	u->of = *of;
	ckpt_lock_init(&u->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&u->changed, NULL);
	*ret_uploads = u;
	return 0;
}

// --- One object ---------------------------------------------------------------------------------------------------------

struct local {
	struct ckpt_objects *objects;
	const char *key;
	int failed;
};

static int read_local(void *arg, uint64_t offset, void *buf, size_t len)
{
	struct local *l = arg;
	size_t got;
	int rc = ckpt_objects_get(l->objects, l->key, offset, buf, len, &got, NULL);

	l->failed = rc ? rc : got < len ? -ENODATA : 0;
	return l->failed;
}

static bool go_on(const struct ckpt_uploads *u, uint64_t bytes)
{
	return !u->of.job || ckpt_job_go_on(u->of.job, bytes);
}

static bool is_damaged(const struct ckpt_source *source)
{
	CLEANUP_FREE uint8_t *buf = malloc(READ_BYTES);
	uint8_t is[CKPT_SHA256_LEN];
	struct ckpt_sha256 sum;
	int rc = buf ? 0 : -ENOMEM;

	ckpt_sha256_begin(&sum);
	for (uint64_t at = 0; at < source->bytes && !rc; at += READ_BYTES) {
		size_t len = (size_t)MIN(source->bytes - at, (uint64_t)READ_BYTES);

		rc = source->read(source->arg, at, buf, len);
		if (!rc)
			ckpt_sha256_add(&sum, buf, len);
	}
	ckpt_sha256_end(&sum, is);
	return !rc && memcmp(is, source->sha256, sizeof(is));
}

static int put(struct ckpt_uploads *u, const char *key, const uint8_t *sha256, uint64_t bytes, bool *ret_here)
{
	const struct ckpt_until until = {.cancelled = &u->cancelled};
	struct local local = {.objects = u->of.here, .key = key};
	const struct ckpt_source source = {.bytes = bytes, .read = read_local, .arg = &local, .sha256 = sha256};
	int rc = go_on(u, bytes) ? ckpt_objects_put_from(u->of.there, key, &source, &until, NULL) : -EINTR;

	*ret_here = local.failed;
	if (rc == -EAGAIN && sha256 && is_damaged(&source)) {
		*ret_here = true;
		return -EBADMSG;
	}
	if (rc == -EEXIST) // its name is no other's
		rc = ckpt_objects_confirm(u->of.there, key, bytes);
	if (!rc && u->of.progressed_ns)
		__atomic_store_n(u->of.progressed_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	return rc;
}

// An object that is not on this node is one that another node has sent. ret_here: a failure is of this node.
static int send_object(struct ckpt_uploads *u, const char *key, const uint8_t *sha256, bool *ret_here)
{
	struct ckpt_object object, there;
	int rc = ckpt_objects_head(u->of.here, key, &object), there_rc;

	*ret_here = rc;
	if (rc && rc != -ENOENT)
		return rc;
	if (rc || object.mtime_ns < u->of.tried_ns) {
		there_rc = ckpt_objects_head(u->of.there, key, &there);
		*ret_here = there_rc == -ENOENT;
		if (there_rc != -ENOENT)
			return there_rc;
	}
	return rc ? rc : put(u, key, sha256, object.bytes, ret_here);
}

// --- All of them --------------------------------------------------------------------------------------------------------

static bool may_begin_locked(const struct ckpt_uploads *u)
{
	return u->next < u->count && !u->failed && !u->closing;
}

// The first that waits, without the lock while it is sent.
static void send_next_locked(struct ckpt_uploads *u)
{
	size_t i = u->next++;
	const char *key = u->list[i].key;
	uint8_t sha256[CKPT_SHA256_LEN]; // the list may move
	bool here, has_sha256 = u->list[i].has_sha256;
	int rc;

	memcpy(sha256, u->list[i].sha256, sizeof(sha256));
	u->list[i].state = RUNNING;
	u->running++;
	ckpt_lock_drop(&u->lock);
	rc = send_object(u, key, has_sha256 ? sha256 : NULL, &here);
	ckpt_lock_take(&u->lock);
	u->running--;
	u->list[i].state = rc ? GONE : DONE;
	if (rc && !u->failed && !(rc == -ENOENT && u->list[i].may_go)) {
		u->failed = rc;
		u->failed_here = here;
	}
	pthread_cond_broadcast(&u->changed);
}

static void *upload_thread(void *arg)
{
	struct ckpt_uploads *u = arg;
	LOCK_SCOPE(&u->lock);

	while (!u->closing) {
		if (may_begin_locked(u)) {
			send_next_locked(u);
			continue;
		}
		u->idle++;
		(void)ckpt_lock_wait(&u->changed, &u->lock);
		u->idle--;
	}
	return NULL;
}

// Without one the caller sends all by itself, in _wait().
static void start_thread_locked(struct ckpt_uploads *u)
{
	if (u->of.there->ops->is_far && u->count - u->next > u->idle && u->thread_count < CKPT_UPLOADS_AT_ONCE &&
	    !pthread_create(&u->threads[u->thread_count], NULL, upload_thread, u))
		u->thread_count++;
}

static struct upload *find_locked(struct ckpt_uploads *u, const char *key)
{
	for (size_t i = u->count; i-- > 0;)
		if (!strcmp(u->list[i].key, key))
			return &u->list[i];
	return NULL;
}

int ckpt_uploads_add(struct ckpt_uploads *u, const char *key, const uint8_t *sha256, bool may_go)
{
	LOCK_SCOPE(&u->lock);
	struct upload *known = find_locked(u, key);
	int rc;

	if (known && (known->state != GONE || may_go)) {
		known->may_go = known->may_go && may_go;
		return 0;
	}
	rc = ckpt_grow((void **)&u->list, &u->cap, u->count + 1, sizeof(*u->list));
	if (rc)
		return rc;
	u->list[u->count] = (struct upload){.key = strdup(key), .may_go = may_go};
	if (!u->list[u->count].key)
		return -ENOMEM;
	if (sha256)
		memcpy(u->list[u->count].sha256, sha256, CKPT_SHA256_LEN);
	u->list[u->count].has_sha256 = sha256;
	u->count++;
	start_thread_locked(u);
	pthread_cond_broadcast(&u->changed);
	return 0;
}

static void look_for_end_locked(struct ckpt_uploads *u)
{
	if (!u->of.job || !ckpt_job_stops(u->of.job))
		return;
	__atomic_store_n(&u->cancelled, true, __ATOMIC_RELAXED);
	u->failed = -EINTR;
	u->failed_here = false;
}

int ckpt_uploads_wait_until(struct ckpt_uploads *u, int64_t until_ns)
{
	LOCK_SCOPE(&u->lock);

	for (;;) {
		look_for_end_locked(u);
		if (!u->running && !may_begin_locked(u))
			return u->failed;
		if (!u->failed && ckpt_sys.mono_ns() >= until_ns)
			return -ETIME;
		if (!u->thread_count && may_begin_locked(u))
			send_next_locked(u);
		else
			(void)ckpt_lock_wait_ns(&u->changed, &u->lock, LOOK_NS);
	}
}

bool ckpt_uploads_failed_here(struct ckpt_uploads *u)
{
	LOCK_SCOPE(&u->lock);

	return u->failed && u->failed_here;
}

int ckpt_uploads_wait(struct ckpt_uploads *u)
{
	return ckpt_uploads_wait_until(u, INT64_MAX);
}

size_t ckpt_uploads_left(struct ckpt_uploads *u)
{
	LOCK_SCOPE(&u->lock);

	return u->running + (u->failed ? 0 : u->count - u->next);
}

// Only the owner adds objects, and with them threads.
void ckpt_uploads_rest(struct ckpt_uploads *u)
{
	ckpt_lock_take(&u->lock);
	u->closing = true;
	pthread_cond_broadcast(&u->changed);
	ckpt_lock_drop(&u->lock);
	for (size_t i = 0; i < u->thread_count; i++)
		pthread_join(u->threads[i], NULL);
	u->thread_count = 0;
	u->closing = false;
}

void ckpt_uploads_free(struct ckpt_uploads *u)
{
	if (!u)
		return;
	__atomic_store_n(&u->cancelled, true, __ATOMIC_RELAXED);
	ckpt_uploads_rest(u);
	for (size_t i = 0; i < u->count; i++)
		free(u->list[i].key);
	free(u->list);
	pthread_cond_destroy(&u->changed);
	ckpt_lock_done(&u->lock);
	free(u);
}

#include "core/index/indexer.h"

#include "core/base/lock.h"
#include "core/base/util.h"

#include <stdio.h>

#define QUEUE_MAX 256                          // entries
#define MANIFESTS_BYTES_MAX ((size_t)32 << 20) // of theirs, unless a single one has more

struct indexer_job {
	struct indexer_job *next;
	char key[CKPT_STEP_KEY_MAX];
	struct ckpt_summary summary;
	void *manifest;
	size_t manifest_len;
};

struct ckpt_indexer {
	struct ckpt_index *ix;
	pthread_t thread;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	struct indexer_job *first, **last; // guarded by lock, as is all below
	struct indexer_job *running;       // out of the queue, announced on changed
	size_t queued;
	size_t manifests_bytes; // of those queued and the one being written
	bool stop;
};

static void job_free(struct indexer_job *job)
{
	free(job->manifest);
	free(job);
}

static void job_run(struct ckpt_indexer *in, const struct indexer_job *job)
{
	int rc = ckpt_index_put(in->ix, job->key, &job->summary, job->manifest, job->manifest_len);

	// A damaged index is emptied: the next open fills it from the store.
	if (rc == -EBADMSG)
		ckpt_index_reset(in->ix);
}

static void *indexer_thread(void *arg)
{
	struct ckpt_indexer *in = arg;

	ckpt_lock_take(&in->lock);
	while (!in->stop || in->first) {
		struct indexer_job *job = in->first;

		if (!job) {
			ckpt_lock_wait(&in->changed, &in->lock);
			continue;
		}
		in->first = job->next;
		if (!in->first)
			in->last = &in->first;
		in->queued--;
		in->running = job;
		ckpt_lock_drop(&in->lock);
		job_run(in, job);
		ckpt_lock_take(&in->lock);
		in->running = NULL;
		pthread_cond_broadcast(&in->changed);
		in->manifests_bytes -= job->manifest_len;
		job_free(job);
	}
	ckpt_lock_drop(&in->lock);
	return NULL;
}

int ckpt_indexer_new(struct ckpt_index *ix, struct ckpt_indexer **ret_indexer)
{
	struct ckpt_indexer *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	in->ix = ix;
	in->last = &in->first;
	ckpt_lock_init(&in->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&in->changed, NULL);
	if (pthread_create(&in->thread, NULL, indexer_thread, in)) {
		free(in);
		return -EAGAIN;
	}
	*ret_indexer = in;
	return 0;
}

void ckpt_indexer_put(struct ckpt_indexer *in, const char *key, const struct ckpt_summary *summary, void *manifest,
		      size_t manifest_len)
{
	struct indexer_job *job = calloc(1, sizeof(*job));

	if (!job) {
		free(manifest);
		return;
	}
	snprintf(job->key, sizeof(job->key), "%s", key);
	job->summary = *summary;
	job->manifest = manifest;
	LOCK_SCOPE(&in->lock);
	if (in->queued >= QUEUE_MAX) {
		job_free(job);
		return;
	}
	if (in->manifests_bytes && in->manifests_bytes + manifest_len > MANIFESTS_BYTES_MAX)
		free(TAKE_PTR(job->manifest)); // the store has it
	else
		job->manifest_len = manifest_len;
	in->manifests_bytes += job->manifest_len;
	*in->last = job;
	in->last = &job->next;
	in->queued++;
	pthread_cond_broadcast(&in->changed);
}

static bool is_of(const struct indexer_job *job, const char *key, uint32_t version)
{
	return job && job->summary.version == version && !strcmp(job->key, key);
}

static void forget_locked(struct ckpt_indexer *in, const char *key, uint32_t version)
{
	struct indexer_job **slot = &in->first;

	while (*slot) {
		struct indexer_job *job = *slot;

		if (!is_of(job, key, version)) {
			slot = &job->next;
			continue;
		}
		*slot = job->next;
		in->queued--;
		in->manifests_bytes -= job->manifest_len;
		job_free(job);
	}
	in->last = slot;
}

int ckpt_indexer_remove(struct ckpt_indexer *in, const char *key, uint32_t version)
{
	int rc;

	ckpt_lock_take(&in->lock);
	forget_locked(in, key, version);
	while (is_of(in->running, key, version))
		ckpt_lock_wait(&in->changed, &in->lock);
	ckpt_lock_drop(&in->lock);
	rc = ckpt_index_remove(in->ix, key, version);
	if (rc && rc != -ENOENT && rc != -ENOMEM)
		rc = ckpt_index_reset(in->ix);
	return rc == -ENOENT ? 0 : rc;
}

size_t ckpt_indexer_pending(struct ckpt_indexer *in)
{
	if (!in)
		return 0;
	LOCK_SCOPE(&in->lock);

	return in->queued + (in->running ? 1 : 0);
}

void ckpt_indexer_close(struct ckpt_indexer *in)
{
	if (!in)
		return;
	ckpt_lock_take(&in->lock);
	in->stop = true;
	pthread_cond_broadcast(&in->changed);
	ckpt_lock_drop(&in->lock);
	pthread_join(in->thread, NULL);
	pthread_cond_destroy(&in->changed);
	ckpt_lock_done(&in->lock);
	free(in);
}

#include "core/index/indexer.h"

#include "core/base/lock.h"
#include "core/base/util.h"

#define QUEUE_MAX 256                      // manifests
#define QUEUE_BYTES_MAX ((size_t)32 << 20) // unless a single manifest has more

struct indexer_job {
	struct indexer_job *next;
	uint8_t sha256[CKPT_SHA256_LEN];
	void *manifest;
	size_t len;
};

struct ckpt_indexer {
	struct ckpt_index *ix;
	pthread_t thread;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	struct indexer_job *first, **last; // guarded by lock, as is all below
	size_t jobs, bytes;                // those queued and the one being written
	bool stop;
};

static void job_free(struct indexer_job *job)
{
	free(job->manifest);
	free(job);
}

static void job_run(struct ckpt_indexer *in, const struct indexer_job *job)
{
	int rc = ckpt_index_put_manifest(in->ix, job->sha256, job->manifest, job->len);

	// A damaged index is emptied. It fills again as manifests are put and packs are looked at.
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
		ckpt_lock_drop(&in->lock);
		job_run(in, job);
		ckpt_lock_take(&in->lock);
		in->jobs--;
		in->bytes -= job->len;
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

void ckpt_indexer_put(struct ckpt_indexer *in, const uint8_t sha256[CKPT_SHA256_LEN], void *manifest, size_t len)
{
	struct indexer_job *job = calloc(1, sizeof(*job));

	if (!job) {
		free(manifest);
		return;
	}
	memcpy(job->sha256, sha256, sizeof(job->sha256));
	job->manifest = manifest;
	job->len = len;
	LOCK_SCOPE(&in->lock);
	if (in->jobs >= QUEUE_MAX || (in->bytes && in->bytes + len > QUEUE_BYTES_MAX)) {
		job_free(job); // the store has it
		return;
	}
	in->bytes += len;
	*in->last = job;
	in->last = &job->next;
	in->jobs++;
	pthread_cond_broadcast(&in->changed);
}

size_t ckpt_indexer_pending(struct ckpt_indexer *in)
{
	if (!in)
		return 0;
	LOCK_SCOPE(&in->lock);

	return in->jobs;
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

struct ckpt_part ckpt_indexer_part = {.bytes = sizeof(struct ckpt_indexer *)};

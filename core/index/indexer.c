#include "core/index/indexer.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/jobs/jobs.h"

#define QUEUE_MAX 256                      // manifests
#define QUEUE_BYTES_MAX ((size_t)32 << 20) // unless a single manifest has more

struct put {
	struct put *next;
	uint8_t sha256[CKPT_SHA256_LEN];
	void *manifest;
	size_t len;
};

struct ckpt_indexer {
	struct ckpt_index *ix;
	struct ckpt_job *job;
	struct ckpt_lock lock;
	struct put *first, **last; // guarded by lock, as is all below
	size_t puts, bytes;        // those queued and the one being written
};

static void put_free(struct put *put)
{
	free(put->manifest);
	free(put);
}

static struct put *take_first(struct ckpt_indexer *in)
{
	LOCK_SCOPE(&in->lock);
	struct put *put = in->first;

	if (put)
		in->first = put->next;
	if (!in->first)
		in->last = &in->first;
	return put;
}

// False: there was none.
static bool put_first(struct ckpt_indexer *in)
{
	struct put *put = take_first(in);

	// A damaged index is emptied. It fills again as manifests are put and packs are looked at.
	if (put && ckpt_index_put_manifest(in->ix, put->sha256, put->manifest, put->len) == -EBADMSG)
		ckpt_index_reset(in->ix);
	if (!put)
		return false;
	LOCK_SCOPE(&in->lock);
	in->puts--;
	in->bytes -= put->len;
	put_free(put);
	return true;
}

static int64_t turn(void *indexer, struct ckpt_job *job __attribute__((unused)))
{
	return put_first(indexer) ? 0 : INT64_MAX;
}

int ckpt_indexer_new(struct ckpt_index *ix, struct ckpt_jobs *jobs, struct ckpt_indexer **ret_indexer)
{
	struct ckpt_indexer *in = calloc(1, sizeof(*in));
	int rc;

	if (!in)
		return -ENOMEM;
	in->ix = ix;
	in->last = &in->first;
	ckpt_lock_init(&in->lock, CKPT_LOCK_LEAF);
	rc = ckpt_job_new(jobs, &(struct ckpt_job_of){"index", CKPT_JOB_PROMPT, turn, in, true}, &in->job);
	if (rc)
		free(in);
	else
		*ret_indexer = in;
	return rc;
}

void ckpt_indexer_put(struct ckpt_indexer *in, const uint8_t sha256[CKPT_SHA256_LEN], void *manifest, size_t len)
{
	struct put *put = calloc(1, sizeof(*put));

	if (!put) {
		free(manifest);
		return;
	}
	memcpy(put->sha256, sha256, sizeof(put->sha256));
	put->manifest = manifest;
	put->len = len;
	LOCK_SCOPE(&in->lock);
	if (in->puts >= QUEUE_MAX || (in->bytes && in->bytes + len > QUEUE_BYTES_MAX)) {
		put_free(put); // the store has it
		return;
	}
	in->bytes += len;
	*in->last = put;
	in->last = &put->next;
	in->puts++;
	(void)ckpt_job_wake(in->job);
}

size_t ckpt_indexer_pending(struct ckpt_indexer *in)
{
	if (!in)
		return 0;
	LOCK_SCOPE(&in->lock);

	return in->puts;
}

void ckpt_indexer_close(struct ckpt_indexer *in)
{
	if (!in)
		return;
	ckpt_job_stop(in->job);
	while (put_first(in))
		;
	ckpt_lock_done(&in->lock);
	free(in);
}

struct ckpt_part ckpt_indexer_part = {.bytes = sizeof(struct ckpt_indexer *)};

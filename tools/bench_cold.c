#include "tools/bench.h"
#include "tools/output.h"

#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/cold/chunk_reader.h"
#include "core/save/commit.h"
#include "core/save/stage.h"
#include "core/step/step.h"
#include "core/step/store.h"
#include "core/store/open.h"
#include "core/tier/cool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define STEP "1"
#define FILES 4u
#define SHARE 8u // of --work-bytes

static struct ckpt_step *find(struct bench *b, enum ckpt_store_mode mode, struct ckpt_store **ret_store)
{
	struct ckpt_step *step;

	if (ckpt_store_open(b->store, mode, NULL, ret_store))
		return NULL;
	step = ckpt_step_find(*ret_store, "", STEP);
	if (!step)
		ckpt_store_close(*ret_store);
	return step;
}

// --- A cold step of weights -------------------------------------------------------------------------------------------------

// Floats about as those of a model: a bell around 0, no two chunks alike.
static void make_weights(float *out, size_t count, uint64_t *chance)
{
	for (size_t i = 0; i < count; i++) {
		*chance = *chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		uint64_t c = *chance;
		int sum = (int)(c >> 48) + (int)(c >> 32 & 0xffff) + (int)(c >> 16 & 0xffff) - 98303;

		out[i] = (float)sum * 4e-7f + (float)(c >> 40) * 1e-12f;
	}
}

static int write_weights(struct bench *b, int fd, uint64_t bytes, uint64_t *chance)
{
	for (uint64_t at = 0; at < bytes;) {
		size_t len = MIN(bytes - at, BENCH_CALL_BYTES);
		ssize_t n;

		make_weights((float *)(void *)b->buffer, len / sizeof(float), chance);
		n = write(fd, b->buffer, len);
		if (n < 0)
			return -errno;
		if (bench_stopped())
			return -EINTR;
		at += (uint64_t)n;
	}
	return 0;
}

static int stage_and_commit(struct bench *b, struct ckpt_store *s, struct ckpt_step **ret_step)
{
	const struct ckpt_commit how = {.event = "verb", .profile = "generic"};
	uint64_t chance = 1;
	int r = ckpt_stage_begin(s, "", STEP, 0755, geteuid(), getegid(), getpid(), ret_step);

	for (unsigned i = 0; i < FILES && !r; i++) {
		char name[16];

		snprintf(name, sizeof(name), "weights.%u", i);
		CLEANUP_FD int fd = openat((*ret_step)->dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

		r = fd < 0 ? -errno : write_weights(b, fd, b->options.work_bytes / SHARE / FILES, &chance);
	}
	return r ? r : ckpt_commit(*ret_step, &how);
}

static bool until_stopped(void *arg __attribute__((unused)), uint64_t bytes __attribute__((unused)))
{
	return !bench_stopped();
}

static int make_cold(struct bench *b, void *arg __attribute__((unused)))
{
	struct ckpt_tier_how how = {.go_on = until_stopped};
	struct ckpt_tier_done done;
	struct ckpt_step *step;
	struct ckpt_store *s;
	int r = ckpt_store_init(b->store);

	if (!r)
		r = ckpt_store_open(b->store, CKPT_STORE_WRITE, NULL, &s);
	if (!r)
		r = stage_and_commit(b, s, &step);
	if (r)
		return r; // the process ends
	how.pack_bytes = s->settings.pack_bytes;
	r = ckpt_cool_sealed(step, &how, &done);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	return r;
}

// --- Read -------------------------------------------------------------------------------------------------------------------

// What has to be done whoever reads: each chunk got, decoded, and compared with its SHA-256, by one thread into one buffer.
static int decode(struct ckpt_store *s, const struct ckpt_manifest *m, double *ret_cpu_s)
{
	CLEANUP_FREE uint8_t *plain = malloc(CKPT_CHUNK_BYTES_MAX);
	struct timespec before, after;
	struct ckpt_codec *codec;
	int r = plain ? ckpt_codec_new(&codec) : -ENOMEM;

	if (r)
		return r;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	for (uint32_t i = 0; i < ckpt_manifest_chunk_count(m) && !r; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, i, &chunk);
		r = bench_stopped() ? -EINTR : ckpt_chunk_read(s->objects, m, &chunk, codec, plain);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	*ret_cpu_s = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
	ckpt_codec_free(codec);
	return r;
}

static int decode_all(struct bench *b, void *arg)
{
	double *ret_cpu_s = arg;
	struct ckpt_store *s;
	struct ckpt_step *step = find(b, CKPT_STORE_READ, &s);
	struct ckpt_manifest *m;
	int r = step ? ckpt_step_manifest(step, &m) : -ENOENT;

	if (!r) {
		r = decode(s, m, ret_cpu_s);
		ckpt_manifest_unref(m);
	}
	if (step) {
		ckpt_step_unref(step);
		ckpt_store_close(s);
	}
	return r;
}

static int read_all(struct bench *b, double *ret_cpu_s)
{
	CLEANUP_FREE char *dir = bench_path("%s/" STEP, b->mountpoint);
	struct bench_time start, took;
	int r = dir ? bench_remount(b) : -ENOMEM;

	if (r)
		return r;
	bench_clock_start(b, &start);
	r = bench_read_bulk(b, dir, false);
	bench_clock_stop(b, &start, &took);
	*ret_cpu_s = took.cpu_s;
	return r;
}

static int measure(struct bench *b, double *times)
{
	double decoded_s, read_s;
	int r = bench_unmount(b);

	if (!r)
		r = bench_remove_tree(b->store);
	if (!r)
		r = bench_in_child(b, make_cold, NULL);
	for (uint64_t i = 0; i < b->options.pairs && !r; i++) {
		r = bench_ask_child(b, decode_all, &decoded_s);
		if (!r)
			r = read_all(b, &read_s);
		if (r)
			return r;
		ckpt_note_verbose("cold-read %llu: CPU ms: decoded %.1f, read %.1f", (unsigned long long)i + 1,
				  decoded_s * 1e3, read_s * 1e3);
		times[i] = read_s / decoded_s;
	}
	return r;
}

int bench_gauge_cold(struct bench *b, double *ret_value)
{
	CLEANUP_FREE double *times = ckpt_calloc(b->options.pairs, sizeof(*times));
	int r = times ? measure(b, times) : -ENOMEM;

	if (!r)
		*ret_value = bench_median(times, b->options.pairs);
	return r;
}

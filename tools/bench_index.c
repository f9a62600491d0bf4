#include "tools/bench.h"

#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/cold/chunk.h"
#include "core/cold/dedupe.h"
#include "core/cold/pack.h"
#include "core/index/index.h"
#include "core/step/store.h"
#include "core/store/open.h"

#include <errno.h>
#include <stdlib.h>

#define CHUNKS_EACH 16u // as 64 MiB of 4 MiB each; what they hold does not matter here
#define STORED_BYTES 64u
#define LOOKUPS 100000u
#define DECODINGS 20u

static uint64_t chunks_of(const struct bench *b)
{
	return b->options.files * 100;
}

// Of a chunk's number, scattered as ids are.
static void make_id(uint64_t number, uint8_t id[CKPT_SHA256_LEN])
{
	for (unsigned i = 0; i < CKPT_SHA256_LEN; i += 8) {
		uint64_t x = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;

		x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
		ckpt_put64(id + i, x ^ x >> 31);
	}
}

static int put_packs(struct bench *b, struct ckpt_store *s, struct ckpt_pack_writer *w)
{
	const uint8_t stored[STORED_BYTES] = {0};
	struct ckpt_pack pack;
	int r = 0;

	for (uint64_t i = 0; i < chunks_of(b) && !r; i++) {
		struct ckpt_chunk chunk = {.bytes = CKPT_CHUNK_BYTES, .how = {CKPT_CODEC_ZSTD, 0, STORED_BYTES}};

		make_id(i, chunk.id);
		r = bench_stopped() ? -EINTR : ckpt_pack_writer_add(w, &chunk, stored, NULL);
		if (!r && (i + 1) % CHUNKS_EACH == 0)
			r = ckpt_pack_writer_put(w, s->objects, &pack, NULL);
	}
	return !r && ckpt_pack_writer_bytes(w) ? ckpt_pack_writer_put(w, s->objects, &pack, NULL) : r;
}

static int fill(struct bench *b, void *arg __attribute__((unused)))
{
	struct ckpt_pack_writer *w;
	struct ckpt_store *s;
	int r = bench_store_new(b, &s);

	if (r)
		return r; // the process ends
	r = ckpt_pack_writer_new(&w);
	if (!r)
		r = put_packs(b, s, w);
	ckpt_store_close(s);
	return r ? r : bench_sync(b);
}

static int make_anew(struct bench *b, void *ret_value)
{
	double *seconds = ret_value, began_s;
	struct ckpt_store *s;
	int r = ckpt_store_open(b->store, CKPT_STORE_WRITE, NULL, &s);

	if (r)
		return r;
	began_s = bench_now_s();
	r = ckpt_dedupe_rebuild(s, NULL, NULL);
	*seconds = bench_now_s() - began_s;
	ckpt_store_close(s);
	return r;
}

static int find_some(struct bench *b, struct ckpt_index *ix, double *ret_each_s)
{
	double began_s = bench_now_s();
	int r = 0;

	srandom(1);
	for (unsigned i = 0; i < LOOKUPS && !r; i++) {
		uint8_t id[CKPT_SHA256_LEN];
		struct ckpt_chunk chunk;
		struct ckpt_pack pack;

		make_id((uint64_t)random() % chunks_of(b), id);
		r = ckpt_index_chunk(ix, id, &chunk, &pack);
	}
	*ret_each_s = (bench_now_s() - began_s) / LOOKUPS;
	return r;
}

// Of 4 MiB of floats, which is quick: bytes that repeat take longer.
static int decode_some(double *ret_each_s)
{
	CLEANUP_FREE float *plain = malloc(CKPT_CHUNK_BYTES);
	CLEANUP_FREE void *stored = malloc(CKPT_CHUNK_BYTES);
	struct ckpt_encoded how;
	struct ckpt_codec *codec;
	double began_s;
	int r = plain && stored ? ckpt_codec_new(&codec) : -ENOMEM;

	if (r)
		return r;
	for (size_t i = 0; i < CKPT_CHUNK_BYTES / sizeof(*plain); i++)
		plain[i] = (float)(random() - random()) * 1e-11f;
	r = ckpt_codec_encode(codec, plain, CKPT_CHUNK_BYTES, sizeof(*plain), stored, &how);
	began_s = bench_now_s();
	for (unsigned i = 0; i < DECODINGS && !r; i++)
		r = ckpt_codec_decode(codec, &how, stored, plain, CKPT_CHUNK_BYTES);
	*ret_each_s = (bench_now_s() - began_s) / DECODINGS;
	ckpt_codec_free(codec);
	return r;
}

static int look_up(struct bench *b, void *ret_value)
{
	double found_s = 0, decoded_s = 0, *times = ret_value;
	struct ckpt_store *s;
	int r = ckpt_store_open(b->store, CKPT_STORE_WRITE, NULL, &s);

	if (r)
		return r;
	r = s->index ? find_some(b, s->index, &found_s) : -ENOENT;
	ckpt_store_close(s);
	if (!r)
		r = decode_some(&decoded_s);
	*times = found_s / decoded_s;
	return r;
}

static int make_packs(struct bench *b)
{
	int r = bench_unmount(b);

	if (!r)
		r = bench_remove_tree(b->store);
	return r ? r : bench_in_child(b, fill, NULL);
}

int bench_gauge_index(struct bench *b, double *ret_value)
{
	int r = make_packs(b);

	return r ? r : bench_ask_child(b, make_anew, ret_value);
}

int bench_gauge_lookup(struct bench *b, double *ret_value)
{
	double seconds;
	int r = make_packs(b);

	if (!r)
		r = bench_ask_child(b, make_anew, &seconds);
	return r ? r : bench_ask_child(b, look_up, ret_value);
}

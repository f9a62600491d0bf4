// What the codecs make of arrays, in memory and on one thread: how small, how fast, and zstd -1 and -3 beside them, chunk by chunk
// in turns. tests/bench/codecs runs it and says what it means.
//
//	bench_codecs ROUNDS STEP [BASE]    STEP and BASE are folders as tests/bench/train writes them
//
// For each array a line of JSON: how it is stored by itself, beside its base (for weights the master; for the others the same
// of BASE), and by zstd; and of all its chunks the largest ratio to zstd -1 and to the chunk itself. Times are of the thread's
// CPU, of each chunk the shortest of all rounds. What does not come back as it was ends it.
#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/cold/chunk.h"

#include <stdio.h>
#include <time.h>
#include <zstd.h>

#define PATH_BYTES 4096

struct array {
	uint8_t *at;
	uint32_t bytes;
};

// Of one way to store an array.
struct result {
	uint64_t stored;
	double encode_s, decode_s;
	double worst_by_zstd, worst_by_plain; // of all chunks the largest ratio of what is stored
};

enum way { ALONE, BASED, ZSTD, ZSTD3, WAYS };

struct job {
	struct ckpt_codec *codec;
	ZSTD_CCtx *zstd_in;
	ZSTD_DCtx *zstd_out;
	uint8_t *out, *back;
	size_t out_bytes;
	unsigned rounds, width;
	enum ckpt_codec_id with; // the codec that takes a base
};

static void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct array load(const char *folder, const char *name)
{
	char path[PATH_BYTES];
	struct array a = {0};
	long bytes;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END) || (bytes = ftell(f)) <= 0 || bytes > UINT32_MAX)
		die(path);
	a.bytes = (uint32_t)bytes;
	a.at = malloc(a.bytes);
	rewind(f);
	if (!a.at || fread(a.at, 1, a.bytes, f) != a.bytes)
		die(path);
	fclose(f);
	return a;
}

// --- A chunk, once ------------------------------------------------------------------------------------------------------

static uint32_t encode(struct job *j, enum way way, const uint8_t *plain, uint32_t bytes, const uint8_t *base,
		       struct ckpt_encoded *ret_how)
{
	size_t n;

	if (way >= ZSTD) {
		n = ZSTD_compressCCtx(j->zstd_in, j->out, j->out_bytes, plain, bytes, way == ZSTD ? 1 : 3);
		if (ZSTD_isError(n))
			die("zstd");
		return (uint32_t)n;
	}
	if (way == ALONE ? ckpt_codec_encode(j->codec, plain, bytes, j->width, j->out, ret_how)
			 : ckpt_codec_encode_beside(j->codec, plain, bytes, j->width, j->with, base, j->out, ret_how))
		die("encode");
	return ret_how->bytes;
}

static void decode(struct job *j, enum way way, uint32_t stored, const struct ckpt_encoded *how, const uint8_t *base,
		   uint32_t bytes)
{
	bool ok = way >= ZSTD ? ZSTD_decompressDCtx(j->zstd_out, j->back, bytes, j->out, stored) == bytes
			      : !ckpt_codec_decode_beside(j->codec, how, j->out, base, j->back, bytes);

	if (!ok)
		die("decode");
}

static void add_chunk(struct job *j, const uint8_t *plain, uint32_t bytes, const uint8_t *base,
		      struct result results[WAYS])
{
	double encode_s[WAYS] = {1e9, 1e9, 1e9, 1e9}, decode_s[WAYS] = {1e9, 1e9, 1e9, 1e9};
	uint32_t stored_bytes[WAYS] = {0};

	for (unsigned i = 0; i < j->rounds * WAYS; i++) {
		enum way way = i % WAYS;
		struct ckpt_encoded how = {0};
		double began = now_s(), encoded;
		uint32_t stored;

		if (way == BASED && !base)
			continue;
		stored = encode(j, way, plain, bytes, base, &how);
		encoded = now_s();
		decode(j, way, stored, &how, base, bytes);
		decode_s[way] = MIN(decode_s[way], now_s() - encoded);
		encode_s[way] = MIN(encode_s[way], encoded - began);
		if (memcmp(j->back, plain, bytes))
			die("another thing came back");
		stored_bytes[way] = stored;
	}
	for (enum way way = 0; way < WAYS; way++) {
		struct result *r = &results[way];

		r->stored += stored_bytes[way];
		r->worst_by_zstd = MAX(r->worst_by_zstd, (double)stored_bytes[way] / stored_bytes[ZSTD]);
		r->worst_by_plain = MAX(r->worst_by_plain, (double)stored_bytes[way] / bytes);
		r->encode_s += encode_s[way];
		r->decode_s += decode_s[way];
	}
}

// --- An array -----------------------------------------------------------------------------------------------------------

static void tell(const char *name, uint32_t bytes, const struct result results[WAYS], bool based)
{
	static const char *const names[] = {"alone", "based", "zstd", "zstd3"};

	printf("{\"array\": \"%s\", \"bytes\": %u", name, bytes);
	for (enum way way = 0; way < WAYS; way++)
		if (way != BASED || based)
			printf(", \"%s\": {\"stored\": %llu, \"encode_s\": %.6f, \"decode_s\": %.6f, "
			       "\"worst_by_zstd\": %.5f, "
			       "\"worst_by_plain\": %.5f}",
			       names[way], (unsigned long long)results[way].stored, results[way].encode_s,
			       results[way].decode_s, results[way].worst_by_zstd, results[way].worst_by_plain);
	printf("}\n");
	fflush(stdout);
}

static void measure(struct job *j, const char *name, const char *folder, const char *base_folder, const char *base_name)
{
	struct array a = load(folder, name), base = base_folder ? load(base_folder, base_name) : (struct array){0};
	struct result results[WAYS] = {0};

	if (base.at && ckpt_codec_base_bytes(j->with, a.bytes) != base.bytes)
		die(base_name);
	for (uint32_t at = 0; at < a.bytes; at += CKPT_CHUNK_BYTES)
		add_chunk(j, a.at + at, MIN(a.bytes - at, CKPT_CHUNK_BYTES),
			  base.at ? base.at + ckpt_codec_base_bytes(j->with, at) : NULL, results);
	tell(name, a.bytes, results, base.at);
	free(a.at);
	free(base.at);
}

int main(int argc, char **argv)
{
	static const char *const moments[] = {"master.fp32", "m.fp32", "v.fp32"};
	struct job j = {.zstd_in = ZSTD_createCCtx(), .zstd_out = ZSTD_createDCtx()};

	if (argc < 3 || argc > 4 || atoi(argv[1]) < 1) {
		fprintf(stderr, "usage: bench_codecs ROUNDS STEP [BASE]\n");
		return 2;
	}
	j.rounds = (unsigned)atoi(argv[1]);
	j.out_bytes = ZSTD_compressBound(CKPT_CHUNK_BYTES);
	j.out = malloc(j.out_bytes);
	j.back = malloc(CKPT_CHUNK_BYTES);
	if (!j.zstd_in || !j.zstd_out || !j.out || !j.back || ckpt_codec_new(&j.codec))
		die("memory");
	j.width = 2;
	j.with = CKPT_CODEC_ROUND;
	measure(&j, "weights.bf16", argv[2], argv[2], moments[0]);
	j.width = 4;
	j.with = CKPT_CODEC_DELTA;
	for (size_t i = 0; i < ARRAY_LEN(moments); i++)
		measure(&j, moments[i], argv[2], argc > 3 ? argv[3] : NULL, moments[i]);
	ckpt_codec_free(j.codec);
	ZSTD_freeCCtx(j.zstd_in);
	ZSTD_freeDCtx(j.zstd_out);
	free(j.out);
	free(j.back);
	return 0;
}

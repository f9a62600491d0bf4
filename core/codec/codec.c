#include "core/codec/codec.h"

#include "core/base/util.h"
#include "core/codec/codec_pieces.h"
#include "core/codec/codec_sample.h"
#include "core/codec/codec_zstd.h"
#include "core/limits.h"

#include <assert.h>

// Zstd is tried in full where it may win, which a probe of some parts tells.
#define PROBE_PARTS 4u
#define PROBE_PART_BYTES (32u << 10)
#define PROBE_SLACK 1.02   // of what the probe says
#define REPEATS_SLACK 0.95 // what is left where others repeat may have fewer values
#define LITTLE 16u         // of a chunk: such are quick, and no part says what the whole is
#define SMALL_ENOUGH 4000u // of a chunk: nothing more is tried

#define ROOM_KEPT (4u << 20)

// A probe sees no repeats from farther than it is long. Those of whole arrays and rows begin at a multiple of this.
#define MARK_BYTES 256u
#define MARKS 16384u

struct ckpt_codec {
	struct ckpt_zstd *zstd;
	struct ckpt_pieces *pieces;
	uint8_t *room; // what the second codec that is tried makes of a chunk; or the caller's
	uint32_t room_bytes;
	uint8_t probed[PROBE_PART_BYTES];
	uint64_t marks[MARKS]; // words that were seen, by their hash
};

const char *ckpt_codec_name(enum ckpt_codec_id codec)
{
	static const char *const names[] = {
		[CKPT_CODEC_NONE] = "none",   [CKPT_CODEC_ZSTD] = "zstd",   [CKPT_CODEC_PLANES] = "planes",
		[CKPT_CODEC_DELTA] = "delta", [CKPT_CODEC_ROUND] = "round",
	};

	return (unsigned)codec < ARRAY_LEN(names) ? names[codec] : NULL;
}

int ckpt_codec_new(struct ckpt_codec **ret_codec)
{
	struct ckpt_codec *c = ckpt_calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	rc = ckpt_zstd_new(&c->zstd);
	if (!rc)
		rc = ckpt_pieces_new(c->zstd, &c->pieces);
	if (rc) {
		ckpt_codec_free(c);
		return rc;
	}
	*ret_codec = c;
	return 0;
}

void ckpt_codec_free(struct ckpt_codec *c)
{
	if (!c)
		return;
	ckpt_pieces_free(c->pieces);
	ckpt_zstd_free(c->zstd);
	free(c->room);
	free(c);
}

// One that is unusually large is not kept for those that are not.
void *ckpt_codec_room(struct ckpt_codec *c, uint32_t bytes)
{
	uint32_t want = MAX(bytes, ROOM_KEPT);

	if (c->room && c->room_bytes >= bytes && c->room_bytes <= want)
		return c->room;
	free(c->room);
	c->room_bytes = want;
	c->room = malloc(want);
	return c->room;
}

// --- Choice -----------------------------------------------------------------------------------------------------------

// Words of elements that are all alike are not worth a mark: planes make nothing of them, too.
static bool is_telling(uint64_t word)
{
	return word != (word << 32 | word >> 32);
}

// Whether much of it was there before.
static bool repeats_from_afar(struct ckpt_codec *c, const uint8_t *plain, uint32_t bytes)
{
	uint32_t seen = 0;

	memset(c->marks, 0, sizeof(c->marks));
	for (uint32_t at = 0; at + sizeof(uint64_t) <= bytes; at += MARK_BYTES) {
		uint64_t word = ckpt_get64(plain + at);
		uint64_t *mark = &c->marks[word * UINT64_C(0x9e3779b97f4a7c15) >> 50];

		seen += *mark == word && is_telling(word);
		*mark = word;
	}
	return seen > bytes / MARK_BYTES / 64;
}

// What zstd makes of a chunk, by some parts of it.
static int probe(struct ckpt_codec *c, enum ckpt_zstd_how how, const uint8_t *plain, uint32_t bytes, double *ret_bytes)
{
	uint32_t apart = (bytes - PROBE_PART_BYTES) / (PROBE_PARTS - 1), sum = 0;

	for (uint32_t i = 0; i < PROBE_PARTS; i++) {
		uint32_t n = PROBE_PART_BYTES;
		int rc = ckpt_zstd_encode(c->zstd, how, plain + i * apart, PROBE_PART_BYTES, c->probed,
					  PROBE_PART_BYTES, &n);

		if (rc && rc != -ENOSPC)
			return rc;
		sum += n;
	}
	*ret_bytes = (double)sum / (PROBE_PARTS * PROBE_PART_BYTES) * bytes;
	return 0;
}

// What zstd may come to: what does not repeat, coded by how often bytes occur. Where that is too much already, it is found
// out in a tenth of the time.
static int guess_zstd(struct ckpt_codec *c, const uint8_t *plain, uint32_t bytes, double limit, double *ret_bytes)
{
	struct ckpt_sample s;
	double guess = 0;
	int rc = probe(c, CKPT_ZSTD_REPEATS, plain, bytes, &guess);

	if (rc)
		return rc;
	ckpt_sample_take(plain, bytes, &s);
	guess *= ckpt_sample_bits(s.at, s.bytes, 1) / 8 * REPEATS_SLACK;
	if (guess > limit) {
		*ret_bytes = guess;
		return 0;
	}
	return probe(c, CKPT_ZSTD_FAST, plain, bytes, ret_bytes);
}

static int is_worth_zstd(struct ckpt_codec *c, const uint8_t *plain, uint32_t bytes, const struct ckpt_encoded *how,
			 bool *ret_worth)
{
	double limit = how->codec == CKPT_CODEC_NONE ? bytes * 0.999 : how->bytes * PROBE_SLACK, guess = 0;
	int rc;

	*ret_worth = how->bytes > bytes / SMALL_ENOUGH;
	if (how->bytes < bytes / LITTLE || bytes <= PROBE_PARTS * PROBE_PART_BYTES)
		return 0;
	rc = guess_zstd(c, plain, bytes, limit, &guess);
	*ret_worth = guess < limit || repeats_from_afar(c, plain, bytes);
	return rc;
}

// how: the best so far, in out.
static int try_zstd(struct ckpt_codec *c, const void *plain, uint32_t bytes, void *out, struct ckpt_encoded *how)
{
	bool worth = true;
	uint32_t n = 0;
	int rc = is_worth_zstd(c, plain, bytes, how, &worth);

	if (rc || !worth)
		return rc;
	if (!ckpt_codec_room(c, bytes))
		return -ENOMEM;
	rc = ckpt_zstd_encode(c->zstd, CKPT_ZSTD_FAST, plain, bytes, c->room, how->bytes - 1, &n);
	if (rc)
		return rc == -ENOSPC ? 0 : rc;
	memcpy(out, c->room, n);
	*how = (struct ckpt_encoded){CKPT_CODEC_ZSTD, 0, n};
	return 0;
}

static int try_pieces(struct ckpt_codec *c, const void *plain, uint32_t bytes, unsigned width, enum ckpt_codec_id with,
		      const void *base, void *out, struct ckpt_encoded *how)
{
	bool based = false;
	uint32_t n = 0;
	int rc = ckpt_pieces_encode(c->pieces, plain, bytes, width, (struct ckpt_base){base, with == CKPT_CODEC_ROUND},
				    out, how->bytes - 1, &n, &based);

	if (rc)
		return rc == -ENOSPC ? 0 : rc;
	*how = (struct ckpt_encoded){based ? with : CKPT_CODEC_PLANES, width, n};
	return 0;
}

int ckpt_codec_try(struct ckpt_codec *c, const void *plain, uint32_t bytes, unsigned width, enum ckpt_codec_id with,
		   const void *base, void *out, struct ckpt_encoded *ret_how)
{
	struct ckpt_encoded how = {CKPT_CODEC_NONE, 0, bytes};
	int rc = 0;

	assert(bytes && bytes <= CKPT_CHUNK_BYTES_MAX);
	assert(width <= CKPT_CODEC_WIDTH_MAX && !(width & (width - 1)));
	assert(!base || with == CKPT_CODEC_DELTA || (with == CKPT_CODEC_ROUND && (!width || width == 2)));
	if (!width)
		width = base && with == CKPT_CODEC_ROUND ? 2 : ckpt_sample_width(plain, bytes);
	if (width > 1)
		rc = try_pieces(c, plain, bytes, width, with, base, out, &how);
	if (!rc)
		rc = try_zstd(c, plain, bytes, out, &how);
	if (!rc)
		*ret_how = how;
	return rc;
}

int ckpt_codec_encode_beside(struct ckpt_codec *c, const void *plain, uint32_t bytes, unsigned width,
			     enum ckpt_codec_id with, const void *base, void *out, struct ckpt_encoded *ret_how)
{
	int rc = ckpt_codec_try(c, plain, bytes, width, with, base, out, ret_how);

	if (!rc && ret_how->codec == CKPT_CODEC_NONE)
		memcpy(out, plain, bytes);
	return rc;
}

int ckpt_codec_encode(struct ckpt_codec *c, const void *plain, uint32_t bytes, unsigned width, void *out,
		      struct ckpt_encoded *ret_how)
{
	return ckpt_codec_encode_beside(c, plain, bytes, width, CKPT_CODEC_NONE, NULL, out, ret_how);
}

// --- Decode -----------------------------------------------------------------------------------------------------------

uint32_t ckpt_codec_base_bytes(enum ckpt_codec_id codec, uint32_t bytes)
{
	return codec == CKPT_CODEC_DELTA ? bytes : codec == CKPT_CODEC_ROUND ? 2 * bytes : 0;
}

static int decode_none(const struct ckpt_encoded *how, const void *stored, void *plain, uint32_t bytes)
{
	if (how->width || how->bytes != bytes)
		return -EBADMSG;
	memcpy(plain, stored, bytes);
	return 0;
}

int ckpt_codec_decode_beside(struct ckpt_codec *c, const struct ckpt_encoded *how, const void *stored, const void *base,
			     void *plain, uint32_t bytes)
{
	struct ckpt_base with = {base, how->codec == CKPT_CODEC_ROUND};

	assert(bytes && bytes <= CKPT_CHUNK_BYTES_MAX);
	switch (how->codec) {
	case CKPT_CODEC_NONE:
		return decode_none(how, stored, plain, bytes);
	case CKPT_CODEC_ZSTD:
		return how->width ? -EBADMSG : ckpt_zstd_decode(c->zstd, stored, how->bytes, plain, bytes, bytes);
	case CKPT_CODEC_PLANES:
		with.at = NULL;
		break;
	case CKPT_CODEC_DELTA:
	case CKPT_CODEC_ROUND:
		if (!base)
			return -EBADMSG;
		break;
	default:
		return -EBADMSG;
	}
	return ckpt_pieces_decode(c->pieces, stored, how->bytes, how->width, with, plain, bytes);
}

int ckpt_codec_decode(struct ckpt_codec *c, const struct ckpt_encoded *how, const void *stored, void *plain,
		      uint32_t bytes)
{
	return ckpt_codec_decode_beside(c, how, stored, NULL, plain, bytes);
}

bool ckpt_encoded_ok(const struct ckpt_encoded *how, uint32_t bytes)
{
	if (!bytes || bytes > CKPT_CHUNK_BYTES_MAX || !how->bytes)
		return false;
	switch (how->codec) {
	case CKPT_CODEC_NONE:
		return !how->width && how->bytes == bytes;
	case CKPT_CODEC_ZSTD:
		return !how->width && how->bytes < bytes;
	case CKPT_CODEC_PLANES:
		return (how->width == 2 || how->width == 4 || how->width == 8) && how->bytes < bytes;
	case CKPT_CODEC_DELTA:
		return (how->width == 2 || how->width == 4 || how->width == 8) && how->bytes < bytes &&
		       bytes <= CKPT_BASED_BYTES_MAX;
	case CKPT_CODEC_ROUND:
		return how->width == 2 && how->bytes < bytes && bytes <= CKPT_BASED_BYTES_MAX;
	default:
		return false;
	}
}

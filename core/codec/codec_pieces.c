// FORMAT.md section 8 has the grammar and every byte. A piece stands for PIECE_BYTES plain bytes, the last one of a chunk for
// what is left. Pieces know nothing of each other: one may hold floats and the next one integers, and all that is made of one fits
// into the processor's cache. What each is, a sample of it tells; a wrong guess costs room, never a byte.
//
// Where much is zero (moments of rows that were never used) `present` has a bit for each group of GROUP_BYTES that is not, and
// the rest of the piece stands for those, one behind the other.
#include "core/codec/codec_pieces.h"

#include "core/base/util.h"
#include "core/codec/codec_differ.h"
#include "core/codec/codec_plane.h"
#include "core/codec/codec_sample.h"
#include "core/codec/codec_split.h"

#define PIECE_BYTES (256u << 10)
// Between planes: what lies at the same place of two pages is slow to copy from one to the other, and to fill together.
#define PLANE_APART 320u
#define GROUP_BYTES 128u
#define GROUPS (PIECE_BYTES / GROUP_BYTES)
#define GAPS_WORTH 16u // one of so many groups is zero

// First byte of a piece.
enum kind {
	INTEGERS = 0, // planes of the elements as they are
	FLOATS = 1,   // planes of floats, codec_split.h
	NARROW = 2,   // and their exponents take a bit with them: `base` is what was taken off these
	DIFFERENT = 3 // what differs from the base of the chunk
};
#define FORM_KIND 3u
#define FORM_BYTES 4u // elements of one byte, whatever width the chunk has
#define FORM_GAPS 8u
#define FORM_HEAD_SHIFT 4u // the bytes before the first element
#define FORM_HEAD_MAX 7u

// How a piece differs: second byte of such a body.
#define HOW_FLOATS 1u
#define HOW_SCALED 2u

#define NARROW_MAX 127
#define ABOVE_SAMPLE 16 // exponents above the greatest one of the sample that still fit
#define WORTH_BASE 0.98 // a base must save as much: a chunk that needs one takes two to decode
#define SURE_BITS 0.2   // by which bytes of a sample seem to differ by chance
#define RATIOS 127u     // of a piece, to find a scale
#define PAIRS 512u      // elements, to guess how much they differ
#define PAIR_PARTS 16u

struct ckpt_pieces {
	struct ckpt_zstd *zstd;
	uint8_t apart[1024];                                         // as below
	uint8_t planes[PIECE_BYTES + CKPT_PLANES_MAX * PLANE_APART]; // of classes there is one
	uint8_t dense[PIECE_BYTES];                                  // without gaps
	uint32_t differences[PIECE_BYTES / 2];
};

// What a body stands for.
struct body {
	enum kind kind;
	unsigned width;
	uint32_t head, count, tail; // bytes, elements, bytes
	uint8_t base;               // of narrow floats
	struct ckpt_differ differ;
};

int ckpt_pieces_new(struct ckpt_zstd *z, struct ckpt_pieces **ret_pieces)
{
	struct ckpt_pieces *p = malloc(sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->zstd = z;
	*ret_pieces = p;
	return 0;
}

void ckpt_pieces_free(struct ckpt_pieces *p)
{
	free(p);
}

// In the order in which they are stored, so that each may be decoded with the room of those behind it.
static void set_planes(struct ckpt_pieces *p, unsigned width, uint8_t *ret_planes[])
{
	for (unsigned i = 0; i < width; i++)
		ret_planes[width - 1 - i] = p->planes + (size_t)i * (PIECE_BYTES / width + PLANE_APART);
}

static uint32_t room_from(const struct ckpt_pieces *p, const uint8_t *plane)
{
	return (uint32_t)(p->planes + sizeof(p->planes) - plane);
}

static void set_count(struct body *b, uint32_t bytes)
{
	b->head = MIN(b->head, bytes);
	b->count = (bytes - b->head) / b->width;
	b->tail = bytes - b->head - b->count * b->width;
}

// Where the base of a piece has what stands for the first element.
static const uint8_t *base_from(const struct body *b, struct ckpt_base base)
{
	return base.at + (base.rounded ? 2 * b->head : b->head);
}

static struct ckpt_base base_of_piece(struct ckpt_base base, uint32_t at)
{
	if (base.at)
		base.at += base.rounded ? 2 * (size_t)at : at;
	return base;
}

static uint32_t groups_of(uint32_t bytes)
{
	return (bytes + GROUP_BYTES - 1) / GROUP_BYTES;
}

// --- What a piece is --------------------------------------------------------------------------------------------------

// The byte of an element that carries least is its highest one; the next element begins behind it. ret_bits: what one carries
// if each of its bytes is coded by itself.
static uint32_t find_head(const struct ckpt_sample *s, unsigned width, double *ret_bits)
{
	double bits[CKPT_PLANES_MAX], least, sum = 0;
	uint32_t head = 0;

	for (unsigned i = 0; i < width; i++) {
		bits[i] = ckpt_sample_bits(s->at + i, s->bytes - i, width);
		sum += MIN(bits[i], 8.0);
	}
	least = bits[width - 1] - SURE_BITS;
	for (unsigned i = 0; i + 1 < width; i++) {
		if (bits[i] < least) {
			least = bits[i];
			head = i + 1;
		}
	}
	*ret_bits = sum;
	return head;
}

// Of elements as they are and as floats, the two highest bytes: the others are the same. ret_base: for most of them.
static bool are_floats(const uint8_t *at, uint32_t count, unsigned width, uint8_t *ret_base)
{
	uint8_t apart[CKPT_PLANES_MAX][CKPT_SAMPLE_BYTES / 2], *planes[CKPT_PLANES_MAX];
	uint8_t most = 0;
	double bits[2];

	for (unsigned i = 0; i < width; i++)
		planes[i] = apart[i];
	for (unsigned floats = 0; floats < 2; floats++) {
		ckpt_split(at, count, width, floats, planes);
		bits[floats] =
			ckpt_sample_bits(apart[width - 1], count, 1) + ckpt_sample_bits(apart[width - 2], count, 1);
	}
	for (uint32_t i = 0; i < count; i++)
		most = MAX(most, apart[width - 1][i]);
	*ret_base = (uint8_t)(MIN(MAX(most + ABOVE_SAMPLE, NARROW_MAX), 255) - NARROW_MAX);
	return bits[1] < bits[0];
}

// Says what the elements carry, too.
static struct body guess(const uint8_t *plain, uint32_t bytes, unsigned width, double *ret_bits)
{
	struct body b = {.kind = INTEGERS, .width = width};
	struct ckpt_sample s;
	uint32_t count;

	ckpt_sample_take(plain, bytes, &s);
	*ret_bits = 8.0 * width;
	if (s.bytes >= 4 * width) {
		b.head = find_head(&s, width, ret_bits);
		count = (s.bytes - b.head) / width;
		b.kind = are_floats(s.at + b.head, count, width, &b.base) ? FLOATS : INTEGERS;
		if (b.kind == INTEGERS && *ret_bits > width * (ckpt_sample_bits(s.at, s.bytes, 1) - 0.01))
			b.width = 1;
	}
	if (b.width == 1)
		b.head = 0;
	set_count(&b, bytes);
	return b;
}

// Elements from all over and what stands for them in the base. Returns how many.
static uint32_t take_pairs(const struct body *b, const uint8_t *plain, const uint8_t *base, unsigned base_width,
			   uint8_t *ret_plain, uint8_t *ret_base)
{
	uint32_t apart = b->count / PAIR_PARTS, each = MIN(apart, PAIRS / PAIR_PARTS), n = 0;

	for (uint32_t i = 0; i < PAIR_PARTS; i++, n += each) {
		memcpy(ret_plain + (size_t)n * b->width, plain + b->head + (size_t)i * apart * b->width,
		       (size_t)each * b->width);
		memcpy(ret_base + (size_t)n * base_width, base + (size_t)i * apart * base_width,
		       (size_t)each * base_width);
	}
	return n;
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static bool is_scale(float scale)
{
	return scale >= 0x1p-64f && scale <= 0x1p64f; // and no NaN
}

// By what most of these fp32 grew or shrank; 1: they did not, or not all alike.
static float find_scale(const uint8_t *plain, const uint8_t *base, uint32_t count)
{
	float ratios[RATIOS], x, y;
	uint32_t n = 0;

	for (uint32_t i = 0; i < count && n < RATIOS; i += 1 + count / RATIOS) {
		memcpy(&x, plain + 4 * i, sizeof(x));
		memcpy(&y, base + 4 * i, sizeof(y));
		if (is_scale(x / y))
			ratios[n++] = x / y;
	}
	if (!n)
		return 1;
	qsort(ratios, n, sizeof(*ratios), by_size);
	return ratios[n / 2];
}

static double bits_of_differences(const struct ckpt_differ *d, const uint8_t *plain, const uint8_t *base,
				  uint32_t count)
{
	uint32_t differences[PAIRS];
	uint8_t classes[PAIRS], left[PAIRS];
	uint64_t bits;

	ckpt_differ(d, plain, base, count, differences);
	bits = ckpt_differ_classify(differences, count, classes, left);
	return ckpt_sample_bits(classes, count, 1) + (double)bits / count;
}

// b is what the elements are without a base; returns what one carries beside its base.
static double guess_differ(const struct body *b, const uint8_t *plain, struct ckpt_base base,
			   struct ckpt_differ *ret_differ)
{
	unsigned base_width = base.rounded ? 4 : b->width;
	uint8_t here[4 * PAIRS], there[4 * PAIRS];
	struct ckpt_differ d = {.width = b->width,
				.floats = b->kind == FLOATS && !base.rounded,
				.rounded = base.rounded},
			   scaled = d;
	uint32_t count = take_pairs(b, plain, base_from(b, base), base_width, here, there);
	double bits, bits_scaled;

	*ret_differ = d;
	if (!count)
		return 8.0 * b->width;
	bits = bits_of_differences(&d, here, there, count);
	if (!d.floats || d.width != 4)
		return bits;
	scaled.scaled = true;
	scaled.scale = find_scale(here, there, count);
	bits_scaled = bits_of_differences(&scaled, here, there, count);
	if (bits_scaled > bits - SURE_BITS / 2)
		return bits;
	*ret_differ = scaled;
	return bits_scaled;
}

// --- Gaps -------------------------------------------------------------------------------------------------------------

// The first bytes tell, mostly.
static bool is_zero(const uint8_t *at, uint32_t bytes)
{
	return !(bytes >= 8 && ckpt_get64(at)) && !at[0] && !memcmp(at, at + 1, bytes - 1);
}

// Returns how many bytes are left, in p->dense, or all of them where that is not worth it, or nothing would be left.
// ret_present: a bit for each group.
static uint32_t leave_gaps_out(struct ckpt_pieces *p, const uint8_t *plain, uint32_t bytes,
			       uint8_t ret_present[GROUPS / 8])
{
	uint32_t groups = groups_of(bytes), gaps = 0, left = 0;

	memset(ret_present, 0, GROUPS / 8);
	for (uint32_t i = 0; i < groups; i++) {
		uint32_t n = MIN(bytes - i * GROUP_BYTES, GROUP_BYTES);

		if (is_zero(plain + i * GROUP_BYTES, n))
			gaps++;
		else
			ret_present[i / 8] |= (uint8_t)(1u << i % 8);
	}
	if (gaps < 2 || gaps * GAPS_WORTH < groups || gaps == groups)
		return bytes;
	for (uint32_t i = 0; i < groups; i++) {
		uint32_t n = MIN(bytes - i * GROUP_BYTES, GROUP_BYTES);

		if (ret_present[i / 8] >> i % 8 & 1) {
			memcpy(p->dense + left, plain + i * GROUP_BYTES, n);
			left += n;
		}
	}
	return left;
}

static void put_gaps_back(const uint8_t *dense, const uint8_t *present, uint8_t *plain, uint32_t bytes)
{
	for (uint32_t i = 0; i < groups_of(bytes); i++) {
		uint32_t n = MIN(bytes - i * GROUP_BYTES, GROUP_BYTES);

		if (present[i / 8] >> i % 8 & 1) {
			memcpy(plain + i * GROUP_BYTES, dense, n);
			dense += n;
		} else {
			memset(plain + i * GROUP_BYTES, 0, n);
		}
	}
}

// How many bytes the groups have that are there; false: a bit is set behind the last one.
static bool count_present(const uint8_t *present, uint32_t bytes, uint32_t *ret_bytes)
{
	uint32_t groups = groups_of(bytes), sum = 0;

	for (uint32_t i = 0; i < groups; i++)
		if (present[i / 8] >> i % 8 & 1)
			sum += MIN(bytes - i * GROUP_BYTES, GROUP_BYTES);
	*ret_bytes = sum;
	return groups % 8 == 0 || !(present[groups / 8] >> groups % 8);
}

// --- Encode -----------------------------------------------------------------------------------------------------------

static int put_ends(const struct body *b, const uint8_t *plain, struct ckpt_output *out)
{
	int rc = ckpt_output_put(out, plain, b->head);

	return rc ? rc : ckpt_output_put(out, plain + b->head + (size_t)b->count * b->width, b->tail);
}

static unsigned form_of(const struct body *b, unsigned width)
{
	return b->kind | (b->width == width ? 0 : FORM_BYTES) | b->head << FORM_HEAD_SHIFT;
}

// Narrow with the base that the sample had, or the one that fits, or not at all.
static void split_floats(struct body *b, const uint8_t *plain, uint8_t *const planes[])
{
	if (b->width <= 4) {
		b->kind = NARROW;
		if (ckpt_split_narrow(plain, b->count, b->width, b->base, planes))
			return;
		ckpt_split(plain, b->count, b->width, true, planes);
		if (ckpt_narrow_base(planes[b->width - 1], b->count, &b->base)) {
			ckpt_split_narrow(plain, b->count, b->width, b->base, planes);
			return;
		}
		b->kind = FLOATS;
	}
	ckpt_split(plain, b->count, b->width, true, planes);
}

// present: of which groups plain is made; 0 bytes of it: of all.
static int encode_planes(struct ckpt_pieces *p, struct body *b, const uint8_t *plain, unsigned width,
			 const uint8_t *present, uint32_t present_bytes, struct ckpt_output *out)
{
	uint8_t *planes[CKPT_PLANES_MAX];
	int rc;

	set_planes(p, b->width, planes);
	if (b->kind == FLOATS)
		split_floats(b, plain + b->head, planes);
	else
		ckpt_split(plain + b->head, b->count, b->width, false, planes);
	rc = ckpt_output_put8(out, form_of(b, width) | (present_bytes ? FORM_GAPS : 0));
	if (!rc)
		rc = ckpt_output_put(out, present, present_bytes);
	if (!rc && b->kind == NARROW)
		rc = ckpt_output_put8(out, b->base);
	for (unsigned i = b->width; b->count && i-- && !rc;)
		rc = ckpt_plane_put(p->zstd, planes[i], b->count, out);
	return rc ? rc : put_ends(b, plain, out);
}

// Into p->planes the classes, into p->differences what is left of each, into p->dense how many bits. Returns how many of all.
static uint64_t find_differences(struct ckpt_pieces *p, const struct body *b, const uint8_t *plain, const uint8_t *base)
{
	if (ckpt_differ(&b->differ, plain + b->head, base, b->count, p->differences))
		return ckpt_differ_classify(p->differences, b->count, p->planes, p->dense);
	memset(p->planes, 0, b->count);
	return 0;
}

static int encode_differences(struct ckpt_pieces *p, const struct body *b, const uint8_t *plain, const uint8_t *base,
			      unsigned width, struct ckpt_output *out)
{
	uint64_t bits = find_differences(p, b, plain, base);
	uint32_t bytes = (uint32_t)((bits + 7) / 8);
	int rc;

	rc = ckpt_output_put8(out, form_of(b, width));
	if (!rc)
		rc = ckpt_output_put8(out, (b->differ.floats ? HOW_FLOATS : 0) | (b->differ.scaled ? HOW_SCALED : 0));
	if (!rc && b->differ.scaled)
		rc = ckpt_output_put(out, &b->differ.scale, sizeof(b->differ.scale));
	if (!rc)
		rc = ckpt_plane_put(p->zstd, p->planes, b->count, out);
	if (!rc)
		rc = ckpt_output_put(out, &bytes, sizeof(bytes));
	if (!rc && out->room < bytes + 8)
		rc = -ENOSPC;
	if (rc)
		return rc;
	if (bits)
		ckpt_differ_put_bits(p->differences, p->dense, b->count, out->at);
	out->at += bytes;
	out->room -= bytes;
	return put_ends(b, plain, out);
}

static int encode_piece(struct ckpt_pieces *p, const uint8_t *plain, uint32_t bytes, unsigned width,
			struct ckpt_base base, struct ckpt_output *out, bool *ret_based)
{
	uint8_t present[GROUPS / 8];
	uint32_t left = leave_gaps_out(p, plain, bytes, present);
	const uint8_t *dense = left == bytes ? plain : p->dense;
	double bits;
	struct body b = guess(dense, left, width, &bits), other = b;

	if (base.at && (width == 2 || width == 4)) {
		other.width = width;
		set_count(&other, bytes);
		if (guess_differ(&other, plain, base, &other.differ) * bytes < bits * left * WORTH_BASE) {
			other.kind = DIFFERENT;
			*ret_based = true;
			return encode_differences(p, &other, plain, base_from(&other, base), width, out);
		}
	}
	return encode_planes(p, &b, dense, width, present, left == bytes ? 0 : (groups_of(bytes) + 7) / 8, out);
}

int ckpt_pieces_encode(struct ckpt_pieces *p, const uint8_t *plain, uint32_t bytes, unsigned width,
		       struct ckpt_base base, uint8_t *out, uint32_t room, uint32_t *ret_bytes, bool *ret_based)
{
	struct ckpt_output to = {out, room};
	bool based = false;

	for (uint32_t at = 0; at < bytes; at += PIECE_BYTES) {
		int rc = encode_piece(p, plain + at, MIN(bytes - at, PIECE_BYTES), width, base_of_piece(base, at), &to,
				      &based);

		if (rc)
			return rc;
	}
	*ret_bytes = room - to.room;
	*ret_based = based;
	return 0;
}

// --- Decode -----------------------------------------------------------------------------------------------------------

static int take_ends(const struct body *b, struct ckpt_input *in, uint8_t *plain)
{
	const uint8_t *ends = ckpt_input_take(in, b->head + b->tail);

	if (!ends)
		return -EBADMSG;
	memcpy(plain, ends, b->head);
	memcpy(plain + b->head + (size_t)b->count * b->width, ends + b->head, b->tail);
	return 0;
}

static int decode_planes(struct ckpt_pieces *p, const struct body *b, struct ckpt_input *in, uint8_t *plain)
{
	const uint8_t *taken_off, *planes[CKPT_PLANES_MAX] = {0};
	uint8_t *room[CKPT_PLANES_MAX] = {0}, base = 0;

	if (b->kind == NARROW) {
		taken_off = ckpt_input_take(in, 1);
		if (!taken_off)
			return -EBADMSG;
		base = *taken_off;
	}
	set_planes(p, b->width, room);
	for (unsigned i = b->width; b->count && i--;) {
		int rc = ckpt_plane_take(p->zstd, in, b->count, room[i], room_from(p, room[i]), &planes[i]);

		if (rc)
			return rc;
	}
	if (b->count && b->kind == NARROW)
		ckpt_join_narrow(planes, b->count, b->width, base, plain + b->head);
	else if (b->count)
		ckpt_join(planes, b->count, b->width, b->kind == FLOATS, plain + b->head);
	return take_ends(b, in, plain);
}

static int take_how(const struct body *b, struct ckpt_input *in, bool rounded, struct ckpt_differ *ret_differ)
{
	const uint8_t *how = ckpt_input_take(in, 1), *scale;
	struct ckpt_differ d = {.width = b->width, .rounded = rounded};

	if (!how || *how & ~(HOW_FLOATS | HOW_SCALED))
		return -EBADMSG;
	d.floats = *how & HOW_FLOATS;
	d.scaled = *how & HOW_SCALED;
	if ((d.floats && rounded) || (d.scaled && (!d.floats || d.width != 4)))
		return -EBADMSG;
	if (d.scaled) {
		scale = ckpt_input_take(in, sizeof(d.scale));
		if (!scale)
			return -EBADMSG;
		memcpy(&d.scale, scale, sizeof(d.scale));
		if (!is_scale(d.scale))
			return -EBADMSG;
	}
	*ret_differ = d;
	return 0;
}

static int decode_differences(struct ckpt_pieces *p, const struct body *b, struct ckpt_input *in, struct ckpt_base base,
			      uint8_t *plain)
{
	const uint8_t *classes, *length, *bits;
	struct ckpt_differ d;
	int rc = take_how(b, in, base.rounded, &d);

	if (!rc)
		rc = b->count ? ckpt_plane_take(p->zstd, in, b->count, p->planes, sizeof(p->planes), &classes)
			      : -EBADMSG;
	if (rc)
		return rc;
	length = ckpt_input_take(in, sizeof(uint32_t));
	bits = length ? ckpt_input_take(in, ckpt_get32(length)) : NULL;
	if (!bits || !ckpt_differ_take_bits(classes, b->count, b->width, bits, ckpt_get32(length), p->differences))
		return -EBADMSG;
	ckpt_undiffer(&d, p->differences, base_from(b, base), b->count, plain + b->head);
	return take_ends(b, in, plain);
}

static int take_form(struct ckpt_input *in, unsigned width, struct ckpt_base base, struct body *ret_body,
		     bool *ret_gaps)
{
	const uint8_t *form = ckpt_input_take(in, 1);
	struct body b = {.width = width};

	if (!form || *form & ~(FORM_KIND | FORM_BYTES | FORM_GAPS | FORM_HEAD_MAX << FORM_HEAD_SHIFT))
		return -EBADMSG;
	b.kind = *form & FORM_KIND;
	b.head = *form >> FORM_HEAD_SHIFT;
	*ret_gaps = *form & FORM_GAPS;
	if (*form & FORM_BYTES)
		b.width = 1;
	if (b.head >= b.width || (b.width == 1 && b.kind != INTEGERS) || (b.kind == NARROW && b.width > 4))
		return -EBADMSG;
	if (b.kind == DIFFERENT && (!base.at || *ret_gaps || b.width > 4 || (base.rounded && b.width != 2)))
		return -EBADMSG;
	*ret_body = b;
	return 0;
}

static int decode_piece(struct ckpt_pieces *p, struct ckpt_input *in, unsigned width, struct ckpt_base base,
			uint8_t *plain, uint32_t bytes)
{
	const uint8_t *present = NULL;
	uint32_t left = bytes;
	struct body b;
	bool gaps;
	int rc = take_form(in, width, base, &b, &gaps);

	if (rc)
		return rc;
	if (gaps) {
		present = ckpt_input_take(in, (groups_of(bytes) + 7) / 8);
		if (!present || !count_present(present, bytes, &left))
			return -EBADMSG;
	}
	if (b.head > left)
		return -EBADMSG;
	set_count(&b, left);
	if (b.kind == DIFFERENT)
		return decode_differences(p, &b, in, base, plain);
	rc = decode_planes(p, &b, in, gaps ? p->dense : plain);
	if (!rc && gaps)
		put_gaps_back(p->dense, present, plain, bytes);
	return rc;
}

int ckpt_pieces_decode(struct ckpt_pieces *p, const uint8_t *stored, uint32_t stored_bytes, unsigned width,
		       struct ckpt_base base, uint8_t *plain, uint32_t bytes)
{
	struct ckpt_input in = {stored, stored_bytes};

	if (width != 2 && width != 4 && width != 8)
		return -EBADMSG;
	for (uint32_t at = 0; at < bytes; at += PIECE_BYTES) {
		int rc = decode_piece(p, &in, width, base_of_piece(base, at), plain + at, MIN(bytes - at, PIECE_BYTES));

		if (rc)
			return rc;
	}
	return in.left ? -EBADMSG : 0;
}

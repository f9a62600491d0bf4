// A piece with codecs is a row of stages: the first reads the source, each other one decodes what the one before gives. A stage
// is pulled: it gives some of the bytes that it is asked for, and none only at its end.
#include "core/array/decode.h"

#include "core/base/crc32c.h"
#include "core/base/util.h"
#include "core/codec/codec_blosc.h"
#include "core/codec/codec_lzf.h"
#include "core/codec/codec_zlib.h"
#include "core/codec/codec_zstd.h"

#include <sys/mman.h>

#define WINDOW_BYTES (128u << 10) // of a source that is read in small parts
#define WHOLE_MAPPED_MIN ((uint64_t)1 << 20)
#define INPUT_BYTES (64u << 10) // of a stage
#define ZSTD_WINDOW_BYTES (8u << 20)
#define SKIP_BYTES (64u << 10) // at once
#define SUM_BYTES 4

// Of what FLETCHER32 has given.
struct fletcher {
	uint32_t one, two;
	bool odd; // the last byte is the first half of a word
};

struct stage {
	enum ckpt_piece_codec codec; // RAW: the source
	struct stage *before;
	bool ended;
	// RAW: the place of what comes next, and its end.
	uint64_t at, end;
	// All others: bytes of the stage before.
	uint8_t *in;
	size_t in_at, in_len;
	struct ckpt_zstd_stream *zstd;
	bool between; // frames
	struct ckpt_inflate *inflate;
	uint32_t crc; // of what CRC32C has given
	struct fletcher fletcher;
	// SHUFFLE: all that the stage before gives, once it has, and how much of it was given. BLOSC, LZF: the same, decoded.
	uint8_t *planes;
	size_t planes_cap, planes_len, planes_at;
	bool loaded;
};

struct ckpt_decode {
	struct ckpt_source file; // of the piece's file, or of its own bytes
	const uint8_t *data;
	uint64_t *left; // the budget
	uint64_t offset, bytes, needed;
	struct stage stages[CKPT_PIECE_CODECS_MAX + 1];
	size_t count;      // of stages; 1: there are no codecs
	uint64_t position; // of the last stage
	bool verified;     // all was read to its end once
	uint8_t *whole;    // all that is needed
	uint8_t *window;   // without codecs
	uint64_t window_at;
	size_t window_len;
};

// --- Stages -----------------------------------------------------------------------------------------------------------------

static int pull(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len);

static int pull_raw(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	int rc;

	len = (size_t)MIN((uint64_t)len, s->end - s->at);
	rc = ckpt_source_read(&d->file, s->at, buf, len);
	if (rc)
		return rc == -EINVAL ? -EBADMSG : rc;
	s->at += len;
	*ret_len = len;
	return 0;
}

// False at the end of the stage before, or after an error, which is *ret_rc.
static bool fill(struct ckpt_decode *d, struct stage *s, int *ret_rc)
{
	if (s->in_at < s->in_len)
		return true;
	s->in_at = 0;
	*ret_rc = pull(d, s->before, s->in, INPUT_BYTES, &s->in_len);
	return !*ret_rc && s->in_len;
}

// Frames may follow each other.
static int pull_zstd(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	size_t left = len;
	int rc = 0;

	while (left) {
		bool more = fill(d, s, &rc);
		const uint8_t *in = s->in + s->in_at;
		size_t in_len = s->in_len - s->in_at, before = left;

		if (rc)
			return rc;
		if (!more && s->between)
			break;
		rc = ckpt_zstd_stream_decode(s->zstd, &in, &in_len, &buf, &left, &s->between);
		if (rc || (!more && left == before))
			return rc ? rc : -EBADMSG;
		s->in_at = s->in_len - in_len;
	}
	*ret_len = len - left;
	return 0;
}

static int pull_zlib(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	size_t left = len;
	int rc = 0;

	while (left && !s->ended) {
		bool more = fill(d, s, &rc);
		const uint8_t *in = s->in + s->in_at;
		size_t in_len = s->in_len - s->in_at, before = left;

		if (rc)
			return rc;
		rc = ckpt_inflate_decode(s->inflate, &in, &in_len, &buf, &left, &s->ended);
		if (rc || (!more && !s->ended && left == before))
			return rc ? rc : -EBADMSG;
		s->in_at = s->in_len - in_len;
	}
	*ret_len = len - left;
	return 0;
}

static uint32_t fold(uint32_t sum)
{
	return (sum & 0xffff) + (sum >> 16);
}

// HDF5's: words of two bytes, the first one the upper half, and sums modulo 65535 that are 0 for zeros only.
static void add_fletcher(struct fletcher *f, const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (f->odd) {
			f->one = fold(f->one + bytes[i]);
			f->two = fold(f->two + f->one);
		} else {
			f->one = fold(f->one + ((uint32_t)bytes[i] << 8));
		}
		f->odd = !f->odd;
	}
}

// A last half word counts as a word. Old writers on little-endian machines swapped the bytes of both halves.
static bool is_fletcher(const struct fletcher *f, uint32_t stored)
{
	uint32_t one = fold(f->one), two = fold(f->odd ? fold(f->two + f->one) : f->two), sum = two << 16 | one;

	return stored == sum || stored == ((sum & 0xff00ff) << 8 | (sum >> 8 & 0xff00ff));
}

// At the end what is left is the checksum.
static int end_sum(struct stage *s)
{
	uint32_t stored;

	s->ended = true;
	if (s->in_len - s->in_at != SUM_BYTES)
		return -EBADMSG;
	stored = ckpt_get32(s->in + s->in_at);
	return (s->codec == CKPT_PIECE_CRC32C ? stored == s->crc : is_fletcher(&s->fletcher, stored)) ? 0 : -EBADMSG;
}

// The last bytes are held back until more come.
static int pull_sum(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	size_t got;
	int rc;

	while (!s->ended && s->in_len - s->in_at <= SUM_BYTES) {
		s->in_len -= s->in_at;
		memmove(s->in, s->in + s->in_at, s->in_len);
		s->in_at = 0;
		rc = pull(d, s->before, s->in + s->in_len, INPUT_BYTES - s->in_len, &got);
		if (!rc && !got)
			rc = end_sum(s);
		if (rc)
			return rc;
		s->in_len += got;
	}
	if (s->ended)
		return 0;
	*ret_len = MIN(len, s->in_len - s->in_at - SUM_BYTES);
	memcpy(buf, s->in + s->in_at, *ret_len);
	if (s->codec == CKPT_PIECE_CRC32C)
		s->crc = ckpt_crc32c(s->crc, buf, *ret_len);
	else
		add_fletcher(&s->fletcher, buf, *ret_len);
	s->in_at += *ret_len;
	return 0;
}

static int load_planes(struct ckpt_decode *d, struct stage *s)
{
	void *planes = s->planes;
	int rc = 0;

	s->planes_len = 0;
	while (fill(d, s, &rc)) {
		size_t len = s->in_len - s->in_at;

		if (s->planes_len + len > CKPT_DECODE_SHUFFLE_MAX)
			return -EBADMSG;
		rc = ckpt_grow(&planes, &s->planes_cap, s->planes_len + len, 1);
		s->planes = planes;
		if (rc)
			return rc;
		memcpy(s->planes + s->planes_len, s->in + s->in_at, len);
		s->planes_len += len;
		s->in_at = s->in_len;
	}
	s->loaded = !rc;
	return rc;
}

// The first bytes of all elements stand in front of all second ones, and so on. Bytes behind the last element stay where they are.
static int pull_shuffle(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	unsigned width = ckpt_piece_shuffle_width(s->codec);
	int rc = s->loaded ? 0 : load_planes(d, s);
	size_t count = s->planes_len / width, element = s->planes_at / width;
	unsigned plane = (unsigned)(s->planes_at % width);

	if (rc)
		return rc;
	len = MIN(len, s->planes_len - s->planes_at);
	for (size_t i = 0; i < len; i++) {
		buf[i] = element < count ? s->planes[plane * count + element] : s->planes[s->planes_at + i];
		if (++plane == width) {
			plane = 0;
			element++;
		}
	}
	s->planes_at += len;
	*ret_len = len;
	return 0;
}

static int frame_bytes(const struct stage *s, size_t *ret_bytes)
{
	uint32_t bytes = 0;
	int rc;

	if (s->codec == CKPT_PIECE_LZF)
		return ckpt_lzf_bytes(s->planes, s->planes_len, CKPT_DECODE_SHUFFLE_MAX, ret_bytes);
	rc = ckpt_blosc_bytes(s->planes, s->planes_len, &bytes);
	*ret_bytes = bytes;
	return rc ? rc : bytes > CKPT_DECODE_SHUFFLE_MAX ? -ENOTSUP : 0;
}

static int load_frame(struct ckpt_decode *d, struct stage *s)
{
	CLEANUP_FREE uint8_t *plain = NULL;
	size_t bytes = 0;
	int rc = load_planes(d, s);

	s->loaded = false;
	if (!rc)
		rc = frame_bytes(s, &bytes);
	if (rc)
		return rc;
	plain = malloc(MAX(bytes, (size_t)1));
	if (!plain)
		return -ENOMEM;
	rc = s->codec == CKPT_PIECE_LZF ? ckpt_lzf_decode(s->planes, s->planes_len, plain, bytes)
					: ckpt_blosc_decode(s->planes, s->planes_len, plain, (uint32_t)bytes);
	if (rc)
		return rc;
	free(s->planes);
	s->planes = TAKE_PTR(plain);
	s->planes_cap = MAX(bytes, (size_t)1);
	s->planes_len = bytes;
	s->loaded = true;
	return 0;
}

static int pull_frame(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	int rc = s->loaded ? 0 : load_frame(d, s);

	if (rc)
		return rc;
	*ret_len = MIN(len, s->planes_len - s->planes_at);
	memcpy(buf, s->planes + s->planes_at, *ret_len);
	s->planes_at += *ret_len;
	return 0;
}

static int pull_from(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	switch (s->codec) {
	case CKPT_PIECE_RAW:
		return pull_raw(d, s, buf, len, ret_len);
	case CKPT_PIECE_ZSTD:
		return pull_zstd(d, s, buf, len, ret_len);
	case CKPT_PIECE_CRC32C:
	case CKPT_PIECE_FLETCHER32:
		return pull_sum(d, s, buf, len, ret_len);
	case CKPT_PIECE_SHUFFLE2:
	case CKPT_PIECE_SHUFFLE4:
	case CKPT_PIECE_SHUFFLE8:
	case CKPT_PIECE_SHUFFLE16:
		return pull_shuffle(d, s, buf, len, ret_len);
	case CKPT_PIECE_BLOSC:
	case CKPT_PIECE_LZF:
		return pull_frame(d, s, buf, len, ret_len);
	default:
		return pull_zlib(d, s, buf, len, ret_len);
	}
}

static int pull(struct ckpt_decode *d, struct stage *s, uint8_t *buf, size_t len, size_t *ret_len)
{
	int rc;

	*ret_len = 0;
	rc = pull_from(d, s, buf, len, ret_len);
	if (rc)
		*ret_len = 0;
	if (*ret_len > *d->left)
		return -EFBIG;
	*d->left -= *ret_len;
	return rc;
}

// --- From the beginning -----------------------------------------------------------------------------------------------------

static enum ckpt_inflate_form form_of(enum ckpt_piece_codec codec)
{
	return codec == CKPT_PIECE_GZIP   ? CKPT_INFLATE_GZIP
	       : codec == CKPT_PIECE_ZLIB ? CKPT_INFLATE_ZLIB
					  : CKPT_INFLATE_RAW;
}

static int open_stage(struct stage *s)
{
	switch (s->codec) {
	case CKPT_PIECE_CRC32C:
	case CKPT_PIECE_FLETCHER32:
	case CKPT_PIECE_SHUFFLE2:
	case CKPT_PIECE_SHUFFLE4:
	case CKPT_PIECE_SHUFFLE8:
	case CKPT_PIECE_SHUFFLE16:
	case CKPT_PIECE_LZF:
		break;
	case CKPT_PIECE_BLOSC:
		if (!ckpt_blosc_is_there())
			return -ENOTSUP;
		break;
	case CKPT_PIECE_ZSTD:
		if (ckpt_zstd_stream_new(&s->zstd))
			return -ENOMEM;
		break;
	case CKPT_PIECE_GZIP:
	case CKPT_PIECE_ZLIB:
	case CKPT_PIECE_DEFLATE:
		if (ckpt_inflate_new(form_of(s->codec), &s->inflate))
			return -ENOMEM;
		break;
	default:
		return -ENOTSUP;
	}
	s->in = malloc(INPUT_BYTES);
	return s->in ? 0 : -ENOMEM;
}

static void begin(struct ckpt_decode *d)
{
	d->position = 0;
	for (size_t i = 0; i < d->count; i++) {
		struct stage *s = &d->stages[i];

		s->at = d->offset;
		s->end = d->offset + d->bytes;
		s->in_at = s->in_len = 0;
		s->ended = false;
		s->between = true;
		s->crc = 0;
		s->fletcher = (struct fletcher){0};
		s->planes_at = 0;
		s->loaded = false;
		if (s->zstd)
			ckpt_zstd_stream_begin(s->zstd);
		if (s->inflate)
			ckpt_inflate_restart(s->inflate);
	}
}

static int pull_last(struct ckpt_decode *d, uint8_t *buf, size_t len, size_t *ret_len)
{
	int rc = pull(d, &d->stages[d->count - 1], buf, len, ret_len);

	d->position += *ret_len;
	return rc;
}

static int skip(struct ckpt_decode *d, uint64_t bytes)
{
	CLEANUP_FREE uint8_t *buf = bytes ? malloc(SKIP_BYTES) : NULL;
	size_t got;

	if (bytes && !buf)
		return -ENOMEM;
	while (bytes) {
		int rc = pull_last(d, buf, (size_t)MIN(bytes, (uint64_t)SKIP_BYTES), &got);

		if (rc || !got)
			return rc ? rc : -EBADMSG;
		bytes -= got;
	}
	return 0;
}

// Decodes the bytes after the last one that is needed: their checksums are compared on the way.
static int verify(struct ckpt_decode *d)
{
	CLEANUP_FREE uint8_t *buf = malloc(SKIP_BYTES);
	uint64_t left = CKPT_DECODE_REST_MAX;
	size_t got = 1;
	int rc = buf ? 0 : -ENOMEM;

	while (!rc && got && left > 0) {
		rc = pull_last(d, buf, SKIP_BYTES, &got);
		left -= MIN(left, (uint64_t)got);
	}
	d->verified = !rc;
	return rc;
}

static int decode_on(struct ckpt_decode *d, uint64_t offset, uint8_t *buf, size_t len)
{
	int rc = skip(d, offset - d->position);
	size_t got;

	if (rc)
		return rc;
	while (len) {
		rc = pull_last(d, buf, len, &got);
		if (rc || !got)
			return rc ? rc : -EBADMSG;
		buf += got;
		len -= got;
	}
	return d->position >= d->needed && !d->verified ? verify(d) : 0;
}

// After a failure nobody knows what the stages hold: the next call begins anew.
static int decode_to(struct ckpt_decode *d, uint64_t offset, uint8_t *buf, size_t len)
{
	int rc;

	if (offset < d->position)
		begin(d);
	rc = decode_on(d, offset, buf, len);
	if (rc)
		d->position = UINT64_MAX;
	return rc;
}

// --- Without codecs -----------------------------------------------------------------------------------------------------------

static int read_raw(struct ckpt_decode *d, uint64_t offset, void *buf, size_t len)
{
	int rc;

	if (len >= WINDOW_BYTES)
		return ckpt_source_read(&d->file, d->offset + offset, buf, len);
	if (!d->window && !(d->window = malloc(WINDOW_BYTES)))
		return -ENOMEM;
	if (offset < d->window_at || offset + len > d->window_at + d->window_len) {
		d->window_len = 0;
		rc = ckpt_source_read(&d->file, d->offset + offset, d->window,
				      (size_t)MIN(d->needed - offset, (uint64_t)WINDOW_BYTES));
		if (rc)
			return rc;
		d->window_at = offset;
		d->window_len = (size_t)MIN(d->needed - offset, (uint64_t)WINDOW_BYTES);
	}
	memcpy(buf, d->window + (offset - d->window_at), len);
	return 0;
}

// --- All ------------------------------------------------------------------------------------------------------------------------

static int read_data(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct ckpt_decode *d = arg;

	memcpy(buf, d->data + offset, len);
	return 0;
}

static int init(struct ckpt_decode *d, const struct ckpt_piece *piece)
{
	int rc = 0;

	for (size_t i = 0; i < CKPT_PIECE_CODECS_MAX && piece->codecs[i]; i++) {
		d->stages[d->count] = (struct stage){.codec = piece->codecs[i], .before = &d->stages[d->count - 1]};
		rc = open_stage(&d->stages[d->count++]);
		if (rc)
			return rc;
	}
	begin(d);
	return d->count == 1 && d->needed > d->bytes ? -EBADMSG : 0;
}

int ckpt_decode_new(const struct ckpt_source *file, const struct ckpt_piece *piece, uint64_t needed, uint64_t *left,
		    struct ckpt_decode **ret_decode)
{
	struct ckpt_decode *d = ckpt_calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->data = piece->data;
	d->file = d->data ? (struct ckpt_source){.bytes = piece->bytes, .read = read_data, .arg = d} : *file;
	d->offset = piece->offset;
	d->bytes = piece->bytes;
	d->needed = needed;
	d->left = left;
	d->count = 1;
	rc = init(d, piece);
	if (rc)
		ckpt_decode_free(d);
	else
		*ret_decode = d;
	return rc;
}

// Large ones are mapped: malloc() would keep them for the thread that freed them, and each thread of a program has such a heap.
static uint8_t *new_whole(const struct ckpt_decode *d)
{
	void *at;

	if (d->needed < WHOLE_MAPPED_MIN)
		return malloc((size_t)d->needed);
	at = mmap(NULL, (size_t)d->needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void free_whole(const struct ckpt_decode *d, uint8_t *whole)
{
	if (d->needed < WHOLE_MAPPED_MIN)
		free(whole);
	else if (whole)
		munmap(whole, (size_t)d->needed);
}

void ckpt_decode_free(struct ckpt_decode *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->count; i++) {
		ckpt_zstd_stream_free(d->stages[i].zstd);
		ckpt_inflate_free(d->stages[i].inflate);
		free(d->stages[i].in);
		free(d->stages[i].planes);
	}
	free_whole(d, d->whole);
	free(d->window);
	free(d);
}

int ckpt_decode_read(struct ckpt_decode *d, uint64_t offset, void *buf, size_t len)
{
	int rc = 0;

	if (!len)
		return 0;
	if (d->count == 1)
		return read_raw(d, offset, buf, len);
	if (d->needed > CKPT_DECODE_WHOLE_MAX)
		return decode_to(d, offset, buf, len);
	if (!d->whole) {
		uint8_t *whole = new_whole(d);

		rc = whole ? decode_to(d, 0, whole, (size_t)d->needed) : -ENOMEM;
		if (rc) {
			free_whole(d, whole);
			return rc;
		}
		d->whole = whole;
	}
	memcpy(buf, d->whole + offset, len);
	return 0;
}

size_t ckpt_decode_bytes(const struct ckpt_decode *d)
{
	size_t bytes = sizeof(*d) + WINDOW_BYTES + (d->count > 1 ? (size_t)MIN(d->needed, CKPT_DECODE_WHOLE_MAX) : 0);

	for (size_t i = 1; i < d->count; i++)
		bytes += INPUT_BYTES + d->stages[i].planes_cap +
			 (d->stages[i].zstd ? (size_t)ZSTD_WINDOW_BYTES : (size_t)64 << 10);
	return bytes;
}

uint64_t ckpt_decode_bytes_of(const struct ckpt_piece *piece, uint64_t needed)
{
	uint64_t bytes = sizeof(struct ckpt_decode) + WINDOW_BYTES;

	if (piece->codecs[0])
		bytes += MIN(needed, CKPT_DECODE_WHOLE_MAX);
	for (size_t i = 0; i < CKPT_PIECE_CODECS_MAX && piece->codecs[i]; i++) {
		uint8_t codec = piece->codecs[i];
		bool planes = codec == CKPT_PIECE_BLOSC || codec == CKPT_PIECE_LZF ||
			      (codec >= CKPT_PIECE_SHUFFLE2 && codec <= CKPT_PIECE_SHUFFLE16);

		// ckpt_grow() may have twice what is used.
		bytes += INPUT_BYTES + (planes ? 2 * MIN(needed, CKPT_DECODE_SHUFFLE_MAX) : 0) +
			 (codec == CKPT_PIECE_ZSTD ? (uint64_t)ZSTD_WINDOW_BYTES : UINT64_C(64) << 10);
	}
	return bytes;
}

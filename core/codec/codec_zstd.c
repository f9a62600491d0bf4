#include "core/codec/codec_zstd.h"

#include "core/base/util.h"

// For the literals: whether they are coded is one of the library's parameters that may still change.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#define BLOCK_BYTES_LOG 17    // zstd's largest block
#define FOREIGN_WINDOW_LOG 23 // of a frame that another program wrote
#define CKPT_ZSTD_HOWS 3

struct ckpt_zstd {
	ZSTD_CCtx *encoders[CKPT_ZSTD_HOWS];
	ZSTD_DCtx *decoder;
};

struct setting {
	ZSTD_cParameter parameter;
	int value;
};

static ZSTD_CCtx *new_encoder(const struct setting *settings, size_t count)
{
	ZSTD_CCtx *encoder = ZSTD_createCCtx();

	// One that a version of the library does not know costs room or time, no more.
	for (size_t i = 0; encoder && i < count; i++)
		(void)ZSTD_CCtx_setParameter(encoder, settings[i].parameter, settings[i].value);
	return encoder;
}

static ZSTD_CCtx *new_fast_encoder(void)
{
	static const struct setting settings[] = {{ZSTD_c_compressionLevel, 1}};

	return new_encoder(settings, ARRAY_LEN(settings));
}

// A step of a whole block between the places where a repeat is looked for: there is none.
static ZSTD_CCtx *new_entropy_encoder(void)
{
	static const struct setting settings[] = {
		{ZSTD_c_compressionLevel, 1},
		{ZSTD_c_windowLog, BLOCK_BYTES_LOG},
		{ZSTD_c_hashLog, ZSTD_HASHLOG_MIN},
		{ZSTD_c_chainLog, ZSTD_CHAINLOG_MIN},
		{ZSTD_c_minMatch, ZSTD_MINMATCH_MAX},
		{ZSTD_c_strategy, ZSTD_fast},
		{ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX},
		{ZSTD_c_literalCompressionMode, ZSTD_ps_enable},
	};

	return new_encoder(settings, ARRAY_LEN(settings));
}

static ZSTD_CCtx *new_repeats_encoder(void)
{
	static const struct setting settings[] = {
		{ZSTD_c_compressionLevel, 1},
		{ZSTD_c_literalCompressionMode, ZSTD_ps_disable},
	};

	return new_encoder(settings, ARRAY_LEN(settings));
}

int ckpt_zstd_new(struct ckpt_zstd **ret_zstd)
{
	struct ckpt_zstd *z = ckpt_calloc(1, sizeof(*z));

	if (!z)
		return -ENOMEM;
	z->encoders[CKPT_ZSTD_FAST] = new_fast_encoder();
	z->encoders[CKPT_ZSTD_ENTROPY] = new_entropy_encoder();
	z->encoders[CKPT_ZSTD_REPEATS] = new_repeats_encoder();
	z->decoder = ZSTD_createDCtx();
	for (unsigned i = 0; i < CKPT_ZSTD_HOWS; i++) {
		if (!z->encoders[i] || !z->decoder) {
			ckpt_zstd_free(z);
			return -ENOMEM;
		}
	}
	*ret_zstd = z;
	return 0;
}

void ckpt_zstd_free(struct ckpt_zstd *z)
{
	if (!z)
		return;
	for (unsigned i = 0; i < CKPT_ZSTD_HOWS; i++)
		ZSTD_freeCCtx(z->encoders[i]);
	ZSTD_freeDCtx(z->decoder);
	free(z);
}

int ckpt_zstd_encode(struct ckpt_zstd *z, enum ckpt_zstd_how how, const void *plain, uint32_t bytes, void *out,
		     uint32_t room, uint32_t *ret_bytes)
{
	size_t n = ZSTD_compress2(z->encoders[how], out, room, plain, bytes);

	if (ZSTD_isError(n))
		return ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -ENOSPC;
	*ret_bytes = (uint32_t)n;
	return 0;
}

// One-shot into a buffer of a size that our own record says: what the frame says of itself decides about no memory.
int ckpt_zstd_decode(struct ckpt_zstd *z, const void *stored, uint32_t stored_bytes, void *plain, uint32_t bytes,
		     uint32_t room)
{
	size_t n;

	if (ZSTD_getFrameContentSize(stored, stored_bytes) != bytes)
		return -EBADMSG;
	if (ZSTD_findFrameCompressedSize(stored, stored_bytes) != stored_bytes)
		return -EBADMSG;
	n = ZSTD_decompressDCtx(z->decoder, plain, room, stored, stored_bytes);
	if (ZSTD_isError(n) && ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		return -ENOMEM;
	return n == bytes ? 0 : -EBADMSG;
}

// --- Frames of others -------------------------------------------------------------------------------------------------

struct unpacking {
	ZSTD_DCtx *decoder;
	uint8_t *plain;
	size_t len, cap, max;
};

static int unpack_error(size_t n)
{
	switch (ZSTD_getErrorCode(n)) {
	case ZSTD_error_memory_allocation:
		return -ENOMEM;
	case ZSTD_error_frameParameter_windowTooLarge:
		return -EFBIG;
	default:
		return -EBADMSG;
	}
}

// The room doubles up to one byte more than the limit: that one shows that there are more.
static int unpack_all(struct unpacking *u, const void *stored, size_t stored_bytes)
{
	ZSTD_inBuffer in = {stored, stored_bytes, 0};
	size_t n = 1;
	int rc;

	while (n) {
		ZSTD_outBuffer out;
		size_t in_before = in.pos;

		rc = u->len == u->cap ? ckpt_grow((void **)&u->plain, &u->cap, MIN(u->len + 1, u->max + 1), 1) : 0;
		if (rc)
			return rc;
		out = (ZSTD_outBuffer){u->plain, MIN(u->cap, u->max + 1), u->len};
		n = ZSTD_decompressStream(u->decoder, &out, &in);
		if (ZSTD_isError(n))
			return unpack_error(n);
		if (out.pos > u->max)
			return -EFBIG;
		if (n && out.pos == u->len && in.pos == in_before)
			return -EBADMSG; // it ends in its midst
		u->len = out.pos;
	}
	return in.pos == in.size ? 0 : -EBADMSG;
}

// A frame that says how much it holds takes no window: the library decodes it in one piece.
static int unpack_known(struct unpacking *u, const void *stored, size_t stored_bytes, size_t bytes)
{
	size_t n;

	if (ZSTD_findFrameCompressedSize(stored, stored_bytes) != stored_bytes)
		return -EBADMSG;
	u->plain = malloc(bytes + 1);
	if (!u->plain)
		return -ENOMEM;
	n = ZSTD_decompressDCtx(u->decoder, u->plain, bytes, stored, stored_bytes);
	if (ZSTD_isError(n))
		return unpack_error(n);
	u->len = n;
	return 0;
}

int ckpt_zstd_unpack(const void *stored, size_t stored_bytes, size_t max, uint8_t **ret_plain, size_t *ret_bytes)
{
	unsigned long long says = ZSTD_getFrameContentSize(stored, stored_bytes);
	struct unpacking u = {.max = max};
	int rc;

	if (says == ZSTD_CONTENTSIZE_ERROR)
		return -EBADMSG;
	if (says != ZSTD_CONTENTSIZE_UNKNOWN && says > max)
		return -EFBIG;
	u.decoder = ZSTD_createDCtx();
	rc = u.decoder ? 0 : -ENOMEM;
	if (!rc && says != ZSTD_CONTENTSIZE_UNKNOWN)
		rc = unpack_known(&u, stored, stored_bytes, (size_t)says);
	else if (!rc && ZSTD_isError(ZSTD_DCtx_setParameter(u.decoder, ZSTD_d_windowLogMax, FOREIGN_WINDOW_LOG)))
		rc = -EBADMSG;
	else if (!rc)
		rc = unpack_all(&u, stored, stored_bytes);
	ZSTD_freeDCtx(u.decoder);
	if (rc) {
		free(u.plain);
		return rc;
	}
	*ret_plain = u.plain;
	*ret_bytes = u.len;
	return 0;
}

int ckpt_zstd_stream_new(struct ckpt_zstd_stream **ret_stream)
{
	ZSTD_DStream *s = ZSTD_createDStream();

	if (!s || ZSTD_isError(ZSTD_DCtx_setParameter(s, ZSTD_d_windowLogMax, FOREIGN_WINDOW_LOG))) {
		ZSTD_freeDStream(s);
		return -ENOMEM;
	}
	*ret_stream = (struct ckpt_zstd_stream *)s;
	return 0;
}

void ckpt_zstd_stream_free(struct ckpt_zstd_stream *s)
{
	ZSTD_freeDStream((ZSTD_DStream *)s);
}

void ckpt_zstd_stream_begin(struct ckpt_zstd_stream *s)
{
	(void)ZSTD_DCtx_reset((ZSTD_DStream *)s, ZSTD_reset_session_only);
}

int ckpt_zstd_stream_decode(struct ckpt_zstd_stream *s, const uint8_t **in, size_t *in_len, uint8_t **out,
			    size_t *out_len, bool *ret_whole)
{
	ZSTD_inBuffer from = {*in, *in_len, 0};
	ZSTD_outBuffer to = {*out, *out_len, 0};
	size_t n = ZSTD_decompressStream((ZSTD_DStream *)s, &to, &from);

	if (ZSTD_isError(n))
		return unpack_error(n) == -ENOMEM ? -ENOMEM : -EBADMSG;
	*in += from.pos;
	*in_len -= from.pos;
	*out += to.pos;
	*out_len -= to.pos;
	*ret_whole = !n;
	return 0;
}

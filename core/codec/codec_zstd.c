#include "core/codec/codec_zstd.h"

#include "core/base/util.h"

// For the literals: whether they are coded is one of the library's parameters that may still change.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#define BLOCK_BYTES_LOG 17 // zstd's largest block
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

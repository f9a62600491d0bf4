#include "core/codec/codec_blosc.h"

#include "core/base/util.h"

#ifdef CKPT_WITH_BLOSC

#include <blosc.h>

bool ckpt_blosc_is_there(void)
{
	return true;
}

// Of the header: version, version of the codec, flags, bytes of an element, and u32 each: bytes, bytes of a block, bytes of the frame.
int ckpt_blosc_bytes(const void *frame, size_t frame_bytes, uint32_t *ret_bytes)
{
	const uint8_t *header = frame;
	uint32_t bytes, block;

	if (frame_bytes < BLOSC_MIN_HEADER_LENGTH || header[0] != BLOSC_VERSION_FORMAT || !header[3] ||
	    ckpt_get32(header + 12) != frame_bytes)
		return -EBADMSG;
	bytes = ckpt_get32(header + 4);
	block = ckpt_get32(header + 8);
	if (bytes > INT32_MAX || block > INT32_MAX || (bytes && !block))
		return -EBADMSG;
	if (block > CKPT_BLOSC_BLOCK_MAX)
		return -ENOTSUP;
	*ret_bytes = bytes;
	return 0;
}

int ckpt_blosc_decode(const void *frame, size_t frame_bytes, void *plain, uint32_t bytes)
{
	size_t valid;

	if (blosc_cbuffer_validate(frame, frame_bytes, &valid) || valid != bytes)
		return -EBADMSG;
	return blosc_decompress_ctx(frame, plain, bytes, 1) == (int)bytes ? 0 : -EBADMSG;
}

#else

bool ckpt_blosc_is_there(void)
{
	return false;
}

int ckpt_blosc_bytes(const void *frame, size_t frame_bytes, uint32_t *ret_bytes)
{
	(void)frame;
	(void)frame_bytes;
	(void)ret_bytes;
	return -ENOTSUP;
}

int ckpt_blosc_decode(const void *frame, size_t frame_bytes, void *plain, uint32_t bytes)
{
	(void)frame;
	(void)frame_bytes;
	(void)plain;
	(void)bytes;
	return -ENOTSUP;
}

#endif

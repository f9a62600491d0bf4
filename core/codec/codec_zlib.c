#include "core/codec/codec_zlib.h"

#include "core/base/util.h"

#include <limits.h>
#include <zlib.h>

int ckpt_inflate_begin(const void *stored, size_t stored_bytes, void *plain, size_t room, size_t *ret_bytes)
{
	z_stream z = {
		.next_in = (Bytef *)stored,
		.avail_in = (uInt)MIN(stored_bytes, (size_t)UINT_MAX),
		.next_out = plain,
		.avail_out = (uInt)MIN(room, (size_t)UINT_MAX),
	};
	int result = inflateInit2(&z, -MAX_WBITS);

	if (result == Z_OK) {
		result = inflate(&z, Z_SYNC_FLUSH);
		inflateEnd(&z);
	}
	if (result == Z_MEM_ERROR)
		return -ENOMEM;
	if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
		return -EBADMSG;
	*ret_bytes = z.total_out;
	return 0;
}

struct ckpt_inflate {
	z_stream z;
};

// inflate's own words for the form.
static int window_bits(enum ckpt_inflate_form form)
{
	return form == CKPT_INFLATE_GZIP ? MAX_WBITS + 16 : form == CKPT_INFLATE_ZLIB ? MAX_WBITS : -MAX_WBITS;
}

int ckpt_inflate_new(enum ckpt_inflate_form form, struct ckpt_inflate **ret_inflate)
{
	struct ckpt_inflate *i = ckpt_calloc(1, sizeof(*i));

	if (!i || inflateInit2(&i->z, window_bits(form)) != Z_OK) {
		free(i);
		return -ENOMEM;
	}
	*ret_inflate = i;
	return 0;
}

void ckpt_inflate_free(struct ckpt_inflate *i)
{
	if (i)
		inflateEnd(&i->z);
	free(i);
}

void ckpt_inflate_restart(struct ckpt_inflate *i)
{
	(void)inflateReset(&i->z);
}

int ckpt_inflate_decode(struct ckpt_inflate *i, const uint8_t **in, size_t *in_len, uint8_t **out, size_t *out_len,
			bool *ret_ended)
{
	size_t in_now = MIN(*in_len, (size_t)UINT_MAX), out_now = MIN(*out_len, (size_t)UINT_MAX);
	int result;

	i->z.next_in = (Bytef *)*in;
	i->z.avail_in = (uInt)in_now;
	i->z.next_out = *out;
	i->z.avail_out = (uInt)out_now;
	result = inflate(&i->z, Z_NO_FLUSH);
	*in_len -= in_now - i->z.avail_in;
	*out_len -= out_now - i->z.avail_out;
	*in = i->z.next_in;
	*out = i->z.next_out;
	*ret_ended = result == Z_STREAM_END;
	return result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR ? 0
	       : result == Z_MEM_ERROR                                           ? -ENOMEM
										 : -EBADMSG;
}

uint32_t ckpt_crc32(uint32_t before, const void *bytes, size_t len)
{
	return (uint32_t)crc32_z(before, bytes, len);
}

uint32_t ckpt_crc32_join(uint32_t before, uint32_t behind, uint64_t len)
{
	return (uint32_t)crc32_combine(before, behind, (off_t)len);
}

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

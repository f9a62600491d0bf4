// deflate, as zips have it. The only part that knows zlib.
//
// Threads: any. Nothing blocks. Memory: some 40 KiB for the time of a call.
#pragma once

#include <stddef.h>

// The first bytes of what a raw stream of deflate (RFC 1951) holds, as many as the room takes and the stored bytes give, which need not be
// all of it. 0; -EBADMSG: it is damaged before that; -ENOMEM.
int ckpt_inflate_begin(const void *stored, size_t stored_bytes, void *plain, size_t room, size_t *ret_bytes);

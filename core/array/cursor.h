// A cursor over a part of a source, for formats that are read from front to back: it reads in windows and skips without reading.
//
// Calling sequence: ckpt_cursor_init(), then take, number, line and skip in any order, ckpt_cursor_done().
// Ownership: the cursor is the caller's, and so is the source, which outlives it. Threads: one. Blocks as the source does.
// Errors: -ENODATA the part ends first; -EFBIG more than read_max bytes would be read; -EINVAL a length that no file has;
// -ENOMEM; those of the source. After an error only ckpt_cursor_done() makes sense.
#pragma once

#include "core/base/source.h"

#define CKPT_CURSOR_WINDOW (64u << 10)
#define CKPT_CURSOR_WINDOW_MIN (4u << 10) // the first one, and the first behind a skip

struct ckpt_cursor {
	const struct ckpt_source *source;
	uint64_t at, end; // in the source: the next byte, and the end of the part
	// Of the cursor:
	uint64_t read, read_max;
	uint8_t *window;
	uint64_t window_at;
	size_t window_len;
	uint32_t want; // bytes of the window
};

// The bytes [begin, end) of the source, of which at most read_max are read. 0, -ENOMEM; -ENODATA: the source has fewer.
int ckpt_cursor_init(struct ckpt_cursor *c, const struct ckpt_source *s, uint64_t begin, uint64_t end,
		     uint64_t read_max);
void ckpt_cursor_done(struct ckpt_cursor *c); // also after a failed init

int ckpt_cursor_take(struct ckpt_cursor *c, void *buf, size_t len);
int ckpt_cursor_skip(struct ckpt_cursor *c, uint64_t bytes);
int ckpt_cursor_byte(struct ckpt_cursor *c, uint8_t *ret_byte);
// Little-endian, of 1 to 8 bytes.
int ckpt_cursor_number(struct ckpt_cursor *c, unsigned bytes, uint64_t *ret_number);
// Text up to a newline, which is taken too. A line of more than max bytes is -EINVAL. buf has max bytes, or is NULL.
int ckpt_cursor_line(struct ckpt_cursor *c, char *buf, size_t max, size_t *ret_len);

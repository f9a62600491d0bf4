// A zip file in a layout: stored members, whose bytes begin at multiples of 64 (PKWARE's APPNOTE.TXT, 4.3 and 4.5.3, zip64 included).
//
// Offsets count from the byte of the file at which ckpt_zip_begin() was called. Errors are the layout's.
#pragma once

#include "core/array/write_layout.h"

#define CKPT_ZIP_ALIGN 64

// A stored member, as its two headers say of it.
struct ckpt_zip_record {
	const char *name; // UINT16_MAX bytes at most
	size_t name_len;
	uint64_t header, bytes;
	uint32_t crc;
};

// The parts of a zip file, for who writes one without a layout. The local header ends at a multiple of align, 32 KiB at most.
void ckpt_zip_put_local(struct ckpt_buffer *b, const struct ckpt_zip_record *r, size_t align);
void ckpt_zip_put_entry(struct ckpt_buffer *b, const struct ckpt_zip_record *r); // of the directory
uint32_t ckpt_zip_crc(const void *bytes, size_t len);
void ckpt_zip_put_end(struct ckpt_buffer *b, size_t members, uint64_t directory, uint64_t directory_bytes);

struct ckpt_zip_writer {
	struct ckpt_layout *layout;
	uint64_t begin; // in the file
	struct ckpt_buffer directory;
	size_t *sums, count, cap; // of the members; 0: it is known
	size_t *sum_at, sum_cap;  // and where in the directory it is
};

void ckpt_zip_begin(struct ckpt_zip_writer *z, struct ckpt_layout *l);
// A member of text, and behind it the bytes of an array of the plan; CKPT_LAYOUT_TEXT: none.
void ckpt_zip_add(struct ckpt_zip_writer *z, const char *name, const void *text, size_t len, size_t array);
void ckpt_zip_end(struct ckpt_zip_writer *z); // and frees what it has

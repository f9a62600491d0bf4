// Zip files, as far as who reads checkpoints needs them: where the central directory is, which members it names, and where
// their bytes lie. Nothing is unpacked. The format is PKWARE's .ZIP File Format Specification (APPNOTE.TXT), 4.3 and 4.5.3,
// zip64 included; a file of several volumes is none here.
//
// Every byte is from outside: offsets and lengths are checked against the source before anything is read or allocated.
// Threads: any. Blocks as the source does. Errors: -EINVAL it is no zip file, or breaks a rule of them; -ENOMEM; those of
// the source.
#pragma once

#include "core/base/source.h"

#include <stdbool.h>

struct ckpt_zip {
	uint64_t directory, directory_bytes; // where it is in the source
	uint64_t members;                    // as many as it claims to have
};

struct ckpt_zip_member {
	const char *name; // of name_len bytes, of any kind, and not ended; of the caller of the walk
	size_t name_len;
	bool stored;     // its bytes are there as they are
	bool deflated;   // or compressed by that, and no more
	uint64_t header; // offset of its local header
	uint64_t bytes;  // that it takes in the file
	uint32_t crc;    // as the directory has it
	uint64_t unpacked;
};

// The central directory lies in front of its end record, and that ends the file.
int ckpt_zip_find(const struct ckpt_source *s, struct ckpt_zip *ret_zip);
// Where the last end record ends with its comment; bytes may follow that are none of the zip file's.
int ckpt_zip_last_end(const struct ckpt_source *s, uint64_t *ret_end);

// Calls fn for every member in the order of the directory, which is read whole; ends with what it answers unless 0. A
// directory of more than CKPT_ZIP_DIRECTORY_MAX bytes is refused, and one that has other members than it claims.
int ckpt_zip_each(const struct ckpt_source *s, const struct ckpt_zip *z,
		  int (*fn)(void *arg, const struct ckpt_zip_member *m), void *arg);

// Where the bytes of a member begin: its local header must have the same name, and say the same of how it is stored.
int ckpt_zip_data(const struct ckpt_source *s, const struct ckpt_zip_member *m, uint64_t *ret_offset);

// The container: the outer form of commit records and manifests. A header with version and feature bits, a table of
// sections, the sections, and a SHA-256 of all before it. FORMAT.md has every byte.
//
// What a reader does not know is decided here, once: a newer major version, an unknown required feature bit and an
// unknown required section are refused; unknown optional bits and sections are skipped.
//
// Calling sequence, reader: ckpt_container_parse(), then ckpt_container_find() for each section. Writer:
// ckpt_container_encode(). Ownership: a parsed container borrows the caller's bytes; encode returns malloc'ed ones.
// Threads: plain data. Nothing blocks. Errors: -EBADMSG damaged or hostile, -ENOTSUP newer, -EFBIG, -ENOMEM.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_CONTAINER_ALIGN 8u
#define CKPT_CONTAINER_HEADER_BYTES 40u
#define CKPT_CONTAINER_SECTION_BYTES 24u // one row of the section table
#define CKPT_CONTAINER_SECTIONS_MAX 64u
#define CKPT_CONTAINER_DIGEST_BYTES 32u

#define CKPT_FOURCC(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

// What this program knows of one kind of container.
struct ckpt_container_kind {
	char magic[8]; // not a string
	uint16_t major, minor;
	uint64_t required_known; // feature bits
	const uint32_t *types;   // the sections it can read
	size_t type_count;
	uint64_t bytes_max; // of a whole container
};

struct ckpt_container {
	const uint8_t *data;
	size_t len;
	uint16_t major, minor;
	uint64_t required, optional;
	uint32_t section_count;
};

struct ckpt_section {
	uint32_t type; // CKPT_FOURCC
	bool required;
	const void *data;
	size_t len;
};

// Checks the digest, then everything about header and section table; allocates nothing.
int ckpt_container_parse(const struct ckpt_container_kind *kind, const void *data, size_t len,
			 struct ckpt_container *ret_container);

// The section of this type; -ENOENT when there is none. Its data is aligned as the container's first byte is, up to 8.
int ckpt_container_find(const struct ckpt_container *c, uint32_t type, struct ckpt_section *ret_section);

// -EFBIG over kind->bytes_max, -ENOMEM. At most CKPT_CONTAINER_SECTIONS_MAX sections, each type once.
int ckpt_container_encode(const struct ckpt_container_kind *kind, uint64_t required, uint64_t optional,
			  const struct ckpt_section *sections, size_t count, void **ret_data, size_t *ret_len);

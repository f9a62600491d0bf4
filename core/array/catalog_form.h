// The form of a catalog as bytes, between catalog_encode.c and catalog_decode.c.
#pragma once

#include "core/array/catalog_encode.h"

// Another number when the form changes, and when readers learn what they had given a reason for: older catalogs are made anew then.
#define CKPT_CATALOG_FORM 2u
// Form 1 is form 2 without digests: it is still read.
#define CKPT_CATALOG_FORM_PLAIN 1u

// The header: then comes one frame of zstd.
enum { FORM_VERSION = 0, FORM_PLAIN = 4, FORM_HEAD = 8 };

// Of an array.
#define CKPT_FORM_BIG_ENDIAN 1u
#define CKPT_FORM_FILL 2u
#define CKPT_FORM_DIGEST 4u // not in form 1
#define CKPT_FORM_ARRAY_BITS 7u

// Of a piece: what is not as expected is said.
#define CKPT_FORM_FILE 1u     // another file than that of the piece before
#define CKPT_FORM_OFFSET 2u   // it does not begin at the end of the piece before
#define CKPT_FORM_BYTES 4u    // another length than that of the box's elements
#define CKPT_FORM_CODECS 8u   // some
#define CKPT_FORM_BOX 16u     // not the whole array
#define CKPT_FORM_STRIDES 32u // not in C order
#define CKPT_FORM_FIRST 64u   // not 0
#define CKPT_FORM_DATA 128u   // its bytes are here

// The piece before: at first there is none.
struct ckpt_form_place {
	uint64_t end; // in its file
	uint32_t file;
};

// The strides and bytes that a piece with this extent should have; bytes saturate.
uint64_t ckpt_form_expect(const struct ckpt_catalog_array *a, const uint64_t *extent, uint64_t *ret_strides);

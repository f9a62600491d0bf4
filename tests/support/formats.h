// Samples of the stored formats, damage done to them, and a walk over everything that a parsed manifest offers. For unit
// tests and fuzzers: what does not hold ends the process with assert().
#pragma once

#include "core/record/manifest.h"
#include "core/record/record.h"

#include <stddef.h>
#include <stdint.h>

#define CKPT_SAMPLE_STORE "5f0c3f6e-8f7b-4b43-9a52-0b1c5a7f6d10"
#define CKPT_SAMPLE_SESSION "01234567-89ab-4def-8123-456789abcdef"
#define CKPT_SAMPLE_SESSION_2 "00000000-0000-4000-8000-000000000001"

// With the step's directory alone in it, handle 0.
struct ckpt_manifest_writer *ckpt_sample_writer(void);

#define CKPT_SAMPLE_SHA256 ((const uint8_t *)"thirty-two bytes, as a hash has.")

// A small manifest with directories, an empty one too, files, a symlink, hard links that are sealed, attributes and two sessions.
void ckpt_sample_manifest(void **ret_data, size_t *ret_len);
// A summary with something in each field, of this name and version.
void ckpt_sample_summary(struct ckpt_summary *ret_summary, const char *name, uint32_t version);
// A record with metadata and an embedded manifest.
void ckpt_sample_record(void **ret_data, size_t *ret_len);

// Makes the length field and the digest of a container right again, so that what lies behind them is tested. Does
// nothing to what is too short for a container.
void ckpt_sample_reseal(void *data, size_t len);

// Visits every entry, name, attribute and path of a manifest, and looks each one up again.
void ckpt_walk_manifest(const struct ckpt_manifest *m);
// Parses a copy of the bytes and walks what parses; what parse() said.
int ckpt_try_manifest(const void *data, size_t len);
// The same for a record: it must decode, encode and decode to the same.
int ckpt_try_record(const void *data, size_t len);

// A repeatable random number below limit. *state starts as any number.
uint64_t ckpt_sample_random(uint64_t *state, uint64_t limit);
// Changes 1 to 4 bytes, or a 32-bit word to a telling value, or the length; the new length. data has room for cap bytes.
size_t ckpt_sample_mutate(uint64_t *state, uint8_t *data, size_t len, size_t cap);

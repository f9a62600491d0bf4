// Steps whose files are in packs, made in one call, and what is in packs/. What must not fail ends the test.
#pragma once

#include "tests/support/staged.h"

#include "core/cold/file.h"
#include "core/tier/cool.h"

#include <stddef.h>
#include <stdint.h>

// A committed and sealed step with a file "0", "1", ... for each text, with a reference.
struct ckpt_step *ckpt_packed_sealed(struct ckpt_store *s, const char *name, const char *const *texts, size_t count);
// The same of these texts, cooled, each chunk in a pack of its own where no pack has it.
#define ckpt_packed_step(s, name, ...)                                                                                 \
	ckpt_packed_cooled(s, name, (const char *const[]){__VA_ARGS__},                                                \
			   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))
struct ckpt_step *ckpt_packed_cooled(struct ckpt_store *s, const char *name, const char *const *texts, size_t count);
// The same, but what no pack has is in one.
#define ckpt_packed_together(s, name, ...)                                                                             \
	ckpt_packed_in_one(s, name, (const char *const[]){__VA_ARGS__},                                                \
			   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))
struct ckpt_step *ckpt_packed_in_one(struct ckpt_store *s, const char *name, const char *const *texts, size_t count);
struct ckpt_tier_done ckpt_packed_cool(struct ckpt_step *step);
// The file has just this text, wherever it is: 0, -errno.
int ckpt_packed_read(struct ckpt_step *step, const char *path, const char *text);

struct ckpt_file *ckpt_packed_open(struct ckpt_step *step, const char *path);
void ckpt_packed_check(struct ckpt_file *f, const char *text); // the same of an open file
// The pack in which the file is, as one chunk.
struct ckpt_pack ckpt_packed_place(struct ckpt_step *step, const char *path, struct ckpt_chunk *ret_chunk);
bool ckpt_packed_is_raw(struct ckpt_step *step, const char *path); // its raw file is there
bool ckpt_packed_is_there(struct ckpt_store *s, const struct ckpt_pack *pack);
void ckpt_packed_spoil(struct ckpt_store *s, const struct ckpt_pack *pack,
		       uint64_t at); // or mends it: one bit is changed

size_t ckpt_packed_count(struct ckpt_store *s); // packs
uint64_t ckpt_packs_bytes(struct ckpt_store *s);
void ckpt_packed_age(struct ckpt_store *s, int64_t seconds); // as if they were put so long ago

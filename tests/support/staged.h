// A step of a few files that a test makes and commits by hand, one call at a time; save.h has whole ones. What must not
// fail ends the test.
#pragma once

#include "core/save/commit.h"
#include "core/step/staging.h"
#include "core/step/store.h"

#include <stdint.h>

// A staged step in the root, of this process.
struct ckpt_step *ckpt_staged_begin(struct ckpt_store *s, const char *name);
// A new file with this text; its descriptor, open for reading and writing.
int ckpt_staged_put(struct ckpt_step *step, const char *path, const char *text);
// The same of array data: .npy of 8 bytes, each of them fill, of which the file has so many.
void ckpt_staged_put_array(struct ckpt_step *step, const char *path, char fill, size_t bytes);
// As if the reopened step had not been changed for an hour.
void ckpt_staged_quiet(struct ckpt_step *step);
// Marks a file of the committed step as rm -r does, which looks at the step first: by a process that is not known.
int ckpt_staged_remove(struct ckpt_step *step, const char *name);
// The file is open for writing by process 4711, until ckpt_stage_writer_remove(w).
void ckpt_staged_writer(struct ckpt_step *step, struct ckpt_writer *w, int fd);
void ckpt_staged_close_once(struct ckpt_writer *w); // by then a fork has it open, too

// A commit by the marker that waits for writers for 5 ms, without metadata.
extern const struct ckpt_commit ckpt_staged_plain;
// The same with another wait, and with metadata unless NULL. What ckpt_commit() says.
int ckpt_staged_commit(struct ckpt_step *step, int64_t writers_ns, const char *metadata);
// A committed step of one file, with a reference.
struct ckpt_step *ckpt_staged_one(struct ckpt_store *s, const char *name, const char *path, const char *text);
struct ckpt_manifest *ckpt_staged_manifest(struct ckpt_step *step); // of a committed step, with a reference
bool ckpt_staged_has(struct ckpt_step *step, const char *path);     // once it is committed
// The bytes of a file of a committed step, at most cap of them, wherever they are: how many, or -errno.
ssize_t ckpt_staged_read(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, void *buf, size_t cap);
// The committed step has a file of just this text.
void ckpt_staged_check(struct ckpt_step *step, const char *path, const char *text);

// The bytes of a file of a committed step, wherever they are: in its raw file, or as chunks in packs.
//
// Calling sequence: ckpt_file_open(), _read() from any place as often as wanted, _close().
// What was opened stays readable when the step is packed, warmed or deleted meanwhile: it is the same bytes, and their packs are
// not removed (gc.h) before it is closed.
// Ownership: a file holds its step and its manifest. Threads: any, several at once. Blocks on the disk or the store.
#pragma once

#include "core/base/extents.h"
#include "core/step/step.h"

#include <sys/types.h>

struct ckpt_file;

// Those that are open and read of packs; guarded by store->lock.
struct ckpt_packed_files {
	struct ckpt_file *first;
};
CKPT_PART(struct ckpt_store, struct ckpt_packed_files, ckpt_packed_files)

// The file with this index in m, the manifest of a version of step, which need not be the current one. -EIO: it is gone or is not
// what m says; ...
int ckpt_file_open(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_file **ret_file);
// The same file in another manifest of the step, whatever its name is there. -ENOENT: that has none.
int ckpt_file_find_same(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_manifest *other,
			uint32_t *ret_index);
// A manifest of the step that has the bytes of this file in packs: of the current version, or of an older one that garbage collection keeps.
// -ENOENT: none has. Blocks on the disk.
int ckpt_file_find_packed(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index,
			  struct ckpt_manifest **ret_manifest, uint32_t *ret_index);
void ckpt_file_close(struct ckpt_file *f); // NULL is fine

// All that is read of it from now on is read by a client, and counts (reading.h). Before anybody else has it. Blocks on the local disk.
void ckpt_file_watch(struct ckpt_file *f);

uint64_t ckpt_file_bytes(const struct ckpt_file *f); // of the file
// What the version says of it; its strings are there as long as it is open.
void ckpt_file_entry(const struct ckpt_file *f, struct ckpt_entry *ret_entry);
// The descriptor of the raw file, which ckpt_file_close() closes; -1: there is none.
int ckpt_file_fd(const struct ckpt_file *f);
// The same for the caller to close, and the rest is closed; -1: there is none, and nothing was done.
int ckpt_file_take_fd(struct ckpt_file *f);

// Up to len bytes from offset on; fewer only at the end of the file, or at that of a chunk. -EIO damaged: never wrong bytes.
ssize_t ckpt_file_read(struct ckpt_file *f, void *buf, size_t len, uint64_t offset);
// The bytes from offset on to the end of their chunk, where they lie in memory, until _view_done(), which is called once, maybe when
// the file is closed already, and told how many of them were used. Who has one asks for more of them at once only. len 0: the file
// ends there. -EXDEV: it has to be read; -EAGAIN: at once, without reading the store, it cannot be had; -EIO damaged.
struct ckpt_file_view {
	const uint8_t *data;
	size_t len;
	struct ckpt_chunk_cache *cache; // the rest is file.c's
	struct ckpt_cached *cached;
	struct ckpt_reading *reading;
	uint64_t offset;
};
int ckpt_file_view(struct ckpt_file *f, uint64_t offset, bool at_once, struct ckpt_file_view *ret_view);
void ckpt_file_view_done(struct ckpt_file_view *view, size_t used);
// What files are open that are in packs: their manifests, each with a reference, some more than once. 0, -ENOMEM. Free with
// ckpt_file_manifests_free().
int ckpt_file_manifests(struct ckpt_store *s, struct ckpt_manifest ***ret_manifests, size_t *ret_count);
// Whether another process, which has the store open for reading, has such files open now.
bool ckpt_file_others_read(struct ckpt_store *s);
void ckpt_file_manifests_free(struct ckpt_manifest **manifests, size_t count);

// All of it to the start of an empty file, in which what is zero becomes holes. kept: parts that are there already; NULL: none. -EIO: ...;
// -EINTR: go_on said no, after so many bytes more.
int ckpt_file_copy(struct ckpt_file *f, int fd, const struct ckpt_extents *kept,
		   bool (*go_on)(void *arg, uint64_t bytes), void *arg);

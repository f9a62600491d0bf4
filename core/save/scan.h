// One walk over a staged tree: the manifest of what is there, and what of it is not on disk yet.
//
// The walk takes and drops a read lease on every file: where anybody may still write one (a shared mapping, a
// descriptor that outlived its daemon), it ends with -EBUSY, after lease_until_ns. The caller has closed the gate before (stage.h), so that
// no writer comes after. Threads: one per scan. Blocks on the disk.
#pragma once

#include "core/save/pack_hold.h"
#include "core/step/step.h"

#include <sys/stat.h>

// A file whose writer is a fork's leftover: it is committed as a copy of its own, under the same name. The scan makes the
// copy, the caller puts it in place (copy.h).
struct ckpt_leftover {
	uint64_t ino;
	pid_t pid; // its writer
};

struct ckpt_unsynced {
	char *path;
	uint64_t ino;
	bool shared; // its data is on disk, the mark of sharing may not be (share.h)
};

struct ckpt_scan {
	struct ckpt_step *step;
	const struct ckpt_leftover *leftovers; // borrowed
	size_t leftover_count;
	const uint64_t *late; // borrowed: the files that come after the step, by number, which are expected (amend.h)
	size_t late_count;
	int64_t lease_until_ns; // monotonic: a lease that is refused is asked for again until then
	// Results.
	struct ckpt_manifest_writer *manifest;
	struct ckpt_pack_hold packs; // of files that are chunks of another step (share_chunks.h), until _done
	struct ckpt_unsynced *files; // not known to be on disk
	size_t file_count, file_cap;
	struct ckpt_unsynced *left_out; // files that join no step (left_out.h)
	size_t left_out_count, left_out_cap;
	struct ckpt_unsynced *dirs; // all directories, parents first; "." is the step's own
	size_t dir_count, dir_cap;
	uint64_t unsynced_bytes;
	struct statx root;
	char *blamed;       // the path that made it fail, or NULL
	bool blamed_xattrs; // -E2BIG is of its extended attributes
};

// Fill in step and leftovers, zero the rest. 0; -EBUSY a writer; -EIO a write of the file was lost before; -EINVAL
// -EILSEQ -ENAMETOOLONG a name that a step cannot have; -E2BIG too many files, too deep, too many attributes; -ENOSPC for
// a copy; ... After any result ckpt_scan_done.
int ckpt_scan_run(struct ckpt_scan *scan);
void ckpt_scan_done(struct ckpt_scan *scan);

// The user's extended attributes of what is open at fd, as those of this entry. -E2BIG, -ENOMEM ...
int ckpt_scan_xattrs(struct ckpt_manifest_writer *w, uint32_t handle, int fd);

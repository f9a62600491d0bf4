// Sealing: all bytes of a committed step are read once, and its next version says what they are, the SHA-256 of each file and
// of its chunks (chunk.h). From then on `ckptfs verify` can tell whether a byte has changed.
//
// A file that was read while its step was staged, and has not changed since (core/cold/closed.h), is not read again.
//
// The version that seals the last file has the catalog of the step's arrays, too (core/view/header_catalog.h), if all raw files are here.
//
// The files do not move and clients see no change. What an amend has left of a sealed version is not read again.
// Several files are read at once, and of one that is much larger than the others its two hashes are made at once. Each reader
// has 256 KiB of memory, and 64 bytes for each chunk.
// Threads: any; two that seal one step read it twice. Blocks on the disk for as long as the step takes to read.
#pragma once

#include "core/step/step.h"

#define CKPT_SEAL_XATTR "user.ckptfs.sha256" // of a file, 64 hex digits: read by name, in no list
struct ckpt_seal_how {
	// After each chunk, by who reads it, several threads at once: may sleep, or end the sealing by answering false. bytes: 0
	// where they are told when they are read for another hash, and while headers are read for the catalog. NULL: on and on.
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
	bool behind; // threads of their own read, which give way to all other work of the machine, and may be preempted for long: go_on
		// must hold no lock that others want
	unsigned
		readers; // at most, the caller's thread included; 0: as many as bytes and processors are worth, up to four
};

// 0: it is sealed. -EINTR: go_on said no; what was read by then may be sealed. -ESTALE the step is not committed (any more); -EBUSY
// it is reopened or being removed, try again; -EIO a file cannot be read or is not what was committed, or the outcome is unknown;
// ... Failures but the first three are in the error log, and the step is as it was, or some more of its files are sealed.
int ckpt_seal(struct ckpt_step *step, const struct ckpt_seal_how *how);

// The same of an older version (core/step/older.h), by its manifest; nothing is put, and nothing said. Its raw files may be removed meanwhile: -EIO.
int ckpt_seal_older(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_seal_how *how,
		    struct ckpt_manifest **ret_manifest);

// The SHA-256 of a file's bytes; false: it is not known, or e is no file.
bool ckpt_seal_sha256(const struct ckpt_manifest *m, const struct ckpt_entry *e, uint8_t ret_digest[CKPT_SHA256_LEN]);

// Sealing: all bytes of a committed step are read once, and its next version says what they are, the SHA-256 of each file and
// of its chunks. From then on `ckptfs verify` can tell whether a byte has changed.
//
// The files do not move and clients see no change. What an amend has left of a sealed version is not read again.
// Threads: any; two that seal one step read it twice. Blocks on the disk for as long as the step takes to read.
#pragma once

#include "core/step.h"

#define CKPT_SEAL_CHUNK_BYTES (4u << 20)     // all chunks of a file but the last
#define CKPT_SEAL_XATTR "user.ckptfs.sha256" // of a file, 64 hex digits: read by name, in no list
#define CKPT_EVENT_SEAL "seal"               // of its versions

struct ckpt_seal_how {
	// After each chunk, by who reads: may sleep, or end the sealing by answering false. NULL: on and on.
	bool (*go_on)(void *arg, uint64_t bytes);
	// Not NULL: a thread of its own reads, which gives way to all other work of the machine, and may be preempted for long: go_on
	// must hold no lock that others want. This is called by the caller's thread meanwhile, every 20 ms.
	void (*meanwhile)(void *arg);
	void *arg;
};

// 0: it is sealed. -EINTR: go_on said no; what was read by then may be sealed. -ESTALE the step is not committed (any more); -EBUSY
// it is reopened or being removed, try again; -EIO a file cannot be read or is not what was committed, or the outcome is unknown;
// ... Failures but the first three are in the error log, and the step is as it was, or some more of its files are sealed.
int ckpt_seal(struct ckpt_step *step, const struct ckpt_seal_how *how);

// The SHA-256 of a file's bytes; false: it is not known, or e is no file.
bool ckpt_seal_sha256(const struct ckpt_manifest *m, const struct ckpt_entry *e, uint8_t ret_digest[CKPT_SHA256_LEN]);

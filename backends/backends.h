// The backends and layers that there are, by name: for backends/schemes.c, and for tests, which stack them as they like.
#pragma once

#include "core/objects/objects.h"

// A directory as a store of objects. dirfd (borrowed during the call) is the store's directory; the backend keeps to
// the folders of the keys (log/, m/, packs/ ...) and tmp/ in it, which a writable open makes, and which must be on one filesystem
// (-EXDEV). writable: false never changes the disk and needs no right to; its changes answer -EROFS. Any number of
// processes may have one store open; what a dead one left in tmp/ goes at the next writable open that is alone. A writable open makes
// the spare files of spare.h there, if the disk has room.
// Symlinks and other things planted among the objects are listed with 0 bytes and answer -EIO; none is followed.
int ckpt_local_open(int dirfd, bool writable, struct ckpt_objects **ret_objects);
// Objects in memory, gone with the backend: a full peer for tests, and later a tier.
int ckpt_mem_new(struct ckpt_objects **ret_objects);

// Layers. Each takes ownership of the backend below, on success only.
// Fails operation n (1 is the next; puts, replaces, removes, syncs, gets, heads and lists count alike) with error; sticky: all
// from n on. half: a put or remove is carried out and its answer lost (-EIO).
struct ckpt_fault {
	_Atomic uint64_t at; // 0: never; may be set while others call
	int error;           // -errno
	bool sticky;
	bool half;
	uint64_t count; // operations seen so far, written by the layer
};
int ckpt_fault_new(struct ckpt_objects *below, struct ckpt_fault *fault, struct ckpt_objects **ret_objects);
// One line per call to fd: operation, key, bytes, result, microseconds.
int ckpt_trace_new(struct ckpt_objects *below, int fd, struct ckpt_objects **ret_objects);
// Makes again a call that failed and may succeed later, after a while (backoff.h), for at most a minute:
//
//   -EAGAIN               any call
//   -EIO, -ETIMEDOUT      get, get_ranges, head, list, remove; put only of packs/ and m/, whose names belong to one writer: what stands
//                         there then is its own, if it has the size
//   anything else         never
// A put of another key whose outcome is unknown goes up as it is: only its caller can tell its own object from another's.
int ckpt_retry_new(struct ckpt_objects *below, struct ckpt_objects **ret_objects);

// Object stores behind one table of functions, and the checked door that every call passes.
//
// A backend holds records, manifests and packs as objects under keys ("steps/1000/1", "m/<sha256>"): bytes with a size,
// an etag and a time. An object appears whole or not at all, and a reader sees one version of it. Data in the making
// and raw files are not here: they belong to core.
//
// Calling sequence: ckpt_backend_local_open() or another constructor, any calls, ckpt_backend_close(). Layers (fault,
// trace, later retry) are backends that own the one below and close it with themselves.
// Keys: two or three components separated by '/', 1 to CKPT_OBJECT_KEY_MAX bytes of printable ASCII in all; the first is
// "steps", "m", "packs", "gc" or "policy", the others 1 to CKPT_NAME_MAX bytes, not "." or "..". The door refuses others with
// -EINVAL before a backend sees them. No key may be the folder of another ("gc/a" and "gc/a/b"): what a backend does
// then is its own affair, short of losing an object.
// Durability: a put, replace or delete that returned 0 survives a power cut; so does the object over which a put
// returned -EEXIST, whoever put it, and the absence of one for which a remove returned -ENOENT, with all that there is beside it
// in its folder ("a/b" of "a/b/c"). -EIO from one of them
// means that the outcome is unknown: read again to learn it.
// Threads: all calls may be made from any thread at once. Every call may block on a disk or a network.
// Ownership: the caller owns what it passes in; nothing is kept.
#pragma once

#include "core/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_ETAG_MAX 80 // with the NUL

struct ckpt_object {
	uint64_t bytes;
	int64_t mtime_ns;         // the store's clock
	char etag[CKPT_ETAG_MAX]; // changes with the bytes; "" from list() where it would cost a read
};

struct ckpt_backend {
	const struct ckpt_backend_ops *ops;
};

// Called for each object in the byte order of the keys; a non-zero return ends the list and is its result.
typedef int ckpt_backend_list_fn(void *arg, const char *key, const struct ckpt_object *object);

// All but yield and refill are required. Errors: -ENOENT no such object; -EEXIST put over an object; -ESTALE the etag is another;
// -EFBIG beyond a limit; -EINVAL not a key; -ENOSPC, -EDQUOT, -EROFS, -EACCES, -ENOMEM as in errno(3); -EIO see above,
// and from reads: the store cannot say, or has something there that is no object.
struct ckpt_backend_ops {
	const char *name; // as `info` prints it: "local", "mem"; a layer adds its own: "fault(local)"

	// Up to len bytes from offset into buf; fewer only at the end of the object. Past the end: 0 bytes, no error.
	// ret_object (may be NULL) describes the version that the bytes are from.
	int (*get)(struct ckpt_backend *b, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		   struct ckpt_object *ret_object);
	int (*head)(struct ckpt_backend *b, const char *key, struct ckpt_object *ret_object);
	// Creates; -EEXIST when the key is taken. This is the commit primitive. frees: the object is the record of an act that
	// frees room, and succeeds on a full disk as long as the store has a reserve (spare.h).
	int (*put)(struct ckpt_backend *b, const char *key, const void *data, size_t len, bool frees,
		   struct ckpt_object *ret_object);
	// Compare-and-swap: replaces the version with this etag. At most CKPT_CAS_BYTES_MAX bytes.
	int (*replace)(struct ckpt_backend *b, const char *key, const char *etag, const void *data, size_t len,
		       struct ckpt_object *ret_object);
	// Deletes; with an etag (may be NULL) only that version, else -ESTALE.
	int (*remove)(struct ckpt_backend *b, const char *key, const char *etag);
	// All objects whose key starts with prefix ("" is all), after the key `after` (NULL or "": from the start).
	int (*list)(struct ckpt_backend *b, const char *prefix, const char *after, ckpt_backend_list_fn *fn, void *arg);
	// Optional. The disk is full, and the caller frees some: gives back a part of the reserve. False: there is none any more.
	bool (*yield)(struct ckpt_backend *b);
	// Optional. Room was freed: makes again what acts on a full disk have used of the reserve.
	void (*refill)(struct ckpt_backend *b);
	void (*close)(struct ckpt_backend *b);
};

// 0, or -EINVAL: not a key.
int ckpt_backend_key_check(const char *key);

// The checked door: asserts arguments that are ours to get right, refuses keys that are not keys, checks results
// against the contract above (a get of another length than asked, a list out of order, an errno outside the vocabulary
// become -EIO; -EPERM becomes -EACCES). A prefix or an `after` that no key can start with is -EINVAL.
int ckpt_backend_get(struct ckpt_backend *b, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object);
int ckpt_backend_head(struct ckpt_backend *b, const char *key, struct ckpt_object *ret_object);
int ckpt_backend_put(struct ckpt_backend *b, const char *key, const void *data, size_t len,
		     struct ckpt_object *ret_object);
int ckpt_backend_put_how(struct ckpt_backend *b, const char *key, const void *data, size_t len, bool frees,
			 struct ckpt_object *ret_object);
int ckpt_backend_replace(struct ckpt_backend *b, const char *key, const char *etag, const void *data, size_t len,
			 struct ckpt_object *ret_object);
bool ckpt_backend_yield(struct ckpt_backend *b);
void ckpt_backend_refill(struct ckpt_backend *b);
int ckpt_backend_remove(struct ckpt_backend *b, const char *key, const char *etag);
int ckpt_backend_list(struct ckpt_backend *b, const char *prefix, const char *after, ckpt_backend_list_fn *fn,
		      void *arg);
void ckpt_backend_close(struct ckpt_backend *b); // NULL is fine

// The whole object, at most bytes_max (-EFBIG beyond), malloc'ed, never NULL. A version that changes meanwhile is read
// again.
int ckpt_backend_get_all(struct ckpt_backend *b, const char *key, size_t bytes_max, void **ret_data, size_t *ret_len,
			 struct ckpt_object *ret_object);

// A directory as a store of objects. dirfd (borrowed during the call) is the store's directory; the backend keeps to
// the folders steps/, m/, packs/, gc/, policy/ and tmp/ in it, which a writable open makes, and which must be on one filesystem
// (-EXDEV). writable: false never changes the disk and needs no right to; its changes answer -EROFS. Any number of
// processes may have one store open; what a dead one left in tmp/ goes at the next writable open that is alone. A writable open makes
// the spare files of spare.h there, if the disk has room.
// Symlinks and other things planted among the objects are listed with 0 bytes and answer -EIO; none is followed.
int ckpt_backend_local_open(int dirfd, bool writable, struct ckpt_backend **ret_backend);
// Objects in memory, gone with the backend: a full peer for tests, and later a tier.
int ckpt_backend_mem_new(struct ckpt_backend **ret_backend);

// Layers. Each takes ownership of the backend below, on success only.
// Fails operation n (1 is the next; puts, replaces, removes, gets, heads and lists count alike) with error; sticky: all
// from n on. half: a put, replace or remove is carried out and its answer lost (-EIO).
struct ckpt_fault {
	uint64_t at; // 0: never
	int error;   // -errno
	bool sticky;
	bool half;
	uint64_t count; // operations seen so far, written by the layer
};
int ckpt_backend_fault_new(struct ckpt_backend *below, struct ckpt_fault *fault, struct ckpt_backend **ret_backend);
// One line per call to fd: operation, key, bytes, result, microseconds.
int ckpt_backend_trace_new(struct ckpt_backend *below, int fd, struct ckpt_backend **ret_backend);

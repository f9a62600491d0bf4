// Stores of objects behind one table of functions, and the checked door that every call passes.
//
// A store holds the entries of its log, manifests and packs as objects under keys ("log/0000000000000001", "m/<sha256>"): bytes with a size,
// an etag and a time. An object appears whole or not at all, and a reader sees one version of it. Data in the making
// and raw files are not here: they belong to other rooms of core.
//
// Calling sequence: ckpt_objects_open() (stack.h), any calls, ckpt_objects_close(). Backends implement the table
// (backends/backends.h). A layer is a backend that owns the one below, calls it through the door, and closes it with itself.
// Keys: two or three components separated by '/', 1 to CKPT_OBJECT_KEY_MAX bytes of printable ASCII in all; the first is
// "log", "snap", "m", "packs", "parts" or "probe", the others 1 to CKPT_NAME_MAX bytes, not "." or "..". The one key besides is
// CKPT_OBJECT_IDENTITY. The door refuses others with -EINVAL before a backend sees them. No key may be the folder of another ("parts/a" and "parts/a/b"): what a backend does
// then is its own affair, short of losing an object.
// Durability: a put or remove that returned 0 survives a power cut. An act of others, or a call of unknown
// outcome, survives it after a sync of its key.
// Threads: all calls may be made from any thread at once. Every call may block on a disk or a network.
// Ownership: the caller owns what it passes in; nothing is kept.
//
// How each operation is done:
//
//            a directory (local.c)                      memory (mem.c)    S3                     GCS
//   put      a file in tmp/, fsync, link(2), fsync       under a mutex     PUT, If-None-Match: *  generation 0
//   get      pread(2) of an open file                    a copy            GET, Range             the same
//   head     fstat(2)                                    a copy            HEAD                   the same
//   list     getdents(2), sorted                         in its order      LIST, page by page     the same
//   remove   unlink(2), fsync                            under a mutex     DELETE                 the same
//   sync     fsync(2) of the folders on the way          nothing           nothing                nothing
//
// A shared directory of several nodes is a directory: link(2) decides there, too.
#pragma once

#include "core/base/source.h"
#include "core/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_ETAG_MAX 80 // with the NUL
#define CKPT_OBJECTS_WHY_MAX 512
#define CKPT_OBJECT_IDENTITY "store.json" // of a store that is nothing but objects

struct ckpt_object {
	uint64_t bytes;
	int64_t mtime_ns;         // the store's clock; of S3 in whole seconds, and from a put up to some seconds off
	char etag[CKPT_ETAG_MAX]; // another one where an object of other bytes has taken the key
};

struct ckpt_objects {
	const struct ckpt_objects_ops *ops;
};

// A piece of an object, of several that are asked for together. They may overlap, and come in any order.
struct ckpt_range {
	uint64_t offset;
	size_t len;
	void *buf;  // takes len bytes
	size_t got; // is set, as ret_len of a get
};

// How long a call may go on. NULL, or zeros: as long as it takes.
struct ckpt_until {
	int64_t deadline_ns;   // monotonic; then -ETIMEDOUT; 0: none
	const bool *cancelled; // another thread sets it, atomically; then -ECANCELED soon; NULL: nobody
};

// Something that a store says of itself, or of the way to it, as a line for people. The texts are the backend's during the call.
enum ckpt_finding_verdict {
	CKPT_FINDING_OK,
	CKPT_FINDING_WARN, // the store can be used, with less than it could be, or at more cost
	CKPT_FINDING_FAIL,
};
struct ckpt_finding {
	const char *name; // a word: "versioning"
	enum ckpt_finding_verdict verdict;
	const char *detail; // no secret is in it
	const char *hint;   // what to do about it; NULL: nothing
};
typedef void ckpt_objects_finding_fn(void *arg, const struct ckpt_finding *finding);

// The acts that the keys may do there.
struct ckpt_rights {
	bool list, get, put, remove;
};

// Called for each object in the byte order of the keys; a non-zero return ends the list and is its result.
typedef int ckpt_objects_list_fn(void *arg, const char *key, const struct ckpt_object *object);

// All but get_ranges, put_from, sync, yield, refill, abort_uploads, describe and why are required. A backend behind a network ends each call by a deadline of its own.
// Errors:
//   -ENOENT, -EEXIST         no such object; put over an object
//   -ESTALE                  it changed meanwhile
//   -EINVAL, -EFBIG          not a key; beyond a limit
//   -ENOSPC, -EDQUOT, -EROFS, -EACCES, -ENOMEM  as in errno(3)
//   -EAGAIN                  the store was busy, and nothing was done: the same call may be made again
//   -ETIMEDOUT, -ECANCELED   it did not end in time, or was called off
//   -EIO                     anything else; from reads also: something stands there that is no object
// After the last three the outcome of a change is unknown: a get says it.
struct ckpt_objects_ops {
	const char *name; // as `info` prints it: "local", "mem"; a layer adds its own: "fault(local)"
	bool is_far;      // each answer takes long: callers with much to do have several calls under way

	// Up to len bytes from offset into buf; fewer only at the end of the object. Past the end: 0 bytes, no error.
	// ret_object (may be NULL) describes the version that the bytes are from.
	int (*get)(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		   struct ckpt_object *ret_object);
	// All ranges of one version (-ESTALE: it changed meanwhile), or an error, and then what the buffers have is without meaning.
	// NULL: the door asks for them one by one, those that are near each other together. A backend that waits
	// long for each answer asks for several at once.
	int (*get_ranges)(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			  const struct ckpt_until *until, struct ckpt_object *ret_object);
	int (*head)(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object);
	// Creates; -EEXIST when the key is taken. This is the commit primitive. frees: the object is the record of an act that
	// frees room, and succeeds on a full disk as long as the store has a reserve (spare.h).
	int (*put)(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		   struct ckpt_object *ret_object);
	// Optional. As put, of the bytes of a source. The backend reads them more than once, on any of its threads, several at a time,
	// and keeps a small part of them in memory. A SHA-256 that it has and that is not theirs: -EAGAIN. A source that fails ends the call with its error, or with -EIO. -ECANCELED, -ETIMEDOUT
	// by `until`. NULL: the door reads all of the source into memory and puts that.
	int (*put_from)(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
			const struct ckpt_until *until, struct ckpt_object *ret_object);
	// -ENOENT: there was none; a store that does not tell (S3) answers 0.
	int (*remove)(struct ckpt_objects *o, const char *key);
	// The object at the key, or its absence, survives a power cut, with all that is beside it in its folder ("a/b" of
	// "a/b/c"). NULL: each answer of this backend lasts anyway.
	int (*sync)(struct ckpt_objects *o, const char *key);
	// All objects whose key starts with prefix ("" is all), after the key `after` (NULL or "": from the start).
	int (*list)(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn, void *arg);
	// Optional. The disk is full, and the caller frees some: gives back a part of the reserve. False: there is none any more.
	bool (*yield)(struct ckpt_objects *o);
	// Optional. Room was freed: makes again what acts on a full disk have used of the reserve.
	void (*refill)(struct ckpt_objects *o);
	// Optional. Objects that were being put in parts, and that nobody puts any more, take room and are in no list: those that were begun
	// before this time by the store's clock are given up. *ret_count: so many. NULL: there are none.
	int (*abort_uploads)(struct ckpt_objects *o, int64_t before_ns, uint64_t *ret_count);
	// Optional. Asks the server, the keys and the bucket what they are, and tries each right below probe/, where nothing stays. Each request is
	// made once. 0: the other calls make sense; an error: fn was told why not. NULL: nothing is known, and every right may be there.
	int (*describe)(struct ckpt_objects *o, ckpt_objects_finding_fn *fn, void *arg, struct ckpt_rights *ret_rights);
	// Optional. The newest failure that the store, or the way to it, has told of: "PUT log/0000000000000001 at HOST: 403 AccessDenied:
	// ...", and what to do about it. No secret is in it. "": none yet.
	void (*why)(struct ckpt_objects *o, char ret_why[CKPT_OBJECTS_WHY_MAX]);
	void (*close)(struct ckpt_objects *o);
};

// 0, or -EINVAL: not a key.
int ckpt_objects_key_check(const char *key);

// The checked door: asserts arguments that are ours to get right, refuses keys that are not keys, checks results
// against the contract above (a get of another length than asked, a list out of order, an errno outside the vocabulary
// become -EIO; -EPERM becomes -EACCES). A prefix or an `after` that no key can start with is -EINVAL.
int ckpt_objects_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object);
int ckpt_objects_get_ranges(struct ckpt_objects *o, const char *key, struct ckpt_range *ranges, size_t count,
			    const struct ckpt_until *until, struct ckpt_object *ret_object);
int ckpt_objects_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object);
int ckpt_objects_put(struct ckpt_objects *o, const char *key, const void *data, size_t len,
		     struct ckpt_object *ret_object);
int ckpt_objects_put_how(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
			 struct ckpt_object *ret_object);
int ckpt_objects_put_from(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
			  const struct ckpt_until *until, struct ckpt_object *ret_object);
// After a put that was -EEXIST, of a name that belongs to one writer, as those of packs and manifests do: an object of so many bytes is there.
// -EAGAIN: none is, the store was wrong, and the put may be made again; -EIO: one of another size is; else as of head.
int ckpt_objects_confirm(struct ckpt_objects *o, const char *key, uint64_t bytes);
bool ckpt_objects_yield(struct ckpt_objects *o);
void ckpt_objects_refill(struct ckpt_objects *o);
int ckpt_objects_remove(struct ckpt_objects *o, const char *key);
int ckpt_objects_sync(struct ckpt_objects *o, const char *key);
int ckpt_objects_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg);
int ckpt_objects_abort_uploads(struct ckpt_objects *o, int64_t before_ns, uint64_t *ret_count);
int ckpt_objects_describe(struct ckpt_objects *o, ckpt_objects_finding_fn *fn, void *arg,
			  struct ckpt_rights *ret_rights);
// For messages, right after a call has failed: the cause in one line, or "". Of several threads that fail at once, any's.
void ckpt_objects_why(struct ckpt_objects *o, char ret_why[CKPT_OBJECTS_WHY_MAX]);
void ckpt_objects_close(struct ckpt_objects *o); // NULL is fine

// The whole object, at most bytes_max (-EFBIG beyond), malloc'ed, never NULL. A version that changes meanwhile is read
// again.
int ckpt_objects_get_all(struct ckpt_objects *o, const char *key, size_t bytes_max, void **ret_data, size_t *ret_len,
			 struct ckpt_object *ret_object);

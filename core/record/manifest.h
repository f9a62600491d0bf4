// A manifest: everything that one committed version of a step holds, in one immutable, searchable buffer.
//
// Entries are files, directories and symlinks. Entry 0 is the step's directory; the children of a directory are
// contiguous and sorted by name (memcmp), so that the encoded form is its own index: lookup is a binary search and
// readdir a loop, with nothing built in memory beside the buffer. FORMAT.md has every byte.
//
// Calling sequence, writer: ckpt_manifest_writer_new(), _add() for each entry with parents before children (any order
// among siblings), _finish(). Reader: ckpt_manifest_parse() checks *everything* once (sizes, sorting, names, cycles,
// counts, the trailing SHA-256); after it the accessors cannot fail and do no checks.
// Ownership: a manifest owns its buffer and is reference-counted; entries and their strings point into it and live as
// long as the reference. Threads: immutable, so any; a writer belongs to one thread. Nothing blocks, no I/O.
#pragma once

#include "core/base/hash.h"
#include "core/codec/codec.h"
#include "core/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ckpt_entry_type { CKPT_ENTRY_FILE = 1, CKPT_ENTRY_DIR = 2, CKPT_ENTRY_SYMLINK = 3 };

// The source of a file's bytes, the same on every node. Whether a raw file lies on this node is asked of the disk
// (ckpt_step_has_raw()).
enum ckpt_content {
	CKPT_CONTENT_NONE = 0,   // not a file, or an empty one
	CKPT_CONTENT_RAW = 1,    // the raw file in a session's directory, and nothing else
	CKPT_CONTENT_CHUNKS = 2, // the chunks of its seal, which are all in packs; a raw file may have them, too
};

struct ckpt_entry {
	enum ckpt_entry_type type;
	enum ckpt_content content;
	const char *name;                  // NUL-terminated; "" for entry 0
	const char *target;                // symlinks: NUL-terminated, else NULL
	const char *raw_path;              // with content: path in the session's directory; NULL: the entry's own path
	uint32_t session;                  // with content: index into the sessions
	uint32_t index;                    // of this entry
	uint32_t parent;                   // entry 0 is its own
	uint32_t child_first, child_count; // directories
	uint32_t mode;                     // permission bits and setuid, setgid, sticky; no type
	uint32_t uid, gid, nlink;
	uint64_t ino; // the file's own number, unique in the store; hard links share it
	uint64_t bytes;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint32_t xattrs; // index + 1 of the entry's set; 0: none
	bool conflict; // a conflict copy, with all below it: it is in no listing (core/save/merge.h). Of hard links each for itself
};

// A piece of a file's bytes, its name, which is their SHA-256, and where they are stored.
struct ckpt_chunk {
	uint8_t id[CKPT_SHA256_LEN];
	uint32_t bytes; // 1 to CKPT_CHUNK_BYTES_MAX
	uint32_t pack;  // row + 1 of the packs; 0: in none, and all below is zero
	uint64_t offset;
	struct ckpt_encoded how;
	uint32_t base,
		base_count; // what it is decoded beside: row + 1 of the first of its bases, and how many; 0: nothing
};

// An object of the store that holds chunks (pack.h).
struct ckpt_pack {
	uint8_t id[CKPT_SHA256_LEN]; // its name in packs/: random
	uint64_t bytes;
	uint8_t digest[CKPT_SHA256_LEN]; // of its content
};

// What the bytes of a file are, once somebody has read them all (seal.h).
struct ckpt_seal {
	uint8_t sha256[CKPT_SHA256_LEN]; // of the whole file
	uint32_t first, count;           // its chunks, one behind the other
};

struct ckpt_manifest;

// Features that a reader must know (required) or may skip (optional): FORMAT.md.
#define CKPT_MANIFEST_CHUNKS (UINT64_C(1) << 0)    // there are packs
#define CKPT_MANIFEST_DELTA (UINT64_C(1) << 2)     // some chunks have bases
#define CKPT_MANIFEST_CONFLICTS (UINT64_C(1) << 3) // some entries are conflict copies
#define CKPT_MANIFEST_REQUIRED_KNOWN (CKPT_MANIFEST_CHUNKS | CKPT_MANIFEST_DELTA | CKPT_MANIFEST_CONFLICTS)

// Checks and takes data (malloc'ed; freed on failure too). 0; -EBADMSG damaged or hostile; -ENOTSUP a newer format or
// an unknown required feature; -ENOMEM.
int ckpt_manifest_parse(void *data, size_t len, struct ckpt_manifest **ret_manifest);
struct ckpt_manifest *ckpt_manifest_ref(struct ckpt_manifest *m);
void ckpt_manifest_unref(struct ckpt_manifest *m);                              // NULL is fine
size_t ckpt_manifest_bytes(const struct ckpt_manifest *m);                      // what it costs in memory
const uint8_t *ckpt_manifest_sha256(const struct ckpt_manifest *m);             // of the whole encoded form, 32 bytes
const void *ckpt_manifest_data(const struct ckpt_manifest *m, size_t *ret_len); // the encoded form

uint32_t ckpt_manifest_count(const struct ckpt_manifest *m);                                        // entries
void ckpt_manifest_totals(const struct ckpt_manifest *m, uint64_t *ret_files, uint64_t *ret_bytes); // hard links once
void ckpt_manifest_entry(const struct ckpt_manifest *m, uint32_t index, struct ckpt_entry *ret_entry);
// The child of directory dir with this name; -ENOENT, -ENOTDIR.
int ckpt_manifest_child(const struct ckpt_manifest *m, uint32_t dir, const char *name, uint32_t *ret_index);
// By path from the root ("a/b", "" is entry 0); -ENOENT, -ENOTDIR.
int ckpt_manifest_lookup(const struct ckpt_manifest *m, const char *path, uint32_t *ret_index);
// The entry's path into buf; the length without NUL, or -ENAMETOOLONG.
int ckpt_manifest_path(const struct ckpt_manifest *m, uint32_t index, char *buf, size_t cap);
// The uuid (36 characters) of session i, which is named by entries with content; NULL past the last.
const char *ckpt_manifest_session(const struct ckpt_manifest *m, uint32_t i);
// Some entry is a conflict copy.
bool ckpt_manifest_has_conflicts(const struct ckpt_manifest *m);
// The entry is a conflict copy, or is in one.
bool ckpt_manifest_in_conflict(const struct ckpt_manifest *m, uint32_t index);
// The i-th extended attribute of an entry; false past the last.
bool ckpt_manifest_xattr(const struct ckpt_manifest *m, const struct ckpt_entry *entry, uint32_t i,
			 const char **ret_name, const void **ret_value, size_t *ret_len);

// They name the same files, in the same places with the same attributes; what is known of the bytes, and where they are, may
// differ.
bool ckpt_manifest_same_entries(const struct ckpt_manifest *a, const struct ckpt_manifest *b);
// The first of an entry's hard links, which may be itself.
uint32_t ckpt_manifest_first_link(const struct ckpt_manifest *m, uint32_t index);
// The first entry with this number; -ENOENT.
int ckpt_manifest_find_ino(const struct ckpt_manifest *m, uint64_t ino, uint32_t *ret_index);
// The seal of a file with bytes, the same for its hard links; false: it has none.
bool ckpt_manifest_seal(const struct ckpt_manifest *m, uint32_t index, struct ckpt_seal *ret_seal);
uint32_t ckpt_manifest_chunk_count(const struct ckpt_manifest *m);
void ckpt_manifest_chunk(const struct ckpt_manifest *m, uint32_t chunk, struct ckpt_chunk *ret_chunk);
// A chunk that another is decoded beside, wherever it is and whether or not a file has it: there is always a pack. The plain
// bytes of a chunk's bases, one behind the other, are as many as ckpt_codec_base_bytes() says.
void ckpt_manifest_base(const struct ckpt_manifest *m, uint32_t base, struct ckpt_chunk *ret_chunk);
bool ckpt_manifest_is_sealed(const struct ckpt_manifest *m); // every file with bytes has a seal
bool ckpt_manifest_is_packed(const struct ckpt_manifest *m); // some file has the content chunks
uint32_t ckpt_manifest_pack_count(const struct ckpt_manifest *m);
void ckpt_manifest_pack(const struct ckpt_manifest *m, uint32_t pack, struct ckpt_pack *ret_pack);
// The catalog of the arrays of these files, as bytes that nobody has checked (core/array/catalog_encode.h); false: it has none.
bool ckpt_manifest_catalog(const struct ckpt_manifest *m, const void **ret_bytes, size_t *ret_len);

struct ckpt_manifest_writer;

int ckpt_manifest_writer_new(struct ckpt_manifest_writer **ret_writer); // 0, -ENOMEM
void ckpt_manifest_writer_free(struct ckpt_manifest_writer *w);         // NULL is fine
int ckpt_manifest_writer_session(struct ckpt_manifest_writer *w, const char *uuid, uint32_t *ret_index);
// Adds an entry under parent (a handle returned by an earlier add; entry 0 is added first, with name "" and its own
// parent). Reads from entry: type, content, name, target, raw_path, session, mode, uid, gid, nlink, ino, bytes, mtime, conflict.
// The strings are copied. ino must not be 0. Entries with one ino are hard links: finish() counts nlink itself and gives
// all of them the attributes of the first, for two stat calls may see a file differently. 0; -EINVAL, -EILSEQ, -ENAMETOOLONG as ckpt_name_check; -E2BIG too many or too deep; -ENOMEM.
int ckpt_manifest_writer_add(struct ckpt_manifest_writer *w, uint32_t parent, const struct ckpt_entry *entry,
			     uint32_t *ret_handle);
int ckpt_manifest_writer_xattr(struct ckpt_manifest_writer *w, uint32_t handle, const char *name, const void *value,
			       size_t len);
// Seals a file with bytes, whose chunks follow, each by a call of _chunk, before anything else is sealed. A file with hard links
// may be sealed by any of its names, by several the same. A file whose content is chunks must be; one that is raw gets the content
// chunks where all of its chunks are in packs. 0; -EINVAL, -ENOMEM.
int ckpt_manifest_writer_seal(struct ckpt_manifest_writer *w, uint32_t handle, const uint8_t sha256[CKPT_SHA256_LEN]);
int ckpt_manifest_writer_chunk(struct ckpt_manifest_writer *w, const struct ckpt_chunk *chunk);
// What a chunk, or a base, names as its bases afterwards. Those that have bases themselves name rows that were given before.
// 0; -EINVAL they are too many, too deep, or not so many bytes as they need; -ENOMEM.
int ckpt_manifest_writer_bases(struct ckpt_manifest_writer *w, const struct ckpt_chunk *bases, uint32_t count,
			       uint32_t *ret_base);
// Chunks name their pack afterwards by the row + 1 in w. The same id again is the same pack, with the same length and digest. 0, -EINVAL, -ENOMEM.
int ckpt_manifest_writer_pack(struct ckpt_manifest_writer *w, const struct ckpt_pack *pack, uint32_t *ret_pack);
// All of it, as another manifest has it. The file's size must be the same.
int ckpt_manifest_writer_copy_seal(struct ckpt_manifest_writer *w, uint32_t handle, const struct ckpt_manifest *from,
				   const struct ckpt_seal *seal);
// The catalog of the arrays of these files: bytes, which are copied. It is left out where the manifest would be too large with it. 0, -ENOMEM.
int ckpt_manifest_writer_catalog(struct ckpt_manifest_writer *w, const void *bytes, size_t len);
// Encodes; the same entries give the same bytes in whatever order they came. -EEXIST: two children of one directory, or
// two attributes of one entry, with one name; -EINVAL: one ino for different things, or chunks that are not the file's bytes;
// -E2BIG, -ENOMEM. The writer is spent and only good for _free.
int ckpt_manifest_writer_finish(struct ckpt_manifest_writer *w, void **ret_data, size_t *ret_len);

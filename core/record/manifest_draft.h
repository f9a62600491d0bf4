// A manifest as its writer has it in memory, before it is laid out. For manifest_writer.c, which collects, and
// manifest_encode.c, which lays out, alone.
#pragma once

#include "core/record/manifest_layout.h"

struct ckpt_draft_item {
	uint8_t type, content;
	uint16_t name_len;
	bool conflict;
	uint32_t name, extra, extra_len; // in text; extra: target or raw path
	uint32_t parent, depth, session;
	uint32_t mode, uid, gid, nlink, mtime_ns;
	uint32_t xattr_bytes;
	uint64_t ino, bytes;
	int64_t mtime_s;
	// Set by finish().
	uint32_t index; // place in the encoded table
	uint32_t child_first, child_count;
	uint32_t xattrs; // set + 1
	uint32_t seal;   // + 1; of hard links the first alone has it
	bool first_link;
	uint64_t sort_key; // first bytes of the name, big-endian
};

struct ckpt_draft_xattr {
	uint32_t handle, name, name_len, value, value_len;
};

struct ckpt_draft_seal {
	uint8_t sha256[CKPT_SHA256_LEN];
	uint32_t first, count;
	uint64_t bytes;
};

struct ckpt_manifest_writer {
	struct ckpt_draft_item *items;
	struct ckpt_draft_xattr *xattrs;
	struct ckpt_draft_seal *seals;
	struct ckpt_chunk *chunks;
	struct ckpt_pack *packs;
	struct ckpt_chunk *bases;
	char (*sessions)[SESSION_BYTES];
	char *text;
	size_t item_count, item_cap, xattr_count, xattr_cap, session_count, session_cap, text_len, text_cap;
	size_t seal_count, seal_cap, chunk_count, chunk_cap, pack_count, pack_cap, base_count, base_cap;
	size_t pack_last; // that was asked for
	void *catalog;
	size_t catalog_len;
	bool spent;
};

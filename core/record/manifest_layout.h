// The bytes of a manifest, for its reader and its writer only. FORMAT.md explains them.
//
// manifest := container("ckpt-man") { entries inodes sessions xattr-sets xattrs strings [seals chunks [packs [bases]]] [catalog] }
#pragma once

#include "core/record/container.h"
#include "core/record/manifest.h"

#define CKPT_MANIFEST_MAGIC                                                                                            \
	{                                                                                                              \
		'c', 'k', 'p', 't', '-', 'm', 'a', 'n'                                                                 \
	}
#define CKPT_MANIFEST_MAJOR 1
#define CKPT_MANIFEST_MINOR 0

#define CKPT_SECTION_ENTRIES CKPT_FOURCC('E', 'N', 'T', 'R')
#define CKPT_SECTION_INODES CKPT_FOURCC('I', 'N', 'O', 'S')
#define CKPT_SECTION_SESSIONS CKPT_FOURCC('S', 'E', 'S', 'S')
#define CKPT_SECTION_XATTR_SETS CKPT_FOURCC('X', 'S', 'E', 'T')
#define CKPT_SECTION_XATTRS CKPT_FOURCC('X', 'A', 'T', 'R')
#define CKPT_SECTION_STRINGS CKPT_FOURCC('S', 'T', 'R', 'S')
#define CKPT_SECTION_SEALS CKPT_FOURCC('S', 'E', 'A', 'L')
#define CKPT_SECTION_CHUNKS CKPT_FOURCC('C', 'H', 'N', 'K')
#define CKPT_SECTION_PACKS CKPT_FOURCC('P', 'A', 'C', 'K')
#define CKPT_SECTION_BASES CKPT_FOURCC('B', 'A', 'S', 'E')
#define CKPT_SECTION_CATALOG CKPT_FOURCC('C', 'T', 'L', 'G')

// One entry. A and B: first child and count (directory); session and raw path, 0 is the own path (file with bytes); target and 0
// (symlink).
enum {
	ENTRY_TYPE = 0,
	ENTRY_CONTENT = 1,
	ENTRY_NAME_LEN = 2,
	ENTRY_NAME = 4,
	ENTRY_PARENT = 8,
	ENTRY_A = 12,
	ENTRY_B = 16,
	ENTRY_MODE = 20,
	ENTRY_UID = 24,
	ENTRY_GID = 28,
	ENTRY_NLINK = 32,
	ENTRY_MTIME_NS = 36,
	ENTRY_INO = 40,
	ENTRY_SIZE = 48,
	ENTRY_MTIME_S = 56,
	ENTRY_XATTRS = 64,
	ENTRY_FLAGS = 68,
	ENTRY_BYTES = 72,
};
#define CKPT_ENTRY_CONFLICT 1u // of the flags

enum { SESSION_BYTES = 40 }; // 36 characters and 4 NUL

enum { XSET_FIRST = 0, XSET_COUNT = 4, XSET_BYTES = 8 };

enum {
	XATTR_NAME = 0,
	XATTR_VALUE = 4,
	XATTR_VALUE_LEN = 8,
	XATTR_NAME_LEN = 12,
	XATTR_ZERO = 14,
	XATTR_BYTES = 16,
};

enum {
	SEAL_SHA256 = 0,
	SEAL_ENTRY = 32,
	SEAL_FIRST = 36,
	SEAL_COUNT = 40,
	SEAL_ZERO = 44,
	SEAL_BYTES = 48,
};

// What is between the length and the pack is zero as long as the chunk is in no pack. A base has such a row, too.
enum {
	CHUNK_ID = 0,
	CHUNK_OFFSET = 32,
	CHUNK_LEN = 40,
	CHUNK_STORED = 44,
	CHUNK_PACK = 48,
	CHUNK_BASE = 52,
	CHUNK_CODEC = 56,
	CHUNK_WIDTH = 58,
	CHUNK_ZERO = 60,
	CHUNK_BYTES = 64,
};
#define CHUNK_NO_PACK UINT32_MAX

enum {
	PACK_ID = 0,
	PACK_LEN = 32,
	PACK_ZERO = 40,
	PACK_DIGEST = 48,
	PACK_BYTES = 80,
};

#define CKPT_XATTR_NAME_MAX 255
#define CKPT_SYMLINK_MAX 4095
#define CKPT_MANIFEST_RAW_PATH_MAX ((CKPT_DEPTH_MAX + 1) * (CKPT_NAME_MAX + 1))

// Directories are at most CKPT_DEPTH_MAX levels below the step's; their files one more.
static inline bool ckpt_manifest_depth_ok(uint32_t depth, uint8_t type)
{
	return depth <= CKPT_DEPTH_MAX + (type == CKPT_ENTRY_DIR ? 0u : 1u);
}

extern const struct ckpt_container_kind ckpt_manifest_kind;

// A path relative to a session's directory: valid components, no more of them than a step has levels.
bool ckpt_manifest_raw_path_ok(const char *path, size_t len);

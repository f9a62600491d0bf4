// Array data: whether a file holds the arrays of a checkpoint, or is something beside them (configuration, text, a log).
//
// A file is array data if one of these holds:
//   - Its first bytes are those of an array format: safetensors, a zip of torch or NumPy, .npy, HDF5, GGUF; a pickle, a zip or a
//     MessagePack map under a checkpoint's name.
//   - A known layout keeps arrays in it: *.distcp, *.data-*-of-*, the chunks beside .zarray or zarr.json, the files of OCDBT's
//     d/, a file that .snapshot_metadata names.
//   - It is of no known format and larger than 64 MiB.
// An empty file is none. Text (UTF-8 without NUL in the first 4 KiB) is none, whatever its size and place.
//
// Calling sequence: none; each call is one look, which may be wrong a moment later while somebody writes.
// Threads: any. Blocks on the disk: reads 4 KiB of a file; where a .snapshot_metadata stands, that, too. Bytes are from outside:
// nothing is parsed beyond a name in a zip's first header.
// Errors: -errno of open, read and stat. A file that is gone meanwhile is -ENOENT.
#pragma once

#include "core/base/source.h"

#include <stdbool.h>

#define CKPT_DATA_LARGE_BYTES (UINT64_C(64) << 20) // a larger file of no known format is array data

// 1: array data; 0: it is none. path is the file's in its tree (a step or a folder), which top_fd opens. No symlink is followed; what
// is no regular file is no array data.
int ckpt_data_is(int top_fd, const char *path);
// The same of a file that fd reads. top_fd -1: the tree is not there; only the layouts that the path shows are known.
int ckpt_data_is_open(int fd, int top_fd, const char *path);
// The same of bytes that come from elsewhere.
int ckpt_data_is_source(const struct ckpt_source *source, int top_fd, const char *path);

// 1: some file below top_fd is array data; 0: none is. Ends with the first one.
int ckpt_data_any(int top_fd);
// A name that frameworks give to files of a checkpoint, and nobody gives to others: "mp_rank_00_model_states.pt".
bool ckpt_data_is_known(const char *name);

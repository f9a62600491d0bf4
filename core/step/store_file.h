// The small files of a store, each a JSON document: what store it is, who has it mounted.
//
// Threads: any; two must not write one file at once. Blocks on the disk. Errors: -errno.
#pragma once

#include <jansson.h>

#define CKPT_STORE_FILE_BYTES_MAX 65536

// Whole and durable: a temporary name, fsync, rename, fsync of the directory.
int ckpt_store_file_write(int dirfd, const char *name, const char *text);
// -EBADMSG: no regular file, or no JSON.
int ckpt_store_file_read(int dirfd, const char *name, json_t **ret_json);

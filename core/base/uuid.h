// UUIDs (RFC 9562, version 4): names of stores, sessions and everything else that must never be used twice.
// Threads: any. Nothing blocks.
#pragma once

#include <stdbool.h>

#define CKPT_UUID_LEN 36

int ckpt_uuid_make(char ret_uuid[CKPT_UUID_LEN + 1]); // 0, or -errno of the random source
bool ckpt_uuid_check(const char *text);               // 36 characters, lower-case hex and dashes in their places

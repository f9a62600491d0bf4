// Times as people and programs read them. Threads: any; nothing blocks.
#pragma once

#include <stdint.h>

#define CKPT_TIME_LEN 30 // "2026-11-21T10:00:00.000000000Z"

// From the one to the other, or as far as an int64_t goes: a time out of a record may be any.
int64_t ckpt_time_between(int64_t from_ns, int64_t to_ns);
void ckpt_time_format(int64_t ns, char ret_text[CKPT_TIME_LEN + 1]); // RFC 3339, UTC

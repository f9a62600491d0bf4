// Times as people and programs read them. Threads: any; nothing blocks.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CKPT_TIME_LEN 30 // "2026-11-21T10:00:00.000000000Z"

// From the one to the other, or as far as an int64_t goes: a time out of a record may be any.
int64_t ckpt_time_between(int64_t from_ns, int64_t to_ns);
void ckpt_time_format(int64_t ns, char ret_text[CKPT_TIME_LEN + 1]); // RFC 3339, UTC
// ISO 8601, as far as RFC 3339 and Python's isoformat() write it: "2025-01-31T10:00:00.123456", with "Z", "+01:00" or nothing behind
// it; less of the time may be said, digits behind the ninth are not looked at. Without a zone it is this machine's, local, or UTC.
// 0, -EINVAL. Beyond an int64_t: as far as that goes.
int ckpt_time_parse(const char *text, bool local, int64_t *ret_ns);

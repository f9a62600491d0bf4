// Times as people and programs read them. Threads: any; nothing blocks.
#pragma once

#include <stdint.h>

#define CKPT_TIME_LEN 30 // "2026-11-21T10:00:00.000000000Z"

void ckpt_time_format(int64_t ns, char ret_text[CKPT_TIME_LEN + 1]); // RFC 3339, UTC

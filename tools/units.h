// Sizes, durations and times as people read them: 64MiB, 3.2s, 2h05m, 2024-05-01 12:00:00. How they are written is
// core/base/units.h's.
// Pure functions, any thread, nothing blocks.
#pragma once

#include "core/base/units.h"

#include <stdint.h>

#define CKPT_SIZE_MAX 16
#define CKPT_DURATION_MAX 24
#define CKPT_TIME_MAX 40

// These write into text and return it.
const char *ckpt_size_text(uint64_t bytes, char text[CKPT_SIZE_MAX]);     // "1.5GiB"
const char *ckpt_duration_text(int64_t ns, char text[CKPT_DURATION_MAX]); // "2h05m", "3.2s"
const char *ckpt_time_local(int64_t time_ns, char text[CKPT_TIME_MAX]);   // "2024-05-01 12:00:00"; "-" for 0

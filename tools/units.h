// Times as people read them: 2024-05-01 12:00:00. Sizes and durations are core/base/units.h's.
// Pure functions, any thread, nothing blocks.
#pragma once

#include "core/base/units.h"

#include <stdint.h>

#define CKPT_TIME_MAX 40

// Writes into text and returns it.
const char *ckpt_time_local(int64_t time_ns, char text[CKPT_TIME_MAX]); // "2024-05-01 12:00:00"; "-" for 0

// Sizes and durations: as they are written (64MiB, 500MB, 30s, 24h), and as people read them (1.5GiB, 2h05m).
// Pure functions, any thread, nothing blocks.
#pragma once

#include <stdint.h>

// "64MiB" (powers of 1024), "500MB" (powers of 1000), "4096" or "4096B". -EINVAL, -ERANGE.
int ckpt_size_parse(const char *text, uint64_t *ret_bytes);
#define CKPT_SIZE_EXACT_MAX 32
// "64MiB": in the largest unit that it has a whole number of, so that parsing gives the same. Writes into text and returns it.
const char *ckpt_size_exact(uint64_t bytes, char text[CKPT_SIZE_EXACT_MAX]);
// "30s", "10m", "24h", "7d", "250ms", "1.5h"; a bare number is seconds. -EINVAL, -ERANGE.
int ckpt_duration_parse(const char *text, int64_t *ret_ns);

#define CKPT_DURATION_EXACT_MAX 32
// "90m": in the largest unit that it has a whole number of, down to ns, so that parsing gives the same. Writes into text
// and returns it.
const char *ckpt_duration_exact(int64_t ns, char text[CKPT_DURATION_EXACT_MAX]);

#define CKPT_SIZE_MAX 16
#define CKPT_DURATION_MAX 24

// For people: rounded. These write into text and return it.
const char *ckpt_size_text(uint64_t bytes, char text[CKPT_SIZE_MAX]);     // "1.5GiB"
const char *ckpt_duration_text(int64_t ns, char text[CKPT_DURATION_MAX]); // "2h05m", "3.2s"

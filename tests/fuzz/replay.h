// What every fuzz target includes: the entry that libFuzzer calls, and, where the compiler has no libFuzzer, a main() of
// our own (replay_main.h) that runs the corpus and then mutations of it. So the same file is a fuzzer and a test.
//
// A target defines LLVMFuzzerTestOneInput(), and LLVMFuzzerInitialize() if it needs to prepare something. What must not be
// ends the process: fuzz_assert(), or a sanitizer.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerInitialize(int *argc, char ***argv); // optional

#define fuzz_assert(expr)                                                                                              \
	do {                                                                                                           \
		if (!(expr)) {                                                                                         \
			fprintf(stderr, "%s:%d: %s: %s does not hold\n", __FILE__, __LINE__, __func__, #expr);         \
			abort();                                                                                       \
		}                                                                                                      \
	} while (0)

#ifndef CKPT_LIBFUZZER
#include "tests/fuzz/replay_main.h"
#endif

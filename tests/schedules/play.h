// Things that the programs share which play acts behind the fault proxy: where they play, chance, and commands to the proxy.
//
// tests/servers/with-s3 --proxy SCHEDULE sets the environment; test_schedules.py does it itself:
//
//   CKPT_TEST_S3_ENDPOINT, CKPT_TEST_S3_DIRECT, CKPT_TEST_S3_BUCKET, and the keys: the proxy, the server behind it
//   CKPT_PLAY_SEED       decides which acts are played; 1
//   CKPT_PLAY_ACTS       how many
//   CKPT_PLAY_FAIR       with 0 the schedule has a 412 for keys that are free
//   CKPT_PLAY_PARTS      with 1 an object is put that is sent in parts
//   CKPT_PLAY_PAGE       so many keys on a page of a list through the proxy; 0: 1000
//   CKPT_PLAY_STRICT     with 1 every act must succeed
#pragma once

#include <stdbool.h>
#include <stdint.h>

// A new place in the bucket for this run: an URL, the caller's; it is the same during the process.
const char *ckpt_play_url(void);
// Options of a stack (core/objects/stack.h) that leads through the proxy, or past it.
const char *const *ckpt_play_options(bool direct);

// Chance that the seed decides. Threads: one.
void ckpt_play_seed(uint64_t seed);
uint32_t ckpt_play_below(uint32_t limit);

// From now on the proxy disturbs nothing, and the server has all requests that were on their way. Ends the test on failure.
void ckpt_play_calm(void);

// A set of keys that only grows, to count each thing once. A key is some words, as many for all of a set, the last of them never 0.
//
// Calling sequence: zeroed, ckpt_keys_add() as often as wanted, ckpt_keys_done().
// Ownership: the caller's; keys are copied. Threads: one. Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_keys {
	uint64_t *slots; // open addressing; a power of two of them, at most half full
	size_t count, cap;
};

int ckpt_keys_add(struct ckpt_keys *k, const uint64_t *key, size_t words, bool *ret_new); // 0, -ENOMEM: it is as it was
bool ckpt_keys_has(const struct ckpt_keys *k, const uint64_t *key, size_t words);
void ckpt_keys_done(struct ckpt_keys *k);

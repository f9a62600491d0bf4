// Texts with numbers, in the order in which they came: each text has one, which an array of what belongs to it may have as its index.
//
// Calling sequence: zeroed, ckpt_texts_number() as often as wanted, ckpt_texts_done().
// Ownership: the caller's; texts are copied, and live until the end. Threads: one. Nothing blocks.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckpt_texts {
	char **at; // by number
	size_t count, cap;
	uint32_t *slots; // number + 1, open addressing; a power of two of them, at most half full
	size_t slot_count;
};

// The number of the text: a new one is `count` before and is added. 0, -ENOMEM: all is as it was.
int ckpt_texts_number(struct ckpt_texts *t, const char *text, size_t *ret_number);
void ckpt_texts_done(struct ckpt_texts *t);

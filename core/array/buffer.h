// Bytes that grow, for what is made in memory: headers, directories, pickles.
//
// An allocation that fails is remembered in rc, and all later calls do nothing: the caller looks at it once, at the end.
// Ownership: the caller's. {0} is the empty one. Threads: one. Nothing blocks.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckpt_buffer {
	char *at;
	size_t len, cap;
	int rc; // 0, -ENOMEM
};

void ckpt_buffer_add(struct ckpt_buffer *b, const void *bytes, size_t len);
void ckpt_buffer_text(struct ckpt_buffer *b, const char *text); // without its NUL
// The lowest `bytes` bytes of the number, the lowest first; 8 at most.
void ckpt_buffer_number(struct ckpt_buffer *b, uint64_t number, unsigned bytes);
void ckpt_buffer_fill(struct ckpt_buffer *b, char byte, size_t count);
__attribute__((format(printf, 2, 3))) void ckpt_buffer_print(struct ckpt_buffer *b, const char *format, ...);
// UTF-8 as a string of JSON, with its quotes.
void ckpt_buffer_json(struct ckpt_buffer *b, const char *text);
void ckpt_buffer_done(struct ckpt_buffer *b);

// UTF-8: well-formed sequences, without overlong forms, surrogates and values over U+10FFFF.
// Threads: any. Nothing blocks, nothing fails.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Bytes of the sequence that text begins with; 0: it begins with none, or with one that does not end within len bytes.
size_t ckpt_utf8_sequence(const uint8_t *text, size_t len);

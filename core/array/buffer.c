#include "core/array/buffer.h"

#include "core/base/util.h"

#include <stdarg.h>
#include <stdio.h>

// Room for `more` bytes behind those that are there. False: there is none.
static bool reserve(struct ckpt_buffer *b, size_t more)
{
	size_t need;

	if (!b->rc && __builtin_add_overflow(b->len, more, &need))
		b->rc = -ENOMEM;
	if (!b->rc)
		b->rc = ckpt_grow((void **)&b->at, &b->cap, need, 1);
	return !b->rc;
}

void ckpt_buffer_add(struct ckpt_buffer *b, const void *bytes, size_t len)
{
	if (!len || !reserve(b, len))
		return;
	memcpy(b->at + b->len, bytes, len);
	b->len += len;
}

void ckpt_buffer_text(struct ckpt_buffer *b, const char *text)
{
	ckpt_buffer_add(b, text, strlen(text));
}

void ckpt_buffer_number(struct ckpt_buffer *b, uint64_t number, unsigned bytes)
{
	uint8_t all[8];

	ckpt_put64(all, number);
	ckpt_buffer_add(b, all, bytes);
}

void ckpt_buffer_fill(struct ckpt_buffer *b, char byte, size_t count)
{
	if (!count || !reserve(b, count))
		return;
	memset(b->at + b->len, byte, count);
	b->len += count;
}

void ckpt_buffer_print(struct ckpt_buffer *b, const char *format, ...)
{
	char text[256];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(text))
		abort(); // callers print numbers and short words
	ckpt_buffer_add(b, text, (size_t)n);
}

void ckpt_buffer_json(struct ckpt_buffer *b, const char *text)
{
	ckpt_buffer_add(b, "\"", 1);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x20)
			ckpt_buffer_print(b, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			ckpt_buffer_add(b, (char[]){'\\', (char)c}, 2);
		else
			ckpt_buffer_add(b, text, 1);
	}
	ckpt_buffer_add(b, "\"", 1);
}

void ckpt_buffer_done(struct ckpt_buffer *b)
{
	free(b->at);
	*b = (struct ckpt_buffer){0};
}

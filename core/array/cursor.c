#include "core/array/cursor.h"

#include "core/base/util.h"

#define SKIP_MAX ((uint64_t)1 << 48) // a longer part of a file is a lie

int ckpt_cursor_init(struct ckpt_cursor *c, const struct ckpt_source *s, uint64_t begin, uint64_t end,
		     uint64_t read_max)
{
	*c = (struct ckpt_cursor){.source = s, .at = begin, .end = end, .read_max = read_max};
	if (begin > end || end > s->bytes)
		return -ENODATA;
	c->window = malloc(CKPT_CURSOR_WINDOW);
	return c->window ? 0 : -ENOMEM;
}

void ckpt_cursor_done(struct ckpt_cursor *c)
{
	free(TAKE_PTR(c->window));
}

static int fill(struct ckpt_cursor *c)
{
	int rc;

	// Behind a skip little may be needed; what is read on in order comes in larger windows.
	if (c->at >= c->end)
		return -ENODATA;
	c->want = c->window_len && c->at == c->window_at + c->window_len ? MIN(2 * c->want, CKPT_CURSOR_WINDOW)
									 : CKPT_CURSOR_WINDOW_MIN;
	c->window_at = c->at;
	c->window_len = (size_t)MIN(c->end - c->at, (uint64_t)c->want);
	c->read += c->window_len;
	rc = c->read > c->read_max ? -EFBIG : ckpt_source_read(c->source, c->at, c->window, c->window_len);
	if (rc)
		c->window_len = 0;
	return rc;
}

static bool in_window(const struct ckpt_cursor *c)
{
	return c->at >= c->window_at && c->at - c->window_at < c->window_len;
}

int ckpt_cursor_byte(struct ckpt_cursor *c, uint8_t *ret_byte)
{
	int rc = in_window(c) ? 0 : fill(c);

	if (!rc)
		*ret_byte = c->window[c->at++ - c->window_at];
	return rc;
}

int ckpt_cursor_take(struct ckpt_cursor *c, void *buf, size_t len)
{
	uint8_t *to = buf;
	int rc = len > c->end - MIN(c->at, c->end) ? -ENODATA : 0;

	while (!rc && len) {
		size_t at, n;

		rc = in_window(c) ? 0 : fill(c);
		if (rc)
			break;
		at = (size_t)(c->at - c->window_at);
		n = MIN(c->window_len - at, len);
		memcpy(to, c->window + at, n);
		to += n;
		len -= n;
		c->at += n;
	}
	return rc;
}

int ckpt_cursor_number(struct ckpt_cursor *c, unsigned bytes, uint64_t *ret_number)
{
	uint8_t number[8] = {0};
	int rc = ckpt_cursor_take(c, number, bytes);

	*ret_number = ckpt_get64(number);
	return rc;
}

int ckpt_cursor_skip(struct ckpt_cursor *c, uint64_t bytes)
{
	if (bytes > SKIP_MAX)
		return -EINVAL;
	if (bytes > c->end - c->at)
		return -ENODATA;
	c->at += bytes;
	return 0;
}

int ckpt_cursor_line(struct ckpt_cursor *c, char *buf, size_t max, size_t *ret_len)
{
	uint8_t byte = 0;
	size_t len = 0;
	int rc;

	while (!(rc = ckpt_cursor_byte(c, &byte)) && byte != '\n') {
		if (len == max)
			return -EINVAL;
		if (buf)
			buf[len] = (char)byte;
		len++;
	}
	if (!rc && ret_len)
		*ret_len = len;
	return rc;
}

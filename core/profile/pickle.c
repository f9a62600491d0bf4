// Every byte here is from outside. The table has the opcodes of CPython's pickletools for protocols 2 to 5.
#include "core/profile/pickle.h"

#include "core/base/util.h"
#include "core/limits.h"

#define WINDOW_BYTES (64u << 10)
#define ARGUMENT_MAX ((uint64_t)1 << 48) // no file has a longer one: then this is something else
#define LINE_MAX_BYTES 4096
#define PROTO 0x80
#define STOP '.'

// What follows an opcode.
enum argument {
	UNKNOWN, // it is none
	NOTHING,
	BYTES_1, // so many bytes
	BYTES_2,
	BYTES_4,
	BYTES_8,
	LINE, // text to the end of the line
	LINES_2,
	LENGTH_1, // a length of so many bytes, and as many bytes as it says
	LENGTH_4,
	LENGTH_8,
};

static const uint8_t arguments[256] = {
	['('] = NOTHING,   ['.'] = NOTHING,   ['0'] = NOTHING,  ['1'] = NOTHING,  ['2'] = NOTHING,   ['N'] = NOTHING,
	['Q'] = NOTHING,   ['R'] = NOTHING,   ['a'] = NOTHING,  ['b'] = NOTHING,  ['d'] = NOTHING,   ['}'] = NOTHING,
	['e'] = NOTHING,   ['l'] = NOTHING,   [']'] = NOTHING,  ['o'] = NOTHING,  ['s'] = NOTHING,   ['t'] = NOTHING,
	[')'] = NOTHING,   ['u'] = NOTHING,   [0x81] = NOTHING, [0x85] = NOTHING, [0x86] = NOTHING,  [0x87] = NOTHING,
	[0x88] = NOTHING,  [0x89] = NOTHING,  [0x8f] = NOTHING, [0x90] = NOTHING, [0x91] = NOTHING,  [0x92] = NOTHING,
	[0x93] = NOTHING,  [0x94] = NOTHING,  [0x97] = NOTHING, [0x98] = NOTHING, ['K'] = BYTES_1,   ['h'] = BYTES_1,
	['q'] = BYTES_1,   [PROTO] = BYTES_1, [0x82] = BYTES_1, ['M'] = BYTES_2,  [0x83] = BYTES_2,  ['J'] = BYTES_4,
	['j'] = BYTES_4,   ['r'] = BYTES_4,   [0x84] = BYTES_4, ['G'] = BYTES_8,  [0x95] = BYTES_8,  ['F'] = LINE,
	['I'] = LINE,      ['L'] = LINE,      ['P'] = LINE,     ['S'] = LINE,     ['V'] = LINE,      ['g'] = LINE,
	['p'] = LINE,      ['c'] = LINES_2,   ['i'] = LINES_2,  ['U'] = LENGTH_1, ['C'] = LENGTH_1,  [0x8c] = LENGTH_1,
	[0x8a] = LENGTH_1, ['T'] = LENGTH_4,  ['X'] = LENGTH_4, ['B'] = LENGTH_4, [0x8b] = LENGTH_4, [0x8d] = LENGTH_8,
	[0x8e] = LENGTH_8, [0x96] = LENGTH_8,
};

struct walk {
	const struct ckpt_source *s;
	uint8_t *window;
	uint64_t window_at; // in the source
	size_t window_len;
	uint64_t at, read; // where the next byte is, and how many were read so far
};

static int fill(struct walk *w)
{
	int rc;

	if (w->at >= w->s->bytes)
		return -ENODATA;
	w->window_at = w->at;
	w->window_len = (size_t)MIN(w->s->bytes - w->at, (uint64_t)WINDOW_BYTES);
	w->read += w->window_len;
	rc = w->read > CKPT_PICKLE_WALK_MAX ? -EFBIG : ckpt_source_read(w->s, w->at, w->window, w->window_len);
	if (rc)
		w->window_len = 0;
	return rc;
}

static int next_byte(struct walk *w, uint8_t *ret_byte)
{
	int rc = w->at < w->window_at || w->at - w->window_at >= w->window_len ? fill(w) : 0;

	if (!rc)
		*ret_byte = w->window[w->at++ - w->window_at];
	return rc;
}

static int next_number(struct walk *w, unsigned bytes, uint64_t *ret_number)
{
	uint64_t number = 0;
	uint8_t byte;
	int rc = 0;

	for (unsigned i = 0; i < bytes && !rc; i++) {
		rc = next_byte(w, &byte);
		if (!rc)
			number |= (uint64_t)byte << 8 * i;
	}
	*ret_number = number;
	return rc;
}

static int skip(struct walk *w, uint64_t bytes)
{
	if (bytes > ARGUMENT_MAX)
		return -EINVAL;
	w->at += bytes;
	return w->at > w->s->bytes ? -ENODATA : 0;
}

static int skip_line(struct walk *w)
{
	uint8_t byte = 0;
	int rc = 0;

	for (size_t len = 0; !rc && byte != '\n'; len++)
		rc = len > LINE_MAX_BYTES ? -EINVAL : next_byte(w, &byte);
	return rc;
}

static int skip_counted(struct walk *w, unsigned bytes)
{
	uint64_t len;
	int rc = next_number(w, bytes, &len);

	return rc ? rc : skip(w, len);
}

static int skip_argument(struct walk *w, enum argument argument)
{
	int rc;

	switch (argument) {
	case NOTHING:
		return 0;
	case BYTES_1:
		return skip(w, 1);
	case BYTES_2:
		return skip(w, 2);
	case BYTES_4:
		return skip(w, 4);
	case BYTES_8:
		return skip(w, 8);
	case LINE:
		return skip_line(w);
	case LINES_2:
		rc = skip_line(w);
		return rc ? rc : skip_line(w);
	case LENGTH_1:
		return skip_counted(w, 1);
	case LENGTH_4:
		return skip_counted(w, 4);
	case LENGTH_8:
		return skip_counted(w, 8);
	case UNKNOWN:
		break;
	}
	return -EINVAL;
}

static int walk(struct walk *w)
{
	uint8_t head[2], opcode = 0;
	int rc = next_byte(w, &head[0]);

	if (!rc)
		rc = next_byte(w, &head[1]);
	if (!rc && (head[0] != PROTO || head[1] < 2 || head[1] > 5))
		rc = -EINVAL;
	while (!rc && opcode != STOP) {
		rc = next_byte(w, &opcode);
		if (!rc)
			rc = skip_argument(w, arguments[opcode]);
	}
	return rc;
}

int ckpt_pickle_end(const struct ckpt_source *s, uint64_t *ret_end)
{
	struct walk w = {.s = s, .window = malloc(WINDOW_BYTES)};
	int rc = w.window ? walk(&w) : -ENOMEM;

	free(w.window);
	if (!rc)
		*ret_end = w.at;
	return rc;
}

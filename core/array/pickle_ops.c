// Every byte here is from outside. The table has the opcodes of CPython's pickletools for protocols 2 to 5.
#include "core/array/pickle_ops.h"

#include "core/array/pickle.h"
#include "core/base/util.h"
#include "core/limits.h"

#define NOTHING CKPT_PICKLE_NOTHING
#define BYTES_1 CKPT_PICKLE_BYTES_1
#define BYTES_2 CKPT_PICKLE_BYTES_2
#define BYTES_4 CKPT_PICKLE_BYTES_4
#define BYTES_8 CKPT_PICKLE_BYTES_8
#define LINE CKPT_PICKLE_LINE
#define LINES_2 CKPT_PICKLE_LINES_2
#define LENGTH_1 CKPT_PICKLE_LENGTH_1
#define LENGTH_4 CKPT_PICKLE_LENGTH_4
#define LENGTH_8 CKPT_PICKLE_LENGTH_8
#define PROTO CKPT_PICKLE_PROTO

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

int ckpt_pickle_begin(struct ckpt_cursor *c)
{
	uint8_t head[2];
	int rc = ckpt_cursor_byte(c, &head[0]);

	if (!rc)
		rc = ckpt_cursor_byte(c, &head[1]);
	return rc ? rc : head[0] != PROTO || head[1] < 2 || head[1] > 5 ? -EINVAL : 0;
}

int ckpt_pickle_next(struct ckpt_cursor *c, struct ckpt_pickle_op *ret_op)
{
	static const uint8_t widths[] = {
		[BYTES_1] = 1,  [BYTES_2] = 2,  [BYTES_4] = 4,  [BYTES_8] = 8,
		[LENGTH_1] = 1, [LENGTH_4] = 4, [LENGTH_8] = 8,
	};
	int rc = ckpt_cursor_byte(c, &ret_op->code);

	if (rc)
		return rc;
	ret_op->argument = arguments[ret_op->code];
	ret_op->number = 0;
	if (ret_op->argument == CKPT_PICKLE_UNKNOWN)
		return -EINVAL;
	return widths[ret_op->argument] ? ckpt_cursor_number(c, widths[ret_op->argument], &ret_op->number) : 0;
}

int ckpt_pickle_skip(struct ckpt_cursor *c, const struct ckpt_pickle_op *op)
{
	int rc = 0;

	if (op->argument == LINE || op->argument == LINES_2)
		rc = ckpt_cursor_line(c, NULL, CKPT_PICKLE_LINE_MAX, NULL);
	if (!rc && op->argument == LINES_2)
		rc = ckpt_cursor_line(c, NULL, CKPT_PICKLE_LINE_MAX, NULL);
	return rc || op->argument < LENGTH_1 ? rc : ckpt_cursor_skip(c, op->number);
}

int ckpt_pickle_end(const struct ckpt_source *s, uint64_t *ret_end)
{
	struct ckpt_pickle_op op = {0};
	struct ckpt_cursor c;
	int rc = ckpt_cursor_init(&c, s, 0, s->bytes, CKPT_PICKLE_WALK_MAX);

	if (!rc)
		rc = ckpt_pickle_begin(&c);
	while (!rc && op.code != CKPT_PICKLE_STOP) {
		rc = ckpt_pickle_next(&c, &op);
		if (!rc)
			rc = ckpt_pickle_skip(&c, &op);
	}
	if (!rc)
		*ret_end = c.at;
	ckpt_cursor_done(&c);
	return rc;
}

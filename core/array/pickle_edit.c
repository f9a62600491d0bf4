// Two passes. The first runs the opcodes on a stack of places: where the opcodes of each value begin. So it finds the ranges of opcodes
// that make an item, and for each memo the range that makes its value. The second copies the opcodes but for the ranges of cut items; a GET
// of a memo whose PUT was cut becomes the range of its value.
//
// Invariants:
//   1. A range of a value leaves just this value on the stack, wherever it stands.
//   2. A memo is put once, and the value it has is changed only within its range. A pickle that does otherwise is refused; none of Python's does.
//   3. What a range gets was put in front of it, or in it.
//   4. A value is made once: where a part of a moved range was made before, it is recalled there.
//   5. A container that loses an item stands in one place. One that is recalled elsewhere would lose it there, too, and is refused.
#include "core/array/pickle_edit.h"

#include "core/array/pickle_graph.h"
#include "core/array/pickle_ops.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define PICKLE_MAX (256u << 20)
#define DEPTH_MAX 64
#define MEMOS_MAX (2u << 20) // 24 bytes each
#define TURNS_MAX ((size_t)64 << 20)
#define MEMOIZE 0x94

struct range {
	uint64_t from, to;
};

struct slot {
	uint64_t from;
	uint32_t memo; // its number + 1
	bool got;      // from a memo
	bool less;     // an item of it is cut
};

struct mark {
	uint64_t at;
	size_t depth;
};

struct memo {
	struct range range; // to is 0 while its value is on the stack
	bool put, written, less;
};

struct memoize {
	uint64_t at;
	uint32_t memo;
};

struct edit {
	const struct ckpt_source *source;
	const struct ckpt_pickle *p;
	const uint8_t *cut;
	struct ckpt_buffer *out;
	uint64_t end;
	struct slot *stack;
	struct mark *marks;
	struct memo *memos;
	struct memoize *memoizes;
	struct range *cuts;
	uint32_t *order; // memos whose values have ended, by their ranges
	size_t order_count;
	size_t turns; // of loops over memos that begin at one place
	size_t depth, stack_cap, mark_count, mark_cap, memo_count, memo_cap, put_count, memoize_count, memoize_cap,
		cut_count, cut_cap, cut_items;
};

// The first of `count` things, in the order of their places, that is not in front of `at`; count: none is.
static size_t find_place(const struct edit *e, uint64_t (*place)(const struct edit *e, size_t i), size_t count,
			 uint64_t at)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (place(e, middle) < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

// --- The first pass -----------------------------------------------------------------------------------------------------

static int push(struct edit *e, uint64_t from, bool got)
{
	int rc = ckpt_grow((void **)&e->stack, &e->stack_cap, e->depth + 1, sizeof(*e->stack));

	if (!rc)
		e->stack[e->depth++] = (struct slot){.from = from, .got = got};
	return rc;
}

static bool has(const struct edit *e, size_t count)
{
	return e->depth - (e->mark_count ? e->marks[e->mark_count - 1].depth : 0) >= count;
}

// The slots from this one on have ended at the opcode at `at`.
static void take(struct edit *e, size_t first, uint64_t at)
{
	for (size_t i = first; i < e->depth; i++) {
		struct memo *m = e->stack[i].memo ? &e->memos[e->stack[i].memo - 1] : NULL;

		if (!m)
			continue;
		m->range.to = i + 1 < e->depth ? e->stack[i + 1].from : at;
		m->less = e->stack[i].less;
	}
	e->depth = first;
}

// The last `count` values become one.
static int make(struct edit *e, size_t count, uint64_t at)
{
	uint64_t from;

	if (!has(e, count) || !count)
		return -EINVAL;
	from = e->stack[e->depth - count].from;
	take(e, e->depth - count, at);
	return push(e, from, false);
}

static int unmark(struct edit *e, struct mark *ret_mark)
{
	if (!e->mark_count)
		return -EINVAL;
	*ret_mark = e->marks[--e->mark_count];
	return 0;
}

static int make_marked(struct edit *e, uint64_t at)
{
	struct mark mark;
	int rc = unmark(e, &mark);

	if (rc)
		return rc;
	take(e, mark.depth, at);
	return push(e, mark.at, false);
}

static bool is_cut(const struct edit *e, size_t item)
{
	return e->cut[item / 8] & 1u << item % 8;
}

static uint64_t place_of_item(const struct edit *e, size_t i)
{
	return e->p->item_at[i];
}

// The first item that the opcode at `at` has put into a container. 0: none. Item 0 is none, and its place is 0.
static size_t first_item(const struct edit *e, uint64_t at)
{
	size_t item = at ? find_place(e, place_of_item, e->p->item_count, at) : 0;

	return item < e->p->item_count && e->p->item_at[item] == at ? item : 0;
}

// The values from `first` on join the container below them, `width` at a time. end: of the range of the last one.
static int add(struct edit *e, size_t first, size_t width, uint64_t at, uint64_t end)
{
	size_t item = first_item(e, at), count = e->depth - first;

	if (!first || e->stack[first - 1].got || count % width)
		return -EINVAL;
	for (size_t i = 0; item && i < count; i += width) {
		struct range range = {e->stack[first + i].from,
				      i + width < count ? e->stack[first + i + width].from : end};

		if (item + i >= e->p->item_count || !is_cut(e, item + i))
			continue;
		if (ckpt_grow((void **)&e->cuts, &e->cut_cap, e->cut_count + 1, sizeof(range)))
			return -ENOMEM;
		e->cuts[e->cut_count++] = range;
		e->stack[first - 1].less = true;
	}
	take(e, first, at);
	return 0;
}

static int add_marked(struct edit *e, size_t width, uint64_t at)
{
	struct mark mark;
	int rc = unmark(e, &mark);

	return rc ? rc : has(e, 1) ? add(e, mark.depth, width, at, at) : -EINVAL;
}

static int put(struct edit *e, uint64_t number)
{
	size_t before = e->memo_cap;
	struct slot *top;

	if (!has(e, 1))
		return -EINVAL;
	top = &e->stack[e->depth - 1];
	if (top->memo || top->got || number >= MEMOS_MAX)
		return -EINVAL;
	if (ckpt_grow((void **)&e->memos, &e->memo_cap, (size_t)number + 1, sizeof(*e->memos)))
		return -ENOMEM;
	memset(e->memos + before, 0, (e->memo_cap - before) * sizeof(*e->memos));
	if (e->memos[number].put)
		return -EINVAL;
	e->memos[number] = (struct memo){.range.from = top->from, .put = true};
	top->memo = (uint32_t)number + 1;
	e->put_count++;
	return 0;
}

static int memoize(struct edit *e, uint64_t at)
{
	if (ckpt_grow((void **)&e->memoizes, &e->memoize_cap, e->memoize_count + 1, sizeof(*e->memoizes)))
		return -ENOMEM;
	e->memoizes[e->memoize_count++] = (struct memoize){at, (uint32_t)e->put_count};
	return put(e, e->put_count);
}

static int build(struct edit *e, uint64_t at)
{
	if (!has(e, 2) || e->stack[e->depth - 2].got)
		return -EINVAL;
	take(e, e->depth - 1, at);
	return 0;
}

static int mark(struct edit *e, uint64_t at)
{
	if (ckpt_grow((void **)&e->marks, &e->mark_cap, e->mark_count + 1, sizeof(*e->marks)))
		return -ENOMEM;
	e->marks[e->mark_count++] = (struct mark){at, e->depth};
	return 0;
}

// The last value stays: it has no end.
static int stop(struct edit *e)
{
	if (e->stack[0].memo)
		e->memos[e->stack[0].memo - 1].less = e->stack[0].less;
	return 0;
}

static int step(struct edit *e, const struct ckpt_pickle_op *op, uint64_t at, uint64_t end)
{
	switch (op->code) {
	case 0x80: // PROTO
	case 0x95: // FRAME
		return 0;
	case '.':
		return has(e, 1) && e->depth == 1 ? stop(e) : -EINVAL;
	case '(':
		return mark(e, at);
	case 0x85:
	case 0x86:
	case 0x87:
		return make(e, op->code - 0x84u, at);
	case 't':
	case 'l':
	case 'd':
	case 0x91:
	case 'o':
	case 'i':
		return make_marked(e, at);
	case 'a':
		return has(e, 2) ? add(e, e->depth - 1, 1, at, end) : -EINVAL;
	case 's':
		return has(e, 3) ? add(e, e->depth - 2, 2, at, end) : -EINVAL;
	case 'e':
	case 0x90:
		return add_marked(e, 1, at);
	case 'u':
		return add_marked(e, 2, at);
	case 0x93: // STACK_GLOBAL
	case 'R':
	case 0x81:
		return make(e, 2, at);
	case 0x92:
		return make(e, 3, at);
	case 'Q':
		return make(e, 1, at);
	case 'b':
		return build(e, at);
	case 'q':
	case 'r':
		return put(e, op->number);
	case MEMOIZE:
		return memoize(e, at);
	case 'h':
	case 'j':
		return push(e, at, true);
	case '0': // values that are taken back, and memos in text
	case '1':
	case '2':
	case 'p':
	case 'g':
	case 0x97:
	case 0x98:
		return -EINVAL;
	default:
		return push(e, at, false);
	}
}

static int by_from(const void *one, const void *other)
{
	const struct range *a = one, *b = other;

	return a->from != b->from ? (a->from > b->from) - (a->from < b->from) : (a->to < b->to) - (a->to > b->to);
}

// qsort_r(3)'s.
static int by_range(const void *one, const void *other, void *arg)
{
	const struct edit *e = arg;

	return by_from(&e->memos[*(const uint32_t *)one].range, &e->memos[*(const uint32_t *)other].range);
}

static int sort_ranges(struct edit *e)
{
	e->order = ckpt_calloc(e->put_count + 1, sizeof(*e->order));
	if (!e->order)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->memo_cap; i++)
		if (e->memos[i].range.to)
			e->order[e->order_count++] = i;
	qsort_r(e->order, e->order_count, sizeof(*e->order), by_range, e);
	if (e->cut_count)
		qsort(e->cuts, e->cut_count, sizeof(*e->cuts), by_from);
	return 0;
}

static int find_ranges(struct edit *e, uint64_t begin)
{
	struct ckpt_pickle_op op = {0};
	struct ckpt_cursor c;
	int rc = ckpt_cursor_init(&c, e->source, begin, e->end, CKPT_PICKLE_WALK_MAX);

	while (!rc && op.code != CKPT_PICKLE_STOP) {
		uint64_t at = c.at;

		rc = ckpt_pickle_next(&c, &op);
		if (!rc)
			rc = ckpt_pickle_skip(&c, &op);
		if (!rc)
			rc = step(e, &op, at, c.at);
	}
	if (!rc)
		e->end = c.at;
	ckpt_cursor_done(&c);
	if (!rc && e->cut_count != e->cut_items)
		rc = -EINVAL;
	return rc ? rc : sort_ranges(e);
}

// --- The second pass ----------------------------------------------------------------------------------------------------

static int copy(struct edit *e, uint64_t from, uint64_t to)
{
	uint8_t bytes[4096];
	int rc = e->out->len + (to - from) > PICKLE_MAX ? -EINVAL : 0;

	while (!rc && from < to) {
		size_t len = (size_t)MIN(to - from, (uint64_t)sizeof(bytes));

		rc = ckpt_source_read(e->source, from, bytes, len);
		if (!rc)
			ckpt_buffer_add(e->out, bytes, len);
		from += len;
	}
	return rc ? rc : e->out->rc;
}

static uint64_t place_of_cut(const struct edit *e, size_t i)
{
	return e->cuts[i].from;
}

static uint64_t place_of_memo(const struct edit *e, size_t i)
{
	return e->memos[e->order[i]].range.from;
}

static uint64_t place_of_memoize(const struct edit *e, size_t i)
{
	return e->memoizes[i].at;
}

// The end of the cut range that begins there, but for one that has the whole of `in`; 0: none does.
static uint64_t cut_end(const struct edit *e, uint64_t at, const struct range *in)
{
	size_t low = find_place(e, place_of_cut, e->cut_count, at);

	for (; low < e->cut_count && e->cuts[low].from == at; low++)
		if (at > in->from || e->cuts[low].to < in->to)
			return e->cuts[low].to;
	return 0;
}

// The largest value that begins there and was written before. False: there is none, or a hostile pickle has too many.
static bool find_written(struct edit *e, uint64_t at, uint64_t end, uint32_t *ret_memo)
{
	size_t low = find_place(e, place_of_memo, e->order_count, at);

	for (; low < e->order_count && e->memos[e->order[low]].range.from == at && e->turns < TURNS_MAX;
	     low++, e->turns++) {
		*ret_memo = e->order[low];
		if (e->memos[*ret_memo].written && e->memos[*ret_memo].range.to <= end)
			return true;
	}
	return false;
}

static uint32_t number_of(const struct edit *e, uint64_t at)
{
	return e->memoizes[find_place(e, place_of_memoize, e->memoize_count, at)].memo;
}

static int write_put(struct edit *e, const struct ckpt_pickle_op *op, uint64_t at, uint64_t end)
{
	uint64_t number = op->code == MEMOIZE ? number_of(e, at) : op->number;

	if (e->memos[number].written)
		return -EINVAL;
	e->memos[number].written = true;
	if (op->code != MEMOIZE)
		return copy(e, at, end);
	ckpt_buffer_add(e->out, "r", 1); // LONG_BINPUT
	ckpt_buffer_number(e->out, number, 4);
	return e->out->rc;
}

static int write_recall(struct edit *e, uint32_t memo)
{
	ckpt_buffer_add(e->out, "j", 1); // LONG_BINGET
	ckpt_buffer_number(e->out, memo, 4);
	return e->out->rc;
}

static int write_range(struct edit *e, const struct range *in, unsigned depth);

static int write_get(struct edit *e, uint64_t number, uint64_t at, uint64_t end, unsigned depth)
{
	if (number >= e->memo_cap || !e->memos[number].put || e->memos[number].less)
		return -EINVAL;
	if (e->memos[number].written)
		return copy(e, at, end);
	if (!e->memos[number].range.to || depth == DEPTH_MAX)
		return -EINVAL;
	return write_range(e, &e->memos[number].range, depth + 1);
}

// [*run, at) has been passed and is not written yet.
static int write_op(struct edit *e, const struct ckpt_pickle_op *op, uint64_t at, uint64_t end, uint64_t *run,
		    unsigned depth)
{
	bool is_put = op->code == 'q' || op->code == 'r' || op->code == MEMOIZE,
	     is_get = op->code == 'h' || op->code == 'j';
	int rc;

	if (!is_put && !is_get && op->code != 0x95)
		return 0;
	rc = copy(e, *run, at);
	*run = end;
	if (!rc && is_put)
		rc = write_put(e, op, at, end);
	if (!rc && is_get)
		rc = write_get(e, op->number, at, end, depth);
	return rc;
}

static int write_range(struct edit *e, const struct range *in, unsigned depth)
{
	struct ckpt_pickle_op op;
	uint64_t run = in->from;
	struct ckpt_cursor c;
	int rc = ckpt_cursor_init(&c, e->source, in->from, in->to, CKPT_PICKLE_WALK_MAX);

	while (!rc && c.at < in->to && e->turns < TURNS_MAX) {
		uint64_t at = c.at, end = cut_end(e, at, in);
		uint32_t memo;
		bool again = !end && find_written(e, at, in->to, &memo);

		if (again)
			end = e->memos[memo].range.to;
		if (end) {
			rc = copy(e, run, at);
			run = end;
			if (!rc && again)
				rc = write_recall(e, memo);
			rc = rc ? rc : end > in->to ? -EINVAL : ckpt_cursor_skip(&c, end - at);
			continue;
		}
		rc = ckpt_pickle_next(&c, &op);
		if (!rc)
			rc = ckpt_pickle_skip(&c, &op);
		if (!rc)
			rc = write_op(e, &op, at, c.at, &run, depth);
	}
	ckpt_cursor_done(&c);
	if (e->turns == TURNS_MAX)
		return -EINVAL;
	return rc ? rc : copy(e, run, in->to);
}

int ckpt_pickle_edit(const struct ckpt_source *s, uint64_t begin, uint64_t end, const struct ckpt_pickle *p,
		     const uint8_t *cut, struct ckpt_buffer *ret_out)
{
	struct edit e = {.source = s, .p = p, .cut = cut, .out = ret_out, .end = end};
	int rc;

	*ret_out = (struct ckpt_buffer){0};
	for (size_t i = 0; i < p->item_count; i++)
		e.cut_items += is_cut(&e, i);
	rc = find_ranges(&e, begin);
	if (!rc)
		rc = write_range(&e, &(struct range){begin, e.end}, 0);
	free(e.stack);
	free(e.marks);
	free(e.memos);
	free(e.memoizes);
	free(e.cuts);
	free(e.order);
	return rc == -ENODATA || rc == -EFBIG ? -EINVAL : rc;
}

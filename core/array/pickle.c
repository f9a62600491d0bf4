// The machine of a pickle: a stack of values, marks in it, and a memo of values by number. Every byte is from outside.
//
// Invariants:
//   1. Every index of a value, an item or text is one of this graph: nothing outside of it can be named.
//   2. Memory is counted before it is taken (grow()), and each opcode takes a bounded amount of it.
//   3. A mark is never above the stack: what pops values pops no mark (pop() refuses).
#include "core/array/pickle.h"

#include "core/array/pickle_graph.h"
#include "core/array/pickle_ops.h"
#include "core/base/util.h"
#include "core/limits.h"

#define OPS_MAX (64u << 20)
#define SMALL_NUMBERS 1024
#define TEXT_MAX CKPT_ARRAY_NAME_MAX // of a longer one only its length is known

struct machine {
	struct ckpt_pickle *p;
	struct ckpt_cursor cursor;
	uint32_t *stack, *marks, *memo; // memo: value + 1, 0 is empty
	size_t depth, stack_cap, mark_count, marks_cap, memo_cap, memo_len, memoized;
	uint32_t small[SMALL_NUMBERS]; // values of these numbers; 0: none yet
	uint32_t empty;                // the value of the empty tuple
	size_t bytes;                  // of all memory
	uint64_t op_at;                // of the opcode that runs
	const char *fault;
};

// --- Memory -----------------------------------------------------------------------------------------------------------

static int refuse(struct machine *m, const char *why)
{
	m->fault = why;
	return -EINVAL;
}

// By half, not by doubling as ckpt_grow(): so more of the limit is of use.
static int grow(struct machine *m, void *items, size_t *cap, size_t need, size_t item_bytes)
{
	size_t before = *cap, want = MAX(need, before + before / 2 + 16);
	void *grown;

	if (need <= before)
		return 0;
	if (want > CKPT_PICKLE_BYTES_MAX / item_bytes ||
	    m->bytes + (want - before) * item_bytes > CKPT_PICKLE_BYTES_MAX)
		return refuse(m, "it takes too much memory");
	grown = realloc(*(void **)items, want * item_bytes);
	if (!grown)
		return -ENOMEM;
	*(void **)items = grown;
	*cap = want;
	m->bytes += (want - before) * item_bytes;
	return 0;
}

static int add_value(struct machine *m, struct value value, uint32_t *ret_index)
{
	struct ckpt_pickle *p = m->p;
	int rc = grow(m, &p->values, &p->cap, p->count + 1, sizeof(value));

	if (rc)
		return rc;
	*ret_index = (uint32_t)p->count;
	p->values[p->count++] = value;
	return 0;
}

static int add_item(struct machine *m, uint32_t container, uint32_t value)
{
	struct ckpt_pickle *p = m->p;
	int rc = grow(m, &p->items, &p->item_cap, p->item_count + 1, sizeof(*p->items));
	struct value *c = &p->values[container];
	uint32_t index = (uint32_t)p->item_count;

	if (!rc && p->places)
		rc = grow(m, &p->item_at, &p->item_at_cap, p->item_count + 1, sizeof(*p->item_at));
	if (rc)
		return rc;
	if (p->places)
		p->item_at[p->item_count] = m->op_at;
	p->items[p->item_count++] = (struct item){.value = value};
	if (c->a++)
		p->items[c->c].next = index;
	else
		c->b = index;
	c->c = index;
	return 0;
}

// --- The stack --------------------------------------------------------------------------------------------------------

static int push(struct machine *m, uint32_t value)
{
	int rc = grow(m, &m->stack, &m->stack_cap, m->depth + 1, sizeof(*m->stack));

	if (!rc)
		m->stack[m->depth++] = value;
	return rc;
}

static int push_value(struct machine *m, struct value value)
{
	uint32_t index;
	int rc = add_value(m, value, &index);

	return rc ? rc : push(m, index);
}

static int push_kind(struct machine *m, enum ckpt_value_kind kind)
{
	return push_value(m, (struct value){.kind = (uint8_t)kind});
}

// Numbers never change: small ones, of which shapes and offsets have many, share one value.
static int push_number(struct machine *m, enum ckpt_value_kind kind, int64_t number)
{
	uint32_t *shared = kind == CKPT_VALUE_INT && number >= 0 && number < SMALL_NUMBERS ? &m->small[number] : NULL;
	uint32_t index;
	int rc;

	if (shared && *shared)
		return push(m, *shared);
	rc = add_value(m, (struct value){.kind = (uint8_t)kind, .number = number}, &index);
	if (!rc && shared)
		*shared = index;
	return rc ? rc : push(m, index);
}

// As numbers, the empty tuple never changes.
static int push_empty(struct machine *m)
{
	int rc = m->empty ? 0 : add_value(m, (struct value){.kind = CKPT_VALUE_TUPLE}, &m->empty);

	return rc ? rc : push(m, m->empty);
}

static size_t floor_of(const struct machine *m) // of what may be popped
{
	return m->mark_count ? m->marks[m->mark_count - 1] : 0;
}

static int pop(struct machine *m, uint32_t *ret_value)
{
	if (m->depth <= floor_of(m))
		return refuse(m, "it takes a value from an empty stack");
	*ret_value = m->stack[--m->depth];
	return 0;
}

static int top(struct machine *m, uint32_t *ret_value)
{
	if (m->depth <= floor_of(m))
		return refuse(m, "it needs a value on the stack");
	*ret_value = m->stack[m->depth - 1];
	return 0;
}

static int mark(struct machine *m)
{
	int rc = grow(m, &m->marks, &m->marks_cap, m->mark_count + 1, sizeof(*m->marks));

	if (!rc)
		m->marks[m->mark_count++] = (uint32_t)m->depth;
	return rc;
}

// Takes the last mark; the values above it are stack[*ret_from, depth).
static int unmark(struct machine *m, size_t *ret_from)
{
	if (!m->mark_count)
		return refuse(m, "there is no mark");
	*ret_from = m->marks[--m->mark_count];
	return 0;
}

// --- Containers -------------------------------------------------------------------------------------------------------

// The values from stack[from] on, which leave the stack, join the container. Items of an object that only acts like one are
// dropped.
static int add_all(struct machine *m, uint32_t container, enum ckpt_value_kind kind, size_t from)
{
	uint8_t is = m->p->values[container].kind;
	int rc = 0;

	if (is != kind && is != CKPT_VALUE_OBJECT && is != CKPT_VALUE_OPAQUE)
		return refuse(m,
			      kind == CKPT_VALUE_DICT ? "it sets an item of no dictionary" : "it appends to no list");
	if (kind == CKPT_VALUE_DICT && (m->depth - from) % 2)
		return refuse(m, "a key has no value");
	for (size_t i = from; is == kind && i < m->depth && !rc; i++)
		rc = add_item(m, container, m->stack[i]);
	m->depth = from;
	return rc;
}

// A new container of these values in their place.
static int push_all(struct machine *m, enum ckpt_value_kind kind, size_t from)
{
	uint32_t container;
	int rc = add_value(m, (struct value){.kind = (uint8_t)kind}, &container);

	if (!rc)
		rc = add_all(m, container, kind, from);
	return rc ? rc : push(m, container);
}

static int push_tuple(struct machine *m, size_t count)
{
	if (m->depth - floor_of(m) < count)
		return refuse(m, "a tuple lacks values");
	return push_all(m, CKPT_VALUE_TUPLE, m->depth - count);
}

static int push_marked(struct machine *m, enum ckpt_value_kind kind)
{
	size_t from;
	int rc = unmark(m, &from);

	return rc ? rc : push_all(m, kind, from);
}

static int add_marked(struct machine *m, enum ckpt_value_kind kind)
{
	size_t from;
	int rc = unmark(m, &from);

	if (rc)
		return rc;
	if (from <= floor_of(m))
		return refuse(m, "it needs a container below the mark");
	return add_all(m, m->stack[from - 1], kind, from);
}

static int add_top(struct machine *m, enum ckpt_value_kind kind)
{
	size_t count = kind == CKPT_VALUE_DICT ? 2 : 1;

	if (m->depth - floor_of(m) < count + 1)
		return refuse(m, "it needs a container and an item");
	return add_all(m, m->stack[m->depth - count - 1], kind, m->depth - count);
}

// --- Calls ------------------------------------------------------------------------------------------------------------

// Globals that hold what they are called with. Each row is one that was looked at: none does anything else.
static const struct {
	const char *name;
	enum ckpt_value_kind kind; // TUPLE: the tuple that it is called with
} containers[] = {
	{"collections OrderedDict", CKPT_VALUE_DICT}, {"collections defaultdict", CKPT_VALUE_DICT},
	{"collections Counter", CKPT_VALUE_DICT},     {"builtins dict", CKPT_VALUE_DICT},
	{"builtins list", CKPT_VALUE_LIST},           {"builtins set", CKPT_VALUE_LIST},
	{"builtins frozenset", CKPT_VALUE_LIST},      {"__builtin__ dict", CKPT_VALUE_DICT},
	{"__builtin__ list", CKPT_VALUE_LIST},        {"__builtin__ set", CKPT_VALUE_LIST},
	{"__builtin__ frozenset", CKPT_VALUE_LIST},   {"torch Size", CKPT_VALUE_TUPLE},
};

// Pairs of a list become items; any other argument (a default_factory) is passed over.
static int fill_dict(struct machine *m, uint32_t dict, uint32_t pairs)
{
	const struct ckpt_pickle *p = m->p;
	uint32_t at = p->values[pairs].kind == CKPT_VALUE_LIST ? p->values[pairs].b : 0;
	int rc = 0;

	for (; at && !rc; at = p->items[at].next) {
		uint32_t pair = p->items[at].value;

		if (ckpt_value_count(p, pair) != 2)
			return refuse(m, "a pair of a dictionary has not two values");
		rc = add_item(m, dict, ckpt_value_at(p, pair, 0));
		if (!rc)
			rc = add_item(m, dict, ckpt_value_at(p, pair, 1));
	}
	return rc;
}

static int make_container(struct machine *m, enum ckpt_value_kind kind, uint32_t arguments)
{
	uint32_t first = ckpt_value_at(m->p, arguments, 0), container;
	int rc;

	if (kind == CKPT_VALUE_TUPLE || (kind == CKPT_VALUE_LIST && ckpt_value_is_container(m->p, first))) {
		if (!ckpt_value_is_container(m->p, first))
			return push_kind(m, CKPT_VALUE_TUPLE);
		return push(m, first);
	}
	rc = add_value(m, (struct value){.kind = (uint8_t)kind}, &container);
	if (!rc && kind == CKPT_VALUE_DICT)
		rc = fill_dict(m, container, first);
	return rc ? rc : push(m, container);
}

static int push_call(struct machine *m, uint32_t callee, uint32_t arguments)
{
	for (size_t i = 0; i < ARRAY_LEN(containers); i++)
		if (ckpt_value_is_global(m->p, callee, containers[i].name))
			return make_container(m, containers[i].kind, arguments);
	return push_value(m, (struct value){.kind = CKPT_VALUE_OBJECT, .b = callee, .c = arguments});
}

// The object below the arguments is called; more: other arguments, by name, are on top.
static int call(struct machine *m, bool more)
{
	uint32_t named, arguments, callee;
	int rc = more ? pop(m, &named) : 0;

	if (!rc)
		rc = pop(m, &arguments);
	if (!rc)
		rc = pop(m, &callee);
	if (!rc && m->p->values[arguments].kind != CKPT_VALUE_TUPLE)
		rc = refuse(m, "the arguments of a call are no tuple");
	return rc ? rc : push_call(m, callee, arguments);
}

// OBJ: the class is the first value above the mark; INST: it is `class`.
static int call_marked(struct machine *m, const uint32_t *class)
{
	uint32_t callee = class ? *class : 0, arguments;
	size_t from;
	int rc = unmark(m, &from);

	if (rc)
		return rc;
	if (!class && from == m->depth)
		return refuse(m, "an object has no class");
	if (!class)
		callee = m->stack[from++];
	rc = push_all(m, CKPT_VALUE_TUPLE, from);
	if (rc)
		return rc;
	arguments = m->stack[--m->depth];
	if (!class)
		m->depth--;
	return push_call(m, callee, arguments);
}

// The state joins the object; attributes of a container are passed over.
static int build(struct machine *m)
{
	uint32_t state, object;
	int rc = pop(m, &state);

	if (!rc)
		rc = top(m, &object);
	if (!rc && m->p->values[object].kind == CKPT_VALUE_OBJECT)
		m->p->values[object].a = state;
	return rc;
}

// --- Text -------------------------------------------------------------------------------------------------------------

// Room for len bytes behind the text.
static int more_text(struct machine *m, size_t len)
{
	return grow(m, &m->p->text, &m->p->text_cap, m->p->text_len + len + 1, 1);
}

// The text that was put there.
static int push_text(struct machine *m, enum ckpt_value_kind kind, size_t len)
{
	struct value v = {.kind = (uint8_t)kind, .a = (uint32_t)len, .b = (uint32_t)m->p->text_len};

	m->p->text_len += len;
	m->p->text[m->p->text_len++] = '\0';
	return push_value(m, v);
}

static int read_text(struct machine *m, uint64_t len)
{
	int rc;

	if (len > TEXT_MAX) {
		rc = ckpt_cursor_skip(&m->cursor, len);
		return rc ? rc : push_kind(m, CKPT_VALUE_OPAQUE);
	}
	rc = more_text(m, (size_t)len);
	if (!rc)
		rc = ckpt_cursor_take(&m->cursor, m->p->text + m->p->text_len, (size_t)len);
	return rc ? rc : push_text(m, CKPT_VALUE_TEXT, (size_t)len);
}

static int read_bytes(struct machine *m, uint64_t len)
{
	struct value v = {.kind = CKPT_VALUE_BYTES, .a = (uint32_t)len, .number = (int64_t)m->cursor.at};
	int rc = ckpt_cursor_skip(&m->cursor, len);

	if (len > UINT32_MAX)
		v = (struct value){.kind = CKPT_VALUE_OPAQUE};
	return rc ? rc : push_value(m, v);
}

static int read_line(struct machine *m, size_t *ret_len)
{
	int rc = more_text(m, CKPT_PICKLE_LINE_MAX + 1);

	return rc ? rc : ckpt_cursor_line(&m->cursor, m->p->text + m->p->text_len, CKPT_PICKLE_LINE_MAX, ret_len);
}

// Two lines: "MODULE NAME".
static int read_global(struct machine *m)
{
	size_t module, name;
	int rc = read_line(m, &module);

	if (rc)
		return rc;
	m->p->text[m->p->text_len + module] = ' ';
	m->p->text_len += module + 1;
	rc = read_line(m, &name);
	m->p->text_len -= module + 1;
	return rc ? rc : push_text(m, CKPT_VALUE_GLOBAL, module + 1 + name);
}

static int stack_global(struct machine *m)
{
	uint32_t name, module;
	size_t name_len, module_len;
	int rc = pop(m, &name);

	if (!rc)
		rc = pop(m, &module);
	if (rc)
		return rc;
	if (!ckpt_value_text(m->p, name, &name_len) || !ckpt_value_text(m->p, module, &module_len))
		return refuse(m, "the name of a global is no text");
	rc = more_text(m, module_len + 1 + name_len);
	if (rc)
		return rc;
	char *to = m->p->text + m->p->text_len;
	memcpy(to, ckpt_value_text(m->p, module, &module_len), module_len);
	to[module_len] = ' ';
	memcpy(to + module_len + 1, ckpt_value_text(m->p, name, &name_len), name_len);
	return push_text(m, CKPT_VALUE_GLOBAL, module_len + 1 + name_len);
}

// --- Numbers ----------------------------------------------------------------------------------------------------------

static int push_long(struct machine *m, uint64_t len)
{
	uint64_t number = 0;
	int rc;

	if (len > sizeof(number)) {
		rc = ckpt_cursor_skip(&m->cursor, len);
		return rc ? rc : push_kind(m, CKPT_VALUE_OPAQUE);
	}
	rc = ckpt_cursor_number(&m->cursor, (unsigned)len, &number);
	if (rc)
		return rc;
	if (len && len < sizeof(number) && number >> (8 * len - 1))
		number |= UINT64_MAX << 8 * len;
	return push_number(m, CKPT_VALUE_INT, (int64_t)number);
}

// INT, LONG and FLOAT of protocol 0, which no writer of checkpoints uses: 00 and 01 are bools.
static int push_line_number(struct machine *m, uint8_t code)
{
	size_t len;
	int rc = read_line(m, &len);
	char *text = m->p->text + m->p->text_len, *end;
	long long number;

	if (rc)
		return rc;
	text[len] = '\0';
	if (code == 'I' && (!strcmp(text, "00") || !strcmp(text, "01")))
		return push_number(m, CKPT_VALUE_BOOL, text[1] == '1');
	if (code == 'F')
		return push_kind(m, CKPT_VALUE_FLOAT);
	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno || end == text || (*end && strcmp(end, "L")))
		return push_kind(m, CKPT_VALUE_OPAQUE);
	return push_number(m, CKPT_VALUE_INT, number);
}

// --- The memo ---------------------------------------------------------------------------------------------------------

static int put(struct machine *m, uint64_t index)
{
	size_t before = m->memo_cap;
	uint32_t value;
	int rc = top(m, &value);

	if (!rc && index >= CKPT_PICKLE_MEMO_MAX)
		rc = refuse(m, "the number of a memo is too large");
	if (!rc)
		rc = grow(m, &m->memo, &m->memo_cap, (size_t)index + 1, sizeof(*m->memo));
	if (rc)
		return rc;
	memset(m->memo + before, 0, (m->memo_cap - before) * sizeof(*m->memo));
	m->memoized += !m->memo[index];
	m->memo[index] = value + 1;
	return 0;
}

static int get(struct machine *m, uint64_t index)
{
	if (index >= m->memo_cap || !m->memo[index])
		return refuse(m, "it takes a memo that is not there");
	return push(m, m->memo[index] - 1);
}

static int line_memo(struct machine *m, uint8_t code)
{
	char text[20], *end;
	size_t len;
	uint64_t index;
	int rc = ckpt_cursor_line(&m->cursor, text, sizeof(text) - 1, &len);

	if (rc)
		return rc;
	text[len] = '\0';
	index = strtoull(text, &end, 10);
	if (!len || *end)
		return refuse(m, "the number of a memo is none");
	return code == 'p' ? put(m, index) : get(m, index);
}

// --- Opcodes ----------------------------------------------------------------------------------------------------------

static int push_persistent(struct machine *m)
{
	uint32_t id;
	int rc = pop(m, &id);

	return rc ? rc : push_value(m, (struct value){.kind = CKPT_VALUE_PERSISTENT, .b = id});
}

static int push_line(struct machine *m)
{
	size_t len;
	int rc = read_line(m, &len);

	return rc ? rc : push_text(m, CKPT_VALUE_TEXT, len);
}

static int push_instance(struct machine *m)
{
	uint32_t class;
	int rc = read_global(m);

	if (rc)
		return rc;
	class = m->stack[--m->depth];
	return call_marked(m, &class);
}

static int discard(struct machine *m, bool marked)
{
	uint32_t value;
	size_t from;
	int rc;

	// POP takes a mark, too, where one is on top.
	if (marked || (m->mark_count && m->depth == floor_of(m))) {
		rc = unmark(m, &from);
		if (!rc)
			m->depth = from;
		return rc;
	}
	return pop(m, &value);
}

// Opcodes that make something of what is on the stack, or keep it.
static int join(struct machine *m, const struct ckpt_pickle_op *op)
{
	int rc;

	switch (op->code) {
	case 0x85:
	case 0x86:
	case 0x87:
		return push_tuple(m, op->code - 0x84u);
	case 't':
		return push_marked(m, CKPT_VALUE_TUPLE);
	case 'l':
	case 0x91:
		return push_marked(m, CKPT_VALUE_LIST);
	case 'd':
		return push_marked(m, CKPT_VALUE_DICT);
	case 'a':
		return add_top(m, CKPT_VALUE_LIST);
	case 's':
		return add_top(m, CKPT_VALUE_DICT);
	case 'e':
	case 0x90:
		return add_marked(m, CKPT_VALUE_LIST);
	case 'u':
		return add_marked(m, CKPT_VALUE_DICT);
	case 'c':
		return read_global(m);
	case 0x93:
		return stack_global(m);
	case 'R':
	case 0x81:
		return call(m, false);
	case 0x92:
		return call(m, true);
	case 'o':
		return call_marked(m, NULL);
	case 'i':
		return push_instance(m);
	case 'b':
		return build(m);
	case 'P':
		rc = push_line(m);
		return rc ? rc : push_persistent(m);
	case 'Q':
		return push_persistent(m);
	case 'q':
	case 'r':
		return put(m, op->number);
	case 0x94:
		return put(m, m->memoized);
	case 'h':
	case 'j':
		return get(m, op->number);
	case 'p':
	case 'g':
		return line_memo(m, op->code);
	case 0x82: // EXT: a number of the program's own table of globals
	case 0x83:
	case 0x84:
	case 0x97: // NEXT_BUFFER
		return push_kind(m, CKPT_VALUE_OPAQUE);
	default:
		return refuse(m, "it has an unknown opcode");
	}
}

static int step(struct machine *m, const struct ckpt_pickle_op *op)
{
	uint32_t value;
	int rc;

	switch (op->code) {
	case '(':
		return mark(m);
	case '.':
	case 0x80: // PROTO
	case 0x95: // FRAME
	case 0x98: // READONLY_BUFFER
		return 0;
	case '0':
		return discard(m, false);
	case '1':
		return discard(m, true);
	case '2':
		rc = top(m, &value);
		return rc ? rc : push(m, value);
	case 'N':
		return push(m, 0);
	case 0x88:
	case 0x89:
		return push_number(m, CKPT_VALUE_BOOL, op->code == 0x88);
	case 'K':
	case 'M':
		return push_number(m, CKPT_VALUE_INT, (int64_t)op->number);
	case 'J':
		return push_number(m, CKPT_VALUE_INT, (int32_t)op->number);
	case 0x8a:
	case 0x8b:
		return push_long(m, op->number);
	case 'I':
	case 'L':
	case 'F':
		return push_line_number(m, op->code);
	case 'G':
		return push_kind(m, CKPT_VALUE_FLOAT);
	case 'X':
	case 0x8c:
	case 0x8d:
		return read_text(m, op->number);
	case 'S':
	case 'V':
		return push_line(m);
	case 'U': // str of Python 2, in which it is a name as well
	case 'T':
		return read_text(m, op->number);
	case 'C':
	case 'B':
	case 0x8e:
	case 0x96:
		return read_bytes(m, op->number);
	case ')':
		return push_empty(m);
	case ']':
	case 0x8f:
		return push_kind(m, CKPT_VALUE_LIST);
	case '}':
		return push_kind(m, CKPT_VALUE_DICT);
	default:
		return join(m, op);
	}
}

static int run(struct machine *m)
{
	struct ckpt_pickle_op op = {0};
	uint64_t ops = 0;
	int rc = ckpt_pickle_begin(&m->cursor);

	if (rc == -EINVAL)
		return refuse(m, "it does not begin like one of protocol 2 to 5");
	while (!rc && op.code != CKPT_PICKLE_STOP) {
		if (ops++ == OPS_MAX)
			return refuse(m, "it has too many opcodes");
		m->op_at = m->cursor.at;
		rc = ckpt_pickle_next(&m->cursor, &op);
		if (rc == -EINVAL)
			return refuse(m, "it has an unknown opcode");
		if (!rc)
			rc = step(m, &op);
	}
	return rc ? rc : pop(m, &m->p->root);
}

// A limit that is passed and an end that is missing are faults of the pickle.
static int told(struct machine *m, int rc)
{
	if (rc == -ENODATA)
		return refuse(m, "it ends too early");
	if (rc == -EFBIG)
		return refuse(m, "it is too long");
	if (rc == -EINVAL && !m->fault)
		return refuse(m, "a length or a line is too long");
	return rc;
}

static int machine_init(struct machine *m, const struct ckpt_source *s, uint64_t begin, uint64_t end)
{
	int rc = ckpt_cursor_init(&m->cursor, s, begin, end, CKPT_PICKLE_WALK_MAX);

	m->p = calloc(1, sizeof(*m->p));
	if (!m->p)
		return -ENOMEM;
	// The first value is None, and the first item is none.
	if (!rc)
		rc = grow(m, &m->p->values, &m->p->cap, 1, sizeof(*m->p->values));
	if (!rc)
		rc = grow(m, &m->p->items, &m->p->item_cap, 1, sizeof(*m->p->items));
	if (rc)
		return rc;
	m->p->values[m->p->count++] = (struct value){.kind = CKPT_VALUE_NONE};
	m->p->items[m->p->item_count++] = (struct item){0};
	return 0;
}

static int read_pickle(const struct ckpt_source *s, uint64_t begin, uint64_t end, bool places,
		       struct ckpt_pickle **ret_pickle, uint64_t *ret_end, struct ckpt_pickle_fault *ret_fault)
{
	struct machine m = {0};
	int rc = machine_init(&m, s, begin, end);

	if (!rc && places) {
		m.p->places = true;
		rc = grow(&m, &m.p->item_at, &m.p->item_at_cap, 1, sizeof(*m.p->item_at));
	}
	if (!rc && places)
		m.p->item_at[0] = 0; // of the item that is none
	if (!rc)
		rc = run(&m);
	rc = told(&m, rc);
	ckpt_cursor_done(&m.cursor);
	free(m.stack);
	free(m.marks);
	free(m.memo);
	*ret_fault = (struct ckpt_pickle_fault){m.fault, m.cursor.at};
	if (rc) {
		ckpt_pickle_free(m.p);
		return rc;
	}
	if (ret_end)
		*ret_end = m.cursor.at;
	*ret_pickle = m.p;
	return 0;
}

int ckpt_pickle_read(const struct ckpt_source *s, uint64_t begin, uint64_t end, struct ckpt_pickle **ret_pickle,
		     uint64_t *ret_end, struct ckpt_pickle_fault *ret_fault)
{
	return read_pickle(s, begin, end, false, ret_pickle, ret_end, ret_fault);
}

int ckpt_pickle_read_places(const struct ckpt_source *s, uint64_t begin, uint64_t end, struct ckpt_pickle **ret_pickle,
			    struct ckpt_pickle_fault *ret_fault)
{
	return read_pickle(s, begin, end, true, ret_pickle, NULL, ret_fault);
}

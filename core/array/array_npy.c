// The header of a .npy file is a Python dictionary with three keys, in any order:
//
//	header := "{" pair ("," pair)* [","] "}" (space | newline)*
//	pair   := "descr" ":" text | "fortran_order" ":" ("True" | "False") | "shape" ":" shape
//	shape  := "(" ")" | "(" number "," ")" | "(" number ("," number)+ [","] ")"
//	number := digits ["L"]                           the L of Python 2
//	text   := order kind digits ["[" unit "]"]       order: < > |
//	        | "|O"                                   objects, which are a pickle
//	        | "[" ... "]"                            records: their fields are skipped
//
// with spaces between, and texts in quotes of either kind without a backslash in them. That is all that is understood: nothing
// is evaluated. Records and objects have a shape here, and no bytes.
#include "core/array/array_format.h"

#include "core/base/util.h"
#include "core/limits.h"

#define ITEM_BYTES_MAX INT32_MAX // NumPy's

struct text {
	const char *at, *end;
};

struct header {
	enum ckpt_dtype dtype;
	uint64_t item_bytes;
	const char *opaque; // the size of its elements is not known: the reason
	bool fortran, big_endian;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	unsigned ndim;
	bool has_descr, has_order, has_shape;
};

// --- Grammar ------------------------------------------------------------------------------------------------------------

static void skip_spaces(struct text *t)
{
	while (t->at < t->end && *t->at == ' ')
		t->at++;
}

static bool take(struct text *t, char c)
{
	skip_spaces(t);
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static bool take_word(struct text *t, const char *word)
{
	size_t len = strlen(word);

	skip_spaces(t);
	if ((size_t)(t->end - t->at) < len || memcmp(t->at, word, len))
		return false;
	t->at += len;
	return true;
}

static bool take_quoted(struct text *t, struct text *ret_text)
{
	const char *end;
	char quote;

	skip_spaces(t);
	if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
		return false;
	quote = *t->at++;
	end = memchr(t->at, quote, (size_t)(t->end - t->at));
	if (!end || memchr(t->at, '\\', (size_t)(end - t->at)))
		return false;
	*ret_text = (struct text){t->at, end};
	t->at = end + 1;
	return true;
}

static bool take_digits(struct text *t, uint64_t *ret_number)
{
	const char *begin = t->at;
	uint64_t n = 0;

	for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
		if (__builtin_mul_overflow(n, (uint64_t)10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*t->at - '0'), &n))
			return false;
	*ret_number = n;
	return t->at > begin && (*begin != '0' || t->at == begin + 1);
}

static bool take_shape(struct text *t, struct header *h)
{
	bool comma = true;

	if (!take(t, '('))
		return false;
	while (!take(t, ')')) {
		uint64_t n;

		if (!comma || h->ndim == CKPT_ARRAY_DIMS_MAX || !take_digits(t, &n))
			return false;
		h->shape[h->ndim++] = n;
		if (t->at < t->end && *t->at == 'L')
			t->at++;
		comma = take(t, ',');
	}
	return h->ndim != 1 || comma; // (3) is a number
}

// --- What a descr says --------------------------------------------------------------------------------------------------

// Numbers, by kind and size in bytes.
enum ckpt_dtype ckpt_npy_number(char kind, uint64_t bytes)
{
	static const struct {
		char kind;
		uint8_t bytes;
		uint8_t dtype;
	} types[] = {
		{'b', 1, CKPT_DTYPE_BOOL}, {'i', 1, CKPT_DTYPE_I8},    {'i', 2, CKPT_DTYPE_I16},
		{'i', 4, CKPT_DTYPE_I32},  {'i', 8, CKPT_DTYPE_I64},   {'u', 1, CKPT_DTYPE_U8},
		{'u', 2, CKPT_DTYPE_U16},  {'u', 4, CKPT_DTYPE_U32},   {'u', 8, CKPT_DTYPE_U64},
		{'f', 2, CKPT_DTYPE_F16},  {'f', 4, CKPT_DTYPE_F32},   {'f', 8, CKPT_DTYPE_F64},
		{'c', 8, CKPT_DTYPE_C64},  {'c', 16, CKPT_DTYPE_C128},
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (types[i].kind == kind && types[i].bytes == bytes)
			return types[i].dtype;
	return CKPT_DTYPE_NONE;
}

// The sizes that a kind can have: of times 8; of numbers those above, and those of long doubles.
static bool is_size_of(char kind, uint64_t bytes)
{
	switch (kind) {
	case 'm':
	case 'M':
		return bytes == 8;
	case 'f':
		return ckpt_npy_number(kind, bytes) || bytes == 12 || bytes == 16;
	case 'c':
		return ckpt_npy_number(kind, bytes) || bytes == 24 || bytes == 32;
	case 'b':
	case 'i':
	case 'u':
		return ckpt_npy_number(kind, bytes);
	case 'S':
	case 'V':
	case 'U':
		return bytes <= ITEM_BYTES_MAX;
	default:
		return false; // of these 'O', objects
	}
}

// The fields of records, to the end of the list. What is in quotes has no brackets that count.
static bool skip_fields(struct text *t)
{
	struct text quoted;
	uint32_t depth = 0;

	do {
		skip_spaces(t);
		if (t->at == t->end)
			return false;
		if (*t->at == '\'' || *t->at == '"') {
			if (!take_quoted(t, &quoted))
				return false;
			continue;
		}
		depth += strchr("[(", *t->at) ? 1 : 0;
		depth -= strchr("])", *t->at) ? 1 : 0;
		t->at++;
	} while (depth);
	return true;
}

static bool take_descr(struct text *t, struct header *h)
{
	struct text descr;
	char order, kind;

	skip_spaces(t);
	if (t->at < t->end && *t->at == '[') {
		h->opaque = "its elements are records";
		return skip_fields(t);
	}
	if (take_word(t, "'|O'") || take_word(t, "\"|O\"")) {
		h->opaque = "its elements are objects of Python";
		return true;
	}
	if (!take_quoted(t, &descr) || descr.end - descr.at < 3 || !strchr("<>|", descr.at[0]))
		return false;
	order = descr.at[0];
	kind = descr.at[1];
	descr.at += 2;
	if (!order || !take_digits(&descr, &h->item_bytes) ||
	    (kind == 'U' && __builtin_mul_overflow(h->item_bytes, (uint64_t)4, &h->item_bytes)) ||
	    !is_size_of(kind, h->item_bytes))
		return false;
	if (descr.at < descr.end && !((kind == 'm' || kind == 'M') && *descr.at == '[' && descr.end[-1] == ']'))
		return false;
	h->dtype = ckpt_npy_number(kind, h->item_bytes);
	h->big_endian = h->item_bytes > 1 && order == '>';
	// Where bytes have an order it is said.
	return order != '|' || h->item_bytes == 1 || kind == 'S' || kind == 'V';
}

// --- The file -----------------------------------------------------------------------------------------------------------

static bool is(const struct text *t, const char *key)
{
	return (size_t)(t->end - t->at) == strlen(key) && !memcmp(t->at, key, strlen(key));
}

static bool once(bool *seen)
{
	bool first = !*seen;

	*seen = true;
	return first;
}

static bool take_pair(struct text *t, struct header *h)
{
	struct text key;

	if (!take_quoted(t, &key) || !take(t, ':'))
		return false;
	if (is(&key, "descr"))
		return once(&h->has_descr) && take_descr(t, h);
	if (is(&key, "shape"))
		return once(&h->has_shape) && take_shape(t, h);
	if (!is(&key, "fortran_order") || !once(&h->has_order))
		return false;
	h->fortran = take_word(t, "True");
	return h->fortran || take_word(t, "False");
}

static bool take_header(struct text *t, struct header *h)
{
	bool comma = true;

	if (!take(t, '{'))
		return false;
	while (!take(t, '}')) {
		if (!comma || !take_pair(t, h))
			return false;
		comma = take(t, ',');
	}
	while (t->at < t->end && (*t->at == ' ' || *t->at == '\n'))
		t->at++;
	return t->at == t->end && h->has_descr && h->has_order && h->has_shape;
}

// The length of the header, which is not read before it is known to be small; and where it begins.
static int header_length(const struct ckpt_source *s, uint64_t offset, uint64_t bytes, uint32_t *ret_len,
			 uint64_t *ret_begin)
{
	uint8_t head[12] = {0};
	size_t head_len = 10;
	int rc = bytes < head_len ? -EINVAL : ckpt_source_read(s, offset, head, head_len);

	if (rc)
		return rc;
	if (memcmp(head, "\x93NUMPY", 6) || head[6] < 1 || head[6] > 3 || head[7])
		return -EINVAL;
	*ret_len = ckpt_get16(head + 8);
	if (head[6] > 1) {
		head_len = 12;
		rc = bytes < head_len ? -EINVAL : ckpt_source_read(s, offset, head, head_len);
		*ret_len = ckpt_get32(head + 8);
	}
	*ret_begin = offset + head_len;
	return rc ? rc : *ret_len > CKPT_ARRAY_NPY_HEADER_MAX || *ret_len > bytes - head_len ? -EINVAL : 0;
}

int ckpt_npy_read(const struct ckpt_source *s, uint64_t offset, uint64_t bytes, struct ckpt_npy *ret_npy)
{
	char text[CKPT_ARRAY_NPY_HEADER_MAX];
	struct header h = {0};
	uint64_t begin, want;
	uint32_t len;
	int rc = header_length(s, offset, bytes, &len, &begin);

	ret_npy->broken = CKPT_NPY_BROKEN;
	if (!rc)
		rc = ckpt_source_read(s, begin, text, len);
	if (rc)
		return rc;
	if (!take_header(&(struct text){text, text + len}, &h))
		return -EINVAL;
	*ret_npy = (struct ckpt_npy){
		.dtype = h.dtype,
		.big_endian = h.big_endian,
		.column_major = h.fortran,
		.opaque = h.opaque,
		.ndim = h.ndim,
		.offset = begin + len,
		.bytes = offset + bytes - (begin + len),
	};
	memcpy(ret_npy->shape, h.shape, sizeof(h.shape));
	ret_npy->broken = "it has more elements than any file could hold";
	if (!ckpt_array_elements(h.shape, h.ndim, &want) || __builtin_mul_overflow(want, h.item_bytes, &want))
		return -EINVAL;
	ret_npy->broken = NULL;
	if (h.opaque || want == ret_npy->bytes)
		return 0;
	ret_npy->broken = want > ret_npy->bytes
				  ? "the file is shorter than its shape says"
				  : "more bytes follow than its shape says: several arrays in one file have no names";
	return -EINVAL;
}

int ckpt_arrays_npy(struct ckpt_arrays *a, const char *name, size_t name_len, const struct ckpt_source *s,
		    uint64_t offset, uint64_t bytes)
{
	struct ckpt_npy npy;
	struct ckpt_array array;
	int rc = ckpt_npy_read(s, offset, bytes, &npy);

	if (rc)
		return rc;
	if (npy.opaque)
		return -EINVAL;
	array = (struct ckpt_array){
		.name = name,
		.dtype = npy.big_endian ? CKPT_DTYPE_NONE : npy.dtype,
		.ndim = npy.ndim,
		.shape = npy.shape,
		.offset = npy.offset,
		.bytes = npy.bytes,
		.column_major = npy.column_major,
	};
	return ckpt_arrays_add(a, &array, name_len);
}

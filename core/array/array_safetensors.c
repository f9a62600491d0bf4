// A .safetensors file: the length of the header as u64, the header, a JSON object, and the tensors without a gap:
//
//	header := "{" [ member ("," member)* ] "}" space*
//	member := NAME ":" { "dtype": NAME, "shape": [ integer* ], "data_offsets": [ begin, end ] }
//	        | "__metadata__" ":" { [ NAME: text ]* }
//
// A parsed header would take some 25 times its length in memory. So it is cut between members, and jansson gets a piece of
// it at a time, with braces around: brackets and quotes alone say where a member ends. That the names differ is known at the
// end.
#include "core/array/array_format.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

#define PIECE_BYTES ((size_t)64 << 10) // is parsed once it has so many
#define METADATA "__metadata__"

_Static_assert(CKPT_ARRAY_HEADER_MAX / sizeof("'':{'dtype':'','shape':[],'data_offsets':[0,0]}") < CKPT_ARRAYS_MAX,
	       "no header has more tensors");

struct header {
	struct ckpt_arrays *arrays;
	uint64_t data, file_bytes; // where the tensors begin and end
	uint64_t tensor_bytes;     // of all that were taken
	char *text;
	size_t len;
	bool has_metadata;
	const char *why; // of -EINVAL; NULL: no rule in particular
};

// --- A tensor -----------------------------------------------------------------------------------------------------------

static enum ckpt_dtype dtype_of(const char *name)
{
	static const struct {
		char name[12];
		enum ckpt_dtype dtype;
	} types[] = {
		{"BOOL", CKPT_DTYPE_BOOL},
		{"I8", CKPT_DTYPE_I8},
		{"I16", CKPT_DTYPE_I16},
		{"I32", CKPT_DTYPE_I32},
		{"I64", CKPT_DTYPE_I64},
		{"U8", CKPT_DTYPE_U8},
		{"U16", CKPT_DTYPE_U16},
		{"U32", CKPT_DTYPE_U32},
		{"U64", CKPT_DTYPE_U64},
		{"F16", CKPT_DTYPE_F16},
		{"F32", CKPT_DTYPE_F32},
		{"F64", CKPT_DTYPE_F64},
		{"BF16", CKPT_DTYPE_BF16},
		{"F8_E4M3", CKPT_DTYPE_F8E4M3},
		{"F8_E5M2", CKPT_DTYPE_F8E5M2},
		{"C64", CKPT_DTYPE_C64},
		{"F4", CKPT_DTYPE_F4E2M1},
		{"F8_E4M3FNUZ", CKPT_DTYPE_F8E4M3FNUZ},
		{"F8_E5M2FNUZ", CKPT_DTYPE_F8E5M2FNUZ},
		{"F8_E8M0", CKPT_DTYPE_F8E8M0},
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (!strcmp(types[i].name, name))
			return types[i].dtype;
	return CKPT_DTYPE_NONE;
}

static bool take_number(const json_t *number, uint64_t *ret_number)
{
	if (!json_is_integer(number) || json_integer_value(number) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(number);
	return true;
}

static bool take_shape(const json_t *shape, uint64_t *dims, unsigned *ret_ndim)
{
	size_t ndim = json_array_size(shape);

	if (!json_is_array(shape) || ndim > CKPT_ARRAY_DIMS_MAX)
		return false;
	for (size_t i = 0; i < ndim; i++)
		if (!take_number(json_array_get(shape, i), &dims[i]))
			return false;
	*ret_ndim = (unsigned)ndim;
	return true;
}

static bool take_place(const struct header *h, const json_t *offsets, struct ckpt_array *array)
{
	uint64_t begin, end;

	if (json_array_size(offsets) != 2 || !take_number(json_array_get(offsets, 0), &begin) ||
	    !take_number(json_array_get(offsets, 1), &end) || begin > end || end > h->file_bytes - h->data)
		return false;
	array->offset = h->data + begin;
	array->bytes = end - begin;
	return true;
}

// What comes without a dtype that is known here has, like all others, a whole number of bits in each element.
static bool fits(const struct ckpt_array *array)
{
	uint64_t elements, bits, want;

	if (!ckpt_array_elements(array->shape, array->ndim, &elements) ||
	    __builtin_mul_overflow(array->bytes, (uint64_t)8, &bits))
		return false;
	if (!array->dtype)
		return elements ? bits % elements == 0 : bits == 0;
	return !__builtin_mul_overflow(elements, (uint64_t)ckpt_dtype_bits(array->dtype), &want) && want == bits;
}

static int take_tensor(struct header *h, const char *name, const json_t *tensor)
{
	const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
	uint64_t dims[CKPT_ARRAY_DIMS_MAX];
	struct ckpt_array array = {.name = name, .shape = dims};

	if (!dtype || !take_shape(json_object_get(tensor, "shape"), dims, &array.ndim) ||
	    !take_place(h, json_object_get(tensor, "data_offsets"), &array))
		return -EINVAL;
	array.dtype = dtype_of(dtype);
	if (!fits(&array) || __builtin_add_overflow(h->tensor_bytes, array.bytes, &h->tensor_bytes))
		return -EINVAL;
	return ckpt_arrays_add(h->arrays, &array, strlen(name));
}

static int take_metadata(struct header *h, json_t *metadata)
{
	const char *key;
	json_t *value;

	if (h->has_metadata || !json_is_object(metadata))
		return -EINVAL;
	h->has_metadata = true;
	json_object_foreach(metadata, key, value)
	{
		if (!json_is_string(value))
			return -EINVAL;
	}
	return 0;
}

// --- The header ---------------------------------------------------------------------------------------------------------

// The members in text[begin, end); both neighbours are theirs to write over.
static int take_piece(struct header *h, size_t begin, size_t end)
{
	json_t *piece, *member;
	json_error_t error;
	const char *name;
	int rc;

	h->text[begin - 1] = '{';
	h->text[end] = '}';
	rc = ckpt_json_load(h->text + begin - 1, end - begin + 2, JSON_REJECT_DUPLICATES, &error, &piece);
	if (rc == -EINVAL && json_error_code(&error) == json_error_duplicate_key)
		h->why = CKPT_ARRAYS_TWICE;
	if (rc == -EINVAL && (json_error_code(&error) == json_error_null_character ||
			      json_error_code(&error) == json_error_null_byte_in_key))
		h->why = "has a NUL in a name or a text";
	if (rc)
		return rc;
	json_object_foreach(piece, name, member)
	{
		rc = strcmp(name, METADATA) ? take_tensor(h, name, member) : take_metadata(h, member);
		if (rc)
			break;
	}
	json_decref(piece);
	return rc;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t skip_spaces(const struct header *h, size_t at)
{
	while (at < h->len && is_space(h->text[at]))
		at++;
	return at;
}

// Where the member that begins at `at` ends: at the comma or brace behind it. False: there is no such end.
static bool find_end(const struct header *h, size_t at, size_t *ret_end)
{
	unsigned depth = 1;
	bool quoted = false;

	for (; at < h->len; at++) {
		char c = h->text[at];

		if (quoted && c == '\\')
			at++;
		else if (c == '"')
			quoted = !quoted;
		else if (!quoted && (c == '{' || c == '[') && ++depth > CKPT_ARRAY_DEPTH_MAX)
			return false;
		else if (!quoted && ((depth == 1 && c == ',') || ((c == '}' || c == ']') && --depth == 0))) {
			*ret_end = at;
			return c != ']';
		}
	}
	return false;
}

// Free text may be large, as jobs put their settings there, and is not needed.
static bool is_metadata(const struct header *h, size_t at)
{
	static const char key[] = "\"" METADATA "\"";

	return h->len - at >= sizeof(key) && !memcmp(h->text + at, key, sizeof(key) - 1);
}

// The member in text[begin, end), behind the one that ended at before. *piece is where the first begins that was not parsed
// yet.
static int take_member(struct header *h, size_t before, size_t begin, size_t end, size_t *piece)
{
	int rc = 0;

	if (end - begin <= CKPT_ARRAY_PIECE_MAX) {
		if (end - *piece < PIECE_BYTES)
			return 0;
		rc = take_piece(h, *piece, end);
	} else if (is_metadata(h, begin) && !h->has_metadata) {
		h->has_metadata = true;
		if (*piece < before)
			rc = take_piece(h, *piece, before);
	} else {
		rc = -EINVAL;
	}
	*piece = end + 1;
	return rc;
}

// Of a header that begins with a brace.
static int take_members(struct header *h)
{
	size_t piece = 1, end = 0;
	bool more = true;
	int rc = 0;

	if (h->text[skip_spaces(h, 1)] == '}')
		return skip_spaces(h, skip_spaces(h, 1) + 1) == h->len ? 0 : -EINVAL;
	while (!rc && more) {
		size_t before = end, begin = skip_spaces(h, end + 1);

		if (!find_end(h, begin, &end) || begin == end)
			return -EINVAL;
		more = h->text[end] == ',';
		rc = take_member(h, before, begin, end, &piece);
	}
	if (!rc && skip_spaces(h, end + 1) != h->len)
		rc = -EINVAL;
	return !rc && piece < end ? take_piece(h, piece, end) : rc;
}

static int read_header(struct header *h, const struct ckpt_source *s)
{
	CLEANUP_FREE char *text = NULL;
	uint8_t head[8];
	uint64_t len;
	int rc = ckpt_source_read(s, 0, head, sizeof(head));

	if (rc)
		return rc;
	len = ckpt_get64(head);
	if (len < 2 || len > CKPT_ARRAY_HEADER_MAX || len > s->bytes - sizeof(head))
		return -EINVAL;
	text = malloc((size_t)len + 1);
	rc = text ? ckpt_source_read(s, sizeof(head), text, (size_t)len) : -ENOMEM;
	if (rc)
		return rc;
	h->text = text;
	h->len = (size_t)len;
	h->data = sizeof(head) + len;
	text[len] = '\0';
	rc = *text == '{' ? take_members(h) : -EINVAL;
	h->text = NULL;
	return rc;
}

int ckpt_arrays_safetensors(struct ckpt_arrays *a, const struct ckpt_source *s)
{
	struct header h = {.arrays = a, .file_bytes = s->bytes};
	int rc = read_header(&h, s);

	// None over another, which is looked at with all: so there is no hole either.
	return rc ? rc : h.tensor_bytes == s->bytes - h.data ? 0 : -EINVAL;
}

int ckpt_arrays_safetensors_bytes(struct ckpt_arrays *a, const struct ckpt_source *s, uint64_t *ret_bytes,
				  const char **ret_why)
{
	struct header h = {.arrays = a, .file_bytes = INT64_MAX};
	int rc = read_header(&h, s);

	if (!rc && h.tensor_bytes > INT64_MAX - h.data)
		rc = -EINVAL;
	if (!rc)
		*ret_bytes = h.data + h.tensor_bytes;
	*ret_why = h.why;
	return rc;
}

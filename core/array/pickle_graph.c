#include "core/array/pickle_graph.h"

#include "core/array/array.h"
#include "core/base/util.h"

bool ckpt_value_is_container(const struct ckpt_pickle *p, uint32_t value)
{
	uint8_t kind = p->values[value].kind;

	return kind == CKPT_VALUE_TUPLE || kind == CKPT_VALUE_LIST || kind == CKPT_VALUE_DICT;
}

void ckpt_pickle_free(struct ckpt_pickle *p)
{
	if (!p)
		return;
	free(p->values);
	free(p->items);
	free(p->item_at);
	free(p->text);
	free(p);
}

ckpt_value ckpt_pickle_root(const struct ckpt_pickle *p)
{
	return p->root;
}

size_t ckpt_pickle_bytes(const struct ckpt_pickle *p)
{
	return p->cap * sizeof(*p->values) + p->item_cap * sizeof(*p->items) + p->text_cap;
}

size_t ckpt_pickle_count(const struct ckpt_pickle *p)
{
	return p->count;
}

enum ckpt_value_kind ckpt_value_kind(const struct ckpt_pickle *p, ckpt_value v)
{
	return p->values[v].kind;
}

bool ckpt_value_int(const struct ckpt_pickle *p, ckpt_value v, int64_t *ret_number)
{
	if (p->values[v].kind != CKPT_VALUE_INT && p->values[v].kind != CKPT_VALUE_BOOL)
		return false;
	*ret_number = p->values[v].number;
	return true;
}

bool ckpt_value_size(const struct ckpt_pickle *p, ckpt_value v, uint64_t *ret_size)
{
	int64_t number;

	if (!ckpt_value_int(p, v, &number) || number < 0)
		return false;
	*ret_size = (uint64_t)number;
	return true;
}

bool ckpt_value_sizes(const struct ckpt_pickle *p, ckpt_value tuple, uint64_t *ret_sizes, unsigned *ret_count)
{
	unsigned count = 0;

	if (ckpt_value_kind(p, tuple) != CKPT_VALUE_TUPLE || ckpt_value_count(p, tuple) > CKPT_ARRAY_DIMS_MAX)
		return false;
	for (ckpt_item at = ckpt_value_first(p, tuple); at; at = ckpt_item_next(p, at))
		if (!ckpt_value_size(p, ckpt_item_value(p, at), &ret_sizes[count++]))
			return false;
	*ret_count = count;
	return true;
}

static const char *text_of(const struct ckpt_pickle *p, ckpt_value v, enum ckpt_value_kind kind, size_t *ret_len)
{
	if (p->values[v].kind != kind)
		return NULL;
	*ret_len = p->values[v].a;
	return p->text + p->values[v].b;
}

const char *ckpt_value_text(const struct ckpt_pickle *p, ckpt_value v, size_t *ret_len)
{
	return text_of(p, v, CKPT_VALUE_TEXT, ret_len);
}

const char *ckpt_value_global(const struct ckpt_pickle *p, ckpt_value v, size_t *ret_len)
{
	return text_of(p, v, CKPT_VALUE_GLOBAL, ret_len);
}

bool ckpt_value_is_text(const struct ckpt_pickle *p, ckpt_value v, const char *text)
{
	size_t len;
	const char *is = ckpt_value_text(p, v, &len);

	return is && len == strlen(text) && !memcmp(is, text, len);
}

bool ckpt_value_is_global(const struct ckpt_pickle *p, ckpt_value v, const char *name)
{
	size_t len;
	const char *is = ckpt_value_global(p, v, &len);

	return is && len == strlen(name) && !memcmp(is, name, len);
}

bool ckpt_value_bytes(const struct ckpt_pickle *p, ckpt_value v, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	if (p->values[v].kind != CKPT_VALUE_BYTES)
		return false;
	*ret_offset = (uint64_t)p->values[v].number;
	*ret_bytes = p->values[v].a;
	return true;
}

size_t ckpt_value_count(const struct ckpt_pickle *p, ckpt_value v)
{
	return ckpt_value_is_container(p, v) ? p->values[v].a : 0;
}

ckpt_item ckpt_value_first(const struct ckpt_pickle *p, ckpt_value v)
{
	return ckpt_value_is_container(p, v) ? p->values[v].b : 0;
}

ckpt_item ckpt_item_next(const struct ckpt_pickle *p, ckpt_item item)
{
	return p->items[item].next;
}

size_t ckpt_pickle_items(const struct ckpt_pickle *p)
{
	return p->item_count;
}

ckpt_value ckpt_item_value(const struct ckpt_pickle *p, ckpt_item item)
{
	return p->items[item].value;
}

ckpt_value ckpt_value_at(const struct ckpt_pickle *p, ckpt_value v, size_t index)
{
	ckpt_item item = ckpt_value_first(p, v);

	while (item && index--)
		item = p->items[item].next;
	return p->items[item].value;
}

bool ckpt_value_get(const struct ckpt_pickle *p, ckpt_value v, const char *key, ckpt_value *ret_value)
{
	bool found = false;

	if (p->values[v].kind != CKPT_VALUE_DICT)
		return false;
	for (ckpt_item at = p->values[v].b, value; at; at = p->items[value].next) {
		value = p->items[at].next;
		if (ckpt_value_is_text(p, p->items[at].value, key)) {
			*ret_value = p->items[value].value;
			found = true;
		}
	}
	return found;
}

static ckpt_value part_of(const struct ckpt_pickle *p, ckpt_value v, uint32_t part)
{
	return p->values[v].kind == CKPT_VALUE_OBJECT ? part : 0;
}

ckpt_value ckpt_value_callee(const struct ckpt_pickle *p, ckpt_value v)
{
	return part_of(p, v, p->values[v].b);
}

ckpt_value ckpt_value_arguments(const struct ckpt_pickle *p, ckpt_value v)
{
	return part_of(p, v, p->values[v].c);
}

ckpt_value ckpt_value_state(const struct ckpt_pickle *p, ckpt_value v)
{
	return part_of(p, v, p->values[v].a);
}

ckpt_value ckpt_value_id(const struct ckpt_pickle *p, ckpt_value v)
{
	return p->values[v].kind == CKPT_VALUE_PERSISTENT ? p->values[v].b : 0;
}

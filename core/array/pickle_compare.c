// Two graphs are walked side by side. Each value of one has its partner in the other, from the first time that it is met.
#include "core/array/pickle_edit.h"

#include "core/array/pickle_graph.h"
#include "core/base/util.h"

struct pair {
	ckpt_value was, now;
};

struct comparing {
	const struct ckpt_pickle *was, *now;
	const uint8_t *cut;
	uint32_t *partners; // of the values of was: a value of now + 1
	uint8_t *taken;     // a bit for each value of now
	struct pair *left;  // to be looked into
	size_t count, cap;
	bool same;
};

static int meet(struct comparing *c, ckpt_value was, ckpt_value now)
{
	uint8_t *byte = &c->taken[now / 8], bit = (uint8_t)(1u << now % 8);
	int rc;

	if (c->partners[was] || *byte & bit) {
		c->same &= c->partners[was] == now + 1;
		return 0;
	}
	rc = ckpt_grow((void **)&c->left, &c->cap, c->count + 1, sizeof(*c->left));
	if (rc)
		return rc;
	c->partners[was] = now + 1;
	*byte |= bit;
	c->left[c->count++] = (struct pair){was, now};
	return 0;
}

static ckpt_item skip_cut(const struct comparing *c, ckpt_item at, bool pairs)
{
	while (at && c->cut[at / 8] & 1u << at % 8) {
		at = ckpt_item_next(c->was, at);
		if (pairs)
			at = ckpt_item_next(c->was, at);
	}
	return at;
}

static int meet_items(struct comparing *c, const struct pair *p)
{
	bool pairs = ckpt_value_kind(c->was, p->was) == CKPT_VALUE_DICT, key = true;
	ckpt_item was = ckpt_value_first(c->was, p->was), now = ckpt_value_first(c->now, p->now);
	int rc = 0;

	while (!rc && c->same) {
		was = key ? skip_cut(c, was, pairs) : was;
		if (!was || !now)
			break;
		rc = meet(c, ckpt_item_value(c->was, was), ckpt_item_value(c->now, now));
		was = ckpt_item_next(c->was, was);
		now = ckpt_item_next(c->now, now);
		key = !pairs || !key;
	}
	c->same &= !was == !now;
	return rc;
}

static bool is_same_text(const struct comparing *c, const struct value *was, const struct value *now)
{
	return was->a == now->a && !memcmp(c->was->text + was->b, c->now->text + now->b, was->a);
}

static int look_into(struct comparing *c, const struct pair *p)
{
	const struct value *was = &c->was->values[p->was], *now = &c->now->values[p->now];
	int rc = 0;

	if (was->kind != now->kind) {
		c->same = false;
		return 0;
	}
	switch (was->kind) {
	case CKPT_VALUE_BOOL:
	case CKPT_VALUE_INT:
		c->same &= was->number == now->number;
		return 0;
	case CKPT_VALUE_TEXT:
	case CKPT_VALUE_GLOBAL:
		c->same &= is_same_text(c, was, now);
		return 0;
	case CKPT_VALUE_BYTES:
		c->same &= was->a == now->a;
		return 0;
	case CKPT_VALUE_OBJECT:
		rc = meet(c, was->a, now->a);
		rc = rc ? rc : meet(c, was->b, now->b);
		return rc ? rc : meet(c, was->c, now->c);
	case CKPT_VALUE_PERSISTENT:
		return meet(c, was->b, now->b);
	default:
		return meet_items(c, p);
	}
}

int ckpt_pickle_compare(const struct ckpt_pickle *was, const uint8_t *cut, const struct ckpt_pickle *now,
			bool *ret_same)
{
	struct comparing c = {.was = was, .now = now, .cut = cut, .same = true};
	int rc = -ENOMEM;

	c.partners = ckpt_calloc(was->count + 1, sizeof(*c.partners));
	c.taken = ckpt_calloc(now->count / 8 + 1, 1);
	if (c.partners && c.taken)
		rc = meet(&c, was->root, now->root);
	while (!rc && c.same && c.count) {
		struct pair p = c.left[--c.count];

		rc = look_into(&c, &p);
	}
	free(c.partners);
	free(c.taken);
	free(c.left);
	*ret_same = c.same;
	return rc;
}

static int read_edited(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct ckpt_buffer *out = arg;

	memcpy(buf, out->at + offset, len);
	return 0;
}

struct ckpt_source ckpt_pickle_edited(struct ckpt_buffer *out)
{
	return (struct ckpt_source){.bytes = out->len, .read = read_edited, .arg = out};
}

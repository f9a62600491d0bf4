#include "tools/rm_check.h"

#include "core/base/util.h"

struct side {
	const struct ckpt_catalog *c;
	uint32_t *order; // of the arrays that are looked at
	size_t count;
};

// qsort_r(3)'s.
static int by_name(const void *one, const void *other, void *arg)
{
	struct ckpt_catalog_array a, b;
	int order;

	ckpt_catalog_get(arg, *(const uint32_t *)one, &a);
	ckpt_catalog_get(arg, *(const uint32_t *)other, &b);
	order = strcmp(a.tree, b.tree) ?: strcmp(a.name, b.name);
	return order ? order : strcmp(a.format, b.format);
}

static int take_side(struct side *s, const struct ckpt_catalog *c, bool (*drops)(void *arg, const char *name),
		     void *arg)
{
	*s = (struct side){.c = c, .order = ckpt_calloc(ckpt_catalog_count(c) + 1, sizeof(*s->order))};
	if (!s->order)
		return -ENOMEM;
	for (uint32_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		if (!drops || !drops(arg, a.name))
			s->order[s->count++] = i;
	}
	qsort_r(s->order, s->count, sizeof(*s->order), by_name, (void *)c);
	return 0;
}

static uint64_t piece_bytes(const struct ckpt_catalog *c, size_t i, size_t pieces)
{
	uint64_t bytes = 0;
	struct ckpt_piece p;

	for (size_t k = 0; k < pieces; k++) {
		ckpt_catalog_piece(c, i, k, &p);
		bytes += p.bytes;
	}
	return bytes;
}

// Places and encodings may differ: a file that was written again has its own.
static bool is_same(const struct side *was, const struct side *now, size_t i)
{
	struct ckpt_catalog_array a, b;

	ckpt_catalog_get(was->c, was->order[i], &a);
	ckpt_catalog_get(now->c, now->order[i], &b);
	if (strcmp(a.tree, b.tree) || strcmp(a.name, b.name) || strcmp(a.format, b.format) || a.dtype != b.dtype ||
	    a.ndim != b.ndim || (a.ndim && memcmp(a.shape, b.shape, a.ndim * sizeof(*a.shape))) || !a.why != !b.why)
		return false;
	return !strcmp(a.format, "npz") ||
	       (a.pieces == b.pieces &&
		piece_bytes(was->c, was->order[i], a.pieces) == piece_bytes(now->c, now->order[i], b.pieces));
}

static bool had_fault(const struct ckpt_catalog *was, const struct ckpt_catalog_fault *f)
{
	struct ckpt_catalog_fault old;

	for (size_t i = 0; i < ckpt_catalog_faults(was); i++) {
		ckpt_catalog_fault(was, i, &old);
		if (!strcmp(old.file, f->file) && !strcmp(old.field, f->field))
			return true;
	}
	return false;
}

static char *first_other(const struct side *was, const struct side *now)
{
	struct ckpt_catalog_array a;
	struct ckpt_catalog_fault f;

	for (size_t i = 0; i < MAX(was->count, now->count); i++) {
		if (i < MIN(was->count, now->count) && is_same(was, now, i))
			continue;
		ckpt_catalog_get(i < was->count ? was->c : now->c, i < was->count ? was->order[i] : now->order[i], &a);
		return strdup(a.name);
	}
	for (size_t i = 0; i < ckpt_catalog_faults(now->c); i++) {
		ckpt_catalog_fault(now->c, i, &f);
		if (!had_fault(was->c, &f))
			return strdup(f.file);
	}
	return NULL;
}

int ckpt_rm_check(const struct ckpt_catalog *was, const struct ckpt_catalog *now,
		  bool (*drops)(void *arg, const char *name), void *arg, char **ret_what)
{
	struct side before = {0}, after = {0};
	int rc = take_side(&before, was, drops, arg);

	if (!rc)
		rc = take_side(&after, now, NULL, NULL);
	if (!rc) {
		*ret_what = first_other(&before, &after);
		rc = *ret_what ? -EBADMSG : 0;
	}
	free(before.order);
	free(after.order);
	return rc;
}

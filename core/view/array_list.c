#include "core/view/array_list.h"

#include "core/array/cast.h"
#include "core/base/util.h"

int ckpt_array_list_add(struct ckpt_array_list *l, const char *name, const char *tree, const char *bare,
			struct ckpt_expr *expr)
{
	struct ckpt_array_item item = {.name = strdup(name)};
	int rc = item.name ? ckpt_grow((void **)&l->at, &l->cap, l->count + 1, sizeof(*l->at)) : -ENOMEM;

	if (!rc && tree) {
		item.tree = strdup(tree);
		item.bare = strdup(bare);
		rc = item.tree && item.bare ? 0 : -ENOMEM;
	}
	if (rc) {
		ckpt_array_item_done(&item);
		return rc;
	}
	item.expr = ckpt_expr_ref(expr);
	l->at[l->count++] = item;
	return 0;
}

void ckpt_array_item_done(struct ckpt_array_item *item)
{
	ckpt_expr_unref(item->expr);
	free(item->name);
	free(item->tree);
	free(item->bare);
}

void ckpt_array_list_done(struct ckpt_array_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		ckpt_array_item_done(&l->at[i]);
	free(l->at);
	*l = (struct ckpt_array_list){0};
}

int ckpt_array_list_cast(struct ckpt_array_list *l, enum ckpt_dtype dtype)
{
	for (size_t i = 0; i < l->count; i++) {
		const struct ckpt_expr_shape *s = ckpt_expr_shape(l->at[i].expr);
		struct ckpt_expr *cast;
		int rc;

		if (!ckpt_is_floating(s->dtype) || s->dtype == dtype)
			continue;
		rc = ckpt_expr_cast(l->at[i].expr, dtype, &cast);
		if (rc)
			return rc;
		ckpt_expr_unref(l->at[i].expr);
		l->at[i].expr = cast;
	}
	return 0;
}

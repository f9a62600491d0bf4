// Arrays by name, which rules change (array_rules.h): each is an expression.
//
// Ownership: the list is the caller's; names in it are its own, and it has a reference to each expression. Threads: one. Nothing blocks.
#pragma once

#include "core/array/expr.h"

struct ckpt_array_item {
	char *name;
	char *tree, *bare; // of the catalog, where name may be TREE:NAME; NULL: it has no tree, and its name is all
	struct ckpt_expr *expr;
};

// {0} is the empty one.
struct ckpt_array_list {
	struct ckpt_array_item *at;
	size_t count, cap;
};

// tree: NULL, or that of the catalog, where the array is called bare. 0, -ENOMEM.
int ckpt_array_list_add(struct ckpt_array_list *l, const char *name, const char *tree, const char *bare,
			struct ckpt_expr *expr);
void ckpt_array_list_done(struct ckpt_array_list *l);
void ckpt_array_item_done(struct ckpt_array_item *item);
// Floating arrays get another dtype. 0, -ENOMEM, what expr.h says.
int ckpt_array_list_cast(struct ckpt_array_list *l, enum ckpt_dtype dtype);

// Parts of arrays of DeepSpeed's ZeRO, by their names in the files of the ranks:
//
//	optimizer_state_dict.single_partition_of_fp32_groups.G      weights, stages 1 and 2
//	optimizer_state_dict.fp32_flat_groups.G                     weights, stage 3
//	optimizer_state_dict.base_optimizer_state.[state.]G.KEY     states, stages 1 and 2; they may have a padding that the weights lack
//	optimizer_state_dict.optimizer_state_dict.state.G.KEY       states, stage 3
//	frozen_param_fragments.NAME                                 of the model states
#include "core/array/catalog_zero_parts.h"

#include "core/base/util.h"
#include "core/limits.h"

const char *ckpt_zero_text(const struct ckpt_catalog *c, uint32_t at)
{
	return at == NONE ? "" : c->text + at;
}

// --- Lists ------------------------------------------------------------------------------------------------------------

static int compare_keys(const struct ckpt_catalog *c, uint32_t a, uint32_t b)
{
	return a == b ? 0 : strcmp(ckpt_zero_text(c, a), ckpt_zero_text(c, b));
}

static int compare(const struct ckpt_catalog *c, const struct ckpt_zero_part *a, const struct ckpt_zero_part *b)
{
	int order = compare_keys(c, a->key, b->key);

	if (!order)
		order = (a->group > b->group) - (a->group < b->group);
	return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

// qsort_r(3)'s, as the next one.
static int by_key(const void *one, const void *other, void *arg)
{
	return compare(arg, one, other);
}

static int by_group(const void *one, const void *other, void *arg)
{
	const struct ckpt_zero_part *a = one, *b = other;

	return a->group != b->group ? (a->group < b->group ? -1 : 1) : compare(arg, a, b);
}

void ckpt_zero_parts_sort(struct ckpt_zero_parts *list)
{
	if (list->count)
		qsort_r(list->at, list->count, sizeof(*list->at), by_key, (void *)list->c);
}

void ckpt_zero_parts_done(struct ckpt_zero_parts *list)
{
	free(list->at);
}

static int add(struct ckpt_zero_parts *list, const struct ckpt_zero_part *part)
{
	int rc = ckpt_grow((void **)&list->at, &list->cap, list->count + 1, sizeof(*part));

	if (!rc)
		list->at[list->count++] = *part;
	return rc;
}

// The first part that is not before this one; list->count: there is none.
static size_t lower_bound(const struct ckpt_zero_parts *list, const struct ckpt_zero_part *want)
{
	size_t low = 0, high = list->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare(list->c, &list->at[middle], want) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct ckpt_zero_part *ckpt_zero_parts_find(const struct ckpt_zero_parts *list, uint32_t key, uint32_t group,
						  uint32_t rank)
{
	const struct ckpt_zero_part want = {key, group, rank, 0};
	size_t at = lower_bound(list, &want);

	return at < list->count && !compare(list->c, &list->at[at], &want) ? &list->at[at] : NULL;
}

const struct ckpt_zero_part *ckpt_zero_parts_first(const struct ckpt_zero_parts *list, uint32_t key, uint32_t group,
						   size_t *ret_count)
{
	const struct ckpt_zero_part want = {key, group, 0, 0}, beyond = {key, group + 1, 0, 0};
	size_t at = lower_bound(list, &want), end = ret_count ? lower_bound(list, &beyond) : at;

	if (ret_count)
		*ret_count = end - at;
	return at < list->count && list->at[at].group == group && !compare_keys(list->c, list->at[at].key, key)
		       ? &list->at[at]
		       : NULL;
}

const struct ckpt_zero_part *ckpt_zero_parts_double(const struct ckpt_zero_parts *list)
{
	for (size_t i = 1; i < list->count; i++)
		if (!compare(list->c, &list->at[i - 1], &list->at[i]))
			return &list->at[i];
	return NULL;
}

// --- Names ------------------------------------------------------------------------------------------------------------

static const char *behind(const char *name, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(name, prefix, len) ? NULL : name + len;
}

// The number of a group; *at is behind it then.
static bool take_group(const char **at, uint32_t *ret_group)
{
	unsigned long n;
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	n = strtoul(*at, &end, 10);
	*at = end;
	*ret_group = (uint32_t)n;
	return n < CKPT_ARRAYS_MAX;
}

static const struct form {
	const char *prefix;
	int stage; // 0: it does not tell
	bool has_key;
} forms[] = {
	{"single_partition_of_fp32_groups.", 2, false}, {"fp32_flat_groups.", 3, false},
	{"base_optimizer_state.state.", 0, true},       {"base_optimizer_state.", 0, true},
	{"optimizer_state_dict.state.", 0, true},
};

// NULL: the row of this name is no part. *ret_key: what is behind the name.
static const struct form *parse(const char *name, uint32_t *ret_group, const char **ret_key)
{
	const char *rest = behind(name, "optimizer_state_dict.");

	for (size_t i = 0; rest && i < ARRAY_LEN(forms); i++) {
		const char *at = behind(rest, forms[i].prefix);

		if (!at || !take_group(&at, ret_group))
			continue;
		*ret_key = at + 1;
		if (forms[i].has_key ? *at == '.' && at[1] : !*at)
			return &forms[i];
	}
	return NULL;
}

int ckpt_zero_parts_take(struct ckpt_zero_parts *list, const struct zero_file *f, int *stage)
{
	int rc = 0;

	for (uint32_t row = f->row; row < f->row + f->rows && !rc; row++) {
		struct ckpt_zero_part part = {.key = NONE, .rank = f->dp, .row = row};
		const char *key;
		const struct form *form = parse(list->c->text + list->c->rows[row].name, &part.group, &key);

		if (!form)
			continue;
		if (form->has_key)
			part.key = (uint32_t)(key - list->c->text);
		*stage = MAX(*stage, form->stage);
		rc = add(list, &part);
	}
	return rc;
}

int ckpt_zero_parts_take_model(struct ckpt_zero_parts *list, const struct zero_file *f)
{
	int rc = 0;

	for (uint32_t row = f->row; row < f->row + f->rows && !rc; row++) {
		const char *name = list->c->text + list->c->rows[row].name;
		const char *fragment = behind(name, "frozen_param_fragments."),
			   *rest = fragment ? fragment : behind(name, "module.");

		if (rest)
			rc = add(list, &(struct ckpt_zero_part){(uint32_t)(rest - list->c->text),
								fragment ? CKPT_ZERO_FRAGMENT : CKPT_ZERO_MODULE, f->dp,
								row});
	}
	return rc;
}

int ckpt_zero_parts_keys(const struct ckpt_zero_parts *list, struct ckpt_zero_parts *ret_keys)
{
	int rc = 0;

	for (size_t i = 0; i < list->count && !rc; i++) {
		const struct ckpt_zero_part *part = &list->at[i], *before = i ? part - 1 : NULL;

		if (part->key != NONE &&
		    (!before || before->group != part->group || compare_keys(list->c, before->key, part->key)))
			rc = add(ret_keys, part);
	}
	if (!rc && ret_keys->count)
		qsort_r(ret_keys->at, ret_keys->count, sizeof(*ret_keys->at), by_group, (void *)list->c);
	return rc;
}

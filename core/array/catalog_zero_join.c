// Whole arrays of DeepSpeed's ZeRO, as deepspeed/utils/zero_to_fp32.py understands its files. The optimizer has its parameters in groups;
// the elements of a group are one flat array after the other, in the order of param_shapes.
//
//	stages 1, 2   the ranks' parts of a group, one behind the other, are the whole of it and a padding
//	stage 3       each parameter is split evenly over the ranks, the last of them padded; a rank's groups are one flat array
//
// The arrays made of them, in the tree of the checkpoint's directory (below it mp_rank_MM, where there are several model parallel ranks):
//
//	NAME        the master weights; of a frozen parameter its weights, of a buffer what the model states have
//	NAME.KEY    a state of the optimizer that has an element for each weight: exp_avg, exp_avg_sq ...
#include "core/array/catalog_zero.h"
#include "core/array/catalog_zero_parts.h"

#include "core/array/array_format.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <stdio.h>

#define WHY_SIZES "the sizes of the parameters and of the ranks' parts do not add up"
#define WHY_PART "a rank's part of it is not what DeepSpeed writes"

// A small file can name many parameters, states and ranks, so each lookup is paid from ckpt_catalog_spend(). The catalog has no room for
// more than 2^20 pieces of usual names, which the budget allows.
#define LOOKUP_COST 512
#define LOOKUP_COST_BYTE 4 // a lookup compares the key several times
#define RANGE_COST 32      // to look at a range without elements

// Elements [first, first + count) of a flat array.
struct range {
	uint64_t first, count;
	uint32_t rank;
};

struct joining {
	struct ckpt_catalog *c;
	struct ckpt_catalog_reading reading; // of the model states; for what is added
	const struct zero_file *files, *model;
	size_t file_count;
	uint32_t world;
	bool is_stage_3, has_why;
	char *tree, *name;
	struct ckpt_zero_parts parts;     // sorted
	struct ckpt_zero_parts fragments; // sorted; what is of the module has another group
	struct ckpt_zero_parts keys;      // the first part of each state, sorted by the group
	uint32_t groups;
	uint64_t *group_base; // stage 3: where each begins in a rank's flat array; groups + 1
	struct range *ranges; // stages 1, 2: of the ranks that are there, in the group that is joined
	bool *used;           // rows
};

static const char *text_of(const struct joining *j, uint32_t at)
{
	return ckpt_zero_text(j->c, at);
}

// NULL, or why the row cannot be a part.
static const char *check_part(const struct joining *j, const struct row *row, const struct row *first)
{
	const struct ckpt_catalog *c = j->c;
	const struct piece *piece = &c->pieces[row->piece];

	if (row->why != NONE)
		return text_of(j, row->why);
	if (row->ndim != 1 || row->pieces != 1 || row->dtype != first->dtype || row->big_endian != first->big_endian ||
	    piece->codecs[0] || piece->first || piece->data != NONE)
		return WHY_PART;
	return c->numbers[row->shape] > 1 && c->numbers[piece->box + 2] != 1 ? WHY_PART : NULL;
}

static uint64_t elements_of(const struct joining *j, const struct ckpt_zero_part *part)
{
	const struct row *row = &j->c->rows[part->row];

	return row->ndim == 1 ? j->c->numbers[row->shape] : 0;
}

// --- One array --------------------------------------------------------------------------------------------------------

// An array that is joined: the weights, or a state of them.
struct whole {
	struct joining *j;
	const struct ckpt_zero_parts *parts;
	uint32_t key;
	struct row first; // the first part: what its elements are
	const char *why;
};

static int spend_lookup(struct joining *j, uint32_t key)
{
	return ckpt_catalog_spend(&j->reading, LOOKUP_COST + LOOKUP_COST_BYTE * (uint64_t)strlen(text_of(j, key)));
}

static int add_entry(struct joining *j, const struct zero_param *param, uint32_t key, const struct row *first,
		     const char *why)
{
	struct ckpt_catalog_entry e = {.tree = j->tree, .name = j->name, .format = "deepspeed", .why = why};
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	int rc = spend_lookup(j, key);

	if (rc)
		return rc;
	memcpy(shape, j->c->numbers + param->shape, param->ndim * sizeof(*shape));
	e.shape = shape;
	e.ndim = param->ndim;
	e.dtype = first ? first->dtype : CKPT_DTYPE_NONE;
	e.big_endian = first && first->big_endian;
	// The name has at most two texts of rows in it.
	e.name_len =
		(size_t)sprintf(j->name, "%s%s%s", text_of(j, param->name), key == NONE ? "" : ".", text_of(j, key));
	j->has_why |= why != NULL;
	return ckpt_catalog_add(&j->reading, &e);
}

// Elements [at, at + count) of the array are those of a rank's part from `from` on.
static int add_range(struct whole *w, uint32_t group, uint32_t rank, uint64_t from, uint64_t at, uint64_t count)
{
	struct joining *j = w->j;
	const struct ckpt_zero_part *part;
	struct ckpt_piece piece = {0};
	const struct piece *of;
	uint64_t end;
	int rc = spend_lookup(j, w->key);

	if (rc)
		return rc;
	part = ckpt_zero_parts_find(w->parts, w->key, group, rank);
	if (!part) {
		w->why = CKPT_WHY_NO_FILE;
		return 0;
	}
	w->why = check_part(j, &j->c->rows[part->row], &w->first);
	if (w->why)
		return 0;
	if (__builtin_add_overflow(from, count, &end) || end > elements_of(j, part)) {
		w->why = WHY_SIZES;
		return 0;
	}
	of = &j->c->pieces[j->c->rows[part->row].piece];
	piece.file = j->c->text + of->file;
	piece.offset = of->offset + from * ckpt_dtype_width(w->first.dtype);
	return ckpt_catalog_add_flat(&j->reading, &piece, at, count);
}

static int end_array(struct whole *w)
{
	w->j->has_why |= w->why != NULL;
	return w->why ? ckpt_catalog_note(&w->j->reading, "%s", w->why) : 0;
}

// --- Stages 1 and 2 ---------------------------------------------------------------------------------------------------

// The parts of a group: where each begins, and how many elements there are.
struct group {
	const struct zero_param *params;
	size_t count;
	uint32_t number;
	size_t ranges, at; // at: the first range that a parameter from here on may be in
	uint64_t longest, elements;
	bool is_whole; // no part is missing
	const char *why;
};

// A part that is missing is as long as the longest one, which all but the last ones are.
static int lay_out(struct joining *j, struct group *g)
{
	size_t count;
	const struct ckpt_zero_part *first = ckpt_zero_parts_first(&j->parts, NONE, g->number, &count);
	uint64_t gap;

	g->is_whole = count == j->world;
	for (size_t i = 0; i < count; i++)
		g->longest = MAX(g->longest, elements_of(j, &first[i]));
	for (size_t i = 0; i < count; i++) {
		struct range *r = &j->ranges[g->ranges++];

		r->rank = first[i].rank;
		r->count = elements_of(j, &first[i]);
		if (__builtin_mul_overflow((uint64_t)(r->rank - (i ? first[i - 1].rank + 1 : 0)), g->longest, &gap) ||
		    __builtin_add_overflow(g->elements, gap, &r->first) ||
		    __builtin_add_overflow(r->first, r->count, &g->elements))
			return -EINVAL;
	}
	return 0;
}

// Of a group that is whole: its parts are as long as its parameters, but for a padding. Of another one: the length of a part is known, without
// which nobody could tell where the next one begins.
static const char *check_group(const struct joining *j, const struct group *g)
{
	uint64_t need = 0, elements, unit = 2 * (uint64_t)j->world, units, all;

	for (size_t i = 0; i < g->count; i++)
		if (!ckpt_array_elements(j->c->numbers + g->params[i].shape, g->params[i].ndim, &elements) ||
		    __builtin_add_overflow(need, elements, &need))
			return WHY_SIZES;
	units = need / unit + !!(need % unit);
	if (!g->is_whole)
		return __builtin_mul_overflow(g->longest, (uint64_t)j->world, &all) || all % unit || all / unit != units
			       ? CKPT_WHY_NO_FILE
			       : NULL;
	if (units == g->elements / unit + !!(g->elements % unit))
		return NULL;
	return need > g->elements ? CKPT_WHY_SHORT : WHY_SIZES;
}

static int join_flat(struct whole *w, const struct group *g, uint64_t begin, uint64_t count)
{
	uint64_t covered = 0;
	int rc = 0;

	for (size_t i = g->at; i < g->ranges && !w->why && !rc; i++) {
		const struct range *r = &w->j->ranges[i];
		uint64_t first = MAX(begin, r->first), end = MIN(begin + count, r->first + r->count);

		if (r->first >= begin + count)
			break;
		if (first >= end) {
			rc = ckpt_catalog_spend(&w->j->reading, RANGE_COST);
			continue;
		}
		rc = add_range(w, g->number, r->rank, first - r->first, first - begin, end - first);
		covered += end - first;
	}
	if (!w->why && covered < count)
		w->why = g->is_whole ? CKPT_WHY_SHORT : CKPT_WHY_NO_FILE;
	return rc;
}

// The rows of the key in the group, of all ranks, are arrays no more.
static void use_parts(struct joining *j, const struct ckpt_zero_parts *list, uint32_t key, uint32_t group)
{
	size_t count;
	const struct ckpt_zero_part *first = ckpt_zero_parts_first(list, key, group, &count);

	for (size_t i = 0; i < count; i++)
		j->used[first[i].row] = true;
}

static int join_param(struct joining *j, struct group *g, const struct zero_param *param, uint32_t key, uint64_t begin,
		      uint64_t count)
{
	const struct ckpt_zero_part *first = ckpt_zero_parts_first(&j->parts, key, g->number, NULL);
	struct whole w = {.j = j, .parts = &j->parts, .key = key};
	int rc;

	if (first)
		w.first = j->c->rows[first->row];
	rc = add_entry(j, param, key, first ? &w.first : NULL, g->why ? g->why : first ? NULL : CKPT_WHY_NO_FILE);
	if (rc || g->why || !first)
		return rc;
	rc = join_flat(&w, g, begin, count);
	return rc ? rc : end_array(&w);
}

// The states of a group: its keys are neighbours.
static size_t first_key(const struct joining *j, uint32_t group)
{
	size_t low = 0, high = j->keys.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (j->keys.at[middle].group < group)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int join_group(struct joining *j, struct group *g)
{
	uint64_t begin = 0, count = 0;
	size_t keys = first_key(j, g->number);
	int rc = lay_out(j, g);

	g->why = rc ? WHY_SIZES : check_group(j, g);
	rc = 0;
	for (size_t i = 0; i < g->count && !rc; i++) {
		const struct zero_param *param = &g->params[i];

		if (!ckpt_array_elements(j->c->numbers + param->shape, param->ndim, &count))
			count = 0; // refused below
		while (g->at < g->ranges && j->ranges[g->at].first + j->ranges[g->at].count <= begin)
			g->at++;
		rc = join_param(j, g, param, NONE, begin, count);
		for (size_t k = keys; k < j->keys.count && j->keys.at[k].group == g->number && !rc; k++)
			rc = join_param(j, g, param, j->keys.at[k].key, begin, count);
		if (__builtin_add_overflow(begin, count, &begin))
			break; // why is known
	}
	return rc;
}

// --- Stage 3 ----------------------------------------------------------------------------------------------------------

// The groups of a rank's flat array, which are those of all ranks. *ret_why: they are not.
static int lay_out_groups(struct joining *j, const char **ret_why)
{
	int rc = ckpt_catalog_spend(&j->reading, j->groups * sizeof(*j->group_base));

	if (rc)
		return rc;
	j->group_base = ckpt_calloc(j->groups + 1, sizeof(*j->group_base));
	if (!j->group_base)
		return -ENOMEM;
	for (size_t i = 0; i < j->parts.count && j->parts.at[i].key == NONE; i++) { // they come first
		uint64_t *elements = &j->group_base[j->parts.at[i].group + 1];

		if (i && j->parts.at[i].group == j->parts.at[i - 1].group &&
		    *elements != elements_of(j, &j->parts.at[i]))
			*ret_why = WHY_SIZES;
		*elements = elements_of(j, &j->parts.at[i]);
	}
	for (uint32_t g = 0; g < j->groups; g++)
		if (__builtin_add_overflow(j->group_base[g], j->group_base[g + 1], &j->group_base[g + 1]))
			*ret_why = WHY_SIZES;
	return 0;
}

// Of the elements of `at`; groups without elements have none. j->groups: it is beyond them.
static uint32_t group_at(const struct joining *j, uint64_t at)
{
	uint32_t low = 0, high = j->groups;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (j->group_base[middle + 1] <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

// One rank's elements of a parameter, which may be in several groups.
static int join_split(struct whole *w, uint32_t rank, uint64_t from, uint64_t at, uint64_t count)
{
	const struct joining *j = w->j;
	int rc = 0;

	while (count && !rc && !w->why) {
		uint32_t g = group_at(j, from);
		uint64_t n;

		if (g >= j->groups) {
			w->why = CKPT_WHY_SHORT;
			break;
		}
		n = MIN(count, j->group_base[g + 1] - from);
		rc = add_range(w, g, rank, from - j->group_base[g], at, n);
		from += n;
		at += n;
		count -= n;
	}
	return rc;
}

static int join_split_param(struct joining *j, const struct zero_param *param, uint32_t key, uint64_t from,
			    uint64_t count, uint64_t share, const char *why)
{
	const struct ckpt_zero_part *first =
		ckpt_zero_parts_first(&j->parts, key, MIN(group_at(j, from), j->groups - 1), NULL);
	struct whole w = {.j = j, .parts = &j->parts, .key = key};
	int rc;

	if (!why && !first)
		why = CKPT_WHY_NO_FILE;
	if (first)
		w.first = j->c->rows[first->row];
	rc = add_entry(j, param, key, first ? &w.first : NULL, why);
	if (rc || why)
		return rc;
	for (uint64_t rank = 0, at = 0; at < count && !rc && !w.why; rank++, at += share)
		rc = join_split(&w, (uint32_t)rank, from, at, MIN(share, count - at));
	return rc ? rc : end_array(&w);
}

// Of a rank's flat array, all parameters together; 0: too many.
static uint64_t shares_of(const struct joining *j, const struct zero_param *params, size_t count)
{
	uint64_t all = 0, n;

	for (size_t i = 0; i < count; i++)
		if (params[i].kind == ZERO_TRAINED &&
		    (!ckpt_array_elements(j->c->numbers + params[i].shape, params[i].ndim, &n) ||
		     __builtin_add_overflow(all, n / j->world + !!(n % j->world), &all)))
			return 0;
	return all;
}

static int join_stage_3(struct joining *j, const struct zero_param *params, size_t count)
{
	const char *why = NULL;
	uint64_t from = 0, n;
	int rc = lay_out_groups(j, &why);

	if (!rc && shares_of(j, params, count) != j->group_base[j->groups])
		why = WHY_SIZES;
	for (size_t i = 0; i < count && !rc; i++) {
		uint64_t share;
		uint32_t group;

		if (params[i].kind != ZERO_TRAINED)
			continue;
		if (!ckpt_array_elements(j->c->numbers + params[i].shape, params[i].ndim, &n))
			n = 0; // refused below
		share = n / j->world + !!(n % j->world);
		group = group_at(j, from);
		rc = join_split_param(j, &params[i], NONE, from, n, share, why);
		for (size_t k = first_key(j, group); k < j->keys.count && j->keys.at[k].group == group && !rc; k++)
			rc = join_split_param(j, &params[i], j->keys.at[k].key, from, n, share, why);
		if (__builtin_add_overflow(from, share, &from))
			from = UINT64_MAX;
	}
	return rc;
}

// --- Frozen parameters, buffers, shared ones --------------------------------------------------------------------------

// The array has the elements of another row.
static int add_alias(struct joining *j, const struct zero_param *param, uint32_t row)
{
	struct zero_param of = *param;
	const struct row src = j->c->rows[row];
	struct row *added;
	int rc;

	of.shape = src.shape;
	of.ndim = src.ndim;
	rc = add_entry(j, &of, NONE, &src, NULL);
	if (rc)
		return rc;
	added = &j->c->rows[j->c->count - 1];
	added->why = src.why;
	j->has_why |= src.why != NONE;
	added->fill = src.fill;
	added->piece = src.piece;
	added->pieces = src.pieces;
	return 0;
}

// A frozen parameter of stage 3 is split as the others are.
static int join_frozen(struct joining *j, const struct zero_param *param)
{
	const struct ckpt_zero_part *part = ckpt_zero_parts_find(&j->fragments, param->name, CKPT_ZERO_FRAGMENT, 0);
	struct whole w = {.j = j, .parts = &j->fragments, .key = param->name};
	uint64_t count, share;
	int rc;

	if (!part)
		return add_entry(j, param, NONE, NULL, CKPT_WHY_NO_FILE);
	use_parts(j, &j->fragments, param->name, CKPT_ZERO_FRAGMENT);
	if (!j->is_stage_3)
		return add_alias(j, param, part->row);
	w.first = j->c->rows[part->row];
	rc = add_entry(j, param, NONE, &w.first, NULL);
	if (rc || !ckpt_array_elements(j->c->numbers + param->shape, param->ndim, &count))
		return rc;
	share = count / j->world + !!(count % j->world);
	for (uint64_t rank = 0, at = 0; at < count && !rc && !w.why; rank++, at += share)
		rc = add_range(&w, CKPT_ZERO_FRAGMENT, (uint32_t)rank, 0, at, MIN(share, count - at));
	return rc ? rc : end_array(&w);
}

// Rows by their names.
struct named {
	const struct ckpt_catalog *c;
	uint32_t *rows;
	size_t count;
};

static int by_row_name(const void *one, const void *other, void *arg)
{
	const struct ckpt_catalog *c = arg;

	return strcmp(c->text + c->rows[*(const uint32_t *)one].name, c->text + c->rows[*(const uint32_t *)other].name);
}

static bool find_named(const struct named *n, uint32_t name, uint32_t *ret_row)
{
	size_t low = 0, high = n->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(n->c->text + name, n->c->text + n->c->rows[n->rows[middle]].name);

		if (!order) {
			*ret_row = n->rows[middle];
			return true;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}

// Behind all others; first_row: of what was joined.
static int join_shared(struct joining *j, const struct zero_param *params, size_t count, size_t first_row)
{
	CLEANUP_FREE uint32_t *rows = ckpt_calloc(j->c->count - first_row + 1, sizeof(*rows));
	const struct named named = {j->c, rows, j->c->count - first_row};
	uint32_t row;
	int rc = rows ? 0 : -ENOMEM;

	for (size_t i = 0; i < named.count && !rc; i++)
		rows[i] = (uint32_t)(first_row + i);
	if (!rc && named.count)
		qsort_r(rows, named.count, sizeof(*rows), by_row_name, j->c);
	for (size_t i = 0; i < count && !rc; i++)
		if (params[i].kind == ZERO_SHARED && find_named(&named, params[i].other, &row))
			rc = add_alias(j, &params[i], row);
	return rc;
}

static int join_others(struct joining *j, const struct zero_param *params, size_t count)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		const struct ckpt_zero_part *part =
			ckpt_zero_parts_find(&j->fragments, params[i].name, CKPT_ZERO_MODULE, 0);

		if (params[i].kind == ZERO_FROZEN)
			rc = join_frozen(j, &params[i]);
		else if (params[i].kind == ZERO_BUFFER && part)
			rc = add_alias(j, &params[i], part->row);
	}
	return rc;
}

// --- One checkpoint ---------------------------------------------------------------------------------------------------

static int join_groups(struct joining *j, const struct zero_param *params, size_t count)
{
	int rc = 0;

	j->ranges = ckpt_calloc(j->parts.count + 1, sizeof(*j->ranges));
	if (!j->ranges)
		return -ENOMEM;
	for (size_t at = 0, n = 0; at < count && params[at].kind == ZERO_TRAINED && !rc; at += n) {
		struct group g = {.params = &params[at], .number = params[at].group};

		for (n = 1; at + n < count && params[at + n].kind == ZERO_TRAINED && params[at + n].group == g.number;
		     n++)
			;
		g.count = n;
		rc = join_group(j, &g);
	}
	return rc;
}

static int join_all(struct joining *j)
{
	const struct zero_param *params = j->c->zero_params + j->model->param;
	size_t count = j->model->rest, first_row = j->c->count;
	int rc = j->is_stage_3 ? join_stage_3(j, params, count) : join_groups(j, params, count);

	if (!rc)
		rc = join_others(j, params, count);
	return rc ? rc : join_shared(j, params, count, first_row);
}

// The ranks are as many as the first of them says; files of others are left of a save before.
static void count_ranks(struct joining *j)
{
	for (size_t i = j->file_count; i-- > 0;) {
		const struct zero_file *f = &j->files[i];

		if (!f->is_model && f->world)
			j->world = f->world;
	}
	for (size_t i = 0; i < j->file_count; i++)
		if (!j->world && j->files[i].is_model)
			j->world = j->files[i].world;
	for (size_t i = 0; i < j->file_count && !j->world; i++)
		if (i + 1 == j->file_count)
			j->world = j->files[i].dp + 1;
}

// Weights and states.
static void use_all(struct joining *j)
{
	for (size_t i = 0; i < j->parts.count && j->parts.at[i].key == NONE; i++) // they come first
		j->used[j->parts.at[i].row] = true;
	for (size_t k = 0; k < j->keys.count; k++)
		use_parts(j, &j->parts, j->keys.at[k].key, j->keys.at[k].group);
}

// A state that has an element for each weight of its part.
static bool is_state(const struct joining *j, const struct ckpt_zero_part *state)
{
	const struct ckpt_zero_part *weights = ckpt_zero_parts_find(&j->parts, NONE, state->group, state->rank);

	return weights && j->c->rows[state->row].ndim == 1 && elements_of(j, state) >= elements_of(j, weights);
}

// Once, as each parameter of a group goes through its keys.
static int list_states(struct joining *j)
{
	size_t kept = 0;
	int rc = ckpt_zero_parts_keys(&j->parts, &j->keys);

	for (size_t k = 0; k < j->keys.count && !rc; k++)
		if (is_state(j, &j->keys.at[k]))
			j->keys.at[kept++] = j->keys.at[k];
	j->keys.count = kept;
	return rc;
}

static int take_files(struct joining *j)
{
	const struct ckpt_zero_part *twice;
	int rc = 0, stage = 0;

	for (size_t i = 0; i < j->file_count && !rc; i++) {
		const struct zero_file *f = &j->files[i];

		if (f->is_model)
			continue;
		rc = f->dp < j->world
			     ? ckpt_zero_parts_take(&j->parts, f, &stage)
			     : ckpt_catalog_tell(&j->reading, "partition_count", "%.200s is none of its %u ranks",
						 text_of(j, f->path), j->world);
	}
	if (rc)
		return rc;
	ckpt_zero_parts_sort(&j->parts);
	j->is_stage_3 = stage == 3;
	for (size_t i = 0; i < j->parts.count && j->parts.at[i].key == NONE; i++)
		j->groups = j->parts.at[i].group + 1;
	twice = ckpt_zero_parts_double(&j->parts);
	return twice ? ckpt_catalog_refuse(&j->reading, "zero_pp_rank", "two files are of rank %u", twice->rank)
		     : list_states(j);
}

// Those of the stage; with stage 3 each rank has its own.
static int take_models(struct joining *j)
{
	int rc = 0;

	for (size_t i = 0; i < j->file_count && !rc; i++) {
		const struct zero_file *f = &j->files[i];

		if (!f->is_model || f->is_of_rank != j->is_stage_3 || f->dp >= j->world)
			continue;
		if (!f->dp)
			j->model = f;
		rc = ckpt_zero_parts_take_model(&j->fragments, f);
	}
	ckpt_zero_parts_sort(&j->fragments);
	return rc;
}

// Without any file of the optimizer there is nothing to join.
static int read_checkpoint(struct joining *j)
{
	int rc;

	count_ranks(j);
	rc = take_files(j);
	if (rc || !j->groups)
		return rc;
	rc = take_models(j);
	if (!rc && !j->model)
		rc = ckpt_catalog_refuse(&j->reading, "model_states",
					 "those of rank 0 are missing, which name its arrays");
	if (!rc)
		rc = join_all(j);
	if (!rc && !j->has_why)
		use_all(j);
	return rc;
}

static size_t dir_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

// The tree and the path of faults.
static int name_checkpoint(struct joining *j, bool has_others)
{
	const char *path = text_of(j, j->files->path);
	int dir = (int)dir_len(path);

	if (!has_others)
		j->tree = dir ? strndup(path, (size_t)dir) : strdup(".");
	else if (asprintf(&j->tree, "%.*s%smp_rank_%02u", dir, path, dir ? "/" : "", j->files->mp) < 0)
		j->tree = NULL;
	return j->tree ? 0 : -ENOMEM;
}

// *spent is of all checkpoints together.
static int join_checkpoint(struct ckpt_catalog *c, const struct zero_file *files, size_t count, bool has_others,
			   bool *used, uint64_t *spent)
{
	CLEANUP_FREE bool *now = ckpt_calloc(c->count + 1, sizeof(*now));
	CLEANUP_FREE char *path = strdup(c->text + files->path);
	CLEANUP_FREE char *name = malloc(2 * (CKPT_ARRAY_NAME_MAX + 1));
	struct joining j = {.c = c,
			    .files = files,
			    .file_count = count,
			    .used = now,
			    .name = name,
			    .parts = {.c = c},
			    .fragments = {.c = c},
			    .keys = {.c = c}};
	const struct ckpt_catalog before = *c;
	int rc = now && path && name ? name_checkpoint(&j, has_others) : -ENOMEM;

	j.reading = (struct ckpt_catalog_reading){.catalog = c, .path = path, .spent = *spent};
	if (!rc)
		rc = read_checkpoint(&j);
	for (size_t i = 0; i < before.count && !rc && !j.has_why; i++)
		used[i] |= now[i];
	if (rc == -EINVAL)
		rc = ckpt_catalog_take_back(&j.reading, &before);
	*spent = j.reading.spent;
	ckpt_zero_parts_done(&j.parts);
	ckpt_zero_parts_done(&j.fragments);
	ckpt_zero_parts_done(&j.keys);
	free(j.group_base);
	free(j.ranges);
	free(j.tree);
	return rc;
}

// --- All of them ------------------------------------------------------------------------------------------------------

static int compare_dirs(const struct ckpt_catalog *c, const struct zero_file *a, const struct zero_file *b)
{
	const char *one = c->text + a->path, *other = c->text + b->path;
	size_t len = dir_len(one), other_len = dir_len(other);
	int order = memcmp(one, other, MIN(len, other_len));

	return order ? order : (len > other_len) - (len < other_len);
}

static int compare_checkpoints(const struct ckpt_catalog *c, const struct zero_file *a, const struct zero_file *b)
{
	int order = compare_dirs(c, a, b);

	return order ? order : (a->mp > b->mp) - (a->mp < b->mp);
}

static int by_checkpoint(const void *one, const void *other, void *arg)
{
	const struct zero_file *a = one, *b = other;
	int order = compare_checkpoints(arg, a, b);

	return order ? order : (a->dp > b->dp) - (a->dp < b->dp);
}

static void drop_used(struct ckpt_catalog *c, const bool *used, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->count; i++)
		if (i >= count || !used[i])
			c->rows[kept++] = c->rows[i];
	c->count = kept;
}

int ckpt_zero_join(struct ckpt_catalog *c)
{
	size_t rows = c->count, files = c->zero_file_count;
	CLEANUP_FREE bool *used = files ? ckpt_calloc(rows + 1, sizeof(*used)) : NULL;
	const struct zero_file *all = c->zero_files;
	uint64_t spent = 0;
	int rc = files && !used ? -ENOMEM : 0;

	if (!files)
		return 0;
	qsort_r(c->zero_files, files, sizeof(*all), by_checkpoint, c);
	for (size_t at = 0, n; at < files && !rc; at += n) {
		bool has_others = (at && !compare_dirs(c, &all[at - 1], &all[at]));

		for (n = 1; at + n < files && !compare_checkpoints(c, &all[at], &all[at + n]); n++)
			;
		has_others |= at + n < files && !compare_dirs(c, &all[at], &all[at + n]);
		rc = join_checkpoint(c, &all[at], n, has_others, used, &spent);
	}
	if (!rc)
		drop_used(c, used, rows);
	return rc;
}

#include "core/array/cast.h"
#include "core/base/nearest.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/view/array_glob.h"
#include "core/view/array_rule.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define SHAPE_TEXT_MAX 128

struct apply {
	const struct rule *r;
	size_t number; // of the rule, from 1
	struct ckpt_array_list *l;
	struct ckpt_array_rules_telling *t;
};

// --- Refusing ---------------------------------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static int refuse(const struct apply *x, const char *format, ...)
{
	int len = snprintf(x->t->why, CKPT_RULES_WHY_MAX, "rule %zu (%s): ", x->number, ckpt_rule_word(x->r->kind));
	va_list args;

	va_start(args, format);
	vsnprintf(x->t->why + len, CKPT_RULES_WHY_MAX - (size_t)len, format, args);
	va_end(args);
	ckpt_rule_clean(x->t->why);
	return -EINVAL;
}

// The answer of an expression, of which the checks before have the usual reasons.
static int refuse_expr(const struct apply *x, const char *name, int rc)
{
	if (rc == -EOVERFLOW)
		return refuse(x, "\"%.200s\" would have more than 2^63 bytes", name);
	return rc == -EINVAL ? refuse(x, "\"%.200s\" would be made of too many arrays, or by too many rules", name)
			     : rc;
}

struct shape_text {
	char text[SHAPE_TEXT_MAX];
};

static struct shape_text shown(unsigned ndim, const uint64_t *shape)
{
	struct shape_text t = {"["};
	size_t len = 1;

	for (unsigned i = 0; i < ndim && len + 24 < sizeof(t.text); i++)
		len += (size_t)snprintf(t.text + len, sizeof(t.text) - len, "%s%" PRIu64, i ? ", " : "", shape[i]);
	snprintf(t.text + len, sizeof(t.text) - len, "]");
	return t;
}

static struct shape_text shown_numbers(const struct rule *r)
{
	struct shape_text t = {"["};
	size_t len = 1;

	for (size_t i = 0; i < r->number_count && len + 24 < sizeof(t.text); i++)
		len += (size_t)snprintf(t.text + len, sizeof(t.text) - len, "%s%" PRId64, i ? ", " : "", r->numbers[i]);
	snprintf(t.text + len, sizeof(t.text) - len, "]");
	return t;
}

static struct shape_text shape_of(const struct ckpt_array_item *item)
{
	const struct ckpt_expr_shape *s = ckpt_expr_shape(item->expr);

	return shown(s->ndim, s->at);
}

static int refuse_name(const struct apply *x, const char *name)
{
	CLEANUP_FREE const char **names = ckpt_calloc(x->l->count + 1, sizeof(*names));
	const char *near;

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < x->l->count; i++)
		names[i] = x->l->at[i].name;
	near = ckpt_nearest(name, names);
	if (near)
		return refuse(x, "no array has the name \"%.150s\"; did you mean \"%.150s\"?", name, near);
	return refuse(x, "no array has the name \"%.150s\"", name);
}

// --- The list ---------------------------------------------------------------------------------------------------------------

static bool matches(const struct ckpt_array_item *item, const char *glob)
{
	return item->tree ? ckpt_array_glob(glob, item->tree, item->bare) : ckpt_array_glob(glob, "", item->name);
}

static bool is_called(const struct ckpt_array_item *item, const char *name)
{
	size_t len = item->tree ? strlen(item->tree) : 0;

	if (!strcmp(item->name, name))
		return true;
	return len && !strncmp(name, item->tree, len) && name[len] == ':' && !strcmp(name + len + 1, item->bare);
}

static int find(const struct apply *x, const char *name, size_t *ret)
{
	for (size_t i = 0; i < x->l->count; i++)
		if (is_called(&x->l->at[i], name)) {
			*ret = i;
			return 0;
		}
	return refuse_name(x, name);
}

static void give(struct ckpt_array_item *item, struct ckpt_expr *expr)
{
	ckpt_expr_unref(item->expr);
	item->expr = expr;
}

static void take_out(struct ckpt_array_item *item)
{
	ckpt_array_item_done(item);
	*item = (struct ckpt_array_item){0};
}

// Those that were taken out leave no gaps.
static void close_gaps(struct ckpt_array_list *l)
{
	size_t count = 0;

	for (size_t i = 0; i < l->count; i++)
		if (l->at[i].name)
			l->at[count++] = l->at[i];
	l->count = count;
}

static int add(const struct apply *x, const char *name, struct ckpt_expr *expr)
{
	if (x->l->count >= CKPT_ARRAYS_MAX)
		return refuse(x, "there would be more than %u arrays", CKPT_ARRAYS_MAX);
	return ckpt_array_list_add(x->l, name, NULL, NULL, expr);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct ckpt_array_item *)one)->name, ((const struct ckpt_array_item *)other)->name);
}

static int check_names(const struct apply *x)
{
	struct ckpt_array_list *l = x->l;

	if (l->count)
		qsort(l->at, l->count, sizeof(*l->at), by_name);
	for (size_t i = 1; i < l->count; i++)
		if (!by_name(&l->at[i - 1], &l->at[i]))
			return refuse(x,
				      "two arrays have the name \"%.200s\" then; give one of them another name, or "
				      "drop it before",
				      l->at[i].name);
	return 0;
}

// --- Names ------------------------------------------------------------------------------------------------------------------

static void put_replacement(FILE *out, const char *to, const char *from, const regmatch_t *groups)
{
	for (; *to; to++) {
		if (*to != '\\') {
			fputc(*to, out);
		} else if (*++to == '\\') {
			fputc('\\', out);
		} else {
			const regmatch_t *g = &groups[*to - '0'];

			if (g->rm_so >= 0)
				fwrite(from + g->rm_so, 1, (size_t)(g->rm_eo - g->rm_so), out);
		}
	}
}

// Each match is replaced, as re.sub() of Python has it. False: there is none.
static bool put_name(FILE *out, const struct rule *r, const char *name)
{
	regmatch_t groups[RULE_GROUPS];
	bool any = false;

	for (const char *at = name;; any = true) {
		if (regexec(&r->regex, at, RULE_GROUPS, groups, at == name ? 0 : REG_NOTBOL)) {
			fputs(at, out);
			return any;
		}
		fwrite(at, 1, (size_t)groups[0].rm_so, out);
		put_replacement(out, r->to, at, groups);
		at += groups[0].rm_eo;
		if (groups[0].rm_eo > groups[0].rm_so)
			continue;
		if (!*at)
			return true;
		fputc(*at++, out);
	}
}

// The name of an item without its tree, which TREE:NAME begins with.
static const char *without_tree(const struct ckpt_array_item *item, const char *name)
{
	size_t len = strlen(item->tree);

	return !strncmp(name, item->tree, len) && name[len] == ':' ? name + len + 1 : name;
}

static int rename_item(const struct apply *x, struct ckpt_array_item *item, bool *any)
{
	CLEANUP_FREE char *made = NULL;
	char *bare = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&made, &len);
	bool matched = out && put_name(out, x->r, item->name);

	if (!out || fclose(out))
		return -ENOMEM;
	if (!matched)
		return 0;
	*any = true;
	if (!len || len > CKPT_ARRAY_NAME_MAX)
		return refuse(x, "the new name of \"%.200s\" is %s", item->name, len ? "too long" : "empty");
	if (item->tree && !(bare = strdup(without_tree(item, made))))
		return -ENOMEM;
	if (bare) {
		free(item->bare);
		item->bare = bare;
	}
	free(item->name);
	item->name = TAKE_PTR(made);
	return 0;
}

static int rename_all(const struct apply *x, bool *any)
{
	int rc = 0;

	for (size_t i = 0; i < x->l->count && !rc; i++)
		rc = rename_item(x, &x->l->at[i], any);
	return rc;
}

static int drop(const struct apply *x, bool *any)
{
	for (size_t i = 0; i < x->l->count; i++)
		if (matches(&x->l->at[i], x->r->of)) {
			*any = true;
			take_out(&x->l->at[i]);
		}
	close_gaps(x->l);
	return 0;
}

// --- Shapes -----------------------------------------------------------------------------------------------------------------

static int axis_of(const struct apply *x, const char *name, int64_t axis, unsigned ndim, unsigned *ret)
{
	int64_t from_front = axis < 0 ? axis + ndim : axis;

	if (!ndim)
		return refuse(x, "\"%.200s\" has no axes", name);
	if (from_front < 0 || from_front >= ndim)
		return refuse(x, "axis %" PRId64 " of \"%.200s\": there are %u; axes are 0 to %d, or -1 from the end",
			      axis, name, ndim, (int)ndim - 1);
	*ret = (unsigned)from_front;
	return 0;
}

static int transpose(const struct apply *x, struct ckpt_array_item *item)
{
	const struct ckpt_expr_shape *s = ckpt_expr_shape(item->expr);
	unsigned axes[CKPT_ARRAY_DIMS_MAX];
	struct ckpt_expr *made;
	uint32_t seen = 0;
	int rc = 0;

	if (x->r->number_count != s->ndim)
		return refuse(x, "\"%.200s\" has %u axes, and \"axes\" names %zu", item->name, s->ndim,
			      x->r->number_count);
	for (unsigned i = 0; i < s->ndim && !rc; i++) {
		rc = axis_of(x, item->name, x->r->numbers[i], s->ndim, &axes[i]);
		seen |= rc ? 0 : UINT32_C(1) << axes[i];
	}
	if (!rc && (unsigned)__builtin_popcount(seen) != s->ndim)
		rc = refuse(x, "\"axes\" names an axis twice; each of 0 to %d comes once", (int)s->ndim - 1);
	if (rc)
		return rc;
	rc = ckpt_expr_transpose(item->expr, axes, &made);
	if (rc)
		return refuse_expr(x, item->name, rc);
	give(item, made);
	return 0;
}

// -1 becomes what is missing. False: nothing fits.
static bool complete_shape(const struct rule *r, uint64_t elements, uint64_t *shape)
{
	uint64_t known = 1, *unknown = NULL;

	for (size_t i = 0; i < r->number_count; i++) {
		shape[i] = (uint64_t)r->numbers[i];
		if (r->numbers[i] == -1)
			unknown = &shape[i];
		else if (__builtin_mul_overflow(known, shape[i], &known))
			return false;
	}
	if (!unknown)
		return known == elements;
	if (!known || elements % known)
		return false;
	*unknown = elements / known;
	return true;
}

static int reshape(const struct apply *x, struct ckpt_array_item *item)
{
	uint64_t shape[CKPT_ARRAY_DIMS_MAX] = {0}, elements = ckpt_expr_elements(item->expr);
	struct ckpt_expr *made;
	int rc;

	if (!complete_shape(x->r, elements, shape))
		return refuse(x, "\"%.200s\" has the shape %s, of %" PRIu64 " elements: they do not fit into %s",
			      item->name, shape_of(item).text, elements, shown_numbers(x->r).text);
	rc = ckpt_expr_reshape(item->expr, (unsigned)x->r->number_count, shape, &made);
	if (rc)
		return refuse_expr(x, item->name, rc);
	give(item, made);
	return 0;
}

static int pad(const struct apply *x, struct ckpt_array_item *item)
{
	const struct ckpt_expr_shape *s = ckpt_expr_shape(item->expr);
	uint64_t shape[CKPT_ARRAY_DIMS_MAX] = {0};
	bool fits = s->ndim == x->r->number_count;
	struct ckpt_expr *made;
	int rc;

	for (unsigned i = 0; fits && i < s->ndim; i++) {
		shape[i] = (uint64_t)x->r->numbers[i];
		fits = shape[i] >= s->at[i];
	}
	if (!fits)
		return refuse(x, "\"%.200s\" has the shape %s: %s is to have as many axes, none of them smaller",
			      item->name, shape_of(item).text, shown_numbers(x->r).text);
	rc = ckpt_expr_pad(item->expr, shape, &made);
	if (rc)
		return refuse_expr(x, item->name, rc);
	give(item, made);
	return 0;
}

static int cast(const struct apply *x, struct ckpt_array_item *item)
{
	struct ckpt_expr *made;
	int rc;

	if (ckpt_expr_shape(item->expr)->dtype == x->r->dtype)
		return 0;
	rc = ckpt_expr_cast(item->expr, x->r->dtype, &made);
	if (rc)
		return refuse_expr(x, item->name, rc);
	give(item, made);
	return 0;
}

static int each_match(const struct apply *x, int (*change)(const struct apply *x, struct ckpt_array_item *item))
{
	bool floating = x->r->kind == CAST, any = false;
	int rc = 0;

	for (size_t i = 0; i < x->l->count && !rc; i++) {
		struct ckpt_array_item *item = &x->l->at[i];

		if (!matches(item, x->r->of) || (floating && !ckpt_is_floating(ckpt_expr_shape(item->expr)->dtype)))
			continue;
		any = true;
		rc = change(x, item);
	}
	return rc || any ? rc : refuse(x, "no %sarray matches \"%.200s\"", floating ? "floating " : "", x->r->of);
}

// --- Cutting ----------------------------------------------------------------------------------------------------------------

static int check_sizes(const struct apply *x, const struct ckpt_array_item *item, unsigned axis)
{
	uint64_t extent = ckpt_expr_shape(item->expr)->at[axis], sum = 0;

	for (size_t i = 0; i < x->r->number_count; i++)
		if (__builtin_add_overflow(sum, (uint64_t)x->r->numbers[i], &sum))
			sum = UINT64_MAX;
	if (x->r->numbers && sum != extent)
		return refuse(x,
			      "\"%.200s\" has the shape %s: the sizes of axis %u add up to %" PRIu64 ", not %" PRIu64,
			      item->name, shape_of(item).text, axis, sum, extent);
	if (!x->r->numbers && extent % x->r->name_count)
		return refuse(x, "\"%.200s\" has the shape %s: axis %u has no %zu equal parts; \"sizes\" says others",
			      item->name, shape_of(item).text, axis, x->r->name_count);
	return 0;
}

static int split_into(const struct apply *x, struct ckpt_expr *of, unsigned axis)
{
	uint64_t start = 0, extent = ckpt_expr_shape(of)->at[axis] / x->r->name_count;
	int rc = 0;

	for (size_t i = 0; i < x->r->name_count && !rc; i++, start += extent) {
		struct ckpt_expr *part;

		if (x->r->numbers)
			extent = (uint64_t)x->r->numbers[i];
		rc = ckpt_expr_slice(of, axis, start, extent, &part);
		if (rc)
			return refuse_expr(x, x->r->of, rc);
		rc = add(x, x->r->names[i], part);
		ckpt_expr_unref(part);
	}
	return rc;
}

static char *numbered(const char *to, uint64_t index)
{
	const char *hole = strstr(to, "{}");
	char *name;

	return asprintf(&name, "%.*s%" PRIu64 "%s", (int)(hole - to), to, index, hole + 2) < 0 ? NULL : name;
}

static int unstack_into(const struct apply *x, struct ckpt_expr *of, unsigned axis)
{
	uint64_t count = ckpt_expr_shape(of)->at[axis];
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		CLEANUP_FREE char *name = numbered(x->r->to, i);
		struct ckpt_expr *part;

		rc = name ? ckpt_expr_take(of, axis, i, &part) : -ENOMEM;
		if (rc)
			return refuse_expr(x, x->r->of, rc);
		rc = add(x, name, part);
		ckpt_expr_unref(part);
	}
	return rc;
}

static int cut(const struct apply *x)
{
	struct ckpt_expr *of;
	unsigned axis;
	size_t at;
	int rc = find(x, x->r->of, &at);

	if (!rc)
		rc = axis_of(x, x->r->of, x->r->axis, ckpt_expr_shape(x->l->at[at].expr)->ndim, &axis);
	if (!rc && x->r->kind == SPLIT)
		rc = check_sizes(x, &x->l->at[at], axis);
	if (rc)
		return rc;
	of = ckpt_expr_ref(x->l->at[at].expr);
	take_out(&x->l->at[at]);
	close_gaps(x->l);
	rc = x->r->kind == SPLIT ? split_into(x, of, axis) : unstack_into(x, of, axis);
	ckpt_expr_unref(of);
	return rc;
}

// --- Joining ----------------------------------------------------------------------------------------------------------------

// Zeros in front of a number, but for its last digit.
static size_t leading_zeros(const char *at)
{
	size_t zeros = strspn(at, "0"), digits = strspn(at, "0123456789");

	return zeros && zeros == digits ? zeros - 1 : zeros;
}

// "layers.2" before "layers.10".
static int by_numbers(const void *one, const void *other, void *list)
{
	const struct ckpt_array_list *l = list;
	const char *a = l->at[*(const size_t *)one].name, *b = l->at[*(const size_t *)other].name;

	while (*a && *b) {
		size_t x, y;

		a += leading_zeros(a);
		b += leading_zeros(b);
		x = strspn(a, "0123456789");
		y = strspn(b, "0123456789");
		if (x && y) {
			int order = x != y ? (x > y) - (x < y) : memcmp(a, b, x);

			if (order)
				return order;
			a += x;
			b += y;
		} else if (*a != *b) {
			break;
		} else {
			a++;
			b++;
		}
	}
	if (*a != *b)
		return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
	return strcmp(l->at[*(const size_t *)one].name, l->at[*(const size_t *)other].name);
}

static int check_joined(const struct apply *x, const size_t *parts, size_t count, unsigned axis)
{
	const struct ckpt_array_item *first = &x->l->at[parts[0]];
	const struct ckpt_expr_shape *a = ckpt_expr_shape(first->expr);

	for (size_t i = 1; i < count; i++) {
		const struct ckpt_array_item *item = &x->l->at[parts[i]];
		const struct ckpt_expr_shape *b = ckpt_expr_shape(item->expr);
		bool fits = a->ndim == b->ndim;

		for (unsigned k = 0; fits && k < a->ndim; k++)
			fits = a->at[k] == b->at[k] || (x->r->kind == CONCAT && k == axis);
		if (!fits)
			return refuse(x, "\"%.130s\" has the shape %s, and \"%.130s\" %s", first->name,
				      shape_of(first).text, item->name, shape_of(item).text);
		if (a->dtype != b->dtype)
			return refuse(x, "\"%.150s\" is of %s, and \"%.150s\" of %s; a cast before makes them the same",
				      first->name, ckpt_dtype_name(a->dtype), item->name, ckpt_dtype_name(b->dtype));
	}
	return 0;
}

static int join(const struct apply *x, const size_t *parts, size_t count)
{
	CLEANUP_FREE struct ckpt_expr **exprs = ckpt_calloc(count, sizeof(struct ckpt_expr *));
	unsigned ndim = ckpt_expr_shape(x->l->at[parts[0]].expr)->ndim, axis;
	struct ckpt_expr *made;
	int rc = exprs ? 0 : -ENOMEM;

	if (!rc && x->r->kind == STACK && ndim >= CKPT_ARRAY_DIMS_MAX)
		rc = refuse(x, "\"%.200s\" has %u axes, which is the most there can be", x->l->at[parts[0]].name, ndim);
	if (!rc)
		rc = axis_of(x, x->r->to, x->r->axis, ndim + (x->r->kind == STACK), &axis);
	if (!rc)
		rc = check_joined(x, parts, count, axis);
	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		exprs[i] = x->l->at[parts[i]].expr;
	rc = (x->r->kind == STACK ? ckpt_expr_stack : ckpt_expr_concat)(exprs, count, axis, &made);
	if (rc)
		return refuse_expr(x, x->r->to, rc);
	for (size_t i = 0; i < count; i++)
		if (x->l->at[parts[i]].name)
			take_out(&x->l->at[parts[i]]);
	close_gaps(x->l);
	rc = add(x, x->r->to, made);
	ckpt_expr_unref(made);
	return rc;
}

static int concat(const struct apply *x)
{
	CLEANUP_FREE size_t *parts = ckpt_calloc(x->r->name_count, sizeof(*parts));
	int rc = parts ? 0 : -ENOMEM;

	for (size_t i = 0; i < x->r->name_count && !rc; i++)
		rc = find(x, x->r->names[i], &parts[i]);
	return rc ? rc : join(x, parts, x->r->name_count);
}

static int stack(const struct apply *x)
{
	CLEANUP_FREE size_t *parts = ckpt_calloc(x->l->count + 1, sizeof(*parts));
	size_t count = 0;

	if (!parts)
		return -ENOMEM;
	for (size_t i = 0; i < x->l->count; i++)
		if (matches(&x->l->at[i], x->r->of))
			parts[count++] = i;
	if (!count)
		return refuse(x, "no array matches \"%.200s\"", x->r->of);
	qsort_r(parts, count, sizeof(*parts), by_numbers, x->l);
	return join(x, parts, count);
}

// --- All of them ------------------------------------------------------------------------------------------------------------

static int pad_one(const struct apply *x)
{
	size_t at;
	int rc = find(x, x->r->of, &at);

	return rc ? rc : pad(x, &x->l->at[at]);
}

static int apply_rule(const struct apply *x, bool *any)
{
	switch (x->r->kind) {
	case RENAME:
		return rename_all(x, any);
	case DROP:
		return drop(x, any);
	case TRANSPOSE:
		return each_match(x, transpose);
	case RESHAPE:
		return each_match(x, reshape);
	case CAST:
		return each_match(x, cast);
	case PAD:
		return pad_one(x);
	case CONCAT:
		return concat(x);
	case STACK:
		return stack(x);
	default:
		return cut(x);
	}
}

static void tell_idle(const struct apply *x)
{
	char text[CKPT_RULES_WHY_MAX];

	snprintf(text, sizeof(text), "rule %zu (%s): no array matches \"%.200s\"", x->number,
		 ckpt_rule_word(x->r->kind), x->r->of);
	ckpt_rule_clean(text);
	if (x->t->note)
		x->t->note(x->t->arg, text);
}

int ckpt_array_rules_apply(const struct ckpt_array_rules *r, struct ckpt_array_list *l,
			   struct ckpt_array_rules_telling *t)
{
	int rc = 0;

	for (size_t i = 0; i < r->count && !rc; i++) {
		const struct apply x = {&r->at[i], i + 1, l, t};
		bool any = x.r->kind != RENAME && x.r->kind != DROP;

		rc = apply_rule(&x, &any);
		if (!rc)
			rc = check_names(&x);
		if (!rc && !any)
			tell_idle(&x);
	}
	return rc;
}

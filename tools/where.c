#include "tools/where.h"

#include "core/base/clock.h"
#include "core/base/util.h"
#include "tools/output.h"
#include "tools/units.h"
#include "tools/verb.h"

#include <ctype.h>
#include <stdio.h>

enum op { OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE };

struct condition {
	char *field, *value;
	bool short_name; // of a metric
	enum op op;
};

struct ckpt_where {
	struct condition *conditions;
	size_t count, cap;
};

static const json_t *field_of(const json_t *row, const char *key)
{
	CLEANUP_FREE char *copy = ckpt_text("%s", key);
	char *rest = copy, *part;

	// A key with dots in it is taken whole first: {"eval.loss": 1} is written so by some.
	while (row && rest) {
		const json_t *whole = json_object_get(row, rest);

		if (whole)
			return whole;
		part = strsep(&rest, ".");
		row = rest ? json_object_get(row, part) : NULL;
	}
	return row;
}

// --- Parsing ----------------------------------------------------------------------------------------------------------

static const struct {
	const char *text;
	enum op op;
} ops[] = {
	{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"=", OP_EQ}, {"<", OP_LT}, {">", OP_GT},
};

static const char *skip_blanks(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

static bool has(const char *const *fields, const char *key)
{
	while (*fields && strcmp(key, *fields))
		fields++;
	return *fields;
}

static bool is_object(const char *key)
{
	return !strcmp(key, "extras") || !strcmp(key, "metrics");
}

char *ckpt_where_field(const char *key, const char *const *fields, char **ret_hint)
{
	const char *nearest = ckpt_nearest(key, fields);

	if ((has(fields, key) && !is_object(key)) || (!strncmp(key, "extras.", 7) && key[7]) ||
	    (!strncmp(key, "metrics.", 8) && key[8]))
		return ckpt_text("%s", key);
	// However near it is to a field: the steps tell whether it is one of theirs.
	if (*key && !strchr(key, '.') && !is_object(key) && has(fields, "metrics"))
		return ckpt_text("metrics.%s", key);
	*ret_hint = nearest && !is_object(key) ? ckpt_text("did you mean %s?", nearest)
					       : ckpt_text("fields are those of --json, extras.NAME and metrics.NAME");
	return NULL;
}

static int wrong(char **ret_why, const char *text, const char *at, const char *wants)
{
	if (*at)
		*ret_why =
			ckpt_text("%s is missing at column %zu, before \"%.20s\"", wants, (size_t)(at - text) + 1, at);
	else
		*ret_why = ckpt_text("%s is missing at the end", wants);
	return -EINVAL;
}

static int parse_field(const char *text, const char **p, const char *const *fields, struct condition *c, char **ret_why)
{
	size_t len = strcspn(*p, " \t\n=!<>\"'");
	CLEANUP_FREE char *key = NULL, *hint = NULL;

	if (!len)
		return wrong(ret_why, text, *p, "a field");
	key = ckpt_text("%.*s", (int)len, *p);
	c->field = ckpt_where_field(key, fields, &hint);
	if (!c->field) {
		*ret_why = ckpt_text("no field %s; %s", key, hint);
		return -EINVAL;
	}
	c->short_name = strcmp(c->field, key);
	*p = skip_blanks(*p + len);
	return 0;
}

static int parse_value(const char *text, const char **p, struct condition *c, char **ret_why)
{
	const char *start = *p;
	char quote = *start == '"' || *start == '\'' ? *start : '\0';
	const char *end = quote ? strchr(start + 1, quote) : start + strcspn(start, " \t\n");

	if (!end)
		return wrong(ret_why, text, start + strlen(start), "the closing quote");
	if (!quote && end == start)
		return wrong(ret_why, text, start, "a value");
	c->value = quote ? ckpt_text("%.*s", (int)(end - start - 1), start + 1)
			 : ckpt_text("%.*s", (int)(end - start), start);
	*p = skip_blanks(end + (quote != '\0'));
	return 0;
}

static int parse_condition(const char *text, const char **p, const char *const *fields, struct condition *c,
			   char **ret_why)
{
	size_t i = 0;
	int rc = parse_field(text, p, fields, c, ret_why);

	if (rc)
		return rc;
	while (i < ARRAY_LEN(ops) && strncmp(*p, ops[i].text, strlen(ops[i].text)))
		i++;
	if (i == ARRAY_LEN(ops))
		return wrong(ret_why, text, *p, "one of = != < <= > >=");
	c->op = ops[i].op;
	*p = skip_blanks(*p + strlen(ops[i].text));
	return parse_value(text, p, c, ret_why);
}

int ckpt_where_parse(const char *text, const char *const *fields, struct ckpt_where **ret_where, char **ret_why)
{
	struct ckpt_where *w = ckpt_need(calloc(1, sizeof(*w)));
	const char *p = skip_blanks(text);

	for (;;) {
		struct condition *c;

		if (ckpt_grow((void **)&w->conditions, &w->cap, w->count + 1, sizeof(*w->conditions)))
			ckpt_need(NULL);
		c = &w->conditions[w->count++];
		*c = (struct condition){0};
		if (parse_condition(text, &p, fields, c, ret_why))
			break;
		if (!*p) {
			*ret_where = w;
			return 0;
		}
		if (strncmp(p, "and", 3) || !isspace((unsigned char)p[3])) {
			wrong(ret_why, text, p, "\"and\"");
			break;
		}
		p = skip_blanks(p + 3);
	}
	ckpt_where_free(w);
	return -EINVAL;
}

void ckpt_where_free(struct ckpt_where *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->count; i++) {
		free(w->conditions[i].field);
		free(w->conditions[i].value);
	}
	free(w->conditions);
	free(w);
}

// --- Comparing --------------------------------------------------------------------------------------------------------

static bool decide(enum op op, int order)
{
	switch (op) {
	case OP_EQ:
		return order == 0;
	case OP_NE:
		return order != 0;
	case OP_LT:
		return order < 0;
	case OP_LE:
		return order <= 0;
	case OP_GT:
		return order > 0;
	default:
		return order >= 0;
	}
}

static bool compare_number(const struct condition *c, double have)
{
	char *end;
	double want = strtod(c->value, &end);
	uint64_t bytes;

	if (!*c->value || *end) {
		if (ckpt_size_parse(c->value, &bytes))
			return c->op == OP_NE;
		want = (double)bytes;
	}
	return decide(c->op, (have > want) - (have < want));
}

static bool compare_text(const struct condition *c, const char *have)
{
	int64_t have_ns, want_ns;

	if (!strcmp(c->field, "committed_at") || !strcmp(c->field, "mtime")) {
		if (ckpt_time_parse(c->value, false, &want_ns) || ckpt_time_parse(have, false, &have_ns))
			return c->op == OP_NE;
		return decide(c->op, (have_ns > want_ns) - (have_ns < want_ns));
	}
	return decide(c->op, strcmp(have, c->value));
}

static bool compare_bool(const struct condition *c, bool have)
{
	bool want = !strcmp(c->value, "true") || !strcmp(c->value, "yes") || !strcmp(c->value, "1");

	return decide(c->op, (int)have - (int)want);
}

static bool holds(const struct condition *c, const json_t *row)
{
	const json_t *value = field_of(row, c->field);

	if (json_is_number(value))
		return compare_number(c, json_number_value(value));
	if (json_is_string(value))
		return compare_text(c, json_string_value(value));
	if (json_is_boolean(value))
		return compare_bool(c, json_is_true(value));
	return c->op == OP_NE;
}

bool ckpt_where_is_metadata(const char *field)
{
	return !strncmp(field, "extras.", 7) || !strncmp(field, "metrics.", 8) || !strcmp(field, "healthy");
}

bool ckpt_where_asks_metadata(const struct ckpt_where *w)
{
	for (size_t i = 0; w && i < w->count; i++)
		if (ckpt_where_is_metadata(w->conditions[i].field))
			return true;
	return false;
}

bool ckpt_where_is_there(const json_t *rows, const char *metric, const char *const *fields)
{
	size_t count = json_array_size(rows), i = 0;

	while (i < count && !field_of(json_array_get(rows, i), metric))
		i++;
	return i < count || (!count && !ckpt_nearest(strchr(metric, '.') + 1, fields));
}

const char *ckpt_where_missing(const struct ckpt_where *w, const json_t *rows, const char *const *fields)
{
	for (size_t i = 0; w && i < w->count; i++) {
		const struct condition *c = &w->conditions[i];

		if (c->short_name && !ckpt_where_is_there(rows, c->field, fields))
			return strchr(c->field, '.') + 1;
	}
	return NULL;
}

bool ckpt_where_holds(const struct ckpt_where *w, const json_t *row)
{
	for (size_t i = 0; i < w->count; i++)
		if (!holds(&w->conditions[i], row))
			return false;
	return true;
}

// --- Order ------------------------------------------------------------------------------------------------------------

struct sortable {
	json_t *row;
	const json_t *value;
	size_t at;
};

static int rank(const json_t *value)
{
	return json_is_number(value) ? 0 : json_is_string(value) ? 1 : json_is_boolean(value) ? 2 : 3;
}

static int compare_values(const json_t *x, const json_t *y)
{
	if (rank(x) != rank(y))
		return rank(x) - rank(y);
	if (json_is_integer(x) && json_is_integer(y))
		return (json_integer_value(x) > json_integer_value(y)) -
		       (json_integer_value(x) < json_integer_value(y));
	if (json_is_number(x))
		return (json_number_value(x) > json_number_value(y)) - (json_number_value(x) < json_number_value(y));
	if (json_is_string(x))
		return strverscmp(json_string_value(x), json_string_value(y));
	return json_is_boolean(x) ? (int)json_is_true(x) - (int)json_is_true(y) : 0;
}

// Nulls stay last in either direction.
static int compare_sortables(const void *a, const void *b, void *arg)
{
	const struct sortable *x = a, *y = b;
	bool reverse = *(bool *)arg;
	int order = compare_values(x->value, y->value);

	if (order && rank(x->value) < 3 && rank(y->value) < 3 && reverse)
		order = -order;
	return order ? order : (x->at > y->at) - (x->at < y->at);
}

void ckpt_where_sort(json_t *rows, const char *key, bool reverse)
{
	size_t count = json_array_size(rows);
	CLEANUP_FREE struct sortable *sorted = ckpt_need(calloc(count + 1, sizeof(*sorted)));

	for (size_t i = 0; i < count; i++) {
		sorted[i].row = json_incref(json_array_get(rows, i));
		sorted[i].value = key ? field_of(sorted[i].row, key) : NULL;
		sorted[i].at = i;
	}
	if (key)
		qsort_r(sorted, count, sizeof(*sorted), compare_sortables, &reverse);
	json_array_clear(rows);
	for (size_t i = 0; i < count; i++)
		if (json_array_append_new(rows, sorted[key || !reverse ? i : count - 1 - i].row))
			ckpt_need(NULL);
}

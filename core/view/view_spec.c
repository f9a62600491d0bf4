#include "core/view/view_spec.h"

#include "core/array/cast.h"
#include "core/base/nearest.h"
#include "core/base/util.h"

#include <stdarg.h>
#include <stdio.h>

void ckpt_view_wrong(struct ckpt_view_why *why, const char *text, ...)
{
	va_list args;

	va_start(args, text);
	vsnprintf(why->why, sizeof(why->why), text, args);
	va_end(args);
}

// --- Values -----------------------------------------------------------------------------------------------------------------

// Decimal, as it would be written: without a sign or leading zeros.
static bool parse_number(const char *text, size_t len, uint64_t max, uint64_t *ret_number)
{
	uint64_t n = 0;

	if (!len || len > 10 || (len > 1 && *text == '0'))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		n = n * 10 + (uint64_t)(text[i] - '0');
	}
	if (n > max)
		return false;
	*ret_number = n;
	return true;
}

bool ckpt_view_shard_parse(const char *text, uint64_t *ret_shard, uint64_t *ret_shards)
{
	const char *of = strstr(text, "of");
	uint64_t shard, shards;

	if (!of || !parse_number(text, (size_t)(of - text), CKPT_VIEW_SHARDS_MAX, &shard) ||
	    !parse_number(of + 2, strlen(of + 2), CKPT_VIEW_SHARDS_MAX, &shards) || !shard || shard > shards)
		return false;
	*ret_shard = shard;
	*ret_shards = shards;
	return true;
}

bool ckpt_view_axis_parse(const char *text, unsigned *ret_axis)
{
	uint64_t axis;

	if (!parse_number(text, strlen(text), CKPT_ARRAY_DIMS_MAX - 1, &axis))
		return false;
	*ret_axis = (unsigned)axis;
	return true;
}

enum ckpt_dtype ckpt_view_dtype(const char *name)
{
	for (unsigned i = 1; i < CKPT_DTYPE_COUNT; i++)
		if (ckpt_is_floating(i) && (!strcmp(name, ckpt_dtype_name(i)) || !strcmp(name, ckpt_dtype_numpy(i))))
			return i;
	return CKPT_DTYPE_NONE;
}

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
				      : -1;
}

// In place. False: "%" without two digits, or a NUL.
static bool unescape(char *text)
{
	char *out = text;

	for (const char *in = text; *in; in++) {
		int high, low;

		if (*in != '%') {
			*out++ = *in;
			continue;
		}
		high = digit(in[1]);
		low = high < 0 ? -1 : digit(in[2]);
		if (low < 0 || !(high << 4 | low))
			return false;
		*out++ = (char)(high << 4 | low);
		in += 2;
	}
	*out = '\0';
	return true;
}

// --- Keys -------------------------------------------------------------------------------------------------------------------

struct parsing {
	struct ckpt_view_spec *spec;
	struct ckpt_view_why *why;
	const char *key;
	bool is_file; // the value begins with "@"
	size_t only_count, not_count;
	bool axis;
};

static int wrong(struct parsing *p, const char *hint)
{
	snprintf(p->why->hint, sizeof(p->why->hint), "%s", hint);
	return -EINVAL;
}

static int wrong_value(struct parsing *p, const char *value, const char *hint)
{
	ckpt_view_wrong(p->why, "%s=%.80s is not valid", p->key, value);
	return wrong(p, hint);
}

static int twice(struct parsing *p)
{
	ckpt_view_wrong(p->why, "%s= is there twice", p->key);
	return wrong(p, "only= and not= alone may be repeated");
}

static int take_path(struct parsing *p, const char *path, const char **field)
{
	if (*field)
		return twice(p);
	*field = path;
	return 0;
}

static int take_glob(struct parsing *p, const char *glob, const char **globs, size_t *count, const char **file)
{
	if (p->is_file)
		return take_path(p, glob, file);
	if (*count == CKPT_VIEW_GLOBS_MAX)
		return wrong_value(p, glob, "a longer list comes from a file: only=@FILE");
	globs[(*count)++] = glob;
	return 0;
}

static int take_only(struct parsing *p, char *value)
{
	return take_glob(p, value, p->spec->only, &p->only_count, &p->spec->only_file);
}

static int take_not(struct parsing *p, char *value)
{
	return take_glob(p, value, p->spec->not, &p->not_count, &p->spec->not_file);
}

static int take_dtype(struct parsing *p, char *value)
{
	if (p->spec->dtype)
		return twice(p);
	p->spec->dtype = ckpt_view_dtype(value);
	return p->spec->dtype ? 0 : wrong_value(p, value, "a floating type, for example dtype=bf16 or dtype=float32");
}

static int take_shard(struct parsing *p, char *value)
{
	if (p->spec->shards)
		return twice(p);
	return ckpt_view_shard_parse(value, &p->spec->shard, &p->spec->shards)
		       ? 0
		       : wrong_value(p, value, "shard=IofN, I from 1 to N, for example shard=3of8");
}

static int take_axis(struct parsing *p, char *value)
{
	if (p->axis)
		return twice(p);
	p->axis = true;
	return ckpt_view_axis_parse(value, &p->spec->axis)
		       ? 0
		       : wrong_value(p, value, "a number from 0 on, for example axis=1");
}

static int take_unroll(struct parsing *p, char *value)
{
	if (p->spec->unroll)
		return twice(p);
	p->spec->unroll = true;
	return ckpt_view_axis_parse(value, &p->spec->unroll_axis)
		       ? 0
		       : wrong_value(p, value, "an axis from 0 on, for example unroll=1");
}

static int take_rename(struct parsing *p, char *value)
{
	return take_path(p, value, &p->spec->rename_file);
}

static int take_prefix(struct parsing *p, char *value)
{
	return take_path(p, value, &p->spec->prefix);
}

static const struct {
	const char *key;
	int (*take)(struct parsing *p, char *value);
} keys[] = {
	{"only", take_only}, {"not", take_not},       {"dtype", take_dtype},   {"shard", take_shard},
	{"axis", take_axis}, {"unroll", take_unroll}, {"rename", take_rename}, {"prefix", take_prefix},
};

static int unknown(struct parsing *p)
{
	const char *names[ARRAY_LEN(keys) + 1] = {NULL}, *near;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		names[i] = keys[i].key;
	near = ckpt_nearest(p->key, names);
	ckpt_view_wrong(p->why, "%.80s= is not known", p->key);
	if (!near)
		return wrong(p, "only, not, dtype, shard, axis, unroll, rename and prefix are known");
	snprintf(p->why->hint, sizeof(p->why->hint), "did you mean %s=?", near);
	return -EINVAL;
}

static int take_part(struct parsing *p, char *part)
{
	char *value = strchr(part, '=');

	if (!value) {
		ckpt_view_wrong(p->why, "%.80s is no KEY=VALUE", part);
		return wrong(p, "for example only=model.**,dtype=bf16; a comma in a value is %2C");
	}
	*value++ = '\0';
	p->key = part;
	p->is_file = (!strcmp(part, "only") || !strcmp(part, "not")) && *value == '@';
	value += p->is_file;
	if (!*value)
		return wrong_value(p, value, "a value follows the \"=\"");
	if (!unescape(value)) {
		ckpt_view_wrong(p->why, "%.80s= has an escape that is not valid", part);
		return wrong(p, "%XX is a byte, and no NUL; a percent sign is %25");
	}
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (!strcmp(keys[i].key, part))
			return keys[i].take(p, value);
	return unknown(p);
}

int ckpt_view_spec_parse(const char *name, struct ckpt_view_spec *ret_spec, struct ckpt_view_why *ret_why)
{
	struct parsing p = {.spec = ret_spec, .why = ret_why};
	size_t len = strlen(name);
	int rc = 0;

	*ret_spec = (struct ckpt_view_spec){0};
	*ret_why = (struct ckpt_view_why){0};
	if (len > CKPT_VIEW_NAME_MAX) {
		ckpt_view_wrong(ret_why, "the name has more than %d bytes", CKPT_VIEW_NAME_MAX);
		return wrong(&p, "a longer list comes from a file: only=@FILE");
	}
	memcpy(ret_spec->text, name, len + 1);
	for (char *part = ret_spec->text, *next; part && !rc; part = next) {
		next = strchr(part, ',');
		if (next)
			*next++ = '\0';
		rc = take_part(&p, part);
	}
	if (!rc && p.axis && !ret_spec->shards) {
		ckpt_view_wrong(ret_why, "axis= stands without shard=");
		rc = wrong(&p, "for example shard=3of8,axis=0");
	}
	return rc;
}

#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/util.h"
#include "tools/output.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <stdio.h>

// One value as people read it: sizes of *bytes, times of *_at, else as it is.
static void print_value(const char *key, const json_t *value)
{
	char text[CKPT_TIME_MAX], size[CKPT_SIZE_MAX];
	size_t len = strlen(key);
	int64_t ns;
	char *dump;

	if (json_is_integer(value) && len >= 5 && !strcmp(key + len - 5, "bytes")) {
		printf("%s (%lld)\n", ckpt_size_text((uint64_t)json_integer_value(value), size),
		       json_integer_value(value));
		return;
	}
	if (json_is_string(value)) {
		const char *s = json_string_value(value);

		puts(len > 3 && !strcmp(key + len - 3, "_at") && !ckpt_time_parse(s, false, &ns)
			     ? ckpt_time_local(ns, text)
			     : s);
		return;
	}
	dump = json_is_null(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	puts(json_is_boolean(value) ? (json_is_true(value) ? "yes" : "no") : dump ? dump : "-");
	free(dump);
}

// Arrays of objects come one a line, below their name.
static void print_row(json_t *row)
{
	const char *key;
	json_t *value, *item;
	size_t i;

	json_object_foreach(row, key, value)
	{
		printf("%-14s ", key);
		if (!strcmp(key, "healthy") && json_is_null(value)) {
			puts("not looked at");
			continue;
		}
		if (!json_is_array(value) || !json_array_size(value)) {
			print_value(key, json_is_array(value) ? NULL : value);
			continue;
		}
		json_array_foreach(value, i, item)
		{
			char *dump = json_dumps(item, JSON_ENCODE_ANY | JSON_COMPACT);

			printf("%*s%s\n", i ? 15 : 0, "", dump);
			free(dump);
		}
	}
}

static int version_row(const struct ckpt_listing *l, const struct ckpt_operand *o, json_t **ret_row)
{
	struct ckpt_at_version at;
	int rc = ckpt_listing_version(l, o, o->steps[0], &at);

	if (rc)
		return rc;
	if (*at.path)
		rc = ckpt_usage(o->steps[0], "`ckptfs ls -l` shows single files", "a file in a step");
	else
		*ret_row = ckpt_row_version(l, &at);
	ckpt_at_version_done(&at);
	return rc;
}

static int step_row(const struct ckpt_listing *l, const struct ckpt_operand *o, json_t **ret_row)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_step *step;
	int rc;

	if (ckpt_listing_is_version(l, o, o->steps[0]))
		return version_row(l, o, ret_row);
	rc = ckpt_listing_find(l, o, o->steps[0], &step, &path);

	if (rc)
		return rc;
	if (*path)
		rc = ckpt_usage(o->steps[0], "`ckptfs ls -l` shows single files", "a file in a step");
	else
		*ret_row = ckpt_row_step_full(l, step);
	ckpt_step_unref(step);
	return rc;
}

int ckpt_verb_info(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [STEP]",
		.doc = "Shows one store, step, or version of a step in full. Of a step it lists the versions, and "
		       "until "
		       "when each can be opened as STEP@VERSION.\v"
		       "Examples:\n"
		       "  ckptfs info /data/run42\n"
		       "  ckptfs info /ckpt 1000@3\n"
		       "  ckptfs info --json /ckpt latest~1",
		.operands_max = 2,
	};
	struct ckpt_listing l;
	struct ckpt_operand o;
	struct ckpt_words words;
	json_t *row = NULL;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count > 1 ? ckpt_usage(o.steps[1], "usage: ckptfs info [STORE] [STEP]", "one operand too many") : 0;
	if (!rc)
		rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		if (o.count)
			rc = step_row(&l, &o, &row);
		else
			row = ckpt_row_store(&l);
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	if (rc)
		return rc;
	if (ckpt_output.json) {
		ckpt_output_json(row);
		return 0;
	}
	print_row(row);
	json_decref(row);
	return 0;
}

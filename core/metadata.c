#include "core/metadata.h"

#include "core/json.h"
#include "core/limits.h"
#include "core/util.h"

#include <ctype.h>
#include <stdio.h>

__attribute__((format(printf, 2, 3))) static int refuse(char **ret_why, const char *what, ...)
{
	va_list ap;

	va_start(ap, what);
	if (vasprintf(ret_why, what, ap) < 0)
		*ret_why = NULL;
	va_end(ap);
	return -EINVAL;
}

static bool too_deep(const json_t *value, int depth)
{
	const char *key;
	json_t *child;
	size_t i;

	if (depth > CKPT_METADATA_DEPTH_MAX)
		return true;
	json_object_foreach((json_t *)value, key, child) if (too_deep(child, depth + 1)) return true;
	json_array_foreach(value, i, child) if (too_deep(child, depth + 1)) return true;
	return false;
}

static int check_field(const char *key, json_t *value, char **ret_why)
{
	const char *name;
	json_t *metric;

	if (!strcmp(key, "temporary"))
		return json_is_boolean(value) ? 0 : refuse(ret_why, "\"temporary\" is not true or false");
	if (!strcmp(key, "extras"))
		return json_is_object(value) ? 0 : refuse(ret_why, "\"extras\" is not an object");
	if (!strcmp(key, "world_size"))
		return json_is_integer(value) && json_integer_value(value) >= 1
			       ? 0
			       : refuse(ret_why, "\"world_size\" is not an integer of at least 1");
	if (strcmp(key, "metrics"))
		return refuse(ret_why, "there is no field \"%s\"; fields of your own belong into \"extras\"", key);
	if (!json_is_object(value))
		return refuse(ret_why, "\"metrics\" is not an object");
	json_object_foreach(value, name, metric) if (!json_is_number(metric)) return refuse(
		ret_why, "the metric \"%s\" is not a number", name);
	return 0;
}

int ckpt_metadata_parse(const char *text, size_t len, char **ret_json, char **ret_why)
{
	json_error_t error;
	json_t *root, *value;
	const char *key;
	int rc;

	*ret_why = NULL;
	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	if (!len) {
		*ret_json = NULL;
		return 0;
	}
	if (len > CKPT_METADATA_BYTES_MAX) {
		refuse(ret_why, "more than %u bytes", CKPT_METADATA_BYTES_MAX);
		return -EFBIG;
	}
	rc = ckpt_json_load(text, len, JSON_REJECT_DUPLICATES, &error, &root);
	if (rc == -ENOMEM)
		return rc;
	if (rc)
		return refuse(ret_why, "not JSON: line %d, column %d: %s", error.line, error.column, error.text);
	if (!json_is_object(root))
		rc = refuse(ret_why, "not a JSON object");
	else if (too_deep(root, 0))
		rc = refuse(ret_why, "nested more than %d deep", CKPT_METADATA_DEPTH_MAX);
	else
		json_object_foreach(root, key, value) if ((rc = check_field(key, value, ret_why))) break;
	if (!rc) {
		char *json = ckpt_json_dump(json_incref(root), JSON_COMPACT | JSON_SORT_KEYS);

		if (json)
			*ret_json = json;
		else
			rc = -ENOMEM;
	}
	json_decref(root);
	return rc;
}

int ckpt_metadata_temporary(const char *json, bool *ret_temporary)
{
	json_t *root = NULL;
	int rc = json ? ckpt_json_load(json, strlen(json), 0, NULL, &root) : 0;

	*ret_temporary = json_is_true(json_object_get(root, "temporary"));
	json_decref(root);
	return rc == -ENOMEM ? rc : 0;
}

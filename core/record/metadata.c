#include "core/record/metadata.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/limits.h"

#include <ctype.h>
#include <stdio.h>

#define FINDINGS "findings"

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

// Of a run that went wrong some metric is no number, which must not cost it the step. Python writes NaN, which taming makes "".
static size_t drop_no_numbers(json_t *root)
{
	json_t *metrics = json_object_get(root, "metrics"), *value;
	size_t before = json_object_size(metrics);
	const char *name;
	void *next;

	json_object_foreach_safe(metrics, next, name, value)
	{
		if (json_is_string(value) && !json_string_length(value))
			json_object_del(metrics, name);
	}
	return before - json_object_size(metrics);
}

int ckpt_metadata_parse(const char *text, size_t len, char **ret_json, char **ret_why)
{
	CLEANUP_FREE char *tame = NULL;
	size_t tamed;
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
	tame = malloc(len);
	if (!tame)
		return -ENOMEM;
	memcpy(tame, text, len);
	tamed = ckpt_json_tame(tame, len);
	rc = ckpt_json_load(tame, len, JSON_REJECT_DUPLICATES, &error, &root);
	if (rc == -ENOMEM)
		return rc;
	if (rc)
		return refuse(ret_why, "not JSON: line %d, column %d: %s", error.line, error.column, error.text);
	if (!json_is_object(root))
		rc = refuse(ret_why, "not a JSON object");
	else if (tamed && drop_no_numbers(root) != tamed)
		rc = refuse(ret_why, "not JSON: only metrics may be NaN or infinite");
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

static int load(const char *json, json_t **ret_root)
{
	int rc = json ? ckpt_json_load(json, strlen(json), 0, NULL, ret_root) : 0;

	if (!json || rc == -EINVAL) // of a later version, or damaged: it says nothing
		*ret_root = json_object();
	return *ret_root ? 0 : -ENOMEM;
}

int ckpt_metadata_merge(const char *json, const char *below, char **ret_json)
{
	static const char *const fields[] = {"extras", "metrics"}, *const single[] = {"temporary", "world_size"};
	json_t *root = NULL, *under = NULL;
	char *merged = NULL;
	int rc = 0;

	*ret_json = NULL;
	if (!json && !below)
		return 0;
	if (load(json, &root) || load(below, &under))
		rc = -ENOMEM;
	ckpt_json_begin();
	for (size_t i = 0; i < ARRAY_LEN(fields) && !rc; i++) {
		json_t *said = json_object_get(root, fields[i]), *more = json_object_get(under, fields[i]);

		if (json_is_object(more) &&
		    (said ? json_object_update_missing(said, more) : json_object_set(root, fields[i], more)))
			rc = -ENOMEM;
	}
	for (size_t i = 0; i < ARRAY_LEN(single) && !rc; i++) {
		json_t *more = json_object_get(under, single[i]);

		if (more && !json_object_get(root, single[i]) && json_object_set(root, single[i], more))
			rc = -ENOMEM;
	}
	if (!rc)
		merged = ckpt_json_dump(json_incref(root), JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(root);
	json_decref(under);
	if (!merged)
		return -ENOMEM;
	if (strlen(merged) > CKPT_METADATA_BYTES_MAX) {
		free(merged);
		return -EFBIG;
	}
	*ret_json = merged;
	return 0;
}

static void drop_same(json_t *is, json_t *was)
{
	const char *name;
	json_t *value;
	void *next;

	json_object_foreach_safe(is, next, name, value)
	{
		if (json_is_object(value))
			drop_same(value, json_object_get(was, name));
		if (json_is_object(value) ? !json_object_size(value) : json_equal(value, json_object_get(was, name)))
			json_object_del(is, name);
	}
}

int ckpt_metadata_changes(const char *json, const char *was, char **ret_json)
{
	json_t *root = NULL, *before = NULL;
	int rc = load(json, &root) || load(was, &before) ? -ENOMEM : 0;

	*ret_json = NULL;
	ckpt_json_begin();
	if (!rc) {
		(void)json_object_del(root, FINDINGS);
		drop_same(root, before);
		if (json_object_size(root)) {
			*ret_json = ckpt_json_dump(json_incref(root), JSON_COMPACT | JSON_SORT_KEYS);
			rc = *ret_json ? 0 : -ENOMEM;
		}
	}
	json_decref(root);
	json_decref(before);
	return rc;
}

static char *dump_object(json_t *root)
{
	return ckpt_json_dump(json_incref(root), JSON_COMPACT | JSON_SORT_KEYS);
}

int ckpt_metadata_set_findings(const char *json, const char *findings, char **ret_json)
{
	json_t *root = NULL, *said = NULL;
	char *made = NULL;
	int rc = load(json, &root);

	*ret_json = NULL;
	if (!rc && findings)
		rc = ckpt_json_load(findings, strlen(findings), 0, NULL, &said);
	ckpt_json_begin();
	if (!rc && said)
		rc = json_object_set(root, FINDINGS, said) ? -ENOMEM : 0;
	else if (!rc)
		(void)json_object_del(root, FINDINGS);
	if (!rc && json_object_size(root)) {
		made = dump_object(root);
		rc = !made ? -ENOMEM : strlen(made) > CKPT_METADATA_BYTES_MAX ? -EFBIG : 0;
	}
	json_decref(root);
	json_decref(said);
	if (rc)
		free(made);
	else
		*ret_json = made;
	return rc;
}

int ckpt_metadata_findings(const char *json, char **ret_findings)
{
	json_t *root = NULL, *value;
	int rc = load(json, &root);

	if (rc)
		return rc;
	value = json_object_get(root, FINDINGS);
	ckpt_json_begin();
	*ret_findings = json_is_object(value) ? dump_object(value) : NULL;
	rc = *ret_findings ? 0 : json_is_object(value) ? -ENOMEM : -ENODATA;
	json_decref(root);
	return rc;
}

int ckpt_metadata_is_note(const char *json)
{
	json_t *root = NULL;
	size_t known;
	int rc = load(json, &root);

	if (rc)
		return rc;
	known = (size_t) !!json_object_get(root, "extras") + !!json_object_get(root, "metrics");
	rc = known && known == json_object_size(root) ? 0 : -EINVAL;
	json_decref(root);
	return rc;
}

int ckpt_metadata_extra(const char *json, const char *name, char **ret_value)
{
	json_t *root = NULL, *value;
	int rc = load(json, &root);

	if (rc)
		return rc;
	value = json_object_get(json_object_get(root, "extras"), name);
	rc = value ? 0 : -ENODATA;
	ckpt_json_begin();
	if (value)
		*ret_value = json_is_string(value) ? strdup(json_string_value(value))
						   : ckpt_json_dump(json_incref(value),
								    JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
	if (value && !*ret_value)
		rc = -ENOMEM;
	json_decref(root);
	return rc;
}

int ckpt_metadata_value(const char *text, size_t len, json_t **ret_value)
{
	int rc = ckpt_json_load(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL, ret_value);

	if (rc == -EINVAL && !memchr(text, '\0', len) && ckpt_name_is_utf8(text, len)) {
		*ret_value = json_stringn(text, len);
		return *ret_value ? 0 : -ENOMEM;
	}
	if (!rc && too_deep(*ret_value, 2)) { // below the root and its extras
		json_decref(TAKE_PTR(*ret_value));
		rc = -EINVAL;
	}
	return rc;
}

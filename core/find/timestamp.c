// What the file holds is from outside: it is read up to a limit, and what is no date makes its step the oldest.
#include "core/find/timestamp.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/record/manifest.h"
#include "core/step/step.h"
#include "core/step/store.h"

#define FILE_NAME "metadata.json"
#define FILE_BYTES_MAX (1u << 20) // as much as is looked at when it completes its step (profile.c)

static int read_all(struct ckpt_file *f, char *text, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = ckpt_file_read(f, text + done, len - done, done);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		done += (size_t)n;
	}
	return 0;
}

static int read_json(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, json_t **ret_json)
{
	CLEANUP_FREE char *text = NULL;
	struct ckpt_entry e;
	struct ckpt_file *f;
	int rc;

	ckpt_manifest_entry(m, index, &e);
	if (e.type != CKPT_ENTRY_FILE || !e.bytes || e.bytes > FILE_BYTES_MAX)
		return -EINVAL;
	text = malloc(e.bytes + 1);
	if (!text)
		return -ENOMEM;
	rc = ckpt_file_open(step, m, index, &f);
	if (rc)
		return rc;
	rc = read_all(f, text, e.bytes);
	ckpt_file_close(f);
	if (rc)
		return rc;
	ckpt_json_tame(text, e.bytes);
	return ckpt_json_load(text, e.bytes, 0, NULL, ret_json);
}

static int64_t date_of(const char *text)
{
	int64_t ns;

	return ckpt_time_parse(text, true, &ns) ? CKPT_TIMESTAMP_OLDEST : MAX(ns, CKPT_TIMESTAMP_OLDEST);
}

static int read_timestamp(struct ckpt_step *step, struct ckpt_manifest *m, int64_t *ret_ns)
{
	const json_t *value;
	uint32_t index;
	json_t *json;
	int rc;

	*ret_ns = CKPT_TIMESTAMP_NONE;
	if (ckpt_manifest_lookup(m, FILE_NAME, &index))
		return 0;
	rc = read_json(step, m, index, &json);
	*ret_ns = CKPT_TIMESTAMP_OLDEST;
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	value = json_object_get(json, "timestamp");
	if (json_is_object(json) && !value)
		*ret_ns = CKPT_TIMESTAMP_NONE; // that of another framework
	else if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
		*ret_ns = date_of(json_string_value(value));
	json_decref(json);
	return 0;
}

static int look_at(struct ckpt_step *step)
{
	int64_t ns = CKPT_TIMESTAMP_NONE; // where nobody knows which files it has
	struct ckpt_manifest *m;
	uint32_t version;
	bool known;
	int rc;

	ckpt_lock_take(&step->lock);
	version = step->version->is.version;
	known = ckpt_saved_of(step)->saved.version == version;
	ckpt_lock_drop(&step->lock);
	if (known)
		return 0;
	rc = ckpt_step_manifest(step, &m);
	if (!rc) {
		rc = read_timestamp(step, m, &ns);
		ckpt_manifest_unref(m);
	}
	if (rc == -ENOMEM)
		return rc;
	LOCK_SCOPE(&step->lock);

	ckpt_saved_of(step)->saved.version = version;
	ckpt_saved_of(step)->saved.ns = ns;
	return 0;
}

int ckpt_timestamp_look(struct ckpt_store *s, const char *folder_id)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(s, folder_id, 1u << CKPT_STEP_COMMITTED, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++)
		rc = look_at(steps[i]);
	ckpt_step_list_free(steps, count);
	return rc;
}

#include "fs/change_files.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/save/amend.h"

// Strings are borrowed of json. A raw file is at the top of the session's directory.
static int read_change(json_t *json, struct ckpt_amend_change *c)
{
	json_int_t ino, bytes, mtime_s, mtime_ns;

	if (json_unpack(json, "{s:s, s:I, s:I, s:I, s:I}", "path", &c->path, "ino", &ino, "bytes", &bytes, "mtime_s",
			&mtime_s, "mtime_ns", &mtime_ns))
		return -EINVAL;
	c->raw = json_string_value(json_object_get(json, "raw"));
	c->ino = (uint64_t)ino;
	c->bytes = (uint64_t)bytes;
	c->mtime_s = mtime_s;
	c->mtime_ns = (uint32_t)mtime_ns;
	return c->raw && strchr(c->raw, '/') ? -EINVAL : 0;
}

int change_files(struct ckpt_step *step, const char *text)
{
	CLEANUP_FREE struct ckpt_amend_change *changes = NULL;
	json_t *json;
	size_t count;
	int rc = ckpt_json_load(text, strlen(text), 0, NULL, &json);

	if (rc)
		return rc;
	count = json_array_size(json);
	changes = ckpt_calloc(MAX(count, 1u), sizeof(*changes));
	rc = !changes ? -ENOMEM : !count ? -EINVAL : 0;
	for (size_t i = 0; i < count && !rc; i++)
		rc = read_change(json_array_get(json, i), &changes[i]);
	if (!rc)
		rc = ckpt_amend_change_all(step, changes, count);
	json_decref(json);
	return rc;
}

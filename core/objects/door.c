// The door: what is asked of a backend, and what it answers, is held against the contract of objects.h.
#include "core/objects/door.h"

#include "core/base/util.h"

#include <assert.h>

#define GET_ALL_FIRST_BYTES (64u << 10)
#define GET_ALL_TRIES_MAX 16
#define COMPONENTS_MIN 2
#define COMPONENTS_MAX 3

static bool name_valid(const char *name, size_t len)
{
	if (len == 0 || len > CKPT_NAME_MAX)
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

static bool folder_known(const char *name, size_t len)
{
	static const char *const folders[] = {"log", "snap", "m", "packs", "parts", "probe"};

	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (strlen(folders[i]) == len && memcmp(folders[i], name, len) == 0)
			return true;
	return false;
}

static bool printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
			return false;
	return true;
}

// A partial key is the start of a key: its last component is not judged.
static int key_check(const char *key, bool partial)
{
	const char *end;
	int components = 1;

	if (strnlen(key, CKPT_OBJECT_KEY_MAX + 1) > CKPT_OBJECT_KEY_MAX || !printable(key))
		return -EINVAL;
	if (!strcmp(key, CKPT_OBJECT_IDENTITY))
		return 0;
	for (; (end = strchr(key, '/')); key = end + 1, components++) {
		if (!name_valid(key, (size_t)(end - key)))
			return -EINVAL;
		if (components == 1 && !folder_known(key, (size_t)(end - key)))
			return -EINVAL;
	}
	if (components > COMPONENTS_MAX || (!partial && components < COMPONENTS_MIN))
		return -EINVAL;
	return partial || name_valid(key, strlen(key)) ? 0 : -EINVAL;
}

int ckpt_objects_key_check(const char *key)
{
	return key_check(key, false);
}

int ckpt_objects_result_check(int r, int extra)
{
	switch (r) {
	case 0:
	case -ENOENT:
	case -EINVAL:
	case -ENOSPC:
	case -EDQUOT:
	case -EROFS:
	case -EACCES:
	case -ENOMEM:
	case -EAGAIN:
	case -ETIMEDOUT:
	case -ECANCELED:
	case -EIO:
		return r;
	case -EPERM:
		return -EACCES;
	default:
		return r == extra ? r : -EIO;
	}
}

bool ckpt_object_valid(const struct ckpt_object *object)
{
	return object->etag[0] && strnlen(object->etag, CKPT_ETAG_MAX) < CKPT_ETAG_MAX;
}

size_t ckpt_objects_get_expected(const struct ckpt_object *object, uint64_t offset, size_t len)
{
	if (offset >= object->bytes)
		return 0;
	return (size_t)MIN((uint64_t)len, object->bytes - offset);
}

int ckpt_objects_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		     struct ckpt_object *ret_object)
{
	struct ckpt_object object;
	size_t got = 0;
	int r;

	assert(o && key && (buf || len == 0) && ret_len);
	r = ckpt_objects_key_check(key);
	if (r < 0)
		return r;
	r = ckpt_objects_result_check(o->ops->get(o, key, offset, buf, len, &got, ret_object ? &object : NULL), 0);
	if (r < 0)
		return r;
	if (got > len)
		return -EIO;
	if (ret_object) {
		if (!ckpt_object_valid(&object) || got != ckpt_objects_get_expected(&object, offset, len))
			return -EIO;
		*ret_object = object;
	}
	*ret_len = got;
	return 0;
}

// The result of an operation whose answer is an object of a known size.
static int object_take(int r, const struct ckpt_object *object, size_t len, struct ckpt_object *ret_object)
{
	if (r < 0)
		return r;
	if (!ckpt_object_valid(object) || object->bytes != len)
		return -EIO;
	if (ret_object)
		*ret_object = *object;
	return 0;
}

int ckpt_objects_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	struct ckpt_object object = {0};
	int r;

	assert(o && key);
	r = ckpt_objects_key_check(key);
	if (r < 0)
		return r;
	r = ckpt_objects_result_check(o->ops->head(o, key, &object), 0);
	return object_take(r, &object, (size_t)object.bytes, ret_object);
}

int ckpt_objects_put(struct ckpt_objects *o, const char *key, const void *data, size_t len,
		     struct ckpt_object *ret_object)
{
	return ckpt_objects_put_how(o, key, data, len, false, ret_object);
}

int ckpt_objects_confirm(struct ckpt_objects *o, const char *key, uint64_t bytes)
{
	struct ckpt_object object;
	int rc = ckpt_objects_head(o, key, &object);

	if (rc)
		return rc == -ENOENT ? -EAGAIN : rc;
	return object.bytes == bytes ? 0 : -EIO;
}

bool ckpt_objects_yield(struct ckpt_objects *o)
{
	return o->ops->yield && o->ops->yield(o);
}

void ckpt_objects_refill(struct ckpt_objects *o)
{
	if (o->ops->refill)
		o->ops->refill(o);
}

int ckpt_objects_abort_uploads(struct ckpt_objects *o, int64_t before_ns, uint64_t *ret_count)
{
	*ret_count = 0;
	return o->ops->abort_uploads ? ckpt_objects_result_check(o->ops->abort_uploads(o, before_ns, ret_count), 0) : 0;
}

int ckpt_objects_describe(struct ckpt_objects *o, ckpt_objects_finding_fn *fn, void *arg,
			  struct ckpt_rights *ret_rights)
{
	*ret_rights = (struct ckpt_rights){true, true, true, true};
	return o->ops->describe ? ckpt_objects_result_check(o->ops->describe(o, fn, arg, ret_rights), 0) : 0;
}

void ckpt_objects_why(struct ckpt_objects *o, char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	*ret_why = '\0';
	if (o->ops->why)
		o->ops->why(o, ret_why);
}

int ckpt_objects_put_how(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
			 struct ckpt_object *ret_object)
{
	struct ckpt_object object = {0};
	int r;

	assert(o && key && (data || len == 0));
	r = ckpt_objects_key_check(key);
	if (r < 0)
		return r;
	r = ckpt_objects_result_check(o->ops->put(o, key, data, len, frees, &object), -EEXIST);
	return object_take(r, &object, len, ret_object);
}

static int put_all(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
		   struct ckpt_object *ret_object)
{
	CLEANUP_FREE void *data = malloc(MAX((size_t)source->bytes, (size_t)1));
	int r = data ? ckpt_source_read(source, 0, data, (size_t)source->bytes) : -ENOMEM;

	return r ? r : o->ops->put(o, key, data, (size_t)source->bytes, false, ret_object);
}

int ckpt_objects_put_from(struct ckpt_objects *o, const char *key, const struct ckpt_source *source,
			  const struct ckpt_until *until, struct ckpt_object *ret_object)
{
	struct ckpt_object object = {0};
	int r;

	assert(o && key && source);
	r = ckpt_objects_key_check(key);
	if (r < 0)
		return r;
	r = o->ops->put_from ? o->ops->put_from(o, key, source, until, &object) : put_all(o, key, source, &object);
	return object_take(ckpt_objects_result_check(r, -EEXIST), &object, (size_t)source->bytes, ret_object);
}

int ckpt_objects_remove(struct ckpt_objects *o, const char *key)
{
	int r;

	assert(o && key);
	r = ckpt_objects_key_check(key);
	if (r < 0)
		return r;
	return ckpt_objects_result_check(o->ops->remove(o, key), 0);
}

int ckpt_objects_sync(struct ckpt_objects *o, const char *key)
{
	int r;

	assert(o && key);
	r = ckpt_objects_key_check(key);
	if (r < 0 || !o->ops->sync)
		return r;
	r = ckpt_objects_result_check(o->ops->sync(o, key), 0);
	return r == -ENOENT ? 0 : r; // that nothing is there is what lasts
}

// What the list seen so far must agree with.
struct checked_list {
	const char *prefix;
	ckpt_objects_list_fn *fn;
	void *arg;
	char last[CKPT_OBJECT_KEY_MAX + 1]; // at first `after`
	bool ended;                         // by fn or by a key against the contract, with result
	int result;
};

static int list_check(void *arg, const char *key, const struct ckpt_object *object)
{
	struct checked_list *list = arg;

	assert(!list->ended); // fn is never called again after it ended the list
	if (ckpt_objects_key_check(key) < 0 || strncmp(key, list->prefix, strlen(list->prefix)) != 0 ||
	    strcmp(key, list->last) <= 0) {
		list->ended = true;
		list->result = -EIO;
		return -EIO;
	}
	strcpy(list->last, key);
	list->result = list->fn(list->arg, key, object);
	list->ended = list->result != 0;
	return list->result;
}

int ckpt_objects_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		      void *arg)
{
	struct checked_list list = {.prefix = prefix, .fn = fn, .arg = arg};
	int r;

	assert(o && prefix && fn);
	if (!after)
		after = "";
	if (key_check(prefix, true) < 0 || key_check(after, true) < 0)
		return -EINVAL;
	strcpy(list.last, after);
	r = o->ops->list(o, prefix, after, list_check, &list);
	return list.ended ? list.result : ckpt_objects_result_check(r, 0);
}

void ckpt_objects_close(struct ckpt_objects *o)
{
	if (o)
		o->ops->close(o);
}

int ckpt_objects_get_all(struct ckpt_objects *o, const char *key, size_t bytes_max, void **ret_data, size_t *ret_len,
			 struct ckpt_object *ret_object)
{
	size_t cap = MIN(bytes_max, (size_t)GET_ALL_FIRST_BYTES);

	assert(ret_data && ret_len);
	// Each try is one get, so that all bytes are of one version. The first tells the size if it is too small.
	for (int tries = 0; tries < GET_ALL_TRIES_MAX; tries++) {
		CLEANUP_FREE char *buf = malloc(MAX(cap, (size_t)1));
		struct ckpt_object object;
		size_t len;
		int r;

		if (!buf)
			return -ENOMEM;
		r = ckpt_objects_get(o, key, 0, buf, cap, &len, &object);
		if (r < 0)
			return r;
		if (object.bytes > bytes_max)
			return -EFBIG;
		if (object.bytes == len) {
			*ret_data = TAKE_PTR(buf);
			*ret_len = len;
			if (ret_object)
				*ret_object = object;
			return 0;
		}
		cap = (size_t)object.bytes;
	}
	return -EIO;
}

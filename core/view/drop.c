#include "core/view/drop.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"

#define RUN_BYTES ((size_t)4 << 20)
#define ALIGN 8

static int put(int fd, const void *bytes, size_t len, uint64_t offset)
{
	ssize_t n = ckpt_sys.pwrite(fd, bytes, len, (off_t)offset);

	return n < 0 ? (int)n : 0;
}

int ckpt_drop_read_json(const struct ckpt_source *from, uint64_t offset, size_t len, json_t **ret_json)
{
	CLEANUP_FREE char *text = malloc(len + 1);
	int rc = text ? ckpt_source_read(from, offset, text, len) : -ENOMEM;

	if (!rc)
		rc = ckpt_json_load(text, len, 0, NULL, ret_json);
	if (!rc && !json_is_object(*ret_json)) {
		json_decref(*ret_json);
		rc = -EINVAL;
	}
	return rc == -EINVAL ? -EBADMSG : rc;
}

// --- safetensors ------------------------------------------------------------------------------------------------------------

struct tensor {
	json_t *offsets;
	uint64_t begin, end, to;
};

struct tensors {
	struct tensor *at;
	size_t count;
};

static int by_begin(const void *one, const void *other)
{
	const struct tensor *a = one, *b = other;

	return a->begin != b->begin ? (a->begin > b->begin) - (a->begin < b->begin)
				    : (a->end > b->end) - (a->end < b->end);
}

static int take_tensor(struct tensors *t, json_t *value, uint64_t data_bytes)
{
	json_t *offsets = json_object_get(value, "data_offsets");
	json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
		   end = json_integer_value(json_array_get(offsets, 1));

	if (json_array_size(offsets) != 2 || begin < 0 || end < begin || (uint64_t)end > data_bytes)
		return -EBADMSG;
	t->at[t->count++] = (struct tensor){.offsets = offsets, .begin = (uint64_t)begin, .end = (uint64_t)end};
	return 0;
}

// Dropped arrays are gone from the header; the others have their places, in the order of their bytes.
static int place_tensors(const struct ckpt_drop *d, json_t *header, uint64_t data_bytes, struct tensors *ret)
{
	uint64_t to = 0;
	const char *name;
	json_t *value;
	void *next;
	int rc = 0;

	ret->at = ckpt_calloc(json_object_size(header) + 1, sizeof(*ret->at));
	if (!ret->at)
		return -ENOMEM;
	json_object_foreach_safe(header, next, name, value)
	{
		if (!strcmp(name, "__metadata__"))
			continue;
		if (d->drops(d->arg, name))
			json_object_del(header, name);
		else if (!rc)
			rc = take_tensor(ret, value, data_bytes);
	}
	qsort(ret->at, ret->count, sizeof(*ret->at), by_begin);
	for (size_t i = 0; i < ret->count && !rc; i++) {
		struct tensor *t = &ret->at[i];

		t->to = to;
		to += t->end - t->begin;
		if (json_array_set_new(t->offsets, 0, json_integer((json_int_t)t->to)) ||
		    json_array_set_new(t->offsets, 1, json_integer((json_int_t)to)))
			rc = -ENOMEM;
	}
	return rc;
}

static int put_header(json_t *header, int to, uint64_t *ret_bytes)
{
	CLEANUP_FREE char *text = json_dumps(header, JSON_COMPACT);
	size_t len = text ? strlen(text) : 0, padded = (len + ALIGN - 1) / ALIGN * ALIGN;
	uint8_t front[8], blanks[ALIGN];
	int rc;

	if (!text)
		return -ENOMEM;
	memset(blanks, ' ', sizeof(blanks));
	ckpt_put64(front, padded);
	rc = put(to, front, sizeof(front), 0);
	if (!rc)
		rc = put(to, text, len, sizeof(front));
	if (!rc && padded > len)
		rc = put(to, blanks, padded - len, sizeof(front) + len);
	*ret_bytes = sizeof(front) + padded;
	return rc;
}

static int copy_tensor(const struct ckpt_drop *d, const struct ckpt_source *from, const struct tensor *t,
		       uint64_t from_data, int to, uint64_t to_data, void *run)
{
	uint64_t bytes = t->end - t->begin;
	int rc = 0;

	for (uint64_t done = 0; done < bytes && !rc;) {
		size_t len = (size_t)MIN(bytes - done, RUN_BYTES);

		rc = d->stop && *d->stop ? -EINTR : ckpt_source_read(from, from_data + t->begin + done, run, len);
		if (!rc)
			rc = put(to, run, len, to_data + t->to + done);
		done += len;
	}
	return rc;
}

int ckpt_drop_safetensors(const struct ckpt_drop *d, const struct ckpt_source *from, int to)
{
	CLEANUP_FREE uint8_t *run = malloc(RUN_BYTES);
	struct tensors t = {0};
	json_t *header = NULL;
	uint64_t len = 0, data = 0;
	uint8_t front[8];
	int rc = run ? ckpt_source_read(from, 0, front, sizeof(front)) : -ENOMEM;

	if (!rc) {
		len = ckpt_get64(front);
		rc = len > CKPT_SAFETENSORS_HEADER_MAX || len + sizeof(front) > from->bytes
			     ? -EBADMSG
			     : ckpt_drop_read_json(from, sizeof(front), (size_t)len, &header);
	}
	if (!rc)
		rc = place_tensors(d, header, from->bytes - sizeof(front) - len, &t);
	if (!rc)
		rc = put_header(header, to, &data);
	for (size_t i = 0; i < t.count && !rc; i++)
		rc = copy_tensor(d, from, &t.at[i], sizeof(front) + len, to, data, run);
	json_decref(header);
	free(t.at);
	return rc == -EINVAL ? -EBADMSG : rc;
}

// --- An index -----------------------------------------------------------------------------------------------------------

int ckpt_drop_index(const struct ckpt_drop *d, const struct ckpt_source *from, uint64_t dropped_bytes, int to)
{
	CLEANUP_FREE char *text = NULL;
	json_t *index = NULL, *map, *metadata, *total, *value;
	const char *name;
	void *next;
	int rc = from->bytes > CKPT_CATALOG_JSON_MAX ? -EBADMSG
						     : ckpt_drop_read_json(from, 0, (size_t)from->bytes, &index);

	if (rc)
		return rc;
	map = json_object_get(index, "weight_map");
	json_object_foreach_safe(map, next, name, value)
	{
		if (d->drops(d->arg, name))
			json_object_del(map, name);
	}
	metadata = json_object_get(index, "metadata");
	total = json_object_get(metadata, "total_size");
	if (json_is_integer(total) && (uint64_t)json_integer_value(total) >= dropped_bytes)
		json_integer_set(total, json_integer_value(total) - (json_int_t)dropped_bytes);
	text = json_dumps(index, JSON_INDENT(2));
	rc = !text ? -ENOMEM : put(to, text, strlen(text), 0);
	if (!rc)
		rc = put(to, "\n", 1, strlen(text));
	json_decref(index);
	return rc;
}

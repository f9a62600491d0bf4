#include "tests/support/stacks.h"

#include "backends/backends.h"
#include "backends/s3.h"
#include "core/base/uuid.h"

#include <fcntl.h>
#include <stdio.h>

static void make_mem(struct stand *s)
{
	ck_ok(ckpt_mem_new(&s->b));
}

static void make_local(struct stand *s)
{
	CLEANUP_FD int fd = ckpt_temp_fd();

	ck_ok(ckpt_local_open(fd, true, &s->b));
}

static void make_s3(struct stand *s)
{
	const char *endpoint = getenv("CKPT_TEST_S3_ENDPOINT"), *bucket = getenv("CKPT_TEST_S3_BUCKET");
	char uuid[CKPT_UUID_LEN + 1], url[256], option[256], why[CKPT_OBJECTS_WHY_MAX];
	const char *options[] = {option, NULL};
	struct ckpt_objects_at at = {.url = url, .writable = true, .options = options, .why = why};

	ck_ok(ckpt_uuid_make(uuid));
	snprintf(url, sizeof(url), "s3://%s/contract/%s", bucket ? bucket : "ckptfs", uuid);
	snprintf(option, sizeof(option), "endpoint=%s", endpoint);
	ck_assert_msg(!ckpt_s3_open(&at, &s->b), "%s", why);
	s->is_s3 = true;
}

static void add_retry(struct stand *s)
{
	ck_ok(ckpt_retry_new(s->b, &s->b));
}

static void add_fault(struct stand *s)
{
	ck_ok(ckpt_fault_new(s->b, &s->fault, &s->b));
}

static void add_trace(struct stand *s)
{
	s->trace_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	ck_ok(ckpt_trace_new(s->b, s->trace_fd, &s->b));
}

static const struct {
	const char *name;
	void (*make)(struct stand *s);
	void (*layers[2])(struct stand *s);
} stacks[] = {
	{"mem", make_mem, {0}},
	{"local", make_local, {0}},
	{"fault(mem)", make_mem, {add_fault}},
	{"trace(local)", make_local, {add_trace}},
	{"trace(fault(local))", make_local, {add_fault, add_trace}},
	{"retry(fault(mem))", make_mem, {add_fault, add_retry}},
	{"s3", make_s3, {0}}, // from here on those that need a server
	{"retry(s3)", make_s3, {add_retry}},
	{"trace(s3)", make_s3, {add_trace}},
};

int stand_count(void)
{
	int count = 0;

	while (count < (int)ARRAY_LEN(stacks) && stacks[count].make != make_s3)
		count++;
	if (getenv("CKPT_TEST_S3_ENDPOINT"))
		return ARRAY_LEN(stacks);
	printf("without S3: CKPT_TEST_S3_ENDPOINT names no server\n");
	return count;
}

void stand_open(struct stand *s, int stack)
{
	*s = (struct stand){.trace_fd = -1};
	stacks[stack].make(s);
	for (size_t i = 0; i < ARRAY_LEN(stacks[stack].layers) && stacks[stack].layers[i]; i++)
		stacks[stack].layers[i](s);
	ck_assert_str_eq(s->b->ops->name, stacks[stack].name);
}

void stand_close(struct stand *s)
{
	ckpt_objects_close(s->b);
	ckpt_fd_cleanup(&s->trace_fd);
}

int put_text(struct stand *s, const char *key, const char *text)
{
	return ckpt_objects_put(s->b, key, text, strlen(text), NULL);
}

void assert_text(struct stand *s, const char *key, const char *text)
{
	CLEANUP_FREE void *data = NULL;
	size_t len;

	ck_ok(ckpt_objects_get_all(s->b, key, 1 << 20, &data, &len, NULL));
	ck_assert_uint_eq(len, strlen(text));
	ck_assert_mem_eq(data, text, len);
}

void assert_missing(struct stand *s, const char *key)
{
	struct ckpt_object object;
	size_t len;
	char buf[8];

	ck_error(ckpt_objects_head(s->b, key, &object), ENOENT);
	ck_error(ckpt_objects_get(s->b, key, 0, buf, sizeof(buf), &len, NULL), ENOENT);
}

void keys_done(struct keys *k)
{
	for (size_t i = 0; i < k->count; i++)
		free(k->keys[i]);
}

int keys_add(void *arg, const char *key, const struct ckpt_object *object)
{
	struct keys *k = arg;

	ck_assert_uint_lt(k->count, KEYS_MAX);
	ck_assert_uint_eq(object->bytes, 1);
	ck_assert_int_gt(object->mtime_ns, 0);
	k->keys[k->count++] = strdup(key);
	return k->stop_after == k->count ? 77 : 0;
}

void assert_list(struct stand *s, const char *prefix, const char *after, const char *expected)
{
	CLEANUP(keys_done) struct keys k = {0};
	char text[1024] = "";

	ck_ok(ckpt_objects_list(s->b, prefix, after, keys_add, &k));
	for (size_t i = 0; i < k.count; i++) {
		strcat(text, i ? " " : "");
		strcat(text, k.keys[i]);
	}
	ck_assert_str_eq(text, expected);
}

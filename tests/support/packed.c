#include "tests/support/packed.h"

#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define TEXT_MAX 256

struct ckpt_step *ckpt_packed_sealed(struct ckpt_store *s, const char *name, const char *const *texts, size_t count)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	for (size_t i = 0; i < count; i++) {
		char path[24];

		snprintf(path, sizeof(path), "%zu", i);
		close(ckpt_staged_put(step, path, texts[i]));
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	return step;
}

static struct ckpt_tier_done cool(struct ckpt_step *step, uint64_t pack_bytes)
{
	const struct ckpt_tier_how how = {.pack_bytes = pack_bytes};
	struct ckpt_tier_done done;

	ck_ok(ckpt_cool(step, &how, &done));
	ck_assert(step->version->is.packed);
	return done;
}

struct ckpt_tier_done ckpt_packed_cool(struct ckpt_step *step)
{
	return cool(step, 1);
}

struct ckpt_step *ckpt_packed_cooled(struct ckpt_store *s, const char *name, const char *const *texts, size_t count)
{
	struct ckpt_step *step = ckpt_packed_sealed(s, name, texts, count);

	(void)cool(step, 1);
	return step;
}

struct ckpt_step *ckpt_packed_in_one(struct ckpt_store *s, const char *name, const char *const *texts, size_t count)
{
	struct ckpt_step *step = ckpt_packed_sealed(s, name, texts, count);

	(void)cool(step, CKPT_PACK_BYTES_MAX);
	return step;
}

int ckpt_packed_read(struct ckpt_step *step, const char *path, const char *text)
{
	struct ckpt_manifest *m;
	char there[TEXT_MAX];
	uint32_t index;
	ssize_t n = 0;
	int rc = ckpt_step_manifest(step, &m);

	if (rc)
		return rc;
	rc = ckpt_manifest_lookup(m, path, &index);
	if (!rc) {
		n = ckpt_staged_read(step, m, index, there, sizeof(there));
		rc = (int)MIN(n, 0);
	}
	if (!rc && ((size_t)n != strlen(text) || memcmp(there, text, (size_t)n)))
		rc = -EILSEQ;
	ckpt_manifest_unref(m);
	return rc;
}

struct ckpt_file *ckpt_packed_open(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_file *f;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_ok(ckpt_file_open(step, m, index, &f));
	ckpt_manifest_unref(m);
	return f;
}

void ckpt_packed_check(struct ckpt_file *f, const char *text)
{
	char there[TEXT_MAX];

	ck_assert_int_eq(ckpt_file_read(f, there, sizeof(there), 0), (ssize_t)strlen(text));
	ck_assert_mem_eq(there, text, strlen(text));
}

struct ckpt_pack ckpt_packed_place(struct ckpt_step *step, const char *path, struct ckpt_chunk *ret_chunk)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_pack pack;
	struct ckpt_seal seal;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_assert(ckpt_manifest_seal(m, index, &seal) && seal.count == 1);
	ckpt_manifest_chunk(m, seal.first, ret_chunk);
	ck_assert_uint_ne(ret_chunk->pack, 0);
	ckpt_manifest_pack(m, ret_chunk->pack - 1, &pack);
	ckpt_manifest_unref(m);
	return pack;
}

bool ckpt_packed_is_raw(struct ckpt_step *step, const char *path)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	uint32_t index;
	bool is;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	is = ckpt_step_has_raw(step, m, index);
	ckpt_manifest_unref(m);
	return is;
}

bool ckpt_packed_is_there(struct ckpt_store *s, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;

	ckpt_pack_key(pack->id, key);
	return !ckpt_objects_head(s->objects, key, &object);
}

void ckpt_packed_spoil(struct ckpt_store *s, const struct ckpt_pack *pack, uint64_t at)
{
	char key[CKPT_PACK_KEY_MAX];
	uint8_t byte;
	int fd;

	ckpt_pack_key(pack->id, key);
	fd = openat(s->dirfd, key, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

struct sum {
	struct ckpt_store *store;
	size_t count;
	uint64_t bytes;
	int64_t at_ns;
};

static int add(void *arg, const char *key, const struct ckpt_object *object)
{
	struct sum *sum = arg;

	sum->count++;
	sum->bytes += object->bytes;
	if (sum->at_ns) {
		struct timespec at = {sum->at_ns / 1000000000, sum->at_ns % 1000000000};

		ck_assert_int_eq(utimensat(sum->store->dirfd, key, (struct timespec[]){at, at}, AT_SYMLINK_NOFOLLOW),
				 0);
	}
	return 0;
}

static struct sum sum_up(struct ckpt_store *s, int64_t at_ns)
{
	struct sum sum = {.store = s, .at_ns = at_ns};

	ck_ok(ckpt_objects_list(s->objects, "packs/", NULL, add, &sum));
	return sum;
}

size_t ckpt_packed_count(struct ckpt_store *s)
{
	return sum_up(s, 0).count;
}

uint64_t ckpt_packs_bytes(struct ckpt_store *s)
{
	return sum_up(s, 0).bytes;
}

void ckpt_packed_age(struct ckpt_store *s, int64_t seconds)
{
	sum_up(s, ckpt_sys.now_ns() - seconds * 1000000000);
}

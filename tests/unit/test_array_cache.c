// The sets of virtual files of steps: one for each version, made once whoever asks; bounded; and open files that share a budget.
#include "core/view/array_cache.h"
#include "core/view/array_file.h"
#include "tests/support/fixture.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/change.h"
#include "core/step/attributes.h"

#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <zlib.h>

#define MIB (1u << 20)
#define BIG (24u * MIB)
#define READERS 8

static struct ckpt_array_cache *cache;
static struct ckpt_array_pool *pool;

static void setup(void)
{
	ckpt_fixture_open();
	cache = ckpt_array_cache_new(CKPT_ARRAY_CACHE_BYTES);
	pool = ckpt_array_pool_new(CKPT_ARRAY_POOL_BYTES);
	ck_assert(cache && pool);
}

static void teardown(void)
{
	ckpt_array_pool_free(pool);
	ckpt_array_cache_free(cache);
	ckpt_fixture_close();
}

// 4096 bytes as one array.
static void put_npy(struct ckpt_step *step, const char *path)
{
	static const char dict[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (4096,), }";
	char head[128], all[4096] = {0};
	int fd = ckpt_staged_put(step, path, "");

	memset(head, ' ', sizeof(head));
	memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
	memcpy(head + 10, dict, strlen(dict));
	head[127] = '\n';
	ck_assert_int_eq(pwrite(fd, head, sizeof(head), 0), sizeof(head));
	ck_assert_int_eq(pwrite(fd, all, sizeof(all), sizeof(head)), sizeof(all));
	close(fd);
}

static struct ckpt_step *saved(const char *name)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	put_npy(step, "a.npy");
	put_npy(step, "b.npy");
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	return step;
}

static struct ckpt_array_dir *set_of(struct ckpt_step *step)
{
	struct ckpt_array_dir *set;

	ck_ok(ckpt_array_cache_get(cache, step, false, &set));
	return set;
}

static uint32_t place(struct ckpt_array_dir *set, const char *path)
{
	uint32_t at;

	ck_ok(ckpt_array_tree_find(ckpt_array_dir_tree(set), path, &at));
	return at;
}

// --- Sets ---------------------------------------------------------------------------------------------------------------

static void *ask(void *arg)
{
	return set_of(arg);
}

START_TEST(who_asks_at_once_has_the_same_set)
{
	struct ckpt_step *step = saved("1000");
	pthread_t threads[READERS];
	struct ckpt_array_dir *sets[READERS];

	for (int i = 0; i < READERS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, ask, step));
	for (int i = 0; i < READERS; i++)
		pthread_join(threads[i], (void **)&sets[i]);
	for (int i = 0; i < READERS; i++) {
		ck_assert_ptr_eq(sets[i], sets[0]);
		ckpt_array_dir_unref(sets[i]);
	}
	ckpt_step_unref(step);
}
END_TEST

START_TEST(nothing_is_read_for_who_cannot_wait)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_array_dir *set, *first;

	ck_assert_int_eq(ckpt_array_cache_get(cache, step, true, &set), -EAGAIN);
	first = set_of(step);
	ck_ok(ckpt_array_cache_get(cache, step, true, &set));
	ck_assert_ptr_eq(set, first);
	ckpt_array_dir_unref(set);
	ckpt_array_dir_unref(first);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(what_is_too_much_is_let_go_and_whoever_has_it_keeps_it)
{
	struct ckpt_step *first = saved("1000"), *second = saved("2000");
	struct ckpt_array_dir *one, *again, *other;
	struct ckpt_entry e;

	ckpt_array_cache_free(cache);
	cache = ckpt_array_cache_new(1);
	one = set_of(first);
	again = set_of(first);
	ck_assert_ptr_eq(one, again); // the last one stays, whatever it costs
	ckpt_array_dir_unref(again);
	other = set_of(second);
	again = set_of(first);
	ck_assert_ptr_ne(one, again);
	ck_ok(ckpt_array_dir_entry(one, place(one, "a.npy"), &e));
	ck_assert_uint_eq(e.bytes, 4096 + 128);
	ckpt_array_dir_unref(one);
	ckpt_array_dir_unref(again);
	ckpt_array_dir_unref(other);
	ckpt_step_unref(first);
	ckpt_step_unref(second);
}
END_TEST

static struct ckpt_array_dir *view_of(struct ckpt_step *step, const char *name)
{
	struct ckpt_array_dir *set;
	struct ckpt_view_why why;

	ck_ok(ckpt_array_cache_view(cache, step, name, false, &set, &why));
	return set;
}

START_TEST(a_view_is_made_once_of_the_set_of_its_step)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_array_dir *base = set_of(step), *view, *again, *other;
	struct ckpt_view_why why;
	struct ckpt_entry e;

	ck_assert_int_eq(ckpt_array_cache_view(cache, step, "only=a", true, &view, &why), -EAGAIN);
	view = view_of(step, "only=a");
	ck_ok(ckpt_array_cache_view(cache, step, "only=a", true, &again, &why));
	other = view_of(step, "only=b");
	ck_assert_ptr_eq(view, again);
	ck_assert_ptr_ne(view, other);
	ck_assert_ptr_eq(ckpt_array_dir_base(view), base);
	ck_assert_ptr_null(ckpt_array_dir_base(base));
	ck_ok(ckpt_array_dir_entry(view, place(view, "a.npy"), &e));
	ck_assert_uint_eq(e.bytes, 4096 + 128);
	ck_assert_int_eq(ckpt_array_tree_find(ckpt_array_dir_tree(view), "b.npy", &(uint32_t){0}), -ENOENT);
	ck_assert_uint_eq(ckpt_array_cache_views(cache), 2);
	ckpt_array_dir_unref(base);
	ckpt_array_dir_unref(view);
	ckpt_array_dir_unref(again);
	ckpt_array_dir_unref(other);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(names_of_views_without_end_need_no_memory)
{
	struct ckpt_step *step = saved("1000"), *second = saved("2000");
	struct ckpt_view_why why;
	struct ckpt_array_dir *set, *base;
	size_t one, all;
	char name[64];

	base = set_of(step);
	one = ckpt_array_cache_held(cache);
	for (int i = 1; i < 1000; i++) {
		snprintf(name, sizeof(name), "shard=1of%d", i);
		ckpt_array_dir_unref(view_of(step, name));
		snprintf(name, sizeof(name), "only=absent%d", i);
		ck_assert_int_eq(ckpt_array_cache_view(cache, step, name, false, &set, &why), -ENOENT);
		ck_assert(*why.why && *why.hint);
		ck_assert_uint_le(ckpt_array_cache_views(cache), CKPT_ARRAY_CACHE_VIEWS);
	}
	all = ckpt_array_cache_held(cache);
	ck_assert_uint_eq(ckpt_array_cache_views(cache), CKPT_ARRAY_CACHE_VIEWS);
	ck_assert_uint_lt(all - one, CKPT_ARRAY_CACHE_VIEWS * 4096);
	set = set_of(step);
	ck_assert_ptr_eq(set, base); // views went, and not what they are made of
	ckpt_array_dir_unref(set);
	ckpt_array_dir_unref(base);
	ckpt_array_dir_unref(set_of(second));
	ckpt_step_unref(step);
	ckpt_step_unref(second);
}
END_TEST

START_TEST(a_view_goes_with_the_set_that_it_is_made_of)
{
	struct ckpt_step *first = saved("1000"), *second = saved("2000");
	struct ckpt_array_dir *view, *again;
	struct ckpt_entry e;
	size_t room;

	ckpt_array_dir_unref(view_of(first, "only=a"));
	room = ckpt_array_cache_held(cache);
	ckpt_array_cache_free(cache);
	cache = ckpt_array_cache_new(room + 64); // for a set and a view, of whichever step
	view = view_of(first, "only=a");
	again = view_of(first, "only=a");
	ck_assert_ptr_eq(view, again);
	ckpt_array_dir_unref(again);
	ckpt_array_dir_unref(set_of(second));
	ck_assert_uint_eq(ckpt_array_cache_views(cache), 0);
	ck_ok(ckpt_array_dir_entry(view, place(view, "model.safetensors"), &e));
	ck_assert_uint_gt(e.bytes, 4096);
	ckpt_array_cache_free(cache);
	cache = ckpt_array_cache_new(1);
	again = view_of(first, "only=a");
	ck_assert_uint_eq(ckpt_array_cache_views(cache), 1); // the last one stays, with its base
	ckpt_array_dir_unref(again);
	ckpt_array_dir_unref(view);
	ckpt_step_unref(first);
	ckpt_step_unref(second);
}
END_TEST

START_TEST(an_error_is_told_and_forgotten)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_array_dir *set;
	char path[64];

	snprintf(path, sizeof(path), "%s/a.npy", step->session);
	ck_assert(!renameat(s->sessions_fd, path, s->sessions_fd, "away"));
	ck_assert_int_lt(ckpt_array_cache_get(cache, step, false, &set), 0);
	ck_assert_int_eq(ckpt_array_cache_get(cache, step, true, &set), -EAGAIN);
	ck_assert(!renameat(s->sessions_fd, "away", s->sessions_fd, path));
	ckpt_array_dir_unref(set_of(step));
	ckpt_step_unref(step);
}
END_TEST

START_TEST(a_version_has_a_set_of_its_own)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_array_dir *before = set_of(step), *now;

	ck_ok(ckpt_save_metadata(step, CKPT_SAVE_LARGE));
	now = set_of(step);
	ck_assert_ptr_ne(before, now);
	ck_assert_uint_eq(ckpt_array_dir_version(now)->is.version, ckpt_array_dir_version(before)->is.version + 1);
	ckpt_array_dir_unref(before);
	ckpt_array_dir_unref(now);
	ckpt_step_unref(step);
}
END_TEST

// Another node has pushed its version of a number that is not pushed from here.
static void give_number(struct ckpt_step *step, uint32_t number)
{
	struct ckpt_summary is;

	LOCK_SCOPE(&step->lock);
	is = step->version->is;
	is.version = number;
	ckpt_step_set_version_locked(step, &is);
}

START_TEST(a_number_that_comes_again_has_a_set_of_its_own)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_array_dir *before = set_of(step), *now, *again;
	uint32_t number = ckpt_array_dir_version(before)->is.version, at;

	ck_ok(ckpt_amend_remove(step, "b.npy"));
	give_number(step, number);
	ck_assert_int_eq(ckpt_array_cache_get(cache, step, true, &now), -EAGAIN);
	now = set_of(step);
	ck_assert_ptr_ne(before, now);
	ck_assert_uint_eq(ckpt_array_dir_version(now)->is.version, number);
	ck_assert_int_eq(ckpt_array_tree_find(ckpt_array_dir_tree(now), "b.npy", &at), -ENOENT);
	again = set_of(step);
	ck_assert_ptr_eq(again, now);
	ckpt_array_dir_unref(before);
	ckpt_array_dir_unref(now);
	ckpt_array_dir_unref(again);
	ckpt_step_unref(step);
}
END_TEST

// --- Rights -------------------------------------------------------------------------------------------------------------

static uint32_t mode_of(struct ckpt_array_dir *set, const char *path)
{
	struct ckpt_entry e;

	ck_ok(ckpt_array_dir_entry(set, place(set, path), &e));
	return e.mode;
}

static void change(struct ckpt_step *step, const char *path, const struct ckpt_attributes_new *what)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(step);
	struct ckpt_entry e;
	uint32_t index;
	bool starts;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	ck_ok(ckpt_attributes_set(step, m, &e, what, &starts));
	if (starts)
		ckpt_attributes_unwatch(step); // no thread publishes them here, and frees them then
	ckpt_manifest_unref(m);
}

START_TEST(an_array_has_the_rights_of_its_file_as_they_are_now)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_array_dir *set = set_of(step);

	change(step, "a.npy", &(struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MODE, .mode = 0644});
	change(step, "b.npy", &(struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MODE, .mode = 0740});
	ck_assert_uint_eq(mode_of(set, "a.npy"), 0444);
	ck_assert_uint_eq(mode_of(set, "b.npy"), 0440);
	ck_assert_uint_eq(mode_of(set, "index.json"), 0440);
	change(step, "a.npy", &(struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MODE, .mode = 0600});
	ck_assert_uint_eq(mode_of(set, "a.npy"), 0400);
	ck_assert_uint_eq(mode_of(set, "index.json"), 0400);
	// Of another owner: what all three may.
	change(step, "b.npy", &(struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_UID, .uid = 4711});
	ck_assert_uint_eq(mode_of(set, "b.npy"), 0);
	change(step, "b.npy", &(struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MODE, .mode = 0444});
	ck_assert_uint_eq(mode_of(set, "b.npy"), 0444);
	ckpt_attributes_forget(step);
	ckpt_array_dir_unref(set);
	ckpt_step_unref(step);
}
END_TEST

static void set_mode(struct ckpt_step *step, const char *path, uint32_t mode)
{
	change(step, path, &(struct ckpt_attributes_new){.which = CKPT_ATTRIBUTE_MODE, .mode = mode});
}

START_TEST(an_array_without_pieces_has_the_rights_of_its_tree)
{
	static const char header[] = "{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}  ";
	struct ckpt_step *step = ckpt_staged_begin(s, "1000");
	struct ckpt_array_dir *set;
	uint64_t len = htole64(sizeof(header) - 1);
	int fd;

	put_npy(step, "a.npy");
	fd = ckpt_staged_put(step, "e.safetensors", "");
	ck_assert_int_eq(pwrite(fd, &len, 8, 0), 8);
	ck_assert_int_eq(pwrite(fd, header, sizeof(header) - 1, 8), sizeof(header) - 1);
	close(fd);
	ck_assert(!mkdirat(step->dirfd, "z", 0755));
	close(ckpt_staged_put(
		step, "z/.zarray",
		"{\"zarr_format\": 2, \"shape\": [5], \"chunks\": [5], \"dtype\": \"|u1\", \"compressor\": null, "
		"\"fill_value\": 3, \"order\": \"C\", \"filters\": null}"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	set = set_of(step);
	set_mode(step, "a.npy", 0644);
	set_mode(step, "e.safetensors", 0644);
	set_mode(step, "z/.zarray", 0640);
	ck_assert_uint_eq(mode_of(set, "e.safetensors/e.npy"), 0444);
	ck_assert_uint_eq(mode_of(set, "z.npy"), 0440);
	ck_assert_uint_eq(mode_of(set, "index.json"), 0440);
	set_mode(step, "e.safetensors", 0600);
	ck_assert_uint_eq(mode_of(set, "e.safetensors/e.npy"), 0400);
	ck_assert_uint_eq(mode_of(set, "a.npy"), 0444);
	ckpt_attributes_forget(step);
	ckpt_array_dir_unref(set);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(an_entry_is_known_once_it_was_asked_for)
{
	struct ckpt_step *step = saved("1000");
	struct ckpt_array_dir *set = set_of(step);
	uint32_t index = place(set, "index.json"), a = place(set, "a.npy"), b = place(set, "b.npy");
	struct ckpt_entry e;

	ck_assert(!ckpt_array_dir_knows(set, a));
	ck_ok(ckpt_array_dir_entry(set, a, &e));
	ck_assert(ckpt_array_dir_knows(set, a));
	ck_assert(!ckpt_array_dir_knows(set, b));
	ck_assert(!ckpt_array_dir_knows(set, CKPT_ARRAY_TREE_TOP));
	ck_ok(ckpt_array_dir_entry(set, CKPT_ARRAY_TREE_TOP, &e));
	ck_assert(ckpt_array_dir_knows(set, CKPT_ARRAY_TREE_TOP));
	ck_assert(ckpt_array_dir_knows(set, b));
	ck_assert(!ckpt_array_dir_knows(set, index)); // its size
	ck_ok(ckpt_array_dir_entry(set, index, &e));
	ck_assert(ckpt_array_dir_knows(set, index));
	set_mode(step, "a.npy", 0600);
	ck_assert(!ckpt_array_dir_knows(set, a));
	ckpt_attributes_forget(step);
	ckpt_array_dir_unref(set);
	ckpt_step_unref(step);
}
END_TEST

// --- Files --------------------------------------------------------------------------------------------------------------

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)((i * 2654435761u) >> 24);
}

// A chunk of zarr, which is one stream of gzip, for each name.
static struct ckpt_step *with_chunks(unsigned count)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "1000");
	uint8_t *plain = malloc(BIG), *packed = malloc(BIG + BIG / 8);
	z_stream z = {0};

	for (size_t i = 0; i < BIG; i++)
		plain[i] = byte_at(i);
	ck_assert_int_eq(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = plain;
	z.avail_in = BIG;
	z.next_out = packed;
	z.avail_out = BIG + BIG / 8;
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	for (unsigned i = 0; i < count; i++) {
		char path[32], text[256];
		int fd;

		snprintf(path, sizeof(path), "z%u", i);
		ck_assert(!mkdirat(step->dirfd, path, 0755));
		snprintf(path, sizeof(path), "z%u/.zarray", i);
		snprintf(text, sizeof(text),
			 "{\"zarr_format\": 2, \"shape\": [%u], \"chunks\": [%u], \"dtype\": \"|u1\", \"compressor\": "
			 "{\"id\": \"gzip\", \"level\": 1}, \"fill_value\": 0, \"order\": \"C\", \"filters\": null}",
			 BIG, BIG);
		close(ckpt_staged_put(step, path, text));
		snprintf(path, sizeof(path), "z%u/0", i);
		fd = ckpt_staged_put(step, path, "");
		ck_assert_int_eq(pwrite(fd, packed, z.total_out, 0), (ssize_t)z.total_out);
		close(fd);
	}
	deflateEnd(&z);
	free(plain);
	free(packed);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	return step;
}

static struct ckpt_array_file *opened(struct ckpt_array_dir *set, const char *path)
{
	struct ckpt_array_file *f;

	ck_ok(ckpt_array_file_open(pool, set, place(set, path), &f));
	return f;
}

static void check_part(struct ckpt_array_file *f, uint64_t offset, size_t len)
{
	CLEANUP_FREE uint8_t *buf = malloc(len);
	uint64_t head = ckpt_array_file_bytes(f) - BIG;

	ck_assert_int_eq(ckpt_array_file_read(f, buf, len, offset), (ssize_t)len);
	for (size_t i = 0; i < len; i += 997)
		if (offset + i >= head)
			ck_assert_uint_eq(buf[i], byte_at(offset + i - head));
}

static uint64_t bytes_read_by_us(void)
{
	unsigned long long n = 0;
	char line[128];
	FILE *f = fopen("/proc/self/io", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "rchar: %llu", &n) == 1)
			break;
	fclose(f);
	return n;
}

// As threads of a kernel that reads ahead: neighbours change places, and some come three parts too early.
START_TEST(reads_that_come_out_of_order_decode_once)
{
	struct ckpt_step *step = with_chunks(1);
	struct ckpt_array_dir *set = set_of(step);
	struct ckpt_array_file *f = opened(set, "z0.npy");
	static const unsigned order[] = {2, 0, 1, 3};
	uint64_t before, once, twice;

	before = bytes_read_by_us();
	for (unsigned i = 0; i < BIG / MIB; i++)
		check_part(f, (uint64_t)i * MIB, MIB);
	once = bytes_read_by_us() - before;
	ckpt_array_file_close(f);
	f = opened(set, "z0.npy");
	before = bytes_read_by_us();
	for (unsigned i = 0; i < BIG / MIB; i++)
		check_part(f, (uint64_t)(i / 4 * 4 + order[i % 4]) * MIB, MIB);
	twice = bytes_read_by_us() - before;
	ck_assert_msg(twice < once + once / 8, "%llu, and %llu in order", (unsigned long long)twice,
		      (unsigned long long)once);
	ckpt_array_file_close(f);
	ckpt_array_dir_unref(set);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(files_that_rest_let_go_of_their_memory_and_go_on)
{
	struct ckpt_step *step = with_chunks(READERS);
	struct ckpt_array_dir *set = set_of(step);
	struct ckpt_array_file *files[READERS];
	size_t one;

	ckpt_array_pool_free(pool);
	pool = ckpt_array_pool_new(10 * MIB);
	for (int i = 0; i < READERS; i++) {
		char path[32];

		snprintf(path, sizeof(path), "z%d.npy", i);
		files[i] = opened(set, path);
	}
	check_part(files[0], 0, MIB);
	one = ckpt_array_pool_held(pool);
	ck_assert_uint_gt(one, 0);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < READERS; i++) {
			check_part(files[i], (uint64_t)round * 3 * MIB, MIB);
			ck_assert_uint_le(ckpt_array_pool_held(pool), 10 * MIB + one);
		}
	for (int i = 0; i < READERS; i++)
		ckpt_array_file_close(files[i]);
	ck_assert_uint_eq(ckpt_array_pool_held(pool), 0);
	ckpt_array_dir_unref(set);
	ckpt_step_unref(step);
}
END_TEST

static void *read_all(void *arg)
{
	struct ckpt_array_file *f = arg;

	for (unsigned i = 0; i < 6; i++)
		check_part(f, (uint64_t)i * MIB, MIB);
	return NULL;
}

START_TEST(many_readers_wait_for_each_other_and_all_end)
{
	struct ckpt_step *step = with_chunks(READERS / 2);
	struct ckpt_array_dir *set = set_of(step);
	struct ckpt_array_file *files[READERS];
	pthread_t threads[2 * READERS];

	ckpt_array_pool_free(pool);
	pool = ckpt_array_pool_new(1); // one at a time
	for (int i = 0; i < READERS; i++) {
		char path[32];

		snprintf(path, sizeof(path), "z%d.npy", i % (READERS / 2));
		files[i] = opened(set, path);
	}
	for (int i = 0; i < 2 * READERS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, read_all, files[i % READERS]));
	for (int i = 0; i < 2 * READERS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < READERS; i++)
		ckpt_array_file_close(files[i]);
	ck_assert_uint_eq(ckpt_array_pool_held(pool), 0);
	ckpt_array_dir_unref(set);
	ckpt_step_unref(step);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("array_cache");
	TCase *t = tcase_create("array_cache");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, who_asks_at_once_has_the_same_set);
	tcase_add_test(t, nothing_is_read_for_who_cannot_wait);
	tcase_add_test(t, what_is_too_much_is_let_go_and_whoever_has_it_keeps_it);
	tcase_add_test(t, a_view_is_made_once_of_the_set_of_its_step);
	tcase_add_test(t, names_of_views_without_end_need_no_memory);
	tcase_add_test(t, a_view_goes_with_the_set_that_it_is_made_of);
	tcase_add_test(t, an_error_is_told_and_forgotten);
	tcase_add_test(t, a_version_has_a_set_of_its_own);
	tcase_add_test(t, a_number_that_comes_again_has_a_set_of_its_own);
	tcase_add_test(t, an_array_has_the_rights_of_its_file_as_they_are_now);
	tcase_add_test(t, an_array_without_pieces_has_the_rights_of_its_tree);
	tcase_add_test(t, an_entry_is_known_once_it_was_asked_for);
	tcase_add_test(t, reads_that_come_out_of_order_decode_once);
	tcase_add_test(t, files_that_rest_let_go_of_their_memory_and_go_on);
	tcase_add_test(t, many_readers_wait_for_each_other_and_all_end);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}

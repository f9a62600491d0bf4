// Chunks that are in packs already: found, read back before they are used, and known anew when the index has lost them or says
// what is not so.
#include "core/index/indexer.h"
#include "core/store/open.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"
#include "tests/support/packed.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/dedupe.h"
#include "core/cold/pack.h"
#include "core/gc/gc.h"
#include "core/save/delete.h"
#include "core/store/load.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static void setup(void)
{
	ckpt_fixture_open();
}

// --- What the index says ------------------------------------------------------------------------------------------------

struct listed {
	struct ckpt_pack packs[64];
	size_t count;
	bool partly;
};

static int add_listed(void *arg, const char *key, const struct ckpt_object *object)
{
	struct listed *l = arg;
	struct ckpt_pack pack = {.bytes = object->bytes};

	ck_assert(ckpt_pack_of_key(key, pack.id));
	ck_assert_uint_lt(l->count, ARRAY_LEN(l->packs));
	l->packs[l->count++] = pack;
	return 0;
}

static int add_indexed(void *arg, const struct ckpt_pack *pack, bool whole)
{
	struct listed *l = arg;

	ck_assert_uint_lt(l->count, ARRAY_LEN(l->packs));
	l->packs[l->count++] = *pack;
	l->partly |= !whole;
	return 0;
}

static int is_listed(void *arg, const struct ckpt_chunk *chunk, const struct ckpt_pack *pack)
{
	const struct listed *l = arg;

	ck_assert(chunk->bytes && !chunk->pack);
	for (size_t i = 0; i < l->count; i++)
		if (!memcmp(l->packs[i].id, pack->id, sizeof(pack->id)) && l->packs[i].bytes == pack->bytes)
			return 0;
	ck_abort_msg("a chunk is in a pack that is not there");
	return 0;
}

// It has all packs that there are, and no others.
static void check_index(void)
{
	struct listed stored = {0}, indexed = {0};

	ck_ok(ckpt_objects_list(s->objects, "packs/", NULL, add_listed, &stored));
	ck_ok(ckpt_index_each_pack(s->index, add_indexed, &indexed));
	ck_assert(!indexed.partly);
	ck_assert_uint_eq(indexed.count, stored.count);
	for (size_t i = 0; i < stored.count; i++) {
		ck_assert_mem_eq(indexed.packs[i].id, stored.packs[i].id, CKPT_SHA256_LEN);
		ck_assert_uint_eq(indexed.packs[i].bytes, stored.packs[i].bytes);
	}
	ck_ok(ckpt_index_each_chunk(s->index, is_listed, &stored));
}

static void id_of(const char *text, uint8_t ret_id[CKPT_SHA256_LEN])
{
	ckpt_sha256(text, strlen(text), ret_id);
}

static void where(const char *text, struct ckpt_chunk *ret_chunk, struct ckpt_pack *ret_pack)
{
	uint8_t id[CKPT_SHA256_LEN];

	id_of(text, id);
	ck_ok(ckpt_index_chunk(s->index, id, ret_chunk, ret_pack));
	ck_assert_uint_eq(ret_chunk->bytes, strlen(text));
}

static struct ckpt_step *sealed(const char *name, const char *text)
{
	return ckpt_packed_sealed(s, name, &text, 1);
}

static struct ckpt_step *again(const char *name)
{
	struct ckpt_step *found = ckpt_step_find(s, "", name);

	ck_assert_ptr_nonnull(found);
	return found;
}

// Cooled beside a step that has the same text: right, and so many bytes of it shared.
static void cool_beside(const char *text, bool shared)
{
	struct ckpt_step *one = sealed("beside", text);
	size_t before = ckpt_packed_count(s);
	struct ckpt_tier_done done = ckpt_packed_cool(one);

	ck_assert_uint_eq(done.deduplicated_bytes, shared ? strlen(text) : 0);
	ck_assert_uint_eq(ckpt_packed_count(s), before + !shared);
	ck_assert(shared == !done.stored_bytes);
	ck_ok(ckpt_packed_read(one, "0", text));
	ckpt_step_unref(one);
}

// --- Finding ------------------------------------------------------------------------------------------------------------

START_TEST(what_another_step_has_is_not_stored_again)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "shared", "only a"), *b;
	const char *const texts[] = {"shared", "only b", "only b"};
	struct ckpt_tier_done done;

	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	b = ckpt_packed_sealed(s, "b", texts, ARRAY_LEN(texts));
	done = ckpt_packed_cool(b);
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ck_assert_uint_eq(done.deduplicated_bytes, strlen("shared") + strlen("only b"));
	ck_assert(done.files == 3 && done.bytes == strlen("shared") + 2 * strlen("only b"));
	check_index();
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_fixture_reopen();
	b = again("b");
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
		ck_ok(ckpt_packed_read(b, (const char[]){(char)('0' + i), '\0'}, texts[i]));
	ckpt_step_unref(b);
}
END_TEST

static bool once(void *arg, uint64_t bytes __attribute__((unused)))
{
	int *left = arg;

	return --*left > 0;
}

START_TEST(a_cooling_that_ended_goes_on_where_it_was)
{
	const char *const texts[] = {"first", "second", "third"};
	struct ckpt_step *one = ckpt_packed_sealed(s, "a", texts, ARRAY_LEN(texts));
	int left = 2;
	const struct ckpt_tier_how how = {.pack_bytes = 1, .go_on = once, .arg = &left};
	struct ckpt_tier_done done;

	ck_error(ckpt_cool(one, &how, &done), EINTR);
	ck_assert(!one->version->is.packed);
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	ckpt_step_unref(one);
	ckpt_fixture_reopen();
	one = again("a");
	done = ckpt_packed_cool(one);
	ck_assert_uint_eq(ckpt_packed_count(s), 3);
	ck_assert_uint_eq(done.deduplicated_bytes, strlen("first") + strlen("second"));
	for (unsigned i = 0; i < ARRAY_LEN(texts); i++)
		ck_ok(ckpt_packed_read(one, (const char[]){(char)('0' + i), '\0'}, texts[i]));
	check_index();
	ckpt_step_unref(one);
}
END_TEST

START_TEST(what_is_collected_is_not_found)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text", "more"), *b = ckpt_packed_step(s, "b", "more");
	struct ckpt_gc_done done;
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
	uint8_t id[CKPT_SHA256_LEN];

	ck_ok(ckpt_delete(a));
	ck_ok(ckpt_expire(a));
	ck_ok(ckpt_gc(s, &all, &done));
	ck_assert_uint_eq(done.deleted_objects, 1);
	check_index();
	id_of("text", id);
	ck_error(ckpt_index_chunk(s->index, id, &chunk, &pack), ENOENT);
	where("more", &chunk, &pack);
	cool_beside("text", false);
	check_index();
	ckpt_step_unref(a);
	ckpt_step_unref(b);
}
END_TEST

static void make_index_readonly(void)
{
	char path[PATH_MAX];
	bool fresh;

	snprintf(path, sizeof(path), "%.4000s/index", dir);
	ckpt_indexer_close(TAKE_PTR(*ckpt_indexer_of(s)));
	ckpt_index_close(TAKE_PTR(s->index));
	ck_ok(ckpt_index_open(path, s->id, true, &s->index, &fresh));
}

// As on a disk that is full: that is when garbage must go.
START_TEST(what_the_index_cannot_forget_goes_too_and_is_forgotten_later)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text"), *b = ckpt_packed_step(s, "b", "more");
	struct ckpt_gc_done done;
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	ck_ok(ckpt_delete(a));
	ck_ok(ckpt_expire(a));
	make_index_readonly();
	ck_ok(ckpt_gc(s, &all, &done));
	ck_assert_uint_eq(done.deleted_objects, 1);
	where("text", &chunk, &pack);
	cool_beside("text", false);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ckpt_fixture_reopen();
	b = again("beside");
	ck_ok(ckpt_delete(b));
	ckpt_step_unref(b);
	cool_beside("more", true);
	check_index();
}
END_TEST

START_TEST(without_an_index_all_is_stored)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text");

	ckpt_step_unref(a);
	ckpt_indexer_close(TAKE_PTR(*ckpt_indexer_of(s)));
	ckpt_index_close(TAKE_PTR(s->index));
	cool_beside("text", false);
	ckpt_dedupe_forget(s, NULL, 0);
}
END_TEST

// --- A hit is a hint ----------------------------------------------------------------------------------------------------

START_TEST(what_is_found_is_read_back)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text");
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	where("text", &chunk, &pack);
	ckpt_packed_spoil(s, &pack, chunk.offset);
	cool_beside("text", false);
	ckpt_step_unref(a);
	a = again("beside"); // what it has stored is the one that is found from now on
	where("text", &chunk, &pack);
	ck_ok(ckpt_delete(a));
	ckpt_step_unref(a);
	cool_beside("text", true);
}
END_TEST

static void other_offset(struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	(void)pack;
	chunk->offset -= 3;
}

static void shorter(struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	(void)pack;
	chunk->bytes = chunk->how.bytes = 2;
}

static void other_codec(struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	(void)pack;
	chunk->how = (struct ckpt_encoded){CKPT_CODEC_ZSTD, 0, 3};
}

static void longer_pack(struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	(void)chunk;
	pack->bytes += 100;
}

static void other_pack(struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	(void)chunk;
	pack->id[0] ^= 1;
}

static void (*const lies[])(struct ckpt_chunk *chunk, struct ckpt_pack *pack) = {other_offset, shorter, other_codec,
										 longer_pack, other_pack};

START_TEST(what_is_not_there_is_not_used)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text");
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	where("text", &chunk, &pack);
	ck_assert_int_eq(chunk.how.codec, CKPT_CODEC_NONE);
	lies[_i](&chunk, &pack);
	ck_ok(ckpt_index_put_pack(s->index, &pack, &chunk, 1));
	cool_beside("text", false);
	ck_ok(ckpt_packed_read(a, "0", "text"));
	ckpt_step_unref(a);
}
END_TEST

static int refuse_to_say(int fd)
{
	(void)fd;
	return -EIO;
}

// Of an act that failed a pack may be there that a power cut takes back: before the index learns of it, it is durable.
START_TEST(what_may_not_be_durable_is_not_used)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text");
	int (*const fsync)(int fd) = ckpt_hooks.fsync;
	struct ckpt_index_stat stat;

	ck_ok(ckpt_index_reset(s->index));
	ckpt_hook_set(fsync, refuse_to_say);
	ckpt_dedupe_look(s);
	ckpt_hook_set(fsync, fsync);
	ck_ok(ckpt_index_stat(s->index, &stat));
	ck_assert(!stat.chunks && !stat.packs);
	cool_beside("text", true); // it asks again
	ckpt_step_unref(a);
}
END_TEST

// --- A lost or damaged index --------------------------------------------------------------------------------------------

static void close_store(void)
{
	ckpt_store_close(TAKE_PTR(s));
}

START_TEST(an_index_that_was_lost_knows_all_again)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text", "more");
	char path[PATH_MAX];

	ckpt_step_unref(a);
	close_store();
	snprintf(path, sizeof(path), "%.4000s/index", dir);
	ckpt_temp_empty(path, true);
	s = ckpt_save_open(dir);
	cool_beside("text", true);
	check_index();
}
END_TEST

START_TEST(an_index_that_is_emptied_meanwhile_knows_all_again)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text", "more");

	ck_ok(ckpt_index_reset(s->index));
	cool_beside("text", true);
	check_index();
	ckpt_step_unref(a);
}
END_TEST

START_TEST(an_index_that_is_made_anew_knows_all_again)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text", "more");
	struct ckpt_index_stat stat;

	ck_ok(ckpt_delete(a));
	ck_ok(ckpt_dedupe_rebuild(s, NULL, NULL));
	ck_ok(ckpt_index_stat(s->index, &stat));
	ck_assert(stat.chunks == 2 && stat.packs == 2);
	check_index();
	ckpt_step_unref(a);
	ckpt_fixture_reopen();
	check_index();
	cool_beside("text", true);
}
END_TEST

START_TEST(packs_that_are_gone_or_new_are_seen_at_the_next_start)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text"), *b = ckpt_packed_step(s, "b", "more");
	struct ckpt_chunk chunk;
	struct ckpt_pack pack, partly;
	char key[CKPT_PACK_KEY_MAX];

	where("text", &chunk, &pack);
	where("more", &chunk, &partly);
	ckpt_pack_key(pack.id, key);
	ckpt_step_unref(a);
	ckpt_step_unref(b);
	ck_ok(ckpt_objects_remove(s->objects, key));
	// And one that was being put into the index.
	ck_ok(ckpt_index_drop_packs(s->index, &partly, 1));
	ckpt_fixture_reopen();
	cool_beside("more", true);
	check_index();
	b = again("beside");
	ck_ok(ckpt_delete(b));
	ckpt_step_unref(b);
	cool_beside("text", false);
	check_index();
}
END_TEST

// In the file of the index, wherever an older page of it has it, too.
static size_t spoil_value(const char *text)
{
	uint8_t key[1 + CKPT_SHA256_LEN] = "c", *image, *found;
	char path[PATH_MAX];
	struct stat st;
	size_t count = 0;
	int fd;

	id_of(text, key + 1);
	snprintf(path, sizeof(path), "%.4000s/index/data.mdb", dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	image = malloc((size_t)st.st_size);
	ck_assert_int_eq(pread(fd, image, (size_t)st.st_size, 0), st.st_size);
	for (uint8_t *from = image, *end = image + st.st_size;
	     (found = memmem(from, (size_t)(end - from), key, sizeof(key))); from = found + 1) {
		size_t at = (size_t)(found - image) + sizeof(key) + 8 + 41; // in the offset

		ck_assert_int_eq(pwrite(fd, (const char[]){(char)(image[at] ^ 1)}, 1, (off_t)at), 1);
		count++;
	}
	close(fd);
	free(image);
	return count;
}

START_TEST(an_index_that_is_damaged_gives_right_bytes)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text", "more");
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
	uint8_t id[CKPT_SHA256_LEN];

	ckpt_step_unref(a);
	close_store();
	ck_assert_uint_gt(spoil_value("text"), 0);
	s = ckpt_save_open(dir);
	id_of("text", id);
	ck_error(ckpt_index_chunk(s->index, id, &chunk, &pack), EBADMSG);
	cool_beside("text", false);
	a = again("beside");
	ck_ok(ckpt_delete(a));
	ckpt_step_unref(a);
	cool_beside("more", true);
	check_index();
	a = again("a");
	ck_ok(ckpt_packed_read(a, "0", "text"));
	ck_ok(ckpt_packed_read(a, "1", "more"));
	ckpt_step_unref(a);
}
END_TEST

// A pack whose table cannot be read, or is not the one that was put, is no pack that anything is found in: each byte of its tail
// counts, also those of the digest, which goes into manifests.
START_TEST(a_pack_without_a_table_is_passed_over)
{
	struct ckpt_step *a = ckpt_packed_step(s, "a", "text"), *b = ckpt_packed_step(s, "b", "more");
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	where("text", &chunk, &pack);
	ckpt_packed_spoil(s, &pack, pack.bytes - 1 - (uint64_t)_i);
	ck_ok(ckpt_index_reset(s->index));
	cool_beside("more", true);
	ckpt_step_unref(b);
	b = again("beside");
	ck_ok(ckpt_delete(b));
	ckpt_step_unref(b);
	cool_beside("text", false);
	ck_ok(ckpt_packed_read(a, "0", "text")); // its manifest says where it is
	ckpt_step_unref(a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dedupe");
	TCase *find = tcase_create("find"), *hint = tcase_create("hint"), *lost = tcase_create("lost");

	tcase_add_checked_fixture(find, setup, ckpt_fixture_close);
	tcase_add_test(find, what_another_step_has_is_not_stored_again);
	tcase_add_test(find, a_cooling_that_ended_goes_on_where_it_was);
	tcase_add_test(find, what_is_collected_is_not_found);
	tcase_add_test(find, what_the_index_cannot_forget_goes_too_and_is_forgotten_later);
	tcase_add_test(find, without_an_index_all_is_stored);
	suite_add_tcase(suite, find);
	tcase_add_checked_fixture(hint, setup, ckpt_fixture_close);
	tcase_add_test(hint, what_is_found_is_read_back);
	tcase_add_loop_test(hint, what_is_not_there_is_not_used, 0, (int)ARRAY_LEN(lies));
	tcase_add_test(hint, what_may_not_be_durable_is_not_used);
	suite_add_tcase(suite, hint);
	tcase_add_checked_fixture(lost, setup, ckpt_fixture_close);
	tcase_add_test(lost, an_index_that_was_lost_knows_all_again);
	tcase_add_test(lost, an_index_that_is_emptied_meanwhile_knows_all_again);
	tcase_add_test(lost, an_index_that_is_made_anew_knows_all_again);
	tcase_add_test(lost, packs_that_are_gone_or_new_are_seen_at_the_next_start);
	tcase_add_test(lost, an_index_that_is_damaged_gives_right_bytes);
	tcase_add_loop_test(lost, a_pack_without_a_table_is_passed_over, 0, 56);
	suite_add_tcase(suite, lost);
	return ckpt_suite_run(suite);
}

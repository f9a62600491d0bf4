// Sealing of a committed step: what its next version says of the bytes, what of it clients see (nothing), and its ends.
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/step/removal.h"
#include "core/store/open.h"
#include "tests/support/array_files.h"
#include "tests/support/fixture.h"
#include "tests/support/hooks.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/cold/chunk.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/remove.h"
#include "core/save/version.h"
#include "core/step/reopened.h"
#include "core/tier/seal.h"
#include "core/tier/sealer.h"

#include <fcntl.h>
#include <stdio.h>

#define LARGE (2 * (size_t)CKPT_CHUNK_BYTES + 1)

static struct ckpt_step *step;
static char *large; // LARGE bytes
static const struct ckpt_seal_how plain;

static void setup(void)
{
	int fd;

	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "config", "text"));
	ck_ok(ckpt_sys.link(step->dirfd, "config", step->dirfd, "sub/link"));
	close(ckpt_staged_put(step, "empty", ""));
	ck_ok(ckpt_sys.symlink("config", step->dirfd, "symlink"));
	large = malloc(LARGE);
	for (size_t i = 0; i < LARGE; i++)
		large[i] = (char)(i * 7 >> 3);
	fd = ckpt_staged_put(step, "sub/large", "");
	ck_ok(ckpt_sys.pwrite(fd, large, LARGE, 0));
	close(fd);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
	free(large);
}

static struct ckpt_manifest *manifest(void)
{
	struct ckpt_manifest *m;

	ck_ok(ckpt_step_manifest(step, &m));
	return m;
}

static bool find_seal(const char *path, struct ckpt_seal *ret_seal)
{
	struct ckpt_manifest *m = manifest();
	uint32_t index;
	bool has;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	has = ckpt_manifest_seal(m, index, ret_seal);
	ckpt_manifest_unref(m);
	return has;
}

static void check_seal(const char *path, const void *bytes, size_t len, uint32_t chunks)
{
	uint8_t want[CKPT_SHA256_LEN];
	struct ckpt_seal seal;

	ck_assert_msg(find_seal(path, &seal), "%s is not sealed", path);
	ckpt_sha256(bytes, len, want);
	ck_assert_mem_eq(seal.sha256, want, sizeof(want));
	ck_assert_uint_eq(seal.count, chunks);
}

// In the session of a committed step, to be added to it.
static void put_late(struct ckpt_step *one, const char *name, const char *text)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, one->session, O_RDONLY | O_DIRECTORY, 0);
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDWR | O_CREAT | O_EXCL, 0644);

	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, text, strlen(text), 0));
}

START_TEST(each_file_and_each_chunk_has_its_hash)
{
	struct ckpt_manifest *m;
	struct ckpt_seal seal;
	size_t at = 0;

	ck_assert(!step->version->is.sealed);
	ck_ok(ckpt_seal(step, &plain));
	ck_assert(step->version->is.sealed);
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert_str_eq(step->version->is.event, "seal");
	check_seal("config", "text", 4, 1);
	check_seal("sub/link", "text", 4, 1);
	check_seal("sub/large", large, LARGE, 3);
	ck_assert(!find_seal("empty", &seal));
	ck_assert(!find_seal("symlink", &seal));
	ck_assert(find_seal("sub/large", &seal));
	m = manifest();
	for (uint32_t i = 0; i < seal.count; i++) {
		uint8_t want[CKPT_SHA256_LEN];
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		ckpt_sha256(large + at, chunk.bytes, want);
		ck_assert_mem_eq(chunk.id, want, sizeof(want));
		at += chunk.bytes;
	}
	ckpt_manifest_unref(m);
	ck_assert_uint_eq(at, LARGE);
}
END_TEST

#define FROZEN (2 * (size_t)CKPT_CHUNK_BYTES + 77)

// A file of three arrays: in front of the one of FROZEN bytes one of `before`, behind it another.
static void put_model(struct ckpt_step *one, const char *path, size_t before, const char *note)
{
	struct ckpt_bytes b = {0};
	char header[512];
	int fd = ckpt_staged_put(one, path, "");

	snprintf(
		header, sizeof(header),
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]},\"__metadata__\":{\"note\":\"%s\"},"
		"\"frozen\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]},"
		"\"z\":{\"dtype\":\"U8\",\"shape\":[100],\"data_offsets\":[%zu,%zu]}}",
		before, before, note, FROZEN, before, before + FROZEN, before + FROZEN, before + FROZEN + 100);
	ckpt_sample_safetensors(&b, header, 0);
	ckpt_bytes_fill(&b, before, (unsigned)before);
	ckpt_bytes_fill(&b, FROZEN, 7);
	ckpt_bytes_fill(&b, 100, (unsigned)before);
	ck_ok(ckpt_sys.pwrite(fd, b.data, b.len, 0));
	close(fd);
	free(b.data);
}

// The ids of the chunks of a file, which has so many.
static void get_ids(struct ckpt_step *one, const char *path, uint8_t (*ret_ids)[CKPT_SHA256_LEN], uint32_t count)
{
	struct ckpt_manifest *m;
	struct ckpt_seal seal;
	uint32_t index;

	ck_ok(ckpt_step_manifest(one, &m));
	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_assert(ckpt_manifest_seal(m, index, &seal));
	ck_assert_uint_eq(seal.count, count);
	for (uint32_t i = 0; i < count; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		memcpy(ret_ids[i], chunk.id, sizeof(chunk.id));
	}
	ckpt_manifest_unref(m);
}

START_TEST(an_array_has_the_same_chunks_in_files_of_other_headers)
{
	uint8_t one[5][CKPT_SHA256_LEN], other[6][CKPT_SHA256_LEN];
	struct ckpt_step *next = ckpt_staged_begin(s, "2000");

	put_model(next, "one", 3, "");
	put_model(next, "other", CKPT_CHUNK_ARRAY_MIN + 1, "a longer header, and an array that has a chunk of its own");
	ck_ok(ckpt_commit(next, &ckpt_staged_plain));
	ck_ok(ckpt_seal(next, &plain));
	get_ids(next, "one", one, 5);     // the header and 3 bytes, the array, 100 bytes
	get_ids(next, "other", other, 6); // the header, an array, the array, 100 bytes
	for (int i = 0; i < 3; i++) {
		ck_assert_mem_eq(one[1 + i], other[2 + i], CKPT_SHA256_LEN);
		ck_assert_mem_ne(one[1 + i], one[i], CKPT_SHA256_LEN);
	}
	ck_assert_mem_ne(one[0], other[0], CKPT_SHA256_LEN);
	ck_assert_mem_ne(one[4], other[5], CKPT_SHA256_LEN);
	ckpt_step_unref(next);
}
END_TEST

// It is what all bytes of it are, however many chunks they have.
START_TEST(a_small_file_of_two_chunks_has_the_hash_of_all)
{
	uint8_t want[CKPT_SHA256_LEN], got[2][CKPT_SHA256_LEN];
	struct ckpt_step *next = ckpt_staged_begin(s, "2000");
	struct ckpt_bytes b = {0};
	struct ckpt_seal seal;
	int fd = ckpt_staged_put(next, "a.npy", "");

	ckpt_sample_npy(&b, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (100000,), }\n", 0);
	ckpt_bytes_fill(&b, 100000, 1);
	ck_ok(ckpt_sys.pwrite(fd, b.data, b.len, 0));
	close(fd);
	ck_ok(ckpt_commit(next, &ckpt_staged_plain));
	ck_ok(ckpt_seal(next, &plain));
	get_ids(next, "a.npy", got, 2);
	ckpt_sha256(b.data + b.len - 100000, 100000, want);
	ck_assert_mem_eq(got[1], want, sizeof(want));
	ckpt_step_unref(step);
	step = next;
	ck_assert(find_seal("a.npy", &seal));
	ckpt_sha256(b.data, b.len, want);
	ck_assert_mem_eq(seal.sha256, want, sizeof(want));
	free(b.data);
}
END_TEST

// Not even the time of its commit; and again there is nothing to do.
START_TEST(all_else_is_as_before)
{
	struct ckpt_summary was = step->version->is;

	ck_ok(ckpt_seal(step, &plain));
	ck_ok(ckpt_seal(step, &plain));
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert_int_eq(step->version->is.committed_ns, was.committed_ns);
	ck_assert_uint_eq(step->born.sequence, was.sequence);
	ck_assert(step->version->is.files == was.files && step->version->is.bytes == was.bytes);
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
	ck_assert(step->version->is.sealed && step->version->is.version == 2);
	ck_assert_int_eq(step->version->is.committed_ns, was.committed_ns);
	ckpt_staged_check(step, "config", "text");
	check_seal("config", "text", 4, 1);
}
END_TEST

START_TEST(a_step_without_a_byte_is_sealed_when_it_is_committed)
{
	struct ckpt_step *none = ckpt_staged_begin(s, "2000");

	close(ckpt_staged_put(none, "empty", ""));
	ck_ok(ckpt_commit(none, &ckpt_staged_plain));
	ck_assert(none->version->is.sealed);
	ck_ok(ckpt_seal(none, &plain));
	ck_assert_uint_eq(none->version->is.version, 1);
	ckpt_step_unref(none);
}
END_TEST

struct counted {
	uint64_t bytes, until; // it goes on until so many were read
};

static bool count(void *arg, uint64_t bytes)
{
	struct counted *c = arg;

	c->bytes += bytes;
	return c->bytes < c->until;
}

START_TEST(what_is_sealed_is_not_read_again)
{
	struct counted c = {.until = UINT64_MAX};
	struct ckpt_seal_how how = {.go_on = count, .arg = &c};

	ck_ok(ckpt_seal(step, &how));
	ck_assert_uint_eq(c.bytes, LARGE + 4);
	c.bytes = 0;
	put_late(step, "late", "late");
	ck_ok(ckpt_amend_add(step, "late"));
	ck_assert(!step->version->is.sealed);
	ck_ok(ckpt_seal(step, &how));
	ck_assert_uint_eq(c.bytes, 4);
	check_seal("late", "late", 4, 1);
	check_seal("sub/large", large, LARGE, 3);
}
END_TEST

START_TEST(who_is_told_to_stop_keeps_whole_files)
{
	struct counted c = {.until = 5};
	struct ckpt_seal_how how = {.go_on = count, .arg = &c};
	struct ckpt_seal seal;

	ck_error(ckpt_seal(step, &how), EINTR);
	ck_assert(!step->version->is.sealed);
	check_seal("config", "text", 4, 1);
	ck_assert(!find_seal("sub/large", &seal));
	c = (struct counted){.until = UINT64_MAX};
	ck_ok(ckpt_seal(step, &how));
	ck_assert_uint_eq(c.bytes, LARGE);
	ck_assert(step->version->is.sealed);
}
END_TEST

static bool add_late(void *arg, uint64_t bytes __attribute__((unused)))
{
	bool *added = arg;

	if (!*added) {
		*added = true;
		put_late(step, "late", "late");
		ck_ok(ckpt_amend_add(step, "late"));
		ck_ok(ckpt_amend_remove(step, "empty"));
	}
	return true;
}

START_TEST(what_is_added_meanwhile_is_sealed_too)
{
	bool added = false;
	struct ckpt_seal_how how = {.go_on = add_late, .arg = &added};

	ck_ok(ckpt_seal(step, &how));
	ck_assert(added && step->version->is.sealed);
	check_seal("late", "late", 4, 1);
	check_seal("sub/large", large, LARGE, 3);
}
END_TEST

static bool replace_config(void *arg, uint64_t bytes __attribute__((unused)))
{
	bool *replaced = arg;

	if (!*replaced) {
		*replaced = true;
		put_late(step, ".again-1", "other");
		ck_ok(ckpt_amend_replace(step, "config", ".again-1"));
	}
	return true;
}

START_TEST(a_file_that_is_replaced_meanwhile_has_the_seal_of_its_new_bytes)
{
	bool replaced = false;
	struct ckpt_seal_how how = {.go_on = replace_config, .arg = &replaced};

	ck_ok(ckpt_amend_remove(step, "sub/link")); // of hard links none is replaced alone
	ck_ok(ckpt_seal(step, &how));
	ck_assert(replaced && step->version->is.sealed);
	check_seal("config", "other", 5, 1);
}
END_TEST

// Its name and its raw file's path are those of what was read, its size too.
static bool exchange_config(void *arg, uint64_t bytes __attribute__((unused)))
{
	bool *done = arg;

	if (!*done) {
		CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);

		*done = true;
		ck_ok(ckpt_amend_remove(step, "config"));
		ck_ok(ckpt_sys.unlink(dirfd, "config", 0));
		put_late(step, "config", "TEXT");
		ck_ok(ckpt_amend_add(step, "config"));
	}
	return true;
}

START_TEST(a_file_that_took_the_place_of_one_meanwhile_has_its_own_seal)
{
	bool done = false;
	struct ckpt_seal_how how = {.go_on = exchange_config, .arg = &done};

	ck_ok(ckpt_amend_remove(step, "sub/link"));
	ck_ok(ckpt_seal(step, &how));
	ck_assert(done && step->version->is.sealed);
	check_seal("config", "TEXT", 4, 1);
}
END_TEST

static int clear_sealed(void *arg __attribute__((unused)), struct ckpt_record *r)
{
	r->summary.sealed = false;
	return 0;
}

// As an older program has committed it.
START_TEST(a_record_that_says_too_little_is_made_to_say_it)
{
	struct ckpt_step *none = ckpt_staged_begin(s, "2000");
	struct ckpt_summary next;
	bool changed;

	close(ckpt_staged_put(none, "empty", ""));
	ck_ok(ckpt_commit(none, &ckpt_staged_plain));
	ckpt_lock_take(&s->acts_lock);
	ck_ok(ckpt_version_put(none, CKPT_ACT_REPACK, clear_sealed, NULL, false, &next, &changed));
	ckpt_lock_drop(&s->acts_lock);
	ck_assert(!none->version->is.sealed);
	ck_ok(ckpt_seal(none, &plain));
	ck_assert(none->version->is.sealed && none->version->is.version == 3);
	ckpt_step_unref(none);
}
END_TEST

static bool remove_one(void *arg, uint64_t bytes __attribute__((unused)))
{
	(void)arg;
	(void)ckpt_staged_remove(step, "empty");
	return true;
}

START_TEST(a_step_that_is_being_removed_is_left_alone)
{
	struct ckpt_seal_how how = {.go_on = remove_one};

	ck_error(ckpt_seal(step, &how), EBUSY);
	ck_assert(ckpt_removal_any(step));
	ck_assert_uint_eq(step->version->is.version, 1);
	ck_error(ckpt_seal(step, &plain), EBUSY);
	ck_assert_uint_eq(ckpt_save_errors(s, ""), 0);
	ckpt_removal_forget(step);
	ck_ok(ckpt_seal(step, &plain));
}
END_TEST

static struct ckpt_manifest *before;
static uint32_t index_of_empty;
static int (*real_random)(void *buf, size_t len);

// As `rm -r` that looked at the step before, between the sealing's look at it and its version.
static int random_after_a_removal(void *buf, size_t len)
{
	ck_ok(ckpt_remove_entry(step, before, 0, "empty", false, 0));
	ckpt_hook_set(random, real_random);
	return ckpt_sys.random(buf, len);
}

START_TEST(what_is_removed_meanwhile_stays_so)
{
	before = manifest();
	ck_ok(ckpt_manifest_lookup(before, "empty", &index_of_empty));
	real_random = ckpt_hooks.random;
	ckpt_hook_set(random, random_after_a_removal);
	ck_ok(ckpt_seal(step, &plain));
	ck_assert_uint_eq(step->version->is.version, 2);
	ck_assert(ckpt_removal_has(step, before, index_of_empty));
	ck_ok(ckpt_remove_entry(step, before, 0, "config", false, 0)); // by who has the version of before
	ck_assert(ckpt_removal_has(step, before, index_of_empty));
	ckpt_manifest_unref(before);
}
END_TEST

START_TEST(a_step_that_is_gone_or_another_is_not_sealed)
{
	struct ckpt_step *again;

	ck_ok(ckpt_reopen(step, &again));
	ck_error(ckpt_seal(step, &plain), EBUSY);
	ck_error(ckpt_seal(again, &plain), ESTALE);
	ck_ok(ckpt_stage_abort(again, false));
	ckpt_step_unref(again);
	ck_ok(ckpt_seal(step, &plain));
	ck_ok(ckpt_delete(step));
	ck_error(ckpt_seal(step, &plain), ESTALE);
	ck_assert_uint_eq(ckpt_save_errors(s, ""), 0);
	ck_ok(ckpt_undelete(step));
	ck_assert(step->version->is.sealed);
	check_seal("config", "text", 4, 1);
}
END_TEST

// In a reopened step, as clients of the mount do it.
static void write_anew(struct ckpt_step *one, const char *path, const char *text)
{
	ck_ok(ckpt_stage_enter(one, true));
	ck_ok(ckpt_sys.unlink(one->dirfd, path, 0));
	close(ckpt_staged_put(one, path, text));
	ckpt_stage_leave(one);
}

START_TEST(a_step_that_is_changed_keeps_the_seals_of_what_was_not)
{
	struct counted c = {.until = UINT64_MAX};
	struct ckpt_seal_how how = {.go_on = count, .arg = &c};
	struct ckpt_step *again;
	struct ckpt_seal seal;

	ck_ok(ckpt_amend_remove(step, "sub/link"));
	ck_ok(ckpt_seal(step, &plain));
	ck_ok(ckpt_reopen(step, &again));
	write_anew(again, "config", "other");
	ck_ok(ckpt_commit(again, &ckpt_staged_plain));
	ckpt_step_unref(step);
	step = again;
	ck_assert(!step->version->is.sealed && !find_seal("config", &seal));
	check_seal("sub/large", large, LARGE, 3);
	ck_ok(ckpt_seal(step, &how));
	ck_assert_uint_eq(c.bytes, 5);
	check_seal("config", "other", 5, 1);
	check_seal("sub/large", large, LARGE, 3);
	ck_ok(ckpt_reopen(step, &again));
	ck_ok(ckpt_sys.unlink(again->dirfd, "empty", 0));
	ck_ok(ckpt_commit(again, &ckpt_staged_plain));
	ck_assert_msg(again->version->is.sealed, "nothing in it is new");
	ckpt_step_unref(again);
}
END_TEST

// Both are the raw files of before, of the same size, each with the other's name.
START_TEST(what_changes_places_in_a_step_has_its_own_seal)
{
	struct ckpt_step *base = ckpt_staged_begin(s, "2000"), *again;
	struct ckpt_seal seal;

	close(ckpt_staged_put(base, "a", "one"));
	close(ckpt_staged_put(base, "b", "two"));
	ck_ok(ckpt_commit(base, &ckpt_staged_plain));
	ck_ok(ckpt_seal(base, &plain));
	ck_ok(ckpt_reopen(base, &again));
	ck_ok(ckpt_sys.rename(again->dirfd, "a", again->dirfd, "b", RENAME_EXCHANGE));
	ck_ok(ckpt_commit(again, &ckpt_staged_plain));
	ckpt_step_unref(base);
	ckpt_step_unref(step);
	step = again;
	ck_assert(!find_seal("a", &seal) && !find_seal("b", &seal) && !step->version->is.sealed);
	ck_ok(ckpt_seal(step, &plain));
	check_seal("a", "two", 3, 1);
	check_seal("b", "one", 3, 1);
}
END_TEST

START_TEST(a_file_that_is_not_what_was_committed_is_told)
{
	char path[CKPT_UUID_LEN + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/sub/large", step->session);
	fd = ckpt_sys.open(s->sessions_fd, path, O_WRONLY, 0);
	ck_ok(fd);
	ck_ok(ckpt_sys.ftruncate(fd, LARGE - 1));
	close(fd);
	ck_error(ckpt_seal(step, &plain), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "sub/large"), 1);
	ck_assert(!step->version->is.sealed);
	check_seal("config", "text", 4, 1); // the others are
}
END_TEST

// --- Behind -------------------------------------------------------------------------------------------------------------

static void wait_sealed(struct ckpt_step *one)
{
	uint64_t files = 1, bytes;

	for (int i = 0; i < 5000 && files; i++) {
		ckpt_sealer_pending(s, &files, &bytes);
		ckpt_sys.sleep_ns(1000000);
	}
	ck_assert_uint_eq(files, 0);
	ck_assert_uint_eq(bytes, 0);
	LOCK_SCOPE(&one->lock);
	ck_assert(one->version->is.sealed);
}

START_TEST(behind_what_was_there_and_what_comes_is_sealed)
{
	struct ckpt_step *next;
	uint64_t files, bytes;

	ckpt_sealer_pending(s, &files, &bytes);
	ck_assert(!files && !bytes);
	ck_ok(ckpt_store_work_behind(s));
	wait_sealed(step);
	check_seal("sub/large", large, LARGE, 3);
	next = ckpt_staged_begin(s, "2000");
	close(ckpt_staged_put(next, "file", "next"));
	ck_ok(ckpt_commit(next, &ckpt_staged_plain));
	wait_sealed(next);
	put_late(next, "late", "late");
	ck_ok(ckpt_amend_add(next, "late"));
	wait_sealed(next);
	ckpt_step_unref(next);
}
END_TEST

START_TEST(behind_what_cannot_be_sealed_is_not_waited_for)
{
	char path[CKPT_UUID_LEN + 32];

	snprintf(path, sizeof(path), "%s/sub/large", step->session);
	ck_ok(ckpt_sys.unlink(s->sessions_fd, path, 0));
	ck_ok(ckpt_store_work_behind(s));
	for (int i = 0; i < 5000 && !ckpt_save_errors(s, "sub/large"); i++)
		ckpt_sys.sleep_ns(1000000);
	for (int i = 0; i < 5000; i++) {
		uint64_t files, bytes;

		ckpt_sealer_pending(s, &files, &bytes);
		if (!files)
			return;
		ckpt_sys.sleep_ns(1000000);
	}
	ck_abort_msg("it is waited for");
}
END_TEST

START_TEST(without_the_setting_nothing_is_sealed_behind)
{
	s->settings.seal = false;
	ck_ok(ckpt_store_work_behind(s));
	ck_assert_ptr_null(*ckpt_sealer_of(s));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seal");
	TCase *act = tcase_create("act"), *behind = tcase_create("behind");

	tcase_add_checked_fixture(act, setup, teardown);
	tcase_add_test(act, each_file_and_each_chunk_has_its_hash);
	tcase_add_test(act, an_array_has_the_same_chunks_in_files_of_other_headers);
	tcase_add_test(act, a_small_file_of_two_chunks_has_the_hash_of_all);
	tcase_add_test(act, all_else_is_as_before);
	tcase_add_test(act, a_step_without_a_byte_is_sealed_when_it_is_committed);
	tcase_add_test(act, what_is_sealed_is_not_read_again);
	tcase_add_test(act, who_is_told_to_stop_keeps_whole_files);
	tcase_add_test(act, what_is_added_meanwhile_is_sealed_too);
	tcase_add_test(act, a_file_that_is_replaced_meanwhile_has_the_seal_of_its_new_bytes);
	tcase_add_test(act, a_file_that_took_the_place_of_one_meanwhile_has_its_own_seal);
	tcase_add_test(act, a_record_that_says_too_little_is_made_to_say_it);
	tcase_add_test(act, a_step_that_is_being_removed_is_left_alone);
	tcase_add_test(act, what_is_removed_meanwhile_stays_so);
	tcase_add_test(act, a_step_that_is_gone_or_another_is_not_sealed);
	tcase_add_test(act, a_step_that_is_changed_keeps_the_seals_of_what_was_not);
	tcase_add_test(act, what_changes_places_in_a_step_has_its_own_seal);
	tcase_add_test(act, a_file_that_is_not_what_was_committed_is_told);
	suite_add_tcase(suite, act);
	tcase_add_checked_fixture(behind, setup, teardown);
	tcase_add_test(behind, behind_what_was_there_and_what_comes_is_sealed);
	tcase_add_test(behind, behind_what_cannot_be_sealed_is_not_waited_for);
	tcase_add_test(behind, without_the_setting_nothing_is_sealed_behind);
	suite_add_tcase(suite, behind);
	return ckpt_suite_run(suite);
}

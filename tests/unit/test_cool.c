// Cooling and warming of a committed step: where its bytes are then, what of it clients see (nothing), and what damage does.
#include "core/cold/garbage.h"
#include "core/save/reopen.h"
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/fixture.h"
#include "tests/support/packed.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/file.h"
#include "core/cold/pack.h"
#include "core/gc/gc.h"
#include "core/save/amend.h"
#include "core/save/remove.h"
#include "core/step/reopened.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define LARGE (2 * (size_t)CKPT_CHUNK_BYTES + 1)

static const struct ckpt_tier_how plain = {.pack_bytes = 64 << 20};
static struct ckpt_step *step;
static struct ckpt_tier_done done;
static char *large; // LARGE bytes

static void setup(void)
{
	static const struct timespec times[2] = {{1, 5}, {1000000000, 123456789}};
	int fd;

	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	fd = ckpt_staged_put(step, "config", "text");
	ck_ok(fchmod(fd, 0640));
	ck_ok(fsetxattr(fd, "user.kind", "x", 1, 0));
	ck_ok(futimens(fd, times));
	close(fd);
	ck_ok(ckpt_sys.link(step->dirfd, "config", step->dirfd, "sub/link"));
	close(ckpt_staged_put(step, "twin", "text"));
	close(ckpt_staged_put(step, "empty", ""));
	ck_ok(ckpt_sys.symlink("config", step->dirfd, "symlink"));
	large = malloc(LARGE);
	for (size_t i = 0; i < LARGE; i++)
		large[i] = (char)(i * 7 >> 3 ^ i >> 20);
	fd = ckpt_staged_put(step, "sub/large", "");
	ck_ok(ckpt_sys.pwrite(fd, large, LARGE, 0));
	close(fd);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
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

static struct ckpt_entry entry(const char *path)
{
	struct ckpt_manifest *m = manifest();
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_unref(m);
	e.name = e.target = e.raw_path = NULL; // they were the manifest's
	return e;
}

static void check_large(void)
{
	struct ckpt_manifest *m = manifest();
	char *there = malloc(LARGE + 1);
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, "sub/large", &index));
	ck_assert_int_eq(ckpt_staged_read(step, m, index, there, LARGE + 1), LARGE);
	ck_assert(!memcmp(there, large, LARGE));
	ckpt_manifest_unref(m);
	free(there);
}

static void check_all(void)
{
	ckpt_staged_check(step, "config", "text");
	ckpt_staged_check(step, "sub/link", "text");
	ckpt_staged_check(step, "twin", "text");
	ckpt_staged_check(step, "empty", "");
	check_large();
}

static bool has_raw(const char *path)
{
	char raw[PATH_MAX];
	struct stat st;

	snprintf(raw, sizeof(raw), "%s/%s", step->session, path);
	return !fstatat(s->sessions_fd, raw, &st, AT_SYMLINK_NOFOLLOW);
}

static int count_one(void *arg, const char *key __attribute__((unused)),
		     const struct ckpt_object *object __attribute__((unused)))
{
	++*(size_t *)arg;
	return 0;
}

static size_t packs(void)
{
	size_t count = 0;

	ck_ok(ckpt_objects_list(s->objects, "packs/", NULL, count_one, &count));
	return count;
}

// Flips a bit of every pack at this place, from its end where it is negative.
static void damage_packs(off_t at)
{
	CLEANUP_FD int fd = openat(s->dirfd, "packs", O_RDONLY | O_DIRECTORY);
	DIR *list = fdopendir(dup(fd));
	struct dirent *d;

	while ((d = readdir(list))) {
		CLEANUP_FD int one = *d->d_name == '.' ? -1 : openat(fd, d->d_name, O_RDWR);
		off_t where = at < 0 ? lseek(one, 0, SEEK_END) + at : at;
		char byte;

		if (one < 0)
			continue;
		ck_assert_int_eq(pread(one, &byte, 1, where), 1);
		byte ^= 0x10;
		ck_assert_int_eq(pwrite(one, &byte, 1, where), 1);
	}
	closedir(list);
}

static void drop_cache(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
}

// --- Cooling ------------------------------------------------------------------------------------------------------------

START_TEST(the_bytes_are_in_packs_and_the_raw_files_are_gone)
{
	static const char *const paths[] = {"config", "sub/link", "twin", "sub/large"};

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(step->version->is.packed && step->version->is.sealed);
	ck_assert_str_eq(step->version->is.event, "cool");
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		ck_assert_int_eq(entry(paths[i]).content, CKPT_CONTENT_CHUNKS);
		ck_assert_msg(!has_raw(paths[i]), "%s", paths[i]);
	}
	ck_assert(has_raw("empty") && entry("empty").content == CKPT_CONTENT_NONE);
	ck_assert_uint_eq(done.files, 3);
	ck_assert_uint_eq(done.bytes, LARGE + 8);
	ck_assert_uint_eq(packs(), 1);
	ck_assert(done.stored_bytes && done.stored_bytes < LARGE / 4); // it repeats
	check_all();
	drop_cache();
	ck_assert(step->version->is.packed);
	check_all();
}
END_TEST

START_TEST(clients_see_nothing_of_it)
{
	struct ckpt_summary was = step->version->is;
	struct ckpt_entry config = entry("config"), is;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert_int_eq(step->version->is.committed_ns, was.committed_ns);
	ck_assert(step->born.sequence == was.sequence && step->version->is.version == was.version + 1);
	ck_assert(step->version->is.files == was.files && step->version->is.bytes == was.bytes);
	is = entry("config");
	config.content = CKPT_CONTENT_CHUNKS;
	ck_assert_mem_eq(&is, &config, sizeof(is));
}
END_TEST

START_TEST(a_cold_step_is_not_cooled_again)
{
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(step->version->is.version == version && packs() == 1);
	ck_assert(!done.files && !done.bytes && !done.stored_bytes);
}
END_TEST

START_TEST(a_step_that_is_not_sealed_stays_raw)
{
	struct ckpt_step *other = ckpt_staged_begin(s, "2000");

	close(ckpt_staged_put(other, "config", "text"));
	ck_ok(ckpt_commit(other, &ckpt_staged_plain));
	ck_error(ckpt_cool(other, &plain, &done), ENODATA);
	ck_assert(!other->version->is.packed && !packs());
	ckpt_staged_check(other, "config", "text");
	ckpt_step_unref(other);
}
END_TEST

START_TEST(packs_have_about_the_size_that_is_asked_for)
{
	const struct ckpt_tier_how small = {.pack_bytes = 1};

	ck_ok(ckpt_cool(step, &small, &done));
	ck_assert_uint_eq(packs(), 4); // three chunks of the large file, one that the two small ones share
	check_all();
}
END_TEST

static bool stop(void *arg, uint64_t bytes __attribute__((unused)))
{
	return --*(int *)arg > 0;
}

START_TEST(who_is_told_to_stop_changes_nothing)
{
	int chunks = 2;
	struct ckpt_tier_how how = {.pack_bytes = 64 << 20, .go_on = stop, .arg = &chunks};
	uint32_t version = step->version->is.version;

	ck_error(ckpt_cool(step, &how, &done), EINTR);
	ck_assert(step->version->is.version == version && !step->version->is.packed && has_raw("sub/large"));
	check_all();
	ck_ok(ckpt_cool(step, &plain, &done));
	chunks = 2;
	ck_error(ckpt_warm(step, &how, &done), EINTR);
	ck_assert(step->version->is.packed && !has_raw("sub/large"));
	check_all();
}
END_TEST

static bool until_packed(void *arg __attribute__((unused)), uint64_t bytes __attribute__((unused)))
{
	LOCK_SCOPE(&step->lock);

	return !step->version->is.packed;
}

START_TEST(who_is_told_to_stop_leaves_raw_files_to_the_next_cooling)
{
	const struct ckpt_tier_how how = {.pack_bytes = 64 << 20, .go_on = until_packed};
	uint32_t version;

	ck_error(ckpt_cool(step, &how, &done), EINTR);
	ck_assert(step->version->is.packed && has_raw("config") && has_raw("sub/large"));
	check_all();
	version = step->version->is.version;
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(!has_raw("config") && !has_raw("sub/large"));
	ck_assert(done.files == 3 && !done.stored_bytes && step->version->is.version == version);
	check_all();
}
END_TEST

// In the session of the committed step, to be added to it.
static bool add_late(void *arg, uint64_t bytes __attribute__((unused)))
{
	bool *added = arg;

	if (!*added) {
		CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
		CLEANUP_FD int fd = ckpt_sys.open(dirfd, "late", O_RDWR | O_CREAT | O_EXCL, 0644);

		*added = true;
		ck_ok(ckpt_sys.pwrite(fd, "late", 4, 0));
		ck_ok(ckpt_amend_add(step, "late"));
	}
	return true;
}

START_TEST(what_is_added_meanwhile_stays_raw)
{
	bool added = false;
	struct ckpt_tier_how how = {.pack_bytes = 64 << 20, .go_on = add_late, .arg = &added};

	ck_ok(ckpt_cool(step, &how, &done));
	ck_assert(added && step->version->is.packed && !step->version->is.sealed);
	ck_assert_int_eq(entry("late").content, CKPT_CONTENT_RAW);
	ck_assert_int_eq(entry("sub/large").content, CKPT_CONTENT_CHUNKS);
	ckpt_staged_check(step, "late", "late");
	check_all();
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert_int_eq(entry("late").content, CKPT_CONTENT_CHUNKS);
	ckpt_staged_check(step, "late", "late");
	check_all();
}
END_TEST

START_TEST(a_step_that_is_being_removed_is_left_alone)
{
	ck_ok(ckpt_staged_remove(step, "empty"));
	ck_error(ckpt_cool(step, &plain, &done), EBUSY);
	ck_assert(!step->version->is.packed && has_raw("sub/large"));
}
END_TEST

static bool remove_one(void *arg, uint64_t bytes __attribute__((unused)))
{
	bool *removed = arg;
	if (packs() && !*removed)
		(void)ckpt_staged_remove(step, "empty");
	*removed = packs() > 0;
	return true;
}

// It is known whose they were: nobody is asked.
START_TEST(packs_of_a_step_that_is_removed_meanwhile_go_with_the_garbage)
{
	bool removed = false;
	const struct ckpt_tier_how how = {.pack_bytes = 1, .go_on = remove_one, .arg = &removed};
	const struct ckpt_gc_how all = {0};
	struct ckpt_gc_done gone;

	ck_error(ckpt_cool(step, &how, &done), EBUSY);
	ck_assert(removed && !step->version->is.packed && packs() > 0);
	ck_assert_uint_eq(ckpt_garbage_packs(s), packs());
	ck_ok(ckpt_gc(s, &all, &gone));
	ck_assert_uint_eq(packs(), 0);
	check_all();
}
END_TEST

// --- Reading ------------------------------------------------------------------------------------------------------------

START_TEST(who_has_the_version_of_before_finds_the_bytes)
{
	struct ckpt_manifest *before = manifest(), *cold;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_manifest_lookup(before, "config", &index));
	ck_assert_int_eq(ckpt_staged_read(step, before, index, there, sizeof(there)), 4);
	cold = manifest();
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert_int_eq(ckpt_staged_read(step, cold, index, there, sizeof(there)), 4);
	ckpt_manifest_unref(before);
	ckpt_manifest_unref(cold);
}
END_TEST

START_TEST(what_was_opened_stays_readable)
{
	struct ckpt_file *raw, *cold;
	struct ckpt_manifest *m = manifest();
	char there[8];
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_ok(ckpt_file_open(step, m, index, &raw));
	ck_ok(ckpt_cool(step, &plain, &done));
	ckpt_manifest_unref(m);
	m = manifest();
	ck_ok(ckpt_file_open(step, m, index, &cold));
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert(ckpt_file_fd(raw) >= 0 && ckpt_file_fd(cold) < 0);
	ck_assert_int_eq(ckpt_file_read(raw, there, sizeof(there), 1), 3);
	ck_assert_mem_eq(there, "ext", 3);
	ck_assert_int_eq(ckpt_file_read(cold, there, sizeof(there), 1), 3);
	ck_assert_mem_eq(there, "ext", 3);
	ck_assert_int_eq(ckpt_file_read(cold, there, sizeof(there), 4), 0);
	ckpt_file_close(raw);
	ckpt_file_close(cold);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(any_place_of_a_cold_file_can_be_read)
{
	static const uint64_t places[] = {0, 1, CKPT_CHUNK_BYTES - 1, CKPT_CHUNK_BYTES, LARGE - 1, 12345};
	struct ckpt_file_view view;
	struct ckpt_manifest *m;
	struct ckpt_file *file;
	char there[100];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	m = manifest();
	ck_ok(ckpt_manifest_lookup(m, "sub/large", &index));
	ck_ok(ckpt_file_open(step, m, index, &file));
	ck_error(ckpt_file_view(file, 0, true, &view), EAGAIN);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		ssize_t n = ckpt_file_read(file, there, sizeof(there), places[i]);

		ck_assert_int_gt(n, 0);
		ck_assert_mem_eq(there, large + places[i], (size_t)n);
		if (places[i] == LARGE - 1) { // a chunk of one byte: it was read whole, and goes
			ck_error(ckpt_file_view(file, places[i], true, &view), EAGAIN);
			continue;
		}
		ck_ok(ckpt_file_view(file, places[i], true, &view));
		ck_assert_uint_ge(view.len, (size_t)n);
		ck_assert_mem_eq(view.data, large + places[i], (size_t)n);
		ckpt_file_view_done(&view, 0);
	}
	ck_assert_int_eq(ckpt_file_read(file, there, sizeof(there), LARGE), 0);
	ck_assert_int_eq(ckpt_file_read(file, there, sizeof(there), UINT64_MAX), 0);
	ckpt_file_close(file);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(damaged_packs_give_an_error_and_never_bytes)
{
	struct ckpt_manifest *m;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	damage_packs(49); // the first chunk, that of "config" and "twin"
	drop_cache();
	m = manifest();
	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_error((int)ckpt_staged_read(step, m, index, there, sizeof(there)), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "a pack that holds config is damaged"), 1);
	check_large();
	ckpt_manifest_unref(m);
	damage_packs(49);
	check_all(); // what failed is read anew
}
END_TEST

// The first of them.
static void remove_pack(const struct ckpt_manifest *m)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_pack pack;

	ckpt_manifest_pack(m, 0, &pack);
	ckpt_pack_key(pack.id, key);
	ck_ok(ckpt_objects_remove(s->objects, key));
}

START_TEST(missing_packs_give_an_error)
{
	struct ckpt_manifest *m;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	m = manifest();
	remove_pack(m);
	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_error((int)ckpt_staged_read(step, m, index, there, sizeof(there)), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "a pack that holds config is missing"), 1);
	ckpt_manifest_unref(m);
}
END_TEST

// By a store beside, whose cache has nothing of it.
START_TEST(who_has_a_cold_file_open_finds_it_once_it_is_warm_and_its_packs_are_gone)
{
	struct ckpt_store *reader;
	struct ckpt_manifest *m;
	struct ckpt_step *seen;
	struct ckpt_file *file;
	char there[8];
	uint32_t index;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &reader));
	seen = ckpt_step_find(reader, "", "1000");
	ck_ok(ckpt_step_manifest(seen, &m));
	ck_ok(ckpt_manifest_lookup(m, "config", &index));
	ck_ok(ckpt_file_open(seen, m, index, &file));
	ck_ok(ckpt_warm(step, &plain, &done));
	remove_pack(m);
	ck_assert_int_eq(ckpt_file_read(file, there, sizeof(there), 1), 3);
	ck_assert_mem_eq(there, "ext", 3);
	ck_assert_uint_eq(ckpt_save_errors(reader, ""), 0);
	ckpt_file_close(file);
	ckpt_manifest_unref(m);
	ckpt_step_unref(seen);
	ckpt_store_close(reader);
}
END_TEST

// --- What is not as it was sealed ---------------------------------------------------------------------------------------

START_TEST(a_raw_file_that_is_damaged_stays_and_is_told)
{
	char raw[PATH_MAX];

	snprintf(raw, sizeof(raw), "%s/sub/large", step->session);
	{
		CLEANUP_FD int fd = openat(s->sessions_fd, raw, O_RDWR);

		ck_assert_int_eq(pwrite(fd, "!", 1, LARGE - 1), 1);
	}
	ck_error(ckpt_cool(step, &plain, &done), EIO);
	ck_assert_int_eq(entry("sub/large").content, CKPT_CONTENT_RAW);
	ck_assert(has_raw("sub/large"));
	ck_assert_int_eq(entry("config").content, CKPT_CONTENT_CHUNKS);
	ck_assert_uint_eq(ckpt_save_errors(s, "sub/large cannot be read, or"), 1);
	ckpt_staged_check(step, "config", "text");
}
END_TEST

// --- Warming ------------------------------------------------------------------------------------------------------------

START_TEST(warming_brings_the_raw_files_back_as_they_were)
{
	char raw[PATH_MAX], path[PATH_MAX + 32], value[2];
	struct stat one, other;
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert(step->version->is.version == version && step->version->is.packed && step->version->is.sealed);
	ck_assert(done.files == 3 && done.bytes == LARGE + 8);
	ck_assert(has_raw("config") && has_raw("twin") && has_raw("sub/large"));
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	ck_ok(fstatat(s->sessions_fd, raw, &one, 0));
	ck_assert(one.st_size == 4 && (one.st_mode & 07777) == 0640 && one.st_nlink == 2);
	ck_assert(one.st_mtim.tv_sec == 1000000000 && one.st_mtim.tv_nsec == 123456789);
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", s->sessions_fd, raw);
	ck_assert_int_eq(getxattr(path, "user.kind", value, sizeof(value)), 1);
	snprintf(raw, sizeof(raw), "%s/sub/link", step->session);
	ck_ok(fstatat(s->sessions_fd, raw, &other, 0));
	ck_assert_uint_eq(other.st_ino, one.st_ino);
	check_all();
	drop_cache();
	check_all();
}
END_TEST

START_TEST(a_warm_step_is_cooled_without_a_new_pack_or_version)
{
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(!done.stored_bytes && done.files == 3 && packs() == 1 && step->version->is.version == version);
	ck_assert(done.bytes == LARGE + 8 && !has_raw("sub/large") && !has_raw("config") && !has_raw("sub/link"));
	check_all();
}
END_TEST

// The raw file is there: what its pack has lost is packed anew.
START_TEST(a_warm_step_whose_pack_is_damaged_is_packed_anew)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &plain, &done));
	damage_packs(49);
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(done.stored_bytes && packs() == 2);
	drop_cache();
	check_all();
}
END_TEST

START_TEST(only_some_files_are_warmed)
{
	struct ckpt_tier_how how = {.only = "large"};

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &how, &done));
	ck_assert(done.files == 1 && step->version->is.packed);
	ck_assert(has_raw("sub/large") && !has_raw("config"));
	how.only = "sub/*"; // by one of its names a file is wanted
	ck_ok(ckpt_warm(step, &how, &done));
	ck_assert(done.files == 1 && has_raw("config") && has_raw("sub/link") && !has_raw("twin"));
	check_all();
	how.only = "nothing";
	ck_ok(ckpt_warm(step, &how, &done));
	ck_assert_uint_eq(done.files, 0);
}
END_TEST

START_TEST(a_step_with_damaged_packs_stays_cold)
{
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	version = step->version->is.version;
	damage_packs(49);
	drop_cache();
	ck_error(ckpt_warm(step, &plain, &done), EIO);
	ck_assert(step->version->is.packed && step->version->is.version == version);
	ck_assert(!has_raw("sub/large"));
	ck_assert_uint_eq(ckpt_save_errors(s, "its files could not be read from packs"), 1);
	damage_packs(49);
	ck_ok(ckpt_warm(step, &plain, &done));
	check_all();
}
END_TEST

// What a crash left under its name is not taken for it.
START_TEST(a_raw_file_that_was_left_is_replaced)
{
	char raw[PATH_MAX];

	ck_ok(ckpt_cool(step, &plain, &done));
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	{
		CLEANUP_FD int fd = openat(s->sessions_fd, raw, O_RDWR | O_CREAT | O_EXCL, 0600);

		ck_assert_int_eq(pwrite(fd, "left", 4, 0), 4);
	}
	ckpt_staged_check(step, "config", "text");
	ck_ok(ckpt_warm(step, &plain, &done));
	ckpt_staged_check(step, "config", "text");
}
END_TEST

START_TEST(the_last_good_copy_stays_beside_a_damaged_pack)
{
	CLEANUP_FD int fd = -1;
	char raw[PATH_MAX];

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &plain, &done));
	damage_packs(33); // the chunk of config and twin
	drop_cache();
	snprintf(raw, sizeof(raw), "%s/twin", step->session);
	fd = openat(s->sessions_fd, raw, O_RDWR);
	ck_assert_int_eq(pwrite(fd, "t", 1, 0), 1); // neither is it believed
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	ck_ok(unlinkat(s->sessions_fd, raw, 0));
	snprintf(raw, sizeof(raw), "%s/sub/link", step->session);
	ck_ok(unlinkat(s->sessions_fd, raw, 0));
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(has_raw("twin") && !has_raw("sub/large"));
	check_large();
}
END_TEST

// Of config, by whatever stands in its place.
static void check_beside(void (*spoil)(const char *raw))
{
	char raw[PATH_MAX];

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &plain, &done));
	snprintf(raw, sizeof(raw), "%s/config", step->session);
	spoil(raw);
	check_all();
	drop_cache();
	check_all();
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_assert(done.files == 1 && ckpt_packed_is_raw(step, "config") && ckpt_packed_is_raw(step, "sub/link"));
	check_all();
	ck_assert_uint_eq(ckpt_save_errors(s, ""), 0);
}

static void remove_raw(const char *raw)
{
	ck_ok(unlinkat(s->sessions_fd, raw, 0));
}

static void cut_raw(const char *raw)
{
	CLEANUP_FD int fd = openat(s->sessions_fd, raw, O_RDWR);

	ck_ok(ftruncate(fd, 3));
}

static void put_another(const char *raw, mode_t type)
{
	remove_raw(raw);
	ck_ok(mknodat(s->sessions_fd, raw, type | 0644, 0));
}

static void replace_raw(const char *raw)
{
	CLEANUP_FD int fd = -1;

	put_another(raw, S_IFREG);
	fd = openat(s->sessions_fd, raw, O_RDWR);
	ck_assert_int_eq(pwrite(fd, "TEXT", 4, 0), 4);
}

static void put_fifo(const char *raw)
{
	put_another(raw, S_IFIFO);
}

START_TEST(packs_stand_in_for_a_raw_file_that_is_gone_or_another)
{
	check_beside(remove_raw);
	check_beside(cut_raw);
	check_beside(replace_raw);
	check_beside(put_fifo);
}
END_TEST

START_TEST(a_raw_file_of_a_step_without_packs_is_not_missed_silently)
{
	char raw[PATH_MAX], there[8];
	struct ckpt_manifest *m = manifest();
	uint32_t index;

	snprintf(raw, sizeof(raw), "%s/twin", step->session);
	remove_raw(raw);
	ck_ok(ckpt_manifest_lookup(m, "twin", &index));
	ck_error((int)ckpt_staged_read(step, m, index, there, sizeof(there)), EIO);
	ckpt_manifest_unref(m);
}
END_TEST

START_TEST(for_a_day_a_step_stays_warm_across_restarts)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert_int_eq(ckpt_warm_left_ns(step), 0);
	ck_ok(ckpt_warm(step, &plain, &done));
	drop_cache();
	ck_assert_int_gt(ckpt_warm_left_ns(step), CKPT_WARM_NS - INT64_C(3600000000000));
	ck_assert_int_le(ckpt_warm_left_ns(step), CKPT_WARM_NS);
	ck_ok(ckpt_cool(step, &plain, &done)); // by who asks for it
	ck_assert_int_eq(ckpt_warm_left_ns(step), 0);
	ck_assert(!has_raw("sub/large"));
}
END_TEST

// The simulated disk keeps all that is written in memory: this step has small files, in two directories.
static void cool_small(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	close(ckpt_staged_put(step, "config", "text"));
	close(ckpt_staged_put(step, "sub/model", "weights"));
	ck_ok(ckpt_sys.link(step->dirfd, "sub/model", step->dirfd, "sub/link"));
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &plain, &done));
}

// A name that is there is that of the whole file. The simulated disk has no times, and a raw file without its own is not read.
static void check_raw(struct ckpt_step *found, const char *path, const char *text, bool must)
{
	char raw[CKPT_RAW_PATH_MAX], there[16];
	CLEANUP_FD int fd = -1;

	snprintf(raw, sizeof(raw), "%s/%s", found->session, path);
	fd = openat(found->store->sessions_fd, raw, O_RDONLY);
	ck_assert(fd >= 0 || !must);
	if (fd < 0)
		return;
	ck_assert_int_eq(read(fd, there, sizeof(there)), strlen(text));
	ck_assert_mem_eq(there, text, strlen(text));
	ck_assert_int_gt(ckpt_warm_left_ns(found), 0);
}

static void check_small(const char *where, bool warmed)
{
	struct ckpt_store *there;
	struct ckpt_step *found;

	ck_ok(ckpt_store_open(where, CKPT_STORE_WRITE, NULL, &there));
	found = ckpt_step_find(there, "", "1000");
	ck_assert_ptr_nonnull(found);
	check_raw(found, "config", "text", warmed);
	check_raw(found, "sub/model", "weights", warmed);
	check_raw(found, "sub/link", "weights", warmed);
	ckpt_staged_check(found, "config", "text");
	ckpt_staged_check(found, "sub/model", "weights");
	ckpt_staged_check(found, "sub/link", "weights");
	ckpt_step_unref(found);
	ckpt_store_close(there);
}

START_TEST(a_warmed_file_is_on_disk_before_it_has_its_name)
{
	struct ckpt_disk *disk;
	char out[PATH_MAX];

	cool_small();
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	ck_ok(ckpt_warm(step, &plain, &done));
	ckpt_disk_end(disk);
	ckpt_step_unref(step);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned seed = 0; seed < 8; seed++) {
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			check_small(out, point == ckpt_disk_count(disk));
			ckpt_temp_empty(out, false);
		}
	ckpt_disk_free(disk);
	ckpt_fixture_close();
}
END_TEST

// --- Changes ------------------------------------------------------------------------------------------------------------

START_TEST(a_cold_step_that_is_reopened_keeps_its_numbers)
{
	struct ckpt_step *now;
	struct ckpt_entry was = entry("sub/large"), is;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_reopen(step, &now));
	ck_assert(has_raw("sub/large"));
	ck_ok(ckpt_sys.unlink(now->dirfd, "twin", 0));
	ck_ok(ckpt_commit(now, &ckpt_staged_plain));
	ckpt_step_unref(step);
	step = now;
	is = entry("sub/large");
	ck_assert_uint_eq(is.ino, was.ino);
	check_large();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cool");
	TCase *cool = tcase_create("cool"), *reading = tcase_create("reading"), *warm = tcase_create("warm"),
	      *power = tcase_create("power");

	tcase_add_checked_fixture(cool, setup, teardown);
	tcase_add_test(cool, the_bytes_are_in_packs_and_the_raw_files_are_gone);
	tcase_add_test(cool, clients_see_nothing_of_it);
	tcase_add_test(cool, a_cold_step_is_not_cooled_again);
	tcase_add_test(cool, a_step_that_is_not_sealed_stays_raw);
	tcase_add_test(cool, packs_have_about_the_size_that_is_asked_for);
	tcase_add_test(cool, who_is_told_to_stop_changes_nothing);
	tcase_add_test(cool, who_is_told_to_stop_leaves_raw_files_to_the_next_cooling);
	tcase_add_test(cool, what_is_added_meanwhile_stays_raw);
	tcase_add_test(cool, a_step_that_is_being_removed_is_left_alone);
	tcase_add_test(cool, packs_of_a_step_that_is_removed_meanwhile_go_with_the_garbage);
	tcase_add_test(cool, a_raw_file_that_is_damaged_stays_and_is_told);
	suite_add_tcase(suite, cool);
	tcase_add_checked_fixture(reading, setup, teardown);
	tcase_add_test(reading, who_has_the_version_of_before_finds_the_bytes);
	tcase_add_test(reading, what_was_opened_stays_readable);
	tcase_add_test(reading, any_place_of_a_cold_file_can_be_read);
	tcase_add_test(reading, damaged_packs_give_an_error_and_never_bytes);
	tcase_add_test(reading, missing_packs_give_an_error);
	tcase_add_test(reading, who_has_a_cold_file_open_finds_it_once_it_is_warm_and_its_packs_are_gone);
	suite_add_tcase(suite, reading);
	tcase_add_checked_fixture(warm, setup, teardown);
	tcase_add_test(warm, warming_brings_the_raw_files_back_as_they_were);
	tcase_add_test(warm, a_warm_step_is_cooled_without_a_new_pack_or_version);
	tcase_add_test(warm, a_warm_step_whose_pack_is_damaged_is_packed_anew);
	tcase_add_test(warm, only_some_files_are_warmed);
	tcase_add_test(warm, a_step_with_damaged_packs_stays_cold);
	tcase_add_test(warm, a_raw_file_that_was_left_is_replaced);
	tcase_add_test(warm, the_last_good_copy_stays_beside_a_damaged_pack);
	tcase_add_test(warm, packs_stand_in_for_a_raw_file_that_is_gone_or_another);
	tcase_add_test(warm, a_raw_file_of_a_step_without_packs_is_not_missed_silently);
	tcase_add_test(warm, for_a_day_a_step_stays_warm_across_restarts);
	tcase_add_test(warm, a_cold_step_that_is_reopened_keeps_its_numbers);
	suite_add_tcase(suite, warm);
	tcase_add_test(power, a_warmed_file_is_on_disk_before_it_has_its_name);
	suite_add_tcase(suite, power);
	return ckpt_suite_run(suite);
}

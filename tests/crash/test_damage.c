// Whatever a disk or somebody does to the files that say what a store holds, and to its packs: each byte of them changed, each
// length cut off. Then the store is opened, listed, and all of it read. A step is as it was; or what was damaged of it is an error for
// who asks; or it is as one of its versions before, or not there, and then the error log names it. Steps whose files were not touched are as they were; and what
// is done to the index costs nothing at all. Nothing that was opened in this state is worse off once the file is back.
#include "core/step/amending.h"
#include "core/store/open.h"
#include "tests/support/packed.h"
#include "tests/support/rows.h"
#include "tests/support/save.h"
#include "tests/support/staged.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#define BYTES_MAX (1u << 20)
#define STEPS_MAX 8
#define STATES_MAX 8
#define FILES_MAX 48
#define COLD "50"        // the only step with packs
#define UNREAD " error " // instead of the bytes
#define UNREAD_EIO UNREAD "-5"
#define SHOWN (1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED)

// A step, and how it was after each act: as a text with all that can be seen of it.
struct history {
	char name[CKPT_NAME_MAX + 1];
	char *states[STATES_MAX]; // the last is how it is
	size_t count;
};

struct file {
	char path[PATH_MAX]; // below the store
	uint8_t *data;
	size_t len;
	struct timespec mtime;
	char step[CKPT_NAME_MAX + 1]; // of an entry: whose act it is
};

static char dir[PATH_MAX];
static struct history steps[STEPS_MAX];
static size_t step_count;
static struct file files[FILES_MAX];
static size_t file_count;
static bool full, all; // all (CKPT_TEST_LONG=1): each byte of the large files, too, and not one in so many

// --- What can be seen -------------------------------------------------------------------------------------------------

// Whether they can be read.
static bool describe_bytes(FILE *out, struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	uint8_t digest[CKPT_SHA256_LEN], data[16384];
	char hex[CKPT_SHA256_HEX_LEN + 1];
	ssize_t n = ckpt_staged_read(step, m, e->index, data, sizeof(data));

	if (n < 0) {
		fprintf(out, UNREAD "%zd", n);
		return false;
	}
	ck_assert(n < (ssize_t)sizeof(data));
	ckpt_sha256(data, (size_t)n, digest);
	ckpt_hex(digest, sizeof(digest), hex);
	fprintf(out, " %zd %s", n, hex);
	return true;
}

static bool describe_entry(FILE *out, struct ckpt_step *step, struct ckpt_manifest *m, uint32_t i)
{
	char path[4096];
	const char *name;
	const void *value;
	struct ckpt_entry e;
	size_t len;
	bool whole = true;

	ckpt_manifest_entry(m, i, &e);
	ck_ok(ckpt_manifest_path(m, i, path, sizeof(path)));
	fprintf(out, "  '%s' %d %o %u %u %u %llu %llu %lld.%u %s", path, e.type, e.mode, e.uid, e.gid, e.nlink,
		(unsigned long long)e.ino, (unsigned long long)e.bytes, (long long)e.mtime_s, e.mtime_ns,
		e.target ? e.target : "");
	for (uint32_t x = 0; ckpt_manifest_xattr(m, &e, x, &name, &value, &len); x++)
		fprintf(out, " %s=%.*s", name, (int)len, (const char *)value);
	if (e.type == CKPT_ENTRY_FILE)
		whole = describe_bytes(out, step, m, &e);
	fputc('\n', out);
	return whole;
}

// The state of a step, which it is when all can be read; *ret_whole: it can.
static char *describe(struct ckpt_step *step, bool *ret_whole)
{
	struct ckpt_summary s = step->version->is;
	struct ckpt_manifest *m;
	struct ckpt_record r;
	char *text;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	bool whole = true;
	int manifest = ckpt_step_manifest(step, &m), record = ckpt_step_record(step, s.version, &r);

	ck_assert_ptr_nonnull(out);
	if (step->deleted_by) { // where its last version cannot be read, these are those of the deletion
		s.version = 0;
		s.committed_ns = 0;
	}
	fprintf(out, "%s %s v%u of %s, %lld files, %lld bytes, at %lld %lld, mode %o, pinned %d, deleted by %u\n",
		s.folder_id, s.name, s.version, s.session, (long long)s.files, (long long)s.bytes,
		(long long)s.committed_ns, (long long)s.first_committed_ns, s.dir_mode, s.pinned, step->deleted_by);
	if (!record) {
		fprintf(out, "  metadata %s\n", r.metadata ? r.metadata : "none");
		ckpt_record_done(&r);
	}
	for (uint32_t i = 0; !manifest && i < ckpt_manifest_count(m); i++)
		whole &= describe_entry(out, step, m, i);
	if (!manifest)
		ckpt_manifest_unref(m);
	fclose(out);
	*ret_whole = whole && !manifest && !record;
	return text;
}

// --- The store --------------------------------------------------------------------------------------------------------

static struct history *history_of(const char *name)
{
	for (size_t i = 0; i < step_count; i++)
		if (!strcmp(steps[i].name, name))
			return &steps[i];
	return NULL;
}

// Remembers how each step is now.
static void note(struct ckpt_store *s)
{
	struct ckpt_step **list;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, SHOWN, &list, &count));
	for (size_t i = 0; i < count; i++) {
		struct history *h = history_of(list[i]->version->is.name);
		bool whole;
		char *state = describe(list[i], &whole);

		if (!h) {
			h = &steps[step_count++];
			snprintf(h->name, sizeof(h->name), "%s", list[i]->version->is.name);
		}
		ck_assert(whole && h->count < STATES_MAX && step_count <= STEPS_MAX);
		if (h->count && !strcmp(h->states[h->count - 1], state))
			free(state);
		else
			h->states[h->count++] = state;
	}
	ckpt_step_list_free(list, count);
}

static struct ckpt_step *save(struct ckpt_store *s, const char *name, const char *metadata)
{
	struct ckpt_step *step = ckpt_staged_begin(s, name);

	close(ckpt_staged_put(step, "model", name));
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0750));
	close(ckpt_staged_put(step, "sub/a", "a"));
	ck_ok(ckpt_sys.symlink("a", step->dirfd, "sub/link"));
	ck_ok(ckpt_staged_commit(step, 0, metadata));
	note(s);
	return step;
}

static void amend(struct ckpt_store *s, struct ckpt_step *step)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(s->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	int fd;

	fd = ckpt_sys.open(dirfd, "late", O_RDWR | O_CREAT | O_EXCL, 0600);
	ck_ok(fd);
	ck_ok(ckpt_sys.pwrite(fd, "later", 5, 0));
	close(fd);
	ck_ok(ckpt_amending_begin(step, "late", NULL));
	ck_ok(ckpt_amend_add(step, "late"));
	ckpt_amending_forget(step, "late");
	note(s);
}

// What is in packs, after each of its versions: bytes that become smaller, and such as do not.
static void save_cold(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_staged_begin(s, COLD);
	char text[256] = {0};

	memset(text, 'x', sizeof(text) - 1);
	close(ckpt_staged_put(step, "same", text));
	for (size_t i = 0; i < sizeof(text) - 1; i++)
		text[i] = (char)('!' + (i * i * 7 + i * 13) % 89);
	close(ckpt_staged_put(step, "noise", text));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	note(s);
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	note(s);
	ck_ok(ckpt_cool(step, &(struct ckpt_tier_how){.pack_bytes = CKPT_PACK_BYTES_MAX}, &(struct ckpt_tier_done){0}));
	ck_assert(step->version->is.packed);
	note(s);
	ckpt_step_unref(step);
}

static int keep_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	struct file *f = &files[file_count];
	CLEANUP_FD int fd = -1;

	(void)ftw;
	if (type != FTW_F)
		return 0;
	ck_assert_uint_lt(file_count, FILES_MAX);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	*f = (struct file){.len = (size_t)st->st_size, .mtime = st->st_mtim, .data = malloc((size_t)st->st_size + 1)};
	ck_assert(fd >= 0 && f->data && pread(fd, f->data, f->len, 0) == (ssize_t)f->len && f->len < BYTES_MAX);
	snprintf(f->path, sizeof(f->path), "%s", path + strlen(dir) + 1);
	file_count++;
	return 0;
}

// Each entry here is one act.
static void name_entry(struct ckpt_store *s, struct file *f)
{
	char session[CKPT_UUID_LEN + 1];
	struct ckpt_log_entry entry;
	struct ckpt_operation op;
	struct ckpt_said said;
	struct ckpt_record r;
	struct ckpt_act act;
	size_t cursor = 0;

	ck_ok(ckpt_log_entry_decode(f->data, f->len, &entry));
	ck_assert_uint_eq(entry.count, 1);
	ck_assert(ckpt_log_entry_next(&entry, &cursor, &op));
	ck_ok(ckpt_act_decode(op.kind, op.body, op.len, &act));
	memcpy(session, act.step, sizeof(session));
	if (ckpt_act_has_record(act.kind)) {
		ck_ok(ckpt_record_decode(act.record, act.record_len, &r));
		memcpy(session, r.summary.session, sizeof(session));
		ckpt_record_done(&r);
	}
	ck_ok(ckpt_step_said(s, session, &said));
	memcpy(f->step, said.is.name, sizeof(f->step));
}

static void keep_files(const char *below)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/%s", PATH_MAX - 64, dir, below);
	ck_assert_int_eq(nftw(path, keep_file, 8, FTW_PHYS), 0);
}

// Steps with two versions, with a manifest of its own, with metadata, amended, deleted, deleted and had back, in packs.
static void setup(void)
{
	struct ckpt_store *s;
	struct ckpt_step *step;

	full = getenv("CKPT_TEST_FULL");
	all = getenv("CKPT_TEST_LONG");
	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	step = ckpt_save_one(s, CKPT_SAVE_LARGE);
	note(s);
	ck_ok(ckpt_save_metadata(step, CKPT_SAVE_LARGE));
	note(s);
	ckpt_step_unref(step);
	step = save(s, "10", "{\"metrics\":{\"loss\":0.5}}");
	amend(s, step);
	ckpt_step_unref(step);
	step = save(s, "20", NULL);
	ck_ok(ckpt_delete(step));
	note(s);
	ckpt_step_unref(step);
	step = save(s, "30", NULL);
	ck_ok(ckpt_delete(step));
	note(s);
	ck_ok(ckpt_undelete(step));
	note(s);
	ckpt_step_unref(step);
	ckpt_step_unref(save(s, "40", NULL));
	save_cold(s);
	keep_files("log");
	for (size_t i = 0; i < file_count; i++)
		name_entry(s, &files[i]);
	ckpt_store_close(s);
	keep_files("m");
	keep_files("packs");
	keep_files("store.json");
	keep_files("index");
}

static void teardown(void)
{
	for (size_t i = 0; i < step_count; i++)
		while (steps[i].count)
			free(steps[i].states[--steps[i].count]);
	while (file_count)
		free(files[--file_count].data);
}

// --- Damage -----------------------------------------------------------------------------------------------------------

// The file as it was, or otherwise: its times stay, as those of a block that the disk has lost, or are new.
static void put(const struct file *f, const uint8_t *data, size_t len, bool keep_times)
{
	struct timespec times[2] = {f->mtime, f->mtime};
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%.*s/%.*s", PATH_MAX / 2, dir, PATH_MAX / 2 - 2, f->path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_msg(fd >= 0 && write(fd, data, len) == (ssize_t)len, "%s", path);
	if (keep_times)
		ck_assert_int_eq(futimens(fd, times), 0);
	close(fd);
}

static void put_back(const struct file *f)
{
	put(f, f->data, f->len, true);
}

static void remove_index(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/index", PATH_MAX - 8, dir);
	ckpt_temp_empty(path, 1);
}

static void put_index_back(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/index", PATH_MAX - 8, dir);
	ckpt_temp_empty(path, 1);
	ck_ok(mkdir(path, 0700));
	for (size_t i = 0; i < file_count; i++)
		if (!strncmp(files[i].path, "index/", 6))
			put_back(&files[i]);
}

// --- What must hold ---------------------------------------------------------------------------------------------------

// The step that a file below log/, m/ or packs/ is of; NULL: of all.
static const char *step_of(const struct file *f)
{
	if (!strncmp(f->path, "m/", 2))
		return ckpt_save_steps[CKPT_SAVE_LARGE].name;
	if (!strncmp(f->path, "packs/", strlen("packs/")))
		return COLD;
	return strncmp(f->path, "log/", strlen("log/")) ? NULL : f->step;
}

static bool was_once(const struct history *h, const char *state)
{
	for (size_t i = 0; i < h->count; i++)
		if (!strcmp(h->states[i], state))
			return true;
	return false;
}

// Some of it cannot be read, which who asks is told: all else is what it was once.
static bool is_part_of(const struct history *h, const char *state)
{
	CLEANUP_FREE char *copy = strdup(state);
	bool is = copy;

	for (char *save = NULL, *line = strtok_r(copy, "\n", &save); line && is; line = strtok_r(NULL, "\n", &save)) {
		char *unread = strstr(line, UNREAD);

		if (unread) {
			if (strcmp(unread, UNREAD_EIO) || strcmp(h->name, COLD))
				return false;
			*unread = '\0';
		}
		is = false;
		for (size_t i = 0; i < h->count; i++)
			is |= strstr(h->states[i], line) != NULL;
	}
	return is;
}

// Which entry it is; nobody knows what it said.
static bool is_told(struct ckpt_store *s)
{
	return ckpt_save_errors(s, "an entry of the log is damaged") ||
	       ckpt_save_errors(s, "the copy of its record is damaged");
}

// damaged: the only step that may be not as it was; NULL: each may; "": none.
static void check_steps(struct ckpt_store *s, const char *damaged, const char *what)
{
	bool seen[STEPS_MAX] = {0};
	struct ckpt_step **list;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, SHOWN, &list, &count));
	for (size_t i = 0; i < count; i++) {
		struct history *h = history_of(list[i]->version->is.name);
		bool whole, may = !damaged || (h && !strcmp(h->name, damaged));
		char *state = describe(list[i], &whole);

		ck_assert_msg(h, "%s: a step that nobody saved:\n%s", what, state);
		seen[h - steps] = true;
		if (whole && !strcmp(state, h->states[h->count - 1])) {
			free(state);
			continue;
		}
		ck_assert_msg(may && (whole ? was_once(h, state) : is_part_of(h, state)),
			      "%s: %s is now\n%s\nand was\n%s", what, h->name, state, h->states[h->count - 1]);
		ck_assert_msg(!whole || is_told(s), "%s: nothing is said of %s", what, h->name);
		free(state);
	}
	ckpt_step_list_free(list, count);
	for (size_t i = 0; i < step_count; i++)
		ck_assert_msg(seen[i] || ((!damaged || !strcmp(steps[i].name, damaged)) && is_told(s)),
			      "%s: %s is gone, and nothing is said of it", what, steps[i].name);
}

static void check(enum ckpt_store_mode mode, const char *damaged, const char *what)
{
	struct ckpt_store *s;
	int rc = ckpt_store_open(dir, mode, NULL, &s);

	ck_assert_msg(!rc, "%s: %s", what, strerror(-rc));
	check_steps(s, damaged, what);
	ckpt_store_close(s);
}

// --- Sweeps -----------------------------------------------------------------------------------------------------------

// Calls fn for each damage: every stride-th byte changed in one way or two, and every stride-th length.
static void sweep(const struct file *f, size_t stride, void (*fn)(const struct file *f, const char *what))
{
	static const uint8_t masks[] = {0x01, 0x80, 0xff, 0x20};
	CLEANUP_FREE uint8_t *copy = malloc(f->len + 1);
	char what[PATH_MAX + 64];

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, f->data, f->len);
	for (size_t at = 0; at < f->len; at += stride)
		for (size_t k = 0; k < (full ? 2 : 1); k++) {
			uint8_t mask = masks[(at / stride + k) % ARRAY_LEN(masks)];

			copy[at] ^= mask;
			put(f, copy, f->len, at / stride % 2);
			copy[at] ^= mask;
			snprintf(what, sizeof(what), "byte %zu of %s changed by %02x", at, f->path, mask);
			fn(f, what);
		}
	for (size_t len = 0; len < f->len; len += stride) {
		put(f, f->data, len, len / stride % 2);
		snprintf(what, sizeof(what), "%s cut to %zu bytes", f->path, len);
		fn(f, what);
	}
	put_back(f);
}

static void check_without_index(const struct file *f, const char *what)
{
	check(CKPT_STORE_READ, step_of(f), what);
}

static void each_below(const char *prefix, size_t stride, void (*fn)(const struct file *f, const char *what))
{
	size_t found = 0;

	for (size_t i = 0; i < file_count; i++)
		if (!strncmp(files[i].path, prefix, strlen(prefix))) {
			sweep(&files[i], stride, fn);
			found++;
		}
	ck_assert_uint_gt(found, 0);
}

START_TEST(any_damage_to_an_entry_costs_its_step_at_most)
{
	remove_index();
	check(CKPT_STORE_READ, "", "untouched");
	each_below("log/", full ? 1 : 3, check_without_index);
	check(CKPT_STORE_READ, "", "afterwards");
}
END_TEST

START_TEST(any_damage_to_a_manifest_costs_its_step_at_most)
{
	remove_index();
	each_below("m/", all ? 1 : full ? 7 : 499, check_without_index);
	check(CKPT_STORE_READ, "", "afterwards");
}
END_TEST

// The index may still know what the record said.
static void check_with_index(const struct file *f, const char *what)
{
	check(CKPT_STORE_READ, step_of(f), what);
}

START_TEST(an_index_does_not_hide_or_spread_the_damage)
{
	check(CKPT_STORE_READ, "", "untouched");
	each_below("log/", full ? 3 : 31, check_with_index);
	each_below("m/", full ? 97 : 4999, check_with_index);
}
END_TEST

// And who looks for it finds it.
static void check_pack(const struct file *f, const char *what)
{
	struct ckpt_pack pack = {.bytes = f->len};
	struct ckpt_chunk bad;
	struct ckpt_store *s;
	int rc;

	check(CKPT_STORE_READ, step_of(f), what);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	ck_assert(ckpt_pack_of_key(f->path, pack.id));
	rc = ckpt_pack_check(s->objects, &pack, &bad);
	ck_assert_msg(rc == -EBADMSG || rc == -ENOTSUP, "%s: is not found: %d", what, rc); // or it seems to be newer
	ckpt_store_close(s);
}

START_TEST(any_damage_to_a_pack_is_found_and_costs_its_step_at_most)
{
	each_below("packs/", full ? 1 : 3, check_pack);
	check(CKPT_STORE_READ, "", "afterwards");
}
END_TEST

// A deleted step of which something cannot be read is not listed again.
static void try_undelete(struct ckpt_store *s, const char *what)
{
	struct ckpt_step **list;
	size_t count;

	ck_ok(ckpt_deleted_list(s, &list, &count));
	for (size_t i = 0; i < count; i++) {
		bool whole;

		free(describe(list[i], &whole));
		ck_assert_msg(whole || ckpt_undelete(list[i]), "%s: had back, though not whole", what);
	}
	ckpt_step_list_free(list, count);
}

// Who opens it for writing changes nothing that the right bytes would not find again.
static void check_writer(const struct file *f, const char *what)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	check_steps(s, step_of(f), what);
	try_undelete(s, what);
	ckpt_store_close(s);
	put_back(f);
	check(CKPT_STORE_WRITE, "", what);
}

// Nothing is written behind a damaged entry.
static void check_refused(const struct file *f, const char *what)
{
	struct ckpt_store *s;
	int rc = ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s);

	ck_assert_msg(rc == -EUCLEAN || rc == -ENOTSUP, "%s: %d", what, rc);
	put_back(f);
	check(CKPT_STORE_WRITE, "", what);
}

// On a human's word it goes on without what that entry said.
static void check_repaired(const char *what)
{
	struct ckpt_store *s;
	int rc = ckpt_store_open(dir, CKPT_STORE_REPAIR, NULL, &s);

	ck_assert_msg(!rc || rc == -ENOTSUP, "%s: %d", what, rc);
	if (!rc) {
		check_steps(s, "", what); // the copies of the records have said it again
		ckpt_step_unref(ckpt_staged_one(s, "60", "file", "behind it"));
		ckpt_store_close(s);
		s = ckpt_save_open(dir);
		ck_assert_uint_eq(ckpt_save_errors(s, "is damaged"), 1); // told once
		ckpt_step_unref(ckpt_step_find(s, "", "60"));
		ckpt_store_close(s);
	}
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	return type == FTW_F ? unlink(path) : 0;
}

static void remove_log(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/log", PATH_MAX - 8, dir);
	ck_assert_int_eq(nftw(path, remove_entry, 8, FTW_PHYS), 0);
}

// Nobody takes it for a new store.
START_TEST(a_log_that_is_gone_is_written_again_from_the_copies)
{
	struct ckpt_store *s;

	remove_log();
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), EUCLEAN);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_REPAIR, NULL, &s));
	check_steps(s, "", "salvaged");
	ckpt_store_close(s);
	check(CKPT_STORE_WRITE, "", "salvaged");
}
END_TEST

// A file that is no copy of this step's record.
static void harm_copy(int how, const char *path, const char *of_another)
{
	static const off_t lengths[] = {0, 100, CKPT_RECORD_BYTES_MAX + 1};
	int others = how - (int)ARRAY_LEN(lengths);

	if (others < 0) {
		ck_assert_int_eq(truncate(path, lengths[how]), 0);
		return;
	}
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(others ? link(of_another, path) : symlink("/etc/passwd", path), 0);
}

// It says nothing, and the others say theirs.
START_TEST(a_copy_that_is_none_is_not_salvaged)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	struct ckpt_step *harmed = save(s, "70", NULL), *whole = save(s, "80", NULL);
	char paths[2][PATH_MAX];

	snprintf(paths[0], PATH_MAX, "%.*s/records/%s", PATH_MAX - 64, dir, harmed->session);
	snprintf(paths[1], PATH_MAX, "%.*s/records/%s", PATH_MAX - 64, dir, whole->session);
	ckpt_step_unref(harmed);
	ckpt_step_unref(whole);
	ckpt_store_close(s);
	harm_copy(_i, paths[0], paths[1]);
	remove_log();
	ck_ok(ckpt_store_open(dir, CKPT_STORE_REPAIR, NULL, &s));
	check_steps(s, "70", "salvaged");
	ck_assert_uint_eq(ckpt_save_errors(s, "the copy of its record is damaged"), 1);
	whole = ckpt_step_find(s, "", "80");
	ck_assert_ptr_nonnull(whole);
	ckpt_step_unref(whole);
	ckpt_store_close(s);
}
END_TEST

// The last entry leaves none behind it, by which it would be missed: the copy of its record tells.
START_TEST(a_last_entry_that_is_gone_is_missed)
{
	struct ckpt_store *s;
	struct ckpt_step *step;
	struct ckpt_said said;
	char key[CKPT_LOG_KEY_MAX], path[PATH_MAX];

	s = ckpt_save_open(dir);
	step = save(s, "70", NULL);
	ckpt_log_key(ckpt_journal_position(s->journal).seq, key);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	snprintf(path, sizeof(path), "%.*s/%s", PATH_MAX - 64, dir, key);
	ck_assert_int_eq(unlink(path), 0);
	ck_error(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s), EUCLEAN);
	ck_ok(ckpt_store_open(dir, CKPT_STORE_REPAIR, NULL, &s));
	check_steps(s, "", "salvaged");
	step = ckpt_step_find(s, "", "70");
	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_step_said(s, step->session, &said));
	ck_assert_uint_eq(said.is.version, 1);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}
END_TEST

START_TEST(a_log_that_is_damaged_goes_on_when_it_is_repaired)
{
	struct file *f = &files[_i];
	size_t at = f->len / 2;

	ck_assert(!strncmp(f->path, "log/", 4));
	f->data[at] ^= 1;
	put(f, f->data, f->len, true);
	check_repaired("repaired");
}
END_TEST

START_TEST(what_is_brought_back_is_whole_again)
{
	each_below("log/", full ? 11 : 173, check_refused);
	each_below("m/", full ? 997 : 19997, check_writer);
}
END_TEST

// It says which store this is: then there may be none, or another, whose records these are not.
static void check_identity(const struct file *f, const char *what)
{
	for (int mode = 0; mode < 2; mode++) {
		struct ckpt_store *s;
		int rc = ckpt_store_open(dir, mode ? CKPT_STORE_WRITE : CKPT_STORE_READ, NULL, &s);

		ck_assert_msg(!rc || rc == -EBADMSG || rc == -EUCLEAN || rc == -ENOTSUP || rc == -EMEDIUMTYPE, "%s: %d",
			      what, rc);
		if (rc)
			continue;
		check_steps(s, NULL, what);
		ckpt_store_close(s);
	}
	put_back(f);
	put_index_back();
}

START_TEST(any_damage_to_the_identity_is_an_error_or_harmless)
{
	each_below("store.json", full ? 1 : 2, check_identity);
	check(CKPT_STORE_WRITE, "", "afterwards");
}
END_TEST

static void check_reader_of_index(const struct file *f, const char *what)
{
	(void)f;
	check(CKPT_STORE_READ, "", what);
}

static void check_writer_of_index(const struct file *f, const char *what)
{
	(void)f;
	check(CKPT_STORE_WRITE, "", what);
	put_index_back();
}

START_TEST(any_damage_to_the_index_costs_nothing_for_who_reads)
{
	each_below("index/data.mdb", all ? 1 : full ? 29 : 307, check_reader_of_index);
}
END_TEST

START_TEST(any_damage_to_the_index_costs_nothing_for_who_writes)
{
	each_below("index/data.mdb", full ? 97 : 911, check_writer_of_index);
	each_below("index/lock.mdb", full ? 127 : 1021, check_writer_of_index);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("damage");
	TCase *t = tcase_create("damage");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, any_damage_to_an_entry_costs_its_step_at_most);
	tcase_add_test(t, any_damage_to_a_manifest_costs_its_step_at_most);
	tcase_add_test(t, an_index_does_not_hide_or_spread_the_damage);
	tcase_add_test(t, any_damage_to_a_pack_is_found_and_costs_its_step_at_most);
	tcase_add_test(t, what_is_brought_back_is_whole_again);
	tcase_add_loop_test(t, a_log_that_is_damaged_goes_on_when_it_is_repaired, 0, 12);
	tcase_add_test(t, a_log_that_is_gone_is_written_again_from_the_copies);
	tcase_add_test(t, a_last_entry_that_is_gone_is_missed);
	tcase_add_test(t, any_damage_to_the_identity_is_an_error_or_harmless);
	tcase_add_test(t, any_damage_to_the_index_costs_nothing_for_who_reads);
	tcase_add_test(t, any_damage_to_the_index_costs_nothing_for_who_writes);
	suite_add_tcase(s, t);
	t = tcase_create("copies");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_copy_that_is_none_is_not_salvaged, 0, 5);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}

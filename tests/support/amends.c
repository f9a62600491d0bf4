#include "tests/support/amends.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/save/amend.h"
#include "core/save/amend_move.h"
#include "core/save/change.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/store/open.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"
#include "tests/support/save.h"
#include "tests/support/staged.h"

#include <fcntl.h>
#include <stdio.h>

#define NAME "1000"
#define AGAIN ".again-1"
#define TICK_NS 10000000
#define END CKPT_AMEND_ACTS + 1

enum kind { ADD_FILE, ADD_DIR, ADD_LINK, ADD_OVER, REPLACE, REMOVE, MOVE, LINK, CHMOD, SEAL, COOL };

// After so many acts.
enum {
	SEALED_FIRST = 6,
	UNSEALED = 9,
	SEALED_AGAIN = 11,
	COOLED = 12,
	UNSEALED_AGAIN = 13,
	CHMODDED = 14,
	MOVED = 15,
	MOVED_OVER = 16,
	FOLDER_MOVED = 17,
	LINKED = 18,
	MOVED_IN = 19
};

#define MODE 0604 // after that, of what has another before

static const struct {
	enum kind kind;
	const char *path, *text;
} acts[CKPT_AMEND_ACTS] = {
	{ADD_FILE, "late", "late"},   {ADD_DIR, "more", NULL},    {ADD_FILE, "more/x", "deep"},
	{ADD_LINK, "more/link", "x"}, {REPLACE, "late", "later"}, {SEAL, "", NULL},
	{REMOVE, "more", NULL},       {REMOVE, "config", NULL},   {ADD_FILE, "config", "new"},
	{ADD_FILE, "sub/empty", ""},  {SEAL, "", NULL},           {COOL, "", NULL},
	{ADD_FILE, "cold", "late"},   {CHMOD, "model", NULL},     {MOVE, "sub/a", "a"},
	{MOVE, "late", "config"},     {MOVE, "sub", "folder"},    {LINK, "model", "model2"},
	{ADD_OVER, "a", "over"},
};

// What the step has from one act on and until another.
static const struct {
	const char *path;
	enum ckpt_entry_type type;
	const char *text;
	size_t from, until;
} model[] = {
	{"config", CKPT_ENTRY_FILE, "old", 0, 8},
	{"model", CKPT_ENTRY_FILE, "weights", 0, END},
	{"sub", CKPT_ENTRY_DIR, NULL, 0, FOLDER_MOVED},
	{"sub/a", CKPT_ENTRY_FILE, "a", 0, MOVED},
	{"late", CKPT_ENTRY_FILE, "late", 1, 5},
	{"late", CKPT_ENTRY_FILE, "later", 5, MOVED_OVER},
	{"more", CKPT_ENTRY_DIR, NULL, 2, 7},
	{"more/x", CKPT_ENTRY_FILE, "deep", 3, 7},
	{"more/link", CKPT_ENTRY_SYMLINK, "x", 4, 7},
	{"config", CKPT_ENTRY_FILE, "new", 9, MOVED_OVER},
	{"sub/empty", CKPT_ENTRY_FILE, "", 10, FOLDER_MOVED},
	{"cold", CKPT_ENTRY_FILE, "late", 13, END},
	{"a", CKPT_ENTRY_FILE, "a", MOVED, MOVED_IN},
	{"config", CKPT_ENTRY_FILE, "later", MOVED_OVER, END},
	{"folder", CKPT_ENTRY_DIR, NULL, FOLDER_MOVED, END},
	{"folder/empty", CKPT_ENTRY_FILE, "", FOLDER_MOVED, END},
	{"model2", CKPT_ENTRY_FILE, "weights", LINKED, END},
	{"a", CKPT_ENTRY_FILE, "over", MOVED_IN, END},
};

// --- The acts ---------------------------------------------------------------------------------------------------------

void ckpt_amends_init(char *ret_dir)
{
	struct ckpt_store *s;
	struct ckpt_step *step;

	ckpt_save_init(ret_dir);
	s = ckpt_save_open(ret_dir);
	step = ckpt_staged_begin(s, NAME);
	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	for (size_t i = 0; i < ARRAY_LEN(model); i++)
		if (!model[i].from && model[i].type == CKPT_ENTRY_FILE)
			close(ckpt_staged_put(step, model[i].path, model[i].text));
	ck_ok(ckpt_staged_commit(step, 0, NULL));
	ckpt_step_unref(step);
	ckpt_store_close(s);
}

struct ckpt_step *ckpt_amends_step(struct ckpt_store *s, size_t *ret_done)
{
	struct ckpt_step *step = ckpt_step_find(s, "", NAME);

	ck_assert_ptr_nonnull(step);
	*ret_done = step->version->is.version - 1;
	return step;
}

static int open_session(struct ckpt_step *step)
{
	return ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
}

static int write_new(int dirfd, const char *name, const char *text)
{
	int fd = ckpt_sys.open(dirfd, name, O_RDWR | O_CREAT | O_EXCL, 0640), rc;

	if (fd < 0)
		return fd;
	rc = *text ? (int)ckpt_sys.pwrite(fd, text, strlen(text), 0) : 0;
	ckpt_sys.close(fd);
	return MIN(rc, 0);
}

// A close that failed: the file is gone, unless it was added after all.
static int drop(struct ckpt_step *step, int dirfd, const char *path)
{
	char raw[PATH_MAX];
	int rc = ckpt_amending_settle(step);

	if (rc || !ckpt_amending_raw_of(step, path, raw, sizeof(raw)))
		return rc;
	rc = ckpt_sys.unlink(dirfd, raw, 0);
	if (!rc || rc == -ENOENT)
		ckpt_amending_forget(step, path);
	return rc == -ENOENT ? 0 : rc;
}

static int add_file(struct ckpt_step *step, int dirfd, const char *path, const char *text)
{
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = ckpt_amending_check_free(step, path);

	if (!rc)
		rc = ckpt_amending_raw_name(raw);
	if (!rc)
		rc = write_new(dirfd, raw, text);
	if (!rc)
		rc = ckpt_amending_begin(step, path, raw);
	if (!rc)
		rc = ckpt_amend_add(step, path);
	if (!rc)
		ckpt_amending_forget(step, path);
	return rc;
}

static int add_other(struct ckpt_step *step, int dirfd, size_t n)
{
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = ckpt_amending_check_free(step, acts[n].path);

	if (!rc)
		rc = ckpt_amending_raw_name(raw);
	if (!rc)
		rc = acts[n].kind == ADD_DIR ? ckpt_sys.mkdir(dirfd, raw, 0755)
					     : ckpt_sys.symlink(acts[n].text, dirfd, raw);
	return rc ? rc : ckpt_amend_add_raw(step, acts[n].path, raw);
}

// A file that is moved in from elsewhere, over one that is there.
static int add_over(struct ckpt_step *step, int dirfd, const char *path, const char *text)
{
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = ckpt_amending_raw_name(raw);

	if (!rc)
		rc = write_new(dirfd, raw, text);
	if (!rc)
		rc = ckpt_amend_add_over(step, path, raw);
	if (rc && rc != -EIO) // that one may be in place
		(void)ckpt_sys.unlink(dirfd, raw, 0);
	return rc;
}

static int rename_or_link(struct ckpt_step *step, size_t n, size_t done)
{
	const struct ckpt_names names = {acts[n].path, acts[n].text, true};
	int rc = ckpt_amending_settle(step);

	if (rc || step->version->is.version - 1 != done) // it was done after all
		return rc;
	return acts[n].kind == MOVE ? ckpt_amend_move(step, &names) : ckpt_amend_link_to(step, &names);
}

static int replace(struct ckpt_step *step, const char *path, const char *text)
{
	CLEANUP_FD int dirfd = open_session(step);
	int rc = dirfd < 0 ? dirfd : ckpt_amending_settle(step);

	if (rc || ckpt_amending_has_raw(step, path, AGAIN))
		return rc;
	(void)ckpt_sys.unlink(dirfd, AGAIN, 0);
	rc = write_new(dirfd, AGAIN, text);
	return rc ? rc : ckpt_amend_replace(step, path, AGAIN);
}

// Small packs: there are several. Warming makes no version, and goes before an act that makes one.
static int move_tier(struct ckpt_step *step, bool cools)
{
	const struct ckpt_tier_how how = {.pack_bytes = 200};
	struct ckpt_tier_done done;

	// The disk gives the number of an inode that is gone to the next file, which is told from it by its time of birth. All
	// that is here was born in one tick of the clock.
	ckpt_sys.sleep_ns(TICK_NS);
	return cools ? ckpt_cool(step, &how, &done) : ckpt_warm(step, &how, &done);
}

// A change that failed is dropped, as if the daemon had ended.
static int change_mode(struct ckpt_step *step, const char *path)
{
	const struct ckpt_attributes_new what = {.which = CKPT_ATTRIBUTE_MODE, .mode = MODE};
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	uint32_t index;
	int rc = move_tier(step, false);

	if (!rc)
		rc = ckpt_step_manifest(step, &m);
	if (rc)
		return rc;
	rc = ckpt_manifest_lookup(m, path, &index);
	if (!rc) {
		ckpt_manifest_entry(m, index, &e);
		rc = ckpt_change_attributes(step, m, &e, &what);
	}
	ckpt_manifest_unref(m);
	if (!rc)
		rc = ckpt_change_publish(step);
	if (rc)
		ckpt_attributes_forget(step);
	return rc;
}

int ckpt_amends_attempt(struct ckpt_step *step, size_t n, size_t done)
{
	CLEANUP_FD int dirfd = open_session(step);
	int rc = dirfd < 0 ? dirfd : 0;

	if (acts[n].kind == SEAL)
		return ckpt_seal(step, &(struct ckpt_seal_how){0});
	if (acts[n].kind == COOL)
		return move_tier(step, true);
	if (acts[n].kind == CHMOD)
		return change_mode(step, acts[n].path);
	if (acts[n].kind == MOVE || acts[n].kind == LINK)
		return rename_or_link(step, n, done);
	if (acts[n].kind == REMOVE)
		return ckpt_amend_remove(step, acts[n].path);
	if (acts[n].kind == REPLACE)
		return replace(step, acts[n].path, acts[n].text);
	if (!rc)
		rc = drop(step, dirfd, acts[n].path);
	if (rc || step->version->is.version - 1 != done) // it was done after all
		return rc;
	if (acts[n].kind == ADD_OVER)
		return add_over(step, dirfd, acts[n].path, acts[n].text);
	return acts[n].kind == ADD_FILE ? add_file(step, dirfd, acts[n].path, acts[n].text) : add_other(step, dirfd, n);
}

size_t ckpt_amends_change(size_t n)
{
	size_t act = 0;

	for (; acts[act].kind >= SEAL || n--; act++)
		ck_assert_uint_lt(act + 1, CKPT_AMEND_ACTS);
	return act;
}

int ckpt_amends_do(struct ckpt_store *s, size_t n)
{
	size_t done;
	struct ckpt_step *step = ckpt_amends_step(s, &done);
	int rc = ckpt_amends_attempt(step, n, done);

	ckpt_step_unref(step);
	return rc;
}

// --- The model --------------------------------------------------------------------------------------------------------

// The act that made what is there. What has another name since is the same file.
static size_t first_of(size_t i)
{
	return model[i].from == MOVED || model[i].from == LINKED ? 0 : model[i].from == MOVED_OVER ? 5 : model[i].from;
}

// What was sealed stays so, whatever is added to the step or taken out.
static void check_seal(struct ckpt_manifest *m, uint32_t index, size_t i, size_t done)
{
	size_t born = first_of(i);
	bool sealed = (done >= SEALED_AGAIN && born < SEALED_AGAIN) || (done >= SEALED_FIRST && born < SEALED_FIRST);
	uint8_t want[CKPT_SHA256_LEN];
	struct ckpt_seal seal;

	ck_assert_msg(ckpt_manifest_seal(m, index, &seal) == sealed, "%s is %s", model[i].path,
		      sealed ? "not sealed" : "sealed");
	if (!sealed)
		return;
	ckpt_sha256(model[i].text, strlen(model[i].text), want);
	ck_assert_mem_eq(seal.sha256, want, sizeof(want));
	ck_assert_uint_eq(seal.count, 1);
}

static void check_one(struct ckpt_step *step, struct ckpt_manifest *m, size_t i, size_t done)
{
	struct ckpt_entry e;
	uint32_t index;

	ck_assert_msg(!ckpt_manifest_lookup(m, model[i].path, &index), "%s is missing", model[i].path);
	ckpt_manifest_entry(m, index, &e);
	ck_assert_int_eq(e.type, model[i].type);
	if (!strcmp(model[i].path, "model"))
		ck_assert_int_eq(e.mode == MODE, done >= CHMODDED);
	if (e.type == CKPT_ENTRY_SYMLINK)
		ck_assert_str_eq(e.target, model[i].text);
	if (e.type == CKPT_ENTRY_FILE)
		ckpt_staged_check(step, model[i].path, model[i].text);
	if (!e.bytes || e.type != CKPT_ENTRY_FILE)
		return;
	ck_assert_int_eq(e.content, done >= COOLED && first_of(i) < COOLED ? CKPT_CONTENT_CHUNKS : CKPT_CONTENT_RAW);
	check_seal(m, index, i, done);
}

static void check_step(struct ckpt_step *step, size_t done)
{
	struct ckpt_manifest *m;
	uint32_t count = 1;

	ck_assert_uint_eq(step->version->is.version, done + 1);
	ck_ok(ckpt_step_manifest(step, &m));
	for (size_t i = 0; i < ARRAY_LEN(model); i++) {
		if (done < model[i].from || done >= model[i].until)
			continue;
		check_one(step, m, i, done);
		count++;
	}
	ck_assert_uint_eq(ckpt_manifest_count(m), count);
	ck_assert(step->version->is.sealed ==
		  ((done >= SEALED_FIRST && done < UNSEALED) || (done >= SEALED_AGAIN && done < UNSEALED_AGAIN)));
	ck_assert(step->version->is.packed == (done >= COOLED));
	ckpt_manifest_unref(m);
}

void ckpt_amends_check(struct ckpt_store *s, size_t done)
{
	size_t now;
	struct ckpt_step *step = ckpt_amends_step(s, &now);

	check_step(step, done);
	ckpt_step_unref(step);
}

size_t ckpt_amends_check_at(const char *dir, size_t least, size_t most)
{
	struct ckpt_store *s;
	struct ckpt_step *step;
	size_t done;

	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	step = ckpt_amends_step(s, &done);
	ck_assert_msg(done >= least && done <= most, "it is as after %zu acts, not %zu to %zu", done, least, most);
	check_step(step, done);
	ckpt_step_unref(step);
	ckpt_store_close(s);
	return done;
}

// Two nodes of one store behind the fault proxy, and a third past it: several steps are pushed by each, pulled and read by the other.
//
//   - An open, a push and a read may fail; they are tried again, and get through, for schedules end.
//   - What a read returns is what was saved, byte for byte; what is listed was saved.
//   - In the end the proxy is calm: a node that has nothing of its own lists each step that was pushed, once, and reads it whole.
#include "tests/schedules/play.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/objects/stack.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/save/delete.h"
#include "core/step/store.h"
#include "core/store/open.h"

#include <stdio.h>
#include <stdlib.h>

#define TRIES 30
#define FAR_NS INT64_C(300000000000)
#define NAP_NS INT64_C(10000000)
#define NAPS 10             // from one look at the remote to the next: others use the server, too
#define FILE_BYTES_MAX 8192 // of a step of save.h

struct node {
	char dir[PATH_MAX];
	struct ckpt_store *store;
};

static char *saved[CKPT_SAVE_STEPS]; // what each was when it was saved; NULL: it was not
static bool is_deleted[CKPT_SAVE_STEPS];
static unsigned failures;

// --- Nodes --------------------------------------------------------------------------------------------------------------

static int try_open(struct node *n, bool direct)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;
	const struct ckpt_remote_at at = {.url = ckpt_play_url(), .options = ckpt_play_options(direct)};
	int rc = ckpt_remote_place(&at, &path, why);

	if (!rc)
		rc = ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store);
	ck_assert_msg(!rc || rc == -EIO || rc == -EAGAIN || rc == -ETIMEDOUT || rc == -EACCES || rc == -EBADMSG,
		      "open: %s (%s)", strerror(-rc), why);
	return rc;
}

static void open_node(struct node *n, bool direct)
{
	int rc = -EAGAIN;

	if (!*n->dir)
		ckpt_temp_dir(n->dir);
	setenv("CKPTFS_WORK_DIR", n->dir, 1);
	for (int i = 0; i < TRIES && (rc = try_open(n, direct)); i++) {
		failures++;
		ckpt_sys.sleep_ns(NAP_NS);
	}
	ck_ok(rc);
	ck_ok(ckpt_store_work_behind(n->store));
}

static void close_node(struct node *n)
{
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	n->store = NULL;
}

static bool is_idle(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps;
}

static struct ckpt_step *listed(const struct node *n, unsigned i)
{
	struct ckpt_step *step = ckpt_save_find(n->store, i);

	if (step && ckpt_step_state(step) != CKPT_STEP_COMMITTED) {
		ckpt_step_unref(step);
		step = NULL;
	}
	return step;
}

// --- Reading ------------------------------------------------------------------------------------------------------------

static int hash_file(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, char *hex)
{
	uint8_t data[FILE_BYTES_MAX], digest[CKPT_SHA256_LEN];
	struct ckpt_file *file;
	size_t done = 0;
	ssize_t n = ckpt_file_open(step, m, index, &file);

	if (n)
		return (int)n;
	do {
		n = ckpt_file_read(file, data + done, sizeof(data) - done, done);
		done += (size_t)MAX(n, 0);
	} while (n > 0);
	ckpt_file_close(file);
	ckpt_sha256(data, done, digest);
	ckpt_hex(digest, sizeof(digest), hex);
	return (int)n;
}

static int describe_entry(FILE *f, struct ckpt_step *step, struct ckpt_manifest *m, uint32_t i)
{
	char path[PATH_MAX], hex[CKPT_SHA256_HEX_LEN + 1] = "";
	struct ckpt_entry e;
	int rc = 0;

	ckpt_manifest_entry(m, i, &e);
	ck_assert_int_ge(ckpt_manifest_path(m, i, path, sizeof(path)), 0);
	if (e.type == CKPT_ENTRY_FILE)
		rc = hash_file(step, m, i, hex);
	fprintf(f, "%s %d %o %llu %lld.%09u %s\n", path, e.type, e.mode, (unsigned long long)e.bytes,
		(long long)e.mtime_s, (unsigned)e.mtime_ns, e.type == CKPT_ENTRY_SYMLINK ? e.target : hex);
	return rc;
}

// All that the step has, as text, malloc'ed; each byte was read.
static int describe(struct ckpt_step *step, char **ret_text)
{
	struct ckpt_manifest *m;
	CLEANUP_FREE char *text = NULL;
	size_t len;
	FILE *f;
	int rc = ckpt_step_read_current(step, &m);

	if (rc)
		return rc;
	f = open_memstream(&text, &len);
	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !rc; i++)
		rc = describe_entry(f, step, m, i);
	fclose(f);
	ckpt_manifest_unref(m);
	if (!rc)
		*ret_text = TAKE_PTR(text);
	return rc;
}

// A read that fails is made again: a fault ends, and damage does not.
static void check_step(struct ckpt_step *step, unsigned i, unsigned tries)
{
	CLEANUP_FREE char *is = NULL;
	int rc = -EIO;

	for (unsigned n = 0; n < tries && (rc = describe(step, &is)); n++) {
		failures++;
		if (getenv("CKPT_PLAY_SHOW"))
			printf("read %s: %s\n", step->name, strerror(-rc));
		ckpt_sys.sleep_ns(NAP_NS);
	}
	ck_assert_msg(!rc, "%s cannot be read: %s", step->name, strerror(-rc));
	ck_assert_msg(saved[i] != NULL, "%s was never saved", step->name);
	ck_assert_msg(!strcmp(is, saved[i]), "%s has\n%s, not\n%s", step->name, is, saved[i]);
}

// --- The run ------------------------------------------------------------------------------------------------------------

static void save(struct node *n, unsigned i)
{
	struct ckpt_step *step = ckpt_save_one(n->store, i);

	ck_ok(describe(step, &saved[i]));
	ckpt_step_unref(step);
}

static void delete (struct node *n, unsigned i)
{
	struct ckpt_step *step = listed(n, i);

	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	is_deleted[i] = true;
}

static bool shows(const struct node *n, unsigned i)
{
	struct ckpt_step *step = listed(n, i);
	bool is = step != NULL;

	ckpt_step_unref(step);
	return is == (saved[i] && !is_deleted[i]);
}

static bool is_settled(const struct node *a, const struct node *b)
{
	bool is = is_idle(a) && is_idle(b);

	for (unsigned i = 0; i < CKPT_SAVE_STEPS && is; i++)
		is = shows(a, i) && shows(b, i);
	return is;
}

static void settle(struct node *a, struct node *b)
{
	int64_t until_ns = ckpt_sys.mono_ns() + FAR_NS;
	struct ckpt_remote_queue qa, qb;

	for (unsigned n = 0; !is_settled(a, b); n++) {
		ckpt_remote_queue(*ckpt_remote_of(a->store), &qa);
		ckpt_remote_queue(*ckpt_remote_of(b->store), &qb);
		ck_assert_msg(ckpt_sys.mono_ns() < until_ns, "not all is pushed: %llu and %llu steps wait (%s, %s)",
			      (unsigned long long)qa.steps, (unsigned long long)qb.steps, strerror(-qa.error),
			      strerror(-qb.error));
		if (n % NAPS == 0) {
			ckpt_remote_wake(*ckpt_remote_of(a->store));
			ckpt_remote_wake(*ckpt_remote_of(b->store));
		}
		ckpt_sys.sleep_ns(NAP_NS);
	}
}

// Each step that this node lists was saved; it may not know of all.
static void read_listed(struct node *n, unsigned tries)
{
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = listed(n, i);

		if (step)
			check_step(step, i, tries);
		ckpt_step_unref(step);
	}
}

static void check_no_damage(struct node *n)
{
	struct ckpt_failure_list list = {0};

	ck_ok(ckpt_remote_failures(*ckpt_remote_of(n->store), &list));
	ck_assert_uint_eq(list.count, 0);
	ckpt_failure_list_done(&list);
}

// One more process on the node, or a node anew: its work directory has what it knew.
static void reopen(struct node *n)
{
	close_node(n);
	open_node(n, false);
}

static void run(struct node *a, struct node *b)
{
	unsigned order[CKPT_SAVE_STEPS] = {0, 1, 2, 3, 4};

	for (unsigned i = CKPT_SAVE_STEPS - 1; i > 0; i--) {
		unsigned j = ckpt_play_below(i + 1), was = order[i];

		order[i] = order[j];
		order[j] = was;
	}
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct node *n = ckpt_play_below(3) ? a : b;

		save(n, order[i]);
		if (!ckpt_play_below(6))
			reopen(n);
		if (!ckpt_play_below(3))
			settle(a, b);
		if (!ckpt_play_below(4))
			read_listed(n == a ? b : a, TRIES);
	}
	settle(a, b);
	read_listed(a, TRIES);
	read_listed(b, TRIES);
	delete (ckpt_play_below(2) ? a : b, order[0]);
	settle(a, b);
}

static void check_third(void)
{
	struct node c = {0};

	open_node(&c, true);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
		ck_assert_msg(shows(&c, i), "%s is %s", ckpt_save_steps[i].name, is_deleted[i] ? "listed" : "missing");
	ck_assert_uint_eq(ckpt_save_count(c.store, CKPT_STEP_COMMITTED), CKPT_SAVE_STEPS - 1);
	read_listed(&c, 1);
	close_node(&c);
}

// An empty store, as ckpt_remote_make() makes it, without its race of writers, who wait for seconds in SeaweedFS.
static void make_remote(void)
{
	const struct ckpt_objects_at at = {
		.url = ckpt_play_url(), .writable = true, .options = ckpt_play_options(true)};
	CLEANUP_FREE char *text = NULL;
	struct ckpt_objects *o;
	json_t *identity;

	ck_ok(ckpt_store_identity_new(&identity));
	text = json_dumps(identity, 0);
	json_decref(identity);
	ck_ok(ckpt_objects_open(&at, &o));
	ck_ok(ckpt_objects_put(o, CKPT_OBJECT_IDENTITY, text, strlen(text), NULL));
	ckpt_objects_close(o);
}

START_TEST(what_one_saves_the_other_reads)
{
	struct node a = {0}, b = {0};

	ckpt_play_seed(ckpt_suite_setting("CKPT_PLAY_SEED", 1));
	make_remote();
	open_node(&a, false);
	open_node(&b, false);
	run(&a, &b);
	check_no_damage(&a);
	check_no_damage(&b);
	ckpt_play_calm();
	check_third();
	close_node(&a);
	close_node(&b);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
		free(saved[i]);
	printf("%u opens and reads failed\n", failures);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("play nodes");
	TCase *tcase = tcase_create("play");

	tcase_add_test(tcase, what_one_saves_the_other_reads);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

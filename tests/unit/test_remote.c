// Nodes with a remote, here a directory that they share: what one saves the other reads, and what both do at once stays.
#include "tests/support/formats.h"
#include "tests/support/remote_log.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/index/indexer.h"
#include "core/log/snapshot.h"
#include "core/remote/look.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/remote/snapshots.h"
#include "core/save/delete.h"
#include "core/save/warm.h"
#include "core/step/errlog.h"
#include "core/store/open.h"
#include "core/tier/cool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];

static void setup(void)
{
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
}

struct node {
	char dir[PATH_MAX];
	struct ckpt_store *store;
};

// A node whose work directory is new, or not.
static void open_node(struct node *n)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;

	if (!*n->dir)
		ckpt_temp_dir(n->dir);
	setenv("CKPTFS_WORK_DIR", n->dir, 1);
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url, .make = true}, &path, why));
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
}

static void push(struct node *n)
{
	struct ckpt_remote_queue q;

	ck_ok(ckpt_store_work_behind(n->store));
	do {
		ckpt_remote_wake(*ckpt_remote_of(n->store));
		ckpt_sys.sleep_ns(10000000);
		ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	} while (q.steps);
}

static void close_node(struct node *n)
{
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	n->store = NULL;
}

START_TEST(saved_on_one_node_is_read_on_another)
{
	struct node a = {0}, b = {0};

	open_node(&a);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
		ckpt_step_unref(ckpt_save_one(a.store, i));
	push(&a);
	close_node(&a);
	open_node(&b);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = ckpt_save_find(b.store, i);

		ck_assert_ptr_nonnull(step);
		ckpt_save_check_files(step, i);
		ckpt_step_unref(step);
	}
	close_node(&b);
}
END_TEST

static bool is_idle(const struct node *n)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(n->store), &q);
	return !q.steps;
}

struct other {
	const char *name;
	bool is;
};

static int look_for_other(void *arg, const struct ckpt_state *state)
{
	struct other *o = arg;

	o->is = ckpt_state_listed(state, "", o->name);
	return 0;
}

// The log of the node has a step of this name.
static bool knows_step(const struct node *n, const char *name)
{
	struct other o = {.name = name};

	ck_ok(ckpt_journal_look(n->store->journal, look_for_other, &o));
	return o.is;
}

// Waits until it is so; ends the test where it is not soon.
#define WAIT_UNTIL(is_so)                                                                                              \
	do {                                                                                                           \
		for (unsigned tries = 0; !(is_so); tries++) {                                                          \
			ck_assert_msg(tries < 2000, "in vain: %s", #is_so);                                            \
			ckpt_remote_wake(*ckpt_remote_of(a.store));                                                    \
			ckpt_remote_wake(*ckpt_remote_of(b.store));                                                    \
			ckpt_sys.sleep_ns(10000000);                                                                   \
		}                                                                                                      \
	} while (0)

static bool lists(const struct node *n, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(n->store, "", name);
	bool is = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return is;
}

static bool lists_conflict(const struct node *n, const char *name)
{
	struct ckpt_step **steps;
	size_t count, found = 0;
	char want[CKPT_NAME_MAX + 1];

	snprintf(want, sizeof(want), "%s" CKPT_NAME_CONFLICT, name);
	ck_ok(ckpt_step_list(n->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	for (size_t i = 0; i < count; i++)
		found += !strncmp(steps[i]->name, want, strlen(want));
	ckpt_step_list_free(steps, count);
	return found == 1;
}

static void open_both(struct node *a, struct node *b)
{
	open_node(a);
	open_node(b);
	ck_ok(ckpt_store_work_behind(a->store));
	ck_ok(ckpt_store_work_behind(b->store));
}

START_TEST(what_one_does_the_other_sees)
{
	struct node a = {0}, b = {0};
	struct ckpt_tier_done done;
	struct ckpt_step *step;

	open_both(&a, &b);
	step = ckpt_save_one(a.store, 0);
	WAIT_UNTIL(lists(&b, ckpt_save_steps[0].name));
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	WAIT_UNTIL(!lists(&b, ckpt_save_steps[0].name));
	step = ckpt_step_of_session(b.store, step->session);
	ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED);
	ck_ok(ckpt_undelete(step));
	ckpt_save_check_files(step, 0);
	ck_ok(ckpt_warm(step, &(struct ckpt_tier_how){0}, &done)); // raw files on this node, too
	ck_assert_uint_gt(done.files, 0);
	ckpt_save_check_files(step, 0);
	ckpt_step_unref(step);
	WAIT_UNTIL(lists(&a, ckpt_save_steps[0].name));
	close_node(&a);
	close_node(&b);
}
END_TEST

// The manifest of CKPT_SAVE_LARGE is an object of its own, which the remote has not for a while.
static void set_manifests_away(bool are_away)
{
	char there[PATH_MAX + 8], away[PATH_MAX + 8];

	snprintf(there, sizeof(there), "%s/m", remote_dir);
	snprintf(away, sizeof(away), "%s/away", remote_dir);
	ck_assert_int_eq(are_away ? rename(there, away) : rename(away, there), 0);
}

static int read_manifest(const struct node *n)
{
	struct ckpt_step *step = ckpt_save_find(n->store, CKPT_SAVE_LARGE);
	struct ckpt_manifest *m;
	int rc = ckpt_step_read_current(step, &m);

	if (!rc)
		ckpt_manifest_unref(m);
	while (ckpt_indexer_pending(*ckpt_indexer_of(n->store)))
		ckpt_sys.sleep_ns(10000000);
	ckpt_step_unref(step);
	return rc;
}

static bool has_large(const struct node *n)
{
	struct ckpt_step *step = ckpt_save_find(n->store, CKPT_SAVE_LARGE);

	ckpt_step_unref(step);
	return step;
}

START_TEST(manifest_is_read_from_afar_once)
{
	struct node a = {0}, b = {0};

	open_node(&a);
	ckpt_step_unref(ckpt_save_one(a.store, CKPT_SAVE_LARGE));
	push(&a);
	open_node(&b); // it reads the log, and no manifest
	set_manifests_away(true);
	ck_assert_int_eq(read_manifest(&b), -EBADMSG);
	set_manifests_away(false);
	ck_ok(read_manifest(&b));
	set_manifests_away(true);
	ck_ok(read_manifest(&b));
	set_manifests_away(false);
	close_node(&a);
	close_node(&b);
}
END_TEST

START_TEST(manifest_is_here_before_its_step_shows)
{
	struct node a = {0}, b = {0};

	open_both(&a, &b);
	ckpt_remote_ready(*ckpt_remote_of(b.store));
	ckpt_step_unref(ckpt_save_one(a.store, CKPT_SAVE_LARGE));
	WAIT_UNTIL(has_large(&b));
	while (ckpt_indexer_pending(*ckpt_indexer_of(b.store)))
		ckpt_sys.sleep_ns(10000000);
	set_manifests_away(true);
	ck_ok(read_manifest(&b));
	set_manifests_away(false);
	close_node(&a);
	close_node(&b);
}
END_TEST

START_TEST(step_that_another_saves_while_it_is_staged_keeps_its_name)
{
	struct node a = {0}, b = {0};
	struct ckpt_step *step;
	const char *name = ckpt_save_steps[0].name;

	open_both(&a, &b);
	ck_ok(ckpt_save_begin(b.store, 0, &step));
	ckpt_save_write(step, 0, NULL);
	ckpt_step_unref(ckpt_save_one(a.store, 0));
	WAIT_UNTIL(knows_step(&b, name));
	ck_ok(ckpt_save_commit(step, 0));
	ck_assert(lists_conflict(&b, name));
	ckpt_save_check_files(step, 0);
	ckpt_step_unref(step);
	WAIT_UNTIL(lists(&b, name) && lists(&a, name) && lists_conflict(&a, name));
	ck_assert_uint_eq(ckpt_save_errors(b.store, "another node has saved a step of this name"), 1);
	close_node(&a);
	close_node(&b);
}
END_TEST

START_TEST(two_saves_of_one_name_are_two_steps)
{
	struct node a = {0}, b = {0};
	const char *name = ckpt_save_steps[0].name;

	open_node(&a);
	open_node(&b);
	ckpt_step_unref(ckpt_save_one(a.store, 0));
	ckpt_step_unref(ckpt_save_one(b.store, 0));
	ck_ok(ckpt_store_work_behind(a.store));
	WAIT_UNTIL(is_idle(&a));
	ck_ok(ckpt_store_work_behind(b.store));
	WAIT_UNTIL(is_idle(&b) && lists(&a, name) && lists_conflict(&a, name));
	ck_assert(lists(&b, name) && lists_conflict(&b, name));
	close_node(&a);
	close_node(&b);
}
END_TEST

static void delete_for_good(struct node *n, unsigned i)
{
	struct ckpt_step *step = ckpt_save_find(n->store, i);

	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_delete_for_good(step));
	ckpt_step_unref(step);
	push(n);
}

// The copy of its record, and its files, would tell the next mount that the log has lost entries. _i: this node was away when it went.
START_TEST(step_that_has_expired_on_another_node_leaves_nothing_here)
{
	struct node a = {0}, b = {0};

	open_node(&a);
	ckpt_step_unref(ckpt_save_one(a.store, 0));
	ckpt_step_unref(ckpt_save_one(a.store, 4));
	push(&a);
	if (_i)
		close_node(&a);
	open_node(&b);
	delete_for_good(&b, 0);
	if (!_i)
		WAIT_UNTIL(!lists(&a, ckpt_save_steps[0].name));
	for (unsigned i = 0; i < 2; i++) {
		if (a.store)
			close_node(&a);
		open_node(&a);
		ck_assert(!lists(&a, ckpt_save_steps[0].name) && lists(&a, ckpt_save_steps[4].name));
		ck_assert_uint_eq(ckpt_save_unfinished_count(a.store), 0);
	}
	close_node(&a);
	close_node(&b);
}
END_TEST

// Entries of another node since the remote was put back.
static void replace_entry(const char *entry)
{
	CLEANUP_FD int fd = open(entry, O_RDWR);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, 100), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 100), 1);
}

START_TEST(remote_that_was_put_back_is_refused)
{
	char entry[PATH_MAX + 32], why[CKPT_OBJECTS_WHY_MAX];
	CLEANUP_FREE char *path = NULL;
	struct node a = {0};

	open_node(&a);
	ckpt_step_unref(ckpt_save_one(a.store, 0));
	push(&a);
	close_node(&a);
	snprintf(entry, sizeof(entry), "%s/log/%016x", remote_dir, 1);
	if (_i)
		replace_entry(entry);
	else
		ck_assert(!unlink(entry));
	ck_ok(ckpt_remote_place(&(struct ckpt_remote_at){.url = url}, &path, why));
	ck_error(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &a.store), EREMCHG);
}
END_TEST

// --- Snapshots ----------------------------------------------------------------------------------------------------------

static struct ckpt_objects *there(const struct node *n)
{
	return ckpt_near_there(n->store->objects);
}

static bool has_snapshot(const struct node *n, uint64_t seq)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_object object;

	ckpt_snapshot_key(seq, key);
	return !ckpt_objects_head(there(n), key, &object);
}

static int take_remote(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_remote(state).seq;
	return 0;
}

static uint64_t position(const struct node *n)
{
	uint64_t seq;

	(void)ckpt_journal_look(n->store->journal, take_remote, &seq);
	return seq;
}

// All steps of the log, as the store lists them; one of them with its record.
static void check_steps(const struct node *n, uint64_t to)
{
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_step **steps;
	struct ckpt_record r;
	size_t count;

	ck_assert_uint_eq(position(n), to);
	ck_ok(ckpt_step_list(n->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	ck_assert_uint_eq(count, ckpt_remote_log_steps(to));
	ckpt_step_list_free(steps, count);
	ckpt_remote_log_session(3, id);
	ck_ok(ckpt_journal_record(n->store->journal, id, 2, &r));
	ckpt_record_done(&r);
}

// The first node makes the store; another one, which is not here, has put so many entries.
static void begin_far(struct node *n, uint64_t to)
{
	open_node(n);
	ckpt_remote_log_make(there(n), n->store->id, to, false);
	close_node(n);
}

static bool has_jumped(const struct node *n, uint64_t seq)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_object object;

	ckpt_snapshot_copy_key(seq, key);
	return !ckpt_objects_head(n->store->objects, key, &object);
}

START_TEST(who_reads_much_puts_a_snapshot_to_which_others_jump)
{
	const uint64_t to = 2 + CKPT_SNAPSHOTS_READ + CKPT_SNAPSHOTS_READ / 2;
	struct node first = {0}, a = {0}, b = {0};

	begin_far(&first, to);
	open_node(&a);
	open_node(&b);
	check_steps(&a, to);
	check_steps(&b, to);
	ck_assert_uint_lt(ckpt_journal_position(a.store->journal).seq, to / 10); // entries share entries
	ck_ok(ckpt_store_work_behind(a.store));
	ck_ok(ckpt_store_work_behind(b.store)); // both put the same
	WAIT_UNTIL(has_snapshot(&a, to));
	close_node(&a);
	close_node(&b);
	open_node(&first); // that was there before, and has nothing of its own
	check_steps(&first, to);
	ck_assert(has_jumped(&first, to));
	ck_assert_uint_lt(ckpt_journal_position(first.store->journal).seq, 10);
	ckpt_remote_log_make(there(&first), first.store->id, to + 5, false);
	close_node(&first);
	open_node(&first);
	check_steps(&first, to + 5);
	close_node(&first);
}
END_TEST

static void put_bytes(struct node *n, const char *key, const void *data, size_t len)
{
	(void)ckpt_objects_remove(there(n), key);
	ck_ok(ckpt_objects_put(there(n), key, data, len, NULL));
}

// Newest first: of a byte that has changed, of another store, and of an entry that the log has not so.
static void damage_snapshots(struct node *n, uint64_t seq, unsigned how)
{
	char key[CKPT_SNAPSHOT_KEY_MAX], old[CKPT_SNAPSHOT_KEY_MAX];
	CLEANUP_FREE uint8_t *data = NULL;
	size_t len;

	ckpt_snapshot_key(seq, key);
	ckpt_snapshot_key(100, old);
	ck_ok(ckpt_objects_get_all(there(n), key, 1u << 30, (void **)&data, &len, NULL));
	if (how == 0) {
		data[len / 2]++;
	} else if (how == 1) { // the one of before, under this name
		free(TAKE_PTR(data));
		ck_ok(ckpt_objects_get_all(there(n), old, 1u << 30, (void **)&data, &len, NULL));
	} else if (how == 2) { // the SHA-256 of the entry
		data[112 + 48]++;
		ckpt_sample_reseal(data, len);
	} else {
		len = 0;
	}
	put_bytes(n, key, data, len);
}

START_TEST(damaged_snapshot_is_passed_over)
{
	struct node a = {0}, b = {0};

	begin_far(&a, 100);
	open_node(&a);
	ck_ok(ckpt_snapshots_put(a.store, false));
	ckpt_remote_log_make(there(&a), a.store->id, 300, false);
	close_node(&a);
	open_node(&a);
	ck_ok(ckpt_snapshots_put(a.store, false));
	ck_assert(has_snapshot(&a, 100) && has_snapshot(&a, 300));
	damage_snapshots(&a, 300, (unsigned)_i);
	open_node(&b);
	check_steps(&b, 300);
	ck_assert(has_jumped(&b, 100) && !has_jumped(&b, 300));
	close_node(&a);
	close_node(&b);
}
END_TEST

static struct ckpt_remote_seen look(struct node *n)
{
	struct ckpt_remote_seen seen;

	ck_ok(ckpt_remote_look(there(n), &seen));
	ck_assert_uint_eq(seen.format, 1);
	ck_assert_uint_eq(seen.steps, ckpt_remote_log_steps(seen.entries));
	return seen;
}

// By a program that has no work directory.
START_TEST(look_sees_what_nodes_see_with_a_snapshot_or_without)
{
	struct ckpt_remote_seen seen;
	struct node a = {0};

	begin_far(&a, 100);
	open_node(&a);
	seen = look(&a);
	ck_assert(seen.entries == 100 && !seen.snapshot && !seen.unread);
	ck_ok(ckpt_snapshots_put(a.store, false));
	ckpt_remote_log_make(there(&a), a.store->id, 137, false);
	put_bytes(&a, "log/0000000000000032", "", 0); // 50: the snapshot has what it said
	seen = look(&a);
	ck_assert(seen.entries == 137 && seen.snapshot == 100 && seen.snapshot_ns && !seen.unread);
	put_bytes(&a, "log/0000000000000078", "damaged", 7); // 120
	seen = look(&a);
	ck_assert(seen.entries == 119 && seen.unread == 120 && seen.error == -EBADMSG);
	put_bytes(&a, "snap/0000000000000064", "damaged", 7);
	seen = look(&a);
	ck_assert(seen.entries == 49 && seen.unread == 50 && seen.error == -EBADMSG);
	close_node(&a);
}
END_TEST

START_TEST(newest_two_snapshots_are_kept_and_each_entry)
{
	struct node a = {0};

	begin_far(&a, 20);
	for (unsigned i = 1; i <= 4; i++) {
		open_node(&a);
		ck_ok(ckpt_snapshots_put(a.store, true));
		ckpt_remote_log_make(there(&a), a.store->id, 20 + i, false);
		close_node(&a);
	}
	open_node(&a);
	ck_assert(!has_snapshot(&a, 20) && !has_snapshot(&a, 21) && has_snapshot(&a, 22) && has_snapshot(&a, 23));
	ck_ok(ckpt_snapshots_put(a.store, false)); // the log since is much less than the snapshot
	ck_assert(!has_snapshot(&a, 24));
	for (uint64_t seq = 1; seq <= 24; seq++) {
		char key[CKPT_LOG_KEY_MAX];
		struct ckpt_object object;

		ckpt_log_key(seq, key);
		ck_ok(ckpt_objects_head(there(&a), key, &object));
	}
	close_node(&a);
}
END_TEST

static int list_nothing(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
			void *arg)
{
	(void)o;
	(void)prefix;
	(void)after;
	(void)fn;
	(void)arg;
	return 0;
}

// Both have looked before one has put it.
START_TEST(snapshot_of_two_at_once_is_one)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_object first, is;
	struct node a = {0}, b = {0};
	struct ckpt_objects_ops blind;

	begin_far(&a, 20);
	open_node(&a);
	open_node(&b);
	ck_ok(ckpt_snapshots_put(a.store, false));
	ckpt_snapshot_key(20, key);
	ck_ok(ckpt_objects_head(there(&a), key, &first));
	blind = *there(&b)->ops;
	blind.list = list_nothing;
	there(&b)->ops = &blind;
	ck_ok(ckpt_snapshots_put(b.store, false));
	ck_ok(ckpt_objects_head(there(&a), key, &is));
	ck_assert_str_eq(first.etag, is.etag);
	close_node(&a);
	close_node(&b);
}
END_TEST

static void copy_dir(const char *from, const char *to)
{
	char command[2 * PATH_MAX + 64];

	snprintf(command, sizeof(command), "rm -rf '%s' && cp -a '%s' '%s'", to, from, to);
	ck_assert_int_eq(system(command), 0);
}

// A node that ended before it had the answer of its last put: others have gone on from there, and a snapshot has all of it.
START_TEST(entry_of_ones_own_is_read_before_a_jump)
{
	struct ckpt_tier_how how = {.keeps_raw = true};
	struct ckpt_tier_done done;
	char before[PATH_MAX];
	struct node a = {0}, b = {0};
	struct ckpt_step *step;

	open_node(&a);
	step = ckpt_save_one(a.store, 0);
	how.pack_bytes = a.store->settings.pack_bytes;
	ck_ok(ckpt_cool_sealed(step, &how, &done)); // so that the push changes nothing here
	ckpt_step_unref(step);
	close_node(&a);
	ckpt_temp_dir(before);
	copy_dir(a.dir, before);
	open_node(&a);
	push(&a);
	close_node(&a);
	copy_dir(before, a.dir);
	open_node(&b);
	step = ckpt_save_find(b.store, 0);
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	push(&b);
	ckpt_remote_log_make(there(&b), b.store->id, 200, true);
	close_node(&b);
	open_node(&b);
	ck_ok(ckpt_snapshots_put(b.store, true));
	close_node(&b);
	open_node(&a);
	ck_assert(has_jumped(&a, 200));
	ck_assert(is_idle(&a));
	ck_assert(!lists(&a, ckpt_save_steps[0].name));
	close_node(&a);
}
END_TEST

static void tell_time(const char *what, int64_t *since_ns)
{
	int64_t now_ns = ckpt_sys.mono_ns();

	printf("%-28s %6.3f s\n", what, (double)(now_ns - *since_ns) / 1e9);
	*since_ns = ckpt_sys.mono_ns();
}

// CKPT_REMOTE_STEPS=10000 CK_FORK=no tells how long mounts take that have much to read.
START_TEST(many_steps)
{
	uint64_t steps = ckpt_suite_setting("CKPT_REMOTE_STEPS", 1000);
	struct node first = {0}, a = {0}, b = {0};
	int64_t at_ns;

	open_node(&first);
	ckpt_remote_log_make(there(&first), first.store->id, steps, true);
	close_node(&first);
	at_ns = ckpt_sys.mono_ns();
	open_node(&a);
	tell_time("mount, by the log alone", &at_ns);
	ck_ok(ckpt_snapshots_put(a.store, true));
	tell_time("snapshot", &at_ns);
	close_node(&a);
	at_ns = ckpt_sys.mono_ns();
	open_node(&b);
	tell_time("mount, by a snapshot", &at_ns);
	ck_assert(has_jumped(&b, steps));
	close_node(&b);
	for (unsigned i = 0; i < 2; i++) {
		at_ns = ckpt_sys.mono_ns();
		open_node(&b);
		tell_time("mount again", &at_ns);
		ck_assert_uint_eq(position(&b), steps);
		close_node(&b);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote");
	TCase *tcase = tcase_create("nodes");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, saved_on_one_node_is_read_on_another);
	tcase_add_test(tcase, what_one_does_the_other_sees);
	tcase_add_test(tcase, manifest_is_read_from_afar_once);
	tcase_add_test(tcase, manifest_is_here_before_its_step_shows);
	tcase_add_test(tcase, step_that_another_saves_while_it_is_staged_keeps_its_name);
	tcase_add_test(tcase, two_saves_of_one_name_are_two_steps);
	tcase_add_loop_test(tcase, step_that_has_expired_on_another_node_leaves_nothing_here, 0, 2);
	tcase_add_loop_test(tcase, remote_that_was_put_back_is_refused, 0, 2);
	tcase_add_test(tcase, who_reads_much_puts_a_snapshot_to_which_others_jump);
	tcase_add_loop_test(tcase, damaged_snapshot_is_passed_over, 0, 4);
	tcase_add_test(tcase, look_sees_what_nodes_see_with_a_snapshot_or_without);
	tcase_add_test(tcase, newest_two_snapshots_are_kept_and_each_entry);
	tcase_add_test(tcase, snapshot_of_two_at_once_is_one);
	tcase_add_test(tcase, entry_of_ones_own_is_read_before_a_jump);
	tcase_add_test(tcase, many_steps);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

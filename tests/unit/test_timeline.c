// The history of a store: each kind of act has its row, the newest first; what is void, internal or known already has none; and what
// trimming, damage and other processes leave of it.
#include "tests/support/allocfault.h"
#include "tests/support/remote_log.h"
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/find/timeline.h"
#include "core/log/snapshot.h"
#include "core/record/event.h"
#include "core/record/record.h"
#include "core/state/journal.h"
#include "core/state/jump.h"

#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define OTHER "22222222-2222-4222-8222-222222222222"
#define FOLDER "0123456789abcdef"

static struct ckpt_objects *objects;
static struct ckpt_fault fault;
static struct ckpt_journal *j;

static void open_journal(void)
{
	uint64_t damaged;

	ck_ok(ckpt_journal_open(objects, STORE, STORE, CKPT_JOURNAL_WRITE, &j, &damaged));
}

static void setup(void)
{
	struct ckpt_actor actor = {.uid = 1000, .comm = "trainer"};

	(void)ckpt_actor_set(&actor);
	ck_ok(ckpt_mem_new(&objects));
	fault = (struct ckpt_fault){0};
	ck_ok(ckpt_fault_new(objects, &fault, &objects));
	open_journal();
}

static void teardown(void)
{
	ckpt_journal_close(j);
	ckpt_objects_close(objects);
}

static void session_of(unsigned i, char ret[CKPT_UUID_LEN + 1])
{
	snprintf(ret, CKPT_UUID_LEN + 1, "00000000-0000-4000-8000-%012u", i);
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

static void encode(enum ckpt_act_kind kind, unsigned i, uint32_t version, const char *name, unsigned replaces,
		   const char *event, struct ckpt_act *ret_act, void **ret_record)
{
	struct ckpt_record r = {.store_id = STORE, .summary = {.profile = "generic", .number = -1, .version = version}};
	struct ckpt_act act = {.kind = kind};

	snprintf(r.summary.name, sizeof(r.summary.name), "%s", name);
	snprintf(r.summary.event, sizeof(r.summary.event), "%s", event);
	session_of(i, r.summary.session);
	r.summary.files = 10 + version;
	r.summary.bytes = 1000 * i;
	r.summary.committed_ns = 100 + version;
	ck_ok(ckpt_record_encode(&r, ret_record, &act.record_len));
	act.record = *ret_record;
	if (replaces)
		session_of(replaces, act.replaces);
	*ret_act = act;
}

static void append(const struct ckpt_act *act)
{
	bool unknown;

	ck_ok(ckpt_journal_append(j, act, false, &unknown));
}

static void recorded(enum ckpt_act_kind kind, unsigned i, uint32_t version, const char *name, unsigned replaces,
		     const char *event)
{
	CLEANUP_FREE void *record = NULL;
	struct ckpt_act act;

	encode(kind, i, version, name, replaces, event, &act, &record);
	append(&act);
}

static void save(unsigned i, const char *name)
{
	recorded(CKPT_ACT_SAVE, i, 1, name, 0, "marker");
}

static struct ckpt_act plain(enum ckpt_act_kind kind, unsigned i, uint32_t version, uint32_t flags, const char *name)
{
	struct ckpt_act act = {.kind = kind, .version = version, .flags = flags, .time_ns = 500};

	session_of(i, act.step);
	snprintf(act.name, sizeof(act.name), "%s", name);
	return act;
}

static void done(enum ckpt_act_kind kind, unsigned i, uint32_t version, uint32_t flags, const char *name)
{
	const struct ckpt_act act = plain(kind, i, version, flags, name);

	append(&act);
}

// --- Rows ---------------------------------------------------------------------------------------------------------------

enum { ROWS_MAX = 4096 };
static struct {
	struct ckpt_act_row at[ROWS_MAX];
	size_t count;
} rows;

static int add_row(void *arg, const struct ckpt_act_row *row)
{
	(void)arg;
	if (rows.count == ROWS_MAX) // no assertion: allocations may fail
		return -EFBIG;
	rows.at[rows.count++] = *row;
	return 0;
}

static struct ckpt_timeline_end look(const struct ckpt_timeline_want *want)
{
	struct ckpt_timeline_end end;

	rows.count = 0;
	ck_ok(ckpt_timeline_read(objects, STORE, STORE, want, add_row, NULL, &end));
	ck_assert_uint_eq(end.rows, rows.count);
	return end;
}

static struct ckpt_timeline_end look_at_all(void)
{
	return look(&(struct ckpt_timeline_want){.since_ns = INT64_MIN});
}

// "commit 1000, pin 1000": the words and names, in order.
static void assert_rows(const char *want)
{
	char is[8192] = "";
	size_t len = 0;

	for (size_t i = 0; i < rows.count; i++)
		len += (size_t)snprintf(is + len, sizeof(is) - len, "%s%s %s", i ? ", " : "", rows.at[i].word,
					*rows.at[i].name ? rows.at[i].name : "-");
	ck_assert_str_eq(is, want);
}

// --- Kinds --------------------------------------------------------------------------------------------------------------

START_TEST(each_act_has_a_row)
{
	const struct ckpt_act_row *row;

	save(1, "a");
	recorded(CKPT_ACT_AMEND, 1, 2, "a", 0, CKPT_EVENT_EDIT);
	recorded(CKPT_ACT_REPACK, 1, 3, "a", 0, CKPT_EVENT_SEAL);
	recorded(CKPT_ACT_REPACK, 1, 4, "a", 0, CKPT_EVENT_COOL);
	recorded(CKPT_ACT_REPACK, 1, 5, "a", 0, CKPT_EVENT_REPACK);
	recorded(CKPT_ACT_RESTORE, 1, 6, "a", 0, CKPT_EVENT_RESTORE);
	recorded(CKPT_ACT_NOTE, 1, 7, "a", 0, "marker");
	done(CKPT_ACT_FLAG, 1, 8, CKPT_FLAG_TEMPORARY, "");
	done(CKPT_ACT_FLAG, 1, 9, 0, "");
	done(CKPT_ACT_FLAG, 1, 10, CKPT_FLAG_PINNED, "");
	done(CKPT_ACT_FLAG, 1, 11, 0, "");
	done(CKPT_ACT_RENAME, 1, 0, 0, "b");
	done(CKPT_ACT_DELETE, 1, 12, 0, "");
	done(CKPT_ACT_UNDELETE, 1, 13, 0, "");
	done(CKPT_ACT_DELETE, 1, 14, 0, "");
	done(CKPT_ACT_EXPIRE, 1, 14, 0, "");
	ck_ok(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, "{}"));
	ck_ok(ckpt_journal_set(j, "decisions", CKPT_ACT_ANY, "{}"));
	look_at_all();
	assert_rows("policy -, expire b, delete b, undelete b, delete b, rename b, unpin a, pin a, promote a, "
		    "temporary a, metadata a, restore a, edit a, commit a");
	for (size_t i = 0; i < rows.count; i++) {
		ck_assert_str_eq(rows.at[i].node, STORE);
		ck_assert_uint_eq(rows.at[i].actor.uid, 1000);
		ck_assert_str_eq(rows.at[i].actor.comm, "trainer");
		ck_assert(!i || rows.at[i].seq < rows.at[i - 1].seq);
	}
	row = &rows.at[13];
	ck_assert_str_eq(row->event, "marker");
	ck_assert(row->version == 1 && row->has_size && row->files == 11 && row->bytes == 1000 && row->at_ns == 101);
	row = &rows.at[5];
	ck_assert_str_eq(row->old_name, "a");
	ck_assert(!row->version && row->has_size && row->files == 17 && row->at_ns == 500);
	ck_assert(!rows.at[1].version && rows.at[1].has_size && rows.at[2].version == 14);
	look(&(struct ckpt_timeline_want){.since_ns = INT64_MIN, .details = true});
	assert_rows("policy -, expire b, delete b, undelete b, delete b, rename b, unpin a, pin a, promote a, "
		    "temporary a, metadata a, restore a, repack a, cool a, seal a, edit a, commit a");
}
END_TEST

START_TEST(an_act_that_is_void_has_no_row)
{
	const struct ckpt_act act = plain(CKPT_ACT_DELETE, 1, 3, 0, "");
	bool unknown;

	save(1, "a");
	done(CKPT_ACT_DELETE, 1, 2, 0, "");
	ck_error(ckpt_journal_append(j, &act, false, &unknown), ESTALE);
	look_at_all();
	assert_rows("delete a, commit a");
	ck_assert_uint_eq(ckpt_journal_position(j).seq, 3);
}
END_TEST

// --- Which rows -----------------------------------------------------------------------------------------------------------

START_TEST(the_newest_of_many)
{
	for (unsigned i = 1; i <= 50; i++) {
		char name[16];

		snprintf(name, sizeof(name), "s%u", i);
		save(i, name);
	}
	for (size_t most = 1; most < 60; most++) {
		look(&(struct ckpt_timeline_want){.since_ns = INT64_MIN, .most = most});
		ck_assert_uint_eq(rows.count, MIN(most, (size_t)50));
		for (size_t i = 0; i < rows.count; i++)
			ck_assert_uint_eq(rows.at[i].seq, 50 - i);
	}
}
END_TEST

START_TEST(rows_since_a_time)
{
	save(1, "a");
	recorded(CKPT_ACT_AMEND, 1, 2, "a", 0, CKPT_EVENT_EDIT);
	done(CKPT_ACT_DELETE, 1, 3, 0, "");
	look(&(struct ckpt_timeline_want){.since_ns = 500});
	assert_rows("delete a");
	look(&(struct ckpt_timeline_want){.since_ns = 102});
	assert_rows("delete a, edit a");
	look(&(struct ckpt_timeline_want){.since_ns = 501});
	assert_rows("");
}
END_TEST

static struct ckpt_timeline_want of_step(unsigned i, char ret_id[CKPT_UUID_LEN + 1])
{
	session_of(i, ret_id);
	return (struct ckpt_timeline_want){.since_ns = INT64_MIN, .id = ret_id};
}

// A step with its former names, and with those whose place it took; but not what another one that has such a name now did.
START_TEST(rows_of_one_step)
{
	struct ckpt_timeline_want want;
	char id[CKPT_UUID_LEN + 1];

	save(1, "a");
	recorded(CKPT_ACT_SAVE, 2, 2, "a", 1, "marker");
	done(CKPT_ACT_FLAG, 2, 3, CKPT_FLAG_PINNED, "");
	done(CKPT_ACT_RENAME, 2, 0, 0, "b");
	save(3, "a");
	recorded(CKPT_ACT_AMEND, 2, 4, "b", 0, CKPT_EVENT_EDIT);
	ck_ok(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, "{}"));
	want = of_step(2, id);
	look(&want);
	assert_rows("edit b, rename b, pin a, commit a, commit a");
	want.most = 2;
	look(&want);
	assert_rows("edit b, rename b");
	want = of_step(3, id);
	look(&want);
	assert_rows("commit a");
	want.folder_id = "";
	want.name = "a";
	look(&want);
	assert_rows("commit a, rename b, pin a, commit a, commit a");
	want.id = NULL;
	want.name = "c";
	look(&want);
	assert_rows("");
	want.folder_id = FOLDER;
	want.name = "a";
	look(&want);
	assert_rows("");
}
END_TEST

// --- Trimmed, damaged ---------------------------------------------------------------------------------------------------

START_TEST(entries_that_were_trimmed_are_said_to_be)
{
	struct ckpt_timeline_end end;
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_timeline_want want;

	save(1, "a");
	save(2, "b");
	recorded(CKPT_ACT_SAVE, 3, 2, "a", 1, "marker");
	done(CKPT_ACT_FLAG, 3, 3, CKPT_FLAG_PINNED, "");
	ck_assert(look_at_all().whole_from_ns == INT64_MIN);
	ck_ok(ckpt_journal_snapshot(j, true));
	ck_assert(look_at_all().whole_from_ns == INT64_MIN);
	assert_rows("pin a, commit a, commit b, commit a");
	done(CKPT_ACT_DELETE, 2, 2, 0, "");
	done(CKPT_ACT_EXPIRE, 2, 2, 0, "");
	done(CKPT_ACT_RENAME, 3, 0, 0, "c");
	ck_ok(ckpt_journal_snapshot(j, true));
	done(CKPT_ACT_FLAG, 3, 4, 0, "");
	end = look_at_all();
	assert_rows("unpin c, rename c, expire b, delete b, pin c, commit a, commit a");
	ck_assert(end.whole_from_ns > 0 && !end.damaged);
	ck_assert_str_eq(rows.at[1].old_name, "a"); // the state of the snapshot says so
	end = look(&(struct ckpt_timeline_want){.since_ns = INT64_MIN, .most = 4});
	assert_rows("unpin c, rename c, expire b, delete b");
	ck_assert(end.whole_from_ns == INT64_MIN); // no row is missing
	want = of_step(3, id);
	end = look(&want);
	assert_rows("unpin c, rename c, pin c, commit a, commit a");
	done(CKPT_ACT_FLAG, 3, 5, CKPT_FLAG_PINNED, "");
	ck_ok(ckpt_journal_snapshot(j, true)); // the entries of the flags before go
	look_at_all();
	assert_rows("pin c, unpin c, rename c, commit a, commit a");
	ck_assert_str_eq(rows.at[2].old_name, ""); // not known any more
	end = look(&(struct ckpt_timeline_want){.since_ns = INT64_MAX});
	ck_assert(end.whole_from_ns == INT64_MIN && !rows.count);
}
END_TEST

static void damage(uint64_t seq)
{
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(seq, key);
	ck_ok(ckpt_objects_remove(objects, key));
	ck_ok(ckpt_objects_put(objects, key, "damaged", 7, NULL));
}

static void lose(uint64_t seq)
{
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(seq, key);
	ck_ok(ckpt_objects_remove(objects, key));
}

START_TEST(all_but_what_is_damaged_is_told)
{
	struct ckpt_timeline_end end;

	save(1, "a");
	save(2, "b");
	done(CKPT_ACT_FLAG, 2, 2, CKPT_FLAG_PINNED, "");
	save(3, "c");
	damage(2);
	end = look_at_all();
	assert_rows("commit c, pin -, commit a"); // nobody knows its name any more
	ck_assert(end.damaged == 2 && end.damaged_count == 1);
	lose(2);
	end = look_at_all();
	assert_rows("commit c, pin -, commit a");
	ck_assert(end.damaged == 2 && end.damaged_count == 1);
}
END_TEST

START_TEST(a_damaged_entry_before_the_snapshot)
{
	struct ckpt_timeline_end end;

	save(1, "a");
	save(2, "b");
	for (unsigned i = 0; i < 2; i++) {
		save(3 + i, i ? "d" : "c");
		ck_ok(ckpt_journal_snapshot(j, true));
	}
	damage(2);
	end = look_at_all();
	assert_rows("commit d, commit c, commit a");
	ck_assert(end.damaged == 2 && end.damaged_count == 1 && end.whole_from_ns == INT64_MIN);
	end = look(&(struct ckpt_timeline_want){.since_ns = INT64_MIN, .most = 2});
	ck_assert(!end.damaged); // it was not read
}
END_TEST

// Between the two snapshots one is lost; nobody who reads from the newer one notices.
START_TEST(an_entry_that_is_lost_between_snapshots)
{
	struct ckpt_timeline_end end;

	for (unsigned i = 1; i <= 4; i++) {
		char name[2] = {(char)('a' + i - 1), '\0'};

		save(i, name);
		if (i == 1 || i == 3)
			ck_ok(ckpt_journal_snapshot(j, true));
	}
	lose(2);
	end = look_at_all();
	assert_rows("commit d, commit c, commit a");
	ck_assert(end.damaged == 2 && end.damaged_count == 1);
}
END_TEST

// --- Beside a process that writes -----------------------------------------------------------------------------------------

static int (*below_get)(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len,
			size_t *ret_len, struct ckpt_object *ret_object);
static unsigned gets_left, renames; // until the other process acts; that it has made

static void rename_some(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "s%u", ++renames);
		done(CKPT_ACT_RENAME, 1, 0, 0, name);
	}
}

static int get_beside(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		      struct ckpt_object *ret_object)
{
	if (gets_left && !--gets_left)
		for (unsigned i = 0; i < 3; i++) {
			rename_some(2);
			ck_ok(ckpt_journal_snapshot(j, true));
		}
	return below_get(o, key, offset, buf, len, ret_len, ret_object);
}

// Whenever entries and snapshots go, all rows are told that there are by then, and nothing seems to be damaged.
START_TEST(entries_go_while_they_are_read)
{
	struct ckpt_objects_ops *ops = (struct ckpt_objects_ops *)(uintptr_t)objects->ops; // the fault layer's own
	unsigned tries = 0;

	save(1, "s0");
	rename_some(2);
	ck_ok(ckpt_journal_snapshot(j, true));
	below_get = ops->get;
	ops->get = get_beside;
	do {
		uint64_t before;
		struct ckpt_timeline_end end;

		rename_some(3);
		before = ckpt_journal_position(j).seq;
		gets_left = ++tries;
		end = look_at_all();
		ck_assert_uint_eq(end.damaged, 0);
		ck_assert_uint_ge(rows.at[0].seq, before);
		ck_assert_uint_ge(rows.count, 4);
		for (size_t i = 0; i + 1 < rows.count && rows.at[i + 1].seq > 1; i++) { // that of the commit is needed
			if (!*rows.at[i].old_name)
				break;
			ck_assert_uint_eq(rows.at[i].seq, rows.at[i + 1].seq + 1);
			ck_assert_str_eq(rows.at[i].old_name, rows.at[i + 1].name);
		}
	} while (!gets_left);
	ck_assert_uint_gt(tries, 8);
	gets_left = 0;
}
END_TEST

// --- What it costs --------------------------------------------------------------------------------------------------------

static unsigned gets;

static int get_counted(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		       struct ckpt_object *ret_object)
{
	gets++;
	return below_get(o, key, offset, buf, len, ret_len, ret_object);
}

// Of a long log only as much is read as rows are wanted.
START_TEST(a_few_rows_of_a_long_log)
{
	struct ckpt_objects_ops *ops = (struct ckpt_objects_ops *)(uintptr_t)objects->ops; // the fault layer's own

	for (unsigned i = 1; i <= 500; i++) {
		char name[16];

		snprintf(name, sizeof(name), "s%u", i);
		save(i, name);
		if (i > 498)
			ck_ok(ckpt_journal_snapshot(j, true));
	}
	below_get = ops->get;
	ops->get = get_counted;
	look(&(struct ckpt_timeline_want){.since_ns = INT64_MIN, .most = 5});
	assert_rows("commit s500, commit s499, commit s498, commit s497, commit s496");
	ck_assert_uint_le(gets, 20);
	look_at_all();
	ck_assert_uint_eq(rows.count, 500);
}
END_TEST

// Some of all that there is: before the snapshot and behind it, of another node, and of a step.
static int look_quietly(void)
{
	struct ckpt_timeline_end end;
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_timeline_want want;

	session_of(3, id);
	want = (struct ckpt_timeline_want){.since_ns = INT64_MIN, .id = id};
	rows.count = 0;
	return ckpt_timeline_read(objects, STORE, STORE, &want, add_row, NULL, &end);
}

static void make_some(void)
{
	save(1, "a");
	recorded(CKPT_ACT_SAVE, 2, 2, "a", 1, "marker");
	ck_ok(ckpt_journal_snapshot(j, true));
	done(CKPT_ACT_FLAG, 2, 3, 0, "");
	ck_ok(ckpt_journal_snapshot(j, true));
	recorded(CKPT_ACT_SAVE, 3, 4, "a", 2, "marker");
	done(CKPT_ACT_RENAME, 3, 0, 0, "b");
	ck_ok(look_quietly());
	assert_rows("rename b, commit a, flags a, commit a, commit a");
}

START_TEST(without_memory)
{
	uint64_t count, at = 0;

	make_some();
	do {
		int rc;

		ckpt_allocfault_begin(++at, false);
		rc = look_quietly();
		count = ckpt_allocfault_end();
		ck_assert_int_eq(rc, count < at ? 0 : -ENOMEM);
	} while (count >= at);
	assert_rows("rename b, commit a, flags a, commit a, commit a");
	ck_assert_uint_gt(at, 20);
}
END_TEST

START_TEST(a_read_that_fails)
{
	uint64_t at = 0;

	make_some();
	do {
		int rc;

		fault = (struct ckpt_fault){.at = ++at, .error = -EIO};
		rc = look_quietly();
		ck_assert_int_eq(rc, fault.count < at ? 0 : -EIO);
	} while (fault.count >= at);
	assert_rows("rename b, commit a, flags a, commit a, commit a");
	ck_assert_uint_gt(at, 10);
}
END_TEST

// --- Other nodes ----------------------------------------------------------------------------------------------------------

struct pushed {
	struct ckpt_operation ops[8];
	void *bodies[8];
	uint32_t count;
};

static void push(struct pushed *p, const char *node, const struct ckpt_act *act)
{
	struct ckpt_operation *op = &p->ops[p->count];

	*op = (struct ckpt_operation){
		.kind = (uint16_t)act->kind, .required = true, .actor = {.uid = 7, .comm = "elsewhere"}};
	snprintf(op->node, sizeof(op->node), "%s", node);
	ck_ok(ckpt_act_encode(act, &p->bodies[p->count], &op->len));
	op->body = p->bodies[p->count++];
}

static void pull(struct pushed *p)
{
	struct ckpt_log_entry entry = {.store_id = STORE, .seq = 1, .node = OTHER, .time_ns = 300, .count = p->count};
	struct ckpt_pull pulls[2] = {{.host = "here"}, {.host = ""}};
	CLEANUP_FREE void *data = NULL;
	size_t len;

	ck_ok(ckpt_log_entry_encode(&entry, p->ops, &data, &len));
	pulls[1].entry = data;
	pulls[1].entry_len = len;
	ck_ok(ckpt_journal_pull(j, pulls, 2));
	while (p->count)
		free(p->bodies[--p->count]);
}

static struct ckpt_act on_tree(enum ckpt_act_kind kind, const char *id, const char *name)
{
	struct ckpt_act act = {.kind = kind, .mode = 0755};

	snprintf(act.id, sizeof(act.id), "%s", id);
	snprintf(act.name, sizeof(act.name), "%s", name);
	return act;
}

// Acts that this node has pushed come back in an entry of the remote's log.
START_TEST(acts_of_other_nodes_are_theirs_and_own_ones_are_told_once)
{
	CLEANUP_FREE void *theirs = NULL, *ours = NULL;
	struct ckpt_act act, tree = on_tree(CKPT_ACT_MKDIR, FOLDER, "logs");
	struct pushed p = {0};

	save(1, "a");
	encode(CKPT_ACT_SAVE, 2, 1, "b", 0, "rename", &act, &theirs);
	push(&p, OTHER, &act);
	act = plain(CKPT_ACT_FLAG, 2, 2, CKPT_FLAG_PINNED, "");
	push(&p, OTHER, &act);
	act = plain(CKPT_ACT_RENAME, 2, 0, 0, "c");
	push(&p, OTHER, &act);
	encode(CKPT_ACT_SAVE, 1, 1, "a", 0, "marker", &act, &ours);
	push(&p, STORE, &act);
	push(&p, STORE, &tree);
	pull(&p);
	done(CKPT_ACT_FLAG, 2, 3, 0, "");
	look_at_all();
	assert_rows("unpin c, rename c, pin b, commit b, attach -, commit a");
	for (size_t i = 0; i < rows.count; i++) {
		bool there = i >= 1 && i <= 3;

		ck_assert_str_eq(rows.at[i].node, there ? OTHER : STORE);
		ck_assert_str_eq(rows.at[i].actor.comm, there ? "elsewhere" : "trainer");
	}
	ck_assert_str_eq(rows.at[1].old_name, "b");
	ck_assert(rows.at[2].has_size && rows.at[2].bytes == 2000);
	ck_assert_uint_eq(rows.at[1].seq, rows.at[3].seq);
	look(&(struct ckpt_timeline_want){.since_ns = INT64_MIN, .details = true});
	assert_rows("unpin c, mkdir logs, rename c, pin b, commit b, attach -, commit a");
}
END_TEST

struct view {
	struct ckpt_log_position at;
	struct ckpt_state *state;
};

static int take_view(void *arg, const struct ckpt_state *state)
{
	struct view *v = arg;

	v->at = ckpt_state_remote(state);
	v->state = ckpt_state_view(state);
	return 0;
}

// A snapshot of a remote's log of ten entries, by a node that has read them.
static void *remote_snapshot(size_t *ret_len)
{
	struct ckpt_objects *remote, *of_reader;
	struct ckpt_journal *reader;
	struct view v;
	uint64_t damaged;
	void *snapshot;

	ck_ok(ckpt_mem_new(&remote));
	ck_ok(ckpt_mem_new(&of_reader));
	ckpt_remote_log_make(remote, STORE, 10, true);
	ck_ok(ckpt_journal_open(of_reader, STORE, OTHER, CKPT_JOURNAL_WRITE, &reader, &damaged));
	ck_ok(ckpt_journal_pull(reader, &(struct ckpt_pull){.host = "other"}, 1));
	for (uint64_t seq = 1; seq <= 10; seq++) {
		CLEANUP_FREE void *data = NULL;
		char key[CKPT_LOG_KEY_MAX];
		size_t len;

		ckpt_log_key(seq, key);
		ck_ok(ckpt_objects_get_all(remote, key, CKPT_LOG_ENTRY_BYTES_MAX, &data, &len, NULL));
		ck_ok(ckpt_journal_pull(reader, &(struct ckpt_pull){.host = "", .entry = data, .entry_len = len}, 1));
	}
	(void)ckpt_journal_look(reader, take_view, &v);
	ck_ok(ckpt_jump_snapshot(of_reader, STORE, v.state, &v.at, &snapshot, ret_len));
	ckpt_state_free(v.state);
	ckpt_journal_close(reader);
	ckpt_objects_close(of_reader);
	ckpt_objects_close(remote);
	return snapshot;
}

START_TEST(a_jump_is_one_row)
{
	struct ckpt_act act = {.kind = CKPT_ACT_FLAG, .version = 2, .flags = CKPT_FLAG_PINNED, .time_ns = 500};
	size_t len;
	CLEANUP_FREE void *snapshot = remote_snapshot(&len);

	ck_ok(ckpt_journal_pull(j, &(struct ckpt_pull){.host = "here"}, 1));
	ck_ok(ckpt_journal_jump(j, 10, snapshot, len));
	ckpt_remote_log_session(7, act.step);
	append(&act);
	look_at_all();
	assert_rows("pin ckpt-7, pull -, attach -");
	ck_assert(rows.at[0].has_size);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("timeline");
	TCase *tc = tcase_create("timeline");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, each_act_has_a_row);
	tcase_add_test(tc, an_act_that_is_void_has_no_row);
	tcase_add_test(tc, the_newest_of_many);
	tcase_add_test(tc, rows_since_a_time);
	tcase_add_test(tc, rows_of_one_step);
	tcase_add_test(tc, entries_that_were_trimmed_are_said_to_be);
	tcase_add_test(tc, all_but_what_is_damaged_is_told);
	tcase_add_test(tc, a_damaged_entry_before_the_snapshot);
	tcase_add_test(tc, an_entry_that_is_lost_between_snapshots);
	tcase_add_test(tc, entries_go_while_they_are_read);
	tcase_add_test(tc, a_few_rows_of_a_long_log);
	tcase_add_test(tc, without_memory);
	tcase_add_test(tc, a_read_that_fails);
	tcase_add_test(tc, acts_of_other_nodes_are_theirs_and_own_ones_are_told_once);
	tcase_add_test(tc, a_jump_is_one_row);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}

// Snapshots of a remote's log, and nodes that jump to them: what a node has then is what it would have read; what is hostile is refused
// before anything is changed; a crash anywhere leaves a node that can go on.
#include "tests/support/formats.h"
#include "tests/support/remote_log.h"
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/record/container.h"
#include "core/state/journal.h"
#include "core/state/jump.h"
#include "core/state/plain.h"
#include "core/state/table.h"

#include <inttypes.h>
#include <stdio.h>

#define STORE "11111111-1111-4111-8111-111111111111"
#define OTHER_STORE "11111111-1111-4111-8111-111111111112"

enum { ENTRIES = 40 };

static struct ckpt_objects *remote;

// A node beside the remote.
struct node {
	char id[CKPT_UUID_LEN + 1];
	struct ckpt_objects *objects;
	struct ckpt_fault fault;
	struct ckpt_journal *j;
};

static struct node a, b;

static void open_node(struct node *n)
{
	uint64_t damaged;

	ck_ok(ckpt_journal_open(n->objects, STORE, n->id, CKPT_JOURNAL_WRITE, &n->j, &damaged));
	ck_assert_uint_eq(damaged, 0);
}

static void new_node(struct node *n, unsigned i)
{
	*n = (struct node){0};
	snprintf(n->id, sizeof(n->id), "22222222-2222-4222-8222-22222222222%u", i);
	ck_ok(ckpt_mem_new(&n->objects));
	ck_ok(ckpt_fault_new(n->objects, &n->fault, &n->objects));
	open_node(n);
	ck_ok(ckpt_journal_pull(n->j, &(struct ckpt_pull){.host = "h"}, 1));
}

static void close_node(struct node *n)
{
	ckpt_journal_close(TAKE_PTR(n->j));
	ckpt_objects_close(n->objects);
}

static void reopen(struct node *n)
{
	ckpt_journal_close(TAKE_PTR(n->j));
	open_node(n);
}

static void setup(void)
{
	ck_ok(ckpt_mem_new(&remote));
	ckpt_remote_log_make(remote, STORE, ENTRIES, false);
	new_node(&a, 0);
	new_node(&b, 1);
}

static void teardown(void)
{
	close_node(&a);
	close_node(&b);
	ckpt_objects_close(remote);
}

// --- What nodes do --------------------------------------------------------------------------------------------------------

static int take_remote(void *arg, const struct ckpt_state *state)
{
	*(struct ckpt_log_position *)arg = ckpt_state_remote(state);
	return 0;
}

static uint64_t position(struct node *n)
{
	struct ckpt_log_position at;

	(void)ckpt_journal_look(n->j, take_remote, &at);
	return at.seq;
}

static void read_up_to(struct node *n, uint64_t to)
{
	for (uint64_t seq = position(n) + 1; seq <= to; seq++) {
		CLEANUP_FREE void *data = NULL;
		char key[CKPT_LOG_KEY_MAX];
		size_t len;

		ckpt_log_key(seq, key);
		ck_ok(ckpt_objects_get_all(remote, key, CKPT_LOG_ENTRY_BYTES_MAX, &data, &len, NULL));
		ck_ok(ckpt_journal_pull(n->j, &(struct ckpt_pull){.host = "", .entry = data, .entry_len = len}, 1));
	}
	ck_assert_uint_eq(position(n), to);
}

struct snapshot {
	struct ckpt_log_position at;
	uint8_t *data;
	size_t len;
};

static void done(struct snapshot *s)
{
	free(s->data);
}

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

static void snapshot_of(struct node *n, struct snapshot *ret)
{
	struct view v;

	(void)ckpt_journal_look(n->j, take_view, &v);
	ck_assert_ptr_nonnull(v.state);
	ret->at = v.at;
	ck_ok(ckpt_jump_snapshot(n->objects, STORE, v.state, &v.at, (void **)&ret->data, &ret->len));
	ckpt_state_free(v.state);
}

static int jump(struct node *n, const struct snapshot *s)
{
	return ckpt_journal_jump(n->j, s->at.seq, s->data, s->len);
}

// Two nodes that have read the same make the same snapshot: all that they know of the remote is in it.
static void check_same(struct node *x, struct node *y)
{
	CLEANUP(done) struct snapshot s = {0}, t = {0};

	ck_assert_uint_eq(position(x), position(y));
	snapshot_of(x, &s);
	snapshot_of(y, &t);
	ck_assert_uint_eq(s.len, t.len);
	ck_assert_mem_eq(s.data, t.data, s.len);
}

struct plains {
	struct ckpt_plain *at; // their names are not theirs
	size_t count;
};

static int list_plains(void *arg, const struct ckpt_state *state)
{
	struct plains *p = arg;
	struct ckpt_plain *const *all = ckpt_state_plains(state, &p->count);

	p->at = ckpt_calloc(p->count + 1, sizeof(*p->at));
	for (size_t i = 0; i < p->count; i++) {
		p->at[i] = *all[i];
		p->at[i].name = strdup(all[i]->name);
		ck_assert_str_eq(ckpt_state_node(state, all[i]->node), CKPT_REMOTE_LOG_NODE);
	}
	return 0;
}

// Each file of the log has the number of the entry that put it as its content.
static void check_plains(struct node *n, unsigned count)
{
	struct plains p;

	(void)ckpt_journal_look(n->j, list_plains, &p);
	ck_assert_uint_eq(p.count, count);
	for (size_t i = 0; i < p.count; i++) {
		const struct ckpt_plain *e = &p.at[i];
		CLEANUP_FREE char *is = NULL;
		char want[64] = "";
		size_t len;

		if (strcmp(e->name, "none"))
			snprintf(want, sizeof(want), "content of %" PRIu64, e->version >> CKPT_PLAIN_INDEX_BITS);
		if (!*e->id) {
			ck_ok(ckpt_journal_plain(n->j, e->folder_id, e->name, e->version, (void **)&is, &len));
			ck_assert_uint_eq(len, strlen(want));
			ck_assert_str_eq(is, want);
		}
		free((void *)(uintptr_t)e->name);
	}
	free(p.at);
}

static void check_records(struct node *n, unsigned steps)
{
	struct ckpt_said *list;
	size_t count;

	ck_ok(ckpt_journal_list(n->j, &list, &count));
	ck_assert_uint_eq(count, steps);
	for (size_t i = 0; i < count; i++) {
		struct ckpt_record r;

		ck_ok(ckpt_journal_record(n->j, list[i].is.session, list[i].is.version, &r));
		ck_assert_str_eq(r.summary.name, list[i].is.name);
		ckpt_record_done(&r);
	}
	free(list);
}

static bool has_copy(struct node *n, uint64_t seq)
{
	char key[CKPT_SNAPSHOT_KEY_MAX];
	struct ckpt_object object;

	ckpt_snapshot_copy_key(seq, key);
	return !ckpt_objects_head(n->objects, key, &object);
}

// --- Jumps ------------------------------------------------------------------------------------------------------------------

START_TEST(who_jumps_has_what_who_reads_has)
{
	CLEANUP(done) struct snapshot s = {0};

	read_up_to(&a, 25);
	snapshot_of(&a, &s);
	read_up_to(&b, 1);
	ck_ok(jump(&b, &s));
	check_same(&a, &b);
	check_records(&b, ckpt_remote_log_steps(25));
	reopen(&b);
	check_same(&a, &b);
	read_up_to(&a, ENTRIES);
	read_up_to(&b, ENTRIES);
	check_same(&a, &b);
	check_records(&b, ckpt_remote_log_steps(ENTRIES));
	check_plains(&b, ckpt_remote_log_plains(ENTRIES));
}
END_TEST

START_TEST(copy_stays_as_long_as_a_record_is_in_it)
{
	CLEANUP(done) struct snapshot s = {0}, t = {0};

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	ck_ok(jump(&b, &s));
	for (unsigned i = 0; i < 3; i++) { // the log goes that is behind two snapshots
		read_up_to(&b, 21 + i);
		ck_ok(ckpt_journal_snapshot(b.j, true));
		reopen(&b);
		check_records(&b, ckpt_remote_log_steps(21 + i));
		check_plains(&b, ckpt_remote_log_plains(21 + i));
	}
	ck_assert(has_copy(&b, 20));
	read_up_to(&a, ENTRIES);
	snapshot_of(&a, &t);
	ck_ok(jump(&b, &t));
	ck_assert(has_copy(&b, 20) && has_copy(&b, ENTRIES));
	ck_ok(ckpt_journal_snapshot(b.j, true)); // nothing that is read from the one before needs it
	ck_assert(!has_copy(&b, 20) && has_copy(&b, ENTRIES));
	reopen(&b);
	check_same(&a, &b);
	check_records(&b, ckpt_remote_log_steps(ENTRIES));
}
END_TEST

// Two jumps behind one snapshot: both are read again from there.
START_TEST(copy_stays_that_is_read_again)
{
	CLEANUP(done) struct snapshot s = {0}, t = {0}, u = {0};
	CLEANUP_FREE uint8_t *data = NULL;
	char key[CKPT_SNAPSHOT_KEY_MAX];
	size_t len;

	read_up_to(&b, 1);
	ck_ok(ckpt_journal_snapshot(b.j, true));
	read_up_to(&b, 2);
	ck_ok(ckpt_journal_snapshot(b.j, true));
	read_up_to(&a, 10);
	snapshot_of(&a, &s);
	read_up_to(&a, 20);
	snapshot_of(&a, &t);
	read_up_to(&a, 30);
	snapshot_of(&a, &u);
	ck_ok(jump(&b, &s));
	ck_ok(jump(&b, &t));
	ck_ok(jump(&b, &u));
	ck_ok(ckpt_journal_snapshot(b.j, true));
	ckpt_snapshot_key(ckpt_journal_position(b.j).seq, key); // is damaged: the one before is read
	ck_ok(ckpt_objects_get_all(b.objects, key, CKPT_SNAPSHOT_BYTES_MAX, (void **)&data, &len, NULL));
	ck_ok(ckpt_objects_remove(b.objects, key));
	data[len / 2]++;
	ck_ok(ckpt_objects_put(b.objects, key, data, len, NULL));
	reopen(&b);
	check_same(&a, &b);
}
END_TEST

START_TEST(snapshot_is_due_after_a_jump)
{
	CLEANUP(done) struct snapshot s = {0};
	struct ckpt_log_position at;
	CLEANUP_FREE void *state = NULL;
	size_t len;

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	ck_ok(ckpt_journal_snapshot(b.j, false));
	ck_error(ckpt_snapshot_newest(b.objects, STORE, &at, &state, &len), ENOENT);
	ck_ok(jump(&b, &s));
	ck_ok(ckpt_journal_snapshot(b.j, false));
	ck_ok(ckpt_snapshot_newest(b.objects, STORE, &at, &state, &len));
}
END_TEST

START_TEST(copy_that_is_missing_or_another_stops_who_writes)
{
	CLEANUP(done) struct snapshot s = {0};
	char key[CKPT_SNAPSHOT_KEY_MAX];
	uint64_t damaged, seq;

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	ck_ok(jump(&b, &s));
	seq = ckpt_journal_position(b.j).seq;
	ckpt_journal_close(TAKE_PTR(b.j));
	ckpt_snapshot_copy_key(20, key);
	ck_ok(ckpt_objects_remove(b.objects, key));
	if (_i) {
		s.data[s.len / 2]++;
		ckpt_sample_reseal(s.data, s.len);
		ck_ok(ckpt_objects_put(b.objects, key, s.data, s.len, NULL));
	}
	ck_error(ckpt_journal_open(b.objects, STORE, b.id, CKPT_JOURNAL_WRITE, &b.j, &damaged), EBADMSG);
	ck_assert_uint_eq(damaged, seq);
	ck_ok(ckpt_journal_open(b.objects, STORE, b.id, CKPT_JOURNAL_READ, &b.j, &damaged));
	ck_assert_uint_eq(position(&b), 0);
}
END_TEST

START_TEST(left_copy_of_other_bytes_is_put_again)
{
	CLEANUP(done) struct snapshot s = {0};

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	s.data[s.len / 2]++;
	ck_ok(ckpt_jump_copy_put(b.objects, 20, s.data, s.len));
	s.data[s.len / 2]--;
	ck_ok(jump(&b, &s));
	reopen(&b);
	check_same(&a, &b);
}
END_TEST

// Each call fails, or is carried out and its answer is lost; then the node ends, and begins again.
START_TEST(crash_in_a_jump_leaves_a_node_that_goes_on)
{
	CLEANUP(done) struct snapshot s = {0};
	unsigned n = 0;
	bool hit = true;

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	for (n = 1; hit; n++) {
		struct node c;

		new_node(&c, 2);
		read_up_to(&c, 1);
		c.fault.count = 0;
		c.fault.error = -EIO;
		c.fault.half = _i;
		c.fault.sticky = true;
		c.fault.at = n;
		(void)jump(&c, &s);
		(void)ckpt_journal_snapshot(c.j, true);
		hit = c.fault.count >= n;
		c.fault.at = 0;
		reopen(&c);
		ck_assert(position(&c) == 1 || position(&c) == 20);
		if (position(&c) == 1)
			ck_ok(jump(&c, &s));
		check_same(&a, &c);
		check_records(&c, ckpt_remote_log_steps(20));
		check_plains(&c, ckpt_remote_log_plains(20));
		close_node(&c);
		ck_assert_uint_lt(n, 1000);
	}
	ck_assert_uint_gt(n, 4);
}
END_TEST

// --- The plain tree ---------------------------------------------------------------------------------------------------------

static void use_remote_without_steps(void)
{
	ckpt_objects_close(remote);
	ck_ok(ckpt_mem_new(&remote));
}

static struct ckpt_act file(const char *name, uint64_t before, const char *content)
{
	struct ckpt_act act = {.kind = CKPT_ACT_FILE, .before = before, .mode = 0644, .content = content};

	strcpy(act.name, name);
	act.content_len = strlen(content);
	return act;
}

static void add_file(const char *name, uint64_t before, const char *content)
{
	struct ckpt_act act = file(name, before, content);

	ckpt_remote_log_add(remote, STORE, &act);
}

static void assert_plain(struct node *n, const char *name, uint64_t version, const void *want, size_t want_len)
{
	CLEANUP_FREE void *is = NULL;
	size_t len;

	ck_ok(ckpt_journal_plain(n->j, "", name, version, &is, &len));
	ck_assert_uint_eq(len, want_len);
	ck_assert_mem_eq(is, want, len);
}

START_TEST(tree_is_that_of_the_snapshot)
{
	CLEANUP(done) struct snapshot s = {0};

	for (uint64_t to = 1; to <= 30; to++) {
		struct node c;

		read_up_to(&a, to);
		free(TAKE_PTR(s.data));
		snapshot_of(&a, &s);
		new_node(&c, 2);
		read_up_to(&c, to / 2);
		ck_ok(jump(&c, &s));
		check_same(&a, &c);
		check_plains(&c, ckpt_remote_log_plains(to));
		reopen(&c);
		check_plains(&c, ckpt_remote_log_plains(to));
		ck_ok(ckpt_journal_snapshot(c.j, true));
		reopen(&c);
		read_up_to(&c, ENTRIES);
		check_plains(&c, ckpt_remote_log_plains(ENTRIES));
		close_node(&c);
	}
	read_up_to(&a, ENTRIES);
	check_plains(&a, ckpt_remote_log_plains(ENTRIES));
}
END_TEST

// A node that jumps may put the next snapshot: out of the copy.
START_TEST(copy_stays_as_long_as_a_content_is_in_it)
{
	CLEANUP(done) struct snapshot s = {0};

	use_remote_without_steps();
	add_file("f", 0, "old");
	add_file("g", 0, "other");
	read_up_to(&a, 2);
	snapshot_of(&a, &s);
	ck_ok(jump(&b, &s));
	for (unsigned i = 0; i < 3; i++) {
		add_file("other", i ? (uint64_t)(2 + i) << 16 : 0, i % 2 ? "x" : "y");
		read_up_to(&b, 3 + i);
		ck_ok(ckpt_journal_snapshot(b.j, true));
		reopen(&b);
		assert_plain(&b, "f", 1 << 16, "old", 3);
	}
	add_file("f", 1 << 16, "new");
	read_up_to(&a, 6);
	read_up_to(&b, 6);
	check_same(&a, &b);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(has_copy(&b, 2));
		add_file("other", (uint64_t)(i ? 6 + i : 5) << 16, "z");
		read_up_to(&b, 7 + i);
		ck_ok(ckpt_journal_snapshot(b.j, true));
		assert_plain(&b, "g", 2 << 16, "other", 5);
	}
	ck_assert(has_copy(&b, 2));
	add_file("g", 2 << 16, "newer");
	read_up_to(&b, 10);
	ck_ok(ckpt_journal_snapshot(b.j, true));
	ck_assert(!has_copy(&b, 2));
	reopen(&b);
	assert_plain(&b, "f", 6 << 16, "new", 3);
	assert_plain(&b, "g", 10 << 16, "newer", 5);
}
END_TEST

START_TEST(large_file_is_72_bytes)
{
	const struct ckpt_plain_large large = {.bytes = 1u << 20, .sha256 = {1}, .manifest = {2}};
	uint8_t content[CKPT_PLAIN_LARGE_BYTES];
	CLEANUP(done) struct snapshot s = {0}, t = {0};
	struct ckpt_log_position at;
	struct ckpt_snapshot is;
	struct ckpt_state *state;
	struct ckpt_act act = file("large", 0, "");

	use_remote_without_steps();
	ckpt_plain_large_encode(&large, content);
	act.large = true;
	act.content = content;
	act.content_len = sizeof(content);
	ckpt_remote_log_add(remote, STORE, &act);
	read_up_to(&a, 1);
	snapshot_of(&a, &s);
	ck_ok(ckpt_jump_state(STORE, 1, s.data, s.len, &at, &state));
	ckpt_state_free(state);
	ck_ok(jump(&b, &s));
	check_same(&a, &b);
	assert_plain(&b, "large", 1 << 16, content, sizeof(content));
	ck_ok(ckpt_snapshot_decode(STORE, 1, s.data, s.len, &is)); // the sizes are of two files
	content[1]++;
	is.records = content;
	ck_assert_uint_eq(is.records_len, sizeof(content));
	ck_ok(ckpt_snapshot_encode(STORE, &is, (void **)&t.data, &t.len));
	ck_error(ckpt_jump_state(STORE, 1, t.data, t.len, &at, &state), EBADMSG);
}
END_TEST

START_TEST(snapshot_without_a_content_is_not_made)
{
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_LOG_KEY_MAX];
	struct view v;
	size_t len;

	use_remote_without_steps();
	add_file("f", 0, "old");
	read_up_to(&a, 1);
	(void)ckpt_journal_look(a.j, take_view, &v);
	ckpt_log_key(ckpt_journal_position(a.j).seq, key);
	ck_ok(ckpt_objects_remove(a.objects, key));
	ck_error(ckpt_jump_snapshot(a.objects, STORE, v.state, &v.at, &data, &len), ENOENT);
	ckpt_state_free(v.state);
}
END_TEST

// --- Hostile snapshots ------------------------------------------------------------------------------------------------------

// The sections of a snapshot, which a test changes and puts together again.
struct parts {
	struct ckpt_snapshot is;
	uint8_t *records;
	struct ckpt_state *state;
};

static const struct ckpt_state_step *some_step(struct ckpt_state *state)
{
	char id[CKPT_UUID_LEN + 1];

	ckpt_remote_log_session(3, id); // amended: two versions, two records
	return ckpt_state_step(state, id);
}

static struct ckpt_state_version *some_version(struct ckpt_state *state, size_t i)
{
	const struct ckpt_state_step *step = some_step(state);

	ck_assert_uint_eq(step->count, 2);
	return &step->versions[i];
}

enum hostility {
	OF_ANOTHER_STEP,
	BEFORE_THE_RECORDS,
	BEHIND_THE_RECORDS,
	LONGER_THAN_THE_RECORDS,
	OF_A_LOG,
	OF_ANOTHER_COPY,
	VERSION_TOO_HIGH,
	OTHER_FILES,
	OTHER_MANIFEST,
	A_VALUE,
	ATTACHED,
	OF_ANOTHER_STORE,
	WITHOUT_RECORDS,
	CONTENT_BEFORE_THE_RECORDS,
	CONTENT_BEHIND_THE_RECORDS,
	CONTENT_OF_A_LOG,
	CONTENT_OF_ANOTHER_COPY,
	CONTENT_OF_ANOTHER_FILE,
	CONTENT_CUT_OFF,
	TARGET_WITH_A_NUL,
	PLAIN_OF_A_LATER_ENTRY,
	PLAIN_IN_NO_FOLDER,
	HOSTILITIES,
};

static struct ckpt_span record_of_another(struct ckpt_state *state)
{
	char id[CKPT_UUID_LEN + 1];

	ckpt_remote_log_session(1, id);
	return ckpt_state_step(state, id)->versions[0].record;
}

static void attach(struct ckpt_state *state)
{
	const struct ckpt_operation op = {.node = STORE, .number = 1, .kind = CKPT_PULL_KIND, .required = true};
	struct ckpt_operation with = op;
	void *body;

	ck_ok(ckpt_pull_encode(&(struct ckpt_pull){.host = "h"}, &body, &with.len));
	with.body = body;
	ck_ok(ckpt_state_apply(state, STORE, &with, &(struct ckpt_span){.seq = 1, .len = 1}));
	free(body);
}

static void set_value(struct ckpt_state *state)
{
	struct ckpt_act act = {.kind = CKPT_ACT_SET, .key = "garbage", .value = "{}", .value_len = 2, .time_ns = 1};
	struct ckpt_operation op = {.node = CKPT_REMOTE_LOG_NODE, .number = 9, .kind = CKPT_ACT_SET, .required = true};
	void *body;

	ck_ok(ckpt_act_encode(&act, &body, &op.len));
	op.body = body;
	ck_ok(ckpt_state_apply(state, STORE, &op, &(struct ckpt_span){.seq = 1, .len = 1}));
	free(body);
}

static struct ckpt_plain *some_plain(struct ckpt_state *state, bool link)
{
	for (size_t i = 0; i < state->plains.count; i++)
		if (state->plains.all[i]->content.len && state->plains.all[i]->link == link)
			return state->plains.all[i];
	ck_abort_msg("there is none");
	return NULL;
}

// It is the first record.
static void give_nul(struct ckpt_plain *e, const struct ckpt_snapshot *is)
{
	const uint32_t len = 40;

	ck_assert_ptr_nonnull(memchr(is->records, 0, len));
	e->content.offset = CKPT_SNAPSHOT_RECORDS_AT;
	e->content.len = len;
	e->size = len;
	ckpt_sha256(is->records, len, e->sha256);
}

static void make_plain_hostile(struct ckpt_state *state, const struct ckpt_snapshot *is, enum hostility how)
{
	struct ckpt_plain *e = some_plain(state, false);

	switch (how) {
	case CONTENT_BEFORE_THE_RECORDS:
		e->content.offset = CKPT_SNAPSHOT_RECORDS_AT - 8;
		break;
	case CONTENT_BEHIND_THE_RECORDS:
		e->content.offset = CKPT_SNAPSHOT_RECORDS_AT + (uint32_t)is->records_len + 8;
		break;
	case CONTENT_OF_A_LOG:
		e->content.seq = 20;
		e->content.offset = 200;
		break;
	case CONTENT_OF_ANOTHER_COPY:
		e->content.seq = 21 | CKPT_SPAN_COPY;
		break;
	case CONTENT_OF_ANOTHER_FILE:
		e->content.offset++;
		break;
	case CONTENT_CUT_OFF:
		e->size = --e->content.len;
		break;
	case TARGET_WITH_A_NUL:
		give_nul(some_plain(state, true), is);
		break;
	case PLAIN_OF_A_LATER_ENTRY:
		e->version = UINT64_C(24) << CKPT_PLAIN_INDEX_BITS;
		break;
	case PLAIN_IN_NO_FOLDER:
		strcpy(e->folder_id, "dddddddddddddddd");
		break;
	default:
		break;
	}
}

static void make_hostile(struct ckpt_state *state, size_t records_len, enum hostility how)
{
	struct ckpt_state_step *step = (struct ckpt_state_step *)some_step(state);
	struct ckpt_state_version *v = some_version(state, 0);
	struct ckpt_span *at = &v->record;

	switch (how) {
	case OF_ANOTHER_STEP:
		*at = record_of_another(state);
		break;
	case BEFORE_THE_RECORDS:
		at->offset = CKPT_SNAPSHOT_RECORDS_AT - 8;
		break;
	case BEHIND_THE_RECORDS:
		at->offset = CKPT_SNAPSHOT_RECORDS_AT + (uint32_t)records_len + 8;
		break;
	case LONGER_THAN_THE_RECORDS:
		at->len = 200000;
		break;
	case OF_A_LOG:
		at->seq = 20;
		break;
	case OF_ANOTHER_COPY:
		at->seq = 21 | CKPT_SPAN_COPY;
		break;
	case VERSION_TOO_HIGH:
		step->versions[1].version = step->is.version = UINT32_MAX;
		break;
	case OTHER_FILES:
		step->is.nonce[0]++;
		break;
	case OTHER_MANIFEST:
		step->is.manifest_sha256[0]++;
		break;
	case A_VALUE:
		set_value(state);
		break;
	case ATTACHED:
		attach(state);
		break;
	default:
		break;
	}
}

// As it is written by who knows the format.
static void rewrite(const struct snapshot *s, enum hostility how, struct snapshot *ret)
{
	const char *store = how == OF_ANOTHER_STORE ? OTHER_STORE : STORE;
	CLEANUP_FREE void *encoded = NULL;
	struct ckpt_snapshot is;
	struct ckpt_state *state;

	ck_ok(ckpt_snapshot_decode(STORE, s->at.seq, s->data, s->len, &is));
	ck_ok(ckpt_view_decode(is.state, is.state_len, &is.at, &state));
	make_hostile(state, is.records_len, how);
	make_plain_hostile(state, &is, how);
	ck_ok(ckpt_state_encode(state, &encoded, &is.state_len));
	ckpt_state_free(state);
	is.state = encoded;
	if (how == WITHOUT_RECORDS)
		is.records = NULL;
	ret->at = s->at;
	ck_ok(ckpt_snapshot_encode(store, &is, (void **)&ret->data, &ret->len));
}

static int try_state(const struct snapshot *s, uint64_t seq)
{
	struct ckpt_log_position at;
	struct ckpt_state *state;
	int rc = ckpt_jump_state(STORE, seq, s->data, s->len, &at, &state);

	if (!rc)
		ckpt_state_free(state);
	return rc;
}

START_TEST(hostile_snapshot_is_refused)
{
	CLEANUP(done) struct snapshot s = {0}, t = {0};

	read_up_to(&a, 23);
	snapshot_of(&a, &s);
	rewrite(&s, HOSTILITIES, &t);
	ck_ok(try_state(&t, 23)); // nothing was changed
	ck_error(try_state(&t, 24), EBADMSG);
	free(TAKE_PTR(t.data));
	rewrite(&s, (enum hostility)_i, &t);
	ck_error(try_state(&t, 23), EBADMSG);
}
END_TEST

// What is let in has steps whose records can be read, whatever they say.
START_TEST(damaged_snapshot_is_refused_or_whole)
{
	CLEANUP(done) struct snapshot s = {0};
	unsigned runs = ckpt_suite_seeds(3000, 100000), refused = 0;
	struct node c;

	read_up_to(&a, 20);
	snapshot_of(&a, &s);
	for (uint64_t seed = 1; seed <= runs; seed++) {
		CLEANUP(done) struct snapshot t = {.at = s.at, .data = malloc(s.len + 64)};
		uint64_t random = seed;
		int rc;

		memcpy(t.data, s.data, s.len);
		t.len = ckpt_sample_mutate(&random, t.data, s.len, s.len + 64);
		if (seed % 4)
			ckpt_sample_reseal(t.data, t.len);
		rc = try_state(&t, 20);
		refused += rc != 0;
		if (rc || seed % 16)
			continue;
		new_node(&c, 2);
		ck_ok(jump(&c, &t));
		reopen(&c);
		ck_assert_uint_eq(position(&c), 20);
		close_node(&c);
	}
	ck_assert_uint_ge(refused, runs / 2);
}
END_TEST

START_TEST(body_of_a_jump_is_checked)
{
	const struct ckpt_jump jump = {.seq = 7, .bytes = 8, .sha256 = {9}};
	uint8_t body[CKPT_JUMP_BYTES];
	struct ckpt_jump back;

	ckpt_jump_encode(&jump, body);
	ck_ok(ckpt_jump_decode(body, sizeof(body), &back));
	ck_assert_mem_eq(&jump, &back, sizeof(jump));
	ck_error(ckpt_jump_decode(body, sizeof(body) - 1, &back), EBADMSG);
	body[7] = 0x80;
	ck_error(ckpt_jump_decode(body, sizeof(body), &back), EBADMSG);
	memset(body, 0, 8);
	ck_error(ckpt_jump_decode(body, sizeof(body), &back), EBADMSG);
	ckpt_jump_encode(&(struct ckpt_jump){.seq = 1, .bytes = UINT64_MAX}, body);
	ck_error(ckpt_jump_decode(body, sizeof(body), &back), EBADMSG);
}
END_TEST

START_TEST(snapshot_of_what_is_not_whole_is_not_made)
{
	CLEANUP_FREE void *data = NULL;
	struct view v;
	size_t len;

	read_up_to(&a, 20);
	(void)ckpt_journal_look(a.j, take_view, &v);
	for (uint64_t seq = 1; seq <= ckpt_journal_position(a.j).seq; seq++) {
		char key[CKPT_LOG_KEY_MAX];

		ckpt_log_key(seq, key);
		ck_ok(ckpt_objects_remove(a.objects, key));
	}
	ck_error(ckpt_jump_snapshot(a.objects, STORE, v.state, &v.at, &data, &len), ENOENT);
	ckpt_state_free(v.state);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("jump");
	TCase *t = tcase_create("jump");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, who_jumps_has_what_who_reads_has);
	tcase_add_test(t, copy_stays_as_long_as_a_record_is_in_it);
	tcase_add_test(t, copy_stays_that_is_read_again);
	tcase_add_test(t, snapshot_is_due_after_a_jump);
	tcase_add_loop_test(t, copy_that_is_missing_or_another_stops_who_writes, 0, 2);
	tcase_add_test(t, left_copy_of_other_bytes_is_put_again);
	tcase_add_loop_test(t, crash_in_a_jump_leaves_a_node_that_goes_on, 0, 2);
	tcase_add_test(t, tree_is_that_of_the_snapshot);
	tcase_add_test(t, copy_stays_as_long_as_a_content_is_in_it);
	tcase_add_test(t, large_file_is_72_bytes);
	tcase_add_test(t, snapshot_without_a_content_is_not_made);
	tcase_add_loop_test(t, hostile_snapshot_is_refused, 0, HOSTILITIES);
	tcase_add_test(t, damaged_snapshot_is_refused_or_whole);
	tcase_add_test(t, body_of_a_jump_is_checked);
	tcase_add_test(t, snapshot_of_what_is_not_whole_is_not_made);
	tcase_set_timeout(t, 60);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}

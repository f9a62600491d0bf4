// Snapshots that are damaged or hostile: a node that jumps to one refuses it, or has a state that is whole.
#include "tests/support/jumping.h"

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

// The form that somebody writes who knows the format.
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

// Records of steps that are let in can be read, whatever they say.
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
	Suite *suite = suite_create("jump hostile");
	TCase *t = tcase_create("jump");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, hostile_snapshot_is_refused, 0, HOSTILITIES);
	tcase_add_test(t, damaged_snapshot_is_refused_or_whole);
	tcase_add_test(t, body_of_a_jump_is_checked);
	tcase_add_test(t, snapshot_of_what_is_not_whole_is_not_made);
	tcase_set_timeout(t, 60);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}

// Contents of plain files stand in the log of the node that has pulled them: they are read from there, and their entries stay as long as a file
// has them.
#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/log/snapshot.h"
#include "core/state/journal.h"
#include "core/state/plain.h"

#define STORE "11111111-1111-4111-8111-111111111111"
#define OTHER "33333333-3333-4333-8333-333333333333"
#define FOLDER "aaaaaaaaaaaaaaaa"

static struct ckpt_objects *objects;
static struct ckpt_fault fault;
static struct ckpt_journal *j;

static void open_journal(void)
{
	uint64_t damaged;

	ck_ok(ckpt_journal_open(objects, STORE, STORE, CKPT_JOURNAL_WRITE, &j, &damaged));
	ck_assert_uint_eq(damaged, 0);
}

static void setup(void)
{
	struct ckpt_pull attaches = {.host = "here"};

	ck_ok(ckpt_mem_new(&objects));
	fault = (struct ckpt_fault){0};
	ck_ok(ckpt_fault_new(objects, &fault, &objects));
	open_journal();
	ck_ok(ckpt_journal_pull(j, &attaches, 1));
}

static void teardown(void)
{
	ckpt_journal_close(j);
	ckpt_objects_close(objects);
}

static void reopen(void)
{
	ckpt_journal_close(j);
	open_journal();
}

static int take_position(void *arg, const struct ckpt_state *state)
{
	*(struct ckpt_log_position *)arg = ckpt_state_remote(state);
	return 0;
}

// By an entry of the remote's log, and a PULL of it. The version that the act makes.
static uint64_t pull(const struct ckpt_act *a)
{
	struct ckpt_operation op = {.node = OTHER, .kind = (uint16_t)a->kind, .required = true};
	struct ckpt_log_entry e = {.store_id = STORE, .node = OTHER, .time_ns = 1, .count = 1};
	CLEANUP_FREE void *body = NULL, *entry = NULL;
	struct ckpt_pull pull = {.host = ""};
	struct ckpt_log_position at;

	ck_ok(ckpt_act_encode(a, &body, &op.len));
	op.body = body;
	ck_ok(ckpt_journal_look(j, take_position, &at));
	e.seq = at.seq + 1;
	memcpy(e.before, at.sha256, sizeof(e.before));
	ck_ok(ckpt_log_entry_encode(&e, &op, &entry, &pull.entry_len));
	pull.entry = entry;
	ck_ok(ckpt_journal_pull(j, &pull, 1));
	ck_ok(ckpt_journal_look(j, take_position, &at));
	ck_assert_uint_eq(at.seq, e.seq);
	return at.seq << 16;
}

static uint64_t put(const char *folder, const char *name, uint64_t before, const char *content, bool link)
{
	struct ckpt_act a = {.kind = CKPT_ACT_FILE, .before = before, .link = link, .mode = 0644};

	strcpy(a.folder_id, folder);
	strcpy(a.name, name);
	a.content = content;
	a.content_len = strlen(content);
	return pull(&a);
}

static void remove_file(const char *name, uint64_t before)
{
	struct ckpt_act a = {.kind = CKPT_ACT_REMOVE, .before = before};

	strcpy(a.name, name);
	(void)pull(&a);
}

static uint64_t make_folder(void)
{
	struct ckpt_act a = {.kind = CKPT_ACT_MKDIR, .id = FOLDER, .name = "d", .mode = 0755};

	return pull(&a);
}

static int read_of(const char *folder, const char *name, uint64_t version)
{
	void *content;
	size_t len;
	int rc = ckpt_journal_plain(j, folder, name, version, &content, &len);

	if (!rc)
		free(content);
	return rc;
}

static void assert_content(const char *folder, const char *name, uint64_t version, const char *want)
{
	CLEANUP_FREE char *content = NULL;
	size_t len;

	ck_ok(ckpt_journal_plain(j, folder, name, version, (void **)&content, &len));
	ck_assert_uint_eq(len, strlen(want));
	ck_assert_str_eq(content, want); // a NUL is behind it
}

// A snapshot behind another entry than the one before.
static void snapshot(void)
{
	ck_ok(ckpt_journal_set(j, "policy", CKPT_ACT_ANY, ckpt_journal_position(j).seq % 2 ? "a" : "b"));
	ck_ok(ckpt_journal_snapshot(j, true));
}

static bool is_there(uint64_t seq)
{
	struct ckpt_object object;
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(seq, key);
	return !ckpt_objects_head(objects, key, &object);
}

// --- Reading --------------------------------------------------------------------------------------------------------------

START_TEST(a_content_is_read_from_the_log)
{
	uint64_t folder = make_folder(), file = put(FOLDER, "f", 0, "some words", false), next;
	uint64_t link = put("", "l", 0, "d/f", true), empty = put("", "e", 0, "", false);

	for (int round = 0; round < 2; round++) {
		assert_content(FOLDER, "f", file, "some words");
		assert_content("", "l", link, "d/f");
		assert_content("", "e", empty, "");
		ck_error(read_of("", "f", file), ENOENT);
		ck_error(read_of(FOLDER, "g", file), ENOENT);
		ck_error(read_of(FOLDER, "f", file + 1), ENOENT);
		ck_error(read_of(FOLDER, "f", 0), ENOENT);
		ck_error(read_of("", "d", folder), ENOENT);
		snapshot();
		reopen();
	}
	next = put(FOLDER, "f", file, "others", false);
	ck_error(read_of(FOLDER, "f", file), ENOENT); // though its entry is there
	assert_content(FOLDER, "f", next, "others");
}
END_TEST

START_TEST(a_content_is_what_it_was_or_an_error)
{
	uint64_t file = put("", "f", 0, "some words", false), seq = ckpt_journal_position(j).seq;
	CLEANUP_FREE uint8_t *entry = NULL;
	char key[CKPT_LOG_KEY_MAX];
	size_t len, at = 0;

	ckpt_log_key(seq, key);
	fault = (struct ckpt_fault){.at = 1, .error = -EIO, .sticky = true};
	ck_error(read_of("", "f", file), EIO);
	fault.at = 0;
	assert_content("", "f", file, "some words");
	ck_ok(ckpt_objects_get_all(objects, key, CKPT_LOG_ENTRY_BYTES_MAX, (void **)&entry, &len, NULL));
	while (memcmp(entry + at, "some words", 10) != 0)
		at++;
	entry[at] ^= 1;
	ck_ok(ckpt_objects_remove(objects, key));
	ck_error(read_of("", "f", file), EBADMSG); // lost
	ck_ok(ckpt_objects_put(objects, key, entry, len, NULL));
	ck_error(read_of("", "f", file), EBADMSG);
	ck_ok(ckpt_objects_remove(objects, key));
	ck_ok(ckpt_objects_put(objects, key, entry, at + 3, NULL)); // cut off
	ck_error(read_of("", "f", file), EBADMSG);
	entry[at] ^= 1;
	ck_ok(ckpt_objects_remove(objects, key));
	ck_ok(ckpt_objects_put(objects, key, entry, len, NULL));
	assert_content("", "f", file, "some words");
}
END_TEST

struct bytes {
	uint8_t *data;
	size_t len;
};

static int take_bytes(void *arg, const struct ckpt_state *state)
{
	struct bytes *b = arg;
	void *data;
	int rc = ckpt_state_encode(state, &data, &b->len);

	if (!rc)
		b->data = data;
	return rc;
}

// By a snapshot that says of a file that it is one.
START_TEST(a_target_with_a_nul_is_damage)
{
	struct ckpt_act a = {.kind = CKPT_ACT_FILE, .name = "f", .content = "a\0b", .content_len = 3};
	uint64_t version = pull(&a);
	struct ckpt_log_position at = ckpt_journal_position(j);
	struct bytes b;

	ck_ok(read_of("", "f", version));
	ck_ok(ckpt_journal_look(j, take_bytes, &b));
	ck_assert_uint_eq(ckpt_get16(b.data + b.len - 129 + 24), 1);
	ckpt_put16(b.data + b.len - 129 + 24, 2);
	ck_ok(ckpt_snapshot_put(objects, STORE, &at, b.data, b.len));
	free(b.data);
	reopen();
	ck_error(read_of("", "f", version), EBADMSG);
}
END_TEST

// --- Trimming -------------------------------------------------------------------------------------------------------------

START_TEST(an_entry_stays_as_long_as_a_file_has_its_content)
{
	uint64_t first = put("", "f", 0, "first", false), first_at = ckpt_journal_position(j).seq;
	uint64_t other = put("", "g", 0, "other", true), other_at = first_at + 1;
	uint64_t empty = put("", "e", 0, "", false), empty_at = first_at + 2, next, next_at;

	for (int i = 0; i < 4; i++)
		snapshot();
	ck_assert(is_there(first_at) && is_there(other_at) && !is_there(empty_at) && !is_there(1));
	reopen();
	assert_content("", "f", first, "first");
	assert_content("", "g", other, "other");
	assert_content("", "e", empty, "");
	next = put("", "f", first, "next", false);
	next_at = ckpt_journal_position(j).seq;
	for (int i = 0; i < 4; i++)
		snapshot();
	ck_assert(!is_there(first_at) && is_there(other_at) && is_there(next_at));
	reopen();
	ck_error(read_of("", "f", first), ENOENT);
	assert_content("", "f", next, "next");
	remove_file("g", other);
	for (int i = 0; i < 4; i++)
		snapshot();
	ck_assert(!is_there(other_at) && is_there(next_at));
	ck_error(read_of("", "g", other), ENOENT);
	reopen();
	assert_content("", "f", next, "next");
}
END_TEST

// A folder that is moved has no content, and what is in it keeps its own.
START_TEST(a_move_keeps_contents)
{
	uint64_t folder = make_folder(), file = put(FOLDER, "f", 0, "some words", false);
	struct ckpt_act a = {.kind = CKPT_ACT_MOVE, .id = FOLDER, .name = "e", .before = folder};

	(void)pull(&a);
	for (int i = 0; i < 4; i++)
		snapshot();
	reopen();
	assert_content(FOLDER, "f", file, "some words");
}
END_TEST

// The state of a reader is older than what a writer beside it has trimmed.
START_TEST(a_reader_finds_no_content_that_was_trimmed)
{
	uint64_t first = put("", "f", 0, "first", false), next;
	struct ckpt_journal *reader, *writer = j;
	uint64_t damaged;

	ck_ok(ckpt_journal_open(objects, STORE, STORE, CKPT_JOURNAL_READ, &reader, &damaged));
	next = put("", "f", first, "next", false);
	for (int i = 0; i < 4; i++)
		snapshot();
	j = reader;
	ck_error(read_of("", "f", first), EBADMSG); // it does not know better yet
	ck_assert_int_eq(ckpt_journal_refresh(reader), 1);
	ck_error(read_of("", "f", first), ENOENT);
	assert_content("", "f", next, "next");
	j = writer;
	ckpt_journal_close(reader);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plain_content");
	TCase *t = tcase_create("contents");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_content_is_read_from_the_log);
	tcase_add_test(t, a_content_is_what_it_was_or_an_error);
	tcase_add_test(t, a_target_with_a_nul_is_damage);
	tcase_add_test(t, an_entry_stays_as_long_as_a_file_has_its_content);
	tcase_add_test(t, a_move_keeps_contents);
	tcase_add_test(t, a_reader_finds_no_content_that_was_trimmed);
	suite_add_tcase(suite, t);
	return ckpt_suite_run(suite);
}

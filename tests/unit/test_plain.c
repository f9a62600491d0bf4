// The plain tree in a state beside the log of a remote: what each act on it does, which acts are void, and that it is what a naive model says,
// after anything.
#include "tests/support/allocfault.h"
#include "tests/support/plain_tree.h"
#include "tests/support/suite.h"

#include <stdio.h>

#define A CKPT_TREE_A
#define B CKPT_TREE_B
#define C CKPT_TREE_C
#define NONE CKPT_TREE_NONE
#define STEP "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
#define STEP_2 "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"

// --- Acts ---------------------------------------------------------------------------------------------------------------

START_TEST(a_state_without_acts_has_no_tree)
{
	size_t count = 7;

	ck_assert_ptr_null(ckpt_state_plains(ckpt_tree.state, &count));
	ck_assert_uint_eq(count, 0);
	ck_assert_ptr_null(ckpt_state_plain(ckpt_tree.state, "", "a"));
	ck_assert_ptr_null(ckpt_state_plain_folder(ckpt_tree.state, A));
	ck_assert_ptr_null(ckpt_state_plain_folder(ckpt_tree.state, ""));
}
END_TEST

START_TEST(a_folder_is_as_its_act_says)
{
	const struct ckpt_plain *e;
	uint64_t version = ckpt_tree_fits(ckpt_tree_mkdir(A, "", "runs"));

	e = ckpt_state_plain(ckpt_tree.state, "", "runs");
	ck_assert_ptr_nonnull(e);
	ck_assert_ptr_eq(ckpt_state_plain_folder(ckpt_tree.state, A), e);
	ck_assert_str_eq(e->id, A);
	ck_assert_str_eq(e->folder_id, "");
	ck_assert_str_eq(e->name, "runs");
	ck_assert(!e->link && e->mode == 0750 && !e->mtime_ns && !e->size && !e->content.seq && !e->content.len);
	ck_assert_uint_eq(e->version, version);
	ck_assert_uint_eq(version, 1u << 16);
	ck_assert_str_eq(ckpt_state_node(ckpt_tree.state, e->node), CKPT_TREE_OTHER);
	ckpt_tree_fits(ckpt_tree_mkdir(B, A, "runs"));
	ck_assert_str_eq(ckpt_state_plain(ckpt_tree.state, A, "runs")->id, B);
	ck_assert_ptr_null(ckpt_state_plain(ckpt_tree.state, B, "runs"));
	ck_assert_uint_eq(ckpt_tree_count(ckpt_tree.state), 2);
	ck_assert_ptr_null(ckpt_state_plain_folder(ckpt_tree.state, ""));
}
END_TEST

START_TEST(a_file_is_as_its_act_says)
{
	const struct ckpt_plain *e;
	uint64_t version;

	ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d"));
	version = ckpt_tree_fits(ckpt_tree_file(A, "notes.txt", 0, "some words"));
	e = ckpt_state_plain(ckpt_tree.state, A, "notes.txt");
	ck_assert(!*e->id && !e->link && e->mode == 0640 && e->mtime_ns == -5 && e->version == version);
	ck_assert_str_eq(e->folder_id, A);
	ckpt_tree_assert_content(e, "some words");
	version = ckpt_tree_fits(ckpt_tree_link("", "last", 0, "d/notes.txt"));
	e = ckpt_state_plain(ckpt_tree.state, "", "last");
	ck_assert(!*e->id && e->link && e->version == version);
	ckpt_tree_assert_content(e, "d/notes.txt");
	ckpt_tree_fits(ckpt_tree_file("", "empty", 0, ""));
	e = ckpt_state_plain(ckpt_tree.state, "", "empty");
	ckpt_tree_assert_content(e, "");
	ck_assert(!e->content.seq && !e->content.offset);
	ck_assert_uint_eq(ckpt_tree_count(ckpt_tree.state), 4);
}
END_TEST

START_TEST(a_large_file_says_where_its_bytes_are)
{
	struct ckpt_plain_large large = {.bytes = CKPT_PLAIN_INLINE_MAX + 1}, back;
	uint8_t content[CKPT_PLAIN_LARGE_BYTES];
	struct ckpt_act a = ckpt_tree_file("", "big", 0, "");
	CLEANUP_FREE uint8_t *bytes = NULL;
	const struct ckpt_plain *e;
	void *body;
	size_t len;

	memset(large.sha256, 1, sizeof(large.sha256));
	memset(large.manifest, 2, sizeof(large.manifest));
	ckpt_plain_large_encode(&large, content);
	a.large = true;
	a.content = content;
	a.content_len = sizeof(content);
	ckpt_tree_fits(a);
	e = ckpt_state_plain(ckpt_tree.state, "", "big");
	ck_assert(e->large && !e->link && e->size == large.bytes && e->content.len == sizeof(content));
	ck_assert_mem_eq(e->sha256, large.sha256, sizeof(large.sha256));
	ckpt_plain_large_decode(ckpt_tree_content(e), &back);
	ck_assert_mem_eq(&back, &large, sizeof(large));
	ckpt_tree_bytes(ckpt_tree.state, &bytes, &len);
	ckpt_tree_assert_bytes(ckpt_tree.state, bytes, len);
	a.content_len--;
	ck_error(ckpt_act_encode(&a, &body, &len), EINVAL);
	a.content_len++;
	large.bytes = CKPT_PLAIN_INLINE_MAX; // so small a one stands in the act
	ckpt_plain_large_encode(&large, content);
	ck_error(ckpt_act_encode(&a, &body, &len), EINVAL);
}
END_TEST

START_TEST(a_file_takes_the_place_of_the_version_that_it_names)
{
	uint64_t first = ckpt_tree_fits(ckpt_tree_file("", "f", 0, "first")), second;
	struct ckpt_act a;

	ckpt_tree_is_void(ckpt_tree_file("", "f", 0, "x"));
	ckpt_tree_is_void(ckpt_tree_file("", "f", first + 1, "x"));
	ckpt_tree_is_void(ckpt_tree_file("", "f", UINT64_MAX, "x"));
	a = ckpt_tree_link("", "f", first, "target"); // a link, and by another node
	ckpt_tree_add(&a, CKPT_TREE_NODE);
	ckpt_tree_pull();
	second = ckpt_tree_version(0);
	ck_assert(ckpt_state_plain(ckpt_tree.state, "", "f")->link);
	ck_assert_str_eq(ckpt_state_node(ckpt_tree.state, ckpt_state_plain(ckpt_tree.state, "", "f")->node),
			 CKPT_TREE_NODE);
	ckpt_tree_assert_content(ckpt_state_plain(ckpt_tree.state, "", "f"), "target");
	ckpt_tree_is_void(ckpt_tree_file("", "f", first, "x"));
	ckpt_tree_fits(ckpt_tree_file("", "f", second, "")); // empty, and a file again
	ck_assert(!ckpt_state_plain(ckpt_tree.state, "", "f")->link);
	ckpt_tree_assert_content(ckpt_state_plain(ckpt_tree.state, "", "f"), "");
	ck_assert_uint_eq(ckpt_state_plain(ckpt_tree.state, "", "f")->content.seq, 0);
	ck_assert_uint_eq(ckpt_tree_count(ckpt_tree.state), 1);
}
END_TEST

START_TEST(a_file_is_void_where_it_does_not_fit)
{
	uint64_t folder = ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d"));

	ckpt_tree_is_void(ckpt_tree_file(NONE, "f", 0, "x")); // no such folder
	ckpt_tree_is_void(ckpt_tree_file("", "f", 1, "x"));   // nothing is there
	ckpt_tree_is_void(ckpt_tree_file("", "d", 0, "x"));   // a folder is
	ckpt_tree_is_void(ckpt_tree_file("", "d", folder, "x"));
	ckpt_tree_is_void(ckpt_tree_link("", "d", folder, "x"));
}
END_TEST

START_TEST(a_folder_is_void_where_it_does_not_fit)
{
	ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d"));
	ckpt_tree_fits(ckpt_tree_file("", "f", 0, "x"));
	ckpt_tree_is_void(ckpt_tree_mkdir(A, "", "d")); // it is there
	ckpt_tree_is_void(ckpt_tree_mkdir(A, "", "e")); // elsewhere
	ckpt_tree_is_void(ckpt_tree_mkdir(B, "", "d")); // another has the place
	ckpt_tree_is_void(ckpt_tree_mkdir(B, "", "f"));
	ckpt_tree_is_void(ckpt_tree_mkdir(B, NONE, "e")); // no such folder
	ckpt_tree_is_void(ckpt_tree_mkdir(B, B, "e"));    // in itself
	ckpt_tree_is_void(ckpt_tree_mkdir(A, A, "e"));
	ckpt_tree_fits(ckpt_tree_mkdir(B, A, "d"));
}
END_TEST

START_TEST(a_removed_entry_leaves_its_place_free)
{
	uint64_t file = ckpt_tree_fits(ckpt_tree_file("", "f", 0, "x")),
		 link = ckpt_tree_fits(ckpt_tree_link("", "l", 0, "x"));
	uint64_t folder = ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d"));

	ckpt_tree_is_void(ckpt_tree_remove("", "g", file));
	ckpt_tree_is_void(ckpt_tree_remove(NONE, "f", file));
	ckpt_tree_is_void(ckpt_tree_remove(A, "f", file));
	ckpt_tree_is_void(ckpt_tree_remove("", "f", link)); // another version
	ckpt_tree_is_void(ckpt_tree_remove("", "f", file + 1));
	ckpt_tree_is_void(ckpt_tree_remove("", "d", folder - 1));
	ckpt_tree_fits(ckpt_tree_remove("", "f", file));
	ckpt_tree_is_void(ckpt_tree_remove("", "f", file));
	ckpt_tree_fits(ckpt_tree_remove("", "l", link));
	ckpt_tree_fits(ckpt_tree_remove("", "d", folder));
	ck_assert_uint_eq(ckpt_tree_count(ckpt_tree.state), 0);
	ck_assert_ptr_null(ckpt_state_plain_folder(ckpt_tree.state, A));
	ckpt_tree_is_void(ckpt_tree_file("", "f", file, "y"));
	ckpt_tree_fits(ckpt_tree_mkdir(A, "", "f")); // the id and the place are free
	ckpt_tree_fits(ckpt_tree_file("", "d", 0, "y"));
}
END_TEST

START_TEST(a_folder_goes_only_when_nothing_is_in_it)
{
	uint64_t folder = ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d")),
		 below = ckpt_tree_fits(ckpt_tree_mkdir(B, A, "e")), file;

	ckpt_tree_is_void(ckpt_tree_remove("", "d", folder));
	ckpt_tree_fits(ckpt_tree_remove(A, "e", below));
	file = ckpt_tree_fits(ckpt_tree_file(A, "f", 0, "x"));
	ckpt_tree_is_void(ckpt_tree_remove("", "d", folder));
	file = ckpt_tree_fits(ckpt_tree_file(A, "f", file, "y")); // still one
	ckpt_tree_is_void(ckpt_tree_remove("", "d", folder));
	ckpt_tree_fits(ckpt_tree_remove(A, "f", file));
	ckpt_tree_fits(ckpt_tree_remove("", "d", folder));
}
END_TEST

// Only steps that the remote's log lists are in a folder, whatever this node has made of them: all nodes must say the same.
START_TEST(a_folder_with_steps_of_the_remote_stays)
{
	uint64_t folder = ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d"));
	CLEANUP_FREE void *body = NULL, *ours = NULL;
	struct ckpt_act a = ckpt_tree_rename(STEP, "", "100");
	size_t len;

	ckpt_tree_add_save(STEP, A, "100");
	ckpt_tree_pull();
	ckpt_tree_is_void(ckpt_tree_remove("", "d", folder));
	ckpt_tree.number++;
	ck_ok(ckpt_act_encode(&a, &body, &len));
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_ACT_RENAME, body, len)); // it has left the folder, here
	ck_assert_ptr_nonnull(ckpt_state_listed(ckpt_tree.state, "", "100"));
	ckpt_tree_is_void(ckpt_tree_remove("", "d", folder));
	a = ckpt_tree_delete(STEP, 2);
	ckpt_tree_add(&a, CKPT_TREE_OTHER);
	ckpt_tree_pull();
	ckpt_tree.number++;
	ours = ckpt_tree_save_body(STEP_2, A, "200", &len); // one that the remote does not have
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_ACT_SAVE, ours, len));
	ck_assert_ptr_nonnull(ckpt_state_listed(ckpt_tree.state, A, "200"));
	ckpt_tree_fits(ckpt_tree_remove("", "d", folder));
	ck_assert_ptr_nonnull(ckpt_state_listed(ckpt_tree.state, A, "200"));
}
END_TEST

START_TEST(a_folder_is_moved_with_all_that_is_in_it)
{
	uint64_t folder = ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d")),
		 below = ckpt_tree_fits(ckpt_tree_mkdir(B, A, "e")), moved, file;

	ckpt_tree_fits(ckpt_tree_mkdir(C, "", "other"));
	file = ckpt_tree_fits(ckpt_tree_file(B, "f", 0, "x"));
	moved = ckpt_tree_fits(ckpt_tree_move(A, C, "a much longer name than it had", folder));
	ck_assert_ptr_null(ckpt_state_plain(ckpt_tree.state, "", "d"));
	ck_assert_str_eq(ckpt_state_plain(ckpt_tree.state, C, "a much longer name than it had")->id, A);
	ck_assert_uint_eq(ckpt_state_plain_folder(ckpt_tree.state, A)->version, moved);
	ck_assert_uint_eq(ckpt_state_plain_folder(ckpt_tree.state, A)->mode, 0750);
	ck_assert_uint_eq(ckpt_state_plain(ckpt_tree.state, A, "e")->version, below);
	ck_assert_uint_eq(ckpt_state_plain(ckpt_tree.state, B, "f")->version, file);
	ckpt_tree_is_void(ckpt_tree_move(A, "", "d", folder)); // it was of that version
	moved = ckpt_tree_fits(ckpt_tree_move(A, C, "d", moved));
	ckpt_tree_is_void(ckpt_tree_remove("", "other",
					   ckpt_state_plain_folder(ckpt_tree.state, C)->version)); // it is in there now
	ckpt_tree_fits(ckpt_tree_move(A, "", "d", moved));
	ckpt_tree_fits(ckpt_tree_remove("", "other", ckpt_state_plain_folder(ckpt_tree.state, C)->version));
	ckpt_tree_is_void(
		ckpt_tree_remove("", "d", ckpt_state_plain_folder(ckpt_tree.state, A)->version)); // and that in this
}
END_TEST

START_TEST(a_move_is_void_where_it_does_not_fit)
{
	uint64_t folder = ckpt_tree_fits(ckpt_tree_mkdir(A, "", "d")),
		 below = ckpt_tree_fits(ckpt_tree_mkdir(B, A, "e")), file;

	ckpt_tree_fits(ckpt_tree_mkdir(C, B, "f"));
	file = ckpt_tree_fits(ckpt_tree_file("", "file", 0, "x"));
	ckpt_tree_is_void(ckpt_tree_move(NONE, "", "g", folder)); // no such folder
	ckpt_tree_is_void(ckpt_tree_move(A, "", "g", below));     // another version
	ckpt_tree_is_void(ckpt_tree_move(A, "", "g", file));
	ckpt_tree_is_void(ckpt_tree_move(A, NONE, "g", folder)); // no folder to be in
	ckpt_tree_is_void(ckpt_tree_move(A, "", "file", folder));
	ckpt_tree_is_void(ckpt_tree_move(B, "", "d", below));  // another has the place
	ckpt_tree_is_void(ckpt_tree_move(A, "", "d", folder)); // it is there
	ckpt_tree_is_void(ckpt_tree_move(A, A, "g", folder));  // in itself
	ckpt_tree_is_void(ckpt_tree_move(A, B, "g", folder));  // below itself
	ckpt_tree_is_void(ckpt_tree_move(A, C, "g", folder));
	ckpt_tree_fits(ckpt_tree_move(B, "", "g", below));
	ckpt_tree_fits(ckpt_tree_move(A, C, "g", folder)); // now it is not
}
END_TEST

START_TEST(acts_of_one_entry_have_versions_of_their_own)
{
	struct ckpt_act acts[] = {ckpt_tree_mkdir(A, "", "d"), ckpt_tree_file(A, "f", 0, "1"),
				  ckpt_tree_file(A, "f", 0, "void"), ckpt_tree_file(A, "f", 0, "2")};
	struct ckpt_operation *op;

	ckpt_tree_add(&acts[0], CKPT_TREE_OTHER);
	op = ckpt_tree_add_body(4000, calloc(1, 8), 8, CKPT_TREE_OTHER); // one that nobody knows counts, too
	op->required = false;
	ckpt_tree_add(&acts[1], CKPT_TREE_OTHER);
	ckpt_tree_add(&acts[2], CKPT_TREE_OTHER);
	acts[3].before = 1u << 16 | 2;
	ckpt_tree_add(&acts[3], CKPT_TREE_NODE);
	ckpt_tree_pull();
	ck_assert_uint_eq(ckpt_state_plain_folder(ckpt_tree.state, A)->version, 1u << 16);
	ck_assert_uint_eq(ckpt_state_plain(ckpt_tree.state, A, "f")->version, 1u << 16 | 4);
	ckpt_tree_assert_content(ckpt_state_plain(ckpt_tree.state, A, "f"), "2");
	ck_assert_str_eq(ckpt_state_node(ckpt_tree.state, ckpt_state_plain(ckpt_tree.state, A, "f")->node),
			 CKPT_TREE_NODE);
}
END_TEST

START_TEST(a_step_and_a_file_may_have_one_name)
{
	ckpt_tree_fits(ckpt_tree_file("", "100", 0, "x"));
	ckpt_tree_add_save(STEP, "", "100");
	ckpt_tree_pull();
	ck_assert_ptr_nonnull(ckpt_state_listed(ckpt_tree.state, "", "100"));
	ckpt_tree_fits(ckpt_tree_file("", "100", 1u << 16, "y"));
	ck_assert_ptr_nonnull(ckpt_state_listed(ckpt_tree.state, "", "100"));
}
END_TEST

// It is no part of the log that a node has for itself.
START_TEST(in_a_nodes_own_log_an_act_is_void)
{
	struct ckpt_act acts[] = {ckpt_tree_mkdir(A, "", "d"), ckpt_tree_file("", "f", 0, "x"),
				  ckpt_tree_remove("", "g", 1u << 16), ckpt_tree_move(B, "", "h", 1u << 16)};

	ckpt_tree_fits(ckpt_tree_file("", "g", 0, "x"));
	for (int attached = 0; attached < 2; attached++) {
		struct ckpt_state *s = attached ? ckpt_tree.state : ckpt_state_new();

		for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
			CLEANUP_FREE void *body = NULL;
			size_t len;

			ckpt_tree.number++;
			ck_ok(ckpt_act_encode(&acts[i], &body, &len));
			ck_assert_int_eq(ckpt_tree_apply(s, (uint16_t)acts[i].kind, body, len), CKPT_STATE_VOID);
			ck_assert_uint_eq(ckpt_state_number(s, CKPT_TREE_NODE), ckpt_tree.number);
			ck_assert_uint_eq(ckpt_tree_count(s), attached ? 1 : 0);
		}
		if (!attached)
			ckpt_state_free(s);
	}
}
END_TEST

// --- Hostile entries ------------------------------------------------------------------------------------------------------

// The answer of a check to a PULL with these bytes as the body of an act; it is never applied.
static int check_of(uint16_t kind, const uint8_t *bytes, size_t len)
{
	CLEANUP_FREE char *before = ckpt_tree_said(ckpt_tree.state), *after = NULL;
	CLEANUP_FREE void *body = NULL;
	uint8_t *copy = malloc(len + 1);
	size_t body_len;
	int rc;

	memcpy(copy, bytes, len);
	(void)ckpt_tree_add_body(kind, copy, len, CKPT_TREE_OTHER);
	ckpt_tree_make_pull(&body, &body_len);
	rc = ckpt_pull_check(CKPT_TREE_STORE, body, body_len);
	if (rc)
		ck_assert_int_eq(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, body, body_len), rc);
	after = ckpt_tree_said(ckpt_tree.state);
	ck_assert_str_eq(before, after);
	return rc;
}

START_TEST(what_is_no_act_is_refused_before_it_is_pulled)
{
	// In the body: id 0, folder id 16, before 32, time 40, mode 48, type 52, lengths 54 and 56, zeros 60, name 64.
	static const struct {
		uint16_t kind;
		size_t at;
		uint8_t value;
		int rc;
	} rows[] = {
		{CKPT_ACT_MKDIR, 0, 0, -EBADMSG}, // ids
		{CKPT_ACT_MKDIR, 3, 'G', -EBADMSG},   {CKPT_ACT_MKDIR, 15, 0, -EBADMSG},
		{CKPT_ACT_MKDIR, 16, 'a', -EBADMSG},  {CKPT_ACT_MKDIR, 31, 1, -EBADMSG},
		{CKPT_ACT_FILE, 0, 'a', -EBADMSG},    {CKPT_ACT_REMOVE, 0, 'a', -EBADMSG},
		{CKPT_ACT_MOVE, 0, 0, -EBADMSG},      {CKPT_ACT_MKDIR, 32, 1, -EBADMSG}, // before
		{CKPT_ACT_REMOVE, 34, 0, -EBADMSG},   {CKPT_ACT_MOVE, 34, 0, -EBADMSG},
		{CKPT_ACT_MKDIR, 47, 1, -EBADMSG}, // time
		{CKPT_ACT_REMOVE, 40, 1, -EBADMSG},   {CKPT_ACT_MOVE, 40, 1, -EBADMSG},
		{CKPT_ACT_MKDIR, 49, 0x10, -EBADMSG}, // mode
		{CKPT_ACT_FILE, 51, 1, -EBADMSG},     {CKPT_ACT_REMOVE, 48, 1, -EBADMSG},
		{CKPT_ACT_MOVE, 48, 1, -EBADMSG},     {CKPT_ACT_FILE, 52, 0, -EBADMSG}, // type
		{CKPT_ACT_FILE, 52, 3, -EBADMSG},     {CKPT_ACT_FILE, 52, 4, -ENOTSUP},
		{CKPT_ACT_FILE, 53, 1, -ENOTSUP},     {CKPT_ACT_MKDIR, 52, 1, -EBADMSG},
		{CKPT_ACT_REMOVE, 52, 1, -EBADMSG},   {CKPT_ACT_MOVE, 53, 1, -EBADMSG},
		{CKPT_ACT_FILE, 54, 0, -EBADMSG}, // lengths
		{CKPT_ACT_FILE, 55, 1, -EBADMSG},     {CKPT_ACT_FILE, 56, 4, -EBADMSG},
		{CKPT_ACT_FILE, 59, 0xff, -EBADMSG},  {CKPT_ACT_MOVE, 56, 1, -EBADMSG},
		{CKPT_ACT_REMOVE, 60, 1, -EBADMSG},   {CKPT_ACT_MOVE, 67, 1, -EBADMSG}, // uid, gid
		{CKPT_ACT_FILE, 68, '/', -EBADMSG},                                     // name
		{CKPT_ACT_MKDIR, 68, 0, -EBADMSG},    {CKPT_ACT_REMOVE, 68, 0xff, -EBADMSG},
		{CKPT_ACT_MOVE, 68, '.', -EBADMSG},
	};
	struct ckpt_act acts[] = {ckpt_tree_mkdir(A, "", "n"), ckpt_tree_file("", "n", 0, "12345"),
				  ckpt_tree_remove("", "n", 1u << 16), ckpt_tree_move(A, "", "n", 1u << 16)};

	ckpt_tree_fits(ckpt_tree_file("", "g", 0, "x"));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct ckpt_act *a = &acts[rows[i].kind - CKPT_ACT_MKDIR];
		CLEANUP_FREE uint8_t *body = NULL;
		size_t len;
		int rc;

		ck_ok(ckpt_act_encode(a, (void **)&body, &len));
		ck_ok(check_of(rows[i].kind, body, len));
		ck_error(check_of(rows[i].kind, body, len - 1), EBADMSG);
		ck_error(check_of(rows[i].kind, body, 67), EBADMSG);
		body[rows[i].at] = rows[i].value;
		rc = check_of(rows[i].kind, body, len);
		ck_assert_msg(rc == rows[i].rc, "row %zu: %d", i, rc);
	}
}
END_TEST

START_TEST(a_target_is_one)
{
	static char long_one[CKPT_PLAIN_TARGET_MAX + 2] = {[0 ... CKPT_PLAIN_TARGET_MAX] = 't'};
	struct ckpt_act a = ckpt_tree_link("", "l", 0, long_one);
	CLEANUP_FREE uint8_t *body = NULL, *file = NULL;
	void *none;
	size_t len;

	ck_error(ckpt_act_encode(&a, &none, &len), EINVAL); // too long
	a.content_len--;
	ck_ok(ckpt_act_encode(&a, (void **)&body, &len));
	ck_ok(check_of(CKPT_ACT_FILE, body, len));
	body[len - 2] = '\0';
	ck_error(check_of(CKPT_ACT_FILE, body, len), EBADMSG);
	a.content_len = 0;
	ck_error(ckpt_act_encode(&a, &none, &len), EINVAL);
	a.link = false;
	ck_ok(ckpt_act_encode(&a, (void **)&file, &len));
	file[52] = 2; // its type
	ck_error(check_of(CKPT_ACT_FILE, file, len), EBADMSG);
}
END_TEST

START_TEST(a_content_has_a_limit)
{
	CLEANUP_FREE char *large = calloc(1, CKPT_PLAIN_INLINE_MAX + 1);
	struct ckpt_act a = ckpt_tree_file("", "f", 0, "");
	void *none;
	size_t len;

	a.content = large;
	a.content_len = CKPT_PLAIN_INLINE_MAX + 1;
	ck_error(ckpt_act_encode(&a, &none, &len), EINVAL);
	a.content_len--;
	large[5] = 'x';
	ckpt_tree_fits(a);
	ck_assert_uint_eq(ckpt_state_plain(ckpt_tree.state, "", "f")->size, CKPT_PLAIN_INLINE_MAX);
	ck_assert_mem_eq(ckpt_tree_content(ckpt_state_plain(ckpt_tree.state, "", "f")), large, CKPT_PLAIN_INLINE_MAX);
}
END_TEST

START_TEST(an_act_on_top_of_a_pull_is_none_of_the_tree)
{
	struct ckpt_act acts[] = {ckpt_tree_mkdir(A, "", "d"), ckpt_tree_file("", "f", 0, "x"),
				  ckpt_tree_remove("", "f", 1u << 16), ckpt_tree_move(A, "", "e", 1u << 16)};
	struct ckpt_log_entry e = {
		.store_id = CKPT_TREE_STORE, .node = CKPT_TREE_OTHER, .seq = 1, .time_ns = 1, .count = 1};
	CLEANUP_FREE void *first = NULL, *data = NULL;
	struct ckpt_operation save = {.node = CKPT_TREE_OTHER, .kind = CKPT_ACT_SAVE, .required = true};
	size_t data_len;

	save.body = first = ckpt_tree_save_body(STEP, "", "100", &save.len);
	ck_ok(ckpt_log_entry_encode(&e, &save, &data, &data_len));
	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		struct ckpt_operation op = {.kind = (uint16_t)acts[i].kind};
		struct ckpt_pull p = {.host = "", .entry = data, .entry_len = data_len, .acts = &op, .act_count = 1};
		CLEANUP_FREE void *act = NULL, *body = NULL;
		size_t len;

		ck_ok(ckpt_act_encode(&acts[i], &act, &op.len));
		op.body = act;
		ck_ok(ckpt_pull_encode(&p, &body, &len));
		ck_error(ckpt_pull_check(CKPT_TREE_STORE, body, len), EBADMSG);
		ck_error(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, body, len), EBADMSG);
		ck_assert_uint_eq(ckpt_state_remote(ckpt_tree.state).seq, 0);
	}
}
END_TEST

START_TEST(without_memory_an_act_changes_nothing)
{
	struct ckpt_act acts[] = {ckpt_tree_mkdir(C, B, "new"), ckpt_tree_file(A, "new", 0, "x"),
				  ckpt_tree_file(B, "file", 3u << 16, "x"), ckpt_tree_remove("", "link", 4u << 16),
				  ckpt_tree_move(B, "", "moved", 2u << 16)};
	CLEANUP_FREE uint8_t *before = NULL, *after = NULL;
	size_t before_len, after_len, len;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &before, &before_len);
	ckpt_tree_add(&acts[_i], CKPT_TREE_OTHER);
	ckpt_tree.number++;
	ckpt_tree_make_pull(&ckpt_tree.pulls[ckpt_tree.number], &len);
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len));
	ckpt_tree_bytes(ckpt_tree.state, &after, &after_len);
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s;
		int rc;

		ck_ok(ckpt_state_decode(before, before_len, &s));
		ckpt_allocfault_begin(n, false);
		rc = ckpt_tree_apply(s, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len);
		count = ckpt_allocfault_end();
		ck_assert(rc == 0 || rc == -ENOMEM);
		if (rc) {
			ckpt_tree_assert_bytes(s, before, before_len);
			ck_ok(ckpt_tree_apply(s, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len));
		}
		ckpt_tree_assert_bytes(s, after, after_len);
		ckpt_state_free(s);
	}
}
END_TEST

// The acts that it had done by then are void.
START_TEST(a_pull_that_had_no_memory_is_made_again)
{
	struct ckpt_act acts[] = {ckpt_tree_mkdir(C, "", "new"),
				  ckpt_tree_file(C, "f", 0, "x"),
				  ckpt_tree_file("", "link", 4u << 16, "y"),
				  ckpt_tree_remove("", "none", 5u << 16),
				  ckpt_tree_move(B, C, "moved", 2u << 16),
				  ckpt_tree_remove("", "fa", 1u << 16)};
	CLEANUP_FREE uint8_t *before = NULL, *after = NULL;
	size_t before_len, after_len, len;
	unsigned failed = 0;

	ckpt_tree_make_rich();
	ckpt_tree_bytes(ckpt_tree.state, &before, &before_len);
	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		char id[CKPT_UUID_LEN + 1];

		snprintf(id, sizeof(id), "aaaaaaaa-aaaa-4aaa-8aaa-%012zu", i);
		ckpt_tree_add(&acts[i], CKPT_TREE_OTHER);
		ckpt_tree_add_save(id, C, id); // between them are acts that need memory, too
	}
	ckpt_tree.number++;
	ckpt_tree_make_pull(&ckpt_tree.pulls[ckpt_tree.number], &len);
	ck_ok(ckpt_tree_apply(ckpt_tree.state, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len));
	ckpt_tree_bytes(ckpt_tree.state, &after, &after_len);
	ck_assert_ptr_null(ckpt_state_plain_folder(ckpt_tree.state, A));
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s;
		int rc;

		ck_ok(ckpt_state_decode(before, before_len, &s));
		ckpt_allocfault_begin(n, false);
		rc = ckpt_tree_apply(s, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len);
		count = ckpt_allocfault_end();
		failed += rc == -ENOMEM;
		if (rc)
			ck_ok(ckpt_tree_apply(s, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len));
		ckpt_tree_assert_bytes(s, after, after_len);
		ckpt_state_free(s);
	}
	ck_assert_uint_gt(failed, 10);
}
END_TEST

START_TEST(the_first_act_needs_memory_for_its_table)
{
	struct ckpt_act a = ckpt_tree_mkdir(A, "", "d");
	CLEANUP_FREE uint8_t *before = NULL;
	size_t before_len, len;
	unsigned failed = 0;

	ckpt_tree_bytes(ckpt_tree.state, &before, &before_len);
	ckpt_tree_add(&a, CKPT_TREE_OTHER);
	ckpt_tree.number++;
	ckpt_tree_make_pull(&ckpt_tree.pulls[ckpt_tree.number], &len);
	for (uint64_t n = 1, count = n; count + 1 >= n; n++) {
		struct ckpt_state *s;
		int rc;

		ck_ok(ckpt_state_decode(before, before_len, &s));
		ckpt_allocfault_begin(n, false);
		rc = ckpt_tree_apply(s, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len);
		count = ckpt_allocfault_end();
		failed += rc == -ENOMEM;
		ck_assert(rc == 0 || rc == -ENOMEM);
		if (rc)
			ck_ok(ckpt_tree_apply(s, CKPT_PULL_KIND, ckpt_tree.pulls[ckpt_tree.number], len));
		ck_assert_ptr_nonnull(ckpt_state_plain_folder(s, A));
		ckpt_state_free(s);
	}
	ck_assert_uint_ge(failed, 4); // the entry, the list, two tables
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plain");
	TCase *acts = tcase_create("acts");

	tcase_add_checked_fixture(acts, ckpt_tree_begin, ckpt_tree_end);
	tcase_add_test(acts, a_state_without_acts_has_no_tree);
	tcase_add_test(acts, a_folder_is_as_its_act_says);
	tcase_add_test(acts, a_file_is_as_its_act_says);
	tcase_add_test(acts, a_large_file_says_where_its_bytes_are);
	tcase_add_test(acts, a_file_takes_the_place_of_the_version_that_it_names);
	tcase_add_test(acts, a_file_is_void_where_it_does_not_fit);
	tcase_add_test(acts, a_folder_is_void_where_it_does_not_fit);
	tcase_add_test(acts, a_removed_entry_leaves_its_place_free);
	tcase_add_test(acts, a_folder_goes_only_when_nothing_is_in_it);
	tcase_add_test(acts, a_folder_with_steps_of_the_remote_stays);
	tcase_add_test(acts, a_folder_is_moved_with_all_that_is_in_it);
	tcase_add_test(acts, a_move_is_void_where_it_does_not_fit);
	tcase_add_test(acts, acts_of_one_entry_have_versions_of_their_own);
	tcase_add_test(acts, a_step_and_a_file_may_have_one_name);
	tcase_add_test(acts, in_a_nodes_own_log_an_act_is_void);
	tcase_add_test(acts, what_is_no_act_is_refused_before_it_is_pulled);
	tcase_add_test(acts, a_target_is_one);
	tcase_add_test(acts, a_content_has_a_limit);
	tcase_add_test(acts, an_act_on_top_of_a_pull_is_none_of_the_tree);
	tcase_add_loop_test(acts, without_memory_an_act_changes_nothing, 0, 5);
	tcase_add_test(acts, a_pull_that_had_no_memory_is_made_again);
	tcase_add_test(acts, the_first_act_needs_memory_for_its_table);
	suite_add_tcase(suite, acts);

	return ckpt_suite_run(suite);
}

// Settings that the nodes of a remote share: what a hostile node puts under their keys, and a remote that comes and goes in a store of before.
#include "tests/support/two_nodes.h"

#include "core/log/log.h"
#include "core/remote/near.h"
#include "core/step/settings.h"
#include "core/step/shared_settings.h"
#include "core/step/store_file.h"

static const struct ckpt_setting *setting(const char *name)
{
	const struct ckpt_setting *s = ckpt_setting_find(name);

	ck_assert_ptr_nonnull(s);
	return s;
}

static void begin(void)
{
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
	open_node(&a);
	open_node(&b);
}

static void finish(void)
{
	close_node(&a);
	close_node(&b);
}

static void reopen_node(struct node *n)
{
	CLEANUP_FREE char *path = strdup(n->store->path);

	n->works = false;
	ckpt_store_close(n->store);
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &n->store));
}

static void is(const struct node *n, const char *name, const char *want)
{
	CLEANUP_FREE char *text = ckpt_setting_text(setting(name), &n->store->settings);

	ck_assert_str_eq(text, want);
}

static int position_of(void *arg, const struct ckpt_state *state)
{
	*(struct ckpt_log_position *)arg = ckpt_state_remote(state);
	return 0;
}

static int ignore(void *arg __attribute__((unused)), const struct ckpt_log_entry *entry __attribute__((unused)))
{
	return 0;
}

// As an entry of the remote's log, by a node that keeps to nothing.
static void put(const char *key, const char *value, size_t len)
{
	struct ckpt_act act = {
		.kind = CKPT_ACT_SET, .before = CKPT_ACT_ANY, .time_ns = 1, .value = value, .value_len = len};
	struct ckpt_operation op = {.kind = CKPT_ACT_SET, .required = true};
	CLEANUP_FREE void *body = NULL;
	struct ckpt_log_position at;
	struct ckpt_log *log;

	ck_ok(ckpt_journal_look(a.store->journal, position_of, &at));
	snprintf(act.key, sizeof(act.key), "%s", key);
	ck_ok(ckpt_act_encode(&act, &body, &op.len));
	op.body = body;
	strcpy(op.node, "22222222-2222-4222-8222-222222222221");
	ck_ok(ckpt_sys.random(op.nonce, sizeof(op.nonce)));
	ck_ok(ckpt_log_new(ckpt_near_there(a.store->objects), a.store->id, op.node, at.seq ? &at : NULL, false, ignore,
			   NULL, &log));
	ck_ok(ckpt_log_append(log, &op, 1, false));
	ckpt_log_free(log);
	pull(&a);
}

START_TEST(what_is_no_value_is_told_and_ignored)
{
	static const struct {
		const char *key, *value, *told;
	} bad[] = {
		{"settingtrash", "30d", "value of trash"},
		{"settingtrash", "=soon", "value of trash"},
		{"settingtrash", "= ", "value of trash"},
		{"settingmarker", "=a/b", "value of marker"},
		{"settingmarker", "=..", "value of marker"},
		{"settingstepsat", "=\x01", "value of steps_at"},
		{"settinghot", "=0", "set hot"},
		{"settingworklimit", "=1MiB", "set worklimit"},
		{"settingfuture", "=1", "set future"},
		{"settingtras", "=1d", "set tras"},
		{"settingtrashl", "=1d", "set trashl"},
	};
	CLEANUP_FREE char *path = NULL;
	struct ckpt_settings given;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		unsigned before = ckpt_save_errors(a.store, bad[i].told);

		put(bad[i].key, bad[i].value, strlen(bad[i].value));
		reopen_node(&a);
		ck_assert_msg(ckpt_save_errors(a.store, bad[i].told) > before, "%s %s", bad[i].key, bad[i].value);
		is(&a, "trash", "7d");
		is(&a, "marker", CKPT_MARKER_DEFAULT);
		is(&a, "steps_at", "");
		is(&a, "hot", "2");
		is(&a, "work_limit", "none");
	}
	put("settingtrash", "=1d", 3);
	put("settingcommitquiet", "=off", 4);
	put("setting", "=1d", 3); // no setting, and not shared
	reopen_node(&a);
	is(&a, "trash", "1d");
	is(&a, "commit_quiet", "off");
	ckpt_settings_init(&given);
	ck_ok(ckpt_setting_give(setting("trash"), "3d", &given));
	path = strdup(a.store->path);
	ckpt_store_close(a.store);
	ck_ok(ckpt_store_open(path, CKPT_STORE_WRITE, &given, &a.store));
	ckpt_settings_done(&given);
	is(&a, "trash", "3d");
	is(&a, "commit_quiet", "off");
	put("settingtrash", "=", 1);
	put("settingcommitquiet", "", 0);
	reopen_node(&a);
	is(&a, "trash", "7d");
	is(&a, "commit_quiet", "10s");
}
END_TEST

static int count_values(void *arg, const struct ckpt_state *state)
{
	const struct ckpt_value_list *values = ckpt_state_values(state);

	*(size_t *)arg = values->count;
	return 0;
}

static size_t values_of(const struct node *n)
{
	size_t count;

	ck_ok(ckpt_journal_look(n->store->journal, count_values, &count));
	return count;
}

START_TEST(a_node_cannot_fill_the_memory_of_others)
{
	static char large[CKPT_VALUE_SETTING_BYTES_MAX + 1];
	char key[CKPT_VALUE_KEY_MAX + 1];

	memset(large, '=', sizeof(large));
	put("settinglarge", large, sizeof(large));
	ck_assert_uint_eq(values_of(&a), 0);
	put("settinglarge", large, sizeof(large) - 1);
	ck_assert_uint_eq(values_of(&a), 1);
	for (unsigned i = 0; i < CKPT_VALUE_SETTINGS_MAX + 8; i++) {
		snprintf(key, sizeof(key), "settingx%c%c", 'a' + i / 26, 'a' + i % 26);
		put(key, "=1", 2);
	}
	ck_assert_uint_eq(values_of(&a), CKPT_VALUE_SETTINGS_MAX);
	// A value that this node sets then is its own, and nothing waits for ever.
	ck_ok(ckpt_shared_setting_set(a.store, setting("trash"), "1d"));
	work(&a);
	work(&b);
	struct ckpt_remote_queue q;
	ckpt_remote_queue(*ckpt_remote_of(a.store), &q);
	ck_assert(!q.value);
	reopen_node(&a);
	is(&a, "trash", "1d");
	put("settinglarge", "", 0);
	put("settingxaa", "", 0);
	work(&a);
	WAIT_UNTIL((ckpt_remote_queue(*ckpt_remote_of(a.store), &q), !q.value));
}
END_TEST

START_TEST(a_value_that_is_too_long_is_refused)
{
	static char text[CKPT_VALUE_SETTING_BYTES_MAX + 1];

	memset(text, 'a', CKPT_VALUE_SETTING_BYTES_MAX);
	ck_error(ckpt_shared_setting_set(a.store, setting("steps_at"), text), EFBIG);
	text[CKPT_VALUE_SETTING_BYTES_MAX - 1] = '\0';
	ck_ok(ckpt_shared_setting_set(a.store, setting("steps_at"), text));
	reopen_node(&a);
	is(&a, "steps_at", text);
}
END_TEST

static json_t *said_of(const struct node *n)
{
	json_t *identity, *settings;

	ck_ok(ckpt_store_file_read(n->store->dirfd, "store.json", &identity));
	settings = json_incref(json_object_get(identity, "settings"));
	json_decref(identity);
	return settings;
}

// Killed before its last step a change of the remote has done nothing that shows; done again it is whole.
START_TEST(settings_come_and_go_with_the_remote)
{
	json_t *object = json_pack("{s:s, s:s, s:s, s:i}", "trash", "30d", "hot", "5", "marker", "a/b", "delta", 3);
	json_t *said;

	ck_ok(ckpt_shared_setting_set(a.store, setting("seal"), "no")); // of an earlier remote
	for (unsigned i = 0; i < 2; i++) {
		ck_ok(ckpt_shared_settings_add(a.store, object));
		reopen_node(&a);
		is(&a, "trash", "30d");
		is(&a, "seal", "yes");
		is(&a, "hot", "2");
		is(&a, "marker", CKPT_MARKER_DEFAULT);
		is(&a, "delta", "0");
	}
	json_decref(object);
	ck_ok(ckpt_shared_setting_set(a.store, setting("durability"), "remote"));
	ck_ok(ckpt_shared_setting_set(a.store, setting("amend"), "deny"));
	ck_ok(ckpt_remote_forget(a.store));
	ck_ok(ckpt_remote_forget(a.store));
	said = said_of(&a);
	object = json_pack("{s:s, s:s}", "trash", "30d", "amend", "deny");
	ck_assert(json_equal(said, object));
	json_decref(said);
	json_decref(object);
	reopen_node(&a);
	is(&a, "trash", "30d");
	is(&a, "durability", "local");
	ck_ok(ckpt_store_set(a.store->path, setting("trash"), "2d"));
	reopen_node(&a);
	is(&a, "trash", "2d"); // what the log says is nothing without a remote
}
END_TEST

START_TEST(each_setting_has_a_key_of_its_own)
{
	const struct ckpt_setting *row;
	size_t shared = 0;

	for (size_t i = 0; (row = ckpt_setting_at(i)); i++) {
		CLEANUP_FREE char *text = ckpt_setting_text(row, &a.store->settings);

		if (row->of_node || !*text)
			continue;
		ck_ok(ckpt_shared_setting_set(a.store, row, text));
		ck_assert_uint_eq(values_of(&a), ++shared);
	}
	ck_assert_uint_gt(shared, 8);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("shared settings");
	TCase *t = tcase_create("shared settings");

	tcase_add_checked_fixture(t, begin, finish);
	tcase_add_test(t, what_is_no_value_is_told_and_ignored);
	tcase_add_test(t, a_node_cannot_fill_the_memory_of_others);
	tcase_add_test(t, a_value_that_is_too_long_is_refused);
	tcase_add_test(t, settings_come_and_go_with_the_remote);
	tcase_add_test(t, each_setting_has_a_key_of_its_own);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return ckpt_suite_run(suite());
}

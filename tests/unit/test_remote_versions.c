// Versions of a step that a node makes between two pushes: each that can be restored there is in the remote, and can be restored elsewhere.
#include "tests/support/versions.h"

// --- Edits ----------------------------------------------------------------------------------------------------------------

START_TEST(edits_before_the_first_push_are_versions_everywhere)
{
	static const char all[] = "1,2,3,4,";

	save(&b, OTHER, "1");
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "3", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "4", 60 * S_NS);
	ck_assert_str_eq(texts(&b, OTHER), all);
	push_all(&b);
	ck_assert_str_eq(texts(&b, OTHER), all);
	check_elsewhere(OTHER, all);
	WAIT_UNTIL(position(&a) == position(&b));
	WAIT_UNTIL(has_text(&a, OTHER, "config.json", "4"));
	ck_assert_str_eq(texts(&a, OTHER), all);
	ck_assert_uint_eq(ckpt_save_errors(b.store, OTHER), 0);
}
END_TEST

static unsigned packs_of(const struct node *n, const char *name, bool pinned)
{
	struct ckpt_step *step = find(n, name), *at;
	struct ckpt_version *v;
	unsigned count = 0;

	for (int64_t i = 0; !ckpt_older_find(step, i, &at, &v); i--) {
		struct ckpt_manifest *m;
		struct ckpt_pack pack;

		ck_ok(ckpt_step_read_manifest(at, &v->is, &m));
		for (uint32_t j = 0; j < ckpt_manifest_pack_count(m); j++) {
			ckpt_manifest_pack(m, j, &pack);
			count += !pinned || ckpt_pack_is_pinned(*ckpt_pack_pins_of(n->store), pack.id);
		}
		ckpt_manifest_unref(m);
		ckpt_version_unref(v);
		ckpt_step_unref(at);
	}
	ckpt_step_unref(step);
	return count;
}

START_TEST(packs_of_versions_are_not_pinned_once_the_log_has_them)
{
	save(&b, OTHER, "1");
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "3", 60 * S_NS);
	push_all(&b);
	ck_assert_uint_ge(packs_of(&b, OTHER, false), 3);
	ck_assert_uint_eq(packs_of(&b, OTHER, true), 0);
}
END_TEST

START_TEST(packs_of_a_version_are_kept_without_buffers)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1 << 20, .keeps_raw = true};
	const struct ckpt_seal_how seal = {0};
	struct ckpt_manifest *m, *sealed, *packed;
	struct ckpt_packing packing;
	struct ckpt_step *step, *at;
	struct ckpt_version *v;

	save(&b, OTHER, "1");
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	step = find(&b, OTHER);
	ck_ok(ckpt_older_find(step, -1, &at, &v));
	ck_ok(ckpt_step_read_manifest(at, &v->is, &m));
	ck_ok(ckpt_seal_older(at, m, &seal, &sealed));
	ck_ok(ckpt_cool_older(at, sealed, &how, &packing, &packed));
	ck_assert_uint_eq(packing.pack_count, 1);
	ck_assert_ptr_null(packing.codec);
	ck_assert_ptr_null(packing.writer);
	ckpt_packing_done(&packing);
	ckpt_manifest_unref(packed);
	ckpt_manifest_unref(sealed);
	ckpt_manifest_unref(m);
	ckpt_version_unref(v);
	ckpt_step_unref(at);
	ckpt_step_unref(step);
}
END_TEST

START_TEST(edits_between_two_pushes_are_versions_everywhere)
{
	static const char all[] = "of the save,2,3,4,";

	edit_later(&b, NAME, "config.json", "2", 60 * S_NS);
	edit_later(&b, NAME, "config.json", "3", 60 * S_NS);
	edit_later(&b, NAME, "config.json", "4", 60 * S_NS);
	push_all(&b);
	ck_assert_str_eq(texts(&b, NAME), all);
	check_elsewhere(NAME, all);
}
END_TEST

// A version is the same one on each node: that which a user has noted can be restored anywhere.
START_TEST(version_keeps_its_number_and_time)
{
	struct ckpt_older *here, *there;
	size_t here_count, there_count;
	struct ckpt_step *step;
	struct node c = {0};

	save(&b, OTHER, "1");
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "3", 60 * S_NS);
	step = find(&b, OTHER);
	ck_ok(ckpt_older_list(step, &here, &here_count));
	ckpt_step_unref(step);
	push_all(&b);
	open_node(&c);
	while (pull_next(&c))
		;
	follow(&c);
	step = find(&c, OTHER);
	ck_ok(ckpt_older_list(step, &there, &there_count));
	ckpt_step_unref(step);
	ck_assert_uint_eq(here_count, 3);
	ck_assert_uint_eq(there_count, 3);
	for (size_t i = 0; i < here_count; i++) {
		ck_assert_int_eq(there[i].made_ns, here[i].made_ns);
		ck_assert_int_eq(there[i].edited, here[i].edited);
		if (i + 1 < here_count) // the current one was packed, which is a version
			ck_assert_uint_eq(there[i].says, here[i].says);
	}
	free(here);
	free(there);
	close_node(&c);
}
END_TEST

// Files have other places in the list of the version that is packed already, and the same size.
START_TEST(files_beside_an_edited_one_are_not_taken_for_it)
{
	static const char *const added[] = {"added.json", "before.json"};
	struct ckpt_step *step;
	char raw[CKPT_AMENDING_RAW_MAX];

	edit_later(&b, NAME, "config.json", "of an edit.", 60 * S_NS);
	step = find(&b, NAME);
	for (size_t i = 0; i < ARRAY_LEN(added); i++) {
		go_ahead(60 * S_NS);
		ck_ok(put_added(step, added[i], "of a file..", raw));
		ck_ok(ckpt_amend_add(step, added[i]));
		ckpt_amending_forget(step, added[i]);
	}
	ckpt_step_unref(step);
	edit_later(&b, NAME, "config.json", "of another.", 60 * S_NS);
	push_all(&b);
	check_elsewhere(NAME, "of the save,of an edit.,of an edit.,of an edit.,of another.,");
}
END_TEST

// Those that are thinned here are not sent.
START_TEST(edits_that_are_thinned_are_one_version)
{
	save(&b, OTHER, "1");
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "3", S_NS);
	edit_later(&b, OTHER, "config.json", "4", S_NS);
	edit_later(&b, OTHER, "config.json", "5", 60 * S_NS);
	push_all(&b);
	check_elsewhere(OTHER, "1,4,5,");
}
END_TEST

static uint64_t entries_of(struct node *n)
{
	uint64_t before = position(n);

	push_all(n);
	return position(n) - before;
}

// A file that grows every few seconds while the remote is away for hours is few versions then.
START_TEST(flood_of_edits_is_few_versions)
{
	char text[16];

	save(&b, OTHER, "1");
	for (unsigned i = 0; i < 40; i++) {
		snprintf(text, sizeof(text), "%u", i);
		edit_later(&b, OTHER, "config.json", text, 600 * S_NS);
	}
	go_ahead(2 * HOUR_NS);
	ck_assert_uint_le(entries_of(&b), 10);
	check_elsewhere(OTHER, texts(&b, OTHER));
}
END_TEST

START_TEST(version_that_was_restored_is_no_edit)
{
	struct ckpt_step *step;
	struct ckpt_older *list;
	size_t count;

	edit_later(&b, NAME, "config.json", "2", 60 * S_NS);
	step = find(&b, NAME);
	go_ahead(60 * S_NS);
	ck_ok(ckpt_older_list(step, &list, &count));
	ck_ok(ckpt_restore(step, list[0].says));
	free(list);
	ckpt_step_unref(step);
	edit_later(&b, NAME, "config.json", "4", 60 * S_NS);
	push_all(&b);
	WAIT_UNTIL(position(&a) == position(&b));
	WAIT_UNTIL(has_text(&a, NAME, "config.json", "4"));
	ck_assert_str_eq(texts(&a, NAME), "of the save,2,of the save,4,");
	step = find(&a, NAME);
	ck_ok(ckpt_older_list(step, &list, &count));
	ckpt_step_unref(step);
	ck_assert_uint_eq(count, 4);
	ck_assert(list[1].edited && !list[2].edited && list[3].edited);
	free(list);
}
END_TEST

// --- Saved again ------------------------------------------------------------------------------------------------------------

static void save_over(const struct node *n, const char *name, const char *text)
{
	const struct ckpt_commit how = {.folder_id = "", .name = name, .event = "verb", .profile = "generic"};
	struct ckpt_step *step, *replaced;

	go_ahead(60 * S_NS);
	ck_ok(ckpt_replace_begin(n->store, "", name, 0755, getuid(), getgid(), getpid(), &step));
	close(ckpt_staged_put(step, "config.json", text));
	ck_ok(ckpt_replace_commit(step, &how, &replaced));
	ckpt_step_unref(replaced);
	ckpt_step_unref(step);
}

// _i: the first of the saves was pushed before.
START_TEST(saves_over_a_step_are_versions_everywhere)
{
	static const char all[] = "1,2,3,4,5,6,";

	save(&b, OTHER, "1");
	if (_i)
		push_all(&b);
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "3", 60 * S_NS);
	save_over(&b, OTHER, "4");
	save_over(&b, OTHER, "5");
	edit_later(&b, OTHER, "config.json", "6", 60 * S_NS);
	// The push of the first edit goes on beside this: a list may lack versions while the log gives others their numbers.
	WAIT_UNTIL(!strcmp(texts(&b, OTHER), all));
	push_all(&b);
	WAIT_UNTIL(!strcmp(texts(&b, OTHER), all));
	check_elsewhere(OTHER, all);
	ck_assert_uint_eq(ckpt_save_errors(b.store, OTHER), 0);
}
END_TEST

// As a client does that opens files of a step for writing: the next step begins with links to the files of this one.
START_TEST(step_that_was_reopened_is_a_version_everywhere)
{
	struct ckpt_step *step, *staged;
	char raw[CKPT_AMENDING_RAW_MAX];

	edit_later(&b, NAME, "config.json", "2", 60 * S_NS);
	go_ahead(60 * S_NS);
	step = find(&b, NAME);
	ck_ok(put_added(step, "new.json", "new", raw));
	ck_ok(ckpt_amend_add(step, "new.json"));
	ckpt_amending_forget(step, "new.json");
	ckpt_step_unref(step);
	go_ahead(60 * S_NS);
	staged = reopen(&b);
	edit(staged, "config.json", "3");
	ck_ok(commit(staged));
	ckpt_step_unref(staged);
	push_all(&b);
	check_elsewhere(NAME, "of the save,2,2,3,");
	ck_assert(has_text(&b, NAME, "new.json", "new"));
	ck_assert_uint_eq(ckpt_save_errors(b.store, NAME), 0);
}
END_TEST

// The name is another node's by then: versions of before are not put under it, nor is anything lost of the save.
START_TEST(save_over_a_step_whose_name_is_taken_goes_alone)
{
	struct ckpt_step *step;

	save(&b, OTHER, "1");
	save_over(&b, OTHER, "2");
	save(&a, OTHER, "of a");
	push_all(&a);
	push_all(&b);
	WAIT_UNTIL(position(&a) == position(&b));
	WAIT_UNTIL((step = ckpt_step_find(a.store, "", copy_of(OTHER))));
	ckpt_step_unref(step);
	ck_assert(has_text(&a, copy_of(OTHER), "config.json", "2"));
	ck_assert(has_text(&b, OTHER, "config.json", "of a"));
}
END_TEST

// A step that is deleted after it was saved over is nowhere listed.
START_TEST(step_that_is_deleted_takes_what_it_had_replaced_with_it)
{
	struct ckpt_step *step;
	uint64_t before = position(&b);

	save(&b, OTHER, "1");
	save_over(&b, OTHER, "2");
	step = find(&b, OTHER);
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	push_all(&b);
	ck_assert_uint_eq(position(&b), before);
}
END_TEST

START_TEST(damaged_save_that_was_replaced_is_passed_over)
{
	save(&b, OTHER, "1");
	save_over(&b, OTHER, "2");
	lose(&b, OTHER, 1);
	push_all(&b);
	check_elsewhere(OTHER, "2,");
	ck_assert_uint_ge(ckpt_save_errors(b.store, "it cannot be uploaded"), 1);
}
END_TEST

// --- What cannot be sent ----------------------------------------------------------------------------------------------------

static ssize_t (*real_pwrite)(int fd, const void *buf, size_t len, off_t at);
static const char *full_dir;        // has no room for a pack; atomic
static unsigned packs_without_room; // atomic
static int without_room = -ENOSPC;

static ssize_t pwrite_where_room_is(int fd, const void *buf, size_t len, off_t at)
{
	const char *full = __atomic_load_n(&full_dir, __ATOMIC_RELAXED);
	char of[32], path[PATH_MAX] = "";

	snprintf(of, sizeof(of), "/proc/self/fd/%d", fd);
	if (full && len > 8 && !memcmp(buf, "ckpt-pak", 8) && readlink(of, path, sizeof(path) - 1) > 0 &&
	    !strncmp(path, full, strlen(full))) {
		__atomic_add_fetch(&packs_without_room, 1, __ATOMIC_RELAXED);
		return without_room;
	}
	return real_pwrite(fd, buf, len, at);
}

static bool has_no_room_twice(void)
{
	return __atomic_load_n(&packs_without_room, __ATOMIC_RELAXED) >= 2;
}

// The one that took its place is in packs already. _i: another one lies between.
START_TEST(save_that_was_replaced_waits_for_room_and_its_successor_for_it)
{
	const struct ckpt_tier_how how = {.pack_bytes = b.store->settings.pack_bytes, .keeps_raw = true};
	struct ckpt_tier_done done;
	struct ckpt_step *step;

	save(&b, OTHER, "1");
	for (int i = 0; i <= _i; i++) {
		save_over(&b, OTHER, i ? "3" : "2");
		step = find(&b, OTHER);
		ck_ok(ckpt_cool_sealed(step, &how, &done));
		ckpt_step_unref(step);
	}
	real_pwrite = ckpt_hooks.pwrite;
	ckpt_hook_set(pwrite, pwrite_where_room_is);
	__atomic_store_n(&full_dir, b.dir, __ATOMIC_RELAXED);
	work(&b);
	WAIT_UNTIL(has_no_room_twice() || is_idle(&b));
	__atomic_store_n(&full_dir, NULL, __ATOMIC_RELAXED);
	push_all(&b);
	check_elsewhere(OTHER, _i ? "1,2,3," : "1,2,");
	ckpt_hook_set(pwrite, real_pwrite);
}
END_TEST

START_TEST(version_whose_files_are_gone_is_passed_over)
{
	save(&b, OTHER, "1");
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "3", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "4", 60 * S_NS);
	lose(&b, OTHER, _i ? 3 : 2);
	push_all(&b);
	check_elsewhere(OTHER, _i ? "2,3,4," : "1,3,4,");
	ck_assert_uint_eq(ckpt_save_errors(b.store, "is not uploaded: its files on this node cannot be read"), 1);
}
END_TEST

static int to_the_remote(void *arg, const char *key, const struct ckpt_object *object)
{
	const struct node *n = arg;
	CLEANUP_FREE void *data = NULL;
	size_t len;

	(void)object;
	ck_ok(ckpt_objects_get_all(ckpt_near_here(n->store->objects), key, SIZE_MAX, &data, &len, NULL));
	ck_ok(ckpt_objects_put(ckpt_near_there(n->store->objects), key, data, len, NULL));
	return 0;
}

// An attempt to push the step that fails before its entry: its files are in packs, which have arrived. They are garbage of others then.
static void pack_and_condemn(const struct node *n, const char *name, bool keeps_raw)
{
	const struct ckpt_tier_how how = {.pack_bytes = n->store->settings.pack_bytes, .keeps_raw = keeps_raw};
	const struct ckpt_collect_how by_force = {.force = true};
	struct ckpt_step *step = find(n, name);
	struct ckpt_collect_done collected;
	struct ckpt_tier_done done;

	ck_ok(ckpt_cool_sealed(step, &how, &done));
	ckpt_step_unref(step);
	ck_ok(ckpt_objects_list(ckpt_near_here(n->store->objects), "packs/", NULL, to_the_remote, (void *)n));
	ck_ok(ckpt_collect(a.store, &by_force, &collected));
	ck_assert_uint_ge(collected.condemned.objects, 1);
}

enum { EDITED = 1, COLD = 2 };

// _i: how the version is replaced; its raw files are gone.
START_TEST(version_in_condemned_packs_is_packed_again)
{
	go_ahead(60 * S_NS);
	save(&b, OTHER, "1");
	pack_and_condemn(&b, OTHER, !(_i & COLD));
	if (_i & EDITED)
		edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	else
		save_over(&b, OTHER, "2");
	push_all(&b);
	check_elsewhere(OTHER, "1,2,");
	ck_assert_str_eq(texts(&b, OTHER), "1,2,");
	ck_assert_uint_eq(ckpt_save_errors(b.store, OTHER), 0);
}
END_TEST

enum { MANY_FILES = 1200 };

static int remove_it(void *arg, const char *key, const struct ckpt_object *object)
{
	const struct node *n = arg;

	(void)object;
	return ckpt_objects_remove(ckpt_near_here(n->store->objects), key);
}

struct manifests {
	struct ckpt_step *step;
	unsigned count, unnamed;
};

static int look_at_manifest(void *arg, const char *key, const struct ckpt_object *object)
{
	struct manifests *all = arg;
	bool named = false;

	(void)object;
	for (uint32_t v = 1; v <= VERSIONS_MAX && !named; v++) {
		char hex[CKPT_SHA256_HEX_LEN + 1] = "";
		struct ckpt_record r;

		if (ckpt_step_record(all->step, v, &r))
			continue;
		ckpt_hex(r.summary.manifest_sha256, CKPT_SHA256_LEN, hex);
		named = !strcmp(key + strlen("m/"), hex);
		ckpt_record_done(&r);
	}
	all->count++;
	all->unnamed += !named;
	return 0;
}

static struct manifests manifests_of(const struct node *n, const char *name)
{
	struct manifests all = {.step = find(n, name)};

	ck_ok(ckpt_objects_list(ckpt_near_here(n->store->objects), "m/", NULL, look_at_manifest, &all));
	ckpt_step_unref(all.step);
	return all;
}

static bool is_packed(const struct node *n, const char *name)
{
	struct ckpt_step *step = find(n, name);
	struct ckpt_version *v = ckpt_step_version(step);
	bool is = v->is.packed;

	ckpt_version_unref(v);
	ckpt_step_unref(step);
	return is;
}

// An attempt that did not get to the remote has made it. Then the packs are lost, so that it is passed over.
START_TEST(manifest_of_a_version_that_is_passed_over_is_removed)
{
	struct ckpt_step *step = ckpt_staged_begin(b.store, OTHER);
	char path[64];

	close(ckpt_staged_put(step, "config.json", "1"));
	for (unsigned i = 0; i < MANY_FILES; i++) {
		snprintf(path, sizeof(path), "file-with-a-name-that-takes-some-bytes-%u", i);
		close(ckpt_staged_put(step, path, "x"));
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ckpt_step_unref(step);
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	ck_assert_uint_eq(manifests_of(&b, OTHER).unnamed, 0);
	real_pwrite = ckpt_hooks.pwrite;
	without_room = -ETIMEDOUT;
	ckpt_hook_set(pwrite, pwrite_where_room_is);
	__atomic_store_n(&full_dir, remote_dir, __ATOMIC_RELAXED);
	work(&b);
	WAIT_UNTIL(is_packed(&b, OTHER) && manifests_of(&b, OTHER).unnamed);
	WAIT_UNTIL(__atomic_load_n(&packs_without_room, __ATOMIC_RELAXED));
	ck_ok(ckpt_objects_list(ckpt_near_here(b.store->objects), "packs/", NULL, remove_it, &b));
	__atomic_store_n(&full_dir, NULL, __ATOMIC_RELAXED);
	push_all(&b);
	ck_assert_uint_ge(ckpt_save_errors(b.store, "version 1 is not uploaded"), 1);
	ck_assert_uint_ge(manifests_of(&b, OTHER).count, 1);
	ck_assert_uint_eq(manifests_of(&b, OTHER).unnamed, 0);
	ckpt_hook_set(pwrite, real_pwrite);
}
END_TEST

static int (*real_open)(int dirfd, const char *path, int flags, mode_t mode);
static char thinned_raw[CKPT_RAW_PATH_MAX]; // goes before it is opened
static unsigned thinned;                    // atomic

static int open_of_thinned(int dirfd, const char *path, int flags, mode_t mode)
{
	if (!strcmp(path, thinned_raw) && !__atomic_fetch_add(&thinned, 1, __ATOMIC_RELAXED)) {
		go_ahead(2 * HOUR_NS);
		ck_ok(ckpt_sys.unlink(dirfd, path, 0));
	}
	return real_open(dirfd, path, flags, mode);
}

START_TEST(version_that_is_thinned_while_it_is_read_is_no_damage)
{
	go_ahead(HOUR_NS - later() % HOUR_NS);
	save(&b, OTHER, "1");
	edit_later(&b, OTHER, "config.json", "2", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "3", 60 * S_NS);
	edit_later(&b, OTHER, "config.json", "4", 60 * S_NS);
	raw_of(&b, OTHER, 2, thinned_raw);
	real_open = ckpt_hooks.open;
	ckpt_hook_set(open, open_of_thinned);
	push_all(&b);
	ck_assert_uint_ge(__atomic_load_n(&thinned, __ATOMIC_RELAXED), 1);
	check_elsewhere(OTHER, "1,4,");
	ck_assert_uint_eq(ckpt_save_errors(b.store, "is not uploaded"), 0);
	ckpt_hook_set(open, real_open);
}
END_TEST

// --- Other nodes --------------------------------------------------------------------------------------------------------------

// Versions of before lack the other's change: none of them is ever the newest of the log, which would undo it.
START_TEST(versions_that_lack_another_nodes_change_are_not_sent)
{
	struct node c = {0};

	edit_later(&b, NAME, "config.json", "2", 60 * S_NS);
	edit_later(&b, NAME, "config.json", "3", 60 * S_NS);
	edit_and_push(&a, "other.json", "of a");
	take_in(&b, _i);
	edit_later(&b, NAME, "config.json", "4", 60 * S_NS);
	edit_later(&b, NAME, "config.json", "5", 60 * S_NS);
	push_all(&b);
	WAIT_UNTIL(position(&a) == position(&b));
	WAIT_UNTIL(has_text(&a, NAME, "config.json", "5"));
	check(NAME, "other.json", "of a");
	open_node(&c);
	while (pull_next(&c)) {
		follow(&c);
		if (has_text(&c, NAME, "config.json", "of the save"))
			continue;
		ck_assert(has_text(&c, NAME, "other.json", "of a"));
	}
	ck_assert(has_text(&c, NAME, "config.json", "5"));
	close_node(&c);
	check_no_conflict(&a);
}
END_TEST

// Another one comes when some of them are there.
START_TEST(edit_of_another_node_comes_between)
{
	for (unsigned i = 0; i < 6; i++) {
		char text[8];

		snprintf(text, sizeof(text), "%u", i);
		edit_later(&b, NAME, "config.json", text, 60 * S_NS);
	}
	work(&b);
	edit_later(&a, NAME, "other.json", "of a", 60 * S_NS);
	WAIT_UNTIL(is_idle(&a) && is_idle(&b) && position(&a) == position(&b));
	WAIT_UNTIL(has_text(&a, NAME, "config.json", "5") && has_text(&b, NAME, "other.json", "of a"));
	meet(NAME);
	check_no_conflict(&a);
}
END_TEST

// --- The end of the process ---------------------------------------------------------------------------------------------------

START_TEST(push_goes_on_after_a_restart)
{
	uint64_t before = position(&b);

	save(&b, OTHER, "1");
	for (unsigned i = 2; i < 8; i++) {
		char text[8];

		snprintf(text, sizeof(text), "%u", i);
		edit_later(&b, OTHER, "config.json", text, 60 * S_NS);
	}
	work(&b);
	WAIT_UNTIL(position(&b) > before + 1);
	reopen_node(&b);
	push_all(&b);
	check_elsewhere(OTHER, "1,2,3,4,5,6,7,");
	ck_assert_str_eq(texts(&b, OTHER), "1,2,3,4,5,6,7,");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("remote_versions");
	TCase *tcase = tcase_create("versions");

	tcase_add_checked_fixture(tcase, setup_versions, teardown_versions);
	tcase_add_test(tcase, edits_before_the_first_push_are_versions_everywhere);
	tcase_add_test(tcase, packs_of_versions_are_not_pinned_once_the_log_has_them);
	tcase_add_test(tcase, packs_of_a_version_are_kept_without_buffers);
	tcase_add_test(tcase, edits_between_two_pushes_are_versions_everywhere);
	tcase_add_test(tcase, version_keeps_its_number_and_time);
	tcase_add_test(tcase, files_beside_an_edited_one_are_not_taken_for_it);
	tcase_add_test(tcase, edits_that_are_thinned_are_one_version);
	tcase_add_test(tcase, flood_of_edits_is_few_versions);
	tcase_add_test(tcase, version_that_was_restored_is_no_edit);
	tcase_add_loop_test(tcase, saves_over_a_step_are_versions_everywhere, 0, 2);
	tcase_add_test(tcase, step_that_was_reopened_is_a_version_everywhere);
	tcase_add_test(tcase, save_over_a_step_whose_name_is_taken_goes_alone);
	tcase_add_test(tcase, step_that_is_deleted_takes_what_it_had_replaced_with_it);
	tcase_add_test(tcase, damaged_save_that_was_replaced_is_passed_over);
	tcase_add_loop_test(tcase, save_that_was_replaced_waits_for_room_and_its_successor_for_it, 0, 2);
	tcase_add_loop_test(tcase, version_whose_files_are_gone_is_passed_over, 0, 2);
	tcase_add_test(tcase, manifest_of_a_version_that_is_passed_over_is_removed);
	tcase_add_test(tcase, version_that_is_thinned_while_it_is_read_is_no_damage);
	tcase_add_loop_test(tcase, version_in_condemned_packs_is_packed_again, 0, (EDITED | COLD) + 1);
	tcase_add_loop_test(tcase, versions_that_lack_another_nodes_change_are_not_sent, 0, WAYS);
	tcase_add_test(tcase, edit_of_another_node_comes_between);
	tcase_add_test(tcase, push_goes_on_after_a_restart);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

// Garbage collection on a remote, here a directory that nodes share: what goes, what stays, and that nothing which anybody pushes meanwhile is
// lost, wherever a collection is cut off (REMOTE.md section 7).
#include "tests/support/backendfault.h"
#include "tests/support/hooks.h"
#include "tests/support/packed.h"
#include "tests/support/remote_log.h"
#include "tests/support/save.h"
#include "tests/support/suite.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/remote/collect.h"
#include "core/remote/collector.h"
#include "core/remote/hold.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "core/remote/snapshots.h"
#include "core/remote/tree.h"
#include "core/save/amend.h"
#include "core/save/amend_move.h"
#include "core/save/delete.h"
#include "core/save/limit.h"
#include "core/save/pin.h"
#include "core/state/condemned.h"
#include "core/state/shared.h"
#include "core/store/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char remote_dir[PATH_MAX], url[PATH_MAX + 8];

static const struct ckpt_collect_how at_once = {0}, an_hour = {.delay_ns = CKPT_COLLECT_DELAY_NS},
				     by_force = {.force = true};

static void setup(void)
{
	ckpt_temp_dir(remote_dir);
	snprintf(url, sizeof(url), "file://%s", remote_dir);
}

// --- Nodes --------------------------------------------------------------------------------------------------------------

struct node {
	char dir[PATH_MAX];
	struct ckpt_store *store;
	bool works; // behind
};

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

static void close_node(struct node *n)
{
	ckpt_store_rest(n->store);
	ckpt_save_settle_all(n->store);
	ckpt_store_close(n->store);
	n->store = NULL;
	n->works = false;
}

static struct ckpt_objects *there(const struct node *n)
{
	return ckpt_near_there(n->store->objects);
}

static struct ckpt_remote *remote(const struct node *n)
{
	return *ckpt_remote_of(n->store);
}

// All that waits is pushed. It goes on pushing behind afterwards.
static void push(struct node *n)
{
	struct ckpt_remote_queue q;
	unsigned tries = 0;

	if (!n->works)
		ck_ok(ckpt_store_work_behind(n->store));
	n->works = true;
	do {
		ck_assert_uint_lt(tries++, 3000);
		ckpt_remote_wake(remote(n));
		ckpt_sys.sleep_ns(10000000);
		ckpt_remote_queue(remote(n), &q);
	} while (q.steps || q.files);
}

// The same, and the node is closed then: it reads and pushes nothing until it is opened again.
static void push_and_close(struct node *n)
{
	push(n);
	close_node(n);
}

static int look_at_end(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_remote(state).seq;
	return 0;
}

static int look_at_condemn(void *arg, const struct ckpt_state *state)
{
	*(uint64_t *)arg = ckpt_state_last_condemn(state);
	return 0;
}

static uint64_t position(const struct node *n)
{
	uint64_t seq;

	(void)ckpt_journal_look(n->store->journal, look_at_end, &seq);
	return seq;
}

static uint64_t last_condemn(const struct node *n)
{
	uint64_t seq;

	(void)ckpt_journal_look(n->store->journal, look_at_condemn, &seq);
	return seq;
}

// --- The remote ---------------------------------------------------------------------------------------------------------

struct tally {
	size_t objects;
	uint64_t bytes;
};

static int tally(void *arg, const char *key, const struct ckpt_object *object)
{
	struct tally *t = arg;

	(void)key;
	t->objects++;
	t->bytes += object->bytes;
	return 0;
}

static size_t count(const struct node *n, const char *prefix)
{
	struct tally t = {0};

	ck_ok(ckpt_objects_list(there(n), prefix, NULL, tally, &t));
	return t.objects;
}

static bool has_pack(const struct node *n, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;

	ckpt_pack_key(pack->id, key);
	return !ckpt_objects_head(there(n), key, &object);
}

// On the node's disk.
static bool is_here(const struct node *n, const struct ckpt_pack *pack)
{
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_object object;

	ckpt_pack_key(pack->id, key);
	return !ckpt_objects_head(ckpt_near_here(n->store->objects), key, &object);
}

static struct ckpt_collect_done collect(const struct node *n, const struct ckpt_collect_how *how)
{
	struct ckpt_collect_done done;
	int rc = ckpt_collect(n->store, how, &done);

	ck_assert_msg(!rc, "%s: %s", strerror(-rc), done.why);
	return done;
}

// A pack that nobody names.
static void put_orphan(const struct node *n, uint8_t name, size_t len)
{
	CLEANUP_FREE void *data = calloc(1, len);
	uint8_t id[CKPT_SHA256_LEN] = {name};
	char key[CKPT_PACK_KEY_MAX];

	ckpt_pack_key(id, key);
	ck_ok(ckpt_objects_put(there(n), key, data, len, NULL));
}

static void expire(struct ckpt_store *s, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_delete(step));
	ck_ok(ckpt_expire(step));
	ckpt_step_unref(step);
}

static void save(struct ckpt_store *s, const char *name, const char *text)
{
	ckpt_step_unref(ckpt_packed_cooled(s, name, &text, 1));
}

static struct ckpt_pack place(struct ckpt_store *s, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	ck_assert_ptr_nonnull(step);
	pack = ckpt_packed_place(step, "0", &chunk);
	ckpt_step_unref(step);
	return pack;
}

static void check(struct ckpt_store *s, const char *name, const char *text)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	ck_assert_ptr_nonnull(step);
	ck_ok(ckpt_packed_read(step, "0", text));
	ckpt_step_unref(step);
}

// By a node that has nothing but what is in the remote.
static void check_by_another(const char *name, const char *text)
{
	struct node other = {0};

	open_node(&other);
	check(other.store, name, text);
	close_node(&other);
}

// --- What goes, and what stays ------------------------------------------------------------------------------------------

#define ALL ((1u << CKPT_SAVE_STEPS) - 1)
#define MANY (1u << CKPT_SAVE_MANY)
#define LARGE (1u << CKPT_SAVE_LARGE)

static void check_saved(struct ckpt_store *s, unsigned which)
{
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = ckpt_save_find(s, i);

		ck_assert_int_eq(step != NULL, (which >> i) & 1);
		if (step)
			ckpt_save_check_files(step, i);
		ckpt_step_unref(step);
	}
}

static void delete_saved(struct ckpt_store *s, unsigned i)
{
	struct ckpt_step *step = ckpt_save_find(s, i);

	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
}

static void save_all(struct node *n)
{
	open_node(n);
	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++)
		ckpt_step_unref(ckpt_save_one(n->store, i));
	push(n);
}

START_TEST(garbage_goes_and_what_is_needed_stays)
{
	struct node a = {0}, b = {0};
	struct ckpt_collect_done done;
	size_t packs, manifests;

	save_all(&a);
	packs = count(&a, "packs/");
	manifests = count(&a, "m/");
	ck_assert_uint_ge(manifests, 1);
	delete_saved(a.store, CKPT_SAVE_MANY);
	delete_saved(a.store, CKPT_SAVE_LARGE);
	push(&a);
	done = collect(&a, &at_once); // what is in the trash may be had back
	ck_assert_uint_eq(done.condemned.objects + done.deleted.objects, 0);
	(void)ckpt_expire_before(a.store, INT64_MAX, &(bool){false});
	push(&a);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, &(struct ckpt_collect_how){.grace_ns = CKPT_COLLECT_GRACE_NS}).condemned.objects,
			  0);
	done = collect(&b, &(struct ckpt_collect_how){.dry_run = true});
	ck_assert_uint_gt(done.condemned.objects, 1);
	done = collect(&b, &an_hour);
	ck_assert_uint_gt(done.condemned.objects, 1);
	ck_assert_uint_eq(done.deleted.objects, 0);
	ck_assert_uint_eq(done.waiting.objects, done.condemned.objects);
	ck_assert_int_gt(done.waiting_ns, CKPT_COLLECT_DELAY_NS - INT64_C(60000000000));
	ck_assert_uint_eq(count(&b, "packs/"), packs);
	check_saved(b.store, ALL & ~MANY & ~LARGE);
	close_node(&b);
	open_node(&b); // what is condemned stands in the log
	packs = count(&b, "packs/") - (done.condemned.objects - 1);
	done = collect(&b, &at_once);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert_uint_gt(done.deleted.objects, 1);
	ck_assert_uint_eq(done.young.objects, 0);
	ck_assert_uint_eq(count(&b, "packs/"), packs);
	ck_assert_uint_eq(count(&b, "m/"), manifests - 1);
	ck_assert_uint_eq(count(&b, "packs/") + count(&b, "m/"), done.live.objects);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, 0);
	ck_assert_uint_eq(count(&b, "probe/"), 0);
	close_node(&b);
	close_node(&a);
	open_node(&b);
	check_saved(b.store, ALL & ~MANY & ~LARGE);
	close_node(&b);
	memset(b.dir, 0, sizeof(b.dir));
	open_node(&b);
	check_saved(b.store, ALL & ~MANY & ~LARGE);
	close_node(&b);
}
END_TEST

// --- Beside nodes that push ---------------------------------------------------------------------------------------------

// Something that happens when a node is about to put a key with this beginning the first time.
static struct hook {
	struct ckpt_objects_ops ops;
	const struct ckpt_objects_ops *below;
	const char *prefix;
	void (*act)(void *arg);
	void *arg;
} hook;

static int hooked_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		      struct ckpt_object *ret_object)
{
	void (*act)(void *arg) = hook.act;

	if (act && !strncmp(key, hook.prefix, strlen(hook.prefix))) {
		act(hook.arg);
		__atomic_store_n(&hook.act, NULL, __ATOMIC_RELEASE);
	}
	return hook.below->put(o, key, data, len, frees, ret_object);
}

static void hook_put(const struct node *n, const char *prefix, void (*act)(void *arg), void *arg)
{
	hook = (struct hook){.ops = *there(n)->ops, .below = there(n)->ops, .prefix = prefix, .act = act, .arg = arg};
	hook.ops.put = hooked_put;
	there(n)->ops = &hook.ops;
}

static void unhook(const struct node *n)
{
	ck_assert(!hook.act); // it has happened
	there(n)->ops = hook.below;
}

#define TEXT "a text that two steps have, one after the other"

// Node a has a pack here that nobody needs in the remote any more; a step with the same text would name it.
static void leave_garbage(struct node *a, struct ckpt_pack *ret_pack)
{
	open_node(a);
	save(a->store, "1", TEXT);
	save(a->store, "2", "another text");
	*ret_pack = place(a->store, "1");
	push(a);
	expire(a->store, "1");
	push_and_close(a);
}

static void save_again(struct node *n)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1, .keeps_raw = true};
	const char *text = TEXT;
	struct ckpt_tier_done done;
	struct ckpt_step *step;

	open_node(n);
	step = ckpt_packed_sealed(n->store, "3", &text, 1);
	ck_ok(ckpt_cool(step, &how, &done));
	ck_assert(ckpt_packed_is_raw(step, "0"));
	ckpt_step_unref(step);
}

static void push_of(void *arg)
{
	push(arg);
}

// Between the look at what is needed and the CONDEMN (G3 and G4). Its entry comes first: the pack is needed.
START_TEST(pack_that_is_named_while_it_is_condemned_stays)
{
	struct node a = {0}, b = {0};
	struct ckpt_collect_done done;
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	open_node(&b);
	save_again(&a);
	ck_assert_mem_eq(place(a.store, "3").id, pack.id, sizeof(pack.id));
	hook_put(&b, "log/", push_of, &a);
	put_orphan(&b, 7, 10);
	done = collect(&b, &at_once);
	unhook(&b);
	ck_assert_uint_eq(done.condemned.objects, 1);
	ck_assert_uint_eq(done.deleted.objects, 1);
	ck_assert(has_pack(&b, &pack));
	close_node(&a);
	close_node(&b);
	check_by_another("3", TEXT);
}
END_TEST

// Between the CONDEMN and the removal, or behind that (G4 and G5). Who pushes then has read the CONDEMN.
START_TEST(pack_that_was_condemned_is_put_under_another_name)
{
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	save_again(&a);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, _i ? &at_once : &an_hour).condemned.objects, 1);
	ck_assert_int_eq(has_pack(&b, &pack), !_i);
	push(&a);
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&b);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, &at_once).deleted.objects, !_i);
	ck_assert(!has_pack(&b, &pack));
	check(a.store, "3", TEXT);
	close_node(&a);
	close_node(&b);
	check_by_another("3", TEXT);
}
END_TEST

// The same of a step whose raw files are gone: its chunks are moved as they are.
START_TEST(chunks_of_a_cold_step_are_moved)
{
	struct node a = {0}, b = {0};
	struct ckpt_step *step;
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	save_again(&a);
	step = ckpt_step_find(a.store, "", "3");
	ckpt_packed_cool(step);
	ck_assert(!ckpt_packed_is_raw(step, "0"));
	ckpt_step_unref(step);
	open_node(&b);
	collect(&b, &at_once);
	push(&a);
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&a);
	close_node(&b);
	check_by_another("3", TEXT);
}
END_TEST

// Though its chunks are on this node, where they would be found.
START_TEST(new_step_shares_no_condemned_pack)
{
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	open_node(&b);
	collect(&b, &an_hour);
	close_node(&b);
	save_again(&a);
	ck_assert(ckpt_packed_is_there(a.store, &pack));
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&a);
}
END_TEST

// Over the CONDEMN a node may jump by a snapshot.
START_TEST(who_jumps_knows_what_is_condemned)
{
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;
	uint64_t end;

	leave_garbage(&a, &pack);
	save_again(&a);
	close_node(&a);
	open_node(&b);
	collect(&b, &at_once);
	ckpt_remote_log_make(there(&b), b.store->id, 300, true);
	close_node(&b);
	open_node(&b);
	ck_ok(ckpt_snapshots_put(b.store, true));
	end = position(&b);
	open_node(&a);
	ck_assert_uint_eq(position(&a), end);
	ck_assert_uint_lt(ckpt_journal_position(a.store->journal).seq, 100); // it has jumped
	push(&a);
	ck_assert_mem_ne(place(a.store, "3").id, pack.id, sizeof(pack.id));
	close_node(&a);
	close_node(&b);
}
END_TEST

// A manifest that is an object is condemned by its name, too: the same files have another one then.
START_TEST(manifest_that_was_condemned_has_another_name)
{
	struct node a = {0}, b = {0};
	struct ckpt_act condemn = {.kind = CKPT_ACT_CONDEMN, .manifest_count = 1};
	CLEANUP_VERSION struct ckpt_version *before = NULL, *after = NULL;
	struct ckpt_tier_done done;
	struct ckpt_step *step;

	open_node(&b);
	open_node(&a);
	step = ckpt_save_one(a.store, CKPT_SAVE_LARGE);
	ck_ok(ckpt_cool_sealed(step, &(struct ckpt_tier_how){.keeps_raw = true, .pack_bytes = 1 << 20}, &done));
	before = ckpt_step_version(step);
	ck_assert_uint_gt(before->is.manifest_bytes, CKPT_MANIFEST_EMBED_MAX);
	condemn.objects = before->is.manifest_sha256;
	ckpt_remote_log_add(there(&a), a.store->id, &condemn);
	push(&a);
	after = ckpt_step_version(step);
	ck_assert_mem_ne(before->is.manifest_sha256, after->is.manifest_sha256, CKPT_SHA256_LEN);
	ckpt_save_check_files(step, CKPT_SAVE_LARGE);
	ckpt_step_unref(step);
	collect(&a, &at_once);
	close_node(&a);
	close_node(&b);
	open_node(&b);
	check_saved(b.store, LARGE);
	close_node(&b);
}
END_TEST

struct from {
	struct node *node;
	struct ckpt_collect_done done;
};

static void collect_from(void *arg)
{
	struct from *f = arg;

	f->done = collect(f->node, &by_force);
}

#define LARGE_BYTES 300000

static void put_plain(const struct node *n, const char *name, uint8_t with)
{
	CLEANUP_FREE uint8_t *data = malloc(LARGE_BYTES);
	CLEANUP_FD int fd = openat(n->store->tree_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	for (size_t i = 0; i < LARGE_BYTES; i++)
		data[i] = (uint8_t)(i * 31 % 251 + with);
	ck_assert_int_eq(write(fd, data, LARGE_BYTES), LARGE_BYTES);
}

static void check_plain(const struct node *n, const char *name, uint8_t with)
{
	CLEANUP_FREE uint8_t *data = calloc(1, LARGE_BYTES + 1);
	CLEANUP_FD int fd = openat(n->store->tree_fd, name, O_RDONLY);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(read(fd, data, LARGE_BYTES + 1), LARGE_BYTES);
	for (size_t i = 0; i < LARGE_BYTES; i++)
		ck_assert_uint_eq(data[i], (uint8_t)(i * 31 % 251 + with));
}

// A large plain file is put, and before its entry is there all of it is condemned, and gone.
START_TEST(plain_file_that_was_condemned_is_put_again)
{
	struct node a = {0}, b = {0};
	struct from from = {.node = &b};

	open_node(&a);
	save(a.store, "2", "another text");
	push(&a);
	open_node(&b);
	hook_put(&a, "log/", collect_from, &from);
	put_plain(&a, "events", 7);
	ckpt_tree_touch(ckpt_remote_tree(remote(&a)));
	for (unsigned i = 0; __atomic_load_n(&hook.act, __ATOMIC_ACQUIRE); i++) {
		ck_assert_uint_lt(i, 2000);
		ckpt_sys.sleep_ns(10000000);
	}
	push(&a);
	unhook(&a);
	ck_assert_uint_eq(from.done.deleted.objects, 2);
	close_node(&a);
	close_node(&b);
	open_node(&b);
	ck_assert_uint_eq(collect(&b, &at_once).live.objects, 3); // its pack and manifest are needed
	check_plain(&b, "events", 7);
	close_node(&b);
}
END_TEST

static int64_t passed_ns; // while something was put
static int64_t (*real_mono_ns)(void);

static int64_t later_mono_ns(void)
{
	return real_mono_ns() + __atomic_load_n(&passed_ns, __ATOMIC_RELAXED);
}

static void pass_time(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&passed_ns, CKPT_HOLD_NS, __ATOMIC_RELAXED);
}

static unsigned count_holds(const struct node *n)
{
	unsigned holds = 0;

	for (uint64_t seq = 1; seq <= position(n); seq++) {
		struct ckpt_log_entry entry;
		struct ckpt_operation op;
		CLEANUP_FREE void *data = NULL;
		char key[CKPT_LOG_KEY_MAX];
		size_t len, cursor = 0;

		ckpt_log_key(seq, key);
		ck_ok(ckpt_objects_get_all(there(n), key, 1u << 20, &data, &len, NULL));
		ck_ok(ckpt_log_entry_decode(data, len, &entry));
		while (ckpt_log_entry_next(&entry, &cursor, &op))
			holds += op.kind == CKPT_ACT_HOLD;
	}
	return holds;
}

START_TEST(push_that_takes_long_holds_what_it_has_put)
{
	struct node a = {0};

	real_mono_ns = ckpt_hooks.mono_ns;
	ckpt_hook_set(mono_ns, later_mono_ns);
	open_node(&a);
	ckpt_step_unref(ckpt_packed_step(a.store, "1", TEXT, "another text", "a third one"));
	hook_put(&a, "packs/", pass_time, NULL);
	push(&a);
	unhook(&a);
	ck_assert_uint_eq(count_holds(&a), 1);
	close_node(&a);
	check_by_another("1", TEXT);
}
END_TEST

// An entry that somebody has put who did not look, whatever it says.
START_TEST(needed_objects_are_not_removed_though_they_are_condemned)
{
	struct ckpt_act condemn = {.kind = CKPT_ACT_CONDEMN, .pack_count = 1};
	struct node a = {0};
	struct ckpt_pack pack;

	open_node(&a);
	save(a.store, "2", "another text");
	pack = place(a.store, "2");
	push(&a);
	condemn.objects = pack.id;
	ckpt_remote_log_add(there(&a), a.store->id, &condemn);
	close_node(&a);
	open_node(&a);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 0);
	ck_assert(has_pack(&a, &pack));
	close_node(&a);
}
END_TEST

START_TEST(two_collections_at_once_remove_the_same)
{
	struct node a = {0}, b = {0}, c = {0};
	struct from from = {.node = &c};
	struct ckpt_collect_done done;
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	open_node(&b);
	open_node(&c);
	hook_put(&b, "log/", collect_from, &from);
	done = collect(&b, &at_once);
	unhook(&b);
	ck_assert_uint_eq(from.done.condemned.objects, 1);
	ck_assert_uint_eq(from.done.deleted.objects, 1);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert(!has_pack(&b, &pack));
	close_node(&b);
	close_node(&c);
	check_by_another("2", "another text");
}
END_TEST

// One that ends anywhere, with any answer lost: the next one ends it.
START_TEST(collection_that_was_cut_off_is_ended_by_the_next)
{
	struct ckpt_fault fault = ckpt_objectsfault_ways[_i];
	struct ckpt_collect_done done;
	struct ckpt_objects *faulty;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;

	leave_garbage(&a, &pack);
	for (uint8_t at = 1, fired = 1; fired; at++) {
		int rc;

		open_node(&b);
		put_orphan(&b, at, 10); // names are used once
		ck_ok(ckpt_fault_new(there(&b), &fault, &faulty));
		fault.count = 0;
		fault.at = at;
		rc = ckpt_collect(b.store, &at_once, &done);
		ck_assert(!rc || *done.why);
		fired = fault.count >= at;
		ck_assert(fired || !rc);
		fault.at = 0;
		close_node(&b);
		open_node(&b);
		done = collect(&b, &at_once);
		ck_assert_uint_eq(count(&b, "packs/"), 1);
		ck_assert_uint_eq(done.live.objects, 1);
		ck_assert_uint_le(count(&b, "probe/"), at);
		close_node(&b);
	}
	check_by_another("2", "another text");
}
END_TEST

// --- Brakes -------------------------------------------------------------------------------------------------------------

START_TEST(where_a_manifest_cannot_be_read_nothing_goes)
{
	struct ckpt_collect_done done;
	struct node a = {0}, b = {0};
	char command[PATH_MAX + 64];

	save_all(&a);
	put_orphan(&a, 7, 10);
	close_node(&a);
	snprintf(command, sizeof(command),
		 _i ? "rm '%s'/m/*" : "for f in '%s'/m/*; do chmod u+w $f; printf x >$f; done", remote_dir);
	ck_assert_int_eq(system(command), 0);
	open_node(&b);
	ck_error(ckpt_collect(b.store, &by_force, &done), EBADMSG);
	ck_assert_ptr_nonnull(strstr(done.why, ckpt_save_steps[CKPT_SAVE_LARGE].name));
	ck_assert_uint_eq(done.condemned.objects + done.deleted.objects, 0);
	close_node(&b);
}
END_TEST

// Objects that no entry has named may be lost by somebody. Named ones have gone by acts.
START_TEST(more_than_half_goes_by_force_or_if_the_log_has_named_it)
{
	struct ckpt_collect_done done;
	struct node a = {0};

	open_node(&a);
	save(a.store, "1", TEXT);
	save(a.store, "2", "another text");
	push(&a);
	put_orphan(&a, 7, 100000);
	ck_error(ckpt_collect(a.store, &at_once, &done), EPERM);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert_uint_eq(count(&a, "packs/"), 3);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 1);
	expire(a.store, "1");
	expire(a.store, "2");
	push(&a);
	ck_assert_uint_eq(collect(&a, &at_once).deleted.objects, 2);
	close_node(&a);
}
END_TEST

// --- Held, and older ----------------------------------------------------------------------------------------------------

static void age_entry(uint64_t seq, int64_t ns)
{
	struct timespec times[2] = {0};
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/log/%016llx", remote_dir, (unsigned long long)seq);
	times[0].tv_sec = times[1].tv_sec = (ckpt_sys.now_ns() - ns) / 1000000000;
	ck_ok(utimensat(AT_FDCWD, path, times, 0));
}

static int count_held(void *arg, const struct ckpt_state *state)
{
	const struct ckpt_named *const *all = ckpt_state_named_objects(state, arg);
	int held = 0;

	for (size_t i = 0; i < *(size_t *)arg; i++)
		held += *all[i]->step != '\0';
	return held;
}

static size_t held(const struct node *n)
{
	size_t all;

	return (size_t)ckpt_journal_look(n->store->journal, count_held, &all);
}

START_TEST(held_objects_stay_for_some_days_or_until_their_step_is_there)
{
	uint8_t id[CKPT_SHA256_LEN] = {7};
	struct ckpt_act hold = {.kind = CKPT_ACT_HOLD, .pack_count = 1, .objects = id};
	struct ckpt_collect_done done;
	struct node a = {0};
	uint64_t end;

	open_node(&a);
	save(a.store, "2", "another text");
	push(&a);
	put_orphan(&a, 7, 10);
	end = position(&a);
	ckpt_remote_log_session(end + 2, hold.step); // which the entry behind it saves
	ckpt_remote_log_add(there(&a), a.store->id, &hold);
	close_node(&a);
	open_node(&a);
	done = collect(&a, &by_force);
	ck_assert_uint_eq(done.condemned.objects, 0);
	ck_assert_uint_eq(done.live.objects, 2);
	ck_assert_uint_eq(held(&a), 1);
	if (_i)
		age_entry(position(&a), CKPT_COLLECT_HOLD_NS + INT64_C(60000000000));
	else
		ckpt_remote_log_make(there(&a), a.store->id, end + 2, true);
	close_node(&a);
	open_node(&a);
	ck_assert_uint_eq(held(&a), _i);
	if (_i)
		ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 1);
	close_node(&a);
	open_node(&a);
	ck_assert_uint_eq(held(&a), 0); // nor do its names stay in the state for ever
	close_node(&a);
}
END_TEST

START_TEST(older_versions_stay_until_they_expire)
{
	struct ckpt_pack removed, kept;
	struct ckpt_chunk chunk;
	struct ckpt_step *step;
	struct node a = {0};

	open_node(&a);
	step = ckpt_packed_step(a.store, "1", TEXT, "the text that it has now");
	removed = ckpt_packed_place(step, "0", &chunk);
	kept = ckpt_packed_place(step, "1", &chunk);
	push(&a);
	ck_ok(ckpt_amend_remove(step, "0"));
	push(&a);
	ck_assert_uint_eq(collect(&a, &by_force).condemned.objects, 0);
	a.store->settings.trash_ns = 0;
	// Up to now it could be restored, by what is not in the log yet.
	ck_assert_uint_eq(collect(&a, &an_hour).condemned.objects, 0);
	ck_assert_uint_eq(collect(&a, &by_force).deleted.objects, 1);
	ck_assert(!has_pack(&a, &removed) && has_pack(&a, &kept));
	ckpt_step_unref(step);
	close_node(&a);
}
END_TEST

// A reader that has an older version open reads on for as long as the delay is, and then from the copy that its node has made.
START_TEST(reader_of_what_has_gone_reads_on)
{
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_pack pack;
	struct ckpt_step *step;
	struct ckpt_file *f;

	open_node(&a);
	save(a.store, "1", TEXT);
	save(a.store, "2", "another text");
	pack = place(a.store, "1");
	push(&a);
	open_node(&b);
	step = ckpt_step_find(b.store, "", "1");
	f = ckpt_packed_open(step, "0");
	expire(a.store, "1");
	push(&a);
	open_node(&c);
	if (_i)
		push(&b); // from now on it reads
	ck_assert_uint_eq(collect(&c, &an_hour).waiting.objects, 1);
	for (unsigned i = 0; _i && !last_condemn(&b); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_remote_wake(remote(&b));
		ckpt_sys.sleep_ns(10000000);
	}
	for (unsigned i = 0; _i && !is_here(&b, &pack); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_sys.sleep_ns(10000000);
	}
	if (_i) {
		ck_ok(ckpt_remote_read_to(remote(&c), position(&b)));
		ck_assert_uint_eq(collect(&c, &at_once).deleted.objects, 1);
	}
	ckpt_packed_check(f, TEXT);
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&a);
	close_node(&b);
	close_node(&c);
}
END_TEST

// A step that waits on b needs a pack of the remote that nobody else needs any more.
static void leave_waiting(struct node *a, struct node *b, struct ckpt_pack *ret_pack)
{
	struct ckpt_step *step;
	struct ckpt_chunk chunk;

	open_node(a);
	step = ckpt_packed_step(a->store, "1", TEXT, "another text");
	*ret_pack = ckpt_packed_place(step, "1", &chunk);
	ckpt_step_unref(step);
	push(a);
	open_node(b);
	ckpt_remote_ready(remote(b));
	step = ckpt_step_find(b->store, "", "1");
	ck_ok(ckpt_amend_move(step, &(struct ckpt_names){.from = "1", .to = "moved"}));
	ckpt_step_unref(step);
	expire(a->store, "1");
	push_and_close(a);
}

// The only step; a reference.
static struct ckpt_step *only_step(const struct node *n)
{
	struct ckpt_step **steps, *step;
	size_t count;

	ck_ok(ckpt_step_list(n->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count));
	ck_assert_uint_eq(count, 1);
	step = ckpt_step_ref(*steps);
	ckpt_step_list_free(steps, count);
	return step;
}

// A change that is not pushed yet needs chunks of what all others have given up. Of the step that is gone it is all that stays.
START_TEST(pack_that_a_waiting_step_needs_is_fetched)
{
	struct node a = {0}, b = {0}, c = {0}, d = {0};
	struct ckpt_step *step;
	struct ckpt_pack pack;
	struct ckpt_file *f;

	leave_waiting(&a, &b, &pack);
	open_node(&c);
	ck_assert_uint_ge(collect(&c, &an_hour).waiting.objects, 1);
	ck_ok(ckpt_remote_read_to(remote(&b), position(&c) + 1));
	ck_assert(is_here(&b, &pack));
	collect(&c, &at_once);
	ck_assert(!has_pack(&c, &pack));
	close_node(&c);
	push_and_close(&b);
	open_node(&d);
	step = only_step(&d);
	f = ckpt_packed_open(step, "moved");
	ckpt_packed_check(f, "another text");
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&d);
}
END_TEST

static int little_room(int fd, uint64_t *ret_free, uint64_t *ret_total)
{
	(void)fd;
	*ret_free = 1000;
	*ret_total = UINT64_C(1) << 40;
	return 0;
}

// Nothing is fetched where the disk is full, or the limit is reached: a save needs the room. It is fetched when there is some.
START_TEST(pack_that_a_waiting_step_needs_is_fetched_when_there_is_room)
{
	int (*real_room)(int fd, uint64_t *ret_free, uint64_t *ret_total) = ckpt_hooks.room;
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_pack pack;

	leave_waiting(&a, &b, &pack);
	open_node(&c);
	if (_i) {
		b.store->settings.work_limit = 1;
		ck_ok(ckpt_limit_new(b.store, ckpt_limit_of(b.store)));
	} else {
		ckpt_hook_set(room, little_room);
	}
	ck_assert_uint_ge(collect(&c, &an_hour).waiting.objects, 1);
	ck_ok(ckpt_remote_read_to(remote(&b), position(&c) + 1));
	ck_assert(!is_here(&b, &pack));
	ck_assert_uint_eq(ckpt_save_errors(b.store, "no room for"), 1);
	if (_i)
		ckpt_limit_free(TAKE_PTR(*ckpt_limit_of(b.store)));
	else
		ckpt_hook_set(room, real_room);
	(void)collect(&c, &(struct ckpt_collect_how){.delay_ns = CKPT_COLLECT_DELAY_NS, .leaves_word = true});
	ck_ok(ckpt_remote_read_to(remote(&b), position(&c) + 1));
	ck_assert(is_here(&b, &pack));
	close_node(&b);
	close_node(&c);
}
END_TEST

// A get of a pack does not come back before this is set.
static bool released;
static const struct ckpt_objects_ops *real_ops;

static int held_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		    struct ckpt_object *ret_object)
{
	while (!strncmp(key, "packs/", strlen("packs/")) && !__atomic_load_n(&released, __ATOMIC_ACQUIRE))
		ckpt_sys.sleep_ns(1000000);
	return real_ops->get(o, key, offset, buf, len, ret_len, ret_object);
}

START_TEST(log_is_read_on_while_packs_are_fetched)
{
	struct node a = {0}, b = {0}, c = {0};
	struct ckpt_objects_ops ops;
	struct ckpt_step *step;
	struct ckpt_file *f;

	open_node(&a);
	save(a.store, "1", TEXT);
	save(a.store, "2", "another text");
	push(&a);
	open_node(&b);
	step = ckpt_step_find(b.store, "", "1");
	f = ckpt_packed_open(step, "0");
	expire(a.store, "1");
	push(&a);
	push(&b);
	real_ops = there(&b)->ops;
	ops = *real_ops;
	ops.get = held_get;
	there(&b)->ops = &ops;
	open_node(&c);
	ck_assert_uint_eq(collect(&c, &an_hour).waiting.objects, 1);
	save(a.store, "3", "a third text");
	push(&a);
	for (unsigned i = 0; position(&b) < position(&a); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_remote_wake(remote(&b));
		ckpt_sys.sleep_ns(10000000);
	}
	__atomic_store_n(&released, true, __ATOMIC_RELEASE);
	ckpt_packed_check(f, TEXT);
	ckpt_file_close(f);
	ckpt_step_unref(step);
	close_node(&a);
	close_node(&b);
	close_node(&c);
}
END_TEST

// Nothing keeps a version that was over: neither a pin nor a longer time of the trash has it back.
START_TEST(pin_of_a_step_whose_older_version_has_gone_keeps_no_garbage)
{
	struct ckpt_step *step;
	struct node a = {0}, b = {0};
	size_t manifests;

	open_node(&a);
	step = ckpt_save_one(a.store, CKPT_SAVE_LARGE); // its manifest is an object
	push(&a);
	ck_ok(ckpt_amend_remove(step, "config.json"));
	push(&a);
	manifests = count(&a, "m/");
	a.store->settings.trash_ns = 0;
	collect(&a, &by_force);
	ck_assert_uint_lt(count(&a, "m/"), manifests);
	ck_ok(ckpt_pin(step, true));
	ckpt_step_unref(step);
	push_and_close(&a);
	open_node(&b); // which has nothing of it
	put_orphan(&b, 7, 100);
	ck_assert_uint_eq(collect(&b, &by_force).deleted.objects, 1);
	close_node(&b);
}
END_TEST

// --- By itself ----------------------------------------------------------------------------------------------------------

#define MS INT64_C(1000000)

// A mount waits for its turn, comes back for what it has condemned, and leaves a word for the others where there is nothing.
START_TEST(a_mount_collects_when_nobody_has_for_a_while)
{
	struct ckpt_collector_pace pace = {
		.period_ns = 300 * MS, .spread_ns = 50 * MS, .retry_ns = 50 * MS, .delay_ns = 100 * MS};
	struct ckpt_collector *collector, *other;
	struct node a = {0}, b = {0};
	struct ckpt_pack pack;
	uint64_t seq;

	leave_garbage(&a, &pack);
	open_node(&b);
	push(&b);
	ckpt_sys.sleep_ns(400 * MS);
	pace.period_ns = INT64_C(3600000) * MS;
	ck_ok(ckpt_collector_new(b.store, &pace, &other)); // which is never due
	pace.period_ns = 300 * MS;
	ck_ok(ckpt_collector_new(b.store, &pace, &collector));
	for (unsigned i = 0; has_pack(&b, &pack); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_sys.sleep_ns(10 * MS);
	}
	ckpt_collector_stop(other);
	ckpt_collector_free(other);
	seq = last_condemn(&b);
	ck_assert_uint_gt(seq, 0);
	for (unsigned i = 0; last_condemn(&b) == seq; i++) { // there is nothing, and it says so
		ck_assert_uint_lt(i, 1000);
		ckpt_remote_wake(remote(&b));
		ckpt_sys.sleep_ns(10 * MS);
	}
	ckpt_collector_stop(collector);
	ckpt_collector_free(collector);
	close_node(&b);
	check_by_another("2", "another text");
}
END_TEST

START_TEST(a_mount_tells_once_that_it_cannot_collect)
{
	const struct ckpt_collector_pace pace = {.period_ns = 20 * MS, .spread_ns = 5 * MS, .retry_ns = 5 * MS};
	struct ckpt_collector *collector;
	struct node a = {0};

	open_node(&a);
	save(a.store, "1", TEXT);
	push(&a);
	put_orphan(&a, 7, 100000);
	ckpt_sys.sleep_ns(50 * MS);
	ck_ok(ckpt_collector_new(a.store, &pace, &collector));
	for (unsigned i = 0; !ckpt_save_errors(a.store, "garbage was not removed from the bucket"); i++) {
		ck_assert_uint_lt(i, 1000);
		ckpt_sys.sleep_ns(10 * MS);
	}
	ckpt_sys.sleep_ns(200 * MS);
	ckpt_collector_stop(collector);
	ckpt_collector_free(collector);
	ck_assert_uint_eq(ckpt_save_errors(a.store, "garbage was not removed from the bucket"), 1);
	ck_assert_uint_eq(count(&a, "packs/"), 2);
	close_node(&a);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("collect");
	TCase *tcase = tcase_create("collect");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, garbage_goes_and_what_is_needed_stays);
	tcase_add_test(tcase, pack_that_is_named_while_it_is_condemned_stays);
	tcase_add_loop_test(tcase, pack_that_was_condemned_is_put_under_another_name, 0, 2);
	tcase_add_test(tcase, new_step_shares_no_condemned_pack);
	tcase_add_test(tcase, chunks_of_a_cold_step_are_moved);
	tcase_add_test(tcase, who_jumps_knows_what_is_condemned);
	tcase_add_test(tcase, manifest_that_was_condemned_has_another_name);
	tcase_add_test(tcase, plain_file_that_was_condemned_is_put_again);
	tcase_add_test(tcase, push_that_takes_long_holds_what_it_has_put);
	tcase_add_test(tcase, needed_objects_are_not_removed_though_they_are_condemned);
	tcase_add_test(tcase, two_collections_at_once_remove_the_same);
	tcase_add_loop_test(tcase, collection_that_was_cut_off_is_ended_by_the_next, 0, CKPT_BACKENDFAULT_WAYS);
	tcase_add_loop_test(tcase, where_a_manifest_cannot_be_read_nothing_goes, 0, 2);
	tcase_add_test(tcase, more_than_half_goes_by_force_or_if_the_log_has_named_it);
	tcase_add_loop_test(tcase, held_objects_stay_for_some_days_or_until_their_step_is_there, 0, 2);
	tcase_add_test(tcase, older_versions_stay_until_they_expire);
	tcase_add_loop_test(tcase, reader_of_what_has_gone_reads_on, 0, 2);
	tcase_add_test(tcase, pack_that_a_waiting_step_needs_is_fetched);
	tcase_add_loop_test(tcase, pack_that_a_waiting_step_needs_is_fetched_when_there_is_room, 0, 2);
	tcase_add_test(tcase, log_is_read_on_while_packs_are_fetched);
	tcase_add_test(tcase, pin_of_a_step_whose_older_version_has_gone_keeps_no_garbage);
	tcase_add_test(tcase, a_mount_collects_when_nobody_has_for_a_while);
	tcase_add_test(tcase, a_mount_tells_once_that_it_cannot_collect);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

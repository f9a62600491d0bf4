// Every operation on the objects of a bucket behind the fault proxy, through the stack that a mount opens, beside a shadow.
//
// The shadow says of each key which contents may stand there. A put of known outcome leaves one. One of unknown outcome adds one, which
// may appear at any later time, as long as nothing else is there. A key that was removed once is only read from then on, since no
// name is used twice in a store. So these hold of each answer, whatever the network does:
//
//   - Bytes that are returned are those of one content that may be there; an acknowledged content is never missing and never another.
//   - A list names each object that is there for certain, with its size, and none that cannot be there.
//   - A call ends by its deadline, or soon after it was called off; a call without one within two minutes.
//
// In the end the proxy is calm, and the server itself is asked. Errors are allowed before that: schedules end, and callers try again.
#include "tests/schedules/play.h"
#include "tests/support/suite.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/objects/stack.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS 24
#define TRIES 16                             // contents of one key
#define PARTS_BYTES (((size_t)96 << 20) + 5) // more than one request takes
#define MARGIN_NS INT64_C(2000000000)        // of a busy machine
#define LONGEST_NS INT64_C(125000000000)

struct content {
	uint64_t seed;
	size_t bytes;
};

struct key {
	char name[64];
	bool is_shared;            // several writers want it, with different bytes
	struct content may[TRIES]; // all that were put, and not refused for certain
	unsigned count;
	const struct content *known; // is there, of those
	bool is_taken;               // one of them is
	bool may_be_gone;            // a remove was tried
};

static struct key keys[KEYS];
static unsigned key_count, failures, first; // of the keys that acts choose from: a large object is read in its own way
static struct ckpt_objects *o, *direct;
static uint64_t contents;
static bool is_strict, is_fair;

// --- Contents -----------------------------------------------------------------------------------------------------------

static uint64_t word(uint64_t seed, uint64_t n)
{
	uint64_t z = (seed << 40) + n * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return z ^ z >> 27;
}

static int read_content(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct content *c = arg;
	uint8_t *to = buf;

	for (uint64_t at = offset; at < offset + len;) {
		uint64_t w = word(c->seed, at / 8);
		size_t skip = at % 8, n = MIN(8 - skip, (size_t)(offset + len - at));

		memcpy(to, (const uint8_t *)&w + skip, n);
		to += n;
		at += n;
	}
	return 0;
}

static bool is_content(const struct content *c, uint64_t offset, const void *data, size_t got, size_t wanted)
{
	CLEANUP_FREE uint8_t *is = malloc(got + 1);
	size_t there = offset < c->bytes ? MIN(wanted, c->bytes - (size_t)offset) : 0;

	if (got != there)
		return false;
	read_content((void *)(uintptr_t)c, offset, is, got);
	return !memcmp(is, data, got);
}

static struct content new_content(void)
{
	static const size_t sizes[] = {1, 300, 5000, 70000, 300000};

	return (struct content){.seed = ++contents, .bytes = sizes[ckpt_play_below(ARRAY_LEN(sizes))]};
}

// --- Deadlines ----------------------------------------------------------------------------------------------------------

// A call's end is known before it begins, or nobody has asked for one.
struct ending {
	struct ckpt_until until;
	bool cancelled;
	int64_t begun_ns, cancel_ns; // after so long; 0: not called off
	pthread_t thread;
};

static void *cancel_later(void *arg)
{
	struct ending *e = arg;

	ckpt_sys.sleep_ns(e->cancel_ns);
	__atomic_store_n(&e->cancelled, true, __ATOMIC_RELAXED);
	return NULL;
}

static const struct ckpt_until *begin(struct ending *e, bool can_end)
{
	static const int64_t limits_ns[] = {300000000, 1000000000, 5000000000};
	uint32_t dice = can_end && !is_strict ? ckpt_play_below(10) : 9;

	*e = (struct ending){.begun_ns = ckpt_sys.mono_ns()};
	if (dice < 3)
		e->until.deadline_ns = e->begun_ns + limits_ns[dice];
	if (dice == 3) {
		e->until.cancelled = &e->cancelled;
		e->cancel_ns = 1 + (int64_t)ckpt_play_below(200) * 1000000;
		ck_assert_int_eq(pthread_create(&e->thread, NULL, cancel_later, e), 0);
	}
	return dice <= 3 ? &e->until : NULL;
}

static void end(struct ending *e, const char *what, const struct key *k, int rc)
{
	int64_t took_ns = ckpt_sys.mono_ns() - e->begun_ns, limit_ns = LONGEST_NS;
	char why[CKPT_OBJECTS_WHY_MAX];

	if (e->cancel_ns) {
		pthread_join(e->thread, NULL);
		limit_ns = e->cancel_ns;
	} else if (e->until.deadline_ns) {
		limit_ns = e->until.deadline_ns - e->begun_ns;
	}
	ckpt_objects_why(o, why);
	ck_assert_msg(took_ns < limit_ns + MARGIN_NS, "%s %s took %lld ms of %lld: %s (%s)", what, k ? k->name : "",
		      (long long)(took_ns / 1000000), (long long)(limit_ns / 1000000), strerror(-rc), why);
	if (getenv("CKPT_PLAY_SHOW"))
		printf("%s %s: %s, %lld ms%s%s\n", what, k ? k->name : "", strerror(-rc),
		       (long long)(took_ns / 1000000), rc ? ": " : "", rc ? why : "");
	failures += rc != 0;
	ck_assert_msg(!is_strict || !rc, "%s %s: %s (%s)", what, k ? k->name : "", strerror(-rc), why);
}

// --- What may be --------------------------------------------------------------------------------------------------------

static bool may_be_absent(const struct key *k)
{
	return k->may_be_gone || (!k->known && !k->is_taken);
}

static const struct content *find(const struct key *k, uint64_t offset, const void *data, size_t got, size_t wanted)
{
	if (k->known)
		return is_content(k->known, offset, data, got, wanted) ? k->known : NULL;
	for (unsigned i = 0; i < k->count; i++)
		if (is_content(&k->may[i], offset, data, got, wanted))
			return &k->may[i];
	return NULL;
}

// An object that was read once stays, for nothing is replaced.
static void see(struct key *k, uint64_t offset, const void *data, size_t got, size_t wanted)
{
	const struct content *c = find(k, offset, data, got, wanted);

	ck_assert_msg(c != NULL, "%s: %zu bytes from %llu on are of no content that was put there", k->name, got,
		      (unsigned long long)offset);
	if (!k->may_be_gone && got > 8)
		k->known = c;
	k->is_taken = k->is_taken || !k->may_be_gone;
}

static void miss(const struct key *k, const char *what)
{
	ck_assert_msg(may_be_absent(k), "%s %s: it is missing", what, k->name);
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

static struct key *add_key(void)
{
	static const char *const folders[] = {"log", "m", "packs", "snap"};
	const char *folder = folders[ckpt_play_below(ARRAY_LEN(folders))];
	struct key *k = &keys[key_count++];

	snprintf(k->name, sizeof(k->name), "%s/%016x", folder, key_count);
	k->is_shared = !strcmp(folder, "log") || !strcmp(folder, "snap");
	return k;
}

static struct key *some_key(void)
{
	if (key_count < KEYS && (key_count == first || !ckpt_play_below(4)))
		return add_key();
	return &keys[first + ckpt_play_below(key_count - first)];
}

// An object of this content, which the call may take in one piece or read from a source.
static int put_content(const struct key *k, struct content *c, struct ending *e, bool as_source)
{
	const struct ckpt_source source = {.bytes = c->bytes, .read = read_content, .arg = c};
	// The large one is hashed part by part before a deadline is looked at: on a busy machine that takes seconds.
	const struct ckpt_until *until = begin(e, as_source && c->bytes < PARTS_BYTES);
	CLEANUP_FREE void *data = NULL;

	if (as_source)
		return ckpt_objects_put_from(o, k->name, &source, until, NULL);
	data = malloc(c->bytes);
	read_content(c, 0, data, c->bytes);
	return ckpt_objects_put(o, k->name, data, c->bytes, NULL);
}

static void put(struct key *k, struct content c, bool as_source)
{
	bool was_there = k->known || k->is_taken;
	struct ending e;
	int rc = put_content(k, &c, &e, as_source);

	end(&e, "put", k, rc == -EEXIST ? 0 : rc);
	ck_assert_uint_lt(k->count, TRIES);
	k->may[k->count] = c;
	if (rc == 0) {
		ck_assert_msg(!was_there || !k->is_shared, "put %s: it was done, over another's", k->name);
		k->known = &k->may[k->count];
	} else if (rc == -EEXIST) {
		// A store says so of its own put, too, where the answer to the first one was lost, or said "busy".
		k->is_taken = k->is_taken || is_fair;
	} else {
		ck_assert_int_ne(rc, -ENOENT);
	}
	k->count++;
}

static void act_put(struct key *k)
{
	if (k->may_be_gone || k->count == TRIES)
		return;
	// The name of a pack, or of a manifest, belongs to one writer, who puts the same bytes again.
	put(k, k->is_shared || !k->count ? new_content() : k->may[0], ckpt_play_below(2));
}

static void act_get(struct key *k)
{
	CLEANUP_FREE void *data = NULL;
	struct ending e;
	size_t got = 0;
	int rc;

	begin(&e, false);
	rc = ckpt_objects_get_all(o, k->name, (size_t)1 << 20, &data, &got, NULL);
	end(&e, "get", k, rc == -ENOENT ? 0 : rc);
	if (!rc)
		see(k, 0, data, got, (size_t)1 << 20);
	else if (rc == -ENOENT)
		miss(k, "get");
}

static void act_ranges(struct key *k)
{
	struct ckpt_range ranges[3];
	struct ckpt_object object;
	size_t count = 1 + ckpt_play_below(3);
	struct ending e;
	int rc;

	for (size_t i = 0; i < count; i++) {
		ranges[i] = (struct ckpt_range){.offset = ckpt_play_below(2) ? ckpt_play_below(6000)
									     : ckpt_play_below(300000),
						.len = 1 + ckpt_play_below(ckpt_play_below(2) ? 100 : 90000)};
		ranges[i].buf = malloc(ranges[i].len);
	}
	rc = ckpt_objects_get_ranges(o, k->name, ranges, count, begin(&e, true), &object);
	end(&e, "get ranges", k, rc == -ENOENT ? 0 : rc);
	for (size_t i = 0; i < count; i++) {
		if (!rc)
			see(k, ranges[i].offset, ranges[i].buf, ranges[i].got, ranges[i].len);
		free(ranges[i].buf);
	}
	if (rc == -ENOENT)
		miss(k, "get ranges");
}

static void act_head(struct key *k)
{
	struct ckpt_object object;
	struct ending e;
	int rc;

	begin(&e, false);
	rc = ckpt_objects_head(o, k->name, &object);
	end(&e, "head", k, rc == -ENOENT ? 0 : rc);
	if (rc == -ENOENT)
		miss(k, "head");
	else if (!rc && k->known)
		ck_assert_uint_eq(object.bytes, k->known->bytes);
	else if (!rc)
		ck_assert_msg(k->count, "head %s: it was never put", k->name);
}

static void act_remove(struct key *k)
{
	struct ending e;
	int rc;

	if (ckpt_play_below(3))
		return;
	begin(&e, false);
	rc = ckpt_objects_remove(o, k->name);
	end(&e, "remove", k, rc == -ENOENT ? 0 : rc);
	k->may_be_gone = true;
	k->known = NULL; // a put that is on its way may be it
}

// --- List ---------------------------------------------------------------------------------------------------------------

struct list {
	bool has[KEYS];
	const char *prefix, *after;
};

static int see_key(void *arg, const char *name, const struct ckpt_object *object)
{
	struct list *l = arg;

	for (unsigned i = 0; i < key_count; i++) {
		struct key *k = &keys[i];

		if (strcmp(k->name, name) != 0)
			continue;
		ck_assert_msg(k->count, "list: %s was never put", name);
		ck_assert_msg(!k->known || object->bytes == k->known->bytes, "list: %s has %llu bytes, not %zu", name,
			      (unsigned long long)object->bytes, k->known ? k->known->bytes : 0);
		l->has[i] = true;
		return 0;
	}
	ck_abort_msg("list: nobody has put %s", name);
}

static void list(struct ckpt_objects *of, struct list *l, int *ret_rc)
{
	int rc = ckpt_objects_list(of, l->prefix, l->after, see_key, l);

	*ret_rc = rc;
	for (unsigned i = 0; i < key_count && !rc; i++) {
		const char *name = keys[i].name;

		if (!strncmp(name, l->prefix, strlen(l->prefix)) && strcmp(name, l->after) > 0 && !l->has[i])
			ck_assert_msg(may_be_absent(&keys[i]), "list: %s is not in it", name);
	}
}

static void act_list(struct key *k)
{
	static const char *const prefixes[] = {"", "log/", "m/", "packs/", "snap/"};
	struct list l = {.prefix = prefixes[ckpt_play_below(ARRAY_LEN(prefixes))],
			 .after = ckpt_play_below(3) ? "" : k->name};
	struct ending e;
	int rc;

	begin(&e, false);
	list(o, &l, &rc);
	end(&e, "list", NULL, rc);
}

static void act_abort(struct key *k __attribute__((unused)))
{
	struct ending e;
	uint64_t count;

	begin(&e, false);
	end(&e, "abort uploads", NULL,
	    ckpt_objects_abort_uploads(o, ckpt_sys.now_ns() + INT64_C(3600000000000), &count));
}

// --- One large object ---------------------------------------------------------------------------------------------------

static void compare_large(struct ckpt_objects *of, struct key *k)
{
	CLEANUP_FREE uint8_t *all = malloc(PARTS_BYTES);
	struct ckpt_range ranges[2] = {{.len = 5, .buf = all}, {.offset = 5, .len = PARTS_BYTES - 5, .buf = all + 5}};
	struct ckpt_object object;
	struct ending e;
	int rc;

	begin(&e, false);
	rc = ckpt_objects_get_ranges(of, k->name, ranges, 2, NULL, &object);
	end(&e, "get", k, rc == -ENOENT ? 0 : rc);
	if (rc == -ENOENT)
		miss(k, "get");
	for (size_t i = 0; i < 2 && !rc; i++)
		see(k, ranges[i].offset, ranges[i].buf, ranges[i].got, ranges[i].len);
	ck_assert_msg(of == o || !rc || (rc == -ENOENT && may_be_absent(k)), "%s: %s", k->name, strerror(-rc));
}

static void put_large(void)
{
	struct content c = {.seed = ++contents, .bytes = PARTS_BYTES};
	struct key *k = &keys[key_count++];

	strcpy(k->name, "packs/large");
	put(k, c, true);
	compare_large(o, k);
	first = key_count;
}

// --- The whole ----------------------------------------------------------------------------------------------------------

static void act(void)
{
	static void (*const acts[])(struct key * k) = {act_put,    act_put,    act_put,  act_get,  act_get,
						       act_ranges, act_ranges, act_head, act_list, act_remove};
	struct key *k = some_key();

	if (!k->count && ckpt_play_below(2))
		act_put(k);
	else if (!is_strict && !ckpt_play_below(20))
		act_abort(k);
	else
		acts[ckpt_play_below(ARRAY_LEN(acts))](k);
}

// Past the proxy, when nothing is on its way any more.
static void check_server(void)
{
	struct list l = {.prefix = "", .after = ""};
	int rc;

	for (unsigned i = 0; i < key_count; i++) {
		CLEANUP_FREE void *data = NULL;
		size_t got;

		if (!strcmp(keys[i].name, "packs/large")) {
			compare_large(direct, &keys[i]);
			continue;
		}
		rc = ckpt_objects_get_all(direct, keys[i].name, (size_t)1 << 20, &data, &got, NULL);
		if (!rc)
			see(&keys[i], 0, data, got, (size_t)1 << 20);
		else
			miss(&keys[i], rc == -ENOENT ? "the server" : strerror(-rc));
		l.has[i] = false;
	}
	list(direct, &l, &rc);
	ck_ok(rc);
}

static void open_both(void)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	struct ckpt_objects_at at = {.url = ckpt_play_url(), .writable = true, .why = why};

	at.options = ckpt_play_options(false);
	ck_assert_msg(!ckpt_objects_open(&at, &o), "%s", why);
	at.options = ckpt_play_options(true);
	ck_assert_msg(!ckpt_objects_open(&at, &direct), "%s", why);
}

START_TEST(objects_are_what_was_put)
{
	unsigned count = ckpt_suite_setting("CKPT_PLAY_ACTS", 60);

	ckpt_play_seed(ckpt_suite_setting("CKPT_PLAY_SEED", 1));
	is_strict = ckpt_suite_setting("CKPT_PLAY_STRICT", 0);
	is_fair = ckpt_suite_setting("CKPT_PLAY_FAIR", 1);
	open_both();
	if (ckpt_suite_setting("CKPT_PLAY_PARTS", 0))
		put_large();
	for (unsigned i = 0; i < count; i++)
		act();
	ckpt_play_calm();
	check_server();
	printf("%u acts, %u failed\n", count, failures);
	ckpt_objects_close(o);
	ckpt_objects_close(direct);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("play objects");
	TCase *tcase = tcase_create("play");

	tcase_add_test(tcase, objects_are_what_was_put);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

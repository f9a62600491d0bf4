// All at once for a while: four writers whose steps are made of the same few texts, two who delete, expire and have back, two who
// cool and warm and sometimes give up, two who collect garbage of any age and repack what is half-dead, one who makes the index anew, and
// readers who keep files open over all that.
// What is listed, what is in the trash and what is open reads right at any time; in the end what is stored and not needed is at most 1.1
// times what is.
//
// CKPT_STRESS_SECONDS in the environment: 20 by default, 120 with CKPT_TEST_FULL=1. CKPT_STRESS_SEED: other choices.
#include "core/store/open.h"
#include "tests/support/save.h"
#include "tests/support/staged.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/dedupe.h"
#include "core/cold/file.h"
#include "core/cold/pack_use.h"
#include "core/gc/gc.h"
#include "core/save/delete.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define SLOTS 64 // steps at a time
#define FILES 6
#define TEXTS 512
#define HOT_TEXTS 32 // of which every other file has one
#define TEXT_MAX (16u << 10)
#define PACK_BYTES (64u << 10)
#define AROUND (48 + 64 + 56) // a chunk that is alone in its pack (core/FORMAT.md): some texts become less than that
#define MORE_SECONDS_MAX 240  // until each thing has happened, where others have the processors

enum state { FREE, BUSY, LIVE, TRASHED };

struct slot {
	enum state state;
	char name[24];
	unsigned texts[FILES];
	struct ckpt_step *step; // a reference, while it is not FREE
};

static struct ckpt_store *s;
static struct slot slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the slots
static uint8_t texts[TEXTS][TEXT_MAX];
static uint32_t text_len[TEXTS];
static atomic_bool stop;
static atomic_uint made, given_up, rebuilt, cooled, warmed, expired, had_back, collected, repacked, read_whole,
	read_late, deduplicated;

// --- Chance -------------------------------------------------------------------------------------------------------------

static _Thread_local uint64_t chance;

static unsigned pick(unsigned below)
{
	chance ^= chance << 13;
	chance ^= chance >> 7;
	chance ^= chance << 17;
	return (unsigned)(chance >> 20) % below;
}

// Half of them can be made smaller.
static void make_texts(void)
{
	for (unsigned i = 0; i < TEXTS; i++) {
		text_len[i] = 1000 + pick(TEXT_MAX - 1000);
		for (unsigned k = 0; k < text_len[i]; k++)
			texts[i][k] = (uint8_t)(i % 2 ? pick(256) : i + k % 17);
	}
}

// A slot in this state, which is BUSY from now on; NULL: there is none.
static struct slot *take(enum state state)
{
	unsigned from = pick(SLOTS);
	struct slot *found = NULL;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < SLOTS && !found; i++)
		if (slots[(from + i) % SLOTS].state == state)
			found = &slots[(from + i) % SLOTS];
	if (found)
		found->state = BUSY;
	pthread_mutex_unlock(&lock);
	return found;
}

static void give(struct slot *slot, enum state state)
{
	struct ckpt_step *step = NULL;

	pthread_mutex_lock(&lock);
	if (state == FREE)
		step = TAKE_PTR(slot->step);
	slot->state = state;
	pthread_mutex_unlock(&lock);
	ckpt_step_unref(step);
}

// --- Writers ------------------------------------------------------------------------------------------------------------

static void write_one(struct slot *slot)
{
	static atomic_uint number;
	struct ckpt_step *step;

	snprintf(slot->name, sizeof(slot->name), "step_%u", atomic_fetch_add(&number, 1));
	step = ckpt_staged_begin(s, slot->name);
	for (unsigned i = 0; i < FILES; i++) {
		CLEANUP_FD int fd = ckpt_staged_put(step, (const char[]){(char)('0' + i), '\0'}, "");
		unsigned text = slot->texts[i] = pick(pick(2) ? TEXTS : HOT_TEXTS);

		ck_assert_int_eq(ckpt_sys.pwrite(fd, texts[text], text_len[text], 0), text_len[text]);
	}
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	pthread_mutex_lock(&lock);
	slot->step = step;
	pthread_mutex_unlock(&lock);
	made++;
}

static void *writer(void *arg)
{
	chance = (uint64_t)(uintptr_t)arg;
	while (!stop) {
		struct slot *slot = take(FREE);

		if (slot) {
			write_one(slot);
			give(slot, LIVE);
		} else {
			ckpt_sys.sleep_ns(1000000);
		}
	}
	return NULL;
}

// --- Deleting, cooling, collecting --------------------------------------------------------------------------------------

static void *deleter(void *arg)
{
	chance = (uint64_t)(uintptr_t)arg;
	while (!stop) {
		struct slot *slot = take(pick(2) ? LIVE : TRASHED);

		ckpt_sys.sleep_ns(1000000);
		if (!slot)
			continue;
		if (ckpt_step_state(slot->step) == CKPT_STEP_COMMITTED) {
			ck_ok(ckpt_delete(slot->step));
			give(slot, TRASHED);
		} else if (pick(3)) {
			ck_ok(ckpt_expire(slot->step));
			give(slot, FREE);
			expired++;
		} else {
			ck_ok(ckpt_undelete(slot->step));
			give(slot, LIVE);
			had_back++;
		}
	}
	return NULL;
}

static bool go_on(void *arg, uint64_t bytes)
{
	unsigned *chunks = arg;

	return !bytes || --*chunks;
}

// Now and then it ends before its end.
static void cool_one(struct slot *slot)
{
	unsigned chunks = pick(8) ? UINT_MAX : 1 + pick(FILES);
	const struct ckpt_tier_how how = {.pack_bytes = PACK_BYTES >> 2 * pick(3), .go_on = go_on, .arg = &chunks};
	struct ckpt_tier_done done;
	int rc = ckpt_cool(slot->step, &how, &done);

	ck_assert_msg(!rc || (rc == -EINTR && !chunks), "cooling: %s", strerror(-rc));
	given_up += rc == -EINTR;
	cooled += done.files > 0;
	deduplicated += done.deduplicated_bytes > 0;
}

static void *cooler(void *arg)
{
	const struct ckpt_tier_how how = {.pack_bytes = PACK_BYTES};

	chance = (uint64_t)(uintptr_t)arg;
	while (!stop) {
		struct slot *slot = take(LIVE);
		struct ckpt_tier_done done;

		if (!slot) {
			ckpt_sys.sleep_ns(1000000);
			continue;
		}
		if (pick(8)) {
			cool_one(slot);
		} else {
			ck_ok(ckpt_warm(slot->step, &how, &done));
			warmed += done.files > 0;
		}
		give(slot, LIVE);
	}
	return NULL;
}

static void collect(struct ckpt_gc_done *ret_done)
{
	const struct ckpt_gc_how all = {.force = true};

	ck_ok(ckpt_gc(s, &all, ret_done));
	ck_assert_uint_eq(ret_done->kept[CKPT_GC_FAILED].objects, 0);
	ck_assert_uint_eq(ret_done->kept[CKPT_GC_DAMAGED].objects, 0);
	collected += (unsigned)ret_done->deleted_objects;
	repacked += (unsigned)ret_done->repacked_objects;
}

static void *collector(void *arg)
{
	struct ckpt_gc_done done;

	(void)arg;
	while (!stop) {
		ckpt_sys.sleep_ns(100000000);
		collect(&done);
	}
	return NULL;
}

static void *rebuilder(void *arg)
{
	(void)arg;
	while (!stop) {
		ckpt_sys.sleep_ns(300000000);
		ck_ok(ckpt_dedupe_rebuild(s, NULL, NULL));
		rebuilt++;
	}
	return NULL;
}

// --- Readers ------------------------------------------------------------------------------------------------------------

static void check_bytes(struct ckpt_file *f, unsigned text, const char *when)
{
	CLEANUP_FREE uint8_t *there = malloc(TEXT_MAX);
	uint32_t at = 0;

	ck_assert_uint_eq(ckpt_file_bytes(f), text_len[text]);
	while (at < text_len[text]) {
		ssize_t n = ckpt_file_read(f, there + at, TEXT_MAX - at, at);

		ck_assert_msg(n > 0, "%s: %s", when, strerror((int)-n));
		at += (uint32_t)n;
	}
	ck_assert_msg(!memcmp(there, texts[text], text_len[text]), "%s: other bytes", when);
}

// NULL: it has expired meanwhile. In the list and not gone, it is there as long as it is open.
static struct ckpt_file *open_file(struct ckpt_step *step, unsigned i)
{
	struct ckpt_manifest *m;
	struct ckpt_file *f;
	uint32_t index;
	int rc = ckpt_step_manifest(step, &m);

	if (!rc) {
		ck_ok(ckpt_manifest_lookup(m, (const char[]){(char)('0' + i), '\0'}, &index));
		rc = ckpt_file_open(step, m, index, &f);
		ckpt_manifest_unref(m);
	}
	if (ckpt_step_state(step) == CKPT_STEP_GONE) {
		if (!rc)
			ckpt_file_close(f);
		return NULL;
	}
	ck_ok(rc);
	return f;
}

static void read_one(struct ckpt_step *step, const unsigned *its_texts)
{
	struct ckpt_file *held = NULL;
	unsigned hold = pick(FILES);

	for (unsigned i = 0; i < FILES; i++) {
		struct ckpt_file *f = open_file(step, i);

		if (!f)
			break;
		check_bytes(f, its_texts[i], "at once");
		if (i == hold)
			held = f;
		else
			ckpt_file_close(f);
		read_whole++;
	}
	if (!held)
		return;
	ckpt_sys.sleep_ns((int64_t)pick(400) * 1000000);
	check_bytes(held, its_texts[hold], "held open");
	read_late += ckpt_step_state(step) == CKPT_STEP_GONE;
	ckpt_file_close(held);
}

static void *reader(void *arg)
{
	chance = (uint64_t)(uintptr_t)arg;
	while (!stop) {
		struct slot *slot = &slots[pick(SLOTS)];
		struct ckpt_step *step = NULL;
		unsigned its_texts[FILES];

		pthread_mutex_lock(&lock);
		if (slot->state != FREE && slot->step) {
			step = ckpt_step_ref(slot->step);
			memcpy(its_texts, slot->texts, sizeof(its_texts));
		}
		pthread_mutex_unlock(&lock);
		if (step)
			read_one(step, its_texts);
		ckpt_step_unref(step);
		ckpt_sys.sleep_ns(1000000);
	}
	return NULL;
}

// --- The end ------------------------------------------------------------------------------------------------------------

static void check_all(void)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct ckpt_step *step;

		if (slots[i].state == FREE)
			continue;
		step = ckpt_step_of_session(s, slots[i].step->session);
		ck_assert_msg(step, "%s is gone", slots[i].name);
		for (unsigned k = 0; k < FILES; k++) {
			struct ckpt_file *f = open_file(step, k);

			ck_assert_ptr_nonnull(f);
			check_bytes(f, slots[i].texts[k], "in the end");
			ckpt_file_close(f);
		}
		ckpt_step_unref(step);
	}
}

struct need {
	struct {
		uint8_t pack[CKPT_SHA256_LEN];
		uint64_t offset;
	} at[SLOTS * FILES];
	size_t count;
	uint64_t bytes;
};

static void add_need(struct need *need, const struct ckpt_manifest *m, uint32_t row)
{
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;

	ckpt_manifest_chunk(m, row, &chunk);
	if (!chunk.pack)
		return;
	ckpt_manifest_pack(m, chunk.pack - 1, &pack);
	for (size_t i = 0; i < need->count; i++)
		if (need->at[i].offset == chunk.offset && !memcmp(need->at[i].pack, pack.id, sizeof(pack.id)))
			return;
	memcpy(need->at[need->count].pack, pack.id, sizeof(pack.id));
	need->at[need->count++].offset = chunk.offset;
	need->bytes += chunk.how.bytes;
}

// The bytes of packs that some step reads, and what stands around them at most.
static uint64_t needed_bytes(uint64_t *ret_around)
{
	static struct need need;

	need = (struct need){0};
	for (unsigned i = 0; i < SLOTS; i++) {
		struct ckpt_manifest *m;

		if (slots[i].state == FREE)
			continue;
		ck_ok(ckpt_step_manifest(slots[i].step, &m));
		for (uint32_t entry = 0; entry < ckpt_manifest_count(m); entry++) {
			struct ckpt_seal seal;

			for (uint32_t k = 0; ckpt_manifest_seal(m, entry, &seal) && k < seal.count; k++)
				add_need(&need, m, seal.first + k);
		}
		ckpt_manifest_unref(m);
	}
	*ret_around = need.count * AROUND;
	return need.bytes;
}

static void reopen(const char *dir, bool without_index)
{
	char path[PATH_MAX], sessions[SLOTS][37];

	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i].state != FREE) {
			memcpy(sessions[i], slots[i].step->session, sizeof(sessions[i]));
			ckpt_step_unref(slots[i].step);
		}
	ckpt_store_close(s);
	snprintf(path, sizeof(path), "%.4000s/index", dir);
	if (without_index)
		ckpt_temp_empty(path, true);
	s = ckpt_save_open(dir);
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i].state != FREE)
			slots[i].step = ckpt_step_of_session(s, sessions[i]);
}

// A pack of which something in the trash needs a part stays as it is until that has expired.
static void expire_trash(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i].state == TRASHED) {
			ck_ok(ckpt_expire(slots[i].step));
			give(&slots[i], FREE);
		}
}

static void check_figures(void)
{
	struct ckpt_gc_done done;
	uint64_t needed, around, garbage;

	expire_trash();
	collect(&done);
	collect(&done);
	ck_assert(!done.garbage_bytes && !done.deleted_objects && !done.repacked_objects);
	needed = needed_bytes(&around);
	ck_ok(ckpt_pack_use_garbage(s, &garbage));
	printf("%u steps, %u cooled (%u shared, %u given up), %u warmed, %u expired, %u had back; %u packs collected, "
	       "%u of them "
	       "repacked; %u files read, %u of them after their step was gone; %.2f MiB needed, %.2f MiB not, %.2f MiB "
	       "stored\n",
	       made, cooled, deduplicated, given_up, warmed, expired, had_back, collected, repacked, read_whole,
	       read_late, (double)needed / 1048576, (double)garbage / 1048576, (double)done.live_bytes / 1048576);
	fflush(stdout);
	ck_assert_uint_le(garbage, needed * 11 / 10);
	ck_assert_uint_le(done.live_bytes, needed + needed * 11 / 10 + around);
}

static bool has_done_all(void)
{
	return made > SLOTS && cooled && deduplicated && warmed && expired && had_back && collected && repacked &&
	       given_up && rebuilt && read_whole;
}

static void check_end(const char *dir)
{
	struct ckpt_gc_done done;

	check_all();
	collect(&done);
	check_all();
	ck_assert(has_done_all());
	collect(&done);
	for (int without_index = 0; without_index < 2; without_index++) {
		reopen(dir, without_index);
		check_all();
		collect(&done);
		ck_assert(!done.deleted_objects && !done.repacked_objects);
	}
	check_figures();
	check_all();
	for (unsigned i = 0; i < SLOTS; i++)
		ckpt_step_unref(slots[i].step);
}

START_TEST(nothing_that_is_needed_is_lost)
{
	static void *(*const threads[])(void *) = {writer, writer,    writer,    writer,    deleter, deleter, cooler,
						   cooler, collector, collector, rebuilder, reader,  reader};
	unsigned seconds = ckpt_suite_setting("CKPT_STRESS_SECONDS", ckpt_suite_full() ? 120 : 20);
	unsigned seed = ckpt_suite_setting("CKPT_STRESS_SEED", 1);
	pthread_t ids[ARRAY_LEN(threads)];
	char dir[PATH_MAX];

	chance = seed + 1000;
	make_texts();
	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		ck_assert(!pthread_create(&ids[i], NULL, threads[i], (void *)(uintptr_t)(seed * 100 + i + 1)));
	ckpt_sys.sleep_ns(seconds * INT64_C(1000000000));
	for (unsigned more = 0; more < MORE_SECONDS_MAX && !has_done_all(); more++)
		ckpt_sys.sleep_ns(INT64_C(1000000000));
	stop = true;
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(ids[i], NULL);
	check_end(dir);
	ckpt_store_close(s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gc stress");
	TCase *tcase = tcase_create("stress");

	tcase_set_timeout(tcase, 600);
	tcase_add_test(tcase, nothing_that_is_needed_is_lost);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

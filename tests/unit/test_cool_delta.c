// Steps that are stored as what differs from an earlier one: smaller, never more than one other chunk away, and read back whatever
// becomes of the earlier step.
#include "tests/support/fixture_gc.h"
#include "tests/support/packed.h"
#include "tests/support/weights.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <stdio.h>

#define ELEMENTS 100000 // one chunk each
#define WEIGHTS "model.safetensors"
#define MASTER "optimizer.pt"
#define NOISE "rng.npy" // another one in each step
#define STEPS 6

static const struct ckpt_tier_how plain = {.pack_bytes = 1}; // each chunk in a pack of its own
static struct ckpt_weights w[STEPS];                         // by the step's number
static struct ckpt_step *steps[STEPS];
static struct ckpt_tier_done cooled;

static struct ckpt_step *save(unsigned number)
{
	struct ckpt_weights noise = ckpt_weights_make(ELEMENTS, 100 + number);
	char name[16];
	struct ckpt_step *made;

	snprintf(name, sizeof(name), "%u", number);
	made = ckpt_staged_begin(s, name);
	ckpt_weights_put(made, WEIGHTS, CKPT_WEIGHTS_SAFETENSORS, w[number].bf16, ELEMENTS, 2);
	ckpt_weights_put(made, MASTER, CKPT_WEIGHTS_TORCH, w[number].fp32, ELEMENTS, 4);
	ckpt_weights_put(made, NOISE, CKPT_WEIGHTS_NPY, noise.fp32, ELEMENTS, 4);
	ckpt_weights_done(&noise);
	ck_ok(ckpt_commit(made, &ckpt_staged_plain));
	ck_ok(ckpt_seal(made, &(struct ckpt_seal_how){0}));
	return made;
}

static void setup(void)
{
	ckpt_fixture_gc_open();
	s->settings.delta = 2;
	for (unsigned i = 0; i < STEPS; i++) {
		w[i] = ckpt_weights_make(ELEMENTS, 1);
		for (unsigned k = 0; k < i; k++)
			ckpt_weights_train(&w[i]);
		steps[i] = save(i);
	}
}

static void teardown(void)
{
	for (unsigned i = 0; i < STEPS; i++) {
		ckpt_step_unref(TAKE_PTR(steps[i]));
		ckpt_weights_done(&w[i]);
	}
	ckpt_fixture_gc_close();
}

static void reopen(void)
{
	for (unsigned i = 0; i < STEPS; i++)
		ckpt_step_unref(TAKE_PTR(steps[i]));
	ckpt_fixture_gc_reopen();
	s->settings.delta = 2;
	for (unsigned i = 0; i < STEPS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		steps[i] = ckpt_step_find(s, "", name);
	}
}

static void cool(unsigned number)
{
	ck_ok(ckpt_cool(steps[number], &plain, &cooled));
}

static int read_both(unsigned number)
{
	int rc = ckpt_weights_read(steps[number], WEIGHTS, CKPT_WEIGHTS_SAFETENSORS, w[number].bf16, ELEMENTS, 2);

	return rc ? rc : ckpt_weights_read(steps[number], MASTER, CKPT_WEIGHTS_TORCH, w[number].fp32, ELEMENTS, 4);
}

// The largest chunk of a file, and what it is decoded beside.
static struct ckpt_chunk largest(unsigned number, const char *path, struct ckpt_chunk *ret_base)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(steps[number]);
	struct ckpt_chunk found = {0};
	struct ckpt_seal seal;
	uint32_t index;

	*ret_base = (struct ckpt_chunk){0};
	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_assert(ckpt_manifest_seal(m, index, &seal));
	for (uint32_t i = 0; i < seal.count; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		if (chunk.bytes > found.bytes)
			found = chunk;
	}
	if (found.base_count)
		ckpt_manifest_base(m, found.base - 1, ret_base);
	ckpt_manifest_unref(m);
	return found;
}

static struct ckpt_chunk master(unsigned number)
{
	struct ckpt_chunk unused;

	return largest(number, MASTER, &unused);
}

// Whether the step's master is a difference to that of this one.
static bool differs_from(unsigned number, unsigned earlier)
{
	struct ckpt_chunk base, chunk = largest(number, MASTER, &base), was = master(earlier);

	if (chunk.how.codec != CKPT_CODEC_DELTA)
		return false;
	ck_assert_uint_eq(chunk.base_count, 1);
	ck_assert_uint_eq(base.base_count, 0);
	return !memcmp(base.id, was.id, sizeof(was.id));
}

static bool differs(unsigned number)
{
	return master(number).how.codec == CKPT_CODEC_DELTA;
}

static struct ckpt_pack pack_of(unsigned number, const struct ckpt_chunk *chunk)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(steps[number]);
	struct ckpt_pack pack;

	ckpt_manifest_pack(m, chunk->pack - 1, &pack);
	ckpt_manifest_unref(m);
	return pack;
}

// --- What is stored -----------------------------------------------------------------------------------------------------

START_TEST(a_step_is_stored_as_what_differs_from_an_earlier_one)
{
	uint64_t first, second;

	cool(0);
	first = cooled.stored_bytes;
	ck_assert(!differs(0));
	cool(1);
	second = cooled.stored_bytes;
	ck_assert(differs_from(1, 0));
	ck_assert_uint_lt(second, first * 3 / 4);
	reopen();
	ck_ok(read_both(0));
	ck_ok(read_both(1));
}
END_TEST

START_TEST(weights_are_beside_a_master_that_is_a_difference_itself)
{
	struct ckpt_chunk base, weights;

	cool(0);
	cool(1);
	weights = largest(1, WEIGHTS, &base);
	ck_assert_int_eq(weights.how.codec, CKPT_CODEC_ROUND);
	ck_assert_int_eq(base.how.codec, CKPT_CODEC_DELTA);
	ck_assert_uint_lt(weights.how.bytes, weights.bytes / 100);
}
END_TEST

// With 2, two differences follow one that is none.
START_TEST(differences_are_to_one_step_and_not_to_each_other)
{
	for (unsigned i = 0; i < STEPS; i++)
		cool(i);
	for (unsigned i = 0; i < STEPS; i += 3) {
		ck_assert(!differs(i));
		ck_assert(differs_from(i + 1, i));
		ck_assert(differs_from(i + 2, i));
	}
	reopen();
	for (unsigned i = 0; i < STEPS; i++)
		ck_ok(read_both(i));
}
END_TEST

START_TEST(a_later_step_is_no_base)
{
	cool(3);
	cool(1);
	ck_assert(!differs(1));
}
END_TEST

START_TEST(with_zero_nothing_is_a_difference)
{
	s->settings.delta = 0;
	cool(0);
	cool(1);
	ck_assert(!differs(1));
}
END_TEST

// Nor one of another folder, or another shape.
START_TEST(what_has_other_arrays_is_no_base)
{
	struct ckpt_weights wide = ckpt_weights_make(ELEMENTS + 1, 1);
	struct ckpt_step *made = ckpt_staged_begin(s, "9");
	struct ckpt_chunk base;

	cool(STEPS - 1);
	ckpt_weights_put(made, MASTER, CKPT_WEIGHTS_TORCH, wide.fp32, wide.elements, 4);
	ck_ok(ckpt_commit(made, &ckpt_staged_plain));
	ck_ok(ckpt_seal(made, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(made, &plain, &cooled));
	ck_ok(ckpt_weights_read(made, MASTER, CKPT_WEIGHTS_TORCH, wide.fp32, wide.elements, 4));
	ckpt_step_unref(steps[0]);
	steps[0] = made;
	ck_assert_int_ne(largest(0, MASTER, &base).how.codec, CKPT_CODEC_DELTA);
	ckpt_weights_done(&wide);
}
END_TEST

static bool no_more_bytes(void *left, uint64_t bytes __attribute__((unused)))
{
	return no_more(left);
}

// Chunks that were put before the end are found, those that are differences, too.
START_TEST(a_cooling_that_was_ended_goes_on_where_it_was)
{
	struct ckpt_tier_how how = plain;
	uint64_t stored = 0;
	int left, tries;

	cool(0);
	how.go_on = no_more_bytes;
	how.arg = &left;
	for (tries = 0; tries < 100; tries++) {
		int rc;

		left = tries;
		rc = ckpt_cool(steps[1], &how, &cooled);
		stored += cooled.stored_bytes;
		if (!rc)
			break;
		ck_error(rc, EINTR);
	}
	ck_assert(tries > 2 && differs_from(1, 0));
	gc_all();
	ck_assert_uint_eq(done.deleted_objects, 0);
	ck_ok(read_both(1));
	cool(2);
	ck_assert_uint_lt(stored, cooled.stored_bytes + cooled.stored_bytes / 10);
}
END_TEST

// An array that stays as it is from the second step on.
START_TEST(what_stays_the_same_is_a_difference_once)
{
	uint64_t master_bytes;

	for (unsigned i = 2; i < STEPS; i++) {
		ckpt_weights_done(&w[i]);
		w[i] = ckpt_weights_make(ELEMENTS, 1);
		ckpt_weights_train(&w[i]);
		ck_ok(ckpt_delete(steps[i]));
		ck_ok(ckpt_expire(steps[i]));
		ckpt_step_unref(steps[i]);
		steps[i] = save(i);
	}
	cool(0);
	cool(1);
	master_bytes = master(1).how.bytes;
	cool(2);
	ck_assert(differs_from(2, 0));
	ck_assert_uint_ge(cooled.deduplicated_bytes, 4 * ELEMENTS);
	ck_assert_uint_eq(master(2).how.bytes, master_bytes);
	ck_ok(read_both(2));
}
END_TEST

// --- What becomes of the earlier one ------------------------------------------------------------------------------------

START_TEST(what_a_difference_needs_outlives_its_step)
{
	cool(0);
	cool(1);
	expire(steps[0]);
	gc_all();
	ck_assert_uint_gt(done.deleted_objects, 0); // its weights are needed by nobody
	ckpt_step_unref(steps[0]);
	steps[0] = NULL;
	reopen();
	ck_ok(read_both(1));
	expire(steps[1]);
	gc_all();
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
}
END_TEST

START_TEST(a_damaged_base_is_an_error_and_never_wrong_bytes)
{
	struct ckpt_chunk base;
	struct ckpt_pack pack;

	cool(0);
	cool(1);
	base = master(0);
	pack = pack_of(0, &base);
	ckpt_packed_spoil(s, &pack, base.offset + base.how.bytes / 2);
	reopen();
	ck_error(read_both(1), EIO);
	ckpt_packed_spoil(s, &pack, base.offset + base.how.bytes / 2);
	ck_ok(read_both(1));
}
END_TEST

START_TEST(beside_a_damaged_base_it_is_stored_whole)
{
	struct ckpt_chunk base;
	struct ckpt_pack pack;

	cool(0);
	base = master(0);
	pack = pack_of(0, &base);
	ckpt_packed_spoil(s, &pack, base.offset + base.how.bytes / 2);
	reopen();
	cool(1);
	ck_assert(!differs(1));
	ck_ok(read_both(1));
}
END_TEST

START_TEST(what_was_warmed_is_cooled_again_without_a_new_pack)
{
	size_t packs;

	cool(0);
	cool(1);
	packs = ckpt_packed_count(s);
	ck_ok(ckpt_warm(steps[1], &plain, &cooled));
	ck_ok(read_both(1));
	cool(1);
	ck_assert_uint_eq(ckpt_packed_count(s), packs);
	ck_assert(differs_from(1, 0));
	reopen();
	ck_ok(read_both(1));
}
END_TEST

// Weights, their master and noise are in one pack; the noise goes, and with it half of the pack.
START_TEST(what_is_repacked_is_still_a_difference)
{
	const struct ckpt_tier_how one = {.pack_bytes = 512 << 20};

	s->settings.trash_ns = 0; // older versions keep nothing
	ck_ok(ckpt_cool(steps[0], &one, &cooled));
	ck_ok(ckpt_cool(steps[1], &one, &cooled));
	ck_assert_uint_eq(ckpt_packed_count(s), 2);
	for (unsigned i = 0; i < 2; i++) {
		ck_ok(ckpt_amend_remove(steps[i], NOISE));
		ck_ok(ckpt_amend_remove(steps[i], MASTER));
	}
	expire(steps[0]);
	gc_all();
	ck_assert_uint_eq(done.repacked_objects, 2);
	ck_assert_uint_eq(done.deleted_objects, 2);
	ckpt_step_unref(TAKE_PTR(steps[0]));
	reopen();
	ck_ok(ckpt_weights_read(steps[1], WEIGHTS, CKPT_WEIGHTS_SAFETENSORS, w[1].bf16, ELEMENTS, 2));
}
END_TEST

// The same bytes in both are there once.
START_TEST(what_did_not_change_is_no_difference)
{
	struct ckpt_step *made;
	size_t packs;

	cool(0);
	packs = ckpt_packed_count(s);
	ckpt_weights_done(&w[1]);
	w[1] = ckpt_weights_make(ELEMENTS, 1);
	ck_ok(ckpt_delete(steps[1]));
	made = ckpt_staged_begin(s, "7");
	ckpt_weights_put(made, MASTER, CKPT_WEIGHTS_TORCH, w[1].fp32, ELEMENTS, 4);
	ck_ok(ckpt_commit(made, &ckpt_staged_plain));
	ck_ok(ckpt_seal(made, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(made, &plain, &cooled));
	ck_assert_uint_eq(ckpt_packed_count(s), packs);
	ckpt_step_unref(made);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cool delta");
	TCase *tcase = tcase_create("delta");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_step_is_stored_as_what_differs_from_an_earlier_one);
	tcase_add_test(tcase, weights_are_beside_a_master_that_is_a_difference_itself);
	tcase_add_test(tcase, differences_are_to_one_step_and_not_to_each_other);
	tcase_add_test(tcase, a_later_step_is_no_base);
	tcase_add_test(tcase, with_zero_nothing_is_a_difference);
	tcase_add_test(tcase, what_has_other_arrays_is_no_base);
	tcase_add_test(tcase, what_a_difference_needs_outlives_its_step);
	tcase_add_test(tcase, a_damaged_base_is_an_error_and_never_wrong_bytes);
	tcase_add_test(tcase, beside_a_damaged_base_it_is_stored_whole);
	tcase_add_test(tcase, what_was_warmed_is_cooled_again_without_a_new_pack);
	tcase_add_test(tcase, what_did_not_change_is_no_difference);
	tcase_add_test(tcase, a_cooling_that_was_ended_goes_on_where_it_was);
	tcase_add_test(tcase, what_stays_the_same_is_a_difference_once);
	tcase_add_test(tcase, what_is_repacked_is_still_a_difference);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

// Weights that are stored beside their master: smaller, read back whatever becomes of the master's file, and without it where it
// cannot be had.
#include "core/save/reopen.h"
#include "tests/support/fixture.h"
#include "tests/support/packed.h"
#include "tests/support/weights.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/gc/gc.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/step/reopened.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <stdio.h>

#define ELEMENTS (CKPT_CHUNK_BYTES / 2 + CKPT_CHUNK_BYTES / 8) // two chunks of weights, three of the master
#define BF16_BYTES (2 * (uint64_t)ELEMENTS)
#define WEIGHTS "model.safetensors"
#define MASTER "optimizer.pt"

static const struct ckpt_tier_how plain = {.pack_bytes = 1}; // each chunk in a pack of its own
static struct ckpt_weights w;
static struct ckpt_step *step;
static struct ckpt_tier_done done;

static struct ckpt_step *sealed(const char *name, bool weights, bool master)
{
	struct ckpt_step *made = ckpt_staged_begin(s, name);

	if (weights)
		ckpt_weights_put(made, WEIGHTS, CKPT_WEIGHTS_SAFETENSORS, w.bf16, ELEMENTS, 2);
	if (master)
		ckpt_weights_put(made, MASTER, CKPT_WEIGHTS_TORCH, w.fp32, ELEMENTS, 4);
	ck_ok(ckpt_commit(made, &ckpt_staged_plain));
	ck_ok(ckpt_seal(made, &(struct ckpt_seal_how){0}));
	return made;
}

static void setup(void)
{
	ckpt_fixture_open();
	w = ckpt_weights_make(ELEMENTS, 1);
	step = sealed("1000", true, true);
}

static void teardown(void)
{
	ckpt_step_unref(step);
	ckpt_weights_done(&w);
	ckpt_fixture_close();
}

static int read_weights(struct ckpt_step *of)
{
	return ckpt_weights_read(of, WEIGHTS, CKPT_WEIGHTS_SAFETENSORS, w.bf16, ELEMENTS, 2);
}

static int read_master(struct ckpt_step *of)
{
	return ckpt_weights_read(of, MASTER, CKPT_WEIGHTS_TORCH, w.fp32, ELEMENTS, 4);
}

static void check_both(struct ckpt_step *of)
{
	ck_ok(read_weights(of));
	ck_ok(read_master(of));
}

static void drop_cache(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "1000");
	ck_assert_ptr_nonnull(step);
}

// Of the weights: how many chunks are beside the master, and what all of them are stored in.
static unsigned based(struct ckpt_step *of, uint64_t *ret_bytes)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(of);
	struct ckpt_seal seal;
	uint32_t index;
	unsigned count = 0;

	*ret_bytes = 0;
	ck_ok(ckpt_manifest_lookup(m, WEIGHTS, &index));
	ck_assert(ckpt_manifest_seal(m, index, &seal));
	for (uint32_t i = 0; i < seal.count; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		count += chunk.base_count > 0;
		*ret_bytes += chunk.how.bytes;
	}
	ckpt_manifest_unref(m);
	return count;
}

static void check_based(struct ckpt_step *of, unsigned count)
{
	uint64_t bytes;

	ck_assert_uint_eq(based(of, &bytes), count);
	ck_assert(count ? bytes < BF16_BYTES / 100 : bytes > BF16_BYTES / 3);
}

static void collect(void)
{
	const struct ckpt_gc_how how = {.force = true};
	struct ckpt_gc_done collected;

	s->settings.trash_ns = 0; // older versions keep nothing
	ck_ok(ckpt_gc(s, &how, &collected));
}

// In the middle of the first chunk of a file behind its header, in its pack.
static void damage(struct ckpt_step *of, const char *path)
{
	struct ckpt_manifest *m = ckpt_staged_manifest(of);
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
	struct ckpt_seal seal;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ck_assert(ckpt_manifest_seal(m, index, &seal));
	ckpt_manifest_chunk(m, seal.first + 1, &chunk);
	ckpt_manifest_pack(m, chunk.pack - 1, &pack);
	ckpt_packed_spoil(s, &pack, chunk.offset + chunk.how.bytes / 2);
	ckpt_manifest_unref(m);
}

// --- Cooling ------------------------------------------------------------------------------------------------------------

START_TEST(weights_are_nothing_beside_their_master)
{
	uint32_t version;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(step->version->is.packed && done.files == 2 && !done.deduplicated_bytes);
	check_based(step, 2);
	check_both(step);
	drop_cache();
	check_both(step);
	check_based(step, 2);
	version = step->version->is.version;
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(step->version->is.version == version && !done.stored_bytes);
}
END_TEST

// A hint that is none: of the second chunk nothing is as it was, and what does not get smaller is coded alone.
START_TEST(what_is_no_master_after_all_costs_nothing)
{
	struct ckpt_weights other = ckpt_weights_make(ELEMENTS, 2);
	struct ckpt_step *beside, *alone;
	struct ckpt_tier_done by_itself;
	uint64_t bytes, alone_bytes;

	memcpy(w.bf16 + CKPT_CHUNK_BYTES, other.bf16 + CKPT_CHUNK_BYTES, BF16_BYTES - CKPT_CHUNK_BYTES);
	alone = sealed("2000", true, false);
	ck_ok(ckpt_cool(alone, &plain, &by_itself));
	ck_assert_uint_eq(based(alone, &alone_bytes), 0);
	ckpt_step_unref(alone);
	ckpt_step_unref(step);
	ckpt_fixture_close();
	ckpt_fixture_open();
	beside = sealed("1000", true, true);
	ck_ok(ckpt_cool(beside, &plain, &done));
	ck_assert_uint_eq(based(beside, &bytes), 1);
	ck_assert_uint_lt(bytes, alone_bytes);
	check_both(beside);
	step = beside;
	ckpt_weights_done(&other);
}
END_TEST

// Where a file does not say what it holds, bf16 weights may look like a master whose weights are there as well.
static const char *const chains[][3] = {{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c"}};

START_TEST(what_is_weights_and_master_at_once_reads_back_right)
{
	enum { COUNT = 40000 };
	struct ckpt_weights top = ckpt_weights_make(2 * (size_t)COUNT, 2), below = {COUNT, malloc(2 * COUNT), top.bf16};
	struct ckpt_step *chain = ckpt_staged_begin(s, "chain");
	const char *const *names = chains[_i];

	ckpt_weights_round(&below, 0, COUNT);
	ckpt_weights_put(chain, names[0], CKPT_WEIGHTS_TORCH, top.fp32, top.elements, 4);
	ckpt_weights_put(chain, names[1], CKPT_WEIGHTS_TORCH, top.bf16, top.elements, 2);
	ckpt_weights_put(chain, names[2], CKPT_WEIGHTS_TORCH, below.bf16, COUNT, 2);
	ck_ok(ckpt_commit(chain, &ckpt_staged_plain));
	ck_ok(ckpt_seal(chain, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(chain, &plain, &done));
	ck_ok(ckpt_weights_read(chain, names[0], CKPT_WEIGHTS_TORCH, top.fp32, top.elements, 4));
	ck_ok(ckpt_weights_read(chain, names[1], CKPT_WEIGHTS_TORCH, top.bf16, top.elements, 2));
	ck_ok(ckpt_weights_read(chain, names[2], CKPT_WEIGHTS_TORCH, below.bf16, COUNT, 2));
	ckpt_step_unref(chain);
	free(below.bf16);
	ckpt_weights_done(&top);
}
END_TEST

START_TEST(weights_without_their_master_are_stored_alone)
{
	struct ckpt_step *alone = sealed("2000", true, false);

	ck_ok(ckpt_cool(alone, &plain, &done));
	check_based(alone, 0);
	ck_ok(read_weights(alone));
	ckpt_step_unref(alone);
}
END_TEST

START_TEST(weights_of_a_master_that_is_damaged_are_stored_alone)
{
	char raw[PATH_MAX];

	snprintf(raw, sizeof(raw), "%s/" MASTER, step->session);
	{
		CLEANUP_FD int fd = openat(s->sessions_fd, raw, O_RDWR);

		ck_assert_int_eq(pwrite(fd, "!", 1, (off_t)ckpt_weights_at(CKPT_WEIGHTS_TORCH)), 1);
	}
	ck_error(ckpt_cool(step, &plain, &done), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, MASTER " cannot be read, or"), 1);
	ck_ok(read_weights(step));
	{
		struct ckpt_manifest *m = ckpt_staged_manifest(step);
		struct ckpt_entry e;
		uint32_t index;

		ck_ok(ckpt_manifest_lookup(m, MASTER, &index));
		ckpt_manifest_entry(m, index, &e);
		ck_assert_int_eq(e.content, CKPT_CONTENT_RAW);
		ckpt_manifest_unref(m);
	}
}
END_TEST

// --- The master goes ----------------------------------------------------------------------------------------------------

START_TEST(a_master_that_is_removed_is_kept_for_the_weights)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_amend_remove(step, MASTER));
	collect();
	drop_cache();
	check_based(step, 2);
	ck_ok(read_weights(step));
	ck_assert(!ckpt_staged_has(step, MASTER));
	ck_ok(ckpt_amend_remove(step, WEIGHTS));
	collect();
	ck_assert_uint_eq(ckpt_packed_count(s), 0);
}
END_TEST

START_TEST(damage_of_the_master_is_an_error_of_the_weights)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	damage(step, MASTER);
	drop_cache();
	ck_error(read_weights(step), EIO);
	ck_assert_uint_eq(ckpt_save_errors(s, "a pack that holds " WEIGHTS " is damaged"), 1);
	damage(step, MASTER);
	ck_ok(read_weights(step));
}
END_TEST

// Weights, master and what has gone since are in one pack.
static struct ckpt_step *half_dead(const char *name)
{
	const struct ckpt_tier_how one = {.pack_bytes = 512 << 20};
	struct ckpt_step *made = ckpt_staged_begin(s, name);

	s->settings.trash_ns = 0; // older versions keep nothing
	ckpt_weights_put(made, WEIGHTS, CKPT_WEIGHTS_SAFETENSORS, w.bf16, ELEMENTS, 2);
	ckpt_weights_put(made, MASTER, CKPT_WEIGHTS_TORCH, w.fp32, ELEMENTS, 4);
	for (uint64_t i = 0; i < 2; i++) {
		struct ckpt_weights other = ckpt_weights_make(ELEMENTS, 7 + i);

		ckpt_weights_put(made, i ? "exp_avg" : "exp_avg_sq", CKPT_WEIGHTS_NPY, other.fp32, ELEMENTS, 4);
		ckpt_weights_done(&other);
	}
	ck_ok(ckpt_commit(made, &ckpt_staged_plain));
	ck_ok(ckpt_seal(made, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(made, &one, &done));
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ck_ok(ckpt_amend_remove(made, "exp_avg"));
	ck_ok(ckpt_amend_remove(made, "exp_avg_sq"));
	return made;
}

// The master goes too, or stays.
START_TEST(what_is_repacked_is_still_beside_its_master)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_gc_done collected;
	struct ckpt_step *made = half_dead("3000");

	if (_i)
		ck_ok(ckpt_amend_remove(made, MASTER));
	ck_ok(ckpt_gc(s, &all, &collected));
	ck_assert_uint_eq(collected.repacked_objects, 1);
	ck_assert_uint_gt(collected.repacked_bytes, 3 * BF16_BYTES / 2);
	ckpt_step_unref(made);
	drop_cache();
	made = ckpt_step_find(s, "", "3000");
	ck_assert_ptr_nonnull(made);
	check_based(made, 2);
	ck_ok(read_weights(made));
	if (!_i)
		ck_ok(read_master(made));
	ck_assert_uint_eq(ckpt_packed_count(s), 1);
	ck_ok(ckpt_gc(s, &all, &collected));
	ck_assert(!collected.repacked_objects && !collected.deleted_objects);
	ck_ok(read_weights(made));
	ckpt_step_unref(made);
}
END_TEST

// They stay with it; that they are needed is not why.
START_TEST(a_damaged_master_in_a_half_dead_pack_is_told_as_such)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_gc_done collected;
	struct ckpt_step *made = half_dead("3000");

	damage(made, MASTER);
	ck_ok(ckpt_amend_remove(made, MASTER));
	ck_ok(ckpt_gc(s, &all, &collected));
	ck_assert_uint_eq(collected.repacked_objects, 0);
	ck_assert_uint_eq(collected.kept[CKPT_GC_DAMAGED].objects, 1);
	ckpt_step_unref(made);
}
END_TEST

// --- Tiers --------------------------------------------------------------------------------------------------------------

static const char *const some[] = {"*", WEIGHTS, MASTER};

START_TEST(warmed_weights_are_cooled_without_a_new_pack)
{
	const struct ckpt_tier_how warm = {.only = some[_i]};
	size_t before;

	ck_ok(ckpt_cool(step, &plain, &done));
	before = ckpt_packed_count(s);
	ck_ok(ckpt_warm(step, &warm, &done));
	check_both(step);
	check_based(step, 2);
	collect();
	drop_cache();
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(!done.stored_bytes && done.files == (_i ? 1 : 2));
	ck_assert_uint_eq(ckpt_packed_count(s), before);
	check_based(step, 2);
	drop_cache();
	check_both(step);
}
END_TEST

// The master is gone, and known by what the version says of it alone.
START_TEST(warmed_weights_without_their_master_are_cooled_again)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &plain, &done));
	ck_ok(ckpt_amend_remove(step, MASTER));
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert(!done.stored_bytes && done.files == 1);
	collect();
	drop_cache();
	check_based(step, 2);
	ck_ok(read_weights(step));
}
END_TEST

START_TEST(warmed_weights_of_a_damaged_master_are_packed_anew)
{
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_warm(step, &(struct ckpt_tier_how){.only = WEIGHTS}, &done));
	damage(step, MASTER);
	drop_cache();
	ck_ok(ckpt_cool(step, &plain, &done));
	ck_assert_uint_gt(done.stored_bytes, BF16_BYTES / 3);
	drop_cache();
	ck_ok(read_weights(step));
}
END_TEST

// --- Other steps --------------------------------------------------------------------------------------------------------

// Also for who has to read anew in the packs what is in them.
START_TEST(the_same_in_another_step_is_there_already)
{
	struct ckpt_step *other = sealed("2000", true, true);
	size_t packs;

	ck_ok(ckpt_cool(step, &plain, &done));
	packs = ckpt_packed_count(s);
	if (_i)
		ck_ok(ckpt_index_reset(s->index));
	ck_ok(ckpt_cool(other, &plain, &done));
	ck_assert(!done.stored_bytes && done.files == 2);
	ck_assert_uint_eq(ckpt_packed_count(s), packs);
	check_based(other, 2);
	ck_ok(ckpt_delete(step));
	ckpt_step_unref(step);
	ckpt_step_unref(other);
	ckpt_fixture_reopen();
	step = ckpt_step_find(s, "", "2000");
	ck_assert_ptr_nonnull(step);
	check_both(step);
}
END_TEST

// No pack says beside what: the weights of a step that has no master cannot use those.
START_TEST(weights_alone_do_not_share_what_needs_a_master)
{
	struct ckpt_step *alone = sealed("2000", true, false);

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_cool(alone, &plain, &done));
	ck_assert_uint_gt(done.stored_bytes, BF16_BYTES / 3);
	check_based(alone, 0);
	ck_ok(read_weights(alone));
	ckpt_step_unref(alone);
}
END_TEST

START_TEST(a_step_that_is_reopened_is_right)
{
	struct ckpt_step *now;

	ck_ok(ckpt_cool(step, &plain, &done));
	ck_ok(ckpt_reopen(step, &now));
	ck_ok(ckpt_sys.unlink(now->dirfd, MASTER, 0));
	ck_ok(ckpt_commit(now, &ckpt_staged_plain));
	ckpt_step_unref(step);
	step = now;
	ck_ok(read_weights(step));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_cool(step, &plain, &done));
	collect();
	drop_cache();
	ck_ok(read_weights(step));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cool beside");
	TCase *tcase = tcase_create("beside");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, weights_are_nothing_beside_their_master);
	tcase_add_test(tcase, what_is_no_master_after_all_costs_nothing);
	tcase_add_loop_test(tcase, what_is_weights_and_master_at_once_reads_back_right, 0, ARRAY_LEN(chains));
	tcase_add_test(tcase, weights_without_their_master_are_stored_alone);
	tcase_add_test(tcase, weights_of_a_master_that_is_damaged_are_stored_alone);
	tcase_add_test(tcase, a_master_that_is_removed_is_kept_for_the_weights);
	tcase_add_test(tcase, damage_of_the_master_is_an_error_of_the_weights);
	tcase_add_loop_test(tcase, what_is_repacked_is_still_beside_its_master, 0, 2);
	tcase_add_test(tcase, a_damaged_master_in_a_half_dead_pack_is_told_as_such);
	tcase_add_loop_test(tcase, warmed_weights_are_cooled_without_a_new_pack, 0, (int)ARRAY_LEN(some));
	tcase_add_test(tcase, warmed_weights_without_their_master_are_cooled_again);
	tcase_add_test(tcase, warmed_weights_of_a_damaged_master_are_packed_anew);
	tcase_add_loop_test(tcase, the_same_in_another_step_is_there_already, 0, 2);
	tcase_add_test(tcase, weights_alone_do_not_share_what_needs_a_master);
	tcase_add_test(tcase, a_step_that_is_reopened_is_right);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

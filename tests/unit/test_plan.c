// What is known of a step's chunks before they are encoded: the width of elements, and masters, found by what they hold.
#include "tests/support/fixture.h"
#include "tests/support/weights.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/plan.h"
#include "core/tier/seal.h"

#include <fcntl.h>
#include <stdio.h>

#define FEW 40000 // elements: one chunk of weights, one of the master
#define MANY                                                                                                           \
	(CKPT_CHUNK_BYTES / 2 +                                                                                        \
	 CKPT_CHUNK_BYTES / 8) // two of weights, of which the second is a quarter; three of the master

static struct ckpt_step *step;
static struct ckpt_manifest *m;
static struct ckpt_plan *plan;

static void setup(void)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, "1000");
}

static void teardown(void)
{
	ckpt_plan_free(plan);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

static void make_plan(void)
{
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(ckpt_step_manifest(step, &m));
	ck_ok(ckpt_plan_new(step, m, NULL, NULL, &plan));
}

static uint32_t index_of(const char *path)
{
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	return index;
}

// The chunk of a file that begins at this byte: its row.
static uint32_t row_at(const char *path, uint64_t at)
{
	struct ckpt_seal seal;
	uint64_t end = 0;

	ck_assert(ckpt_manifest_seal(m, index_of(path), &seal));
	for (uint32_t i = 0; i < seal.count; i++) {
		struct ckpt_chunk chunk;

		if (end == at)
			return seal.first + i;
		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		end += chunk.bytes;
	}
	ck_abort_msg("no chunk of %s begins at %llu", path, (unsigned long long)at);
}

static const struct ckpt_planned *planned(const char *path, uint64_t at)
{
	return ckpt_plan_chunk(plan, row_at(path, at));
}

static void check_master(const struct ckpt_planned *p, const char *path, uint64_t at, unsigned count)
{
	ck_assert_uint_eq(p->base_count, count);
	ck_assert_uint_eq(p->base_index, index_of(path));
	ck_assert_uint_eq(p->base_at, at);
	ck_assert_uint_eq(p->base_first, row_at(path, at));
	ck_assert_uint_eq(p->width, 2);
}

static void put_both(const struct ckpt_weights *w, enum ckpt_weights_file weights, enum ckpt_weights_file master)
{
	ckpt_weights_put(step, "a", weights, w->bf16, w->elements, 2);
	ckpt_weights_put(step, "z", master, w->fp32, w->elements, 4);
}

static bool is_found(void)
{
	bool found = false;

	for (uint32_t i = 0; i < ckpt_manifest_chunk_count(m); i++)
		found |= ckpt_plan_chunk(plan, i)->base_count > 0;
	return found;
}

// --- Masters ------------------------------------------------------------------------------------------------------------

START_TEST(masters_are_found_in_whatever_files_they_are)
{
	const enum ckpt_weights_file weights = _i % CKPT_WEIGHTS_FILES, master = _i / CKPT_WEIGHTS_FILES;
	struct ckpt_weights w = ckpt_weights_make(FEW, 1);

	put_both(&w, weights, master);
	make_plan();
	check_master(planned("a", ckpt_weights_at(weights)), "z", ckpt_weights_at(master), 1);
	ck_assert(!planned("z", ckpt_weights_at(master))->base_count);
	ck_assert_uint_eq(planned("z", ckpt_weights_at(master))->width, 4);
	ckpt_weights_done(&w);
}
END_TEST

START_TEST(each_chunk_has_its_part_of_the_master)
{
	struct ckpt_weights w = ckpt_weights_make(MANY, 1);
	const size_t at = ckpt_weights_at(CKPT_WEIGHTS_SAFETENSORS), from = ckpt_weights_at(CKPT_WEIGHTS_NPY);

	put_both(&w, CKPT_WEIGHTS_SAFETENSORS, CKPT_WEIGHTS_NPY);
	make_plan();
	check_master(planned("a", at), "z", from, 2);
	check_master(planned("a", at + CKPT_CHUNK_BYTES), "z", from + 2 * CKPT_CHUNK_BYTES, 1);
	ck_assert(!planned("a", 0)->base_count); // the header
	ckpt_weights_done(&w);
}
END_TEST

// As in a step of several models: each has its own.
START_TEST(weights_of_one_size_have_the_master_that_is_theirs)
{
	enum { MODELS = 5 };
	struct ckpt_weights w[MODELS];
	const size_t at = ckpt_weights_at(CKPT_WEIGHTS_TORCH);

	for (unsigned i = 0; i < MODELS; i++) {
		char path[2][8];

		w[i] = ckpt_weights_make(FEW, i + 1);
		snprintf(path[0], sizeof(path[0]), "w%u", i);
		snprintf(path[1], sizeof(path[1]), "m%u", MODELS - 1 - i);
		ckpt_weights_put(step, path[0], CKPT_WEIGHTS_TORCH, w[i].bf16, FEW, 2);
		ckpt_weights_put(step, path[1], CKPT_WEIGHTS_TORCH, w[i].fp32, FEW, 4);
	}
	make_plan();
	for (unsigned i = 0; i < MODELS; i++) {
		char path[2][8];

		snprintf(path[0], sizeof(path[0]), "w%u", i);
		snprintf(path[1], sizeof(path[1]), "m%u", MODELS - 1 - i);
		check_master(planned(path[0], at), path[1], at, 1);
		ckpt_weights_done(&w[i]);
	}
}
END_TEST

START_TEST(of_two_that_look_alike_it_is_the_first)
{
	struct ckpt_weights w = ckpt_weights_make(FEW, 1);
	const size_t at = ckpt_weights_at(CKPT_WEIGHTS_NPY);

	put_both(&w, CKPT_WEIGHTS_NPY, CKPT_WEIGHTS_NPY);
	w.fp32[0] ^= 1; // the middle is what is looked at
	ckpt_weights_put(step, "m", CKPT_WEIGHTS_NPY, w.fp32, FEW, 4);
	make_plan();
	check_master(planned("a", at), "m", at, 1);
	ckpt_weights_done(&w);
}
END_TEST

// A copy that lags behind, as an average does of layers that are trained later.
START_TEST(of_two_that_are_alike_in_the_middle_it_is_the_right_one)
{
	struct ckpt_weights w = ckpt_weights_make(FEW, 1), other = ckpt_weights_make(FEW, 2);
	const size_t at = ckpt_weights_at(CKPT_WEIGHTS_NPY);

	put_both(&w, CKPT_WEIGHTS_NPY, CKPT_WEIGHTS_NPY);
	memcpy(w.fp32, other.fp32, 4 * FEW / 3);
	ckpt_weights_put(step, "m", CKPT_WEIGHTS_NPY, w.fp32, FEW, 4);
	make_plan();
	check_master(planned("a", at), "z", at, 1);
	ckpt_weights_done(&w);
	ckpt_weights_done(&other);
}
END_TEST

enum { OTHER_VALUES, OTHER_SIZE, ALIKE, SMALL, NO_MASTER, HALF_BITS, NOTHING_WAYS };

START_TEST(what_is_no_master_is_not_taken_for_one)
{
	struct ckpt_weights w = ckpt_weights_make(_i == SMALL ? CKPT_CHUNK_ARRAY_MIN / 2 - 1 : FEW, 1),
			    other = ckpt_weights_make(_i == OTHER_SIZE ? FEW + 1 : FEW, _i == OTHER_SIZE ? 1 : 2);

	if (_i == ALIKE) {
		memset(w.bf16, 0, 2 * FEW);
		memset(w.fp32, 0, 4 * FEW);
	}
	ckpt_weights_put(step, "a", CKPT_WEIGHTS_NPY, w.bf16, w.elements, 2);
	if (_i == HALF_BITS) // the same numbers cut off, as a copy that is not rounded
		for (size_t i = 0; i < FEW; i++)
			ckpt_put32(w.fp32 + 4 * i, ckpt_get32(w.fp32 + 4 * i) + 0x10000);
	if (_i == OTHER_VALUES || _i == OTHER_SIZE)
		ckpt_weights_put(step, "z", CKPT_WEIGHTS_NPY, other.fp32, other.elements, 4);
	else if (_i != NO_MASTER)
		ckpt_weights_put(step, "z", CKPT_WEIGHTS_NPY, w.fp32, w.elements, 4);
	make_plan();
	ck_assert(!is_found());
	ckpt_weights_done(&w);
	ckpt_weights_done(&other);
}
END_TEST

START_TEST(files_that_cannot_be_read_are_passed_over)
{
	struct ckpt_weights w = ckpt_weights_make(FEW, 1);
	char raw[PATH_MAX];

	put_both(&w, CKPT_WEIGHTS_NPY, CKPT_WEIGHTS_NPY);
	make_plan();
	ck_assert(is_found());
	ckpt_plan_free(TAKE_PTR(plan));
	snprintf(raw, sizeof(raw), "%s/z", step->session);
	ck_ok(ckpt_sys.unlink(s->sessions_fd, raw, 0));
	ck_ok(ckpt_plan_new(step, m, NULL, NULL, &plan));
	ck_assert(!is_found());
	ck_assert_uint_eq(planned("a", ckpt_weights_at(CKPT_WEIGHTS_NPY))->width, 2);
	ckpt_weights_done(&w);
}
END_TEST

static bool no_more(void *arg, uint64_t bytes)
{
	unsigned *left = arg;

	ck_assert_uint_eq(bytes, 0);
	return (*left)-- > 0;
}

START_TEST(who_is_told_to_stop_stops_at_the_next_array)
{
	struct ckpt_weights w = ckpt_weights_make(FEW, 1);
	unsigned left;

	put_both(&w, CKPT_WEIGHTS_NPY, CKPT_WEIGHTS_NPY);
	make_plan();
	ckpt_plan_free(TAKE_PTR(plan));
	for (unsigned arrays = 0; arrays < 2; arrays++) {
		left = arrays;
		ck_error(ckpt_plan_new(step, m, no_more, &left, &plan), EINTR);
	}
	left = 2;
	ck_ok(ckpt_plan_new(step, m, no_more, &left, &plan));
	ck_assert(is_found() && !left);
	ckpt_weights_done(&w);
}
END_TEST

// --- Widths -------------------------------------------------------------------------------------------------------------

static void put_array(const char *path, const char *dtype, size_t bytes, unsigned width)
{
	char header[128];
	uint64_t len;
	CLEANUP_FREE uint8_t *zeros = calloc(1, bytes);
	CLEANUP_FD int fd = ckpt_staged_put(step, path, "");

	snprintf(header, sizeof(header), "{\"x\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", dtype,
		 bytes / width, bytes);
	len = strlen(header);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, &len, 8, 0), 8);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, header, len, 8), (ssize_t)len);
	ck_assert_int_eq(ckpt_sys.pwrite(fd, zeros, bytes, (off_t)(8 + len)), (ssize_t)bytes);
}

START_TEST(the_width_is_what_the_file_says)
{
	static const struct {
		const char *dtype;
		unsigned bytes, width;
	} types[] = {{"F64", 8, 8}, {"I64", 8, 8},     {"I32", 4, 4}, {"F16", 2, 2},
		     {"U8", 1, 0},  {"F8_E4M3", 1, 1}, {"I8", 1, 0},  {"BOOL", 1, 1}};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		put_array(types[i].dtype, types[i].dtype, CKPT_CHUNK_ARRAY_MIN + 8 * i, types[i].bytes);
	put_array("small", "F64", CKPT_CHUNK_ARRAY_MIN - 8, 8);
	close(ckpt_staged_put(step, "text", "no array"));
	make_plan();
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct ckpt_seal seal;

		ck_assert(ckpt_manifest_seal(m, index_of(types[i].dtype), &seal) && seal.count == 2);
		ck_assert_uint_eq(ckpt_plan_chunk(plan, seal.first)->width, 0);
		ck_assert_uint_eq(ckpt_plan_chunk(plan, seal.first + 1)->width, types[i].width);
	}
	ck_assert_uint_eq(planned("small", 0)->width, 0);
	ck_assert_uint_eq(planned("text", 0)->width, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan");
	TCase *tcase = tcase_create("plan");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, masters_are_found_in_whatever_files_they_are, 0,
			    CKPT_WEIGHTS_FILES * CKPT_WEIGHTS_FILES);
	tcase_add_test(tcase, each_chunk_has_its_part_of_the_master);
	tcase_add_test(tcase, weights_of_one_size_have_the_master_that_is_theirs);
	tcase_add_test(tcase, of_two_that_look_alike_it_is_the_first);
	tcase_add_test(tcase, of_two_that_are_alike_in_the_middle_it_is_the_right_one);
	tcase_add_loop_test(tcase, what_is_no_master_is_not_taken_for_one, 0, NOTHING_WAYS);
	tcase_add_test(tcase, files_that_cannot_be_read_are_passed_over);
	tcase_add_test(tcase, who_is_told_to_stop_stops_at_the_next_array);
	tcase_add_test(tcase, the_width_is_what_the_file_says);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

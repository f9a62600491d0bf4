// Cooling and warming when any call behind ckpt_sys, of libc, of the backend or any allocation fails, once or from then on: every
// byte of the step can be read whatever the answer was, here and by who opens the store anew, and a second attempt ends what the
// first began.
#include "core/store/open.h"
#include "tests/support/allocfault.h"
#include "tests/support/callfault.h"
#include "tests/support/packed.h"
#include "tests/support/save.h"
#include "tests/support/seen.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"
#include "tests/support/weights.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"

#include <stdio.h>

#define FAULTS_MAX 2000

static const struct {
	const char *path, *text;
} files[] = {{"config", "text"},
	     {"model", "weights weights weights"},
	     {"sub/a", "a"},
	     {"sub/empty", ""},
	     {"sub/link", "text"}};
#define LINK 4

// Beside them weights and their master, each a chunk, and the master a difference to that of the step before.
static const struct {
	const char *path;
	enum ckpt_weights_file file;
	unsigned width;
} model[] = {{"sub/weights", CKPT_WEIGHTS_NPY, 2}, {"zero", CKPT_WEIGHTS_TORCH, 4}};
static struct ckpt_weights weights, earlier;

enum act { COOL, WARM };

struct trial {
	char dir[PATH_MAX];
	struct ckpt_store *s;
	struct ckpt_step *step;
	int descriptors;
};

static int move(struct ckpt_step *step, enum act act)
{
	const struct ckpt_tier_how how = {.pack_bytes = 300};
	struct ckpt_tier_done done;

	return act == COOL ? ckpt_cool(step, &how, &done) : ckpt_warm(step, &how, &done);
}

static void put_model(struct ckpt_step *step, const struct ckpt_weights *w)
{
	for (size_t i = 0; i < ARRAY_LEN(model); i++)
		ckpt_weights_put(step, model[i].path, model[i].file, model[i].width == 2 ? w->bf16 : w->fp32,
				 w->elements, model[i].width);
}

static void make_earlier(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_staged_begin(s, "900");

	ck_ok(ckpt_sys.mkdir(step->dirfd, "sub", 0755));
	put_model(step, &earlier);
	ck_ok(ckpt_commit(step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(step, &(struct ckpt_seal_how){0}));
	ck_ok(move(step, COOL));
	ckpt_step_unref(step);
}

static void prepare(struct trial *t, enum act act)
{
	if (!weights.elements) {
		earlier = ckpt_weights_make(CKPT_CHUNK_ARRAY_MIN / 2, 1);
		weights = ckpt_weights_make(CKPT_CHUNK_ARRAY_MIN / 2, 1);
		ckpt_weights_train(&weights);
	}
	t->descriptors = ckpt_open_descriptors();
	ckpt_save_init(t->dir);
	t->s = ckpt_save_open(t->dir);
	t->s->settings.delta = 1;
	make_earlier(t->s);
	t->step = ckpt_staged_begin(t->s, "1000");
	ck_ok(ckpt_sys.mkdir(t->step->dirfd, "sub", 0755));
	for (size_t i = 0; i < LINK; i++)
		close(ckpt_staged_put(t->step, files[i].path, files[i].text));
	ck_ok(ckpt_sys.link(t->step->dirfd, files[0].path, t->step->dirfd, files[LINK].path));
	put_model(t->step, &weights);
	ck_ok(ckpt_commit(t->step, &ckpt_staged_plain));
	ck_ok(ckpt_seal(t->step, &(struct ckpt_seal_how){0}));
	if (act == WARM)
		ck_ok(move(t->step, COOL));
	ckpt_save_settle(t->s);
}

static void check_files(struct ckpt_step *step)
{
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		ckpt_staged_check(step, files[i].path, files[i].text);
	for (size_t i = 0; i < ARRAY_LEN(model); i++)
		ck_ok(ckpt_weights_read(step, model[i].path, model[i].file,
					model[i].width == 2 ? weights.bf16 : weights.fp32, weights.elements,
					model[i].width));
}

static bool has_codec(struct ckpt_step *step, enum ckpt_codec_id codec)
{
	struct ckpt_manifest *m;
	bool has = false;

	ck_ok(ckpt_step_manifest(step, &m));
	for (uint32_t i = 0; i < ckpt_manifest_chunk_count(m); i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, i, &chunk);
		has |= chunk.pack && chunk.how.codec == codec;
	}
	ckpt_manifest_unref(m);
	return has;
}

// Cold files may keep raw files that could not be removed.
static void check_place(struct ckpt_step *step, enum act act)
{
	ck_assert(step->version->is.packed);
	for (size_t i = 0; i < ARRAY_LEN(files) && act == WARM; i++)
		ck_assert_msg(!*files[i].text || ckpt_packed_is_raw(step, files[i].path), "%s is cold", files[i].path);
}

// done: the act has said that it is done.
static void check_anew(const struct trial *t, enum act act, bool done)
{
	struct ckpt_store *s;
	struct ckpt_step *step;

	ck_ok(ckpt_store_open(t->dir, CKPT_STORE_READ, NULL, &s));
	step = ckpt_step_find(s, "", "1000");
	ck_assert_ptr_nonnull(step);
	check_files(step);
	if (done)
		check_place(step, act);
	ck_assert(step->version->is.sealed);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}

// none: nothing has failed. Else what they are beside may not have been there to be read, and they are alone.
static void check_answer(struct trial *t, enum act act, int rc, bool none)
{
	ck_assert_int_le(rc, 0);
	check_files(t->step);
	if (!rc)
		check_place(t->step, act);
	check_anew(t, act, !rc);
	ck_ok(move(t->step, act));
	check_files(t->step);
	ck_assert(!none || (has_codec(t->step, CKPT_CODEC_ROUND) && has_codec(t->step, CKPT_CODEC_DELTA)));
	ckpt_save_settle(t->s);
	check_anew(t, act, true);
	ckpt_step_unref(t->step);
	ckpt_store_close(t->s);
	ck_assert_int_eq(ckpt_open_descriptors(), t->descriptors);
	ckpt_temp_empty(t->dir, true);
}

// --- What fails ---------------------------------------------------------------------------------------------------------

static struct ckpt_sysfault fault;

static void begin_sys(uint64_t n, int way)
{
	fault = (struct ckpt_sysfault){
		.at = n, .error = ckpt_sysfault_error(way / 2, n), .sticky = way % 2, .torn = true};
	ckpt_sysfault_begin(&fault);
}

static uint64_t end_sys(void)
{
	ckpt_sysfault_end(&fault);
	return fault.count;
}

static void begin_libc(uint64_t n, int way)
{
	ckpt_callfault_begin(n, way ? -ENOMEM : -EIO);
}

static void begin_alloc(uint64_t n, int way)
{
	ckpt_allocfault_begin(n, way);
}

// The n-th fails, n = 1, 2, 3 ... until none is left; there are at least so many. By default each second does.
static void each(enum act act, void (*begin)(uint64_t n, int way), uint64_t (*end)(void), int way, uint64_t least)
{
	uint64_t n = ckpt_suite_first(2, (way + 1) / 2 + (int)act); // one of a pair of ways has the other's gaps
	bool fired;

	do {
		struct trial t;
		int rc;

		ck_assert_uint_lt(n, FAULTS_MAX);
		prepare(&t, act);
		begin(n, way);
		rc = move(t.step, act);
		ckpt_save_settle(t.s);
		fired = end() >= n;
		check_answer(&t, act, rc, !fired);
		if (fired)
			n += ckpt_suite_stride(2);
	} while (fired);
	ck_assert_uint_gt(n, least);
}

START_TEST(cooling_when_calls_behind_the_seam_fail)
{
	each(COOL, begin_sys, end_sys, _i, 15);
}
END_TEST

START_TEST(warming_when_calls_behind_the_seam_fail)
{
	each(WARM, begin_sys, end_sys, _i, 15);
}
END_TEST

START_TEST(calls_of_libc)
{
	each(_i / 2 ? WARM : COOL, begin_libc, ckpt_callfault_end, _i % 2, 2);
}
END_TEST

START_TEST(allocations)
{
	each(_i / 2 ? WARM : COOL, begin_alloc, ckpt_allocfault_end, _i % 2, 15);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cool faults");
	TCase *tcase = tcase_create("faults");

	tcase_add_loop_test(tcase, cooling_when_calls_behind_the_seam_fail, 0, 2 * ckpt_sysfault_kinds());
	tcase_add_loop_test(tcase, warming_when_calls_behind_the_seam_fail, 0, 2 * ckpt_sysfault_kinds());
	tcase_add_loop_test(tcase, calls_of_libc, 0, 4);
	tcase_add_loop_test(tcase, allocations, 0, 4);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

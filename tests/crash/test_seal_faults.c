// Sealing, by one and by two, when any call behind ckpt_sys or any allocation fails, once or from then on, or any of libc, once: what
// is sealed is right, nothing of the step is lost, and a second attempt seals the rest.
#include "core/store/open.h"
#include "tests/support/allocfault.h"
#include "tests/support/callfault.h"
#include "tests/support/save.h"
#include "tests/support/seen.h"
#include "tests/support/staged.h"
#include "tests/support/sysfault.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/tier/seal.h"

#include <stdio.h>

#define FAULTS_MAX 1000

// Of a size that its format is asked for, and like a zip file to begin with, which has to be read at its end.
static char zip[CKPT_CHUNK_ARRAY_MIN + 1];
static const struct {
	const char *path, *text;
} files[] = {{"config", "text"}, {"model", "weights"}, {"model.zip", zip}, {"sub/a", "a"}, {"sub/empty", ""}};

struct trial {
	char dir[PATH_MAX];
	struct ckpt_store *s;
	struct ckpt_step *step;
	int descriptors;
};

static void prepare(struct trial *t)
{
	memset(zip, 'x', sizeof(zip) - 1);
	memcpy(zip, "PK\3\4", 4);
	t->descriptors = ckpt_open_descriptors();
	ckpt_save_init(t->dir);
	t->s = ckpt_save_open(t->dir);
	t->step = ckpt_staged_begin(t->s, "1000");
	ck_ok(ckpt_sys.mkdir(t->step->dirfd, "sub", 0755));
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		close(ckpt_staged_put(t->step, files[i].path, files[i].text));
	ck_ok(ckpt_commit(t->step, &ckpt_staged_plain));
	ckpt_save_settle(t->s);
}

// All files are there, and none has a seal of other bytes. How many have one.
static size_t check_seals(struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	size_t sealed = 0;

	ck_ok(ckpt_step_manifest(step, &m));
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		uint8_t want[CKPT_SHA256_LEN];
		struct ckpt_seal seal;
		uint32_t index;

		ckpt_staged_check(step, files[i].path, files[i].text);
		ck_ok(ckpt_manifest_lookup(m, files[i].path, &index));
		if (!ckpt_manifest_seal(m, index, &seal))
			continue;
		ckpt_sha256(files[i].text, strlen(files[i].text), want);
		ck_assert_mem_eq(seal.sha256, want, sizeof(want));
		sealed++;
	}
	ck_assert(ckpt_manifest_is_sealed(m) == step->version->is.sealed);
	ckpt_manifest_unref(m);
	return sealed;
}

static void check_anew(const struct trial *t, bool sealed)
{
	struct ckpt_store *s;
	struct ckpt_step *step;

	ck_ok(ckpt_store_open(t->dir, CKPT_STORE_READ, NULL, &s));
	step = ckpt_step_find(s, "", "1000");
	ck_assert_ptr_nonnull(step);
	check_seals(step);
	ck_assert(!sealed || step->version->is.sealed);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}

static void check_answer(struct trial *t, int rc)
{
	ck_assert_int_le(rc, 0);
	check_seals(t->step);
	ck_assert(rc || t->step->version->is.sealed);
	check_anew(t, !rc);
	ck_ok(ckpt_seal(t->step, &(struct ckpt_seal_how){0}));
	ck_assert_uint_eq(check_seals(t->step), ARRAY_LEN(files) - 1); // of the empty one there is nothing to say
	ckpt_save_settle(t->s);
	check_anew(t, true);
	ckpt_step_unref(t->step);
	ckpt_store_close(t->s);
	ck_assert_int_eq(ckpt_open_descriptors(), t->descriptors);
	ckpt_temp_empty(t->dir, true);
}

static int seal(struct trial *t, unsigned readers)
{
	int rc = ckpt_seal(t->step, &(struct ckpt_seal_how){.readers = readers});

	ckpt_save_settle(t->s);
	return rc;
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

#define BY_ONE_AND_BY_TWO 2

// The n-th fails, n = 1, 2, 3 ... until none is left; there are at least so many.
static void each(void (*begin)(uint64_t n, int way), uint64_t (*end)(void), int loop, uint64_t least, int only)
{
	int way = loop / BY_ONE_AND_BY_TWO;
	unsigned readers = 1 + (unsigned)loop % BY_ONE_AND_BY_TWO;
	uint64_t count = 0, n = 1;

	for (; n == 1 || count >= n - 1; n++) {
		struct trial t;
		int rc;

		ck_assert_uint_lt(n, FAULTS_MAX);
		prepare(&t);
		begin(n, way);
		rc = seal(&t, readers);
		count = end();
		ck_assert_msg(!rc || !only || rc == only || rc == -EIO, "%s", strerror(-rc)); // -EIO: unknown
		check_answer(&t, rc);
	}
	ck_assert_uint_gt(n, least);
}

START_TEST(calls_behind_the_seam)
{
	each(begin_sys, end_sys, _i, 5, 0);
}
END_TEST

START_TEST(calls_of_libc)
{
	each(begin_libc, ckpt_callfault_end, _i, 3, 0);
}
END_TEST

START_TEST(allocations)
{
	each(begin_alloc, ckpt_allocfault_end, _i, 10, -ENOMEM);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seal faults");
	TCase *tcase = tcase_create("faults");

	tcase_add_loop_test(tcase, calls_behind_the_seam, 0, BY_ONE_AND_BY_TWO * 2 * ckpt_sysfault_kinds());
	tcase_add_loop_test(tcase, calls_of_libc, 0, BY_ONE_AND_BY_TWO * 2);
	tcase_add_loop_test(tcase, allocations, 0, BY_ONE_AND_BY_TWO * 2);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

// Deleting, having back, saving anew, reopening, deriving and expiring when any call behind ckpt_sys or of the backend fails, once or from
// then on, or is done and its answer lost: the error comes out, what is in memory is what is on the disk, or the outcome
// was said to be unknown, and trying again works.
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/backendfault.h"
#include "tests/support/hooks.h"
#include "tests/support/life.h"
#include "tests/support/sysfault.h"

#include "backends/backends.h"
#include "core/base/sys.h"
#include "core/save/delete.h"

#include <pthread.h>
#include <stdio.h>

#define CALLS_MAX 2000

// The last act of each is the one that fails.
static const struct ckpt_life_script scripts[] = {
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST}, {CKPT_LIFE_METADATA, LIFE_FIRST}, {CKPT_LIFE_DELETE, LIFE_FIRST}},
	 .count = 3},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST}, {CKPT_LIFE_DELETE, LIFE_FIRST}, {CKPT_LIFE_UNDELETE, LIFE_FIRST}},
	 .count = 3},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST},
		 {CKPT_LIFE_DELETE, LIFE_FIRST},
		 {CKPT_LIFE_UNDELETE, LIFE_FIRST},
		 {CKPT_LIFE_DELETE, LIFE_FIRST},
		 {CKPT_LIFE_EXPIRE, LIFE_FIRST}},
	 .count = 5},
	// An older one while the name is another's.
	{.ops = {{CKPT_LIFE_SAVE, LIFE_LARGE},
		 {CKPT_LIFE_DELETE, LIFE_LARGE},
		 {CKPT_LIFE_SAVE, LIFE_THIRD},
		 {CKPT_LIFE_EXPIRE, LIFE_LARGE}},
	 .count = 4},
	// Two of one name.
	{.ops = {{CKPT_LIFE_SAVE, LIFE_LARGE},
		 {CKPT_LIFE_DELETE, LIFE_LARGE},
		 {CKPT_LIFE_SAVE, LIFE_THIRD},
		 {CKPT_LIFE_DELETE, LIFE_THIRD},
		 {CKPT_LIFE_EXPIRE_ALL, LIFE_LARGE}},
	 .count = 5},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_LARGE},
		 {CKPT_LIFE_DELETE, LIFE_LARGE},
		 {CKPT_LIFE_SAVE, LIFE_THIRD},
		 {CKPT_LIFE_DELETE, LIFE_THIRD},
		 {CKPT_LIFE_MAKE_ROOM, LIFE_LARGE}},
	 .count = 5},
	// The newer one of two first: its deletion stays for the older one.
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST},
		 {CKPT_LIFE_RESAVE, LIFE_AGAIN},
		 {CKPT_LIFE_DELETE, LIFE_AGAIN},
		 {CKPT_LIFE_EXPIRE, LIFE_AGAIN}},
	 .count = 4},
	// The older one had that deletion, came back and went again.
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST},
		 {CKPT_LIFE_RESAVE, LIFE_AGAIN},
		 {CKPT_LIFE_DELETE, LIFE_AGAIN},
		 {CKPT_LIFE_EXPIRE, LIFE_AGAIN},
		 {CKPT_LIFE_UNDELETE, LIFE_FIRST},
		 {CKPT_LIFE_DELETE, LIFE_FIRST},
		 {CKPT_LIFE_EXPIRE, LIFE_FIRST}},
	 .count = 7},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST}, {CKPT_LIFE_RESAVE, LIFE_AGAIN}}, .count = 2},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_AGAIN}, {CKPT_LIFE_DERIVE, LIFE_DERIVED}}, .count = 2},
	{.ops = {{CKPT_LIFE_SAVE, LIFE_LAST}, {CKPT_LIFE_GIVE_UP, LIFE_LAST}}, .count = 2},
	// Over a deleted name. A save has faults of its own, in test_commit_faults.c: here only the backend's.
	{.ops = {{CKPT_LIFE_SAVE, LIFE_FIRST}, {CKPT_LIFE_DELETE, LIFE_FIRST}, {CKPT_LIFE_SAVE, LIFE_LARGE}},
	 .count = 3},
};

#define WITHOUT_SAVES ((int)ARRAY_LEN(scripts) - 1)

struct trial {
	char dir[PATH_MAX];
	struct ckpt_store *s;
	struct ckpt_life_log log;
	const struct ckpt_life_script *script;
	size_t last;
	int rc;
};

static void prepare(struct trial *t, const struct ckpt_life_script *script)
{
	*t = (struct trial){.script = script, .last = script->count - 1};
	ckpt_save_init(t->dir);
	t->s = ckpt_save_open(t->dir);
	for (size_t i = 0; i < t->last; i++)
		ck_ok(ckpt_life_do(t->s, &script->ops[i], &t->log));
	ckpt_save_settle_all(t->s);
}

static void check_disk(const struct trial *t, size_t done, bool cut)
{
	struct ckpt_store *reader;

	ck_ok(ckpt_store_open(t->dir, CKPT_STORE_READ, NULL, &reader));
	ckpt_life_check_store(reader, t->script, &t->log, done, cut);
	ckpt_store_close(reader);
}

static bool expires(const struct trial *t)
{
	return t->script->ops[t->last].act >= CKPT_LIFE_EXPIRE;
}

static const struct ckpt_life_op *last_of(const struct trial *t)
{
	return &t->script->ops[t->last];
}

static void assert_same_listing(const struct trial *t)
{
	CLEANUP_FREE char *here = ckpt_life_listing(t->s);
	CLEANUP_FREE char *there = NULL;
	struct ckpt_store *reader;

	ck_ok(ckpt_store_open(t->dir, CKPT_STORE_READ, NULL, &reader));
	there = ckpt_life_listing(reader);
	ckpt_store_close(reader);
	ck_assert_msg(!strcmp(here, there), "in memory:\n%son disk:\n%s", here, there);
}

// A step that is reopened is in our own listing no more, and of two that expire half-way, the newer one in no other.
static bool hides_a_step(const struct trial *t)
{
	return last_of(t)->act == CKPT_LIFE_RESAVE || last_of(t)->act == CKPT_LIFE_GIVE_UP ||
	       (last_of(t)->act == CKPT_LIFE_EXPIRE && last_of(t)->life == LIFE_AGAIN);
}

// After the act with the fault: what it answered is so. Then it is asked again, and the store opened again.
static void check_answer(struct trial *t, int error)
{
	bool saves = ckpt_life_saves(last_of(t));
	bool unknown = t->rc == -EIO;

	t->log.may_leave = t->rc && saves; // what it could not clear away again
	ck_assert_msg(!t->rc || t->rc == error || unknown, "%s", strerror(-t->rc));
	// The change of a staged step has its answer, and needs no line.
	if (t->rc && !expires(t) && (!saves || last_of(t)->act == CKPT_LIFE_SAVE))
		ck_assert_uint_ge(ckpt_save_errors(t->s, error == -EIO ? "EIO" : "E"), 1);
	// What it did not do it has not done; an expiry may have done a part.
	ckpt_life_check_store(t->s, t->script, &t->log, t->last + !t->rc, t->rc && (unknown || expires(t)));
	check_disk(t, t->last + !t->rc, t->rc && (unknown || expires(t)));
	if (!unknown && !(t->rc && hides_a_step(t)))
		assert_same_listing(t);
	if (t->rc) {
		ck_ok(ckpt_life_do(t->s, &t->script->ops[t->last], &t->log));
		ckpt_save_settle_all(t->s);
	}
	ckpt_life_check_store(t->s, t->script, &t->log, t->last + 1, false);
	check_disk(t, t->last + 1, false);
	assert_same_listing(t);
	ckpt_store_close(t->s);
	t->s = ckpt_save_open(t->dir);
	ckpt_life_check_store(t->s, t->script, &t->log, t->last + 1, false);
	ckpt_life_check_expiry(t->s, saves);
	ckpt_store_close(t->s);
	ckpt_temp_empty(t->dir, true);
}

// --- System calls -----------------------------------------------------------------------------------------------------

static bool faulty_call(const struct ckpt_life_script *script, uint64_t n, int kind, bool sticky)
{
	int error = ckpt_sysfault_error(kind, n);
	struct ckpt_sysfault fault = {.at = n, .error = error, .sticky = sticky, .torn = true};
	struct trial t;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, script);
	ckpt_sysfault_begin(&fault);
	t.rc = ckpt_life_do(t.s, &script->ops[t.last], &t.log);
	ckpt_save_settle_all(t.s);
	ckpt_sysfault_end(&fault);
	check_answer(&t, error);
	return fault.count >= n;
}

START_TEST(a_call_that_fails_fails_the_act_or_does_no_harm)
{
	int script = _i % WITHOUT_SAVES, way = _i / WITHOUT_SAVES;
	uint64_t n = ckpt_suite_first(2, script + (way + 1) / 2); // one of a pair of ways has the other's gaps

	while (faulty_call(&scripts[script], n, way / 2, way % 2))
		n += ckpt_suite_stride(2);
	printf("script %d, way %d: %llu calls\n", script, way, (unsigned long long)n - 1);
	ck_assert_uint_gt(n, 5);
}
END_TEST

// --- The backend ------------------------------------------------------------------------------------------------------

static bool faulty_backend(const struct ckpt_life_script *script, const struct ckpt_fault *how, uint64_t n)
{
	struct ckpt_fault fault = {0};
	struct trial t;
	bool fired;

	ck_assert_uint_lt(n, CALLS_MAX);
	prepare(&t, script);
	ckpt_save_fault(t.s, &fault);
	fault = *how;
	fault.at = n;
	t.rc = ckpt_life_do(t.s, &script->ops[t.last], &t.log);
	ckpt_save_settle_all(t.s);
	fired = fault.count >= n;
	fault.at = 0;
	check_answer(&t, how->error);
	return fired;
}

START_TEST(a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end)
{
	int script = _i % (int)ARRAY_LEN(scripts), way = _i / (int)ARRAY_LEN(scripts);
	uint64_t n = 1; // an act has few, some but one

	while (faulty_backend(&scripts[script], &ckpt_objectsfault_ways[way], n))
		n++;
	ck_assert(n > 1 || scripts[script].ops[scripts[script].count - 1].act == CKPT_LIFE_GIVE_UP); // it asks nothing
}
END_TEST

// --- What else is done before the answer is known ---------------------------------------------------------------------

// What another save left in memory when its name turned out to be taken.
static void drop_staged(struct ckpt_store *s, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(s, "", name);

	if (step && ckpt_step_state(step) == CKPT_STEP_STAGED)
		ck_ok(ckpt_stage_abort(step, false));
	ckpt_step_unref(step);
}

// An undelete whose answers are lost from operation n on, then another act, then the undelete again. False when n was not
// reached.
static bool undelete_interrupted(const struct ckpt_life_op *other, uint64_t n)
{
	static const struct ckpt_life_op again = {CKPT_LIFE_UNDELETE, LIFE_FIRST};
	struct ckpt_fault fault = {0};
	struct ckpt_step *step;
	struct trial t;
	int rc;

	prepare(&t, &scripts[1]);
	step = ckpt_step_of_session(t.s, t.log.session[LIFE_FIRST]);
	ckpt_save_fault(t.s, &fault);
	fault = (struct ckpt_fault){.at = n, .error = -EIO, .half = true, .sticky = true};
	t.rc = ckpt_undelete(step);
	fault.at = 0;
	if (t.rc) {
		struct ckpt_store *reader;
		struct ckpt_step *there;
		bool listed;

		ck_error(t.rc, EIO);
		ck_ok(ckpt_store_open(t.dir, CKPT_STORE_READ, NULL, &reader));
		there = ckpt_step_find(reader, "", step->name);
		listed = there;
		ckpt_step_unref(there);
		ckpt_store_close(reader);
		rc = ckpt_life_do(t.s, other, &t.log);
		ck_assert_msg(!rc != listed, "%d though the step is%s listed", rc, listed ? "" : " not");
		drop_staged(t.s, step->name);
		if (listed) {
			ck_ok(ckpt_life_do(t.s, &again, &t.log));
			ckpt_save_settle_all(t.s);
			check_disk(&t, 3, false);
		} else {
			ck_assert_int_lt(ckpt_undelete(step), 0);
			ckpt_save_settle_all(t.s);
		}
	}
	ckpt_step_unref(step);
	ckpt_store_close(t.s);
	ckpt_temp_empty(t.dir, true);
	return t.rc;
}

START_TEST(a_step_that_was_undeleted_without_an_answer_is_neither_expired_nor_replaced)
{
	static const struct ckpt_life_op others[] = {
		{CKPT_LIFE_EXPIRE, LIFE_FIRST}, {CKPT_LIFE_EXPIRE_ALL, LIFE_FIRST}, {CKPT_LIFE_SAVE, LIFE_THIRD}};
	uint64_t n = 1;

	while (undelete_interrupted(&others[_i], n))
		n++;
	ck_assert_uint_gt(n, 1);
}
END_TEST

// --- Two at a time ----------------------------------------------------------------------------------------------------

static struct {
	struct ckpt_step *step;
	pthread_t thread;
	int expire, undelete;
} during;

static void *others_thread(void *arg)
{
	during.expire = ckpt_expire(arg);
	during.undelete = ckpt_undelete(arg);
	return NULL;
}

// Called in an undelete, after its look at the files and before its put: others get time to do harm.
static int random_meanwhile(void *buf, size_t len)
{
	if (during.step) {
		ck_assert_int_eq(pthread_create(&during.thread, NULL, others_thread, TAKE_PTR(during.step)), 0);
		usleep(50000);
	}
	memset(buf, 0x37, len);
	return 0;
}

START_TEST(nothing_expires_while_it_is_being_undeleted)
{
	int (*random)(void *buf, size_t len) = ckpt_hooks.random;
	struct ckpt_step *step;
	struct trial t;

	prepare(&t, &scripts[1]);
	step = ckpt_step_of_session(t.s, t.log.session[LIFE_FIRST]);
	during.step = step;
	ckpt_hook_set(random, random_meanwhile);
	ck_ok(ckpt_undelete(step));
	ck_assert_int_eq(pthread_join(during.thread, NULL), 0);
	ckpt_hook_set(random, random);
	ck_error(during.expire, ESTALE); // they had to wait, and found it listed
	ck_error(during.undelete, ESTALE);
	ckpt_step_unref(step);
	ckpt_save_settle_all(t.s);
	ckpt_life_check_store(t.s, t.script, &t.log, 3, false);
	ckpt_store_close(t.s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("delete faults");
	TCase *tcase = tcase_create("faults"), *threads = tcase_create("threads");

	tcase_add_loop_test(tcase, a_call_that_fails_fails_the_act_or_does_no_harm, 0,
			    2 * ckpt_sysfault_kinds() * WITHOUT_SAVES);
	tcase_add_loop_test(tcase, a_backend_that_fails_or_loses_answers_gives_one_final_answer_in_the_end, 0,
			    CKPT_BACKENDFAULT_WAYS * (int)ARRAY_LEN(scripts));
	tcase_add_loop_test(tcase, a_step_that_was_undeleted_without_an_answer_is_neither_expired_nor_replaced, 0, 3);
	suite_add_tcase(suite, tcase);
	tcase_add_test(threads, nothing_expires_while_it_is_being_undeleted);
	suite_add_tcase(suite, threads);
	return ckpt_suite_run(suite);
}

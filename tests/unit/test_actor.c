// On whose behalf a thread makes an act: itself, a client, and nobody else's; and names of programs, which may hold anything.
#include "tests/support/suite.h"

#include "core/base/actor.h"
#include "core/base/util.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_is(uint32_t uid, const char *comm)
{
	struct ckpt_actor actor = ckpt_actor_get();

	ck_assert_uint_eq(actor.uid, uid);
	ck_assert_str_eq(actor.comm, comm);
	ck_assert(ckpt_comm_check(actor.comm));
}

START_TEST(a_thread_works_for_its_process)
{
	ck_assert_int_eq(prctl(PR_SET_NAME, "my\nown"), 0);
	assert_is(geteuid(), "my?own");
	ckpt_actor_call_process("ckptfs");
	assert_is(geteuid(), "ckptfs");
}
END_TEST

static void *work_in_thread(void *arg)
{
	(void)arg;
	assert_is(geteuid(), "daemon");
	return NULL;
}

START_TEST(a_client_is_that_of_one_thread_up_to_its_end)
{
	struct ckpt_actor carried, other = {.uid = 7, .comm = "other"};
	struct ckpt_actor_scope was, outer;
	pthread_t thread;

	ck_assert_int_eq(prctl(PR_SET_NAME, "the-client"), 0);
	ckpt_actor_call_process("daemon");
	outer = ckpt_actor_set_client(1234, getpid());
	assert_is(1234, "the-client");
	ck_assert_int_eq(pthread_create(&thread, NULL, work_in_thread, NULL), 0);
	pthread_join(thread, NULL);
	was = ckpt_actor_set(&other);
	assert_is(7, "other");
	ckpt_actor_restore(&was);
	carried = ckpt_actor_get();
	ckpt_actor_restore(&outer);
	assert_is(geteuid(), "daemon");
	was = ckpt_actor_set(&carried);
	assert_is(1234, "the-client");
	ckpt_actor_restore(&was);
	assert_is(geteuid(), "daemon");
}
END_TEST

START_TEST(a_thread_has_the_name_of_its_process)
{
	struct ckpt_actor_scope was;

	ck_assert_int_eq(prctl(PR_SET_NAME, "process"), 0);
	was = ckpt_actor_set_client(0, gettid());
	assert_is(0, "process");
	ckpt_actor_restore(&was);
}
END_TEST

// Of a process that is gone, or is in another pid namespace, the user is known all the same.
START_TEST(a_client_that_is_gone_has_no_name)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	(void)ckpt_actor_set_client(5, pid);
	assert_is(5, "");
	(void)ckpt_actor_set_client(CKPT_UID_UNKNOWN, 0);
	assert_is(CKPT_UID_UNKNOWN, "");
}
END_TEST

START_TEST(any_name_becomes_one_that_can_be_shown)
{
	static const struct {
		const char *raw, *clean;
	} names[] = {
		{"", ""},
		{"python3", "python3"},
		{"a\nb", "a?b"},
		{"\x1b[31mred", "?[31mred"},
		{"\x01\x1f\x7f", "???"},
		{"\xc2\x9b", "??"},      // C1: CSI of some terminals
		{"\xe2\x80\xae", "???"}, // right to left
		{"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
		{"fourteen-bytes\xc3\xa9", "fourteen-bytes?"}, // cut off in the middle of a character
		{"twelve-bytes\xf0\x9f\x98\x80", "twelve-bytes???"},
		{"more than fifteen bytes", "more than fifte"},
		{"\xff\xfe", "??"},
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char comm[CKPT_COMM_BYTES + 1];

		ckpt_comm_clean(names[i].raw, comm);
		ck_assert_str_eq(comm, names[i].clean);
		ck_assert(ckpt_comm_check(comm));
	}
}
END_TEST

// Whatever bytes there are: what is cleaned is checked, and what is checked is not changed by cleaning.
START_TEST(cleaning_and_checking_agree)
{
	unsigned seed = (unsigned)_i;

	for (int round = 0; round < 20000; round++) {
		char raw[CKPT_COMM_BYTES + 1] = "", comm[CKPT_COMM_BYTES + 1];
		size_t len = (size_t)rand_r(&seed) % sizeof(raw);

		for (size_t i = 0; i < len; i++)
			raw[i] = (char)(rand_r(&seed) % 3 ? "\xe2\x80\xae\xc2\x85\xf0\x9f\xa8\x81 a"[rand_r(&seed) % 10]
							  : rand_r(&seed));
		ckpt_comm_clean(raw, comm);
		ck_assert(ckpt_comm_check(comm));
		ck_assert_int_eq(ckpt_comm_check(raw), !memcmp(raw, comm, sizeof(raw)));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("actor");
	TCase *tcase = tcase_create("actor");

	tcase_add_test(tcase, a_thread_works_for_its_process);
	tcase_add_test(tcase, a_client_is_that_of_one_thread_up_to_its_end);
	tcase_add_test(tcase, a_thread_has_the_name_of_its_process);
	tcase_add_test(tcase, a_client_that_is_gone_has_no_name);
	tcase_add_test(tcase, any_name_becomes_one_that_can_be_shown);
	tcase_add_loop_test(tcase, cleaning_and_checking_agree, 1, 4);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

// A program of the user's: what it is given, what is learnt of it, and that it ends with all that it has started.
#include "tests/support/suite.h"

#include "core/base/run.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#define S INT64_C(1000000000)

static struct ckpt_ran ran;
static int64_t took_ns;

static int run(const struct ckpt_run *how)
{
	int64_t began_ns = ckpt_sys.mono_ns();
	int rc = ckpt_run(how, &ran);

	took_ns = ckpt_sys.mono_ns() - began_ns;
	return rc;
}

static int shell(const char *script, int64_t timeout_ns)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};

	return run(&(struct ckpt_run){.argv = argv, .timeout_ns = timeout_ns});
}

static void says(const char *want)
{
	ck_assert_str_eq(ckpt_run_last_line(&ran), want);
}

START_TEST(its_end_and_its_last_words_are_known)
{
	ck_ok(shell("exit 0", 30 * S));
	ck_assert_int_eq(ran.status, 0);
	says("");
	ck_ok(shell("echo one; echo two >&2; echo; exit 7", 30 * S));
	ck_assert_int_eq(ran.status, 7);
	says("two");
	ck_ok(shell("kill -9 $$", 30 * S));
	ck_assert_int_eq(ran.status, 128 + SIGKILL);
}
END_TEST

START_TEST(of_much_output_the_end_is_kept)
{
	ck_ok(shell("i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i + 1)); done; printf last", 60 * S));
	ck_assert_uint_eq(strlen(ran.output), sizeof(ran.output) - 1);
	says("last");
	ck_ok(shell("head -c 5000 /dev/zero | tr '\\0' x; echo; echo end", 30 * S));
	says("end");
}
END_TEST

START_TEST(it_has_our_environment_and_what_is_added)
{
	const char *const argv[] = {"/bin/sh", "-c", "echo \"$OURS $BOTH $ADDED\"", NULL};
	const char *const env[] = {"ADDED=a b\nc", "BOTH=theirs", NULL};

	setenv("OURS", "ours", 1);
	setenv("BOTH", "ours", 1);
	setenv("BOTH_AND_MORE", "x", 1);
	ck_ok(run(&(struct ckpt_run){.argv = argv, .env = env, .timeout_ns = 30 * S}));
	ck_assert_str_eq(ran.output, "ours theirs a b\nc\n");
	ck_ok(shell("echo $BOTH $BOTH_AND_MORE", 30 * S));
	says("ours x");
}
END_TEST

START_TEST(it_has_nothing_else_of_ours)
{
	int fd = open("/dev/zero", O_RDONLY); // without O_CLOEXEC
	sigset_t set;

	ck_assert_int_gt(fd, 2);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	ck_ok(shell("cat; for fd in /proc/$$/fd/*; do readlink $fd; done; grep -E 'Sig(Blk|Ign)' /proc/self/status",
		    30 * S));
	ck_assert_msg(!strncmp(ran.output, "/dev/null\n", 10), "%s", ran.output);
	ck_assert_ptr_null(strstr(ran.output, "/dev/zero"));
	ck_assert_msg(strstr(ran.output, "SigBlk:\t0000000000000000\nSigIgn:"), "%s", ran.output);
	ck_assert_uint_eq(strtoull(strstr(ran.output, "SigIgn:") + 7, NULL, 16) & 0x7fffffff, 0); // libc has two more
	close(fd);
}
END_TEST

// The process of this number, which a program has written, is none any more.
static void is_gone(void)
{
	pid_t pid = atoi(ckpt_run_last_line(&ran));

	ck_assert_int_gt(pid, 1);
	for (int i = 0; i < 500 && !kill(pid, 0); i++) {
		char path[64], state = 'Z';
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		f = fopen(path, "re");
		if (f && fscanf(f, "%*d %*s %c", &state) != 1)
			state = 'Z';
		if (f)
			fclose(f);
		if (state == 'Z')
			return; // nobody waits for it here
		ckpt_sys.sleep_ns(S / 100);
	}
	ck_assert_int_ne(kill(pid, 0), 0);
}

static bool has_not_spoken(void *arg __attribute__((unused)))
{
	return !strchr(ran.output, '\n'); // which is filled while it runs
}

// Until it has said something, and then ended.
static int end_when_spoken(const char *script)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};

	return run(&(struct ckpt_run){.argv = argv, .timeout_ns = 600 * S, .go_on = has_not_spoken});
}

START_TEST(it_ends_with_all_that_it_has_started)
{
	ck_error(end_when_spoken("sleep 1000 & echo $!; wait"), EINTR);
	ck_assert_int_eq(ran.status, 128 + SIGTERM);
	is_gone();
	ck_error(end_when_spoken("trap '' TERM; (while :; do sleep 1; done) & echo $!; wait"), EINTR);
	ck_assert_int_eq(ran.status, 128 + SIGKILL);
	is_gone();
}
END_TEST

START_TEST(told_to_end_it_may_end_well)
{
	ck_error(end_when_spoken("trap 'echo well; exit 3' TERM; echo ready; while :; do sleep 0.05; done"), EINTR);
	ck_assert_int_eq(ran.status, 3);
	says("well");
}
END_TEST

START_TEST(it_has_so_much_time)
{
	ck_error(shell("sleep 1000", S / 5), ETIMEDOUT);
	ck_assert_int_ge(took_ns, S / 5);
	ck_assert_int_lt(took_ns, 30 * S);
}
END_TEST

static bool three_times(void *arg)
{
	return ++*(int *)arg < 3;
}

START_TEST(who_runs_it_may_end_it)
{
	static const char *const argv[] = {"/bin/sleep", "1000", NULL};
	int asked = 0;

	ck_error(run(&(struct ckpt_run){.argv = argv, .timeout_ns = 60 * S, .go_on = three_times, .arg = &asked}),
		 EINTR);
	ck_assert_int_eq(asked, 3);
	ck_assert_int_lt(took_ns, 10 * S);
}
END_TEST

START_TEST(what_it_leaves_behind_is_not_waited_for)
{
	ck_ok(shell("(while :; do echo more; sleep 0.01; done) & echo pid $!", 30 * S));
	ck_assert_int_lt(took_ns, 10 * S);
	const char *pid = strstr(ran.output, "pid ");

	ck_assert_ptr_nonnull(pid);
	ck_assert_int_eq(kill(atoi(pid + 4), SIGKILL), 0);
}
END_TEST

START_TEST(what_is_no_program_is_not_started)
{
	char dir[PATH_MAX], path[PATH_MAX + 16];
	const char *const argv[] = {path, NULL};
	struct ckpt_run how = {.argv = argv, .timeout_ns = S};
	int fd;

	ckpt_temp_dir(dir);
	snprintf(path, sizeof(path), "%s/program", dir);
	ck_error(run(&how), ENOENT);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	ck_assert_int_eq(write(fd, "no program\n", 11), 11);
	close(fd);
	ck_error(run(&how), ENOEXEC); // and no shell is tried
	ck_assert_int_eq(chmod(path, 0644), 0);
	ck_error(run(&how), EACCES);
	snprintf(path, sizeof(path), "sh");
	ck_error(run(&how), ENOENT); // it is a path
}
END_TEST

START_TEST(no_descriptor_is_left)
{
	int before = open("/dev/null", O_RDONLY | O_CLOEXEC), after;

	for (int i = 0; i < 5; i++) {
		ck_ok(shell("echo x", 30 * S));
		(void)shell("sleep 1000", S / 100);
	}
	after = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(after, before + 1);
	close(before);
	close(after);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("run");
	TCase *tcase = tcase_create("run");

	tcase_add_test(tcase, its_end_and_its_last_words_are_known);
	tcase_add_test(tcase, of_much_output_the_end_is_kept);
	tcase_add_test(tcase, it_has_our_environment_and_what_is_added);
	tcase_add_test(tcase, it_has_nothing_else_of_ours);
	tcase_add_test(tcase, it_ends_with_all_that_it_has_started);
	tcase_add_test(tcase, told_to_end_it_may_end_well);
	tcase_add_test(tcase, it_has_so_much_time);
	tcase_add_test(tcase, who_runs_it_may_end_it);
	tcase_add_test(tcase, what_it_leaves_behind_is_not_waited_for);
	tcase_add_test(tcase, what_is_no_program_is_not_started);
	tcase_add_test(tcase, no_descriptor_is_left);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

// Plain files that are published whole (core/save/draft.h) when the process dies at any call, when the power goes at any point,
// and when any call fails: under each name is all of an old content or all of a new one; a file step whose publication was
// acknowledged is there; what was left over stays; nothing that is empty is kept.
//
// CKPT_CRASH_SEEDS in the environment: states for each point of a power cut, 20 by default; CKPT_TEST_FULL=1: 80.
#include "core/store/open.h"
#include "tests/support/disk.h"
#include "tests/support/save.h"
#include "tests/support/sysfault.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/draft.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#define BYTES 9000 // several blocks: a part shows

enum file { TRACKER, STEP, FILES };
static const char *const names[FILES] = {"latest.txt", "model.pt"};

enum end { PUBLISH, LEAVE, DROP };

// What is done, in this order. Content 0 is what is there at first: an old tracker, no file step.
static const struct act {
	enum file file;
	char content;
	enum end end;
} acts[] = {
	{TRACKER, 'a', PUBLISH}, {STEP, 'b', PUBLISH}, {STEP, 'c', LEAVE},      {STEP, 'd', PUBLISH},
	{TRACKER, 'e', DROP},    {STEP, 'f', DROP},    {TRACKER, 'g', PUBLISH}, {STEP, 'h', PUBLISH},
};

// When each began and was acknowledged, plus 1; 0: it was not.
struct log {
	uint64_t began[ARRAY_LEN(acts)], done[ARRAY_LEN(acts)];
};

struct shared {
	struct log log;
	struct ckpt_sysfault fault;
};

typedef uint64_t clock_fn(void *arg);

// --- The body ---------------------------------------------------------------------------------------------------------

static int write_draft(struct ckpt_draft *d, char content)
{
	static char data[BYTES];
	CLEANUP_FD int fd = ckpt_sys.open(d->dirfd, d->name, O_RDWR | O_CREAT | O_EXCL, 0644);
	ssize_t n;

	if (fd < 0)
		return fd;
	memset(data, content, sizeof(data));
	n = ckpt_sys.pwrite(fd, data, sizeof(data) / 2, 0);
	if (n >= 0)
		n = ckpt_sys.pwrite(fd, data, sizeof(data) - sizeof(data) / 2, sizeof(data) / 2);
	return n < 0 ? (int)n : ckpt_draft_write_out(d, fd);
}

// As the mount does it.
static int publish(struct ckpt_draft *d, const struct act *act)
{
	int rc = ckpt_draft_publish(d, d->store->tree_fd, names[act->file]);

	return rc ? rc : ckpt_draft_published(d, d->store->tree_fd, act->file == STEP);
}

static int perform(struct ckpt_store *s, const struct act *act)
{
	struct ckpt_draft_origin origin = {
		.path = names[act->file], .name = names[act->file], .folder_id = "", .pid = 1, .folder_fd = -1};
	struct ckpt_draft d;
	int rc = ckpt_draft_begin(s, &origin, &d);

	if (rc)
		return rc;
	rc = write_draft(&d, act->content);
	if (!rc && act->end == PUBLISH)
		rc = publish(&d, act);
	else if (!rc && act->end == LEAVE)
		rc = ckpt_draft_leave(&d);
	else
		ckpt_draft_drop(&d);
	if (rc)
		ckpt_draft_close(&d); // what there is of it is left over
	return rc;
}

static void init(char *ret_dir)
{
	char path[PATH_MAX], data[BYTES];
	FILE *f;

	ckpt_save_init(ret_dir);
	snprintf(path, sizeof(path), "%s/tree/%s", ret_dir, names[TRACKER]);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	memset(data, '0', sizeof(data));
	ck_assert_uint_eq(fwrite(data, 1, sizeof(data), f), sizeof(data));
	fclose(f);
}

static void run(const char *dir, struct log *log, clock_fn *clock, void *arg)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		log->began[i] = clock(arg) + 1;
		ck_ok(perform(s, &acts[i]));
		log->done[i] = clock(arg) + 1;
	}
	ckpt_store_close(s);
}

// --- The check --------------------------------------------------------------------------------------------------------

// The content of a whole file; 0: there is none; '?': it is none that was written.
static char content_of(int dirfd, const char *name)
{
	char data[BYTES + 1];
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY, 0);

	if (fd == -ENOENT)
		return 0;
	ck_ok(fd);
	if (ckpt_sys.pread(fd, data, sizeof(data), 0) != BYTES)
		return '?';
	for (size_t i = 1; i < BYTES; i++)
		if (data[i] != data[0])
			return '?';
	return data[0];
}

static bool is_over(const struct log *log, size_t act, uint64_t point)
{
	return log->done[act] && log->done[act] <= point + 1;
}

static bool is_begun(const struct log *log, size_t act, uint64_t point)
{
	return log->began[act] && log->began[act] <= point + 1;
}

// durable: file steps only; a tracker's rename is on disk when the disk's filesystem likes.
static void check_name(struct ckpt_store *s, const struct log *log, enum file file, uint64_t point, bool power)
{
	char have = content_of(s->tree_fd, names[file]), first = file == TRACKER ? '0' : 0;
	bool allowed = have == first;

	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		if (acts[i].file != file || acts[i].end != PUBLISH || !is_begun(log, i, point))
			continue;
		if (is_over(log, i, point) && (file == STEP || !power))
			allowed = false; // nothing older
		allowed |= have == acts[i].content;
	}
	ck_assert_msg(allowed, "%s has '%c'", names[file], have ? have : '-');
}

// A session of a draft has its file, and each is listed; ret_left: which contents are left over, whole.
static void check_sessions(struct ckpt_store *s, char *ret_left)
{
	int fd = ckpt_sys.open(s->sessions_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	size_t seen = 0;

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		char content = 0;
		int session;

		if (e->d_name[0] == '.')
			continue;
		seen++;
		session = ckpt_sys.open(s->sessions_fd, e->d_name, O_RDONLY | O_DIRECTORY, 0);
		ck_ok(session);
		for (enum file f = 0; f < FILES; f++)
			if (!faccessat(session, names[f], F_OK, 0))
				content = content_of(session, names[f]);
		ckpt_sys.close(session);
		ck_assert_msg(content, "the session %s is left over and has no file", e->d_name);
		ret_left[(unsigned char)content] = 1;
	}
	closedir(dir);
	ck_assert_uint_eq(seen, ckpt_save_count(s, CKPT_STEP_LEFT));
}

static void check(const char *dir, const struct log *log, uint64_t point, bool power)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	char left[256] = {0};

	for (enum file f = 0; f < FILES; f++)
		check_name(s, log, f, point, power);
	check_sessions(s, left);
	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		if (acts[i].end == LEAVE && is_over(log, i, point) && !power)
			ck_assert_msg(left[(unsigned char)acts[i].content], "'%c' was left over and is gone",
				      acts[i].content);
		if (acts[i].end == DROP && is_over(log, i, point) && !power)
			ck_assert(!left[(unsigned char)acts[i].content]);
		if (acts[i].end == PUBLISH && is_over(log, i, point) && !power)
			ck_assert(!left[(unsigned char)acts[i].content]);
	}
	ck_ok(perform(s, &(struct act){STEP, 'z', PUBLISH}));
	ck_assert_int_eq(content_of(s->tree_fd, names[STEP]), 'z');
	ckpt_store_close(s);
}

// --- The process dies -------------------------------------------------------------------------------------------------

static uint64_t calls(void *arg)
{
	return __atomic_load_n(&((struct shared *)arg)->fault.count, __ATOMIC_RELAXED);
}

static bool died(const char *dir, uint64_t n, struct shared *shared)
{
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	shared->fault = (struct ckpt_sysfault){.at = n, .die = ckpt_sysfault_kill};
	pid = fork();
	if (!pid) {
		ckpt_sysfault_begin(&shared->fault);
		run(dir, &shared->log, calls, shared);
		_exit(0);
	}
	return ckpt_sysfault_killed(pid, n);
}

START_TEST(deaths_at_every_call_leave_the_old_or_the_new)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool again = true;
	uint64_t n = 1;

	for (; again; n++) {
		char dir[PATH_MAX];

		init(dir);
		again = died(dir, n, shared);
		check(dir, &shared->log, UINT64_MAX - 1, false);
		ckpt_temp_empty(dir, true);
	}
	printf("death: %llu calls\n", (unsigned long long)n);
	ck_assert_uint_gt(n, 50);
}
END_TEST

// --- The power goes ---------------------------------------------------------------------------------------------------

static uint64_t disk_clock(void *arg)
{
	return ckpt_disk_count(arg);
}

START_TEST(power_cuts_at_every_point_leave_the_old_or_the_new)
{
	unsigned seeds = ckpt_suite_seeds(20, 80);
	char dir[PATH_MAX], out[PATH_MAX];
	struct ckpt_disk *disk;
	struct log log = {0};
	size_t states = 0;

	init(dir);
	ckpt_temp_dir(out);
	ck_ok(ckpt_disk_begin(dir, &disk));
	run(dir, &log, disk_clock, disk);
	ckpt_disk_end(disk);
	ck_assert_uint_eq(ckpt_disk_unknown(disk), 0);
	for (size_t point = 0; point <= ckpt_disk_count(disk); point++)
		for (unsigned seed = 0; seed < seeds; seed++, states++) {
			ck_ok(ckpt_disk_crash(disk, point, seed, out));
			check(out, &log, point, true);
			ckpt_temp_empty(out, false);
		}
	printf("power: %zu states\n", states);
	ckpt_disk_free(disk);
}
END_TEST

// --- A call fails -----------------------------------------------------------------------------------------------------

// Each act with its call n failing, then once more without.
START_TEST(a_call_that_fails_leaves_the_old_and_a_second_attempt_works)
{
	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		bool again = true;

		for (uint64_t n = 1; again; n++) {
			struct ckpt_sysfault fault = {.at = n, .error = ckpt_sysfault_error(_i, n), .torn = true};
			char dir[PATH_MAX], have;
			struct ckpt_store *s;
			int rc;

			init(dir);
			s = ckpt_save_open(dir);
			ckpt_sysfault_begin(&fault);
			rc = perform(s, &acts[i]);
			ckpt_sysfault_end(&fault);
			again = fault.count >= n;
			have = content_of(s->tree_fd, names[acts[i].file]);
			if (!rc && acts[i].end == PUBLISH)
				ck_assert_int_eq(have, acts[i].content);
			else // where only the fsync of the name failed, the new is there
				ck_assert(have == (acts[i].file == TRACKER ? '0' : 0) || have == acts[i].content);
			ck_ok(perform(s, &acts[i]));
			if (acts[i].end == PUBLISH)
				ck_assert_int_eq(content_of(s->tree_fd, names[acts[i].file]), acts[i].content);
			ckpt_store_close(s);
			ckpt_temp_empty(dir, true);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("draft crash");
	TCase *death = tcase_create("death"), *power = tcase_create("power"), *failure = tcase_create("failure");

	tcase_add_test(death, deaths_at_every_call_leave_the_old_or_the_new);
	suite_add_tcase(suite, death);
	tcase_add_test(power, power_cuts_at_every_point_leave_the_old_or_the_new);
	suite_add_tcase(suite, power);
	tcase_add_loop_test(failure, a_call_that_fails_leaves_the_old_and_a_second_attempt_works, 0,
			    ckpt_sysfault_kinds());
	suite_add_tcase(suite, failure);
	return ckpt_suite_run(suite);
}

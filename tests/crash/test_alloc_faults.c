// What core does when any allocation fails, once or from then on: it is done, or it answers -ENOMEM (-EAGAIN: no thread) and
// all is as before, in memory and on the disk; trying again works; and no descriptor is left open.
#include "tests/support/allocfault.h"
#include "tests/support/trial.h"

#include "core/move.h"
#include "core/sys.h"
#include "core/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define POINTS_DEFAULT 8 // of each act, and each way; all of them with CKPT_TEST_FULL

// --- What there is ----------------------------------------------------------------------------------------------------

static void look_at_tree(FILE *out, int dirfd, const char *path, int depth)
{
	struct dirent **names;
	int count = scandirat(dirfd, path, &names, NULL, alphasort);

	for (int i = 0; i < count; i++) {
		char below[PATH_MAX];
		struct stat st;

		snprintf(below, sizeof(below), "%.2000s/%s", path, names[i]->d_name);
		if (names[i]->d_name[0] != '.' && !fstatat(dirfd, below, &st, AT_SYMLINK_NOFOLLOW)) {
			fprintf(out, "  %*s%s %o\n", depth, "", names[i]->d_name, st.st_mode);
			if (S_ISDIR(st.st_mode))
				look_at_tree(out, dirfd, below, depth + 1);
		}
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

static int names_in(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

static void look_at_files(FILE *out, struct ckpt_step *step)
{
	struct ckpt_manifest *m;

	if (ckpt_step_manifest(step, &m)) {
		ck_assert_int_eq(ckpt_step_state(step), CKPT_STEP_DELETED); // and expires
		return;
	}
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		char path[PATH_MAX], bytes[32] = "";
		struct ckpt_entry e;
		int fd;

		ckpt_manifest_entry(m, i, &e);
		ck_ok(ckpt_manifest_path(m, i, path, sizeof(path)));
		if (e.type == CKPT_ENTRY_FILE && !ckpt_step_open_raw(step, m, i, &fd)) {
			ck_ok(ckpt_sys.pread(fd, bytes, sizeof(bytes) - 1, 0));
			close(fd);
		}
		fprintf(out, "  %s %d %o %u %u %llu %s\n", path, e.type, e.mode, e.nlink, e.xattrs,
			e.type == CKPT_ENTRY_DIR ? 0 : (unsigned long long)e.bytes, bytes);
	}
	ckpt_manifest_unref(m);
}

static void look_at_step(FILE *out, struct ckpt_step *step)
{
	static const char *const states[] = {"", "staged", "committing", "committed", "deleted", "left", "gone"};
	enum ckpt_step_state state = ckpt_step_state(step);
	bool has_manifest = ckpt_step_has_manifest(state);
	struct ckpt_record r = {0};

	fprintf(out, "%s %s%s", states[state], *step->folder_id ? "*/" : "", step->name);
	if (has_manifest && !step->moved && !ckpt_step_record(step, step->summary.version, &r)) {
		fprintf(out, " v%u by v%u %s %s%s%s\n", step->summary.version, step->deleted_by, r.metadata,
			step->summary.event, step->summary.pinned ? " pinned" : "",
			step->summary.temporary ? " temporary" : "");
		look_at_files(out, step);
		ckpt_record_done(&r);
	} else if (!has_manifest) {
		fprintf(out, " from v%u%s%s%s\n", step->from_version, step->is_file ? " file" : "",
			step->add_only ? " add-only" : "", step->from_plain ? " plain" : "");
		look_at_tree(out, step->store->sessions_fd, step->session, 0);
	} else {
		ck_assert_int_eq(state, CKPT_STEP_DELETED);
		fprintf(out, "%s\n", step->moved ? " moved" : "");
	}
}

// Without what differs from trial to trial: times, sessions, ids of folders.
static char *look(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	char *text = NULL;
	size_t count, len;
	FILE *out = open_memstream(&text, &len);
	CLEANUP_FREE char *lines = ckpt_settings_lines(&s->settings);

	ck_ok(ckpt_step_list(s, NULL, ~0u, &steps, &count));
	for (size_t i = 0; i < count; i++)
		look_at_step(out, steps[i]);
	ckpt_step_list_free(steps, count);
	fprintf(out, "%d sessions, %d temporary\n", names_in(s->dirfd, "sessions"),
		MAX(names_in(s->dirfd, "tmp"), 3)); // it has "lock"
	look_at_tree(out, s->tree_fd, ".", 0);
	fputs(lines, out);
	fclose(out);
	return text;
}

static char *look_at_disk(const char *dir)
{
	struct ckpt_store *s;
	char *text;
	int rc = ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s);

	if (rc)
		return strdup(strerror(-rc));
	text = look(s);
	ckpt_store_close(s);
	return text;
}

// --- The loop ----------------------------------------------------------------------------------------------------------

struct seen {
	char *here, *disk;
};

static struct seen see(const struct ckpt_trial *t)
{
	struct ckpt_store *s = t->reader ? t->reader : t->s;

	return (struct seen){s ? look(s) : strdup("closed"), look_at_disk(t->dir)};
}

static void seen_done(struct seen *seen)
{
	free(seen->here);
	free(seen->disk);
}

// When the store is opened anew.
static struct seen see_anew(const char *dir)
{
	struct ckpt_trial t = {.s = ckpt_save_open(dir), .draft.dirfd = -1};
	struct seen seen;

	snprintf(t.dir, sizeof(t.dir), "%s", dir);
	ckpt_trial_settle(&t);
	seen = see(&t);
	ckpt_trial_end(&t);
	return seen;
}

// Of an act without a fault.
struct outcome {
	struct seen after, anew;
	char said[sizeof(((struct ckpt_trial *)0)->said)];
	uint64_t allocations;
};

static void learn(const struct ckpt_trial_act *act, struct outcome *ret)
{
	struct ckpt_trial t;

	ckpt_trial_begin(&t, act);
	ckpt_allocfault_begin(0, false);
	int rc = ckpt_trial_do(&t, act);

	ret->allocations = ckpt_allocfault_end();
	ck_ok(rc);
	ret->after = see(&t);
	memcpy(ret->said, t.said, sizeof(ret->said));
	ckpt_trial_end(&t);
	ret->anew = see_anew(t.dir);
	ckpt_temp_empty(t.dir, true);
}

static void outcome_done(struct outcome *o)
{
	seen_done(&o->after);
	seen_done(&o->anew);
}

static void assert_same_text(const char *is, const char *want, const char *where, const char *when)
{
	size_t line = 0;

	for (size_t i = 0; is[i] && is[i] == want[i]; i++)
		if (is[i] == '\n')
			line = i + 1;
	ck_assert_msg(!strcmp(is, want), "%s: %s is\n%.1000s\nnot\n%.1000s", when, where, is + line, want + line);
}

static void assert_same(const struct seen *is, const struct seen *want, const char *when)
{
	assert_same_text(is->here, want->here, "in memory", when);
	assert_same_text(is->disk, want->disk, "on disk", when);
}

static int open_descriptors(void)
{
	return names_in(AT_FDCWD, "/proc/self/fd");
}

// The act is done, or all is as before and a second attempt works.
static void check(struct ckpt_trial *t, const struct ckpt_trial_act *act, int rc, const struct seen *before,
		  const struct outcome *good)
{
	struct seen is;

	ck_assert_msg(!rc || rc == -ENOMEM || rc == -EAGAIN, "%s", strerror(-rc));
	if (!rc && !strcmp(act->name, "move"))
		ck_ok(ckpt_move_confirm(t->step)); // as the next act or open does, where the move had no memory for it
	is = see(t);
	if (rc && !(act->leaves & CKPT_TRIAL_PARTS))
		assert_same(&is, before, "it failed");
	if (rc) {
		rc = ckpt_trial_do(t, act);
		ck_assert_msg(!rc, "the second attempt: %s", strerror(-rc));
		seen_done(&is);
		is = see(t);
	}
	assert_same(&is, &good->after, "it was done");
	ck_assert_str_eq(t->said, good->said);
	seen_done(&is);
}

static void faulty(const struct ckpt_trial_act *act, const struct outcome *good, uint64_t n, bool sticky)
{
	int descriptors = open_descriptors(), rc;
	struct seen before, anew;
	struct ckpt_trial t;

	ckpt_trial_begin(&t, act);
	before = see(&t);
	ckpt_allocfault_begin(n, sticky);
	rc = ckpt_trial_do(&t, act);
	ckpt_allocfault_end();
	check(&t, act, rc, &before, good);
	ckpt_trial_end(&t);
	anew = see_anew(t.dir);
	if (!(act->leaves & CKPT_TRIAL_LATER))
		assert_same(&anew, &good->anew, "it is opened again");
	seen_done(&anew);
	seen_done(&before);
	ck_assert_int_eq(open_descriptors(), descriptors);
	ckpt_temp_empty(t.dir, true);
}

START_TEST(an_allocation_that_fails_fails_the_act_or_does_no_harm)
{
	const struct ckpt_trial_act *act = &ckpt_trial_acts[_i / 2];
	const char *full = getenv("CKPT_TEST_FULL");
	struct outcome good;
	uint64_t step = 1;

	learn(act, &good);
	ck_assert_uint_gt(good.allocations, 0); // else nothing is tried
	if (!full || !atoi(full))
		step = MAX(good.allocations / POINTS_DEFAULT, step);
	printf("%s: %llu allocations%s\n", act->name, (unsigned long long)good.allocations,
	       _i % 2 ? ", all from the one on" : "");
	// Threads may make some more, or less.
	for (uint64_t n = 1; n <= good.allocations + 2; n += step) {
		printf("%llu ", (unsigned long long)n);
		fflush(stdout); // where it is, should it crash
		faulty(act, &good, n, _i % 2);
	}
	printf("\n");
	outcome_done(&good);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alloc faults");

	for (int i = 0; i < (int)ckpt_trial_act_count; i++) {
		TCase *tcase = tcase_create(ckpt_trial_acts[i].name);

		tcase_add_loop_test(tcase, an_allocation_that_fails_fails_the_act_or_does_no_harm, 2 * i, 2 * i + 2);
		suite_add_tcase(suite, tcase);
	}
	return ckpt_suite_run(suite);
}

// umount: waits for pending work, looks whether somebody is still saving, unmounts, and waits until the store is closed.
#include "core/step/holder.h"
#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/ask.h"
#include "core/step/mounts.h"
#include "tools/operand.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define POLL_NS INT64_C(100000000)
#define GONE_WAIT_NS INT64_C(10000000000)
#define WRITTEN_NS INT64_C(60000000000) // a step that was written within this time is still being saved

static json_int_t number_in(const json_t *status, const char *group, const char *field)
{
	return json_integer_value(json_object_get(json_object_get(status, group), field));
}

// It is slow to answer, and may have a commit under way for all we know.
static bool is_slow(int rc)
{
	return rc == -ETIMEDOUT || rc == -EAGAIN || rc == -EPIPE || rc == -ECONNRESET || rc == -EINTR;
}

// Changes that an object store which does not answer has not got yet wait for the next mount.
static uint64_t uploads(const json_t *status)
{
	bool answers = !json_is_number(json_object_get(json_object_get(status, "uploading"), "unreachable_s"));
	uint64_t steps = (uint64_t)number_in(status, "uploading", "steps");
	uint64_t files = (uint64_t)number_in(status, "uploading", "files");
	size_t failed = json_array_size(json_object_get(json_object_get(status, "uploading"), "failed"));

	if (failed && !steps) {
		ckpt_note("%zu of its steps cannot be uploaded, and files behind them wait for the next mount: "
			  "`ckptfs status` has the reason",
			  failed);
		return 0;
	}
	if (answers || !(steps + files))
		return steps + files;
	ckpt_note("the object store does not answer: %llu of its steps and %llu plain files wait for the next mount",
		  (unsigned long long)steps, (unsigned long long)files);
	return 0;
}

// What the mount still has to do, in things: none when there is nobody to ask. -errno: it cannot be known. *staged is
// replaced by the steps that are not completed.
static int pending(const char *store, uint64_t *ret_count, json_t **staged)
{
	CLEANUP_FREE char *reply = NULL;
	json_t *status;
	int rc = ckpt_ask(store, "{\"verb\":\"status\"}", CKPT_SOCKET_TIMEOUT_S, &reply);

	if (rc == -ENOENT)
		*ret_count = 0;
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	status = json_loads(reply, 0, NULL);
	*ret_count = json_array_size(json_object_get(status, "committing")) + uploads(status) +
		     (uint64_t)json_integer_value(json_object_get(status, "on_commit"));
	json_decref(*staged);
	*staged = json_incref(json_object_get(status, "staged"));
	json_decref(status);
	return 0;
}

static int wait_for_work(const char *store, json_t **staged)
{
	uint64_t left = 1, most = 0;
	bool told = false;
	int rc = 0;

	while (left && (!rc || is_slow(rc))) {
		rc = pending(store, &left, staged);
		if (is_slow(rc) && !told)
			ckpt_note("the process that has it mounted does not answer: waiting; --now does not wait");
		told |= rc != 0;
		if (!rc && left > most) {
			if (most)
				ckpt_progress_total(left);
			else
				ckpt_progress_start("pending work", left, false);
			most = left;
		}
		if (!rc)
			ckpt_progress_update(most - left);
		if (left)
			ckpt_sys.sleep_ns(POLL_NS);
	}
	if (most)
		ckpt_progress_stop();
	return left ? rc : 0;
}

// fusermount3 undoes a user's own mount. 0, or -errno with its last words in *ret_why.
static int run_fusermount(const char *dir, bool detach, char **ret_why)
{
	char *const args[] = {"fusermount3", detach ? "-uz" : "-u", "--", (char *)dir, NULL};
	char text[512], *newline;
	posix_spawn_file_actions_t actions;
	int pipe_fds[2], status, rc;
	ssize_t n;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC))
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
	rc = -posix_spawnp(&pid, args[0], &actions, NULL, args, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[1]);
	n = rc ? 0 : read(pipe_fds[0], text, sizeof(text) - 1);
	close(pipe_fds[0]);
	if (rc)
		return rc;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	text[n > 0 ? n : 0] = '\0';
	newline = strchr(text, '\n');
	if (newline)
		*newline = '\0';
	*ret_why = *text ? ckpt_text("%s", text) : NULL;
	return strcasestr(text, "busy") ? -EBUSY : -EPERM;
}

// A mount whose process has died or hangs at its end must go, too: it is detached.
static int unmount(const char *dir, bool detach, char **ret_why)
{
	int rc;

	if (geteuid())
		return run_fusermount(dir, detach, ret_why);
	rc = umount2(dir, UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) ? -errno : 0;
	if (rc == -ENOTCONN || rc == -ECONNABORTED)
		rc = umount2(dir, UMOUNT_NOFOLLOW | MNT_DETACH) ? -errno : 0;
	return rc;
}

static bool still_held(const char *store, int pid)
{
	struct ckpt_holder holder = {0};
	bool held = !ckpt_store_holder(store, &holder) && holder.pid == pid;

	ckpt_holder_done(&holder);
	return held;
}

// umount(2) returns before the serving process has closed the store; a mount that follows must find it free.
static void wait_until_gone(const char *store, const struct ckpt_holder *holder)
{
	int64_t deadline = ckpt_sys.mono_ns() + GONE_WAIT_NS;

	while (still_held(store, holder->pid) && ckpt_sys.mono_ns() < deadline)
		ckpt_sys.sleep_ns(POLL_NS / 10);
}

// A step that is not complete stays: what completes it, and what drops it.
static void tell_unfinished(const char *dir, const json_t *staged)
{
	const json_t *first = json_array_get(staged, 0);
	size_t count = json_array_size(staged);
	const char *id = json_string_value(json_object_get(first, "id"));
	const char *name = json_string_value(json_object_get(first, "name"));

	if (count == 1)
		ckpt_note("%s is not complete yet, its files are kept: `ckptfs commit %s %s` completes it, `ckptfs "
			  "abort %s "
			  "%s` drops it",
			  name ? name : id, dir, name ? name : id, dir, name ? name : id);
	else if (count)
		ckpt_note("%zu steps are not complete yet, their files are kept: `ckptfs sessions %s`", count, dir);
}

// How long ago a staged step was written; INT64_MAX: nobody knows, or it is left over.
static int64_t written_ago(const json_t *session)
{
	const char *changed = json_string_value(json_object_get(session, "changed_at"));
	const char *state = json_string_value(json_object_get(session, "state"));
	int64_t at_ns;

	if (!changed || !state || !strcmp(state, "left") || ckpt_time_parse(changed, false, &at_ns))
		return INT64_MAX;
	return MAX(ckpt_time_between(at_ns, ckpt_sys.now_ns()), 0);
}

// A program that is between two files of a save has none open: the kernel would let us unmount beneath it.
static int refuse_while_written(const char *dir, const json_t *staged)
{
	const json_t *session, *newest = NULL;
	int64_t least_ns = WRITTEN_NS;
	char ago[CKPT_DURATION_MAX];
	size_t i, more = 0;

	json_array_foreach(staged, i, session)
	{
		int64_t ago_ns = written_ago(session);

		more += ago_ns < WRITTEN_NS;
		if (ago_ns >= least_ns)
			continue;
		least_ns = ago_ns;
		newest = session;
	}
	if (!newest)
		return 0;
	ckpt_duration_text(least_ns, ago);
	CLEANUP_FREE char *others = more > 1 ? ckpt_text(", and %zu more", more - 1) : ckpt_text("%s", "");
	CLEANUP_FREE char *hint =
		ckpt_text("wait until it is saved (`ckptfs status %s` shows it), or use --force: what was "
			  "written is kept",
			  dir);

	return ckpt_fail(dir, hint, "%s is being saved: it was written %s ago%s",
			 json_string_value(json_object_get(newest, "name")), ago, others);
}

struct umount {
	bool now, dead, force;
};

// What is pending and what is staged. With --now the mount is asked once, for the latter.
static int ask_mount(const struct ckpt_mounted *m, const struct umount *how, json_t **staged)
{
	uint64_t left;
	int rc = how->now ? pending(m->store, &left, staged) : wait_for_work(m->store, staged);

	if (!rc)
		return how->force ? 0 : refuse_while_written(m->mountpoint, *staged);
	if (how->now && how->force)
		return 0;
	return ckpt_fail(m->mountpoint, how->now ? "--now --force does not ask" : "--now does not wait for it",
			 "cannot ask the mount for its pending work: %s", strerror(-rc));
}

static int umount_one(const struct ckpt_mounted *m, const struct umount *how)
{
	struct ckpt_holder holder = {0};
	CLEANUP_FREE char *why = NULL, *hint = NULL;
	bool serves;
	json_t *staged = NULL;
	int rc = how->dead || m->readonly ? 0 : ask_mount(m, how, &staged);

	if (rc) {
		json_decref(staged);
		return rc;
	}
	serves = !m->readonly && !ckpt_store_holder(m->store, &holder) && ckpt_holder_is_at(&holder, m->mountpoint);
	rc = unmount(m->mountpoint, how->dead, &why);
	if (!rc && serves)
		wait_until_gone(m->store, &holder);
	if (!rc)
		tell_unfinished(m->store, staged);
	json_decref(staged);
	ckpt_holder_done(&holder);
	if (rc == -EBUSY) {
		hint = ckpt_text("`fuser -vm %s` names the processes that use it", m->mountpoint);
		return ckpt_fail(m->mountpoint, hint,
				 "a process has files in it open, or has it as its current directory");
	}
	if (rc == -ENOENT)
		return ckpt_fail(m->mountpoint, "install fuse3", "fusermount3 is missing");
	if (rc && why)
		return ckpt_fail(m->mountpoint, NULL, "%s", why);
	return rc ? ckpt_fail_errno(m->mountpoint, NULL, rc) : 0;
}

static int umount_option(int key, char *arg __attribute__((unused)), void *input)
{
	struct umount *how = input;

	*(key == 'n' ? &how->now : key == 'd' ? &how->dead : &how->force) = true;
	return 0;
}

static bool is_dead(const char *dir)
{
	struct statfs st; // unlike stat(2) never answered by the kernel alone

	return statfs(dir, &st) && (errno == ENOTCONN || errno == ECONNABORTED);
}

int ckpt_verb_umount(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"now", 'n', NULL, 0, "do not wait for pending work; the next mount does it", 0},
		{"force", 'f', NULL, 0, "also while a step is being saved; what was written is kept", 0},
		{"dead", 'd', NULL, 0,
		 "only unmount a mount whose process has died, also if files in it are open; "
		 "otherwise do nothing",
		 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "DIR",
		.no_options = true,
		.doc = "Waits for pending work, then unmounts the store that is mounted on DIR.\v"
		       "If a staged step was written in the last minute, it is being saved. Then umount is "
		       "refused and names the step, also with --now. umount(8) cannot be refused; nothing "
		       "is lost by it.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs umount /ckpt\n"
		       "  ckptfs umount --now /ckpt",
		.options = options,
		.option = umount_option,
		.operands_min = 1,
		.operands_max = 1,
	};
	CLEANUP_FREE char *path = NULL;
	const struct ckpt_mounted *m;
	struct ckpt_mounts mounts;
	struct ckpt_words words;
	const char *inside;
	struct umount how = {0};
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &how, &words);
	path = ckpt_path_absolute(words.at[0]);
	if (how.dead && !is_dead(path))
		return 0;
	rc = ckpt_mounts_read(&mounts);
	if (rc)
		return ckpt_fail_errno("/proc/self/mountinfo", NULL, rc);
	m = ckpt_mounts_find(&mounts, path, &inside);
	if (!m || *inside)
		rc = ckpt_fail(words.at[0], "`ckptfs status` lists the mounts", "no ckptfs is mounted there");
	else
		rc = umount_one(m, &how);
	ckpt_mounts_done(&mounts);
	return rc;
}

// mount and umount, and mount.fuse.ckptfs.
#include "tools/verb.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/store/ask.h"
#include "core/store/mounts.h"
#include "fs/mount.h"
#include "tools/mount_options.h"
#include "tools/operand.h"
#include "tools/output.h"
#include "tools/progress.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define POLL_NS INT64_C(100000000)
#define GONE_WAIT_NS INT64_C(10000000000)

// --- mount ----------------------------------------------------------------------------------------------------------

static int mount_option(int key, char *arg, void *input)
{
	struct ckpt_mount *m = input;

	if (key == 'o')
		return ckpt_mount_options(arg, m);
	m->foreground = true;
	return 0;
}

// The mount serves in this process: signals are fs's affair from here on.
static int mount_now(struct ckpt_mount *m, const char *store, const char *dir)
{
	CLEANUP_FREE char *store_path = NULL, *dir_path = ckpt_path_absolute(dir), *why = NULL, *hint = NULL;
	int rc = ckpt_operand_directory(store, &store_path);

	if (rc)
		return rc;
	m->store = store_path;
	m->mountpoint = dir_path;
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	rc = ckpt_mount_run(m, &why, &hint);
	ckpt_settings_done(&m->settings);
	if (!rc)
		return 0;
	if (!why)
		return ckpt_fail_errno(dir, hint, rc);
	return ckpt_fail(NULL, hint, "%s", why); // it names what it is about
}

static const struct argp_option mount_option_list[] = {
	{"options", 'o', "OPTS", 0, "mount options, see below; may be repeated", 0},
	{"foreground", 'f', NULL, 0, "stay in the foreground, log to stderr (default: return once the mount answers)",
	 0},
	{0},
};

int ckpt_verb_mount(int argc, char **argv)
{
	const struct ckpt_syntax syntax = {
		.operands = "STORE DIR",
		.doc = "Mounts the store STORE on the directory DIR; makes the store if there is none.\v"
		       "Examples:\n"
		       "  ckptfs mount /data/run42 /ckpt\n"
		       "  ckptfs mount -f -o ro,allow_other /data/run42 /mnt/ckpt",
		.options = mount_option_list,
		.option = mount_option,
		.values = ckpt_mount_options_help(),
		.values_title = CKPT_MOUNT_OPTIONS_TITLE,
		.operands_min = 2,
		.operands_max = 2,
	};
	struct ckpt_mount m = {0};
	struct ckpt_words words;

	ckpt_settings_init(&m.settings);
	ckpt_verb_parse(&syntax, argc, argv, &m, &words);
	return mount_now(&m, words.at[0], words.at[1]);
}

struct helper {
	struct ckpt_mount mount;
	bool fake;
};

static int helper_option(int key, char *arg, void *input)
{
	struct helper *h = input;

	h->fake |= key == 'f';
	return key == 'o' ? ckpt_mount_options(arg, &h->mount) : 0;
}

// The options are those that mount(8) gives to its helpers.
int ckpt_verb_mount_helper(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{NULL, 'o', "OPTS", 0, "mount options, see below; may be repeated", 0},
		{NULL, 'f', NULL, 0, "only check the words, and mount nothing", 0},
		{NULL, 's', NULL, 0, "accepted, changes nothing", 0},
		{NULL, 'n', NULL, 0, "accepted, changes nothing", 0},
		{NULL, 't', "TYPE", 0, "accepted, changes nothing", 0},
		{NULL, 'N', "NAMESPACE", 0, "accepted, changes nothing", 0},
		{0},
	};
	const struct ckpt_syntax syntax = {
		.operands = "STORE DIR",
		.doc = "Mounts the store STORE on the directory DIR, for mount(8); makes the store if there is none.\v"
		       "Examples:\n"
		       "  mount -t fuse.ckptfs /data/run42 /ckpt\n"
		       "  mount -t fuse.ckptfs -o ro,allow_other /data/run42 /mnt/ckpt",
		.options = options,
		.option = helper_option,
		.values = ckpt_mount_options_help(),
		.values_title = CKPT_MOUNT_OPTIONS_TITLE,
		.operands_min = 2,
		.operands_max = 2,
	};
	struct helper h = {0};
	struct ckpt_words words;

	ckpt_settings_init(&h.mount.settings);
	ckpt_verb_parse(&syntax, argc, argv, &h, &words);
	return h.fake ? 0 : mount_now(&h.mount, words.at[0], words.at[1]);
}

// --- umount ---------------------------------------------------------------------------------------------------------

static json_int_t number_in(const json_t *status, const char *group, const char *field)
{
	return json_integer_value(json_object_get(json_object_get(status, group), field));
}

// It is slow to answer, and may have a commit under way for all we know.
static bool is_slow(int rc)
{
	return rc == -ETIMEDOUT || rc == -EAGAIN || rc == -EPIPE || rc == -ECONNRESET || rc == -EINTR;
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
	*ret_count = json_array_size(json_object_get(status, "committing")) +
		     (uint64_t)number_in(status, "uploading", "steps") +
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

// One line, however many there are.
static void tell_unfinished(const char *store, const json_t *staged)
{
	const json_t *one = json_array_get(staged, 0);
	const char *id = json_string_value(json_object_get(one, "id"));
	const char *name = json_string_value(json_object_get(one, "name"));

	if (json_array_size(staged) > 1)
		ckpt_note("%zu steps are not complete, their files are kept: `ckptfs sessions %s`",
			  json_array_size(staged), store);
	else if (one)
		ckpt_note("%s is not complete, its files are kept: `ckptfs commit %s %s` completes it, `ckptfs abort "
			  "%s %s` "
			  "drops it",
			  name ? name : id, store, id, store, id);
}

struct umount {
	bool now, dead;
};

static int umount_one(const struct ckpt_mounted *m, const struct umount *how)
{
	struct ckpt_holder holder = {0};
	CLEANUP_FREE char *why = NULL, *hint = NULL;
	bool serves;
	json_t *staged = NULL;
	int rc = how->now || how->dead || m->readonly ? 0 : wait_for_work(m->store, &staged);

	if (rc) {
		json_decref(staged);
		return ckpt_fail(m->mountpoint, "--now does not wait for it",
				 "whether work is pending cannot be asked: %s", strerror(-rc));
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
		return ckpt_fail(m->mountpoint, hint, "files in it are open, or it is somebody's current directory");
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

	*(key == 'n' ? &how->now : &how->dead) = true;
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
		{"now", 'n', NULL, 0, "do not wait for pending work: the next mount does it", 0},
		{"dead", 'd', NULL, 0,
		 "only a mount whose process has died, and even if files in it are open; where there is none, nothing "
		 "is done",
		 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "DIR",
		.doc = "Waits for pending work, then unmounts the store that is mounted on DIR.\v"
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

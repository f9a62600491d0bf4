// The life of a mount:
//   check    the request, before anything exists            ckpt_mount_run()
//   fork     unless in the foreground                       ckpt_mount_run()
//   open     the store, its lock, the session, the socket   serve()
//   answer   INIT is agreed; the parent is told             op_init()
//   ready    the service manager is told, if there is one   answer_init()
//   loop     until unmounted or a signal                    serve()
//   close    parked calls, commits, the index               serve(), in five seconds (end.h)
#include "fs/mount.h"

#include "core/base/actor.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/remote.h"
#include "core/step/holder.h"
#include "core/step/mounts.h"
#include "core/step/successor.h"
#include "core/store/open.h"
#include "core/view/array_cache.h"
#include "core/view/array_file.h"
#include "fs/abilities.h"
#include "fs/beside.h"
#include "fs/call.h"
#include "fs/decider.h"
#include "fs/draft.h"
#include "fs/end.h"
#include "fs/folder.h"
#include "fs/fs.h"
#include "fs/handle.h"
#include "fs/hook.h"
#include "fs/listener.h"
#include "fs/log.h"
#include "fs/look_again.h"
#include "fs/mount_check.h"
#include "fs/notify.h"
#include "fs/ops.h"
#include "fs/others.h"
#include "fs/shown.h"
#include "fs/signals.h"
#include "fs/tell.h"
#include "fs/unstage.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define OVERLAYFS_MAGIC 0x794c7630
#define WRITE_BYTES_MAX (1u << 20)
#define READ_AHEAD_KIB 2048 // two requests of the largest size under way
#define THREADS_MAX 16      // that serve requests; whatever waits for a disk has threads of its own

static int pipe_to_parent = -1; // it waits for the outcome (mount_check.h)

static void tell_parent(int rc)
{
	if (pipe_to_parent < 0)
		return;
	mount_outcome.rc = rc;
	if (write(pipe_to_parent, &mount_outcome, sizeof(mount_outcome)) < 0)
		ckpt_log(CKPT_LOG_WARN, "the process that started the mount has ended");
	close(TAKE_FD(pipe_to_parent));
}

// A line of the log that who mounts by hand should see, too.
__attribute__((format(printf, 2, 3))) static void tell_starter(enum ckpt_log_level level, const char *text, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, text);
	vsnprintf(line, sizeof(line), text, ap);
	va_end(ap);
	ckpt_log(level, "%s", line);
	if (pipe_to_parent >= 0)
		fprintf(stderr, "ckptfs: %s\n", line);
}

// --- INIT -------------------------------------------------------------------------------------------------------------

static void become_daemon(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	if (chdir("/"))
		ckpt_log(CKPT_LOG_WARN, "cannot leave the working directory");
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	close(null);
}

static bool on_stacked_filesystem(struct ckpt_fs *fs)
{
	struct statfs st;

	return !fstatfs(fs->store->tree_fd, &st) && st.f_type == OVERLAYFS_MAGIC;
}

static void agree_on_passthrough(struct ckpt_fs *fs, struct fuse_conn_info *conn)
{
	struct ckpt_mount_abilities can;

	ckpt_mount_abilities(&can);
	if (fs->mount->no_passthrough)
		fs->passthrough_why = "switched off by no_passthrough";
	else if (!can.passthrough)
		fs->passthrough_why = can.passthrough_why;
	else if (!fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH))
		fs->passthrough_why = "the kernel does not offer it";
	else
		fs->passthrough = true;
	if (fs->passthrough)
		conn->max_backing_stack_depth = on_stacked_filesystem(fs) ? 1 : 0;
	if (fs->passthrough || fs->mount->no_passthrough)
		return;
	tell_starter(CKPT_LOG_INFO, "files are read and written through the daemon, not in passthrough: %s",
		     fs->passthrough_why);
}

// libfuse splices through a pipe as large as a request. Where it cannot have one it tries again for every request, which
// costs more than the request; and in passthrough no data comes this way.
static bool splice_is_worth_it(const struct ckpt_fs *fs)
{
	int fds[2];
	bool large;

	if (fs->passthrough || pipe2(fds, O_CLOEXEC))
		return false;
	large = fcntl(fds[0], F_SETPIPE_SZ, WRITE_BYTES_MAX + 2 * (int)sysconf(_SC_PAGESIZE)) >= 0;
	close(fds[0]);
	close(fds[1]);
	return large;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct ckpt_fs *fs = userdata;

	agree_on_passthrough(fs, conn);
	fs->io_uring = fs->io_uring && (conn->capable_ext & FUSE_CAP_OVER_IO_URING);
	// A write need not ask for capabilities of the file first; what must be cleared, we clear.
	fuse_set_feature_flag(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
	fuse_unset_feature_flag(conn, FUSE_CAP_HANDLE_KILLPRIV);
	fuse_unset_feature_flag(conn, FUSE_CAP_READDIRPLUS_AUTO);
	fuse_set_feature_flag(conn, FUSE_CAP_READDIRPLUS);
	fuse_set_feature_flag(conn, FUSE_CAP_CACHE_SYMLINKS);
	fuse_set_feature_flag(conn, FUSE_CAP_PARALLEL_DIROPS);
	fuse_unset_feature_flag(conn, FUSE_CAP_WRITEBACK_CACHE);
	if (!splice_is_worth_it(fs)) {
		fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_READ);
		fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_WRITE);
		fuse_unset_feature_flag(conn, FUSE_CAP_SPLICE_MOVE);
	}
	conn->max_write = WRITE_BYTES_MAX;
	conn->max_readahead = WRITE_BYTES_MAX;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	// A commit looks for a pending SIGKILL itself, and no other signal may surface (PROTOCOL.md 2.1).
	conn->no_interrupt = 1;
	if (pipe_to_parent >= 0)
		become_daemon(); // until now errors could still be read on the terminal
	tell_parent(0);
}

static const struct fuse_lowlevel_ops operations = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.access = op_access,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.create = op_create,
	.read = op_read,
	.write_buf = op_write_buf,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.fallocate = op_fallocate,
	.copy_file_range = op_copy_file_range,
	.lseek = op_lseek,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.setxattr = op_setxattr,
	.removexattr = op_removexattr,
};

// --- The session ------------------------------------------------------------------------------------------------------

// In the option string a comma parts options and a backslash escapes.
static void escape_into(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (*text == ',' || *text == '\\')
			fputc('\\', f);
		fputc(*text, f);
	}
}

static char *session_options(struct ckpt_fs *fs)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fputs("subtype=ckptfs,fsname=", f);
	escape_into(f, fs->store->path);
	// Else only the user who mounts gets in, as whom we do all things: the disk's filesystem says what may be done. (The
	// kernel's own look at modes costs a request for each file that is made, to see its directory's again.)
	if (fs->mount->allow_other)
		fputs(",allow_other,default_permissions", f);
	if (fs->mount->readonly)
		fputs(",ro", f);
	if (fs->io_uring)
		fputs(",io_uring,io_uring_q_depth=32", f);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

// Not left to fusermount3: it opens the device for us whoever we are, and what fails then says nothing of the reason.
static int check_device(void)
{
	CLEANUP_FD int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	switch (fd < 0 ? errno : 0) {
	case 0:
		return 0;
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return mount_fail(-ENODEV, "load it: modprobe fuse (in a container: --device /dev/fuse)",
				  "there is no /dev/fuse");
	case EACCES:
		return mount_fail(-EACCES, "let every user open it, as udev does: chmod 666 /dev/fuse",
				  "/dev/fuse: this user may not open it");
	case EPERM:
		return mount_fail(-EPERM, "start the container with --device /dev/fuse",
				  "/dev/fuse: this container may not open it");
	default:
		return mount_fail(-errno, NULL, "/dev/fuse cannot be opened: %s", strerror(errno));
	}
}

static int session_new(struct ckpt_fs *fs)
{
	CLEANUP_FREE char *options = session_options(fs);
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	if (!options || fuse_opt_add_arg(&args, "ckptfs") || fuse_opt_add_arg(&args, "-o") ||
	    fuse_opt_add_arg(&args, options)) {
		fuse_opt_free_args(&args);
		return mount_fail(-ENOMEM, NULL, "out of memory");
	}
	fs->se = fuse_session_new(&args, &operations, sizeof(operations), fs);
	fuse_opt_free_args(&args);
	return fs->se ? 0 : mount_fail(-EINVAL, NULL, "libfuse refused the mount options");
}

static int session_mount(struct ckpt_fs *fs)
{
	int rc = check_device();

	if (rc)
		return rc;
	if (fuse_session_mount(fs->se, fs->mountpoint))
		return mount_fail(
			-EPERM,
			geteuid() ? "without root this needs fusermount3 (package fuse3), and allow_other needs "
				    "user_allow_other in /etc/fuse.conf"
				  : "libfuse says why, in the line above",
			"%s: the kernel refused the mount", fs->mountpoint);
	return 0;
}

static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		ckpt_log(CKPT_LOG_WARN, "the limit of open files cannot be raised");
}

static const struct ckpt_mounted *find_mount(const struct ckpt_fs *fs, const struct ckpt_mounts *mounts)
{
	const struct ckpt_mounted *at = ckpt_mounts_find(mounts, fs->mountpoint, NULL);

	return at && !strcmp(at->mountpoint, fs->mountpoint) ? at : NULL;
}

// What the kernel reads ahead of what comes through the daemon: cold steps, and all where there is no passthrough. It takes no
// more than 128 KiB by our word, so that a request for each of those costs as much as all the copying. Root can say more here, once
// INIT has its answer; who cannot has it as it is.
static void read_farther_ahead(const struct ckpt_fs *fs)
{
	const struct ckpt_mounted *at;
	struct ckpt_mounts mounts;
	char path[64];

	if (ckpt_mounts_read(&mounts))
		return;
	at = find_mount(fs, &mounts);
	if (at) {
		snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", at->device);
		CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

		if (fd >= 0)
			(void)!dprintf(fd, "%d", READ_AHEAD_KIB);
	}
	ckpt_mounts_done(&mounts);
}

static int count_one(void *count, struct ckpt_step *step __attribute__((unused)))
{
	++*(size_t *)count;
	return 0;
}

static void tell_mounted(const struct ckpt_fs *fs)
{
	size_t steps = 0, unfinished = 0;

	ckpt_lock_take(&fs->store->lock);
	(void)ckpt_step_each_locked(fs->store, NULL, 1u << CKPT_STEP_COMMITTED, count_one, &steps);
	(void)ckpt_step_each_locked(fs->store, NULL, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_LEFT, count_one,
				    &unfinished);
	ckpt_lock_drop(&fs->store->lock);
	ckpt_log(CKPT_LOG_INFO, "mounted %s at %s%s: %zu step%s, %zu unfinished save%s, %s", fs->store->path,
		 fs->mountpoint, fs->mount->readonly ? ", read-only" : "", steps, steps == 1 ? "" : "s", unfinished,
		 unfinished == 1 ? "" : "s", fs->passthrough ? "passthrough" : "through the daemon");
}

// The kernel's first request. Once it has its answer, all others get theirs.
static int answer_init(struct ckpt_fs *fs)
{
	struct fuse_buf buf = {0};
	int n;

	do
		n = fuse_session_receive_buf(fs->se, &buf);
	while (n == -EINTR);
	if (n > 0)
		fuse_session_process_buf(fs->se, &buf);
	free(buf.mem);
	if (n > 0 && !fuse_session_exited(fs->se)) {
		read_farther_ahead(fs);
		tell_mounted(fs);
		notify("READY=1\nSTATUS=%s is mounted on %s", fs->store->path, fs->mountpoint);
	}
	return MIN(n, 0);
}

static bool is_mounted(const struct ckpt_fs *fs)
{
	struct ckpt_mounts mounts;
	bool is;

	if (ckpt_mounts_read(&mounts))
		return true;
	is = find_mount(fs, &mounts);
	ckpt_mounts_done(&mounts);
	return is;
}

static int loop(struct ckpt_fs *fs)
{
	struct fuse_loop_config *config;
	int rc = answer_init(fs);

	if (rc)
		return rc;
	config = fuse_loop_cfg_create();
	if (!config)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, THREADS_MAX);
	fuse_loop_cfg_set_idle_threads(config, THREADS_MAX);
	rc = fuse_session_loop_mt(fs->se, config);
	fuse_loop_cfg_destroy(config);
	// The switch went off between the kernel's offer and our answer: it took no ring and sent all by /dev/fuse.
	if (rc == -EOPNOTSUPP && fs->io_uring)
		return 0;
	// The kernel says so of a connection that is cut off, and seldom of one that is unmounted.
	if (rc == -ECONNABORTED && !is_mounted(fs))
		return 0;
	return rc < 0 ? rc : 0; // a positive one is the signal that ended it
}

// Others learn where the store is mounted, and can ask. On a full disk it is mounted all the same: how else would anybody make
// room through it?
static int tell_others(struct ckpt_fs *fs, struct listener **ret_listener)
{
	int told = ckpt_store_announce(fs->store, fs->mountpoint), served = listener_start(fs, ret_listener);

	if (told && !ckpt_is_full(told))
		served = told;
	if (served && !ckpt_is_full(served))
		return mount_fail(served, NULL, "%s: cannot record in the store that it is mounted: %s",
				  fs->mount->store, strerror(-served));
	if (told || served)
		tell_starter(CKPT_LOG_WARN, "the disk is full: `ckptfs status` and others will not %s",
			     served ? "reach this mount" : "know where the store is mounted");
	return 0;
}

static void renew(void *arg, struct ckpt_step *from, struct ckpt_step *to)
{
	struct ckpt_fs *fs = arg;
	struct node *top;

	if (to->base == from || ckpt_successor_is(to, from))
		handle_back_all(fs, from);
	node_renew(fs, from, to);
	top = node_find(fs, SPACE_LIVE, (to->base == from ? from : to)->born.dir_ino);
	if (top)
		folder_touch_above(fs, top); // it is listed, or not any more
	node_unref(fs, top);
}

static void step_changed(void *fs, struct ckpt_step *step, struct ckpt_manifest *was, struct ckpt_manifest *is)
{
	shown_change(fs, step, was, is);
}

static int open_store(struct ckpt_fs *fs)
{
	int rc;

	ckpt_actor_call_process("ckptfs"); // however it was started: mount.fuse.ckptfs is too long for a name
	rc = ckpt_store_open(fs->mount->store, fs->mount->readonly ? CKPT_STORE_READ : CKPT_STORE_WRITE,
			     &fs->mount->settings, &fs->store);
	if (rc)
		return mount_explain_open(fs->mount, rc);
	if (fs->store->settings.durability == CKPT_DURABILITY_REMOTE && !*ckpt_remote_of(fs->store))
		return mount_fail(
			-EINVAL,
			"leave it out, `ckptfs config STORE durability=` if the store says so; or mount s3://...",
			"%s: durability=remote needs a store with a URL, and this one is on this disk alone",
			fs->mount->store);
	if (!fs->mount->readonly)
		beside_sweep(fs->store);
	fs->store->calls.write_back = handle_write_back;
	fs->store->calls.write_back_arg = fs;
	fs->store->calls.renew = renew;
	fs->store->calls.renew_arg = fs;
	fs->store->calls.changed = step_changed;
	fs->store->calls.changed_arg = fs;
	fs->store->calls.change_tree = others_change;
	fs->store->calls.change_tree_arg = fs;
	fs->store->calls.is_written = others_is_written;
	fs->store->calls.is_written_arg = fs;
	fs->store->calls.gone = folder_step_gone;
	fs->store->calls.gone_arg = fs;
	fs->store->calls.listed = folder_step_listed;
	fs->store->calls.listed_arg = fs;
	fs->store->calls.unstage = unstage_by_looker;
	fs->store->calls.unstage_arg = fs;
	fs->nodes = node_table_new();
	fs->drafts = drafts_new();
	fs->look_again = look_again_new();
	fs->decider = decider_new(fs->store);
	fs->arrays = ckpt_array_cache_new(CKPT_ARRAY_CACHE_BYTES);
	fs->array_pool = ckpt_array_pool_new(CKPT_ARRAY_POOL_BYTES);
	if (!fs->nodes || !fs->drafts || !fs->look_again || !fs->decider || !fs->arrays || !fs->array_pool)
		return mount_fail(-ENOMEM, NULL, "out of memory");
	if (ckpt_sys.random(fs->array_key, sizeof(fs->array_key)))
		return mount_fail(-EIO, NULL, "the kernel gives no random numbers");
	fs->store->calls.decided = decider_known;
	fs->store->calls.decided_arg = fs->decider;
	return ckpt_store_work_behind(fs->store) || hooks_start(fs)
		       ? mount_fail(-EAGAIN, NULL, "no thread can be started")
		       : 0;
}

static void close_store(struct ckpt_fs *fs)
{
	hooks_stop(fs->hooks);
	decider_end(fs->decider, fs->store);
	drafts_free(fs->drafts);
	look_again_free(fs->look_again);
	node_table_free(fs->nodes);
	ckpt_array_pool_free(fs->array_pool);
	ckpt_array_cache_free(fs->arrays);
	ckpt_store_close(fs->store);
}

static int open_all(struct ckpt_fs *fs, struct listener **ret_listener)
{
	struct ckpt_mount_abilities can;
	int rc = open_store(fs);

	if (rc)
		return rc;
	ckpt_mount_abilities(&can);
	fs->io_uring = can.io_uring && !fs->mount->no_io_uring;
	fs->passthrough_why = "the kernel has not been asked yet";
	rc = session_new(fs);
	if (!rc)
		rc = session_mount(fs); // first: what others ask for may need it
	return rc || fs->mount->readonly ? rc : tell_others(fs, ret_listener);
}

static int serve(const struct ckpt_mount *m, const char *mountpoint)
{
	struct ckpt_fs fs = {.mount = m, .mountpoint = strdup(mountpoint), .started_ns = ckpt_sys.now_ns()};
	struct listener *listener = NULL;
	struct signals signals;
	int rc;

	fs.umask = umask(0);
	signals_block();
	raise_descriptor_limit();
	if (m->foreground)
		notify_open();
	rc = fs.mountpoint ? open_all(&fs, &listener) : mount_fail(-ENOMEM, NULL, "out of memory");
	if (!rc && signals_start(&signals, &fs))
		rc = mount_fail(-EAGAIN, NULL, "no thread can be started");
	if (!rc) {
		rc = loop(&fs);
		if (rc)
			ckpt_log(CKPT_LOG_ERROR, "the mount ended: %s", strerror(-rc));
		end_begin(&fs);
		signals_stop(&signals);
		end_disconnect(&fs);
	}
	listener_stop(listener);
	call_drain(INT64_MAX);
	if (fs.store)
		end_closing(&fs);
	tell_drain();
	// Only now, when nobody is left to tell the kernel anything: this closes the device, and its number goes to the next
	// file that is opened.
	if (fs.se)
		fuse_session_unmount(fs.se);
	close_store(&fs);
	end_done();
	if (fs.se)
		fuse_session_destroy(fs.se);
	if (!rc)
		ckpt_log(CKPT_LOG_INFO, "unmounted %s", fs.mountpoint);
	free(fs.mountpoint);
	log_close();
	return rc;
}

// --- Without a kernel -------------------------------------------------------------------------------------------------

int ckpt_mount_without_kernel(const struct ckpt_mount *m, const struct fuse_custom_io *io, int fd,
			      struct ckpt_fs **ret_fs)
{
	struct ckpt_fs *fs = calloc(1, sizeof(*fs));
	int rc = fs ? 0 : -ENOMEM;

	if (!rc) {
		fs->mount = m;
		fs->mountpoint = strdup(m->mountpoint);
		fs->started_ns = ckpt_sys.now_ns();
		rc = fs->mountpoint ? open_store(fs) : -ENOMEM;
	}
	if (!rc)
		rc = session_new(fs);
	if (!rc)
		rc = fuse_session_custom_io(fs->se, io, sizeof(*io), fd);
	if (rc)
		ckpt_mount_without_kernel_end(fs);
	else
		*ret_fs = fs;
	return rc;
}

void ckpt_mount_without_kernel_end(struct ckpt_fs *fs)
{
	if (!fs)
		return;
	call_drain(INT64_MAX);
	ckpt_store_rest(fs->store);
	tell_drain();
	close_store(fs);
	if (fs->se)
		fuse_session_destroy(fs->se);
	free(fs->mountpoint);
	free(fs);
}

// --- The door ---------------------------------------------------------------------------------------------------------

static int give_reason(int rc, char **ret_why, char **ret_hint)
{
	if (rc) {
		*ret_why = *mount_outcome.why ? strdup(mount_outcome.why) : NULL;
		*ret_hint = *mount_outcome.hint ? strdup(mount_outcome.hint) : NULL;
	}
	return rc;
}

// Waits for the daemon's word, and then for the mount itself to answer.
static int wait_for_daemon(int fd, pid_t pid, const char *mountpoint)
{
	struct stat st;
	ssize_t n;

	do
		n = read(fd, &mount_outcome, sizeof(mount_outcome));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(mount_outcome)) {
		waitpid(pid, NULL, 0);
		return mount_fail(-EIO, "run it with -f to see why", "the daemon died at its start");
	}
	if (mount_outcome.rc)
		waitpid(pid, NULL, 0);
	else if (stat(mountpoint, &st))
		return mount_fail(-errno, NULL, "%s: the mount does not answer", mountpoint);
	return mount_outcome.rc;
}

static int run_in_background(const struct ckpt_mount *m, const char *mountpoint)
{
	int fds[2], rc;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return mount_fail(-errno, NULL, "cannot start: %s", strerror(errno));
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return mount_fail(-errno, NULL, "cannot start: %s", strerror(errno));
	}
	if (pid) {
		close(fds[1]);
		rc = wait_for_daemon(fds[0], pid, mountpoint);
		close(fds[0]);
		return rc;
	}
	close(fds[0]);
	pipe_to_parent = fds[1];
	rc = serve(m, mountpoint);
	tell_parent(rc);
	_exit(rc ? 1 : 0);
}

static int start_log(const struct ckpt_mount *m)
{
	int rc = log_open(m->log ? m->log : m->foreground ? "-" : "syslog", m->log_level);

	return rc ? mount_fail(rc, rc == -EINVAL ? "log_level is one of error, warn, info, debug" : NULL,
			       "cannot open the log: %s", strerror(-rc))
		  : 0;
}

int ckpt_mount_run(const struct ckpt_mount *m, char **ret_why, char **ret_hint)
{
	CLEANUP_FREE char *mountpoint = NULL;
	struct ckpt_mount absolute = *m;
	CLEANUP_FREE char *store = NULL;
	int rc;

	*ret_why = *ret_hint = NULL;
	rc = mount_check_point(m, &mountpoint);
	if (!rc)
		rc = start_log(m);
	if (!rc)
		rc = mount_check_store(m, mountpoint);
	if (!rc) {
		store = realpath(m->store, NULL); // the daemon leaves the working directory
		if (!store)
			rc = mount_fail(-errno, "ckptfs init STORE makes one", "%s: %s", m->store, strerror(errno));
		absolute.store = store;
	}
	if (!rc)
		rc = m->foreground ? serve(&absolute, mountpoint) : run_in_background(&absolute, mountpoint);
	return give_reason(rc, ret_why, ret_hint);
}

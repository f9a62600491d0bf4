#include "core/step/holder.h"

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/proc.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store.h"
#include "core/step/store_file.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>

#define LOCK_FILE "lock"
#define HOLDER_FILE "holder.json"
#define LOCK_WAIT_NS INT64_C(2000000000)
#define LOCK_POLL_NS 10000000

// Of a task in /proc/PID/stat: it is in do_exit(), or a signal is ending it (linux/sched.h).
#define PF_EXITING 0x4u
#define PF_SIGNALED 0x400u

void (*ckpt_holder_tell)(pid_t pid);

void ckpt_boot_id(char ret_id[37])
{
	CLEANUP_FD int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret_id, 36);

	ret_id[MAX(n, (ssize_t)0)] = '\0';
}

// --- How it is with its process ---------------------------------------------------------------------------------------

// SIGKILL waits for the first thread, or for any.
static bool is_killed(pid_t pid)
{
	static const char *const masks[] = {"SigPnd:", "ShdPnd:"};
	char status[CKPT_PROC_STATUS_MAX];
	bool killed = false;

	if (!ckpt_proc_read(pid, "status", status, sizeof(status)))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(masks); i++) {
		const char *mask = ckpt_proc_field(status, masks[i]);

		killed |= mask && (strtoull(mask, NULL, 16) & 1u << (SIGKILL - 1));
	}
	return killed;
}

// The first thread is a zombie while others of the process wait for the disk.
static bool is_leaving(pid_t pid)
{
	unsigned long long stat[CKPT_PROC_FIELDS];

	if (!ckpt_proc_stat(pid, stat))
		return false;
	return stat[3] == 'Z' || stat[3] == 'X' || (stat[9] & (PF_EXITING | PF_SIGNALED)) || is_killed(pid);
}

static enum ckpt_holder_state state_of_process(pid_t pid)
{
	CLEANUP_FD int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	if (pidfd < 0)
		return errno == ESRCH ? CKPT_HOLDER_GONE : CKPT_HOLDER_LIVES;
	if (poll(&p, 1, 0))
		return CKPT_HOLDER_GONE;
	return is_leaving(pid) ? CKPT_HOLDER_ENDS : CKPT_HOLDER_LIVES;
}

static bool is_here(const struct ckpt_holder *h)
{
	char boot_id[37], host[65] = "";

	ckpt_boot_id(boot_id);
	gethostname(host, sizeof(host) - 1);
	return !strcmp(h->boot_id, boot_id) && !strcmp(h->host, host);
}

// --- What it says of itself -------------------------------------------------------------------------------------------

static void text_into(char *to, size_t cap, const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	snprintf(to, cap, "%s", value ? value : "");
}

static int holder_read(int dirfd, struct ckpt_holder *ret_holder)
{
	json_t *json = NULL;
	const char *mountpoint;
	int rc = ckpt_store_file_read(dirfd, HOLDER_FILE, &json);

	*ret_holder = (struct ckpt_holder){0};
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	ret_holder->pid = (int)json_integer_value(json_object_get(json, "pid"));
	ret_holder->since_ns = json_integer_value(json_object_get(json, "since_ns"));
	text_into(ret_holder->host, sizeof(ret_holder->host), json, "host");
	text_into(ret_holder->boot_id, sizeof(ret_holder->boot_id), json, "boot_id");
	mountpoint = json_string_value(json_object_get(json, "mountpoint"));
	ret_holder->mountpoint = mountpoint ? strdup(mountpoint) : NULL;
	rc = mountpoint && !ret_holder->mountpoint ? -ENOMEM : 0;
	json_decref(json);
	if (ret_holder->pid > 0 && is_here(ret_holder))
		ret_holder->state = state_of_process(ret_holder->pid);
	return rc;
}

int ckpt_store_holder(const char *path, struct ckpt_holder *ret_holder)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	CLEANUP_FD int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FD int fd = -1;

	if (dirfd < 0)
		return -errno;
	fd = ckpt_sys.open(dirfd, LOCK_FILE, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	if (fcntl(fd, F_OFD_GETLK, &whole))
		return -errno;
	if (whole.l_type == F_UNLCK)
		return -ENOENT;
	return ret_holder ? holder_read(dirfd, ret_holder) : 0;
}

bool ckpt_holder_is_at(const struct ckpt_holder *h, const char *mountpoint)
{
	CLEANUP_FREE char *where = ckpt_name_clean(mountpoint);

	return h->mountpoint && where && !strcmp(h->mountpoint, where);
}

void ckpt_holder_done(struct ckpt_holder *h)
{
	free(TAKE_PTR(h->mountpoint));
}

bool ckpt_holder_is_ending(int dirfd)
{
	struct ckpt_holder h;
	bool ending = !holder_read(dirfd, &h) && h.state == CKPT_HOLDER_ENDS;

	ckpt_holder_done(&h);
	return ending;
}

int ckpt_store_announce(struct ckpt_store *s, const char *mountpoint)
{
	char host[65] = "";
	CLEANUP_FREE char *text = NULL, *where = mountpoint ? ckpt_name_clean(mountpoint) : NULL;
	int rc;

	gethostname(host, sizeof(host) - 1);
	ckpt_json_begin();
	if (!mountpoint || where)
		text = ckpt_json_dump(json_pack("{s:i, s:s, s:s, s:s?, s:I}", "pid", (int)getpid(), "host", host,
						"boot_id", s->boot_id, "mountpoint", where, "since_ns",
						(json_int_t)ckpt_sys.now_ns()),
				      JSON_INDENT(2));
	rc = text ? ckpt_store_file_write(s->dirfd, HOLDER_FILE, text) : -ENOMEM;
	if (rc) { // what the holder before us wrote would be taken for ours
		ckpt_sys.unlink(s->dirfd, HOLDER_FILE, 0);
		ckpt_sys.unlink(s->dirfd, HOLDER_FILE ".new", 0);
	}
	return rc;
}

// --- The lock ---------------------------------------------------------------------------------------------------------

static void tell_waiting(pid_t pid)
{
	ckpt_log(CKPT_LOG_WARN, "process %d was killed and still waits for the disk; waiting until it has ended",
		 (int)pid);
	if (ckpt_holder_tell)
		ckpt_holder_tell(pid);
}

// Where signals are blocked, as in a mount, nothing else would end the wait.
static bool is_interrupted(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	sigset_t pending;

	sigemptyset(&pending);
	sigpending(&pending);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (sigismember(&pending, ends[i]) == 1)
			return true;
	return false;
}

struct wait {
	int64_t until_ns;
	bool told;
};

// 0: look again.
static int wait_for_holder(struct ckpt_store *s, struct wait *w)
{
	struct ckpt_holder h;
	int rc = holder_read(s->dirfd, &h);

	if (!rc && h.state == CKPT_HOLDER_ENDS) {
		if (!w->told)
			tell_waiting(h.pid);
		w->told = true;
		w->until_ns = ckpt_sys.mono_ns() + LOCK_WAIT_NS; // a child of it may be left then
		rc = is_interrupted() ? -EINTR : 0;
	} else if (!rc) {
		rc = h.state == CKPT_HOLDER_LIVES || ckpt_sys.mono_ns() >= w->until_ns ? -EBUSY : 0;
	}
	ckpt_holder_done(&h);
	if (!rc)
		ckpt_sys.sleep_ns(LOCK_POLL_NS);
	return rc;
}

// A child that a killed process had just forked has its lock, too, for a moment; and most verbs are over soon.
int ckpt_holder_take(struct ckpt_store *s)
{
	struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct wait w = {.until_ns = ckpt_sys.mono_ns() + LOCK_WAIT_NS};
	int rc = 0;

	s->lock_fd = ckpt_sys.open(s->dirfd, LOCK_FILE, O_RDWR | O_CREAT, 0600);
	if (s->lock_fd < 0)
		return s->lock_fd;
	while (!rc && fcntl(s->lock_fd, F_OFD_SETLK, &whole))
		rc = errno == EAGAIN || errno == EACCES ? wait_for_holder(s, &w) : -errno;
	if (!rc)
		ckpt_sys.unlink(s->dirfd, HOLDER_FILE, 0); // who had it before is not who has it
	return rc;
}

// A child of the program, which knows nothing of it, would keep the lock as long as it lives.
void ckpt_holder_drop(struct ckpt_store *s)
{
	struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	if (s->writable && s->lock_fd >= 0)
		(void)fcntl(s->lock_fd, F_OFD_SETLK, &whole);
}

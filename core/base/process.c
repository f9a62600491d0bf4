// States of a handle: watched (pidfd >= 0), and ended (its status is kept, the descriptor is closed). ckpt_process_ask() moves it.
//
// Invariants:
//  1. The number of a process that lives, or is a zombie, belongs to no other. So a handle whose descriptor does not poll as ended
//     is the one of its number, and one that does is never found by number again.
//  2. The descriptor is closed when nobody polls it any more: `asking` counts those.
#include "core/base/process.h"

#include "core/base/lock.h"
#include "core/base/proc.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define BUCKETS 64
#define THREADS 256
#define TRUST_NS INT64_C(200000000) // no number of a thread comes back as fast

struct ckpt_process {
	struct ckpt_process *next; // in its bucket
	pid_t pid;
	char program[CKPT_PROGRAM_MAX];
	unsigned refs;
	unsigned asking;
	int pidfd; // -1: closed
	bool ended;
	struct ckpt_process_status status; // once it has ended
};

static struct {
	struct ckpt_lock lock; // over all here, and over what changes in the handles
	struct ckpt_process *buckets[BUCKETS];
	struct seen_thread {
		pid_t tid; // 0: free
		int64_t at_ns;
		struct ckpt_process *process; // borrowed
	} threads[THREADS];
} watch = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF)};

static struct ckpt_process **bucket_of(pid_t pid)
{
	return &watch.buckets[(unsigned)pid % BUCKETS];
}

static struct seen_thread *thread_of(pid_t tid)
{
	return &watch.threads[(unsigned)tid % THREADS];
}

static bool has_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) != 0;
}

// --- Handles ----------------------------------------------------------------------------------------------------------

struct ckpt_process *ckpt_process_ref(struct ckpt_process *p)
{
	if (!p)
		return NULL;
	LOCK_SCOPE(&watch.lock);
	p->refs++;
	return p;
}

static void unlink_locked(struct ckpt_process *p)
{
	struct ckpt_process **at = bucket_of(p->pid);

	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	for (size_t i = 0; i < THREADS; i++)
		if (watch.threads[i].process == p)
			watch.threads[i] = (struct seen_thread){0};
}

void ckpt_process_unref(struct ckpt_process *p)
{
	bool last;

	if (!p)
		return;
	ckpt_lock_take(&watch.lock);
	last = --p->refs == 0;
	if (last)
		unlink_locked(p);
	ckpt_lock_drop(&watch.lock);
	if (!last)
		return;
	if (p->pidfd >= 0)
		close(p->pidfd);
	free(p);
}

pid_t ckpt_process_pid(const struct ckpt_process *p)
{
	return p ? p->pid : 0;
}

const char *ckpt_process_program(const struct ckpt_process *p)
{
	return p ? p->program : "";
}

// --- Which process a request is from ----------------------------------------------------------------------------------

static void remember_locked(struct ckpt_process *p, pid_t tid)
{
	*thread_of(tid) = (struct seen_thread){.tid = tid, .at_ns = ckpt_sys.mono_ns(), .process = p};
}

// The thread is one of the process still. That it is one of a process of this number says so only while the number is that of
// the descriptor.
static bool is_thread_locked(const struct ckpt_process *p, pid_t tid)
{
	return p->pidfd >= 0 && (!syscall(SYS_tgkill, p->pid, tid, 0) || errno == EPERM) && !has_ended(p->pidfd);
}

static struct ckpt_process *find_thread_locked(pid_t tid)
{
	const struct seen_thread *seen = thread_of(tid);
	int64_t age_ns = ckpt_sys.mono_ns() - seen->at_ns;

	if (seen->tid != tid)
		return NULL;
	if (age_ns >= 0 && age_ns < TRUST_NS)
		return seen->process;
	if (!is_thread_locked(seen->process, tid))
		return NULL;
	remember_locked(seen->process, tid);
	return seen->process;
}

static struct ckpt_process *find_process_locked(pid_t pid)
{
	struct ckpt_process *p = *bucket_of(pid);

	while (p && (p->pid != pid || p->pidfd < 0 || has_ended(p->pidfd)))
		p = p->next;
	return p;
}

static struct ckpt_process *process_new(pid_t pid)
{
	struct ckpt_process *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct ckpt_process){.pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0)};
	if (p->pidfd < 0) {
		free(p);
		return NULL;
	}
	if (ckpt_proc_read(pid, "comm", p->program, sizeof(p->program)))
		p->program[strcspn(p->program, "\n")] = '\0';
	return p;
}

// Another thread may have made one meanwhile: then that one.
static struct ckpt_process *add(struct ckpt_process *made, pid_t tid)
{
	struct ckpt_process *p;

	ckpt_lock_take(&watch.lock);
	p = find_process_locked(made->pid);
	if (!p) {
		p = made;
		p->next = *bucket_of(p->pid);
		*bucket_of(p->pid) = p;
	}
	p->refs++;
	remember_locked(p, tid);
	ckpt_lock_drop(&watch.lock);
	if (p != made) {
		close(made->pidfd);
		free(made);
	}
	return p;
}

static struct ckpt_process *find(pid_t tid, pid_t pid)
{
	struct ckpt_process *p;

	LOCK_SCOPE(&watch.lock);
	p = pid ? find_process_locked(pid) : find_thread_locked(tid);
	if (p)
		p->refs++;
	if (p && pid)
		remember_locked(p, tid);
	return p;
}

struct ckpt_process *ckpt_process_of(pid_t tid)
{
	struct ckpt_process *p;
	pid_t pid;

	if (tid <= 0)
		return NULL;
	p = find(tid, 0);
	pid = p ? 0 : ckpt_proc_process(tid);
	if (pid)
		p = find(tid, pid);
	if (p || !pid)
		return p;
	p = process_new(pid);
	return p ? add(p, tid) : NULL;
}

// --- How it is doing --------------------------------------------------------------------------------------------------

static bool file_says(const char *path, const char *line)
{
	char text[512];
	FILE *f = fopen(path, "re");
	bool says = false;

	while (f && !says && fgets(text, sizeof(text), f))
		says = !strcmp(text, line);
	if (f)
		fclose(f);
	return says;
}

// Where the freezers of both versions of cgroups are usually mounted.
static const struct {
	const char *kind; // as /proc/PID/cgroup has it, behind the number
	const char *at, *file;
	const char *says; // a line of the file, when the group is frozen
} freezers[] = {
	{"::", "/sys/fs/cgroup", "cgroup.events", "frozen 1\n"},
	{"::", "/sys/fs/cgroup/unified", "cgroup.events", "frozen 1\n"},
	{":freezer:", "/sys/fs/cgroup/freezer", "freezer.state", "FROZEN\n"},
};

static bool group_is_frozen(const char *of)
{
	char path[PATH_MAX];
	bool frozen = false;

	for (size_t i = 0; i < ARRAY_LEN(freezers) && !frozen; i++) {
		size_t len = strlen(freezers[i].kind);

		if (strncmp(of, freezers[i].kind, len))
			continue;
		snprintf(path, sizeof(path), "%s%s/%s", freezers[i].at, of + len, freezers[i].file);
		frozen = file_says(path, freezers[i].says);
	}
	return frozen;
}

// A group that lies outside of what we see does not count as frozen.
static bool is_frozen(pid_t pid)
{
	char groups[4096], *save = NULL;
	bool frozen = false;

	if (!ckpt_proc_read(pid, "cgroup", groups, sizeof(groups)))
		return false;
	for (char *line = strtok_r(groups, "\n", &save); line && !frozen; line = strtok_r(NULL, "\n", &save))
		frozen = group_is_frozen(line + strcspn(line, ":"));
	return frozen;
}

static bool thread_is_stopped(pid_t tid)
{
	char status[CKPT_PROC_STATUS_MAX];
	const char *state;

	if (!ckpt_proc_read(tid, "status", status, sizeof(status)))
		return false;
	state = ckpt_proc_field(status, "State:");
	return state && (*state == 'T' || *state == 't');
}

// A debugger may stop one thread of many, and the first thread may have ended before the others.
static bool is_stopped(pid_t pid)
{
	bool stopped = false;
	struct dirent *e;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !stopped && (e = readdir(dir)))
		stopped = e->d_name[0] != '.' && thread_is_stopped((pid_t)strtol(e->d_name, NULL, 10));
	if (dir)
		closedir(dir);
	return stopped || is_frozen(pid);
}

static struct ckpt_process_status status_of_wait(int wait)
{
	if (WIFSIGNALED(wait))
		return (struct ckpt_process_status){CKPT_PROCESS_KILLED, WTERMSIG(wait)};
	if (WEXITSTATUS(wait))
		return (struct ckpt_process_status){CKPT_PROCESS_FAILED, WEXITSTATUS(wait)};
	return (struct ckpt_process_status){.state = CKPT_PROCESS_ENDED};
}

// The kernel shows 0 to those who may not know it. They are those who may not read the links of its name spaces, of which a zombie has
// that of its user only.
static bool may_read_end(pid_t pid)
{
	char path[64], link[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return readlink(path, link, sizeof(link)) > 0;
}

// It has ended, and its parent has not waited for it: then its number is still its own, which is looked at last. False: it is no
// zombie any more.
static bool zombie_status(const struct ckpt_process *p, int pidfd, struct ckpt_process_status *ret_status)
{
	unsigned long long fields[CKPT_PROC_FIELDS];
	bool known = may_read_end(p->pid) && ckpt_proc_stat(p->pid, fields) && fields[3] == 'Z';

	if (syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) && errno == ESRCH)
		return false;
	*ret_status = known ? status_of_wait((int)fields[52]) : (struct ckpt_process_status){CKPT_PROCESS_STOPPED, 0};
	return true;
}

static struct ckpt_process_status look(const struct ckpt_process *p, int pidfd)
{
	struct ckpt_process_status status = {.state = CKPT_PROCESS_UNKNOWN};
	int wait;

	if (!has_ended(pidfd))
		return (struct ckpt_process_status){is_stopped(p->pid) ? CKPT_PROCESS_STOPPED : CKPT_PROCESS_LIVES, 0};
	if (!ckpt_sys.process_end(pidfd, &wait))
		return status_of_wait(wait);
	if (!zombie_status(p, pidfd, &status) && !ckpt_sys.process_end(pidfd, &wait))
		return status_of_wait(wait); // its parent waited for it between the two
	return status;
}

static bool is_end(enum ckpt_process_state state)
{
	return state != CKPT_PROCESS_LIVES && state != CKPT_PROCESS_STOPPED;
}

struct ckpt_process_status ckpt_process_ask(struct ckpt_process *p)
{
	struct ckpt_process_status status = {.state = CKPT_PROCESS_UNKNOWN};
	bool ended;
	int pidfd;

	if (!p)
		return status;
	ckpt_lock_take(&watch.lock);
	pidfd = p->pidfd;
	ended = p->ended;
	status = p->status;
	p->asking += !ended;
	ckpt_lock_drop(&watch.lock);
	if (ended)
		return status;
	status = look(p, pidfd);
	LOCK_SCOPE(&watch.lock);
	if (is_end(status.state) && !p->ended) {
		p->ended = true;
		p->status = status;
	}
	if (--p->asking == 0 && p->ended)
		close(TAKE_FD(p->pidfd));
	return status;
}

// --- For people -------------------------------------------------------------------------------------------------------

void ckpt_process_text(const struct ckpt_process *p, struct ckpt_process_status status, char *ret_text)
{
	static const char *const words[] = {
		[CKPT_PROCESS_UNKNOWN] = "has ended, and its exit status is not known",
		[CKPT_PROCESS_LIVES] = "is running",
		[CKPT_PROCESS_STOPPED] = "is stopped",
		[CKPT_PROCESS_ENDED] = "has ended",
	};
	char end[64];

	if (!p) {
		snprintf(ret_text, CKPT_PROCESS_TEXT_MAX, "a process of another pid namespace");
		return;
	}
	if (status.state == CKPT_PROCESS_FAILED)
		snprintf(end, sizeof(end), "ended with exit status %d", status.code);
	else if (status.state == CKPT_PROCESS_KILLED)
		snprintf(end, sizeof(end), "was killed by signal %d", status.code);
	else
		snprintf(end, sizeof(end), "%s", words[status.state]);
	snprintf(ret_text, CKPT_PROCESS_TEXT_MAX, "process %d (%s) %s", (int)p->pid, p->program, end);
}

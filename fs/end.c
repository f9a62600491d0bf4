// After end_begin(), unless end_done() comes first:
//   4.0 s  let go      commits go on, but nobody waits for them any more: close and rename answer EINTR
//   4.4 s  disconnect  whoever still waits, for a disk that hangs, gets ECONNABORTED
//   4.6 s  report      what is unfinished is said, in the log and in the store's errors, if they can be written
//   5.0 s  leave       the process ends
#include "fs/end.h"

#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/errlog.h"
#include "core/store/open.h"
#include "fs/notify.h"

#include <poll.h>
#include <sys/mount.h>

#define COMPLETE_NS INT64_C(3500000000) // no commit begins later, which might not end in time

static struct {
	struct ckpt_lock lock;
	pthread_cond_t changed;
	bool begun, done, disconnected;
	int64_t began_ns;
	pthread_t thread;
	// A lock of its own, because who holds it may wait for a hanging disk.
	struct ckpt_lock store_lock;
	bool store_is_closing;
	bool clean; // atomic: no commit was left
} end = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF),
	 .changed = PTHREAD_COND_INITIALIZER,
	 .store_lock = CKPT_LOCK_INIT(CKPT_LOCK_END)};

static void let_go(struct ckpt_fs *fs)
{
	__atomic_store_n(&fs->ending, true, __ATOMIC_RELEASE);
}

void end_disconnect(struct ckpt_fs *fs)
{
	struct pollfd device = {.fd = fuse_session_fd(fs->se)};

	LOCK_SCOPE(&end.lock);
	if (end.disconnected)
		return;
	end.disconnected = true;
	// A connection that has ended was unmounted: what is mounted there now is not ours. Closing the device would not end
	// it while a request is unanswered. Only root may do this; for others the end of the process does it.
	if (poll(&device, 1, 0) != 1 || !(device.revents & POLLERR))
		(void)umount2(fs->mountpoint, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW);
}

static void *report_thread(void *arg)
{
	struct ckpt_fs *fs = arg;
	struct ckpt_step **steps;
	size_t count;

	LOCK_SCOPE(&end.store_lock);
	if (end.store_is_closing || ckpt_step_list(fs->store, NULL, 1u << CKPT_STEP_COMMITTING, &steps, &count))
		return NULL;
	if (!count)
		__atomic_store_n(&end.clean, true, __ATOMIC_RELEASE);
	for (size_t i = 0; i < count; i++) {
		struct ckpt_step_name now;

		ckpt_step_name(steps[i], &now);
		ckpt_log(CKPT_LOG_WARN, "the commit of %s is unfinished", now.name);
		ckpt_errlog_add(fs->store->errlog, now.name, -EINTR,
				"if it is not listed after the next mount, it is in .ckptfs/staged",
				"the mount ended with the commit unfinished");
	}
	ckpt_step_list_free(steps, count);
	return NULL;
}

// On a thread of its own: the log may be on the disk that hangs.
static void report(struct ckpt_fs *fs)
{
	pthread_t thread;

	ckpt_log(CKPT_LOG_WARN, "a request hangs: the mount ends without waiting for it");
	if (!pthread_create(&thread, NULL, report_thread, fs))
		pthread_detach(thread);
}

static void leave(struct ckpt_fs *fs)
{
	if (geteuid())
		fuse_session_unmount(fs->se); // end_disconnect() could not
	_exit(__atomic_load_n(&end.clean, __ATOMIC_ACQUIRE) ? 0 : 1);
}

static const struct {
	int64_t at_ns;
	void (*act)(struct ckpt_fs *fs);
} plan[] = {
	{END_PATIENCE_NS, let_go},
	{END_PATIENCE_NS + 400000000, end_disconnect},
	{END_PATIENCE_NS + 600000000, report},
	{END_PATIENCE_NS + 1000000000, leave},
};

static bool done_before(int64_t deadline_ns)
{
	LOCK_SCOPE(&end.lock);
	while (!end.done && ckpt_sys.mono_ns() < deadline_ns)
		ckpt_lock_wait_ns(&end.changed, &end.lock, deadline_ns - ckpt_sys.mono_ns());
	return end.done;
}

static void *end_thread(void *arg)
{
	int64_t began = ckpt_sys.mono_ns();

	for (size_t i = 0; i < ARRAY_LEN(plan) && !done_before(began + plan[i].at_ns); i++)
		plan[i].act(arg);
	return NULL;
}

static bool begin_first(struct ckpt_fs *fs)
{
	LOCK_SCOPE(&end.lock);

	if (end.begun)
		return false;
	end.began_ns = ckpt_sys.mono_ns();
	end.begun = !pthread_create(&end.thread, NULL, end_thread, fs);
	if (!end.begun)
		ckpt_log(CKPT_LOG_WARN, "cannot start a thread: the unmount may take long");
	return true;
}

bool end_has_begun(void)
{
	LOCK_SCOPE(&end.lock);

	return end.begun;
}

void end_begin(struct ckpt_fs *fs)
{
	if (begin_first(fs))
		notify("STOPPING=1\nSTATUS=Unmounting %s", fs->mountpoint); // it may block: without the lock
}

void end_closing(struct ckpt_fs *fs)
{
	ckpt_store_complete(fs->store, end.began_ns + COMPLETE_NS);
	ckpt_store_rest(fs->store);
	ckpt_lock_take(&end.store_lock);
	end.store_is_closing = true;
	ckpt_lock_drop(&end.store_lock);
	__atomic_store_n(&end.clean, true, __ATOMIC_RELEASE);
}

void end_done(void)
{
	ckpt_lock_take(&end.lock);
	end.done = true;
	pthread_cond_broadcast(&end.changed);
	ckpt_lock_drop(&end.lock);
	if (end.begun)
		pthread_join(end.thread, NULL);
}

#include "core/step/trash.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/step/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define LOOK_NS (INT64_C(3600) * 1000000000)
#define WAKE_NS INT64_C(1000000000)
#define OVER_NS (INT64_C(5) * 1000000000) // what another step has taken the place of stays for so long

struct ckpt_trash {
	struct ckpt_store *store;
	struct ckpt_trash_looks looks;
	struct ckpt_job *job;
	bool expires; // set at open
	bool stop;    // atomic
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	char **names; // to be removed, the last first
	size_t count, cap;
	int64_t due_ns;  // when deleted steps are to be looked at again,
	int64_t over_ns; // and when those that are over, or are not kept any more
	bool busy;
};

static int remove_below(int dirfd, int depth, const bool *stop);

// A directory that its owner may not change or read is made one first: who is not root cannot remove it else.
static int open_below(int dirfd, const char *name)
{
	int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);

	if (fd == -EACCES && !fchmodat(dirfd, name, 0700, AT_SYMLINK_NOFOLLOW))
		fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
	return fd;
}

static int remove_one(int dirfd, const char *name, int depth, const bool *stop)
{
	int fd, rc = ckpt_sys.unlink(dirfd, name, 0);

	if (rc == -EACCES && !fchmod(dirfd, 0700))
		rc = ckpt_sys.unlink(dirfd, name, 0);
	if (rc != -EISDIR && rc != -EPERM)
		return rc;
	fd = open_below(dirfd, name);
	rc = fd < 0 ? fd : depth >= 2 * CKPT_DEPTH_MAX ? -ELOOP : remove_below(fd, depth + 1, stop);
	return rc ? rc : ckpt_sys.unlink(dirfd, name, AT_REMOVEDIR);
}

// Removes what is below dirfd (taken). Depth is bounded by what a step may have; errors end it with some left.
static int remove_below(int dirfd, int depth, const bool *stop)
{
	DIR *dir = fdopendir(dirfd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		close(dirfd);
		return -errno;
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d)
		rc = stop && __atomic_load_n(stop, __ATOMIC_RELAXED) ? -EINTR
								     : remove_one(dirfd, d->d_name, depth, stop);
	closedir(dir);
	return rc;
}

static int remove_name(struct ckpt_store *s, const char *name, const bool *stop)
{
	int fd = open_below(s->trash_fd, name), rc;

	if (fd == -ENOTDIR || fd == -ELOOP)
		return ckpt_sys.unlink(s->trash_fd, name, 0);
	rc = fd < 0 ? fd : remove_below(fd, 0, stop);
	return rc ? rc : ckpt_sys.unlink(s->trash_fd, name, AT_REMOVEDIR);
}

int ckpt_trash_take(struct ckpt_store *s, const char *session, char ret_name[CKPT_TRASH_SESSION_NAME])
{
	bool yielded = false;
	int rc;

	snprintf(ret_name, CKPT_TRASH_SESSION_NAME, CKPT_TRASH_DROP "%s", session);
	do
		rc = ckpt_sys.rename(s->sessions_fd, session, s->trash_fd, ret_name, RENAME_NOREPLACE);
	while (ckpt_is_full(rc) && (yielded = ckpt_objects_yield(s->objects)));
	if (yielded)
		ckpt_objects_refill(s->objects);
	return rc;
}

int ckpt_trash_remove(struct ckpt_store *s, const char *name)
{
	return remove_name(s, name, NULL);
}

// --- Behind -----------------------------------------------------------------------------------------------------------

typedef void look_fn(struct ckpt_trash *t);

static void expire(struct ckpt_trash *t)
{
	int64_t due_ns = t->looks.deleted(t->looks.arg, t->store, &t->stop);
	LOCK_SCOPE(&t->lock);

	t->due_ns = MIN(t->due_ns, due_ns);
}

static void expire_over(struct ckpt_trash *t)
{
	int64_t over_ns = t->looks.over(t->looks.arg, t->store, t->expires ? OVER_NS : 0, &t->stop);
	LOCK_SCOPE(&t->lock);

	t->over_ns = MIN(t->over_ns, over_ns);
}

// What is next and not to be waited for; its time is none from then on, and who wakes us meanwhile makes it sooner.
static look_fn *next_look_locked(struct ckpt_trash *t)
{
	int64_t now_ns = ckpt_sys.now_ns();

	if (t->over_ns <= now_ns) {
		t->over_ns = INT64_MAX;
		return expire_over;
	}
	if (t->due_ns <= now_ns) {
		t->due_ns = INT64_MAX;
		return expire;
	}
	return NULL;
}

// The clock can be set: it is looked at once an hour.
static int64_t rest_ns_locked(const struct ckpt_trash *t)
{
	return t->count ? 0 : MIN(MIN(t->due_ns, t->over_ns) - ckpt_sys.now_ns(), LOOK_NS);
}

static int64_t turn(void *arg, struct ckpt_job *job __attribute__((unused)))
{
	struct ckpt_trash *t = arg;
	look_fn *look;
	char *name;

	ckpt_lock_take(&t->lock);
	name = t->count ? t->names[--t->count] : NULL;
	look = name ? NULL : next_look_locked(t);
	t->busy = name || look;
	ckpt_lock_drop(&t->lock);
	if (name)
		(void)remove_name(t->store, name, &t->stop);
	else if (look)
		look(t);
	if (name || look)
		ckpt_objects_refill(t->store->objects); // there may be room for what it lacks
	free(name);
	LOCK_SCOPE(&t->lock);
	t->busy = false;
	pthread_cond_broadcast(&t->changed);
	return ckpt_sys.mono_ns() + rest_ns_locked(t);
}

static int add_locked(struct ckpt_trash *t, const char *name)
{
	char *copy = strdup(name);

	if (!copy || ckpt_grow((void **)&t->names, &t->cap, t->count + 1, sizeof(*t->names))) {
		free(copy);
		return -ENOMEM;
	}
	t->names[t->count++] = copy;
	return 0;
}

void ckpt_trash_remove_behind(struct ckpt_trash *t, const char *name)
{
	LOCK_SCOPE(&t->lock);

	if (!add_locked(t, name))
		(void)ckpt_job_wake(t->job);
}

void ckpt_trash_wake(struct ckpt_trash *t)
{
	if (!t->expires)
		return;
	t->looks.woken(t->store);
	LOCK_SCOPE(&t->lock);

	t->due_ns = 0;
	(void)ckpt_job_wake(t->job);
}

void ckpt_trash_committed(struct ckpt_trash *t)
{
	LOCK_SCOPE(&t->lock);

	t->over_ns = t->expires ? MIN(t->over_ns, ckpt_sys.now_ns() + OVER_NS) : 0;
	(void)ckpt_job_wake(t->job);
}

static bool is_due_locked(const struct ckpt_trash *t)
{
	return t->busy || MIN(t->due_ns, t->over_ns) <= ckpt_sys.now_ns();
}

void ckpt_trash_drain(struct ckpt_trash *t)
{
	LOCK_SCOPE(&t->lock);

	// It sleeps by a clock that may have been set since.
	while ((t->count || is_due_locked(t)) && ckpt_job_wake(t->job))
		ckpt_lock_wait_ns(&t->changed, &t->lock, WAKE_NS);
}

size_t ckpt_trash_pending(struct ckpt_trash *t)
{
	if (!t)
		return 0;
	LOCK_SCOPE(&t->lock);

	return t->count + is_due_locked(t);
}

static bool is_ours(const char *name)
{
	return !strncmp(name, CKPT_TRASH_DROP, strlen(CKPT_TRASH_DROP)) ||
	       !strncmp(name, CKPT_TRASH_COPY, strlen(CKPT_TRASH_COPY));
}

static int find_names(struct ckpt_trash *t)
{
	int fd = ckpt_sys.open(t->store->trash_fd, ".", O_RDONLY | O_DIRECTORY, 0), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir && fd >= 0)
		ckpt_sys.close(fd);
	while (dir && !rc && t->count < CKPT_TRASH_SWEEP_MAX && (d = readdir(dir)))
		if (is_ours(d->d_name))
			rc = add_locked(t, d->d_name);
	if (dir)
		closedir(dir);
	return rc;
}

static void forget_names(struct ckpt_trash *t)
{
	while (t->count)
		free(t->names[--t->count]);
}

int ckpt_trash_open(struct ckpt_store *s, const struct ckpt_trash_looks *looks, struct ckpt_trash **ret_trash)
{
	struct ckpt_trash *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	t->store = s;
	t->looks = *looks;
	t->due_ns = t->over_ns = INT64_MAX;
	t->expires = !s->settings.keep_trash;
	ckpt_lock_init(&t->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&t->changed, NULL);
	rc = ckpt_job_new(s->jobs, &(struct ckpt_job_of){"trash", CKPT_JOB_PROMPT, turn, t, true}, &t->job);
	if (!rc)
		rc = find_names(t);
	if (rc) {
		ckpt_trash_close(t);
		return rc;
	}
	// Who moved them here may have died before that was durable: a power cut must not bring back some of their files.
	if (t->count && ckpt_sys.fsync(s->trash_fd))
		forget_names(t);
	*ret_trash = t; // its job finds it there
	if (!s->settings.keep_trash)
		ckpt_trash_wake(t); // what is deleted, or was never completed, may be due
	if (t->count)
		(void)ckpt_job_wake(t->job);
	return 0;
}

void ckpt_trash_stop(struct ckpt_trash *t)
{
	if (!t)
		return;
	__atomic_store_n(&t->stop, true, __ATOMIC_RELAXED);
	ckpt_job_stop(t->job);
	LOCK_SCOPE(&t->lock);
	pthread_cond_broadcast(&t->changed); // nobody waits any more
}

void ckpt_trash_close(struct ckpt_trash *t)
{
	if (!t)
		return;
	ckpt_trash_stop(t);
	forget_names(t);
	free(t->names);
	pthread_cond_destroy(&t->changed);
	ckpt_lock_done(&t->lock);
	free(t);
}

struct ckpt_part ckpt_trash_part = {.bytes = sizeof(struct ckpt_trash *)};

#include "core/trash.h"

#include "core/limits.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"

#include <dirent.h>
#include <fcntl.h>

struct ckpt_trash_sweep {
	struct ckpt_store *store;
	pthread_t thread;
	bool stop; // atomic
	size_t count, cap;
	char **names;
};

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
	while (!rc && (d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED)) {
			rc = -EINTR;
			break;
		}
		rc = ckpt_sys.unlink(dirfd, d->d_name, 0);
		if (rc == -EISDIR || rc == -EPERM) {
			int fd = ckpt_sys.open(dirfd, d->d_name, O_RDONLY | O_DIRECTORY, 0);

			rc = fd < 0 ? fd : depth >= 2 * CKPT_DEPTH_MAX ? -ELOOP : remove_below(fd, depth + 1, stop);
			if (!rc)
				rc = ckpt_sys.unlink(dirfd, d->d_name, AT_REMOVEDIR);
		}
	}
	closedir(dir);
	return rc;
}

static int remove_name(struct ckpt_store *s, const char *name, const bool *stop)
{
	int fd = ckpt_sys.open(s->trash_fd, name, O_RDONLY | O_DIRECTORY, 0), rc;

	if (fd == -ENOTDIR || fd == -ELOOP)
		return ckpt_sys.unlink(s->trash_fd, name, 0);
	rc = fd < 0 ? fd : remove_below(fd, 0, stop);
	return rc ? rc : ckpt_sys.unlink(s->trash_fd, name, AT_REMOVEDIR);
}

int ckpt_trash_remove(struct ckpt_store *s, const char *name)
{
	return remove_name(s, name, NULL);
}

// --- At the start -----------------------------------------------------------------------------------------------------

static void sweep_free(struct ckpt_trash_sweep *sweep)
{
	for (size_t i = 0; i < sweep->count; i++)
		free(sweep->names[i]);
	free(sweep->names);
	free(sweep);
}

static void *sweep_run(void *arg)
{
	struct ckpt_trash_sweep *sweep = arg;

	for (size_t i = 0; i < sweep->count && !__atomic_load_n(&sweep->stop, __ATOMIC_RELAXED); i++)
		(void)remove_name(sweep->store, sweep->names[i], &sweep->stop);
	return NULL;
}

static bool is_ours(const char *name)
{
	return !strncmp(name, CKPT_TRASH_DROP, strlen(CKPT_TRASH_DROP)) ||
	       !strncmp(name, CKPT_TRASH_COPY, strlen(CKPT_TRASH_COPY));
}

static int find_names(struct ckpt_trash_sweep *sweep)
{
	int fd = ckpt_sys.open(sweep->store->trash_fd, ".", O_RDONLY | O_DIRECTORY, 0), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir && fd >= 0)
		ckpt_sys.close(fd);
	while (dir && !rc && sweep->count < CKPT_TRASH_SWEEP_MAX && (d = readdir(dir))) {
		if (!is_ours(d->d_name))
			continue;
		rc = ckpt_grow((void **)&sweep->names, &sweep->cap, sweep->count + 1, sizeof(*sweep->names));
		if (!rc && !(sweep->names[sweep->count] = strdup(d->d_name)))
			rc = -ENOMEM;
		sweep->count += !rc;
	}
	if (dir)
		closedir(dir);
	return rc;
}

int ckpt_trash_sweep_start(struct ckpt_store *s, struct ckpt_trash_sweep **ret_sweep)
{
	struct ckpt_trash_sweep *sweep = calloc(1, sizeof(*sweep));
	int rc;

	if (!sweep)
		return -ENOMEM;
	sweep->store = s;
	rc = find_names(sweep);
	if (rc || !sweep->count || pthread_create(&sweep->thread, NULL, sweep_run, sweep)) {
		sweep_free(sweep);
		return rc;
	}
	*ret_sweep = sweep;
	return 0;
}

void ckpt_trash_sweep_stop(struct ckpt_trash_sweep *sweep)
{
	if (!sweep)
		return;
	__atomic_store_n(&sweep->stop, true, __ATOMIC_RELAXED);
	pthread_join(sweep->thread, NULL);
	sweep_free(sweep);
}

#include "fs/one_save.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/profile/tracker.h"
#include "fs/client.h"

#include <fcntl.h>

#define CLOSES_NS INT64_C(50000000)
#define CLOSES_LOOK_NS INT64_C(2000000)
#define TICK_NS INT64_C(20000000) // by which the clock of a process's age and that of files may differ

struct look {
	int64_t since_ns; // of files that belong to the save; 0: not known
	bool top;
};

static int64_t ns_of(struct statx_timestamp t)
{
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// When the folder, or the file, was made: 0: the filesystem does not say.
static int64_t made_ns(int dirfd, const char *name)
{
	struct statx stx;

	return statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &stx) || !(stx.stx_mask & STATX_BTIME)
		       ? 0
		       : ns_of(stx.stx_btime);
}

static int look_at(void *arg, int dirfd, const char *name, const struct statx *stx)
{
	struct look *l = arg;
	int64_t made;

	if (l->top) {
		l->top = false;
		l->since_ns = MAX(l->since_ns, made_ns(dirfd, name));
		return 0;
	}
	if (!S_ISREG(stx->stx_mode))
		return 0;
	if (ckpt_tracker_is_log(name))
		return 1;
	made = made_ns(dirfd, name);
	return (made && made < l->since_ns) || ns_of(stx->stx_mtime) < l->since_ns;
}

static int64_t began_ns(pid_t tid)
{
	int64_t age = tid ? client_age_ns(tid) : -1;

	return age < 0 ? 0 : ckpt_sys.now_ns() - age - TICK_NS;
}

struct pass_over {
	struct ckpt_fs *fs;
	const struct node *dir;
	const char *name;
};

static bool is_of_the_save(void *arg, const struct node_name *name)
{
	const struct pass_over *p = arg;

	return (name->parent == p->dir && !strcmp(name->text, p->name)) ||
	       ckpt_profile_is_late(p->fs->store->settings.profiles, name->text);
}

static bool any_is_open(struct ckpt_fs *fs, struct node *dir, const struct ckpt_deed *deed)
{
	struct pass_over p = {fs, dir, deed->name};
	int64_t end_ns = ckpt_sys.mono_ns() + CLOSES_NS;
	bool any;

	while ((any = node_any_written_below(fs, dir, is_of_the_save, &p)) && ckpt_sys.mono_ns() < end_ns)
		ckpt_sys.sleep_ns(CLOSES_LOOK_NS);
	return any;
}

int one_save_check(struct ckpt_fs *fs, struct node *dir, const struct ckpt_deed *deed)
{
	struct look l = {.since_ns = began_ns(deed->tid), .top = true};
	CLEANUP_FD int fd = node_open(fs, dir, O_RDONLY | O_DIRECTORY);
	int rc = fd < 0 ? fd : ckpt_walk(fd, ".", look_at, &l);

	if (rc)
		return rc == 1 ? -ENOENT : rc;
	return any_is_open(fs, dir, deed) ? -ENOENT : 0;
}

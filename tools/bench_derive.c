#include "tools/bench.h"

#include "core/base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

// What `cp -al` does.
static int link_all(const char *from, const char *to)
{
	DIR *dir = opendir(from);
	struct dirent *e;
	int r = dir ? 0 : -errno;

	if (!r && mkdir(to, 0755))
		r = -errno;
	CLEANUP_FD int to_fd = r ? -1 : open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!r && to_fd < 0)
		r = -errno;
	while (!r && (e = readdir(dir)))
		if (e->d_type == DT_REG && linkat(dirfd(dir), e->d_name, to_fd, e->d_name, 0))
			r = -errno;
	if (dir)
		closedir(dir);
	return r;
}

static int bytes_used(struct bench *b, double *ret_bytes)
{
	struct statvfs st;
	int r = bench_sync(b);

	if (!r && statvfs(b->work, &st))
		r = -errno;
	if (!r)
		*ret_bytes = (double)(st.f_blocks - st.f_bfree) * (double)st.f_frsize;
	return r;
}

int bench_gauge_derive(struct bench *b, double *ret_value)
{
	struct bench_side *s = &b->side[BENCH_MOUNT];
	CLEANUP_FREE char *from = bench_path("%s/1", s->root), *stage = bench_stage_path(s, 2);
	double before, after;
	int r = from && stage ? bytes_used(b, &before) : -ENOMEM;

	if (!r)
		r = link_all(from, stage);
	if (!r)
		r = bench_commit(s, 2);
	if (!r)
		r = bytes_used(b, &after);
	if (!r)
		*ret_value = after - before;
	b->fixture = BENCH_NOTHING; // it has a step more
	return r;
}

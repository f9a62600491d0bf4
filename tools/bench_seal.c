#include "tools/bench.h"

#include "core/base/util.h"
#include "core/tier/seal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/xattr.h>
#include <time.h>

#define LOOK_NS (50 * 1000 * 1000) // who looks takes a processor from who seals
#define PATIENCE_S 60              // and as many times what the save took

// What clients see of it: the attribute of each file. A file without it ends the look.
static int look(const char *dir, bool *ret_sealed)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int r = d ? 0 : -errno;

	*ret_sealed = true;
	while (!r && *ret_sealed && (e = readdir(d))) {
		CLEANUP_FREE char *path = e->d_type == DT_REG ? bench_path("%s/%s", dir, e->d_name) : NULL;

		if (e->d_type != DT_REG)
			continue;
		*ret_sealed = path && getxattr(path, CKPT_SEAL_XATTR, NULL, 0) >= 0;
		if (!*ret_sealed)
			r = !path ? -ENOMEM : errno == ENODATA ? 0 : -errno;
	}
	if (d)
		closedir(d);
	return r;
}

static int await_sealed(const char *dir, double until_s)
{
	const struct timespec pause = {0, LOOK_NS};
	bool sealed;
	int r = look(dir, &sealed);

	while (!r && !sealed) {
		if (bench_stopped())
			return -EINTR;
		if (bench_now_s() > until_s)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
		r = look(dir, &sealed);
	}
	return r;
}

static int seal_once(struct bench *b, struct bench_side *s, double *ret_times)
{
	CLEANUP_FREE char *stage = bench_stage_path(s, ++s->made);
	double began_s = bench_now_s(), save_s, end_s;
	int r = stage ? bench_write_bulk(b, stage, ".safetensors", 1, false) : -ENOMEM;

	s->large = true;
	if (!r)
		r = bench_commit(s, s->made);
	end_s = bench_now_s();
	save_s = end_s - began_s;
	if (!r)
		r = await_sealed(stage, end_s + PATIENCE_S * (1 + save_s)); // a marker commits it where it is
	*ret_times = (bench_now_s() - end_s) / save_s;
	return r ? r : bench_reset(b, s);
}

int bench_gauge_seal(struct bench *b, double *ret_value)
{
	CLEANUP_FREE double *times = ckpt_calloc(b->options.pairs, sizeof(*times));
	int r = times ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < b->options.pairs && !r; i++)
		r = bench_stopped() ? -EINTR : seal_once(b, &b->side[BENCH_MOUNT], &times[i]);
	if (!r)
		*ret_value = bench_median(times, b->options.pairs);
	return r;
}

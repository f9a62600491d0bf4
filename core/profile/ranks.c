#include "core/profile/ranks.h"

#include "core/array/pickle.h"
#include "core/array/zip.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define RANKS_MAX (1u << 20) // of which somebody may claim to be one
#define FOUND 1

// --- Names --------------------------------------------------------------------------------------------------------------

enum kind { MODEL, ZERO_MODEL, ZERO, BF16_ZERO, KINDS };

static const char *const forms[KINDS] = {
	[MODEL] = "mp_rank_%02u_model_states.pt",
	[ZERO_MODEL] = "zero_pp_rank_%u_mp_rank_%02u_model_states.pt",
	[ZERO] = "zero_pp_rank_%u_mp_rank_%02u_optim_states.pt",
	[BF16_ZERO] = "bf16_zero_pp_rank_%u_mp_rank_%02u_optim_states.pt",
};

struct rank {
	enum kind kind;
	unsigned dp, mp;
};

static void name_of(const struct rank *r, char ret_name[CKPT_NAME_MAX + 1])
{
	if (r->kind == MODEL)
		snprintf(ret_name, CKPT_NAME_MAX + 1, forms[MODEL], r->mp);
	else
		snprintf(ret_name, CKPT_NAME_MAX + 1, forms[r->kind], r->dp, r->mp);
}

// False: it is none of these.
static bool parse(const char *name, struct rank *ret)
{
	char again[CKPT_NAME_MAX + 1];

	for (enum kind kind = 0; kind < KINDS; kind++) {
		struct rank r = {.kind = kind};
		const char *at = strstr(name, "zero_pp_rank_");

		if (kind != MODEL)
			r.dp = at ? (unsigned)strtoul(at + strlen("zero_pp_rank_"), NULL, 10) : 0;
		at = strstr(name, "mp_rank_");
		r.mp = at ? (unsigned)strtoul(at + strlen("mp_rank_"), NULL, 10) : 0;
		name_of(&r, again);
		if (r.dp < RANKS_MAX && r.mp < RANKS_MAX && !strcmp(name, again)) {
			*ret = r;
			return true;
		}
	}
	return false;
}

struct ranks {
	struct rank *list;
	size_t count, cap;
	bool has[KINDS];
};

static int list_ranks(int dirfd, struct ranks *ret)
{
	int fd = ckpt_sys.open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e = NULL;
	struct rank r;
	int rc = fd < 0 ? fd : dir ? 0 : -errno;

	if (!dir) {
		if (fd >= 0)
			ckpt_sys.close(fd);
		return rc;
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &e)) && e) {
		if (!parse(e->d_name, &r))
			continue;
		rc = ckpt_grow((void **)&ret->list, &ret->cap, ret->count + 1, sizeof(*ret->list));
		if (!rc) {
			ret->list[ret->count++] = r;
			ret->has[r.kind] = true;
		}
	}
	closedir(dir);
	return rc;
}

// --- How many there are -------------------------------------------------------------------------------------------------

struct worlds {
	uint64_t dp, mp;             // 0: not known
	uint64_t groups, node_local; // not 0: by these settings some ranks write nothing, or elsewhere
	struct timespec since;       // the first rank wrote its model states
};

struct pickle {
	const struct ckpt_source *file;
	struct worlds worlds;
};

// The number of this key in any dictionary of the pickle. 0: there is none, or one that says that it is off.
static uint64_t number_of(const struct ckpt_pickle *p, const char *key)
{
	ckpt_value number;
	int64_t n;

	for (ckpt_value v = 0; v < ckpt_pickle_count(p); v++)
		if (ckpt_value_get(p, v, key, &number) && ckpt_value_int(p, number, &n) && n > 0 && n <= INT32_MAX)
			return (uint64_t)n;
	return 0;
}

static int read_pickle(void *arg, const struct ckpt_zip_member *m)
{
	static const char name[] = "/data.pkl";
	struct ckpt_pickle_fault fault;
	struct ckpt_pickle *pickle = NULL;
	struct pickle *p = arg;
	uint64_t at, end = 0;
	int rc;

	if (!m->stored || m->name_len < strlen(name) ||
	    memcmp(m->name + m->name_len - strlen(name), name, strlen(name)))
		return 0;
	rc = ckpt_zip_data(p->file, m, &at);
	if (!rc && __builtin_add_overflow(at, m->bytes, &end))
		rc = -EINVAL;
	if (!rc)
		rc = ckpt_pickle_read(p->file, at, end, &pickle, NULL, &fault);
	if (rc)
		return rc;
	p->worlds.dp = number_of(pickle, "dp_world_size");
	p->worlds.mp = number_of(pickle, "mp_world_size");
	p->worlds.groups = number_of(pickle, "mics_shard_size");
	p->worlds.node_local = number_of(pickle, "use_node_local_storage");
	ckpt_pickle_free(pickle);
	return FOUND;
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

// A rank's file, open for reading. -ENOENT: it is not there, or none that a rank could have written.
static int open_rank(int dirfd, const struct rank *r, char *ret_name, struct stat *ret_st)
{
	int fd;

	name_of(r, ret_name);
	fd = ckpt_sys.open(dirfd, ret_name, O_RDONLY | O_NONBLOCK, 0);
	if (fd == -ELOOP || fd == -EACCES || fd == -ENXIO)
		return -ENOENT;
	if (fd >= 0 && (fstat(fd, ret_st) || !S_ISREG(ret_st->st_mode))) {
		ckpt_sys.close(fd);
		return -ENOENT;
	}
	return fd;
}

// Of two forms of which a save has one, the other is left of a save before.
static void keep_newer(int dirfd, struct ranks *ranks, enum kind a, enum kind b)
{
	char name[CKPT_NAME_MAX + 1];
	struct stat of_a, of_b;

	if (!ranks->has[a] || !ranks->has[b])
		return;
	CLEANUP_FD int fd_a = open_rank(dirfd, &(struct rank){.kind = a}, name, &of_a);
	CLEANUP_FD int fd_b = open_rank(dirfd, &(struct rank){.kind = b}, name, &of_b);
	bool is_a = fd_b < 0 || (fd_a >= 0 && is_before(&of_b.st_mtim, &of_a.st_mtim));

	ranks->has[is_a ? b : a] = false;
}

// As the first rank says; what cannot be understood says nothing.
static int read_worlds(int dirfd, const struct ranks *ranks, struct worlds *ret)
{
	const struct rank first = {.kind = ranks->has[MODEL] ? MODEL : ZERO_MODEL};
	char name[CKPT_NAME_MAX + 1];
	struct ckpt_source file;
	struct pickle pickle = {.file = &file};
	struct ckpt_zip zip;
	struct worlds *w = &pickle.worlds;
	struct stat st;
	CLEANUP_FD int fd = open_rank(dirfd, &first, name, &st);
	int rc;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	file = ckpt_source_file(fd, (uint64_t)st.st_size);
	rc = ckpt_zip_find(&file, &zip);
	if (!rc)
		rc = ckpt_zip_each(&file, &zip, read_pickle, &pickle);
	if (rc == FOUND && w->dp && w->mp && w->dp < RANKS_MAX / w->mp && !w->groups && !w->node_local)
		*ret = (struct worlds){.dp = w->dp, .mp = w->mp, .since = st.st_mtim};
	return rc == FOUND || rc == -EINVAL || rc == -ENODATA ? 0 : rc;
}

// --- Which of them are there --------------------------------------------------------------------------------------------

static bool is_of_world(const struct rank *r, const struct worlds *w)
{
	return r->mp < w->mp && (r->kind == MODEL || r->dp < w->dp);
}

static int lacks_kind(const struct ranks *ranks, enum kind kind, const struct worlds *w, char *ret_name)
{
	size_t all = (size_t)((kind == MODEL ? 1 : w->dp) * w->mp), i = 0;
	CLEANUP_FREE bool *there = ckpt_calloc(all, sizeof(*there));

	if (!there)
		return -ENOMEM;
	for (size_t k = 0; k < ranks->count; k++) {
		const struct rank *r = &ranks->list[k];

		if (r->kind == kind && is_of_world(r, w))
			there[r->dp * w->mp + r->mp] = true;
	}
	while (i < all && there[i])
		i++;
	if (i == all)
		return 0;
	name_of(&(struct rank){kind, (unsigned)(i / w->mp), (unsigned)(i % w->mp)}, ret_name);
	return 1;
}

static bool is_optimizer(enum kind kind)
{
	return kind == ZERO || kind == BF16_ZERO;
}

static int is_not_whole(int dirfd, const struct rank *r, const struct worlds *w, char *ret_name)
{
	struct stat st;
	CLEANUP_FD int fd = open_rank(dirfd, r, ret_name, &st);
	int rc;

	if (fd < 0)
		return fd == -ENOENT ? 1 : fd;
	if (is_optimizer(r->kind) && is_before(&st.st_mtim, &w->since))
		return 1;
	rc = ckpt_format_check(fd, ret_name);
	return rc == -EINVAL || rc == -EAGAIN || rc == -ENODATA ? 1 : rc;
}

static int lack(int dirfd, bool again, struct ranks *ranks, char *ret_name)
{
	struct worlds worlds = {0};
	int rc;

	keep_newer(dirfd, ranks, MODEL, ZERO_MODEL);
	keep_newer(dirfd, ranks, ZERO, BF16_ZERO);
	rc = read_worlds(dirfd, ranks, &worlds);
	if (!again)
		worlds.since = (struct timespec){0};

	if (rc || !worlds.dp)
		return rc;
	for (enum kind kind = 0; kind < KINDS && !rc; kind++)
		if (ranks->has[kind])
			rc = lacks_kind(ranks, kind, &worlds, ret_name);
	for (size_t i = 0; i < ranks->count && !rc; i++)
		if (ranks->has[ranks->list[i].kind] && is_of_world(&ranks->list[i], &worlds))
			rc = is_not_whole(dirfd, &ranks->list[i], &worlds, ret_name);
	return rc;
}

int ckpt_ranks_lack(int dirfd, bool again, char ret_name[CKPT_NAME_MAX + 1])
{
	struct ranks ranks = {0};
	int rc = list_ranks(dirfd, &ranks);

	if (!rc && (ranks.has[MODEL] || ranks.has[ZERO_MODEL]))
		rc = lack(dirfd, again, &ranks, ret_name);
	free(ranks.list);
	return rc;
}

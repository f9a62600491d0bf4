#include "core/save/survey.h"

#include "core/array/data.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/profile/format.h"
#include "core/step/staging.h"
#include "core/step/store.h"
#include "core/step/torn.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define OLD_NS INT64_C(2000000000) // times of files move in ticks

struct walk {
	struct ckpt_survey *survey;
	int top;             // reads the step's directory
	char path[PATH_MAX]; // of the entry
};

static int64_t time_ns(struct statx_timestamp t)
{
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static uint64_t mixed(uint64_t sum, uint64_t value)
{
	sum = (sum ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return sum ^ sum >> 29;
}

// The sum over all entries has no order, as a directory has none.
static void stamp(struct ckpt_survey *s, const struct statx *stx)
{
	uint64_t sum = mixed(0, stx->stx_ino);

	sum = mixed(sum, stx->stx_size);
	sum = mixed(sum, (uint64_t)time_ns(stx->stx_mtime));
	s->stamp += mixed(sum, (uint64_t)time_ns(stx->stx_ctime));
}

static int keep_first(char **text, const char *path)
{
	if (!*text)
		*text = strdup(path);
	return *text ? 0 : -ENOMEM;
}

static int remember(struct ckpt_survey *s, const char *path)
{
	int rc = ckpt_grow((void **)&s->files, &s->file_cap, s->file_count + 1, sizeof(*s->files));
	char *copy = rc ? NULL : strdup(path);

	if (!copy)
		return -ENOMEM;
	s->files[s->file_count++] = copy;
	return 0;
}

// A file that was written over, or whose place another took: its own times say so, and not those that a program gave it.
static bool is_earlier(const struct ckpt_survey *s, const struct statx *stx)
{
	return s->attempt_ns && time_ns(stx->stx_ctime) < s->attempt_ns;
}

static int look_at_format(struct walk *w, int fd, const char *name, const struct statx *stx, bool *ret_whole)
{
	int rc = ckpt_torn_is(fd, stx) ? -EINVAL : ckpt_format_check(fd, name);

	w->survey->has_beginning |= (rc == -EINVAL || rc == -EAGAIN) && ckpt_name_is_file_step(name);
	if (rc == -ENODATA) // an empty file has no format; under the name of a checkpoint file it lacks all
		rc = ckpt_name_is_file_step(name) ? -EINVAL : 0;
	*ret_whole = !rc;
	return rc == -EINVAL || rc == -EAGAIN ? keep_first(&w->survey->cut, w->path) : rc;
}

static int look_at_arrays(struct walk *w, int fd, bool earlier)
{
	struct ckpt_survey *s = w->survey;
	int is;

	if (s->has_arrays && (!earlier || s->has_earlier_array))
		return 0;
	is = ckpt_data_is_open(fd, w->top, w->path);
	s->has_arrays |= is > 0;
	s->has_earlier_array |= is > 0 && earlier;
	return MIN(is, 0);
}

static int look_at_lease(struct walk *w, int fd)
{
	int rc = w->survey->leases ? ckpt_sys.lease(fd) : 0;

	return rc == -EAGAIN ? keep_first(&w->survey->busy, w->path) : rc;
}

static int look_at_file(struct walk *w, int dirfd, const char *name, const struct statx *stx)
{
	struct ckpt_survey *s = w->survey;
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	bool earlier = is_earlier(s, stx), whole;
	int rc = fd < 0 ? fd : remember(s, w->path);

	s->has_known |= ckpt_data_is_known(name);
	s->has_later_file |= !earlier;
	s->has_old_times |= time_ns(stx->stx_mtime) < ckpt_staging_of(s->step)->began_ns - OLD_NS;
	if (!rc)
		rc = look_at_format(w, fd, name, stx, &whole);
	if (!rc)
		rc = look_at_arrays(w, fd, earlier && whole);
	return rc ? rc : look_at_lease(w, fd);
}

static int look_at_directory(struct walk *w, int dirfd, size_t len, int depth);

static int look_at_entry(struct walk *w, int dirfd, const char *name, size_t len, int depth)
{
	struct statx stx;
	int fd;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &stx))
		return -errno;
	stamp(w->survey, &stx);
	if (S_ISREG(stx.stx_mode))
		return look_at_file(w, dirfd, name, &stx);
	if (!S_ISDIR(stx.stx_mode) || depth > CKPT_DEPTH_MAX)
		return 0;
	fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_DIRECTORY, 0);
	return fd < 0 ? fd : look_at_directory(w, fd, len, depth + 1);
}

// Takes dirfd. len: of its path.
static int look_at_directory(struct walk *w, int dirfd, size_t len, int depth)
{
	DIR *dir = fdopendir(dirfd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		close(dirfd);
		return rc;
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d) {
		int n = snprintf(w->path + len, sizeof(w->path) - len, "%s%s", len ? "/" : "", d->d_name);

		if ((size_t)n >= sizeof(w->path) - len)
			rc = -ENAMETOOLONG;
		else
			rc = look_at_entry(w, dirfd, d->d_name, len + (size_t)n, depth);
		rc = rc == -ENOENT ? 0 : rc;
	}
	w->path[len] = '\0';
	closedir(dir);
	return rc;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int ckpt_survey_run(struct ckpt_survey *s)
{
	CLEANUP_FD int top = ckpt_sys.open(s->step->store->sessions_fd, s->step->session, O_RDONLY | O_DIRECTORY, 0);
	int fd = top < 0 ? top : ckpt_sys.open(top, ".", O_RDONLY | O_DIRECTORY, 0), rc;
	struct walk w = {.survey = s, .top = top, .path = ""};

	if (fd < 0)
		return fd;
	rc = look_at_directory(&w, fd, 0, 0);
	if (s->file_count)
		qsort(s->files, s->file_count, sizeof(*s->files), by_text);
	return rc;
}

void ckpt_survey_done(struct ckpt_survey *s)
{
	for (size_t i = 0; i < s->file_count; i++)
		free(s->files[i]);
	free(TAKE_PTR(s->files));
	free(TAKE_PTR(s->cut));
	free(TAKE_PTR(s->busy));
	s->file_count = s->file_cap = 0;
}

ssize_t ckpt_survey_find(const struct ckpt_survey *s, const char *path)
{
	char **found = s->file_count ? bsearch(&path, s->files, s->file_count, sizeof(*s->files), by_text) : NULL;

	return found ? found - s->files : -1;
}

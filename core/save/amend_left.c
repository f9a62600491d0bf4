#include "core/save/amend_left.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/save/session.h"
#include "core/step/older.h"
#include "core/step/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#define PREFIX ".arrays-"
#define DIGITS 16

int ckpt_amend_left_name(char ret_raw[CKPT_AMENDING_RAW_MAX])
{
	uint64_t salt;
	int rc = ckpt_sys.random(&salt, sizeof(salt));

	if (!rc)
		snprintf(ret_raw, CKPT_AMENDING_RAW_MAX, PREFIX "%016llx", (unsigned long long)salt);
	return rc;
}

int ckpt_amend_left_hold(int dirfd)
{
	return flock(dirfd, LOCK_SH) ? -errno : 0;
}

// The directory of the session says who writes; none but this locks that of the trash.
int ckpt_amend_left_ask(const struct ckpt_store *s, int dirfd)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->trash_fd, ".", O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX))
		return -errno;
	(void)flock(dirfd, LOCK_UN);
	return TAKE_FD(fd);
}

// --- Which they are -----------------------------------------------------------------------------------------------------

struct left {
	struct one {
		char name[CKPT_AMENDING_RAW_MAX];
		bool named; // by a version
	} * at;             // sorted
	size_t count, cap;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct one *)a)->name, ((const struct one *)b)->name);
}

// A client may give his own files such names, which a version or a writer has.
static bool is_form(const char *name)
{
	const char *digits = name + strlen(PREFIX);

	return !strncmp(name, PREFIX, strlen(PREFIX)) && strlen(digits) == DIGITS &&
	       strspn(digits, "0123456789abcdef") == DIGITS;
}

static int list(struct left *l, int dirfd)
{
	int fd = ckpt_sys.open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0), rc = MIN(fd, 0);
	DIR *dir = rc ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!rc && !dir) {
		rc = -errno;
		ckpt_sys.close(fd);
	}
	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d) {
		if (!is_form(d->d_name))
			continue;
		rc = ckpt_grow((void **)&l->at, &l->cap, l->count + 1, sizeof(*l->at));
		if (!rc) {
			l->at[l->count] = (struct one){.named = false};
			strcpy(l->at[l->count++].name, d->d_name);
		}
	}
	if (dir)
		closedir(dir);
	if (l->count)
		qsort(l->at, l->count, sizeof(*l->at), by_name);
	return rc;
}

static void note_named(struct left *l, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;
		struct one want, *found;
		const char *raw;

		ckpt_manifest_entry(m, i, &e);
		raw = e.raw_path ? e.raw_path : e.parent ? "" : e.name; // a raw file stands at its own path, too
		if (!is_form(raw))
			continue;
		strcpy(want.name, raw);
		found = bsearch(&want, l->at, l->count, sizeof(*l->at), by_name);
		if (found)
			found->named = true;
	}
}

static int look_at(struct left *l, struct ckpt_step *step, uint32_t version)
{
	struct ckpt_manifest *m;
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);

	if (rc)
		return rc;
	rc = ckpt_step_read_manifest(step, &r.summary, &m);
	ckpt_record_done(&r);
	if (rc)
		return rc;
	note_named(l, m);
	ckpt_manifest_unref(m);
	return 0;
}

// Those of a version that has expired go with that (outdated.h), which may be under way.
static int look_at_versions(struct left *l, struct ckpt_step *step)
{
	struct ckpt_older *states;
	size_t count;
	int rc = ckpt_older_list(step, &states, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		rc = look_at(l, step, states[i].says);
		rc = states[i].expired && rc != -ENOMEM ? 0 : rc;
	}
	free(states);
	return rc;
}

void ckpt_amend_left_remove(struct ckpt_step *step)
{
	CLEANUP_FD int dirfd = ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
	struct left l = {0};

	if (dirfd < 0 || flock(dirfd, LOCK_EX | LOCK_NB)) // somebody writes some
		return;
	if (!list(&l, dirfd) && l.count && !look_at_versions(&l, step))
		for (size_t i = 0; i < l.count; i++)
			if (!l.at[i].named && !ckpt_amending_is_pending(step, l.at[i].name))
				ckpt_sys.unlink(dirfd, l.at[i].name, 0);
	free(l.at);
}

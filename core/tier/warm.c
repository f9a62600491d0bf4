#include "core/tier/cool.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/edit.h"
#include "core/commit/share.h"
#include "core/store/errlog.h"
#include "core/store/store.h"
#include "core/store/trash.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>

// The files are written in trash/, where a crash leaves nothing that stays, made durable, and get their places in the session
// under the lock of all acts, with the version that says so: no cooling is between.

#define ASIDE_MAX 64
#define NOTHING 1000 // of a chunk

struct warm_file {
	uint32_t index;
	bool ready; // it is in its place in the version that is being made
};

struct warming {
	struct ckpt_step *step;
	const struct ckpt_tier_how *how;
	struct ckpt_tier_done *done;
	struct ckpt_manifest *m;
	uint64_t salt;
	struct warm_file *files; // in the order of their entries, of hard links the first
	size_t file_count, file_cap;
	size_t written;
	char unsynced[CKPT_RAW_PATH_MAX]; // the directory of the names that were given last; "": none
};

static void aside(const struct warming *w, uint32_t index, char ret_name[ASIDE_MAX])
{
	snprintf(ret_name, ASIDE_MAX, CKPT_TRASH_COPY "%016llx-warm%u", (unsigned long long)w->salt, index);
}

// --- Writing ------------------------------------------------------------------------------------------------------------

static bool matches(const struct warming *w, uint32_t index)
{
	char path[PATH_MAX];
	const char *slash;

	if (!w->how->only)
		return true;
	if (ckpt_manifest_path(w->m, index, path, sizeof(path)) < 0)
		return false;
	slash = strrchr(path, '/');
	return !fnmatch(w->how->only, path, 0) || (slash && !fnmatch(w->how->only, slash + 1, 0));
}

// Any of its names counts.
static bool is_wanted(const struct warming *w, uint32_t first, uint32_t nlink)
{
	struct ckpt_entry e, other;

	ckpt_manifest_entry(w->m, first, &e);
	if (nlink == 1 || !w->how->only)
		return matches(w, first);
	for (uint32_t i = first; i < ckpt_manifest_count(w->m); i++) {
		ckpt_manifest_entry(w->m, i, &other);
		if (other.ino == e.ino && matches(w, i))
			return true;
	}
	return false;
}

static int choose(struct warming *w)
{
	uint32_t count = ckpt_manifest_count(w->m);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(w->m, i, &e);
		if (e.content != CKPT_CONTENT_CHUNKS || ckpt_manifest_first_link(w->m, i) != i ||
		    !is_wanted(w, i, e.nlink))
			continue;
		rc = ckpt_grow((void **)&w->files, &w->file_cap, w->file_count + 1, sizeof(*w->files));
		if (!rc)
			w->files[w->file_count++] = (struct warm_file){.index = i};
	}
	return rc;
}

// What becomes holes is stored as next to nothing.
static uint64_t room_of(const struct warming *w, uint32_t index)
{
	struct ckpt_chunk chunk;
	struct ckpt_seal seal;
	uint64_t bytes = 0;

	if (!ckpt_manifest_seal(w->m, index, &seal))
		return 0;
	for (uint32_t i = 0; i < seal.count; i++) {
		ckpt_manifest_chunk(w->m, seal.first + i, &chunk);
		bytes += chunk.how.bytes > chunk.bytes / NOTHING ? chunk.bytes : 0;
	}
	return bytes;
}

// What cannot find room does not fill the disk first, on which saves want theirs.
static int check_room(const struct warming *w)
{
	uint64_t bytes = 0, room, all;

	for (size_t i = 0; i < w->file_count; i++)
		bytes += room_of(w, w->files[i].index);
	return !ckpt_sys.room(w->step->store->dirfd, &room, &all) && room < bytes ? -ENOSPC : 0;
}

static int write_files(struct warming *w)
{
	const struct ckpt_share_progress progress = {
		.durable = true, .raw = true, .go_on = w->how->go_on, .arg = w->how->arg};
	int rc = 0;

	for (; w->written < w->file_count && !rc; w->written += !rc) {
		uint32_t index = w->files[w->written].index;
		char name[ASIDE_MAX];

		aside(w, index, name);
		rc = ckpt_share_copy_entry(w->step, w->m, index, w->step->store->trash_fd, name, &progress);
	}
	return rc;
}

// --- Their places -------------------------------------------------------------------------------------------------------

static int compare_files(const void *a, const void *b)
{
	const struct warm_file *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

// The file that was written for what is, in m, the entry with this index; NULL: none.
static struct warm_file *file_of(const struct warming *w, const struct ckpt_manifest *m, uint32_t index)
{
	struct warm_file key = {.index = ckpt_manifest_first_link(m, index)};

	return w->file_count ? bsearch(&key, w->files, w->file_count, sizeof(key), compare_files) : NULL;
}

// A name in the session for the file at fd, which may be one of several; what a crash left under it is gone with that.
static int give_name(struct warming *w, const char *from, const char *raw)
{
	int fd = w->step->store->sessions_fd, rc = ckpt_sys.link(w->step->store->trash_fd, from, fd, raw);

	if (rc != -EEXIST)
		return rc;
	rc = ckpt_sys.unlink(fd, raw, 0);
	return rc ? rc : ckpt_sys.link(w->step->store->trash_fd, from, fd, raw);
}

static int sync_names(struct warming *w)
{
	CLEANUP_FD int fd = -1;

	if (!*w->unsynced)
		return 0;
	fd = ckpt_sys.open(w->step->store->sessions_fd, w->unsynced, O_RDONLY | O_DIRECTORY, 0);
	*w->unsynced = '\0';
	return fd < 0 ? fd : ckpt_sys.fsync(fd);
}

// What has names in one directory mostly comes together, and is synced together.
static int name_given(struct warming *w, char *raw)
{
	int rc = 0;

	*strrchr(raw, '/') = '\0'; // a session and a path below it
	if (strcmp(w->unsynced, raw))
		rc = sync_names(w);
	memcpy(w->unsynced, raw, strlen(raw) + 1);
	return rc;
}

static int place_entry(struct warming *w, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	struct warm_file *f = e->content == CKPT_CONTENT_CHUNKS ? file_of(w, m, e->index) : NULL;
	char name[ASIDE_MAX], raw[CKPT_RAW_PATH_MAX];
	int rc;

	if (!f)
		return 0;
	aside(w, f->index, name);
	rc = ckpt_step_raw_path(w->step, m, e->index, raw, sizeof(raw));
	if (!rc)
		rc = give_name(w, name, raw);
	if (!rc)
		rc = name_given(w, raw);
	f->ready |= !rc;
	return rc;
}

static int place_files(struct warming *w, struct ckpt_manifest *m)
{
	uint32_t count = ckpt_manifest_count(m);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		rc = place_entry(w, m, &e);
	}
	return rc ? rc : sync_names(w);
}

static void place(void *arg, const struct ckpt_manifest *m, struct ckpt_entry *e)
{
	const struct warming *w = arg;
	const struct warm_file *f = e->content == CKPT_CONTENT_CHUNKS ? file_of(w, m, e->index) : NULL;

	if (f && f->ready)
		e->content = CKPT_CONTENT_RAW;
}

// -ESTALE the version is not the one whose files were written: they are written again.
static int try_put(struct warming *w, bool *adopted)
{
	struct ckpt_edit d = {.step = w->step, .event = CKPT_EVENT_WARM, .same_files = true, .place = place, .arg = w};
	int rc = ckpt_edit_begin(&d, adopted);

	if (!rc && memcmp(ckpt_manifest_sha256(d.m), ckpt_manifest_sha256(w->m), CKPT_SHA256_LEN))
		rc = -EAGAIN;
	if (!rc) {
		ckpt_cool_raws_left(w->step);
		rc = place_files(w, d.m);
	}
	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc;
}

// --- The act ------------------------------------------------------------------------------------------------------------

static void drop_asides(struct warming *w)
{
	for (size_t i = 0; i < w->written; i++) {
		char name[ASIDE_MAX];

		aside(w, w->files[i].index, name);
		ckpt_sys.unlink(w->step->store->trash_fd, name, 0);
	}
	w->file_count = w->written = 0;
}

static int put(struct warming *w, bool *adopted)
{
	LOCK_SCOPE(&w->step->store->acts_lock);

	return try_put(w, adopted);
}

static void count(const struct warming *w)
{
	for (size_t i = 0; i < w->file_count; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(w->m, w->files[i].index, &e);
		w->done->files++;
		w->done->bytes += e.bytes;
		w->done->stored_bytes += e.bytes;
	}
}

static int warm_once(struct warming *w, bool *adopted)
{
	int rc = ckpt_step_state(w->step) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(w->step, &w->m) : -ESTALE;

	if (!rc)
		rc = choose(w);
	if (!rc)
		rc = check_room(w);
	if (!rc)
		rc = write_files(w);
	if (!rc && w->file_count)
		rc = put(w, adopted);
	if (!rc)
		count(w);
	drop_asides(w);
	ckpt_manifest_unref(TAKE_PTR(w->m));
	return rc;
}

static bool is_quiet(int rc)
{
	return !rc || rc == -EINTR || rc == -ESTALE || rc == -EBUSY;
}

int ckpt_warm(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done)
{
	struct warming w = {.step = step, .how = how, .done = ret_done};
	bool adopted = false;
	int rc = ckpt_sys.random(&w.salt, sizeof(w.salt));

	*ret_done = (struct ckpt_tier_done){0};
	if (!rc)
		rc = -EAGAIN;
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = warm_once(&w, &adopted);
	if (rc == -EAGAIN)
		rc = -EBUSY;
	if (!is_quiet(rc))
		ckpt_errlog_add(step->store->errlog, step->name, rc,
				ckpt_is_full(rc) ? "make room on the disk of the store, then try again"
						 : "run `ckptfs verify --read-data` on the store",
				"its files could not be read from packs");
	free(w.files);
	return rc;
}

#include "core/save/warm.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/edit.h"
#include "core/save/share.h"
#include "core/save/session.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>

// The files are written in trash/, where a crash leaves nothing that stays, and made durable. Then they get their names in the
// session under the lock of all acts: no cooling is between. The step has the same version before and after. That it was warmed is
// said by an attribute of the session's directory, which is durable before the first name is there.

#define WARM_XATTR CKPT_OWN_XATTRS "warm"
#define TEXT_MAX 32 // of it
#define BY_READING " read"
#define ASIDE_MAX 64
#define NOTHING 1000 // of a chunk
#define COMPARED_BYTES ((size_t)1 << 20)

struct warming {
	struct ckpt_step *step;
	const struct ckpt_tier_how *how;
	struct ckpt_tier_done *done;
	struct ckpt_manifest *m;
	uint64_t salt;
	uint32_t *files; // their entries, in order, of hard links the first
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

static int compare_number(const void *number, const void *reading)
{
	uint64_t a = *(const uint64_t *)number, b = ckpt_reading_file(*(struct ckpt_reading *const *)reading)->number;

	return (a > b) - (a < b);
}

// That of the file, if it still has the bytes that were read; NULL: none.
static struct ckpt_reading *reading_of(const struct warming *w, uint32_t index)
{
	struct ckpt_reading *const *found = NULL;
	struct ckpt_entry e;
	struct ckpt_seal seal;

	ckpt_manifest_entry(w->m, index, &e);
	if (w->how->readings)
		found = bsearch(&e.ino, w->how->readings, w->how->reading_count, sizeof(struct ckpt_reading *),
				compare_number);
	return found && ckpt_manifest_seal(w->m, index, &seal) &&
			       !memcmp(seal.sha256, ckpt_reading_file(*found)->sha256, sizeof(seal.sha256))
		       ? *found
		       : NULL;
}

// Any of its names counts.
static bool is_wanted(const struct warming *w, uint32_t first, uint32_t nlink)
{
	struct ckpt_entry e, other;

	ckpt_manifest_entry(w->m, first, &e);
	if (w->how->readings)
		return reading_of(w, first);
	if (nlink == 1 || !w->how->only)
		return matches(w, first);
	for (uint32_t i = first; i < ckpt_manifest_count(w->m); i++) {
		ckpt_manifest_entry(w->m, i, &other);
		if (other.ino == e.ino && matches(w, i))
			return true;
	}
	return false;
}

// Under each of its names.
static bool has_raws(const struct warming *w, uint32_t first, uint32_t nlink)
{
	struct ckpt_entry e, other;

	ckpt_manifest_entry(w->m, first, &e);
	for (uint32_t i = first; i < ckpt_manifest_count(w->m) && nlink; i++) {
		ckpt_manifest_entry(w->m, i, &other);
		if (other.ino != e.ino)
			continue;
		if (!ckpt_step_has_raw(w->step, w->m, i))
			return false;
		nlink--;
	}
	return true;
}

static int choose(struct warming *w)
{
	uint32_t count = ckpt_manifest_count(w->m);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(w->m, i, &e);
		if (e.content != CKPT_CONTENT_CHUNKS || ckpt_manifest_first_link(w->m, i) != i ||
		    !is_wanted(w, i, e.nlink) || has_raws(w, i, e.nlink))
			continue;
		rc = ckpt_grow((void **)&w->files, &w->file_cap, w->file_count + 1, sizeof(*w->files));
		if (!rc)
			w->files[w->file_count++] = i;
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

	for (size_t i = 0; i < w->file_count; i++) {
		struct ckpt_reading *reading = reading_of(w, w->files[i]); // what is written of it has its room

		bytes += MIN(room_of(w, w->files[i]), reading ? ckpt_reading_lacks(reading) : UINT64_MAX);
	}
	return !ckpt_sys.room(w->step->store->dirfd, &room, &all) && room < bytes ? -ENOSPC : 0;
}

static bool goes_on(const struct warming *w, uint64_t bytes)
{
	return !w->how->go_on || w->how->go_on(w->how->arg, bytes);
}

// Against its seal. 0; -EBADMSG; -EINTR; -errno.
static int compare_bytes(const struct warming *w, uint32_t index, const char *name)
{
	CLEANUP_FREE uint8_t *buf = malloc(COMPARED_BYTES);
	CLEANUP_FD int fd = ckpt_sys.open(w->step->store->trash_fd, name, O_RDONLY, 0);
	uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_sha256 sum;
	struct ckpt_seal seal;
	ssize_t n = !buf ? -ENOMEM : fd < 0 ? fd : 1;

	ckpt_sha256_begin(&sum);
	for (uint64_t at = 0; n > 0; at += (uint64_t)n) {
		n = ckpt_sys.pread(fd, buf, COMPARED_BYTES, (off_t)at);
		if (n > 0)
			ckpt_sha256_add(&sum, buf, (size_t)n);
		if (n > 0 && !goes_on(w, (uint64_t)n))
			n = -EINTR;
	}
	ckpt_sha256_end(&sum, sha256);
	if (n < 0)
		return (int)n;
	return ckpt_manifest_seal(w->m, index, &seal) && !memcmp(sha256, seal.sha256, sizeof(sha256)) ? 0 : -EBADMSG;
}

// The bytes that a client's reading has left of it are not read once more, unless the whole is found to be other than it should be: it has been in a
// file since it was verified.
static int write_file(const struct warming *w, uint32_t index, const char *name)
{
	struct ckpt_share_progress progress = {
		.durable = true, .raw = true, .go_on = w->how->go_on, .arg = w->how->arg};
	struct ckpt_reading *reading = reading_of(w, index);
	CLEANUP(ckpt_extents_done) struct ckpt_extents kept = {0};
	int rc;

	if (reading && !ckpt_reading_take(reading, name, &kept))
		progress.kept = &kept;
	rc = ckpt_share_copy_entry(w->step, w->m, index, w->step->store->trash_fd, name, &progress);
	if (rc || !progress.kept)
		return rc;
	rc = compare_bytes(w, index, name);
	if (rc)
		ckpt_sys.unlink(w->step->store->trash_fd, name, 0);
	if (rc != -EBADMSG)
		return rc;
	progress.kept = NULL;
	return ckpt_share_copy_entry(w->step, w->m, index, w->step->store->trash_fd, name, &progress);
}

static int write_files(struct warming *w)
{
	CLEANUP_FD int session_fd = ckpt_session_open(w->step); // there is one to give them names in
	int rc = MIN(session_fd, 0);

	for (; w->written < w->file_count && !rc; w->written += !rc) {
		uint32_t index = w->files[w->written];
		char name[ASIDE_MAX];

		aside(w, index, name);
		rc = write_file(w, index, name);
	}
	return rc;
}

// --- For how long -------------------------------------------------------------------------------------------------------

static int open_session(const struct ckpt_step *step)
{
	return ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
}

// The moment that the mark says, and by what; 0: there is none.
static int64_t mark_of(int fd, bool *ret_by_reading)
{
	char text[TEXT_MAX] = "", *end;
	ssize_t len = fd < 0 ? -1 : fgetxattr(fd, WARM_XATTR, text, sizeof(text) - 1);
	int64_t at_ns = len > 0 ? strtoll(text, &end, 10) : 0;

	*ret_by_reading = len > 0 && !strcmp(end, BY_READING);
	return at_ns;
}

static int64_t left_ns(int64_t at_ns)
{
	int64_t since_ns = ckpt_time_between(at_ns, ckpt_sys.now_ns());

	// A time to come is of a clock that was wrong.
	return at_ns && since_ns >= 0 ? MAX(CKPT_WARM_NS - since_ns, 0) : 0;
}

static int say_warmed(struct ckpt_step *step, bool by_reading)
{
	CLEANUP_FD int fd = open_session(step);
	bool was_by_reading, by_hand = left_ns(mark_of(fd, &was_by_reading)) && !was_by_reading;
	char text[TEXT_MAX];
	int len = snprintf(text, sizeof(text), "%lld%s", (long long)ckpt_sys.now_ns(), by_reading ? BY_READING : ""),
	    rc = MIN(fd, 0);

	if (!rc && !(by_reading && by_hand))
		rc = ckpt_sys.fsetxattr(fd, WARM_XATTR, text, (size_t)len, 0);
	if (!rc)
		rc = ckpt_sys.fsync(fd);
	if (rc)
		return rc;
	ckpt_raws_left(step, true);
	LOCK_SCOPE(&step->lock);
	ckpt_raws_of(step)->cooled = 0; // the cooler looks at it again
	return 0;
}

int64_t ckpt_warm_left_ns(const struct ckpt_step *step)
{
	CLEANUP_FD int fd = open_session(step);
	bool by_reading;

	return left_ns(mark_of(fd, &by_reading));
}

int64_t ckpt_warm_read_ns(const struct ckpt_step *step)
{
	CLEANUP_FD int fd = open_session(step);
	bool by_reading;
	int64_t at_ns = mark_of(fd, &by_reading);

	return by_reading ? at_ns : 0;
}

void ckpt_warm_end(const struct ckpt_step *step)
{
	CLEANUP_FD int fd = open_session(step);

	if (fd >= 0)
		(void)fremovexattr(fd, WARM_XATTR); // one that stays delays the cooler for the rest of its day
}

// --- Their places -------------------------------------------------------------------------------------------------------

static int compare_files(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

// Whether this entry's file was written.
static bool was_written(const struct warming *w, uint32_t index)
{
	uint32_t first = ckpt_manifest_first_link(w->m, index);

	return bsearch(&first, w->files, w->file_count, sizeof(first), compare_files);
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

static int place_entry(struct warming *w, uint32_t index)
{
	char name[ASIDE_MAX], raw[CKPT_RAW_PATH_MAX];
	int rc = ckpt_step_raw_path(w->step, w->m, index, raw, sizeof(raw));

	aside(w, ckpt_manifest_first_link(w->m, index), name);
	if (!rc)
		rc = give_name(w, name, raw);
	return rc ? rc : name_given(w, raw);
}

static int place_files(struct warming *w)
{
	uint32_t count = ckpt_manifest_count(w->m);
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(w->m, i, &e);
		// Another warming may have been first, and somebody may have its file.
		if (e.content == CKPT_CONTENT_CHUNKS && was_written(w, i) && !ckpt_step_has_raw(w->step, w->m, i))
			rc = place_entry(w, i);
	}
	return rc ? rc : sync_names(w);
}

// -EAGAIN: the step has another version than the one whose files were written.
static int place_locked(struct warming *w)
{
	struct ckpt_edit d = {.step = w->step};
	bool adopted = false;
	int rc = ckpt_edit_begin(&d, &adopted);

	if (!rc && memcmp(ckpt_manifest_sha256(d.m), ckpt_manifest_sha256(w->m), CKPT_SHA256_LEN))
		rc = -EAGAIN;
	ckpt_edit_done(&d);
	if (!rc)
		rc = say_warmed(w->step, w->how->readings);
	return rc ? rc : place_files(w);
}

static int place(struct warming *w)
{
	LOCK_SCOPE(&w->step->store->acts_lock);

	return place_locked(w);
}

// --- The act ------------------------------------------------------------------------------------------------------------

static void drop_asides(struct warming *w)
{
	for (size_t i = 0; i < w->written; i++) {
		char name[ASIDE_MAX];

		aside(w, w->files[i], name);
		ckpt_sys.unlink(w->step->store->trash_fd, name, 0);
	}
	w->file_count = w->written = 0;
}

static void count(const struct warming *w)
{
	for (size_t i = 0; i < w->file_count; i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(w->m, w->files[i], &e);
		w->done->files++;
		w->done->bytes += e.bytes;
		w->done->stored_bytes += e.bytes;
	}
}

static int warm_once(struct warming *w)
{
	int rc = ckpt_step_state(w->step) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(w->step, &w->m) : -ESTALE;

	if (!rc)
		rc = choose(w);
	if (!rc)
		rc = check_room(w);
	if (!rc)
		rc = write_files(w);
	if (!rc || (w->how->readings && w->written)) {
		int place_rc;

		w->file_count =
			w->written; // those of readings have places at once: they are not read again for one that failed
		place_rc = w->file_count ? place(w) : 0;
		if (!place_rc)
			count(w);
		rc = rc ? rc : place_rc;
	}
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
	int rc = ckpt_sys.random(&w.salt, sizeof(w.salt));

	*ret_done = (struct ckpt_tier_done){0};
	if (!rc)
		rc = -EAGAIN;
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = warm_once(&w);
	if (rc == -EAGAIN)
		rc = -EBUSY;
	if (!is_quiet(rc) && !how->readings)
		ckpt_errlog_add(step->store->errlog, step->name, rc,
				ckpt_is_full(rc) ? "make room on the disk of the store, then try again"
						 : "run `ckptfs verify --read-data` on the store",
				"its files could not be read from packs");
	free(w.files);
	return rc;
}

void ckpt_raws_left(struct ckpt_step *step, bool left)
{
	LOCK_SCOPE(&step->lock);

	ckpt_raws_of(step)->left = left;
}

struct ckpt_part ckpt_raws_part = {.bytes = sizeof(struct ckpt_raws)};

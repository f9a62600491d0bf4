#include "core/cold/file.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk_cache.h"
#include "core/cold/reading.h"
#include "core/cold/sparse.h"
#include "core/step/errlog.h"
#include "core/step/follow.h"
#include "core/step/older.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>

#define COPY_BYTES ((size_t)1 << 20)
#define AHEAD_CHUNKS 2
#define RUN_BYTES_LEAST (UINT64_C(16) << 20) // of one request, where that much may be expected
#define FLOCK_TRIES 1000
#define OPEN_TRIES 4 // of a file that moves while we look

// A file whose bytes are in packs pins them: it is in a list of the store's, which garbage collection reads after it has read what
// the steps need. A file that is in the list before its manifest is known to be the step's current one (is_current) is safe: either
// it is seen there, or what it needs was needed by the step when that was read, or the packs were added by a version since, and then
// they count as pinned (pack_pins.h).
//
// Who has the store open for reading, beside the process that collects, says that he has such files by a shared flock(2) of
// sessions/, and who collects looks whether he could have it alone.

struct ckpt_file {
	struct ckpt_file *next, *prev; // of those in packs; guarded by store->lock
	bool listed;
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	uint32_t index;
	uint64_t bytes;
	int fd; // -1: chunks
	uint32_t first, count;
	uint64_t *ends;  // of the chunks in the file
	uint32_t latest; // chunk that was asked for; atomic
	// Of a store that is far; atomic.
	bool follows;                 // it was read in order, and expects what comes next
	uint32_t begun;               // chunk from which on it is read in order now
	uint32_t expected;            // chunks before this one were expected
	bool told;                    // of damage; atomic
	struct ckpt_reading *reading; // NULL: nobody watches what is read; set before it is shared
	struct ckpt_file *anew;       // reads it from now on, since its packs are gone: it was warmed; set once, atomic
};

static int take_chunks(struct ckpt_file *f)
{
	struct ckpt_seal seal;
	uint64_t end = 0;

	if (!ckpt_manifest_seal(f->m, f->index, &seal))
		return -EIO; // the parser saw to it
	f->first = seal.first;
	f->count = seal.count;
	f->ends = ckpt_calloc(f->count, sizeof(*f->ends));
	if (!f->ends)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->count; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(f->m, f->first + i, &chunk);
		f->ends[i] = end += chunk.bytes;
	}
	return 0;
}

// Who looks whether we do has it for a moment. Nothing blocks here, for a lock is held.
static void say_that_we_read(struct ckpt_store *s)
{
	for (int tries = 0; tries < FLOCK_TRIES && flock(s->sessions_fd, LOCK_SH | LOCK_NB); tries++)
		sched_yield();
}

static void list_file(struct ckpt_file *f)
{
	struct ckpt_store *s = f->step->store;
	LOCK_SCOPE(&s->lock);

	f->next = ckpt_packed_files_of(s)->first;
	if (f->next)
		f->next->prev = f;
	else if (!s->writable)
		say_that_we_read(s);
	ckpt_packed_files_of(s)->first = f;
	f->listed = true;
}

static void unlist_file(struct ckpt_file *f)
{
	struct ckpt_store *s = f->step->store;
	LOCK_SCOPE(&s->lock);

	*(f->prev ? &f->prev->next : &ckpt_packed_files_of(s)->first) = f->next;
	if (f->next)
		f->next->prev = f->prev;
	if (!ckpt_packed_files_of(s)->first && !s->writable)
		(void)flock(s->sessions_fd, LOCK_UN);
}

static int open_in(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_file **ret_file)
{
	struct ckpt_file *f = ckpt_calloc(1, sizeof(*f));
	struct ckpt_entry e;
	int rc;

	if (!f)
		return -ENOMEM;
	ckpt_manifest_entry(m, index, &e);
	f->fd = -1;
	f->step = ckpt_step_ref(step);
	f->m = ckpt_manifest_ref(m);
	f->index = index;
	f->bytes = e.bytes;
	f->latest = UINT32_MAX;
	rc = ckpt_step_open_raw(step, m, index, &f->fd);
	if (rc && e.content == CKPT_CONTENT_CHUNKS)
		rc = take_chunks(f);
	else if (rc == -EIO && e.type == CKPT_ENTRY_FILE && !e.bytes) // an empty one is read of nowhere
		rc = 0;
	if (!rc && f->fd < 0)
		list_file(f);
	if (rc)
		ckpt_file_close(f);
	else
		*ret_file = f;
	return rc;
}

static bool is_current(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	LOCK_SCOPE(&step->lock);

	return !memcmp(step->version->is.manifest_sha256, ckpt_manifest_sha256(m), CKPT_SHA256_LEN);
}

static bool has_same_raw_path(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index,
			      struct ckpt_manifest *now, uint32_t now_index)
{
	char was[CKPT_RAW_PATH_MAX], is[CKPT_RAW_PATH_MAX];

	return !ckpt_step_raw_path(step, m, index, was, sizeof(was)) &&
	       !ckpt_step_raw_path(step, now, now_index, is, sizeof(is)) && !strcmp(was, is);
}

// Its bytes are the same, though they may be elsewhere. One that was written anew keeps its number, and has no seal or another, and
// another raw file, which is said where it is in packs, too.
static bool is_same(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_manifest *now,
		    uint32_t now_index)
{
	struct ckpt_entry is, was;
	struct ckpt_seal is_seal, was_seal;

	ckpt_manifest_entry(m, index, &was);
	ckpt_manifest_entry(now, now_index, &is);
	if (is.ino != was.ino || is.bytes != was.bytes || !has_same_raw_path(step, m, index, now, now_index))
		return false;
	return !ckpt_manifest_seal(m, index, &was_seal) ||
	       (ckpt_manifest_seal(now, now_index, &is_seal) &&
		!memcmp(is_seal.sha256, was_seal.sha256, sizeof(is_seal.sha256)));
}

int ckpt_file_find_same(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_manifest *other,
			uint32_t *ret_index)
{
	struct ckpt_entry e, there;
	uint32_t i;
	int rc;

	ckpt_manifest_entry(m, index, &e);
	rc = ckpt_manifest_find_ino(other, e.ino, &i);
	for (; !rc && i < ckpt_manifest_count(other); i++) {
		ckpt_manifest_entry(other, i, &there);
		if (there.ino == e.ino && is_same(step, m, index, other, i)) {
			*ret_index = i;
			return 0;
		}
	}
	return -ENOENT;
}

int ckpt_file_find_packed(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index,
			  struct ckpt_manifest **ret_manifest, uint32_t *ret_index)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count = 0;
	int rc = ckpt_older_list(step, &list, &count);

	for (size_t i = rc ? 0 : count; i-- > 0;) {
		struct ckpt_manifest *other;
		struct ckpt_summary sum;
		struct ckpt_entry e;
		struct ckpt_record r;

		if (list[i].over || !list[i].repacked || ckpt_step_record(step, list[i].says, &r))
			continue;
		sum = r.summary;
		ckpt_record_done(&r);
		if (ckpt_step_read_manifest(step, &sum, &other))
			continue;
		if (!ckpt_file_find_same(step, m, index, other, ret_index)) {
			ckpt_manifest_entry(other, *ret_index, &e);
			if (e.content == CKPT_CONTENT_CHUNKS) {
				*ret_manifest = other;
				return 0;
			}
		}
		ckpt_manifest_unref(other);
	}
	return rc == -ENOMEM ? rc : -ENOENT;
}

// The file of an older version whose raw file was removed, because a later one had its bytes in packs. -EIO: none has.
static int open_later(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_file **ret_file)
{
	struct ckpt_manifest *other;
	uint32_t at;
	int rc = ckpt_file_find_packed(step, m, index, &other, &at);

	if (rc)
		return rc == -ENOENT ? -EIO : rc;
	rc = open_in(step, other, at, ret_file);
	ckpt_manifest_unref(other);
	return rc;
}

// The same file in the current version, where its bytes may be elsewhere. -EIO: that has none, or is the version that we know, and
// the file was not warmed since.
static int open_anew(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_file **ret_file)
{
	struct ckpt_manifest *now;
	uint32_t now_index;
	int rc;

	(void)ckpt_follow_newer(step);
	rc = ckpt_step_manifest(step, &now);
	if (rc)
		return rc;
	if ((!memcmp(ckpt_manifest_sha256(now), ckpt_manifest_sha256(m), CKPT_SHA256_LEN) &&
	     !ckpt_step_has_raw(step, m, index)) ||
	    ckpt_file_find_same(step, m, index, now, &now_index))
		rc = -EIO;
	else
		rc = open_in(step, now, now_index, ret_file);
	ckpt_manifest_unref(now);
	return rc;
}

// Beside the process that writes we may not know the newest version.
static bool is_newest(struct ckpt_step *step)
{
	return !ckpt_follow_newer(step);
}

static bool is_pinned(const struct ckpt_file *f)
{
	return !f->listed || (is_current(f->step, f->m) && (f->step->store->writable || is_newest(f->step)));
}

// What is in none but an older version is read from where that has it, as long as it is there.
int ckpt_file_open(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, struct ckpt_file **ret_file)
{
	struct ckpt_file *f = NULL, *other;
	int rc = open_in(step, m, index, &f);

	for (int tries = 0; tries < OPEN_TRIES && (rc == -EIO || (!rc && !is_pinned(f))); tries++) {
		int again = open_anew(step, f ? f->m : m, f ? f->index : index, &other);

		if (again && f)
			break;
		ckpt_file_close(f);
		f = again ? NULL : other;
		rc = again;
	}
	if (rc == -EIO)
		rc = open_later(step, m, index, &f);
	if (!rc)
		*ret_file = f;
	return rc;
}

int ckpt_file_manifests(struct ckpt_store *s, struct ckpt_manifest ***ret_manifests, size_t *ret_count)
{
	struct ckpt_manifest **manifests = NULL;
	size_t count = 0, cap = 0;
	int rc = 0;

	ckpt_lock_take(&s->lock);
	for (struct ckpt_file *f = ckpt_packed_files_of(s)->first; f && !rc; f = f->next) {
		if (count && manifests[count - 1] == f->m)
			continue;
		rc = ckpt_grow((void **)&manifests, &cap, count + 1, sizeof(struct ckpt_manifest *));
		if (!rc)
			manifests[count++] = ckpt_manifest_ref(f->m);
	}
	ckpt_lock_drop(&s->lock);
	if (rc) {
		ckpt_file_manifests_free(manifests, count);
		return rc;
	}
	*ret_manifests = manifests;
	*ret_count = count;
	return 0;
}

bool ckpt_file_others_read(struct ckpt_store *s)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->sessions_fd, ".", O_RDONLY | O_DIRECTORY, 0);

	return fd < 0 || flock(fd, LOCK_EX | LOCK_NB);
}

void ckpt_file_manifests_free(struct ckpt_manifest **manifests, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ckpt_manifest_unref(manifests[i]);
	free(manifests);
}

void ckpt_file_close(struct ckpt_file *f)
{
	if (!f)
		return;
	if (f->listed)
		unlist_file(f);
	if (f->follows)
		ckpt_chunk_cache_forget(*ckpt_chunk_cache_of(f->step->store), f);
	if (f->fd >= 0)
		ckpt_sys.close(f->fd);
	ckpt_file_close(f->anew);
	ckpt_reading_close(f->reading);
	ckpt_manifest_unref(f->m);
	ckpt_step_unref(f->step);
	free(f->ends);
	free(f);
}

void ckpt_file_watch(struct ckpt_file *f)
{
	if (f->fd < 0 && f->count)
		f->reading = ckpt_reading_open(f->step, f->m, f->index);
}

uint64_t ckpt_file_bytes(const struct ckpt_file *f)
{
	return f->bytes;
}

void ckpt_file_entry(const struct ckpt_file *f, struct ckpt_entry *ret_entry)
{
	ckpt_manifest_entry(f->m, f->index, ret_entry);
}

int ckpt_file_fd(const struct ckpt_file *f)
{
	return f->fd;
}

int ckpt_file_take_fd(struct ckpt_file *f)
{
	int fd = TAKE_FD(f->fd);

	if (fd >= 0)
		ckpt_file_close(f);
	return fd;
}

// --- Chunks -------------------------------------------------------------------------------------------------------------

// The first that ends behind offset.
static uint32_t chunk_at(const struct ckpt_file *f, uint64_t offset)
{
	uint32_t low = 0, high = f->count - 1;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (f->ends[middle] > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static uint64_t begin_of(const struct ckpt_file *f, uint32_t chunk)
{
	return chunk ? f->ends[chunk - 1] : 0;
}

// How far ahead of a chunk. A file that is read from its first byte on is read whole, mostly. From elsewhere on it is as much as was
// read in order so far, and as much again.
static uint64_t window_at(const struct ckpt_file *f, struct ckpt_chunk_cache *cache, uint32_t chunk)
{
	uint64_t most = ckpt_chunk_cache_window(cache);
	uint32_t begun = __atomic_load_n(&f->begun, __ATOMIC_RELAXED);
	uint64_t so_far = begin_of(f, chunk) - begin_of(f, MIN(begun, chunk));

	return begun ? MIN(most, 2 * so_far) : most;
}

// From the chunk on that is about to be read: its run is what the reader waits for. Several threads may do so at once, and expect the
// same.
static void expect_far(struct ckpt_file *f, struct ckpt_chunk_cache *cache, uint32_t chunk)
{
	uint64_t window = window_at(f, cache, chunk), end = begin_of(f, chunk) + window;
	uint64_t run = MIN(CKPT_CHUNK_RUN_BYTES, MAX(window / 2, MIN(window, RUN_BYTES_LEAST)));
	uint32_t next = MAX(__atomic_load_n(&f->expected, __ATOMIC_RELAXED), chunk), taken = 1;

	while (taken && next < f->count && (next == chunk || MIN(begin_of(f, next) + run, f->bytes) <= end)) {
		taken = ckpt_chunk_cache_expect_run(cache, &(struct ckpt_run_wanted){.m = f->m,
										     .first = f->first + next,
										     .end = f->first + f->count,
										     .bytes_max = run,
										     .reader = f});
		next += taken;
	}
	__atomic_store_n(&f->expected, next, __ATOMIC_RELAXED);
}

// A reader may have asked for a part of what was expected out of order: the kernel asks for several things at once.
static void look_far_ahead(struct ckpt_file *f, struct ckpt_chunk_cache *cache, uint32_t chunk, uint32_t latest)
{
	uint32_t expected = __atomic_load_n(&f->expected, __ATOMIC_RELAXED),
		 begun = __atomic_load_n(&f->begun, __ATOMIC_RELAXED);
	bool is_expected = chunk < expected && chunk >= begun;

	if (latest == UINT32_MAX || (chunk != latest + 1 && !is_expected)) {
		__atomic_store_n(&f->begun, chunk, __ATOMIC_RELAXED);
		__atomic_store_n(&f->expected, 0, __ATOMIC_RELAXED);
		return;
	}
	if (!__atomic_exchange_n(&f->follows, true, __ATOMIC_RELAXED))
		ckpt_chunk_cache_follow(cache);
	expect_far(f, cache, chunk);
}

// Who reads one chunk after the other finds the next ones there.
static void look_ahead(struct ckpt_file *f, uint32_t chunk)
{
	struct ckpt_chunk_cache *cache = *ckpt_chunk_cache_of(f->step->store);
	uint32_t latest = __atomic_exchange_n(&f->latest, chunk, __ATOMIC_RELAXED);

	if (ckpt_chunk_cache_is_far(cache)) {
		look_far_ahead(f, cache, chunk, latest);
		return;
	}
	if (latest == UINT32_MAX || chunk != latest + 1)
		return;
	for (uint32_t next = chunk + 1; next <= chunk + AHEAD_CHUNKS && next < f->count; next++)
		ckpt_chunk_cache_expect(cache, f->m, f->first + next);
}

static void tell_damage(struct ckpt_file *f, int error)
{
	char path[PATH_MAX] = "a file";

	if (__atomic_exchange_n(&f->told, true, __ATOMIC_RELAXED))
		return;
	ckpt_manifest_path(f->m, f->index, path, sizeof(path));
	ckpt_errlog_add(f->step->store->errlog, f->step->name, -EIO,
			"run `ckptfs verify --read-data` on the store; restore the file from another copy",
			error == -ENOENT ? "a pack that holds %s is missing" : "a pack that holds %s is damaged", path);
}

static struct ckpt_file *anew(const struct ckpt_file *f)
{
	return __atomic_load_n(&f->anew, __ATOMIC_ACQUIRE);
}

// A pack is gone that the version needs which was opened: a later one may not.
// Of a store with a remote another node may have moved its bytes, which the log says (REMOTE.md R6). The log is not read once more for a file whose
// damage was told.
static int open_anew_by_log(struct ckpt_file *f, struct ckpt_file **ret_found)
{
	const struct ckpt_store_calls *calls = &f->step->store->calls;
	bool (*read_news)(void *arg) = __atomic_load_n(&calls->read_news, __ATOMIC_ACQUIRE);
	int rc = open_anew(f->step, f->m, f->index, ret_found);

	if (!rc || !read_news || __atomic_load_n(&f->told, __ATOMIC_RELAXED) || !read_news(calls->read_news_arg))
		return rc;
	return open_anew(f->step, f->m, f->index, ret_found);
}

static bool find_anew(struct ckpt_file *f)
{
	struct ckpt_file *none = NULL, *found;

	if (open_anew_by_log(f, &found))
		return anew(f);
	if (!__atomic_compare_exchange_n(&f->anew, &none, found, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		ckpt_file_close(found);
	return true;
}

static int get_chunk(struct ckpt_file *f, uint32_t chunk, bool at_once, struct ckpt_cached **ret_cached)
{
	struct ckpt_chunk_cache *cache = *ckpt_chunk_cache_of(f->step->store);
	int rc = 0;

	if (at_once)
		*ret_cached = ckpt_chunk_cache_try(cache, f->m, f->first + chunk);
	if (at_once && !*ret_cached)
		return -EAGAIN;
	if (chunk != __atomic_load_n(&f->latest, __ATOMIC_RELAXED))
		look_ahead(f, chunk);
	if (!at_once)
		rc = ckpt_chunk_cache_get(cache, f->m, f->first + chunk, ret_cached);
	return rc;
}

static int view_chunk(struct ckpt_file *f, uint64_t offset, bool at_once, struct ckpt_file_view *ret_view)
{
	uint32_t chunk = chunk_at(f, offset);
	uint64_t begin = begin_of(f, chunk);
	struct ckpt_cached *cached;
	int rc = get_chunk(f, chunk, at_once, &cached);

	if (rc)
		return rc;
	ret_view->data = ckpt_cached_data(cached) + (offset - begin);
	ret_view->len = (size_t)(f->ends[chunk] - offset);
	ret_view->cached = cached;
	ret_view->cache = *ckpt_chunk_cache_of(f->step->store);
	if (f->reading) {
		ret_view->reading = ckpt_reading_ref(f->reading);
		ret_view->offset = offset;
		ckpt_reading_keep(f->reading, ret_view->cache, cached, begin, f->ends[chunk] - begin);
	}
	return 0;
}

int ckpt_file_view(struct ckpt_file *f, uint64_t offset, bool at_once, struct ckpt_file_view *ret_view)
{
	int rc;

	*ret_view = (struct ckpt_file_view){0};
	if (f->fd >= 0 || anew(f))
		return -EXDEV;
	if (offset >= f->bytes)
		return 0;
	rc = view_chunk(f, offset, at_once, ret_view);
	if (rc == -ENOENT && find_anew(f))
		return -EXDEV;
	if (rc == -EBADMSG || rc == -ENOENT || rc == -ENOTSUP) {
		tell_damage(f, rc);
		return -EIO;
	}
	return rc;
}

void ckpt_file_view_done(struct ckpt_file_view *view, size_t used)
{
	if (view->cached)
		ckpt_chunk_cache_let_go(view->cache, view->cached, used);
	if (view->reading && used)
		ckpt_reading_took(view->reading, view->offset, used);
	ckpt_reading_unref(view->reading);
}

static ssize_t read_view(struct ckpt_file *f, void *buf, size_t len, uint64_t offset)
{
	struct ckpt_file_view view;
	int rc = ckpt_file_view(f, offset, false, &view);

	if (rc)
		return rc;
	len = MIN(len, view.len);
	if (len)
		memcpy(buf, view.data, len);
	ckpt_file_view_done(&view, len);
	return (ssize_t)len;
}

ssize_t ckpt_file_read(struct ckpt_file *f, void *buf, size_t len, uint64_t offset)
{
	ssize_t n;

	if (offset >= f->bytes || !len)
		return 0;
	len = MIN(len, (size_t)MIN(f->bytes - offset, (uint64_t)SSIZE_MAX));
	if (f->fd < 0) {
		n = read_view(f, buf, len, offset);
		return n == -EXDEV ? ckpt_file_read(anew(f), buf, len, offset) : n;
	}
	n = ckpt_sys.pread(f->fd, buf, len, (off_t)offset);
	return n ? n : -EIO; // it was as long as it should be when it was opened
}

// The end of the part of `kept` that has the byte at `at`, or `at`.
static uint64_t behind_kept(const struct ckpt_extents *kept, uint64_t at)
{
	for (size_t i = 0; kept && i < kept->count; i++)
		if (kept->list[i].begin <= at && kept->list[i].end > at)
			return kept->list[i].end;
	return at;
}

// Up to the next part that is kept.
static uint64_t before_kept(const struct ckpt_extents *kept, uint64_t at, uint64_t end)
{
	for (size_t i = 0; kept && i < kept->count; i++)
		if (kept->list[i].begin >= at)
			return MIN(kept->list[i].begin, end);
	return end;
}

static int copy_part(struct ckpt_file *f, int fd, uint8_t *buf, uint64_t at, size_t len, size_t *ret_done)
{
	ssize_t n = ckpt_file_read(f, buf, len, at);

	if (n < 0)
		return (int)n;
	*ret_done = (size_t)n;
	return ckpt_sparse_write(fd, buf, (size_t)n, at);
}

int ckpt_file_copy(struct ckpt_file *f, int fd, const struct ckpt_extents *kept,
		   bool (*go_on)(void *arg, uint64_t bytes), void *arg)
{
	CLEANUP_FREE uint8_t *buf = malloc(COPY_BYTES);
	uint64_t at = behind_kept(kept, 0);
	int rc = buf ? 0 : -ENOMEM;

	while (!rc && at < f->bytes) {
		size_t done = 0;

		rc = copy_part(f, fd, buf, at, (size_t)MIN(before_kept(kept, at, f->bytes) - at, COPY_BYTES), &done);
		if (!rc && go_on && !go_on(arg, done))
			rc = -EINTR;
		at = behind_kept(kept, at + done);
	}
	return rc ? rc : ckpt_sys.ftruncate(fd, (off_t)f->bytes);
}

struct ckpt_part ckpt_packed_files_part = {.bytes = sizeof(struct ckpt_packed_files)};

// A reading is
//
//   PARTLY   some of the file was read, or nothing; it is in the table, from which the oldest goes that nobody has open
//   WHOLE    all was read, and pieces of it are still to be written
//   TOLD     the watcher has it; it is in the table no more
//
// took() makes it WHOLE, and tells where nothing is to be written; else the thread does behind the last piece.
// Its file in trash/ is
//
//   NONE     not begun: a piece that comes begins it
//   BEGUN    `kept` is what is in it, or is queued
//   REFUSED  there was no room, or is none any more, or writing failed: no piece is taken until nobody has the file open and somebody opens it
//
// The close, or the last piece, makes it NONE when nobody has the file open, nothing is queued and it is not WHOLE; take() hands it out.
//
// Invariants, under the lock:
//  1. A piece in the queue, and the one that is being written, counts in `pending` and has a reference.
//  2. The file in trash/ has a name and no descriptor that stays: of thousands of readings none costs one. The name is the thread's to set;
//     whoever takes the file out under the lock removes it. The thread may be writing to it then: those bytes go with it.
//  3. `promised` of all is the sum of what BEGUN files lack.
#include "core/cold/reading.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/sparse.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#define READINGS_MAX 512
#define EXTENTS_MAX 8192
#define KEPT_BYTES_MAX (UINT64_C(16) << 20) // wait to be written
#define PIECES_MAX 64
#define ASK_NS INT64_C(1000000000) // for room, again
#define NAME_MAX_BYTES 64

enum file_state { NONE, BEGUN, REFUSED };

struct ckpt_reading {
	struct ckpt_readings *of;
	struct ckpt_reading_file file;
	unsigned refs; // atomic
	// Guarded by the lock of all.
	struct ckpt_reading *newer, *older; // in the table
	unsigned opens;
	struct ckpt_extents taken;
	bool whole, listed;
	size_t pending;
	enum file_state state;
	struct ckpt_extents kept;
	uint64_t promised;
	char name[NAME_MAX_BYTES]; // while BEGUN
};

struct piece {
	struct ckpt_reading *reading; // a reference
	struct ckpt_chunk_cache *cache;
	struct ckpt_cached *cached; // held
	uint64_t offset, bytes;
};

struct ckpt_readings {
	struct ckpt_store *store;
	struct ckpt_readings_watch watch;
	pthread_t thread;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct ckpt_reading *newest, *oldest;
	size_t count;
	struct piece queue[PIECES_MAX]; // a ring
	size_t first, queued;
	uint64_t queued_bytes; // with those of the one that is being written
	uint64_t promised;
	bool stop;
	// The thread's.
	int64_t asked_ns; // for room, monotonic
};

// --- The file in trash/ ---------------------------------------------------------------------------------------------------

// Of one that was taken out of its reading.
struct dropped {
	char name[NAME_MAX_BYTES]; // "": none
	uint64_t bytes;            // written, or promised to it
};

static struct dropped take_out_locked(struct ckpt_reading *reading, enum file_state state)
{
	struct dropped d = {.bytes = 0};

	if (reading->state == BEGUN) {
		memcpy(d.name, reading->name, sizeof(d.name));
		d.bytes = reading->file.bytes;
	}
	reading->of->promised -= reading->promised;
	reading->promised = 0;
	reading->state = state;
	ckpt_extents_done(&reading->kept);
	return d;
}

static void drop(const struct ckpt_readings *r, const struct dropped *d)
{
	if (*d->name)
		(void)ckpt_sys.unlink(r->store->trash_fd, d->name, 0); // the next open empties the trash
}

// Without a lock: nobody else has the reading any more.
static void reading_free(struct ckpt_reading *reading)
{
	struct ckpt_readings *r = reading->of;
	struct dropped d;

	ckpt_lock_take(&r->lock);
	d = take_out_locked(reading, NONE);
	ckpt_lock_drop(&r->lock);
	drop(r, &d);
	ckpt_extents_done(&reading->taken);
	free(reading);
}

static bool is_idle_locked(const struct ckpt_reading *reading)
{
	return !reading->opens && !reading->pending && !reading->whole;
}

// Under the same hold as what made it idle: else somebody opens it between the two, and `kept` is that of a file which is another one by then.
static struct dropped take_out_if_idle_locked(struct ckpt_reading *reading)
{
	return is_idle_locked(reading) ? take_out_locked(reading, NONE) : (struct dropped){.bytes = 0};
}

uint64_t ckpt_reading_lacks(struct ckpt_reading *reading)
{
	LOCK_SCOPE(&reading->of->lock);

	return reading->state == BEGUN ? reading->promised : reading->file.bytes;
}

int ckpt_reading_take(struct ckpt_reading *reading, const char *name, struct ckpt_extents *ret_kept)
{
	struct ckpt_extents kept;
	struct dropped d;
	int rc;

	ckpt_lock_take(&reading->of->lock);
	kept = reading->kept;
	reading->kept = (struct ckpt_extents){0};
	d = take_out_locked(reading, REFUSED);
	ckpt_lock_drop(&reading->of->lock);
	rc = !*d.name ? -ENOENT
		      : ckpt_sys.rename(reading->of->store->trash_fd, d.name, reading->of->store->trash_fd, name,
					RENAME_NOREPLACE);
	if (rc) {
		drop(reading->of, &d);
		ckpt_extents_done(&kept);
		return rc;
	}
	*ret_kept = kept;
	return 0;
}

// Of one that is whole, and about to be kept, the rest is small.
static struct ckpt_reading *oldest_begun_locked(const struct ckpt_readings *r)
{
	struct ckpt_reading *reading = r->oldest;

	while (reading && (reading->state != BEGUN || reading->whole))
		reading = reading->newer;
	return reading;
}

uint64_t ckpt_readings_yield(struct ckpt_readings *r, uint64_t bytes)
{
	uint64_t freed = 0;
	bool any = r;

	while (any && freed < bytes) {
		struct ckpt_reading *reading;
		struct dropped d = {.bytes = 0};

		ckpt_lock_take(&r->lock);
		reading = oldest_begun_locked(r);
		any = reading;
		if (any)
			d = take_out_locked(reading, REFUSED);
		ckpt_lock_drop(&r->lock);
		drop(r, &d);
		freed += d.bytes;
	}
	return freed;
}

// --- References ---------------------------------------------------------------------------------------------------------

struct ckpt_reading *ckpt_reading_ref(struct ckpt_reading *reading)
{
	__atomic_add_fetch(&reading->refs, 1, __ATOMIC_RELAXED);
	return reading;
}

void ckpt_reading_unref(struct ckpt_reading *reading)
{
	if (reading && !__atomic_sub_fetch(&reading->refs, 1, __ATOMIC_ACQ_REL))
		reading_free(reading);
}

const struct ckpt_reading_file *ckpt_reading_file(const struct ckpt_reading *reading)
{
	return &reading->file;
}

// --- The table ----------------------------------------------------------------------------------------------------------

static void unlist_locked(struct ckpt_reading *reading)
{
	struct ckpt_readings *r = reading->of;

	*(reading->newer ? &reading->newer->older : &r->newest) = reading->older;
	*(reading->older ? &reading->older->newer : &r->oldest) = reading->newer;
	reading->newer = reading->older = NULL;
	reading->listed = false;
	r->count--;
}

static void list_locked(struct ckpt_reading *reading)
{
	struct ckpt_readings *r = reading->of;

	reading->older = r->newest;
	*(reading->older ? &reading->older->newer : &r->oldest) = reading;
	r->newest = reading;
	reading->listed = true;
	r->count++;
}

static struct ckpt_reading *find_locked(const struct ckpt_readings *r, const struct ckpt_reading_file *file)
{
	struct ckpt_reading *reading = r->newest;

	while (reading && (reading->whole || reading->file.number != file->number ||
			   memcmp(reading->file.sha256, file->sha256, sizeof(file->sha256)) != 0 ||
			   strcmp(reading->file.session, file->session) != 0))
		reading = reading->older;
	return reading;
}

// The oldest that nobody has open gives its place to another. NULL: there is room, or there is none to be had.
static struct ckpt_reading *crowded_out_locked(struct ckpt_readings *r)
{
	struct ckpt_reading *reading = r->count < READINGS_MAX ? NULL : r->oldest;

	while (reading && !is_idle_locked(reading))
		reading = reading->newer;
	if (reading)
		unlist_locked(reading);
	return reading;
}

static struct ckpt_reading *reading_new(struct ckpt_readings *r, const struct ckpt_reading_file *file)
{
	struct ckpt_reading *reading = ckpt_calloc(1, sizeof(*reading));

	if (!reading)
		return NULL;
	reading->of = r;
	reading->file = *file;
	reading->refs = 1; // the table's
	return reading;
}

static struct ckpt_reading *find_or_add(struct ckpt_readings *r, const struct ckpt_reading_file *file)
{
	struct ckpt_reading *made = reading_new(r, file), *reading, *out = NULL;

	ckpt_lock_take(&r->lock);
	reading = find_locked(r, file);
	if (!reading && made) {
		out = crowded_out_locked(r);
		if (r->count < READINGS_MAX)
			list_locked(reading = TAKE_PTR(made));
	}
	if (reading) {
		if (reading->state == REFUSED && !reading->opens && !reading->pending)
			reading->state = NONE;
		reading->opens++;
		ckpt_reading_ref(reading);
	}
	ckpt_lock_drop(&r->lock);
	ckpt_reading_unref(out);
	ckpt_reading_unref(made);
	return reading;
}

struct ckpt_reading *ckpt_reading_open(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_readings *r = __atomic_load_n(ckpt_readings_of(step->store), __ATOMIC_ACQUIRE);
	struct ckpt_reading_file file = {0};
	struct ckpt_chunk chunk;
	struct ckpt_pack pack;
	struct ckpt_entry e;
	struct ckpt_seal seal;

	if (!r)
		return NULL;
	ckpt_manifest_entry(m, index, &e);
	if (e.content != CKPT_CONTENT_CHUNKS || !e.bytes || !ckpt_manifest_seal(m, index, &seal))
		return NULL;
	ckpt_manifest_chunk(m, seal.first, &chunk);
	ckpt_manifest_pack(m, chunk.pack - 1, &pack);
	if (!r->watch.is_far(r->watch.arg, &pack))
		return NULL;
	memcpy(file.session, step->session, sizeof(file.session));
	memcpy(file.sha256, seal.sha256, sizeof(file.sha256));
	file.number = e.ino;
	file.bytes = e.bytes;
	return find_or_add(r, &file);
}

void ckpt_reading_close(struct ckpt_reading *reading)
{
	struct dropped d;

	if (!reading)
		return;
	ckpt_lock_take(&reading->of->lock);
	reading->opens--;
	d = take_out_if_idle_locked(reading);
	ckpt_lock_drop(&reading->of->lock);
	drop(reading->of, &d);
	ckpt_reading_unref(reading);
}

// --- What is read -------------------------------------------------------------------------------------------------------

// With the table's reference.
static bool is_to_be_told_locked(struct ckpt_reading *reading)
{
	bool is = reading->whole && !reading->pending && reading->listed && !reading->of->stop;

	if (is)
		unlist_locked(reading);
	return is;
}

void ckpt_reading_took(struct ckpt_reading *reading, uint64_t offset, uint64_t bytes)
{
	const struct ckpt_readings_watch *watch = &reading->of->watch;
	bool tells = false;

	ckpt_lock_take(&reading->of->lock);
	if (!reading->whole && !ckpt_extents_add(&reading->taken, offset, offset + bytes, EXTENTS_MAX) &&
	    ckpt_extents_cover(&reading->taken, 0, reading->file.bytes)) {
		reading->whole = true;
		tells = is_to_be_told_locked(reading);
	}
	ckpt_lock_drop(&reading->of->lock);
	if (tells)
		watch->whole(watch->arg, reading);
}

static bool is_wanted_locked(const struct ckpt_reading *reading, const struct piece *p)
{
	const struct ckpt_readings *r = reading->of;

	return !reading->whole && reading->state != REFUSED && !r->stop && r->queued < PIECES_MAX &&
	       (!r->queued_bytes || r->queued_bytes + p->bytes <= KEPT_BYTES_MAX) &&
	       !ckpt_extents_cover(&reading->kept, p->offset, p->offset + p->bytes);
}

static bool is_wanted(const struct ckpt_reading *reading, const struct piece *p)
{
	LOCK_SCOPE(&reading->of->lock);

	return is_wanted_locked(reading, p);
}

static bool queue_piece(const struct piece *p)
{
	struct ckpt_reading *reading = p->reading;
	struct ckpt_readings *r = reading->of;
	LOCK_SCOPE(&r->lock);

	if (!is_wanted_locked(reading, p) ||
	    ckpt_extents_add(&reading->kept, p->offset, p->offset + p->bytes, EXTENTS_MAX))
		return false;
	ckpt_reading_ref(reading);
	reading->pending++;
	r->queued_bytes += p->bytes;
	r->queue[(r->first + r->queued++) % PIECES_MAX] = *p;
	pthread_cond_signal(&r->changed);
	return true;
}

// Most reads are of a chunk that is kept already: those take nothing but the lock.
void ckpt_reading_keep(struct ckpt_reading *reading, struct ckpt_chunk_cache *cache, struct ckpt_cached *cached,
		       uint64_t offset, uint64_t bytes)
{
	const struct piece p = {reading, cache, cached, offset, bytes};

	if (ckpt_jobs_saving(reading->of->store->jobs) > 0 || !is_wanted(reading, &p))
		return;
	ckpt_chunk_cache_hold(cache, cached);
	if (!queue_piece(&p))
		ckpt_chunk_cache_let_go(cache, cached, 0);
}

static void piece_done(const struct piece *p)
{
	struct ckpt_reading *reading = p->reading;
	struct ckpt_readings *r = reading->of;
	struct dropped d;
	bool tells;

	ckpt_chunk_cache_let_go(p->cache, p->cached, 0);
	ckpt_lock_take(&r->lock);
	r->queued_bytes -= p->bytes;
	reading->pending--;
	tells = is_to_be_told_locked(reading);
	d = take_out_if_idle_locked(reading);
	ckpt_lock_drop(&r->lock);
	if (tells)
		r->watch.whole(r->watch.arg, reading);
	drop(r, &d);
	ckpt_reading_unref(reading);
}

// --- The thread ---------------------------------------------------------------------------------------------------------

static int begin_file(struct ckpt_reading *reading)
{
	struct ckpt_readings *r = reading->of;
	uint64_t salt, promised;
	char name[NAME_MAX_BYTES];
	int fd, rc = ckpt_sys.random(&salt, sizeof(salt));

	ckpt_lock_take(&r->lock);
	promised = r->promised;
	ckpt_lock_drop(&r->lock);
	if (rc || !r->watch.has_room(r->watch.arg, reading->file.bytes, promised))
		return rc ? rc : -ENOSPC;
	snprintf(name, sizeof(name), CKPT_TRASH_COPY "%016llx-read", (unsigned long long)salt);
	fd = ckpt_sys.open(r->store->trash_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	ckpt_sys.close(fd);
	r->asked_ns = ckpt_sys.mono_ns();
	LOCK_SCOPE(&r->lock);

	memcpy(reading->name, name, sizeof(name));
	reading->state = BEGUN;
	reading->promised = reading->file.bytes;
	r->promised += reading->promised;
	return 0;
}

static enum file_state state_of(struct ckpt_reading *reading)
{
	LOCK_SCOPE(&reading->of->lock);

	return reading->state;
}

// Others may have filled the disk since the file was begun: it may be read for days.
static int ask_again(struct ckpt_readings *r)
{
	int64_t now_ns = ckpt_sys.mono_ns();
	uint64_t promised;

	if (now_ns - r->asked_ns < ASK_NS)
		return 0;
	r->asked_ns = now_ns;
	ckpt_lock_take(&r->lock);
	promised = r->promised;
	ckpt_lock_drop(&r->lock);
	return r->watch.has_room(r->watch.arg, 0, promised) ? 0 : -ENOSPC;
}

static int write_piece(const struct piece *p)
{
	struct ckpt_reading *reading = p->reading;
	struct ckpt_readings *r = reading->of;
	int rc = state_of(reading) == NONE ? begin_file(reading) : ask_again(r);
	CLEANUP_FD int fd = rc ? rc : ckpt_sys.open(r->store->trash_fd, reading->name, O_RDWR | O_NOFOLLOW, 0);

	if (!rc)
		rc = MIN(fd, 0);
	if (!rc)
		rc = ckpt_sparse_write(fd, ckpt_cached_data(p->cached), (size_t)p->bytes, p->offset);
	if (rc)
		return rc;
	LOCK_SCOPE(&r->lock);

	r->promised -= MIN(p->bytes, reading->promised);
	reading->promised -= MIN(p->bytes, reading->promised);
	return 0;
}

static void keep_piece(const struct piece *p)
{
	struct ckpt_reading *reading = p->reading;
	struct dropped d = {.bytes = 0};

	if (state_of(reading) != REFUSED && write_piece(p)) {
		ckpt_lock_take(&reading->of->lock);
		d = take_out_locked(reading, REFUSED);
		ckpt_lock_drop(&reading->of->lock);
		drop(reading->of, &d);
	}
}

static bool next_locked(struct ckpt_readings *r, struct piece *ret_piece)
{
	if (!r->queued)
		return false;
	*ret_piece = r->queue[r->first];
	r->first = (r->first + 1) % PIECES_MAX;
	r->queued--;
	return true;
}

static void *keep_pieces(void *arg)
{
	struct ckpt_readings *r = arg;
	struct piece p;

	ckpt_lock_take(&r->lock);
	while (!r->stop) {
		if (!next_locked(r, &p)) {
			ckpt_lock_wait(&r->changed, &r->lock);
			continue;
		}
		ckpt_lock_drop(&r->lock);
		keep_piece(&p);
		piece_done(&p);
		ckpt_lock_take(&r->lock);
	}
	ckpt_lock_drop(&r->lock);
	return NULL;
}

int ckpt_readings_new(struct ckpt_store *s, const struct ckpt_readings_watch *watch,
		      struct ckpt_readings **ret_readings)
{
	struct ckpt_readings *r = ckpt_calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->store = s;
	r->watch = *watch;
	ckpt_lock_init(&r->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&r->changed, NULL);
	if (pthread_create(&r->thread, NULL, keep_pieces, r)) {
		pthread_cond_destroy(&r->changed);
		ckpt_lock_done(&r->lock);
		free(r);
		return -EAGAIN;
	}
	*ret_readings = r;
	return 0;
}

void ckpt_readings_stop(struct ckpt_readings *r)
{
	struct piece p;
	bool runs;

	if (!r)
		return;
	ckpt_lock_take(&r->lock);
	runs = !r->stop;
	r->stop = true;
	pthread_cond_signal(&r->changed);
	ckpt_lock_drop(&r->lock);
	if (!runs)
		return;
	pthread_join(r->thread, NULL);
	while (next_locked(r, &p)) // nobody adds one any more
		piece_done(&p);
}

void ckpt_readings_free(struct ckpt_readings *r)
{
	struct ckpt_reading *reading;

	if (!r)
		return;
	while ((reading = r->newest)) {
		unlist_locked(reading);
		ckpt_reading_unref(reading);
	}
	pthread_cond_destroy(&r->changed);
	ckpt_lock_done(&r->lock);
	free(r);
}

struct ckpt_part ckpt_readings_part = {.bytes = sizeof(struct ckpt_readings *)};

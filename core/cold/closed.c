#include "core/cold/closed.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/step.h"
#include "core/step/store.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define BUCKETS 1024u

enum state { QUEUED, TAKEN, READ };

struct ckpt_closed_entry {
	struct ckpt_closed_entry *next;       // of the bucket
	struct ckpt_closed_entry *queue_next; // QUEUED
	uint64_t ino, generation;
	enum state state;
	struct ckpt_step *step;       // QUEUED: a reference; else only to be compared
	int fd;                       // QUEUED; else -1
	struct ckpt_closed_read read; // READ
};

// --- The table, with the lock held --------------------------------------------------------------------------------------

static struct ckpt_closed_entry **place_of(const struct ckpt_closed *c, uint64_t ino)
{
	struct ckpt_closed_entry **place = &c->buckets[(ino ^ ino >> 20) & (BUCKETS - 1)];

	while (*place && (*place)->ino != ino)
		place = &(*place)->next;
	return place;
}

static struct ckpt_closed_entry *find(const struct ckpt_closed *c, uint64_t ino)
{
	return c->buckets ? *place_of(c, ino) : NULL;
}

static void unqueue(struct ckpt_closed *c, struct ckpt_closed_entry *e)
{
	struct ckpt_closed_entry **place = &c->first;

	while (*place != e)
		place = &(*place)->queue_next;
	*place = e->queue_next;
	if (c->end == &e->queue_next)
		c->end = place;
	c->queued--;
}

// Out of the table; it is the caller's then.
static struct ckpt_closed_entry *take_out(struct ckpt_closed *c, struct ckpt_closed_entry **place)
{
	struct ckpt_closed_entry *e = *place;

	*place = e->next;
	c->chunks -= e->read.count;
	if (e->state == QUEUED)
		unqueue(c, e);
	return e;
}

// Without locks: the last reference of a step may go.
static void entry_free(struct ckpt_closed_entry *e)
{
	if (!e)
		return;
	if (e->state == QUEUED)
		ckpt_step_unref(e->step);
	if (e->fd >= 0)
		close(e->fd);
	ckpt_closed_read_done(&e->read);
	free(e);
}

// Those for which goes() says so, as a list by next.
static struct ckpt_closed_entry *
take_out_all(struct ckpt_closed *c, bool (*goes)(const struct ckpt_closed_entry *e, const void *arg), const void *arg)
{
	struct ckpt_closed_entry *list = NULL;

	for (size_t i = 0; c->buckets && i < BUCKETS; i++) {
		for (struct ckpt_closed_entry **place = &c->buckets[i]; *place;) {
			struct ckpt_closed_entry *e;

			if (!goes(*place, arg)) {
				place = &(*place)->next;
				continue;
			}
			e = take_out(c, place);
			e->next = list;
			list = e;
		}
	}
	return list;
}

static void free_all(struct ckpt_closed_entry *list)
{
	for (struct ckpt_closed_entry *next; list; list = next) {
		next = list->next;
		entry_free(list);
	}
}

// --- Closing --------------------------------------------------------------------------------------------------------------

static bool goes(const struct ckpt_closed_entry *e, const void *arg)
{
	(void)e;
	(void)arg;
	return true;
}

void ckpt_closed_want(struct ckpt_store *s, struct ckpt_job *job)
{
	struct ckpt_closed *c = ckpt_closed_of(s);
	struct ckpt_closed_entry *list = NULL;

	ckpt_lock_take(&c->lock);
	if (!c->buckets) {
		c->buckets = ckpt_calloc(BUCKETS, sizeof(struct ckpt_closed_entry *));
		c->end = &c->first;
	}
	__atomic_store_n(&c->job, c->buckets ? job : NULL, __ATOMIC_RELAXED);
	if (!job)
		list = take_out_all(c, goes, NULL);
	ckpt_lock_drop(&c->lock);
	free_all(list);
	(void)ckpt_closed_tidy(s);
}

// The descriptor is not the last one of the file: whoever opens or closes it has another. So nothing is removed here.
static void put_away(struct ckpt_closed *c, struct ckpt_closed_entry *e)
{
	if (e->fd >= 0)
		close(TAKE_FD(e->fd));
	e->next = c->gone;
	c->gone = e;
}

// Anew, and not a copy of the descriptor: that may be one that writes, with which no commit gets its lease.
static int open_to_read(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static struct ckpt_closed_entry *new_entry(struct ckpt_step *step, uint64_t ino, int fd)
{
	struct ckpt_closed_entry *e = ckpt_calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->ino = ino;
	e->fd = open_to_read(fd);
	if (e->fd < 0) {
		free(e);
		return NULL;
	}
	e->step = ckpt_step_ref(step);
	return e;
}

// The file is not any more as it was known. False: there is no room for it, or nobody wants it.
static bool enter(struct ckpt_closed *c, struct ckpt_closed_entry *e)
{
	struct ckpt_closed_entry **place;

	if (!c->job)
		return false;
	place = place_of(c, e->ino);
	if (*place)
		put_away(c, take_out(c, place));
	if (c->queued >= CKPT_CLOSED_QUEUE_MAX)
		return false;
	place = place_of(c, e->ino);
	e->generation = ++c->generation;
	e->next = *place;
	*place = e;
	*c->end = e;
	c->end = &e->queue_next;
	c->queued++;
	return true;
}

void ckpt_closed_add(struct ckpt_step *step, uint64_t ino, int fd)
{
	struct ckpt_closed *c = ckpt_closed_of(step->store);
	struct ckpt_closed_entry *e;
	struct ckpt_job *job;
	struct stat st;
	bool entered;

	if (!ckpt_closed_is_wanted(step->store) || fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size < CKPT_CLOSED_BYTES_MIN)
		return;
	e = new_entry(step, ino, fd);
	if (!e)
		return;
	ckpt_lock_take(&c->lock);
	entered = enter(c, e);
	job = c->job;
	ckpt_lock_drop(&c->lock);
	if (entered)
		(void)ckpt_job_wake(job); // it lives as long as the store
	else
		entry_free(e); // its reference is not the last: the caller has one
}

void ckpt_closed_forget(struct ckpt_store *s, uint64_t ino)
{
	struct ckpt_closed *c = ckpt_closed_of(s);

	if (!ckpt_closed_is_wanted(s))
		return;
	LOCK_SCOPE(&c->lock);
	if (find(c, ino))
		put_away(c, take_out(c, place_of(c, ino)));
}

static bool is_read_of(const struct ckpt_closed_entry *e, const void *step)
{
	return e->state == READ && e->step == step;
}

void ckpt_closed_forget_step(const struct ckpt_step *step)
{
	struct ckpt_closed *c = ckpt_closed_of(step->store);
	struct ckpt_closed_entry *list;

	ckpt_lock_take(&c->lock);
	list = take_out_all(c, is_read_of, step);
	ckpt_lock_drop(&c->lock);
	free_all(list);
}

// --- Reading --------------------------------------------------------------------------------------------------------------

bool ckpt_closed_tidy(struct ckpt_store *s)
{
	struct ckpt_closed *c = ckpt_closed_of(s);
	struct ckpt_closed_entry *gone;
	bool any;

	ckpt_lock_take(&c->lock);
	gone = TAKE_PTR(c->gone);
	any = c->first;
	ckpt_lock_drop(&c->lock);
	free_all(gone);
	return any;
}

static bool is_left_to_commit(const struct ckpt_closed_entry *e, const void *arg)
{
	struct stat st;

	(void)arg;
	return e->state == QUEUED && (__atomic_load_n(&e->step->state, __ATOMIC_ACQUIRE) != CKPT_STEP_STAGED ||
				      fstat(e->fd, &st) || !st.st_nlink);
}

void ckpt_closed_leave(struct ckpt_store *s)
{
	struct ckpt_closed *c = ckpt_closed_of(s);
	struct ckpt_closed_entry *list;

	ckpt_lock_take(&c->lock);
	list = take_out_all(c, is_left_to_commit, NULL);
	ckpt_lock_drop(&c->lock);
	free_all(list);
}

bool ckpt_closed_take(struct ckpt_store *s, struct ckpt_closed_file *ret_file)
{
	struct ckpt_closed *c = ckpt_closed_of(s);
	struct ckpt_closed_entry *e;

	ckpt_lock_take(&c->lock);
	e = c->first;
	if (e) {
		unqueue(c, e);
		e->state = TAKEN;
		*ret_file = (struct ckpt_closed_file){e->step, TAKE_FD(e->fd), e->ino, e->generation};
	}
	ckpt_lock_drop(&c->lock);
	return e;
}

static struct ckpt_closed_entry *taken(const struct ckpt_closed *c, const struct ckpt_closed_file *file)
{
	struct ckpt_closed_entry *e = find(c, file->ino);

	return e && e->generation == file->generation ? e : NULL;
}

bool ckpt_closed_is_current(struct ckpt_store *s, const struct ckpt_closed_file *file)
{
	struct ckpt_closed *c = ckpt_closed_of(s);
	LOCK_SCOPE(&c->lock);

	return taken(c, file);
}

bool ckpt_closed_done(struct ckpt_store *s, struct ckpt_closed_file *file, struct ckpt_closed_read *read)
{
	struct ckpt_closed *c = ckpt_closed_of(s);
	struct ckpt_closed_entry *e, *gone = NULL;
	bool kept;

	ckpt_lock_take(&c->lock);
	e = taken(c, file);
	kept = e && read && c->chunks + read->count <= CKPT_CLOSED_CHUNKS_MAX;
	if (kept) {
		e->state = READ;
		e->read = *read;
		read->chunks = NULL;
		c->chunks += read->count;
	} else if (e) {
		gone = take_out(c, place_of(c, file->ino));
	}
	ckpt_lock_drop(&c->lock);
	entry_free(gone);
	close(TAKE_FD(file->fd));
	ckpt_step_unref(TAKE_PTR(file->step));
	return kept;
}

static int64_t ns_of(const struct timespec *t)
{
	return t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

// A file whose ctime is a whole second may be of a filesystem that keeps no more.
bool ckpt_closed_is_settled(const struct stat *st, int64_t now_ns)
{
	int64_t ctime_ns = ns_of(&st->st_ctim);
	bool whole = ctime_ns % 1000000000 == 0;

	return ctime_ns < now_ns - (whole ? CKPT_CLOSED_SETTLED_NS : CKPT_CLOSED_SETTLED_FINE_NS);
}

bool ckpt_closed_is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       ns_of(&a->st_mtim) == ns_of(&b->st_mtim) && ns_of(&a->st_ctim) == ns_of(&b->st_ctim);
}

bool ckpt_closed_find(struct ckpt_store *s, uint64_t ino, const struct stat *st, struct ckpt_closed_read *ret_read)
{
	struct ckpt_closed *c = ckpt_closed_of(s);

	if (!ckpt_closed_is_wanted(s))
		return false;
	LOCK_SCOPE(&c->lock);
	const struct ckpt_closed_entry *e = find(c, ino);
	struct ckpt_chunk *chunks;

	if (!e || e->state != READ || !ckpt_closed_is_same(&e->read.st, st))
		return false;
	chunks = ckpt_calloc(e->read.count + 1, sizeof(*chunks));
	if (!chunks)
		return false;
	memcpy(chunks, e->read.chunks, e->read.count * sizeof(*chunks));
	*ret_read = e->read;
	ret_read->chunks = chunks;
	return true;
}

void ckpt_closed_read_done(struct ckpt_closed_read *read)
{
	free(TAKE_PTR(read->chunks));
}

static void closed_init(void *store)
{
	ckpt_lock_init(&ckpt_closed_of(store)->lock, CKPT_LOCK_LEAF);
}

static void closed_done(void *store)
{
	assert(!ckpt_closed_of(store)->job);
	free(ckpt_closed_of(store)->buckets);
	ckpt_lock_done(&ckpt_closed_of(store)->lock);
}

struct ckpt_part ckpt_closed_part = {.bytes = sizeof(struct ckpt_closed), .init = closed_init, .done = closed_done};

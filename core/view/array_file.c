// The pool's list has all open arrays, the one that was read last first. Invariants, under its lock:
//   1. held is the sum of what the files held at the end of their last reads, or when they were made to let go.
//   2. reserved is what those may come to have that are read just now and have to be decoded. One of them is always let in.
//   3. A file that is read, or made to let go, is busy: nobody makes it let go, and it is not freed.
#include "core/view/array_file.h"

#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/cold/file.h"

#define RESERVED_MIN ((size_t)16 << 20) // zstd's window, and a piece that is kept

struct ckpt_array_pool {
	struct ckpt_lock lock;
	pthread_cond_t freed;
	// Guarded by lock.
	struct ckpt_array_file *first, *last;
	size_t held, held_max;
	size_t reserved;
};

struct ckpt_array_file {
	struct ckpt_array_pool *pool;
	struct ckpt_array_dir *set;
	uint32_t at;
	uint64_t bytes;
	struct ckpt_npy_view *npy;       // an array, or
	struct ckpt_joined_view *joined; // those of a view. Both NULL: the index
	struct ckpt_file *raw;           // all elements are in it, from raw_at on; or NULL
	uint64_t raw_at;
	size_t header;
	// Guarded by the pool's lock.
	struct ckpt_array_file *next, *prev;
	unsigned busy;
	bool resting; // it is made to let go: reads wait
	size_t held, reserved;
	struct ckpt_array_file *victim; // resting: the next one that is
};

struct ckpt_array_pool *ckpt_array_pool_new(size_t bytes_max)
{
	struct ckpt_array_pool *p = ckpt_calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	ckpt_lock_init(&p->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&p->freed, NULL);
	p->held_max = bytes_max;
	return p;
}

void ckpt_array_pool_free(struct ckpt_array_pool *p)
{
	if (!p)
		return;
	pthread_cond_destroy(&p->freed);
	ckpt_lock_done(&p->lock);
	free(p);
}

size_t ckpt_array_pool_held(struct ckpt_array_pool *p)
{
	LOCK_SCOPE(&p->lock);
	return p->held;
}

static bool has_arrays(const struct ckpt_array_file *f)
{
	return f->npy || f->joined;
}

static bool is_decoded(const struct ckpt_array_file *f)
{
	return f->npy ? ckpt_npy_view_is_decoded(f->npy) : ckpt_joined_view_is_decoded(f->joined);
}

static size_t held_by(const struct ckpt_array_file *f)
{
	return f->npy ? ckpt_npy_view_held(f->npy) : ckpt_joined_view_held(f->joined);
}

static void rest(struct ckpt_array_file *f)
{
	if (f->npy)
		ckpt_npy_view_rest(f->npy);
	else
		ckpt_joined_view_rest(f->joined);
}

// --- The list ---------------------------------------------------------------------------------------------------------

static void unlink_locked(struct ckpt_array_file *f)
{
	*(f->prev ? &f->prev->next : &f->pool->first) = f->next;
	*(f->next ? &f->next->prev : &f->pool->last) = f->prev;
}

static void link_first_locked(struct ckpt_array_file *f)
{
	f->prev = NULL;
	f->next = f->pool->first;
	*(f->next ? &f->next->prev : &f->pool->last) = f;
	f->pool->first = f;
}

static void set_held_locked(struct ckpt_array_file *f, size_t held)
{
	f->pool->held += held - f->held;
	f->held = held;
}

// Those that are to let go, busy now.
static struct ckpt_array_file *choose_victims_locked(struct ckpt_array_pool *p)
{
	struct ckpt_array_file *victims = NULL;
	size_t held = p->held;

	for (struct ckpt_array_file *f = p->last; f && held > p->held_max; f = f->prev) {
		if (f->busy || !f->held)
			continue;
		held -= f->held;
		f->busy++;
		f->resting = true;
		f->victim = victims;
		victims = f;
	}
	return victims;
}

static void let_go(struct ckpt_array_pool *p, struct ckpt_array_file *victims)
{
	for (struct ckpt_array_file *f = victims; f; f = f->victim)
		rest(f);
	ckpt_lock_take(&p->lock);
	for (struct ckpt_array_file *f = victims, *next; f; f = next) {
		next = f->victim;
		f->busy--;
		f->resting = false;
		set_held_locked(f, 0);
	}
	pthread_cond_broadcast(&p->freed);
	ckpt_lock_drop(&p->lock);
}

// --- Reading ----------------------------------------------------------------------------------------------------------

// More reads of one file wait for each other, and need no more memory than one.
static void enter(struct ckpt_array_file *f)
{
	struct ckpt_array_pool *p = f->pool;
	bool decoded = is_decoded(f);

	LOCK_SCOPE(&p->lock);
	for (;;) {
		size_t need = decoded && !f->reserved ? MAX(f->held, RESERVED_MIN) : 0;

		if (!f->resting && (!need || !p->reserved || p->reserved + need <= p->held_max)) {
			f->reserved += need;
			p->reserved += need;
			f->busy++;
			return;
		}
		ckpt_lock_wait(&p->freed, &p->lock);
	}
}

static void leave(struct ckpt_array_file *f)
{
	struct ckpt_array_pool *p = f->pool;
	struct ckpt_array_file *victims;

	ckpt_lock_take(&p->lock);
	set_held_locked(f, held_by(f));
	unlink_locked(f);
	link_first_locked(f);
	if (!--f->busy) {
		p->reserved -= f->reserved;
		f->reserved = 0;
	}
	victims = choose_victims_locked(p);
	pthread_cond_broadcast(&p->freed);
	ckpt_lock_drop(&p->lock);
	if (victims)
		let_go(p, victims);
}

static ssize_t read_array(struct ckpt_array_file *f, void *buf, size_t len, uint64_t offset)
{
	ssize_t n;

	enter(f);
	n = f->npy ? ckpt_npy_view_read(f->npy, buf, len, offset) : ckpt_joined_view_read(f->joined, buf, len, offset);
	leave(f);
	return n;
}

ssize_t ckpt_array_file_read(struct ckpt_array_file *f, void *buf, size_t len, uint64_t offset)
{
	return has_arrays(f) ? read_array(f, buf, len, offset) : ckpt_array_dir_read_index(f->set, buf, len, offset);
}

// --- Open and close ---------------------------------------------------------------------------------------------------

// The most frequent case by far, and the one that is worth it: nothing is gathered, and nobody waits for a lock.
static void find_raw(struct ckpt_array_file *f)
{
	const char *path;

	if (!ckpt_npy_view_is_plain(f->npy, &path, &f->raw_at, &f->header) ||
	    ckpt_array_dir_open_file(f->set, path, &f->raw))
		return;
	if (ckpt_file_fd(f->raw) < 0) {
		ckpt_file_close(f->raw);
		f->raw = NULL;
	}
}

bool ckpt_array_file_raw(const struct ckpt_array_file *f, uint64_t offset, int *ret_fd, uint64_t *ret_at)
{
	if (!f->raw || offset < f->header)
		return false;
	*ret_fd = ckpt_file_fd(f->raw);
	*ret_at = f->raw_at + offset - f->header;
	return true;
}

int ckpt_array_file_open(struct ckpt_array_pool *p, struct ckpt_array_dir *set, uint32_t at,
			 struct ckpt_array_file **ret_file)
{
	const struct ckpt_array_tree *t = ckpt_array_dir_tree(set);
	struct ckpt_array_file *f = ckpt_calloc(1, sizeof(*f));
	struct ckpt_entry e;
	int rc = f ? ckpt_array_dir_entry(set, at, &e) : -ENOMEM;

	if (!rc && ckpt_array_tree_type(t, at) == CKPT_ARRAY_TREE_ARRAY)
		rc = ckpt_array_dir_open_npy(set, at, &f->npy);
	else if (!rc && ckpt_array_dir_base(set))
		rc = ckpt_array_dir_open_joined(set, &f->joined);
	if (rc) {
		free(f);
		return rc;
	}
	f->pool = p;
	f->bytes = e.bytes;
	f->set = ckpt_array_dir_ref(set);
	f->at = at;
	if (f->npy)
		find_raw(f);
	if (has_arrays(f)) {
		LOCK_SCOPE(&p->lock);
		link_first_locked(f);
	}
	*ret_file = f;
	return 0;
}

void ckpt_array_file_close(struct ckpt_array_file *f)
{
	if (!f)
		return;
	if (has_arrays(f)) {
		LOCK_SCOPE(&f->pool->lock);
		while (f->busy)
			ckpt_lock_wait(&f->pool->freed, &f->pool->lock);
		set_held_locked(f, 0);
		unlink_locked(f);
	}
	ckpt_npy_view_close(f->npy);
	ckpt_joined_view_close(f->joined);
	ckpt_file_close(f->raw);
	ckpt_array_dir_unref(f->set);
	free(f);
}

struct ckpt_array_dir *ckpt_array_file_set(const struct ckpt_array_file *f)
{
	return f->set;
}

uint32_t ckpt_array_file_at(const struct ckpt_array_file *f)
{
	return f->at;
}

uint64_t ckpt_array_file_bytes(const struct ckpt_array_file *f)
{
	return f->bytes;
}

bool ckpt_array_file_waits(const struct ckpt_array_file *f)
{
	return !has_arrays(f) || is_decoded(f) || ckpt_array_dir_is_packed(f->set);
}

// A ring of runs. The thread fills run `filled`, the caller has run `taken - 1`, and those between are ready:
//
//	filled - taken < CKPT_READ_RUNS: the thread may fill one, as the caller keeps the one that it has
//
// Invariant: a run is touched by the thread until filled has passed it, and by the caller from then on until its next call.
#include "core/view/read_ahead.h"

#include "core/base/lock.h"
#include "core/base/util.h"

#include <pthread.h>
#include <stdlib.h>

#define BLOCK_BYTES ((uint64_t)16 << 20) // of what is transposed
#define SLOTS (CKPT_READ_RUNS + 1)       // one is the caller's

struct ckpt_read_ahead {
	const struct ckpt_layout *layout;
	struct ckpt_expr *(*expr_of)(void *arg, size_t array);
	void *arg;
	// Of who reads.
	size_t part; // of the layout, that comes next
	struct ckpt_write_range range;
	struct ckpt_expr *expr;
	struct ckpt_expr_reader *reader;
	uint8_t *block;               // BLOCK_BYTES, of a transposed array
	uint64_t block_at, block_len; // which elements of it these are
	bool ended;                   // an error, or all is read
	uint8_t *bytes;
	struct ckpt_read_run runs[SLOTS];
	pthread_t thread;
	bool started, alone; // alone: no thread can be had
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	uint64_t filled, taken;
	bool stop;
};

// --- Reading ----------------------------------------------------------------------------------------------------------------

static int open_array(struct ckpt_read_ahead *a, struct ckpt_expr *expr)
{
	ckpt_expr_close(TAKE_PTR(a->reader));
	a->expr = expr;
	a->block_len = 0;
	return ckpt_expr_open(expr, &a->reader);
}

// A small part of a transposed array is a little of each of its rows: many parts at once cost as much. Whole rows are not cut.
static void choose_block(struct ckpt_read_ahead *a, uint64_t first)
{
	const struct ckpt_expr_shape *s = ckpt_expr_shape(a->expr);
	uint64_t at_once = BLOCK_BYTES / MAX(ckpt_expr_levels(a->expr), 1u) / ckpt_dtype_width(s->dtype),
		 rows = ckpt_expr_elements(a->expr);

	rows = s->ndim ? rows / s->at[0] : 1;
	at_once -= rows <= at_once ? at_once % rows : 0;
	a->block_at = first / at_once * at_once;
	a->block_len = MIN(at_once, ckpt_expr_elements(a->expr) - a->block_at);
}

static int read_transposed(struct ckpt_read_ahead *a, uint64_t first, uint64_t *count, uint8_t *into)
{
	unsigned width = ckpt_dtype_width(ckpt_expr_shape(a->expr)->dtype);
	int rc = 0;

	if (!a->block && !(a->block = malloc(BLOCK_BYTES)))
		return -ENOMEM;
	if (first < a->block_at || first - a->block_at >= a->block_len) {
		choose_block(a, first);
		rc = ckpt_expr_run(a->reader, a->block_at, a->block_len, a->block);
	}
	if (rc) {
		a->block_len = 0;
		return rc;
	}
	*count = MIN(*count, a->block_at + a->block_len - first);
	memcpy(into, a->block + (first - a->block_at) * width, (size_t)(*count * width));
	return 0;
}

// The range that is read next. False: there is no other one.
static bool find_range(struct ckpt_read_ahead *a)
{
	while (!a->range.bytes || !a->expr_of(a->arg, a->range.array))
		if (!ckpt_layout_next(a->layout, &a->part, &a->range))
			return false;
	return true;
}

static int read_run(struct ckpt_read_ahead *a, struct ckpt_read_run *run)
{
	struct ckpt_expr *expr = a->expr_of(a->arg, a->range.array);
	unsigned width = ckpt_dtype_width(ckpt_expr_shape(expr)->dtype);
	uint64_t first = a->range.first / width, count = MIN(a->range.bytes, CKPT_READ_RUN) / width;
	int rc = a->reader && a->expr == expr ? 0 : open_array(a, expr);

	run->array = a->range.array;
	if (!rc)
		rc = ckpt_expr_is_transposed(expr) ? read_transposed(a, first, &count, run->at)
						   : ckpt_expr_run(a->reader, first, count, run->at);
	run->bytes = count * width;
	a->range.first += run->bytes;
	a->range.bytes -= run->bytes;
	return rc;
}

static void fill(struct ckpt_read_ahead *a, struct ckpt_read_run *run)
{
	run->rc = find_range(a) ? read_run(a, run) : -ENODATA;
	a->ended = run->rc;
}

// --- The thread -------------------------------------------------------------------------------------------------------------

// The run that is filled next. NULL: none is.
static struct ckpt_read_run *wait_for_room(struct ckpt_read_ahead *a)
{
	LOCK_SCOPE(&a->lock);
	while (!a->stop && a->filled - a->taken >= CKPT_READ_RUNS)
		ckpt_lock_wait(&a->changed, &a->lock);
	return a->stop ? NULL : &a->runs[a->filled % SLOTS];
}

static void *read_all(void *arg)
{
	struct ckpt_read_ahead *a = arg;
	struct ckpt_read_run *run;

	while (!a->ended && (run = wait_for_room(a))) {
		fill(a, run);
		ckpt_lock_take(&a->lock);
		a->filled++;
		pthread_cond_signal(&a->changed);
		ckpt_lock_drop(&a->lock);
	}
	return NULL;
}

static void start(struct ckpt_read_ahead *a)
{
	a->started = !pthread_create(&a->thread, NULL, read_all, a);
	a->alone = !a->started;
}

const struct ckpt_read_run *ckpt_read_ahead_next(struct ckpt_read_ahead *a)
{
	struct ckpt_read_run *run;

	if (!a->started && !a->alone)
		start(a);
	if (a->alone) {
		fill(a, a->runs);
		return a->runs;
	}
	LOCK_SCOPE(&a->lock);
	while (a->filled == a->taken)
		ckpt_lock_wait(&a->changed, &a->lock);
	run = &a->runs[a->taken++ % SLOTS];
	pthread_cond_signal(&a->changed);
	return run;
}

int ckpt_read_ahead_new(const struct ckpt_layout *l, struct ckpt_expr *(*expr_of)(void *arg, size_t array), void *arg,
			struct ckpt_read_ahead **ret_ahead)
{
	struct ckpt_read_ahead *a = ckpt_calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->bytes = malloc(SLOTS * CKPT_READ_RUN);
	if (!a->bytes) {
		free(a);
		return -ENOMEM;
	}
	a->layout = l;
	a->expr_of = expr_of;
	a->arg = arg;
	for (unsigned i = 0; i < SLOTS; i++)
		a->runs[i].at = a->bytes + i * CKPT_READ_RUN;
	ckpt_lock_init(&a->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&a->changed, NULL);
	*ret_ahead = a;
	return 0;
}

void ckpt_read_ahead_free(struct ckpt_read_ahead *a)
{
	if (!a)
		return;
	ckpt_lock_take(&a->lock);
	a->stop = true;
	pthread_cond_signal(&a->changed);
	ckpt_lock_drop(&a->lock);
	if (a->started)
		pthread_join(a->thread, NULL);
	pthread_cond_destroy(&a->changed);
	ckpt_lock_done(&a->lock);
	ckpt_expr_close(a->reader);
	free(a->block);
	free(a->bytes);
	free(a);
}

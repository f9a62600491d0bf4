// Arrays out of device memory into files. A block (save_blocks.h) goes from list to list, each emptied by threads of its own:
//
//	waits for arrays --give--> ready --issuer--> copied --finisher--> writes --writers--> written
//
//	issuer    one thread: takes a buffer of the pool, puts text into it and copies into streams of the save, behind the events of its arrays
//	finisher  one: waits for the copies of a block. When all blocks have passed it, the arrays may change
//	writers   four: make a file for its first block, write the block, give the buffer back, close a file behind its last block
//
// Files of text alone, which say of others what they hold, become ready when all others are closed.
//
// Invariants:
//   1. A block has a buffer from the issuer to its writer, and no block waits for another while it has one: two saves cannot block each other.
//   2. The first error stays in rc; `stop` ends the issuer. Buffers are given back only when no copy into them is under way: the finisher
//      waits for those of its list, and the issuer frees its streams, which waits for all, before it gives back the one that it failed with.
//   3. captured() returns, also with an error, when no copy reads device memory any more.
#include "tools/cuda/ckptfs_cuda.h"
#include "tools/cuda/pool.h"
#include "tools/cuda/save_files.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/ckptfs.h"
#include "core/codec/codec_zlib.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#define MARKER ".finalize"
// Threads, with a pwrite(2) of O_DIRECT each. io_uring was measured beside them by a program of its own, and is not used so far: WRITE_FIXED from
// registered buffers, one thread, the same blocks of 8 MiB, a new file, fdatasync. Medians of 5 or 7, in MiB/s, least and most in brackets:
//                               4 threads          io_uring, 4 at once   8 at once
//   virtual disk, 48 MiB        112 (100-199)      193 (121-232)         150 (140-179)
//   file in memory, 256 MiB     708 (601-1715)     1819 (1300-2205)      1884 (1737-2822)
// The two processors had 12 to 20 other programs to run, so these figures do not say what an idle node gains. The kernel took 25 ms for 256 MiB with
// threads, and 7 with io_uring, which pins the buffers once.
#define WRITERS 4u

struct source { // of an array
	bool given;
	int device;
	const uint8_t *at;
	struct ckpt_pool_event *event; // it comes when its bytes are those to save
};

// Blocks in order; each is put in once.
struct list {
	size_t *blocks;
	size_t head, tail;
};

struct ckpt_cuda_save {
	struct ckpt_cuda_pool *pool;
	struct ckpt_save_blocks blocks;
	struct ckpt_save *step; // NULL: a folder
	int dirfd;
	struct source *sources;
	size_t given;
	struct ckpt_save_open *open;       // of each file: made by its first writer, closed by its last
	struct ckpt_pool_buffer **buffers; // of each block
	void *streams[CKPT_DEVICES_MAX];   // of the issuer
	pthread_t threads[2 + WRITERS];
	unsigned thread_count;
	atomic_bool stop;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	struct list ready, copied, writes;
	size_t *left;  // blocks of each file that are not written
	bool *opening; // a writer makes this file
	size_t issued, finished, captured, written, array_files;
	bool issuer_done, finisher_done;
	int rc;
	char why[CKPT_CUDA_WHY_MAX];
};

// --- Errors -----------------------------------------------------------------------------------------------------------------

__attribute__((format(printf, 3, 4))) static void fail(struct ckpt_cuda_save *s, int rc, const char *why, ...)
{
	va_list args;

	{
		LOCK_SCOPE(&s->lock);
		if (!s->rc) {
			s->rc = rc;
			va_start(args, why);
			vsnprintf(s->why, sizeof(s->why), why, args);
			va_end(args);
		}
		atomic_store(&s->stop, true);
		pthread_cond_broadcast(&s->changed);
	}
	ckpt_pool_wake(s->pool);
}

// code: of the device, or -errno of ours.
static int device_errno(const struct ckpt_cuda_save *s, int code)
{
	return code < 0 ? code : s->pool->device->ops->to_errno(code);
}

static const char *device_text(const struct ckpt_cuda_save *s, int code)
{
	return code < 0 ? strerror(-code) : s->pool->device->ops->text(code);
}

static void fail_file(struct ckpt_cuda_save *s, size_t file, const char *what, int rc)
{
	fail(s, rc, "%.300s: it cannot be %s: %s", s->blocks.files[file].path, what, strerror(-rc));
}

// --- Lists ------------------------------------------------------------------------------------------------------------------

static void push_locked(struct ckpt_cuda_save *s, struct list *l, size_t block)
{
	l->blocks[l->tail++] = block;
	pthread_cond_broadcast(&s->changed);
}

// False: *ended, and none is left.
static bool pop_locked(struct ckpt_cuda_save *s, struct list *l, const bool *ended, size_t *ret_block)
{
	while (l->head == l->tail && !*ended)
		ckpt_lock_wait(&s->changed, &s->lock);
	if (l->head == l->tail)
		return false;
	*ret_block = l->blocks[l->head++];
	return true;
}

// --- The issuer -------------------------------------------------------------------------------------------------------------

// Of the device; NULL with a code.
static void *stream_of(struct ckpt_cuda_save *s, int device, int *ret_code)
{
	void **stream = &s->streams[device];

	*ret_code = *stream ? 0 : s->pool->device->ops->stream_new(s->pool->device, device, stream);
	return *ret_code ? NULL : *stream;
}

static int copy_range(struct ckpt_cuda_save *s, const struct source *from, const struct ckpt_save_range *r,
		      uint64_t first, struct ckpt_pool_buffer *b)
{
	struct ckpt_device *d = s->pool->device;
	int code;
	void *stream = stream_of(s, from->device, &code);

	if (!code)
		code = d->ops->wait_for(d, stream, from->event->event);
	if (!code)
		code = d->ops->copy_out(d, b->at + r->at, from->at + first, r->bytes, stream);
	if (!code)
		b->recorded |= UINT32_C(1) << from->device;
	return code;
}

// Events behind the copies into the buffer; a device takes part once its bit is set.
static int record_copies(struct ckpt_cuda_save *s, struct ckpt_pool_buffer *b)
{
	uint32_t devices = b->recorded;
	int code = 0;

	b->recorded = 0;
	for (int k = 0; k < CKPT_DEVICES_MAX && !code; k++)
		if (devices & UINT32_C(1) << k)
			code = ckpt_pool_record(s->pool, b, k, s->streams[k]);
	return code;
}

static void fill(struct ckpt_cuda_save *s, size_t block, struct ckpt_pool_buffer *b)
{
	const struct ckpt_save_block *k = &s->blocks.blocks[block];
	const struct ckpt_layout *l = s->blocks.layout;
	uint64_t at = 0, end = (k->bytes + CKPT_POOL_ALIGN - 1) / CKPT_POOL_ALIGN * CKPT_POOL_ALIGN;
	const struct ckpt_write_array *a = NULL;
	int code = 0;

	for (size_t i = k->part_first; i < k->part_end && !code; i++) {
		const struct ckpt_layout_part *p = &l->parts[i];
		struct ckpt_save_range r = ckpt_save_blocks_range(&s->blocks, k, i);

		memset(b->at + at, 0, r.at - at);
		at = r.at + r.bytes;
		if (p->array == CKPT_LAYOUT_TEXT) {
			memcpy(b->at + r.at, l->text.at + p->first + r.first, r.bytes);
			continue;
		}
		a = &s->blocks.arrays[p->array];
		code = copy_range(s, &s->sources[p->array], &r, p->first + r.first, b);
	}
	memset(b->at + at, 0, end - at);
	if (!code)
		code = record_copies(s, b);
	if (code)
		fail(s, device_errno(s, code), "%.200s: its copy to this machine's memory failed: %s", a->name,
		     device_text(s, code));
}

static void start_thread(struct ckpt_cuda_save *s)
{
	int code = s->pool->device->ops->thread_starts(s->pool->device, s->pool->home);

	if (code)
		fail(s, device_errno(s, code), "the device: %s", device_text(s, code));
}

static bool next_ready(struct ckpt_cuda_save *s, size_t *ret_block)
{
	LOCK_SCOPE(&s->lock);

	while (s->ready.head == s->ready.tail && s->issued < s->blocks.block_count && !atomic_load(&s->stop))
		ckpt_lock_wait(&s->changed, &s->lock);
	if (s->ready.head == s->ready.tail || atomic_load(&s->stop))
		return false;
	*ret_block = s->ready.blocks[s->ready.head++];
	return true;
}

static void *issue(void *arg)
{
	struct ckpt_cuda_save *s = arg;
	struct ckpt_pool_buffer *b = NULL;
	size_t block;

	start_thread(s);
	while (next_ready(s, &block)) {
		b = ckpt_pool_take(s->pool, &s->stop);
		if (!b)
			break;
		fill(s, block, b);
		if (atomic_load(&s->stop))
			break;
		LOCK_SCOPE(&s->lock);
		s->buffers[block] = b;
		b = NULL;
		s->issued++;
		push_locked(s, &s->copied, block);
	}
	for (unsigned k = 0; k < CKPT_DEVICES_MAX; k++)
		if (s->streams[k])
			s->pool->device->ops->stream_free(s->pool->device, s->streams[k]);
	if (b)
		ckpt_pool_give(s->pool, b);
	LOCK_SCOPE(&s->lock);
	s->issuer_done = true;
	pthread_cond_broadcast(&s->changed);
	return NULL;
}

// --- The finisher -----------------------------------------------------------------------------------------------------------

static void finish(struct ckpt_cuda_save *s, size_t block)
{
	int code = ckpt_pool_wait(s->pool, s->buffers[block]);

	if (code)
		fail(s, device_errno(s, code), "a copy to this machine's memory failed: %s", device_text(s, code));
	LOCK_SCOPE(&s->lock);
	s->finished++;
	s->captured += !s->blocks.files[s->blocks.blocks[block].file].is_text;
	push_locked(s, &s->writes, block);
}

static void *finish_all(void *arg)
{
	struct ckpt_cuda_save *s = arg;
	size_t block;

	start_thread(s);
	ckpt_lock_take(&s->lock);
	while (pop_locked(s, &s->copied, &s->issuer_done, &block)) {
		ckpt_lock_drop(&s->lock);
		finish(s, block);
		ckpt_lock_take(&s->lock);
	}
	s->finisher_done = true;
	pthread_cond_broadcast(&s->changed);
	ckpt_lock_drop(&s->lock);
	return NULL;
}

// --- Writers ----------------------------------------------------------------------------------------------------------------

static void add_sums(struct ckpt_cuda_save *s, const struct ckpt_save_block *k, const uint8_t *bytes)
{
	for (size_t i = k->part_first; s->blocks.sums && i < k->part_end; i++) {
		struct ckpt_save_range r = ckpt_save_blocks_range(&s->blocks, k, i);

		if (s->blocks.layout->parts[i].sum)
			s->blocks.sums[k->sum_first + i - k->part_first] = ckpt_crc32(0, bytes + r.at, r.bytes);
	}
}

// Sums stand in front of the bytes that they are of, and so are put there when all is written.
static int put_sum(void *arg, size_t file, uint64_t offset, const uint8_t bytes[4])
{
	struct ckpt_cuda_save *s = arg;
	ssize_t n;
	int rc = 0;

	if (s->open[file].fd < 0)
		rc = ckpt_sys.open(s->dirfd, s->blocks.files[file].path, O_WRONLY, 0);
	if (rc >= 0 && s->open[file].fd < 0)
		s->open[file] = (struct ckpt_save_open){.fd = rc};
	n = rc < 0 ? rc : ckpt_sys.pwrite(s->open[file].fd, bytes, 4, (off_t)offset);
	if (n < 0)
		fail_file(s, file, "written", (int)n);
	return n < 0 ? (int)n : 0;
}

static void put_sums(struct ckpt_cuda_save *s)
{
	if (ckpt_save_blocks_sums(&s->blocks, put_sum, s))
		return;
	for (size_t i = 0; i < s->blocks.layout->file_count; i++) {
		int rc = ckpt_save_file_close(s->dirfd, &s->blocks.files[i], &s->open[i], true);

		if (rc)
			fail_file(s, i, "put on disk", rc);
	}
}

// Files of arrays are closed: those that say what is in them follow.
static void end_arrays(struct ckpt_cuda_save *s)
{
	if (s->blocks.sums)
		put_sums(s);
	if (atomic_load(&s->stop))
		return;
	LOCK_SCOPE(&s->lock);
	for (size_t i = 0; i < s->blocks.layout->file_count; i++)
		for (size_t k = s->blocks.files[i].block_first;
		     s->blocks.files[i].is_text && k < s->blocks.files[i].block_end; k++)
			push_locked(s, &s->ready, k);
}

static void close_file(struct ckpt_cuda_save *s, size_t file)
{
	int rc = ckpt_save_file_close(s->dirfd, &s->blocks.files[file], &s->open[file], true);
	bool last = false;

	if (rc) {
		fail_file(s, file, "put on disk", rc);
		return;
	}
	if (!s->blocks.files[file].is_text) {
		LOCK_SCOPE(&s->lock);
		last = !--s->array_files;
	}
	if (last)
		end_arrays(s);
}

// Not by the issuer: what it waits for, training waits for. False: it failed.
static bool open_file(struct ckpt_cuda_save *s, size_t file)
{
	struct ckpt_save_open made;
	int rc;

	{
		LOCK_SCOPE(&s->lock);
		while (s->opening[file])
			ckpt_lock_wait(&s->changed, &s->lock);
		if (s->open[file].fd >= 0 || s->rc)
			return !s->rc;
		s->opening[file] = true;
	}
	rc = ckpt_save_file_create(s->dirfd, &s->blocks.files[file], s->pool->flags, &made);
	if (rc)
		fail_file(s, file, "made", rc);
	LOCK_SCOPE(&s->lock);
	if (!rc)
		s->open[file] = made;
	s->opening[file] = false;
	pthread_cond_broadcast(&s->changed);
	return !rc;
}

static void write_block(struct ckpt_cuda_save *s, size_t block)
{
	const struct ckpt_save_block *k = &s->blocks.blocks[block];
	struct ckpt_pool_buffer *b = s->buffers[block];
	bool stopped = atomic_load(&s->stop) || !open_file(s, k->file), last;
	int rc = 0;

	if (!stopped) {
		add_sums(s, k, b->at);
		rc = ckpt_save_file_write(&s->open[k->file], s->pool->flags, b->at, k->bytes, k->offset);
	}
	ckpt_pool_give(s->pool, b);
	if (rc)
		fail_file(s, k->file, "written", rc);
	if (rc || stopped)
		return;
	{
		LOCK_SCOPE(&s->lock);
		last = !--s->left[k->file];
	}
	if (last)
		close_file(s, k->file);
	LOCK_SCOPE(&s->lock);
	s->written++;
	pthread_cond_broadcast(&s->changed);
}

static void *write_all(void *arg)
{
	struct ckpt_cuda_save *s = arg;
	size_t block;

	ckpt_lock_take(&s->lock);
	while (pop_locked(s, &s->writes, &s->finisher_done, &block)) {
		ckpt_lock_drop(&s->lock);
		write_block(s, block);
		ckpt_lock_take(&s->lock);
	}
	ckpt_lock_drop(&s->lock);
	return NULL;
}

// --- Begin ------------------------------------------------------------------------------------------------------------------

static int make_lists(struct ckpt_cuda_save *s)
{
	size_t blocks = s->blocks.block_count, files = s->blocks.layout->file_count;

	s->sources = ckpt_calloc(s->blocks.plan.count + 1, sizeof(*s->sources));
	s->open = ckpt_calloc(files + 1, sizeof(*s->open));
	s->left = ckpt_calloc(files + 1, sizeof(*s->left));
	s->opening = ckpt_calloc(files + 1, sizeof(*s->opening));
	s->buffers = ckpt_calloc(blocks + 1, sizeof(struct ckpt_pool_buffer *));
	s->ready.blocks = ckpt_calloc(blocks + 1, sizeof(*s->ready.blocks));
	s->copied.blocks = ckpt_calloc(blocks + 1, sizeof(*s->copied.blocks));
	s->writes.blocks = ckpt_calloc(blocks + 1, sizeof(*s->writes.blocks));
	if (!s->sources || !s->open || !s->left || !s->opening || !s->buffers || !s->ready.blocks ||
	    !s->copied.blocks || !s->writes.blocks)
		return -ENOMEM;
	for (size_t i = 0; i < files; i++) {
		const struct ckpt_save_file *f = &s->blocks.files[i];

		s->open[i].fd = -1;
		s->left[i] = f->block_end - f->block_first;
		s->array_files += !f->is_text;
		for (size_t k = f->block_first; k < f->block_end; k++)
			if (!f->is_text && !s->blocks.blocks[k].missing)
				push_locked(s, &s->ready, k);
	}
	if (!s->array_files)
		end_arrays(s);
	return 0;
}

static int start(struct ckpt_cuda_save *s)
{
	static void *(*const run[2 + WRITERS])(void *) = {issue,     finish_all, write_all,
							  write_all, write_all,  write_all};
	int rc;

	for (; s->thread_count < ARRAY_LEN(run); s->thread_count++) {
		rc = pthread_create(&s->threads[s->thread_count], NULL, run[s->thread_count], s);
		if (!rc)
			continue;
		// What was not started is not waited for.
		LOCK_SCOPE(&s->lock);
		s->issuer_done = s->issuer_done || !s->thread_count;
		s->finisher_done = s->finisher_done || s->thread_count < 2;
		return -rc;
	}
	return 0;
}

// Takes dirfd and step, whatever comes of it. why: CKPT_CUDA_WHY_MAX bytes.
static int save_new(struct ckpt_cuda_pool *pool, int dirfd, struct ckpt_save *step, const struct ckpt_cuda_plan *plan,
		    char *why, struct ckpt_cuda_save **ret_save)
{
	struct ckpt_cuda_save *s = ckpt_calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		close(dirfd);
		ckpt_save_free(step);
		return -ENOMEM;
	}
	s->pool = pool;
	s->dirfd = dirfd;
	s->step = step;
	ckpt_lock_init(&s->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&s->changed, NULL);
	rc = ckpt_save_blocks_init(&s->blocks, plan, pool->buffer_bytes, why);
	if (!rc)
		rc = make_lists(s);
	if (!rc)
		rc = start(s);
	if (rc) {
		if (!*why)
			snprintf(why, CKPT_CUDA_WHY_MAX, "the save cannot be begun: %s", strerror(-rc));
		ckpt_cuda_save_free(s);
	} else {
		*ret_save = s;
	}
	return rc;
}

int ckpt_cuda_save_folder(struct ckpt_cuda_pool *pool, const char *directory, const struct ckpt_cuda_plan *plan,
			  char why[CKPT_CUDA_WHY_MAX], struct ckpt_cuda_save **ret_save)
{
	int rc = ckpt_pool_check(pool), fd = -1;

	*why = '\0';
	if (rc) {
		snprintf(why, CKPT_CUDA_WHY_MAX, CKPT_POOL_FORKED);
		return rc;
	}
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 ? -errno : 0;
	if (rc) {
		snprintf(why, CKPT_CUDA_WHY_MAX, "%.300s: it cannot be opened: %s", directory, strerror(-rc));
		return rc;
	}
	return save_new(pool, fd, NULL, plan, why, ret_save);
}

int ckpt_cuda_save_step(struct ckpt_cuda_pool *pool, struct ckpt *ckpt, const char *name, unsigned flags,
			const struct ckpt_cuda_plan *plan, char why[CKPT_CUDA_WHY_MAX],
			struct ckpt_cuda_save **ret_save)
{
	struct ckpt_save *step = NULL;
	int rc = ckpt_pool_check(pool), fd = -1;

	*why = '\0';
	if (rc) {
		snprintf(why, CKPT_CUDA_WHY_MAX, CKPT_POOL_FORKED);
		return rc;
	}
	rc = ckpt_begin(ckpt, name, flags, &step);
	if (!rc) {
		fd = open(ckpt_save_path(step), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = fd < 0 ? -errno : 0;
	}
	if (rc) {
		snprintf(why, CKPT_CUDA_WHY_MAX, "%.300s: the step cannot be begun: %s", name, strerror(-rc));
		ckpt_save_free(step);
		return rc;
	}
	return save_new(pool, fd, step, plan, why, ret_save);
}

// --- Arrays -----------------------------------------------------------------------------------------------------------------

static void ready(void *arg, size_t block)
{
	struct ckpt_cuda_save *s = arg;

	push_locked(s, &s->ready, block);
}

// An event behind what the stream has now.
static int mark(struct ckpt_cuda_save *s, struct source *from, const char *name, void *stream)
{
	struct ckpt_device *d = s->pool->device;
	bool capturing = false, plain;
	int code = ckpt_pool_device_of(s->pool, from->at, &from->device, &plain);

	if (!code)
		code = d->ops->is_capturing(d, from->device, stream, &capturing);
	if (!code && capturing)
		return -EBUSY;
	if (!code)
		code = ckpt_pool_event_take(s->pool, from->device, &from->event);
	if (!code)
		code = d->ops->record(d, from->device, from->event->event, stream);
	if (code)
		fail(s, device_errno(s, code), "%.200s: its memory or its stream: %s", name, device_text(s, code));
	return code ? device_errno(s, code) : 0;
}

static int error_of(struct ckpt_cuda_save *s)
{
	LOCK_SCOPE(&s->lock);
	return s->rc;
}

int ckpt_cuda_save_array(struct ckpt_cuda_save *s, const char *name, const void *pointer, uint64_t bytes, void *stream)
{
	struct source *from;
	size_t array;
	int rc = ckpt_pool_check(s->pool);

	if (!rc)
		rc = error_of(s);
	if (!rc)
		rc = ckpt_save_blocks_find(&s->blocks, name, &array);
	if (rc)
		return rc;
	from = &s->sources[array];
	if (from->given)
		return -EALREADY;
	if (bytes != ckpt_write_bytes(&s->blocks.arrays[array]) || (bytes && !pointer))
		return -EINVAL;
	from->at = pointer;
	rc = bytes ? mark(s, from, name, stream) : 0;
	if (rc)
		return rc;
	LOCK_SCOPE(&s->lock);
	from->given = true;
	s->given++;
	ckpt_save_blocks_give(&s->blocks, array, ready, s);
	return 0;
}

// --- The end ----------------------------------------------------------------------------------------------------------------

static void check_given(struct ckpt_cuda_save *s)
{
	size_t i = 0;

	if (s->given == s->blocks.plan.count)
		return;
	while (s->sources[i].given)
		i++;
	fail(s, -ENODATA, "%.200s: the plan has this array, and it was not given", s->blocks.arrays[i].name);
}

static bool is_quiet_locked(const struct ckpt_cuda_save *s)
{
	return s->rc && s->issuer_done && s->finished == s->issued;
}

int ckpt_cuda_captured(struct ckpt_cuda_save *s)
{
	int rc = ckpt_pool_check(s->pool);

	if (rc)
		return rc;
	check_given(s);
	LOCK_SCOPE(&s->lock);
	while (s->captured < s->blocks.array_blocks && !is_quiet_locked(s))
		ckpt_lock_wait(&s->changed, &s->lock);
	return s->rc;
}

static int wait_written(struct ckpt_cuda_save *s)
{
	LOCK_SCOPE(&s->lock);

	while (s->written < s->blocks.block_count && !is_quiet_locked(s))
		ckpt_lock_wait(&s->changed, &s->lock);
	return s->rc;
}

int ckpt_cuda_commit(struct ckpt_cuda_save *s, const char *metadata)
{
	int rc = ckpt_pool_check(s->pool);

	if (rc)
		return rc;
	check_given(s);
	rc = wait_written(s);
	if (rc)
		return rc;
	if (s->step)
		rc = ckpt_save_commit(s->step, metadata);
	else if (metadata)
		rc = ckpt_save_file_put(s->dirfd, MARKER, metadata);
	LOCK_SCOPE(&s->lock);
	s->why[0] = '\0'; // an earlier call may have failed
	if (rc)
		snprintf(s->why, sizeof(s->why), "the commit failed: %s", strerror(-rc));
	return rc;
}

const char *ckpt_cuda_save_why(struct ckpt_cuda_save *s)
{
	if (ckpt_pool_check(s->pool))
		return CKPT_POOL_FORKED;
	LOCK_SCOPE(&s->lock);
	return s->why;
}

static void give_back(struct ckpt_cuda_save *s, const struct list *l)
{
	for (size_t i = l->head; i < l->tail; i++)
		ckpt_pool_give(s->pool, s->buffers[l->blocks[i]]);
}

static void end_threads(struct ckpt_cuda_save *s)
{
	bool over;

	{
		LOCK_SCOPE(&s->lock);
		over = s->written == s->blocks.block_count;
	}
	if (!over)
		fail(s, -ECANCELED, "the save was given up");
	for (unsigned i = 0; i < s->thread_count; i++)
		pthread_join(s->threads[i], NULL);
	// Threads that could not be started leave these behind.
	give_back(s, &s->copied);
	give_back(s, &s->writes);
}

// A forked child has none of the threads, and leaves the step to its parent.
void ckpt_cuda_save_free(struct ckpt_cuda_save *s)
{
	if (!s || ckpt_pool_check(s->pool))
		return;
	end_threads(s);
	for (size_t i = 0; s->open && i < s->blocks.layout->file_count; i++)
		(void)ckpt_save_file_close(s->dirfd, &s->blocks.files[i], &s->open[i], false);
	for (size_t i = 0; s->sources && i < s->blocks.plan.count; i++)
		ckpt_pool_event_give(s->pool, s->sources[i].event);
	if (s->step)
		(void)ckpt_save_abort(s->step); // of one that is committed: -EALREADY
	ckpt_save_free(s->step);
	close(s->dirfd);
	free(s->sources);
	free(s->open);
	free(s->left);
	free(s->opening);
	free(s->buffers);
	free(s->ready.blocks);
	free(s->copied.blocks);
	free(s->writes.blocks);
	ckpt_save_blocks_done(&s->blocks);
	pthread_cond_destroy(&s->changed);
	ckpt_lock_done(&s->lock);
	free(s);
}

#include "core/tier/seal.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk.h"
#include "core/cold/closed.h"
#include "core/record/event.h"
#include "core/save/edit.h"
#include "core/step/errlog.h"
#include "core/step/store.h"
#include "core/view/header_catalog.h"

#include <linux/ioprio.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Reading and writing down are apart: what is read is collected without a lock, by threads that may be starved; the version
// that says so is put under the lock of all acts, by the caller's.
//
// What is to be read in one round is known before (plan), in the order of the manifest; the readers take the files one by one, by
// a number that only grows. What each learns stands in the file's own place, so that nobody sees who read what, or when.
//
// Invariants:
//  1. A seal is given to the file that was read, whatever version it is in by then: same raw file, inode number, size and time.
//  2. Raw files of committed steps are never changed in place, so that what was read is what is there.
//  3. A reader holds no lock, and nobody waits for one but who has asked for the sealing.

#define READ_BYTES ((size_t)256 << 10) // at once: it is still in the processor's own cache when it is hashed
#define READERS_MAX 4
#define READER_BYTES (UINT64_C(32) << 20)    // for less another one is not worth it
#define BAD_FILES_MAX 8                      // that are told one by one; with more it is not the files
#define PUT_AFTER_BYTES (UINT64_C(64) << 30) // what a crash may make read again
#define PUTS_MAX 8                           // of one step: each has a manifest of its own

// A file has two halves: the hash of all of it, and those of its chunks. One reader makes both in one go, but for a file that is
// so large that the others would have nothing left to do meanwhile: its halves are read by two, unless the processor makes both
// hashes at once.
enum half { WHOLE, CHUNKS, HALVES };

struct read_file {
	uint32_t index; // in the manifest that is read
	bool split;
	int result[HALVES]; // -EINTR: it was not read to its end; of a file that is not split only the first counts
	uint8_t sha256[CKPT_SHA256_LEN];
	const struct reader *by; // who has its chunks
	size_t first, count;
};

struct reader {
	struct reading *of;
	pthread_t thread;
	struct ckpt_chunk *chunks;
	size_t chunk_count, chunk_cap;
	void *buf;
};

struct reading {
	struct ckpt_step *step;
	const struct ckpt_seal_how *how;
	struct ckpt_manifest *m;
	uint32_t next; // the entry that the next round begins with
	struct read_file *files;
	size_t file_count, file_cap;
	struct reader readers[READERS_MAX];
	unsigned reader_count;
	void *catalog; // of the arrays in the files of m, encoded; NULL: none
	size_t catalog_len;

	// Atomic.
	size_t taken; // halves
	unsigned bad; // halves, of which something is wrong with the file: that keeps no other from its seal
	int result;   // why all of them end
};

// --- Reading ------------------------------------------------------------------------------------------------------------

static void end_all(struct reading *r, int why)
{
	int none = 0;

	__atomic_compare_exchange_n(&r->result, &none, why, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static bool goes_on(struct reading *r, uint64_t bytes)
{
	if (r->how->go_on && !r->how->go_on(r->how->arg, bytes))
		end_all(r, -EINTR);
	return !__atomic_load_n(&r->result, __ATOMIC_RELAXED);
}

static int add_chunk(struct reader *reader, const struct ckpt_chunk *chunk)
{
	int rc = ckpt_grow((void **)&reader->chunks, &reader->chunk_cap, reader->chunk_count + 1,
			   sizeof(*reader->chunks));

	if (!rc)
		reader->chunks[reader->chunk_count++] = *chunk;
	return rc;
}

// NULL: these bytes count for the other alone.
static int read_range(struct reader *reader, int fd, uint64_t at, uint32_t bytes, struct ckpt_sha256 *whole,
		      struct ckpt_sha256 *chunk)
{
	for (uint32_t done = 0; done < bytes;) {
		size_t want = MIN(READ_BYTES, (size_t)(bytes - done));
		ssize_t n = ckpt_sys.pread(fd, reader->buf, want, (off_t)(at + done));

		if (n < 0)
			return (int)n;
		if ((size_t)n != want)
			return -ENODATA;
		if (chunk && whole)
			ckpt_sha256_add_both(chunk, reader->buf, want, whole, reader->buf, want);
		else
			ckpt_sha256_add(chunk ? chunk : whole, reader->buf, want);
		done += (uint32_t)want;
	}
	return 0;
}

static int read_chunk(struct reader *reader, int fd, uint64_t at, uint32_t bytes, struct ckpt_sha256 *whole)
{
	struct ckpt_chunk chunk = {.bytes = bytes};
	struct ckpt_sha256 sum;
	int rc;

	ckpt_sha256_begin(&sum);
	rc = read_range(reader, fd, at, bytes, whole, &sum);
	ckpt_sha256_end(&sum, chunk.id);
	return rc ? rc : add_chunk(reader, &chunk);
}

// The other half tells how many bytes were read.
static int read_whole(struct reader *reader, int fd, uint64_t bytes, struct read_file *f)
{
	struct ckpt_sha256 whole;
	uint32_t len;
	int rc = 0;

	ckpt_sha256_begin(&whole);
	for (uint64_t at = 0; at < bytes && !rc; at += len) {
		len = (uint32_t)MIN(bytes - at, (uint64_t)CKPT_CHUNK_BYTES);
		rc = read_range(reader, fd, at, len, &whole, NULL);
		if (!rc && !goes_on(reader->of, 0))
			rc = -EINTR;
	}
	ckpt_sha256_end(&whole, f->sha256);
	return rc;
}

// The hash of a file of one chunk is the chunk's.
static int read_chunks(struct reader *reader, int fd, uint64_t bytes, struct read_file *f)
{
	const struct ckpt_source source = ckpt_source_file(fd, bytes);
	CLEANUP(ckpt_cuts_done) struct ckpt_cuts cuts;
	struct ckpt_sha256 whole;
	bool one, both;
	uint32_t len;
	int rc = ckpt_cuts_init(&cuts, &source);

	f->by = reader;
	f->first = reader->chunk_count;
	one = !rc && ckpt_cuts_next(&cuts, 0) == bytes;
	both = !f->split && !one;
	ckpt_sha256_begin(&whole);
	for (uint64_t at = 0; at < bytes && !rc; at += len) {
		len = ckpt_cuts_next(&cuts, at);
		rc = read_chunk(reader, fd, at, len, both ? &whole : NULL);
		if (!rc && !goes_on(reader->of, len))
			rc = -EINTR;
	}
	if (rc) {
		reader->chunk_count = f->first;
		return rc;
	}
	f->count = reader->chunk_count - f->first;
	if (both)
		ckpt_sha256_end(&whole, f->sha256);
	else if (!f->split)
		memcpy(f->sha256, reader->chunks[f->first].id, sizeof(f->sha256));
	return 0;
}

static int take_chunks(struct reader *reader, const struct ckpt_closed_read *read, struct read_file *f)
{
	int rc = 0;

	f->by = reader;
	f->first = reader->chunk_count;
	for (size_t i = 0; i < read->count && !rc; i++)
		rc = add_chunk(reader, &read->chunks[i]);
	f->count = reader->chunk_count - f->first;
	if (rc)
		reader->chunk_count = f->first;
	return rc;
}

// It was read while its step was staged, and nobody has changed it since. False: it is to be read.
static bool take_read(struct reader *reader, int fd, const struct ckpt_entry *e, struct read_file *f, enum half half,
		      int *ret_rc)
{
	CLEANUP(ckpt_closed_read_done) struct ckpt_closed_read read = {0};
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size != e->bytes ||
	    !ckpt_closed_find(reader->of->step->store, e->ino, &st, &read))
		return false;
	if (half == WHOLE)
		memcpy(f->sha256, read.sha256, sizeof(f->sha256));
	*ret_rc = half == CHUNKS || !f->split ? take_chunks(reader, &read, f) : 0;
	if (!*ret_rc && !goes_on(reader->of, half == CHUNKS || !f->split ? e->bytes : 0))
		*ret_rc = -EINTR;
	return true;
}

static int read_half(struct reader *reader, struct read_file *f, enum half half)
{
	struct reading *r = reader->of;
	struct ckpt_entry e;
	int fd, rc = ckpt_step_open_raw(r->step, r->m, f->index, &fd);

	if (rc)
		return rc;
	ckpt_manifest_entry(r->m, f->index, &e);
	if (!take_read(reader, fd, &e, f, half, &rc))
		rc = f->split && half == WHOLE ? read_whole(reader, fd, e.bytes, f)
					       : read_chunks(reader, fd, e.bytes, f);
	ckpt_sys.close(fd);
	return rc;
}

// What is wrong is wrong with this file; else with the machine, and no other would go better.
static bool is_of_the_file(int error)
{
	return error == -EIO || error == -ENODATA;
}

static void *read_on(void *arg)
{
	struct reader *reader = arg;
	struct reading *r = reader->of;
	size_t half;

	while (!__atomic_load_n(&r->result, __ATOMIC_RELAXED) &&
	       (half = __atomic_fetch_add(&r->taken, 1, __ATOMIC_RELAXED)) < HALVES * r->file_count) {
		struct read_file *f = &r->files[half / HALVES];
		int rc;

		if (half % HALVES != WHOLE && !f->split)
			continue;
		rc = f->result[half % HALVES] = read_half(reader, f, half % HALVES);
		if (rc && !is_of_the_file(rc))
			end_all(r, rc);
		else if (rc && __atomic_add_fetch(&r->bad, 1, __ATOMIC_RELAXED) >= BAD_FILES_MAX)
			end_all(r, -EIO);
	}
	return NULL;
}

// The thread takes no lock that others want: it may be as slow as it must.
static void *read_behind(void *arg)
{
	const struct sched_param none = {0};
	struct reader *reader = arg;

	(void)sched_setscheduler(0, SCHED_IDLE, &none);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
	return read_on(reader);
}

// What is short of memory or threads has fewer readers, down to one. The caller's thread is the first, unless all are behind.
static int read_planned(struct reading *r)
{
	unsigned first = r->how->behind ? 0 : 1, count;

	for (count = 0; count < r->reader_count; count++) {
		struct reader *reader = &r->readers[count];

		reader->of = r;
		if (!reader->buf)
			reader->buf = malloc(READ_BYTES);
		if (!reader->buf || (count >= first && pthread_create(&reader->thread, NULL,
								      r->how->behind ? read_behind : read_on, reader)))
			break;
	}
	if (!count)
		return r->readers[0].buf ? -EAGAIN : -ENOMEM;
	if (first)
		read_on(&r->readers[0]);
	for (unsigned i = first; i < count; i++)
		pthread_join(r->readers[i].thread, NULL);
	return r->result;
}

// --- What is to be read -------------------------------------------------------------------------------------------------

static bool wants(const struct reading *r, uint32_t index, uint64_t *ret_bytes)
{
	struct ckpt_entry e;
	struct ckpt_seal seal;

	ckpt_manifest_entry(r->m, index, &e);
	*ret_bytes = e.bytes;
	return e.content == CKPT_CONTENT_RAW && e.bytes && ckpt_manifest_first_link(r->m, index) == index &&
	       !ckpt_manifest_seal(r->m, index, &seal);
}

static unsigned readers_for(const struct ckpt_seal_how *how, uint64_t bytes)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t worth = MIN(bytes / READER_BYTES, (uint64_t)MAX(processors, 1));

	return (unsigned)MAX(MIN(how->readers ? how->readers : worth, READERS_MAX), 1);
}

static int add_file(struct reading *r, uint32_t index, bool split)
{
	int rc = ckpt_grow((void **)&r->files, &r->file_cap, r->file_count + 1, sizeof(*r->files));

	if (!rc)
		r->files[r->file_count++] =
			(struct read_file){.index = index, .split = split, .result = {-EINTR, split ? -EINTR : 0}};
	return rc;
}

// Two readers of one file read it twice. Where both of its hashes take as long as one, that is of no use.
static bool may_split(const struct reading *r)
{
	return r->reader_count > 1 && (r->how->readers || !ckpt_sha256_both_is_cheap());
}

// From entry `next` on, until it is time to write down what was read.
static int plan(struct reading *r)
{
	uint32_t count = ckpt_manifest_count(r->m), first = r->next;
	uint64_t files, all, each, large, bytes = 0;
	int rc = 0;

	ckpt_manifest_totals(r->m, &files, &all);
	for (; r->next < count && bytes < MAX(PUT_AFTER_BYTES, all / PUTS_MAX); r->next++)
		bytes += wants(r, r->next, &each) ? each : 0;
	r->reader_count = readers_for(r->how, bytes);
	large = MAX(bytes / r->reader_count / 2, (uint64_t)CKPT_CHUNK_BYTES);
	for (uint32_t i = first; i < r->next && !rc; i++)
		if (wants(r, i, &each))
			rc = add_file(r, i, may_split(r) && each > large);
	return rc;
}

static void forget(struct reading *r)
{
	for (unsigned i = 0; i < READERS_MAX; i++)
		r->readers[i].chunk_count = 0;
	free(TAKE_PTR(r->catalog));
	r->file_count = r->taken = 0;
	r->bad = 0;
	r->result = 0;
}

// 0: it was read; -EINTR: not to its end.
static int result_of(const struct read_file *f)
{
	for (enum half half = WHOLE; half < HALVES; half++)
		if (f->result[half] && f->result[half] != -EINTR)
			return f->result[half];
	return MIN(f->result[WHOLE], f->result[CHUNKS]);
}

// --- What went wrong ----------------------------------------------------------------------------------------------------

static void complain(struct ckpt_step *step, const char *path, int error)
{
	static const char later[] = "nothing is lost: it is sealed later, or by `ckptfs seal`",
			  suspect[] = "run `ckptfs verify` on the store; the file may have to come from another copy";

	if (ckpt_step_state(step) != CKPT_STEP_COMMITTED)
		return; // it was removed meanwhile, with its files
	if (path)
		ckpt_errlog_add(step->store->errlog, step->name, error, is_of_the_file(error) ? suspect : later,
				error == -ENODATA ? "%s is shorter than when it was committed: it was not sealed"
						  : "%s could not be read to seal it",
				path);
	else
		ckpt_errlog_add(step->store->errlog, step->name, error, later, "it could not be sealed");
}

// False: there is none.
static bool complain_of_files(const struct reading *r)
{
	bool any = false;

	for (size_t i = 0; i < r->file_count; i++) {
		char path[PATH_MAX] = "a file";
		int rc = result_of(&r->files[i]);

		if (!rc || rc == -EINTR)
			continue;
		ckpt_manifest_path(r->m, r->files[i].index, path, sizeof(path));
		complain(r->step, path, rc);
		any = true;
	}
	return any;
}

// --- Writing down -------------------------------------------------------------------------------------------------------

// Where in the current version the file is that was read; false: it is not, or has its seal.
static bool find_anew(const struct reading *r, const struct ckpt_edit *d, uint32_t read, uint32_t *ret_index)
{
	char path[PATH_MAX], was[CKPT_RAW_PATH_MAX], is[CKPT_RAW_PATH_MAX];
	struct ckpt_entry e, was_e;
	struct ckpt_seal seal;

	if (ckpt_manifest_path(r->m, read, path, sizeof(path)) < 0 || ckpt_manifest_lookup(d->m, path, ret_index))
		return false;
	ckpt_manifest_entry(d->m, *ret_index, &e);
	ckpt_manifest_entry(r->m, read, &was_e);
	return e.content == CKPT_CONTENT_RAW && e.ino == was_e.ino && e.bytes == was_e.bytes &&
	       !ckpt_manifest_seal(d->m, *ret_index, &seal) &&
	       !ckpt_step_raw_path(r->step, r->m, read, was, sizeof(was)) &&
	       !ckpt_step_raw_path(r->step, d->m, *ret_index, is, sizeof(is)) && !strcmp(was, is);
}

// Most often it is where it was.
static bool find(const struct reading *r, const struct ckpt_edit *d, uint32_t read, uint32_t *ret_index)
{
	struct ckpt_seal seal;

	if (memcmp(ckpt_manifest_sha256(r->m), ckpt_manifest_sha256(d->m), CKPT_SHA256_LEN))
		return find_anew(r, d, read, ret_index);
	*ret_index = read;
	return !ckpt_manifest_seal(d->m, read, &seal);
}

static int give_seals(const struct reading *r, struct ckpt_edit *d, bool *ret_any)
{
	int rc = 0;

	for (size_t i = 0; i < r->file_count && !rc; i++) {
		const struct read_file *f = &r->files[i];
		uint32_t index;

		if (result_of(f) || !find(r, d, f->index, &index))
			continue;
		*ret_any = true;
		rc = ckpt_manifest_writer_seal(d->w, d->handles[index], f->sha256);
		for (size_t k = 0; k < f->count && !rc; k++)
			rc = ckpt_manifest_writer_chunk(d->w, &f->by->chunks[f->first + k]);
	}
	return rc;
}

// An older program has not said of a step without a byte that it is sealed.
static bool says_too_little(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	LOCK_SCOPE(&step->lock);

	return !step->version->is.sealed && ckpt_manifest_is_sealed(m);
}

static int try_put(const struct reading *r, bool *adopted)
{
	struct ckpt_edit d = {.step = r->step, .event = CKPT_EVENT_SEAL, .same_files = true};
	int rc = ckpt_edit_begin(&d, adopted);
	bool any = !rc && says_too_little(r->step, d.m);

	if (!rc && !memcmp(ckpt_manifest_sha256(r->m), ckpt_manifest_sha256(d.m), CKPT_SHA256_LEN)) {
		d.catalog = r->catalog;
		d.catalog_len = r->catalog_len;
	}
	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc)
		rc = give_seals(r, &d, &any);
	if (!rc && any)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc;
}

static bool any_read(const struct reading *r)
{
	for (size_t i = 0; i < r->file_count; i++)
		if (!result_of(&r->files[i]))
			return true;
	return false;
}

static int put(struct reading *r)
{
	LOCK_SCOPE(&r->step->store->acts_lock);
	bool adopted = false;
	int rc = any_read(r) || says_too_little(r->step, r->m) ? -EAGAIN : 0;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try_put(r, &adopted);
	if (rc && rc != -ESTALE && rc != -EBUSY)
		complain(r->step, NULL, rc);
	return rc == -EAGAIN ? -EIO : rc;
}

// --- The catalog --------------------------------------------------------------------------------------------------------

static bool is_all_raw(const struct reading *r)
{
	struct ckpt_entry e;

	for (uint32_t i = 0; i < ckpt_manifest_count(r->m); i++) {
		ckpt_manifest_entry(r->m, i, &e);
		if (e.type == CKPT_ENTRY_FILE && e.bytes && !ckpt_step_has_raw(r->step, r->m, i))
			return false;
	}
	return true;
}

// Headers are read, so that no reader of the step parses them again. It is a cache: without it the step is sealed all the same. Nothing is
// fetched for it.
static void make_catalog(struct reading *r)
{
	const struct ckpt_header_catalog how = {r->how->go_on, r->how->arg, r->how->behind};

	if (any_read(r) && is_all_raw(r))
		(void)ckpt_header_catalog_make(r->step, r->m, &how, &r->catalog, &r->catalog_len);
}

// --- The act ------------------------------------------------------------------------------------------------------------

static bool is_current(struct reading *r, bool *ret_sealed)
{
	LOCK_SCOPE(&r->step->lock);

	*ret_sealed = r->step->version->is.sealed;
	return !memcmp(ckpt_manifest_sha256(r->m), r->step->version->is.manifest_sha256, CKPT_SHA256_LEN);
}

// What was added meanwhile is in another manifest: it is read next.
static int take_manifest(struct reading *r, bool *ret_done)
{
	bool current, sealed;
	int rc = 0;

	if (ckpt_step_state(r->step) != CKPT_STEP_COMMITTED)
		return -ESTALE;
	if (!r->m)
		rc = ckpt_step_manifest(r->step, &r->m);
	if (rc)
		return rc;
	current = is_current(r, &sealed);
	*ret_done = current && sealed;
	if (current && !sealed && r->next == ckpt_manifest_count(r->m))
		return -EIO; // all of it was read, and still there is a file without a seal
	if (!current) {
		ckpt_manifest_unref(TAKE_PTR(r->m));
		r->next = 0;
	}
	return 0;
}

// Another has sealed it meanwhile, and a third cooled it: the raw files are gone that could not be read.
static bool was_cooled(struct reading *r)
{
	LOCK_SCOPE(&r->step->lock);

	return r->step->version->is.packed &&
	       memcmp(r->step->version->is.manifest_sha256, ckpt_manifest_sha256(r->m), CKPT_SHA256_LEN);
}

// One round: what is read is written down, whatever ends the reading.
static int seal_some(struct reading *r)
{
	int rc = plan(r), put_rc;
	bool cooled;

	if (!rc && r->file_count)
		rc = read_planned(r);
	cooled = r->bad && (!rc || rc == -EIO) && was_cooled(r);
	if (cooled)
		rc = 0;
	else if (!complain_of_files(r) && rc && rc != -EINTR)
		complain(r->step, NULL, rc);
	if (!rc && !r->bad && r->next == ckpt_manifest_count(r->m))
		make_catalog(r);
	put_rc = put(r);
	if (!rc)
		rc = put_rc;
	if (!rc && r->bad && !cooled && r->next == ckpt_manifest_count(r->m))
		rc = -EIO;
	forget(r);
	return rc;
}

static void reading_done(struct reading *r)
{
	ckpt_manifest_unref(r->m);
	free(r->files);
	for (unsigned i = 0; i < READERS_MAX; i++) {
		free(r->readers[i].chunks);
		free(r->readers[i].buf);
	}
}

int ckpt_seal(struct ckpt_step *step, const struct ckpt_seal_how *how)
{
	struct reading r = {.step = step, .how = how};
	bool done = false;
	int rc = 0;

	while (!rc && !done) {
		rc = take_manifest(&r, &done);
		if (!rc && !done && r.m)
			rc = seal_some(&r);
	}
	reading_done(&r);
	return rc;
}

// --- Of an older version ------------------------------------------------------------------------------------------------

static int make_sealed(struct reading *r)
{
	struct ckpt_edit d = {.step = r->step, .same_files = true, .m = ckpt_manifest_ref(r->m)};
	bool any = false;
	int rc = ckpt_edit_copy(&d, 0);

	if (!rc)
		rc = give_seals(r, &d, &any);
	if (!rc)
		rc = ckpt_edit_make(&d);
	if (!rc) {
		ckpt_manifest_unref(r->m);
		r->m = TAKE_PTR(d.next);
	}
	ckpt_edit_done(&d);
	return rc;
}

// Entries keep their places, so that the next round goes on behind.
static int seal_some_older(struct reading *r)
{
	int rc = plan(r);

	if (!rc && r->file_count)
		rc = read_planned(r);
	if (!rc && r->bad)
		rc = -EIO;
	if (!rc && r->file_count)
		rc = make_sealed(r);
	forget(r);
	return rc;
}

int ckpt_seal_older(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_seal_how *how,
		    struct ckpt_manifest **ret_manifest)
{
	struct reading r = {.step = step, .how = how, .m = ckpt_manifest_ref(m)};
	int rc = 0;

	while (!rc && r.next < ckpt_manifest_count(r.m))
		rc = seal_some_older(&r);
	if (!rc)
		*ret_manifest = TAKE_PTR(r.m);
	reading_done(&r);
	return rc;
}

bool ckpt_seal_sha256(const struct ckpt_manifest *m, const struct ckpt_entry *e, uint8_t ret_digest[CKPT_SHA256_LEN])
{
	struct ckpt_seal seal;

	if (e->type == CKPT_ENTRY_FILE && !e->bytes) {
		ckpt_sha256(NULL, 0, ret_digest);
		return true;
	}
	if (!ckpt_manifest_seal(m, e->index, &seal))
		return false;
	memcpy(ret_digest, seal.sha256, sizeof(seal.sha256));
	return true;
}

#include "core/seal.h"

#include "core/edit.h"
#include "core/errlog.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"

#include <linux/ioprio.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

// Reading and writing down are apart: what is read is collected without a lock, by a thread that may be starved; the version
// that says so is put under the lock of all acts, by the caller's.
//
// Invariants:
//  1. A seal is given to the file that was read, whatever version it is in by then: same raw file, inode number, size and time.
//  2. Raw files of committed steps are never changed in place, so that what was read is what is there.

#define READ_BYTES ((size_t)1 << 20)
#define BAD_FILES_MAX 8                      // that are told one by one; with more it is not the files
#define PUT_AFTER_BYTES (UINT64_C(64) << 30) // what a crash may make read again
#define PUTS_MAX 8                           // of one step: each has a manifest of its own
#define LOOK_NS 20000000                     // between two calls of meanwhile

struct read_file {
	uint32_t index; // in the manifest that was read
	uint8_t sha256[CKPT_SHA256_LEN];
	size_t first, count; // chunks
};

struct reading {
	struct ckpt_step *step;
	const struct ckpt_seal_how *how;
	struct ckpt_manifest *m;
	struct read_file *files;
	struct ckpt_chunk *chunks;
	size_t file_count, file_cap, chunk_count, chunk_cap;
	uint32_t next; // the entry to go on with
	uint64_t bytes;
	struct {
		uint32_t index;
		int error;
	} bad[BAD_FILES_MAX]; // what is wrong with one keeps no other from its seal
	unsigned bad_count;
	void *buf;
	int result;
};

// --- Reading ------------------------------------------------------------------------------------------------------------

static int add_chunk(struct reading *r, const struct ckpt_chunk *chunk)
{
	int rc = ckpt_grow((void **)&r->chunks, &r->chunk_cap, r->chunk_count + 1, sizeof(*r->chunks));

	if (!rc)
		r->chunks[r->chunk_count++] = *chunk;
	return rc;
}

// One chunk, which also counts for the whole file, where that is another hash.
static int read_chunk(struct reading *r, int fd, uint64_t at, uint32_t bytes, struct ckpt_sha256 *whole)
{
	struct ckpt_chunk chunk = {.bytes = bytes};
	struct ckpt_sha256 sum;

	ckpt_sha256_begin(&sum);
	for (uint32_t done = 0; done < bytes;) {
		size_t want = MIN(READ_BYTES, (size_t)(bytes - done));
		ssize_t n = ckpt_sys.pread(fd, r->buf, want, (off_t)(at + done));

		if (n < 0)
			return (int)n;
		if ((size_t)n != want)
			return -ENODATA;
		ckpt_sha256_add(&sum, r->buf, want);
		if (whole)
			ckpt_sha256_add(whole, r->buf, want);
		done += (uint32_t)want;
	}
	ckpt_sha256_end(&sum, chunk.id);
	r->bytes += bytes;
	return add_chunk(r, &chunk);
}

static int read_bytes(struct reading *r, int fd, uint64_t bytes, struct read_file *f)
{
	struct ckpt_sha256 whole;
	bool one = bytes <= CKPT_SEAL_CHUNK_BYTES;
	uint32_t len;
	int rc = 0;

	ckpt_sha256_begin(&whole);
	for (uint64_t at = 0; at < bytes && !rc; at += len) {
		len = (uint32_t)MIN(bytes - at, (uint64_t)CKPT_SEAL_CHUNK_BYTES);
		rc = read_chunk(r, fd, at, len, one ? NULL : &whole);
		if (!rc && r->how->go_on && !r->how->go_on(r->how->arg, len))
			rc = -EINTR;
	}
	if (rc)
		return rc;
	f->count = r->chunk_count - f->first;
	if (one)
		memcpy(f->sha256, r->chunks[f->first].id, sizeof(f->sha256));
	else
		ckpt_sha256_end(&whole, f->sha256);
	return 0;
}

// What is wrong is wrong with this file; else with the machine, and no other would go better.
static bool is_of_the_file(int error)
{
	return error == -EIO || error == -ENODATA;
}

static int read_entry(struct reading *r, uint32_t index, uint64_t bytes)
{
	size_t chunks = r->chunk_count;
	struct read_file f = {.index = index, .first = chunks};
	int fd, rc = ckpt_step_open_raw(r->step, r->m, index, &fd);

	if (!rc) {
		rc = read_bytes(r, fd, bytes, &f);
		ckpt_sys.close(fd);
	}
	if (!rc)
		rc = ckpt_grow((void **)&r->files, &r->file_cap, r->file_count + 1, sizeof(*r->files));
	if (!rc) {
		r->files[r->file_count++] = f;
		return 0;
	}
	r->chunk_count = chunks;
	if (rc == -EINTR)
		return rc;
	r->bad[r->bad_count].index = index;
	r->bad[r->bad_count++].error = rc;
	if (!is_of_the_file(rc))
		return rc;
	return r->bad_count < BAD_FILES_MAX ? 0 : -EIO;
}

// From entry `next` on, until it is time to write down what was read.
static int read_some(struct reading *r)
{
	uint32_t count = ckpt_manifest_count(r->m);
	uint64_t files, bytes, until;
	int rc = 0;

	ckpt_manifest_totals(r->m, &files, &bytes);
	until = r->bytes + MAX(PUT_AFTER_BYTES, bytes / PUTS_MAX);
	for (; r->next < count && r->bytes < until && !rc; r->next++) {
		struct ckpt_entry e;
		struct ckpt_seal seal;

		ckpt_manifest_entry(r->m, r->next, &e);
		if (e.content == CKPT_CONTENT_RAW && e.bytes && ckpt_manifest_first_link(r->m, r->next) == r->next &&
		    !ckpt_manifest_seal(r->m, r->next, &seal))
			rc = read_entry(r, r->next, e.bytes);
	}
	return rc;
}

// The thread takes no lock that others want: it may be as slow as it must.
static void give_way(void)
{
	const struct sched_param none = {0};

	(void)sched_setscheduler(0, SCHED_IDLE, &none);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
}

static void *reading_thread(void *arg)
{
	struct reading *r = arg;

	give_way();
	r->result = read_some(r);
	return NULL;
}

static int read_behind(struct reading *r)
{
	pthread_t thread;
	struct timespec at;

	if (pthread_create(&thread, NULL, reading_thread, r))
		return -EAGAIN;
	do {
		r->how->meanwhile(r->how->arg);
		clock_gettime(CLOCK_MONOTONIC, &at);
		at.tv_nsec += LOOK_NS;
		at.tv_sec += at.tv_nsec / 1000000000;
		at.tv_nsec %= 1000000000;
	} while (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &at) == ETIMEDOUT);
	return r->result;
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
				error == -ENODATA ? "%s is shorter than it was committed, and was not sealed"
						  : "%s could not be read to seal it",
				path);
	else
		ckpt_errlog_add(step->store->errlog, step->name, error, later,
				"what was learnt of its files could not be stored");
}

static void complain_of_files(const struct reading *r)
{
	for (unsigned i = 0; i < r->bad_count; i++) {
		char path[PATH_MAX] = "a file";

		ckpt_manifest_path(r->m, r->bad[i].index, path, sizeof(path));
		complain(r->step, path, r->bad[i].error);
	}
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
	       e.mtime_s == was_e.mtime_s && e.mtime_ns == was_e.mtime_ns &&
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

		if (!find(r, d, f->index, &index))
			continue;
		*ret_any = true;
		rc = ckpt_manifest_writer_seal(d->w, d->handles[index], f->sha256);
		for (size_t k = 0; k < f->count && !rc; k++)
			rc = ckpt_manifest_writer_chunk(d->w, &r->chunks[f->first + k]);
	}
	return rc;
}

// An older program has not said of a step without a byte that it is sealed.
static bool says_too_little(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	LOCK_SCOPE(&step->lock);

	return !step->summary.sealed && ckpt_manifest_is_sealed(m);
}

static int try_put(const struct reading *r, bool *adopted)
{
	struct ckpt_edit d = {.step = r->step, .event = CKPT_EVENT_SEAL, .same_files = true};
	int rc = ckpt_edit_begin(&d, adopted);
	bool any = !rc && says_too_little(r->step, d.m);

	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc)
		rc = give_seals(r, &d, &any);
	if (!rc && any)
		rc = ckpt_edit_put(&d);
	ckpt_edit_done(&d);
	return rc;
}

static int put(struct reading *r)
{
	LOCK_SCOPE(&r->step->store->acts_lock);
	bool adopted = false;
	int rc = r->file_count || says_too_little(r->step, r->m) ? -EAGAIN : 0;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try_put(r, &adopted);
	r->file_count = r->chunk_count = 0;
	if (rc && rc != -ESTALE && rc != -EBUSY)
		complain(r->step, NULL, rc);
	return rc == -EAGAIN ? -EIO : rc;
}

// --- The act ------------------------------------------------------------------------------------------------------------

static bool is_current(struct reading *r, bool *ret_sealed)
{
	LOCK_SCOPE(&r->step->lock);

	*ret_sealed = r->step->summary.sealed;
	return !memcmp(ckpt_manifest_sha256(r->m), r->step->summary.manifest_sha256, CKPT_SHA256_LEN);
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

// One round: what is read is written down, whatever ends the reading.
static int seal_some(struct reading *r)
{
	int rc = r->how->meanwhile ? read_behind(r) : read_some(r), put_rc;

	complain_of_files(r);
	put_rc = put(r);
	if (!rc)
		rc = put_rc;
	if (!rc && r->bad_count && r->next == ckpt_manifest_count(r->m))
		rc = -EIO;
	r->bad_count = 0;
	return rc;
}

int ckpt_seal(struct ckpt_step *step, const struct ckpt_seal_how *how)
{
	struct reading r = {.step = step, .how = how, .buf = malloc(READ_BYTES)};
	bool done = false;
	int rc = r.buf ? 0 : -ENOMEM;

	while (!rc && !done) {
		rc = take_manifest(&r, &done);
		if (!rc && !done && r.m)
			rc = seal_some(&r);
	}
	ckpt_manifest_unref(r.m);
	free(r.files);
	free(r.chunks);
	free(r.buf);
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

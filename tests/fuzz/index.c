// Hostile indexes: a good one with changes. The first bytes say how long the file is to be, then each change is six bytes:
// a page, an offset in it, and two bytes to stand there. It is opened as a mount opens it: what it has is then right, or
// it is empty, or damage is told; and it can be written to.

#include "tests/fuzz/replay.h"
#include "tests/fuzz/temp.h"
#include "tests/support/formats.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/index/index.h"
#include "core/index/index_check.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define ROWS 24
#define PAGE 4096
#define CHANGE_BYTES 6

static char dir[PATH_MAX], file[PATH_MAX];
static uint8_t *image;
static size_t image_len;

// --- A good one -------------------------------------------------------------------------------------------------------

// Some manifests are in a leaf, some in pages of their own.
static size_t row_of(unsigned i, uint8_t ret_sha256[CKPT_SHA256_LEN], uint8_t ret_manifest[3000])
{
	size_t len = i % 3 ? 400 : 3000;

	memset(ret_manifest, (int)i + 1, len);
	ckpt_sha256(ret_manifest, len, ret_sha256);
	return len;
}

static int put_row(struct ckpt_index *ix, unsigned i)
{
	uint8_t sha256[CKPT_SHA256_LEN], manifest[3000];
	size_t len = row_of(i, sha256, manifest);

	return ckpt_index_put_manifest(ix, sha256, manifest, len);
}

#define CHUNKS 10

static struct ckpt_chunk chunk_of(unsigned i)
{
	struct ckpt_chunk chunk = {.bytes = 10 + i, .offset = 32 + 20 * (uint64_t)i, .how = {.bytes = 10 + i}};

	ckpt_sha256(&i, sizeof(i), chunk.id);
	return chunk;
}

static const struct ckpt_pack pack = {.id = {7}, .bytes = 1000};

static int put_pack(struct ckpt_index *ix)
{
	struct ckpt_chunk chunks[CHUNKS];

	for (unsigned i = 0; i < CHUNKS; i++)
		chunks[i] = chunk_of(i);
	return ckpt_index_put_pack(ix, &pack, chunks, CHUNKS);
}

static void make_image(void)
{
	struct ckpt_index *ix;
	struct stat st;
	bool fresh;
	int fd;

	fuzz_assert(!ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	for (unsigned i = 0; i < ROWS; i++)
		fuzz_assert(!put_row(ix, i));
	fuzz_assert(!put_pack(ix));
	ckpt_index_close(ix);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	fuzz_assert(fd >= 0 && !fstat(fd, &st));
	image_len = (size_t)st.st_size;
	image = malloc(image_len);
	fuzz_assert(image && pread(fd, image, image_len, 0) == (ssize_t)image_len);
	close(fd);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_temp_init();
	snprintf(dir, sizeof(dir), "%.*s/index", PATH_MAX - 64, fuzz_temp);
	snprintf(file, sizeof(file), "%.*s/data.mdb", PATH_MAX - 16, dir);
	make_image();
	return 0;
}

// --- What it says -----------------------------------------------------------------------------------------------------

// A changed bit of a key makes it that of another manifest or chunk, which nobody has: a miss.
static void check_manifests(struct ckpt_index *ix, bool fresh)
{
	for (unsigned i = 0; i < ROWS; i++) {
		uint8_t sha256[CKPT_SHA256_LEN], manifest[3000];
		size_t expected = row_of(i, sha256, manifest), len;
		void *data;
		int rc = ckpt_index_manifest(ix, sha256, &data, &len);

		fuzz_assert(!rc || rc == -ENOENT || rc == -EBADMSG || rc == -EIO);
		if (rc)
			continue;
		fuzz_assert(!fresh && len == expected && !memcmp(data, manifest, len));
		free(data);
	}
}

static void check_chunks(struct ckpt_index *ix)
{
	for (unsigned i = 0; i < CHUNKS; i++) {
		struct ckpt_chunk expected = chunk_of(i), chunk;
		struct ckpt_pack in;
		int rc = ckpt_index_chunk(ix, expected.id, &chunk, &in);

		fuzz_assert(!rc || rc == -ENOENT || rc == -EBADMSG || rc == -EIO);
		fuzz_assert(rc || (chunk.bytes == expected.bytes && chunk.offset == expected.offset &&
				   chunk.how.bytes == expected.how.bytes && !chunk.how.codec &&
				   in.bytes == pack.bytes && !memcmp(in.id, pack.id, sizeof(in.id))));
	}
	(void)ckpt_index_drop_packs(ix, &pack, 1);
}

static void try_index(void)
{
	struct ckpt_index_stat stat;
	struct ckpt_index *ix;
	bool fresh;

	fuzz_assert(!ckpt_index_open(dir, CKPT_SAMPLE_STORE, false, &ix, &fresh));
	check_manifests(ix, fresh);
	check_chunks(ix);
	(void)ckpt_index_stat(ix, &stat);
	if (put_row(ix, 99)) {
		fuzz_assert(!ckpt_index_reset(ix));
		fuzz_assert(!put_row(ix, 99));
	}
	ckpt_index_close(ix);
}

static void write_image(const uint8_t *bytes, size_t len)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	fuzz_assert(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
}

// The check by itself too, in this process: it must be able to look at anything.
static void check_alone(void)
{
	CLEANUP_FD int fd = open(file, O_RDONLY | O_CLOEXEC);
	int rc = ckpt_index_check_header(fd);

	fuzz_assert(rc == 0 || rc == -EBADMSG || rc == -EIO);
	for (int meta = 0; meta < 2; meta++) {
		uint64_t txnid = 0;

		(void)!pread(fd, &txnid, sizeof(txnid), meta * PAGE + 144);
		rc = ckpt_index_check_snapshot(fd, txnid);
		fuzz_assert(rc == 0 || rc == -EBADMSG || rc == -EIO || rc == -EAGAIN);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	size_t image_now = image_len, pages = image_len / PAGE;
	uint8_t *copy;

	if (len < 2)
		return 0;
	copy = malloc(image_len);
	fuzz_assert(copy);
	memcpy(copy, image, image_len);
	if (data[0])
		image_now = MIN(image_len, (size_t)(data[0] - 1) * PAGE + data[1]);
	for (data += 2, len -= 2; len >= CHANGE_BYTES; data += CHANGE_BYTES, len -= CHANGE_BYTES) {
		size_t at = data[0] % pages * PAGE + (ckpt_get16(data + 1) % (PAGE - 1));

		memcpy(copy + at, data + 3, 1 + data[5] % 2);
	}
	write_image(copy, image_now);
	free(copy);
	check_alone();
	try_index();
	return 0;
}

// Looks at stores on disks that had a power cut, many times a second: it opens a store as a mount does, without the FUSE
// part of it, and says what is listed, with a hash of the bytes that a reader gets. It judges nothing: judge.py does.
//
//	look STORE           {"steps": {PATH: {FILE: ENTRY}}, "trash": [PATH]}   or {"error": TEXT}
//	restore IMAGE BASE   {}   the disk's image is that of BASE again
//
// A request is a line, its words separated by tabs; so is an answer, in JSON. ENTRY is "SHA256 BYTES MODE MTIME_NS", "-> TARGET"
// of a symlink, or "error: ..." where a file cannot be read. Ends with its standard input.
#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/delete.h"
#include "core/step/folders.h"
#include "core/store/open.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096

static void answer(json_t *what)
{
	char *text = json_dumps(what, JSON_COMPACT);

	puts(text ?: "{\"error\": \"no memory\"}");
	fflush(stdout);
	free(text);
	json_decref(what);
}

static json_t *error_of(const char *what, int rc)
{
	return json_pack("{s:o}", "error", json_sprintf("%s: %s", what, strerror(-rc)));
}

// --- The store --------------------------------------------------------------------------------------------------------

static int hash_file(int fd, uint64_t bytes, char hex[CKPT_SHA256_HEX_LEN + 1])
{
	uint8_t digest[CKPT_SHA256_LEN];
	CLEANUP_FREE char *data = malloc(bytes + 1);
	size_t done = 0;

	if (!data)
		return -ENOMEM;
	for (ssize_t n = 1; n > 0 && done <= bytes; done += (size_t)n) {
		n = pread(fd, data + done, bytes + 1 - done, (off_t)done);
		if (n < 0)
			return -errno;
	}
	if (done != bytes)
		return -EIO;
	ckpt_sha256(data, bytes, digest);
	ckpt_hex(digest, sizeof(digest), hex);
	return 0;
}

static json_t *entry_of(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	char hex[CKPT_SHA256_HEX_LEN + 1];
	uint8_t digest[CKPT_SHA256_LEN];
	CLEANUP_FD int fd = -1;
	int rc = 0;

	if (e->type == CKPT_ENTRY_SYMLINK)
		return json_sprintf("-> %s", e->target);
	ckpt_sha256("", 0, digest);
	ckpt_hex(digest, sizeof(digest), hex);
	if (e->bytes) {
		rc = ckpt_step_open_raw(step, m, e->index, &fd);
		if (!rc)
			rc = hash_file(fd, e->bytes, hex);
	}
	if (rc)
		return json_sprintf("error: %s", strerror(-rc));
	return json_sprintf("%s %llu %o %lld", hex, (unsigned long long)e->bytes, e->mode,
			    (long long)e->mtime_s * 1000000000 + e->mtime_ns);
}

static json_t *files_of(struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	json_t *files = json_object();
	int rc = ckpt_step_manifest(step, &m);

	if (rc) {
		json_object_set_new(files, "", json_sprintf("error: %s", strerror(-rc)));
		return files;
	}
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		char path[PATH_MAX];
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.type != CKPT_ENTRY_DIR && ckpt_manifest_path(m, i, path, sizeof(path)) >= 0)
			json_object_set_new(files, path, entry_of(step, m, &e));
	}
	ckpt_manifest_unref(m);
	return files;
}

// One of the two gets them: all that they hold, or just what they are called. Frees the list.
static int add(const struct ckpt_folders *folders, struct ckpt_step **found, size_t count, json_t *steps, json_t *trash)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++) {
		CLEANUP_FREE char *path = NULL;
		struct ckpt_step_name name;

		ckpt_step_name(found[i], &name);
		path = ckpt_folders_name(folders, name.folder_id, name.name);
		if (!path)
			rc = -ENOMEM;
		else if (steps)
			json_object_set_new(steps, path, files_of(found[i]));
		else
			json_array_append_new(trash, json_string(path));
	}
	ckpt_step_list_free(found, count);
	return rc;
}

static int look_at(struct ckpt_store *s, json_t *steps, json_t *trash)
{
	struct ckpt_folders folders;
	struct ckpt_step **found;
	size_t count;
	int rc = ckpt_folders_read(s, &folders);

	if (rc)
		return rc;
	rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &found, &count);
	if (!rc)
		rc = add(&folders, found, count, steps, NULL);
	if (!rc)
		rc = ckpt_deleted_list(s, &found, &count);
	if (!rc)
		rc = add(&folders, found, count, NULL, trash);
	ckpt_folders_done(&folders);
	return rc;
}

static json_t *look(const char *path)
{
	json_t *seen, *steps = json_object(), *trash = json_array();
	struct ckpt_store *s;
	int rc = ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s);

	seen = json_pack("{s:o, s:o}", "steps", steps, "trash", trash);
	if (!rc) {
		rc = look_at(s, steps, trash);
		ckpt_store_close(s);
	}
	if (!rc)
		return seen;
	json_decref(seen);
	return error_of("the store cannot be opened", rc);
}

// --- The disk ---------------------------------------------------------------------------------------------------------

struct image {
	const char *path;
	int fd;
	size_t bytes;
	char *data; // mapped; holes are not looked at, which would give them pages
};

static int image_open(struct image *im, const char *path)
{
	struct stat st;

	if (im->path && !strcmp(im->path, path))
		return 0;
	im->fd = open(path, O_RDWR | O_CLOEXEC);
	if (im->fd < 0 || fstat(im->fd, &st))
		return -errno;
	im->bytes = (size_t)st.st_size;
	im->data = mmap(NULL, im->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, im->fd, 0);
	if (im->data == MAP_FAILED)
		return -errno;
	im->path = strdup(path);
	return 0;
}

// The next run of bytes, from *at on, that is no hole; false: there is none.
static bool next_run(const struct image *im, size_t *at, size_t *ret_end)
{
	off_t from = lseek(im->fd, (off_t)*at, SEEK_DATA), to;

	if (from < 0)
		return false;
	to = lseek(im->fd, from, SEEK_HOLE);
	*at = (size_t)from;
	*ret_end = to < 0 ? im->bytes : (size_t)to;
	return true;
}

static void copy_run(struct image *to, const struct image *from, size_t at, size_t end)
{
	for (; at < end; at += PAGE) {
		size_t n = MIN((size_t)PAGE, end - at);

		if (memcmp(to->data + at, from->data + at, n))
			memcpy(to->data + at, from->data + at, n);
	}
}

// A mount has written here and there. What BASE has is compared page by page; what it has not is given back.
static json_t *restore(const char *path, const char *base_path)
{
	static struct image image, base;
	size_t at = 0, end, hole = 0;
	int rc = image_open(&image, path);

	if (!rc)
		rc = image_open(&base, base_path);
	if (rc)
		return error_of("the disk's image", rc);
	for (; next_run(&base, &at, &end); at = hole = end) {
		if (at > hole &&
		    fallocate(image.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)hole, (off_t)(at - hole)))
			return error_of("a hole", -errno);
		copy_run(&image, &base, at, end);
	}
	if (image.bytes > hole &&
	    fallocate(image.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)hole, (off_t)(image.bytes - hole)))
		return error_of("a hole", -errno);
	return json_object();
}

int main(void)
{
	CLEANUP_FREE char *line = NULL;
	size_t cap = 0;

	while (getline(&line, &cap, stdin) > 0) {
		char *words[3] = {"", "", ""}, *rest = line;

		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < ARRAY_LEN(words) && rest; i++)
			words[i] = strsep(&rest, "\t");
		answer(!strcmp(words[0], "look")      ? look(words[1])
		       : !strcmp(words[0], "restore") ? restore(words[1], words[2])
						      : error_of(words[0], -EINVAL));
	}
	return 0;
}

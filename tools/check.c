#include "tools/check.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/cold/pack.h"
#include "core/save/session.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/step/follow.h"
#include "core/step/torn.h"
#include "core/tier/seal.h"
#include "tools/check_packs.h"
#include "tools/output.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/xattr.h>

#define READ_BYTES (1u << 20)
#define TICK_NS INT64_C(10000000) // the times that the kernel gives to files are behind its clock by as much

struct check {
	const struct ckpt_check *c;
	const struct ckpt_manifest *m;
	const char *session; // whose directory mirrors the manifest
	int64_t committed_ns;
	bool strangers;      // some raw files lie under other names: what is unknown may be one of them
	char *buf;           // READ_BYTES, with read_data
	char path[PATH_MAX]; // of the entry in hand
	char *problem;       // what is wrong with it so far
	bool *told;          // by pack: it is part of a problem of some file
};

// An entry is told once, with all that is wrong with it.
__attribute__((format(printf, 2, 3))) static void bad(struct check *k, const char *format, ...)
{
	CLEANUP_FREE char *more = NULL, *before = k->problem;
	va_list args;

	va_start(args, format);
	if (vasprintf(&more, format, args) < 0)
		more = ckpt_need(NULL);
	va_end(args);
	k->problem = ckpt_text("%s%s%s", before ? before : "", before ? "; " : "", more);
}

static void tell(struct check *k)
{
	if (k->problem)
		k->c->bad(k->c->arg, *k->path ? k->path : NULL, k->problem);
	free(TAKE_PTR(k->problem));
}

static const char *type_name(mode_t mode)
{
	return S_ISREG(mode)   ? "a file"
	       : S_ISDIR(mode) ? "a directory"
	       : S_ISLNK(mode) ? "a symbolic link"
			       : "a special file";
}

static mode_t type_bits(enum ckpt_entry_type type)
{
	return type == CKPT_ENTRY_DIR ? S_IFDIR : type == CKPT_ENTRY_SYMLINK ? S_IFLNK : S_IFREG;
}

// Into both sums, unless NULL. The kernel says EIO where the disk cannot give it. False: that was told.
static bool read_piece(struct check *k, int fd, uint64_t at, uint64_t bytes, struct ckpt_sha256 *sum,
		       struct ckpt_sha256 *whole)
{
	for (uint64_t done = 0; done < bytes;) {
		ssize_t n = ckpt_sys.pread(fd, k->buf, MIN(READ_BYTES, bytes - done), (off_t)(at + done));

		if (n <= 0) {
			bad(k, "cannot be read at byte %llu: %s", (unsigned long long)(at + done),
			    n ? strerror((int)-n) : "it ends there");
			return false;
		}
		if (sum)
			ckpt_sha256_add(sum, k->buf, (size_t)n);
		if (whole)
			ckpt_sha256_add(whole, k->buf, (size_t)n);
		done += (uint64_t)n;
		k->c->progress(k->c->arg, (uint64_t)n);
	}
	return true;
}

// Chunk by chunk, so that it is said where the damage is; the first is enough for a person, and all are counted.
static void compare_chunks(struct check *k, int fd, const struct ckpt_seal *seal)
{
	uint64_t at = 0, first = 0, first_bytes = 0;
	struct ckpt_sha256 whole;
	uint8_t is[CKPT_SHA256_LEN];
	uint32_t damaged = 0;
	bool one = seal->count == 1; // its hash is the file's

	ckpt_sha256_begin(&whole);
	for (uint32_t i = 0; i < seal->count; i++) {
		struct ckpt_chunk chunk;
		struct ckpt_sha256 sum;

		ckpt_manifest_chunk(k->m, seal->first + i, &chunk);
		ckpt_sha256_begin(&sum);
		if (!read_piece(k, fd, at, chunk.bytes, &sum, one ? NULL : &whole))
			return;
		ckpt_sha256_end(&sum, is);
		if (memcmp(is, chunk.id, sizeof(is)) && !damaged++) {
			first = at;
			first_bytes = chunk.bytes;
		}
		at += chunk.bytes;
	}
	if (!one)
		ckpt_sha256_end(&whole, is);
	if (!damaged && memcmp(is, seal->sha256, sizeof(is)))
		bad(k, "its SHA-256 is another than its chunks give: the manifest is wrong");
	if (damaged)
		bad(k, "its bytes are not those that were sealed: %u of %u chunks, the first at bytes %llu to %llu",
		    damaged, seal->count, (unsigned long long)first, (unsigned long long)(first + first_bytes - 1));
}

// All of the file, once.
static void read_file(struct check *k, int dirfd, const char *name, const struct ckpt_entry *e)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, name, O_RDONLY | O_NONBLOCK, 0);
	struct ckpt_seal seal;

	if (fd < 0) {
		bad(k, "cannot be opened: %s", strerror(-fd));
		return;
	}
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	if (ckpt_manifest_seal(k->m, e->index, &seal))
		compare_chunks(k, fd, &seal);
	else
		read_piece(k, fd, 0, e->bytes, NULL, NULL);
}

// --- In packs -----------------------------------------------------------------------------------------------------------

// It is where the manifest says, and so is all that it is decoded beside. What is not, *bad, is the one that is wrong.
static int check_places(struct check *k, const struct ckpt_chunk *chunk, struct ckpt_chunk *bad)
{
	struct ckpt_pack pack;
	int rc;

	ckpt_manifest_pack(k->m, chunk->pack - 1, &pack);
	*bad = *chunk;
	rc = ckpt_packs_chunk(k->c->packs, &pack, chunk);
	for (uint32_t i = 0; i < chunk->base_count && !rc; i++) {
		struct ckpt_chunk base;

		ckpt_manifest_base(k->m, chunk->base - 1 + i, &base);
		rc = check_places(k, &base, bad);
	}
	if (!rc)
		*bad = *chunk;
	return rc;
}

// It cannot be read: is it because of one of its bases? Then that is *bad.
static int look_below(struct check *k, const struct ckpt_chunk *chunk, int rc, struct ckpt_chunk *bad)
{
	const uint8_t *plain;

	for (uint32_t i = 0; i < chunk->base_count; i++) {
		struct ckpt_chunk base;
		int why;

		ckpt_manifest_base(k->m, chunk->base - 1 + i, &base);
		why = ckpt_packs_read(k->c->packs, k->m, &base, &plain);
		if (!why)
			continue;
		*bad = base;
		return look_below(k, &base, why, bad);
	}
	return rc;
}

// Its bytes go into the sum.
static int check_chunk(struct check *k, const struct ckpt_chunk *chunk, struct ckpt_sha256 *sum, struct ckpt_chunk *bad)
{
	const uint8_t *plain;
	int rc = check_places(k, chunk, bad);

	if (!rc && k->c->read_data) {
		rc = ckpt_packs_read(k->c->packs, k->m, chunk, &plain);
		if (!rc)
			ckpt_sha256_add(sum, plain, chunk->bytes);
		else
			rc = look_below(k, chunk, rc, bad);
	}
	if (k->c->read_data)
		k->c->progress(k->c->arg, chunk->bytes);
	return rc;
}

// As above: the first is enough for a person, and all are counted.
static void check_packed(struct check *k, uint32_t index)
{
	uint64_t at = 0, first = 0, first_bytes = 0;
	struct ckpt_sha256 whole;
	struct ckpt_seal seal = {0};
	char key[CKPT_PACK_KEY_MAX] = "";
	uint8_t is[CKPT_SHA256_LEN];
	uint32_t damaged = 0;
	int why = 0;

	ckpt_sha256_begin(&whole);
	ckpt_manifest_seal(k->m, index, &seal);
	for (uint32_t i = 0; i < seal.count; i++) {
		struct ckpt_chunk chunk, it;
		struct ckpt_pack pack;
		int rc;

		ckpt_manifest_chunk(k->m, seal.first + i, &chunk);
		rc = check_chunk(k, &chunk, &whole, &it);
		if (rc && k->told)
			k->told[it.pack - 1] = true;
		if (rc && !damaged++) {
			ckpt_manifest_pack(k->m, it.pack - 1, &pack);
			ckpt_pack_key(pack.id, key);
			first = at;
			first_bytes = chunk.bytes;
			why = rc;
		}
		at += chunk.bytes;
	}
	if (damaged)
		bad(k, "%u of %u chunks cannot be read, the first at bytes %llu to %llu: %s %s", damaged, seal.count,
		    (unsigned long long)first, (unsigned long long)(first + first_bytes - 1), key, ckpt_packs_why(why));
	ckpt_sha256_end(&whole, is);
	if (!damaged && k->c->read_data && memcmp(is, seal.sha256, sizeof(is)))
		bad(k, "its SHA-256 is another than its chunks give: the manifest is wrong");
}

// --- As they were written -----------------------------------------------------------------------------------------------

// Attributes that were changed since the raw file was written are in the entry alone (core/step/attributes.h).
static bool is_as_written(const struct check *k, const struct ckpt_entry *e, const struct stat *st)
{
	struct timespec mtime;
	uint32_t mode;

	return ckpt_attributes_raw(k->m, e, &mode, &mtime) && (st->st_mode & 07777) == mode &&
	       (e->type != CKPT_ENTRY_FILE ||
		(st->st_mtim.tv_sec == mtime.tv_sec && st->st_mtim.tv_nsec == mtime.tv_nsec));
}

static void compare_time(struct check *k, const struct ckpt_entry *e, const struct stat *st)
{
	char have[CKPT_TIME_LEN + 1], want[CKPT_TIME_LEN + 1];

	if (st->st_mtim.tv_sec != e->mtime_s || st->st_mtim.tv_nsec != e->mtime_ns) {
		ckpt_time_format(st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec, have);
		ckpt_time_format(e->mtime_s * INT64_C(1000000000) + e->mtime_ns, want);
		bad(k, "was changed at %s, the manifest says %s", have, want);
	}
}

static void compare_target(struct check *k, const struct ckpt_entry *e, int dirfd, const char *name)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target) - 1);

	target[MAX(n, (ssize_t)0)] = '\0';
	if (n < 0)
		bad(k, "cannot be read: %s", strerror(errno));
	else if (strcmp(target, e->target))
		bad(k, "leads to %s, the manifest says %s", target, e->target);
}

// False: it is not there as what it should be, and there is no more to say.
static bool compare(struct check *k, const struct ckpt_entry *e, int dirfd, const char *name)
{
	struct stat st;
	bool written;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW)) {
		if (errno == ENOENT)
			bad(k, "is missing");
		else
			bad(k, "cannot be looked at: %s", strerror(errno));
		return false;
	}
	if ((st.st_mode & S_IFMT) != type_bits(e->type)) {
		bad(k, "is %s, the manifest says %s", type_name(st.st_mode), type_name(type_bits(e->type)));
		return false;
	}
	if (e->type == CKPT_ENTRY_FILE && (uint64_t)st.st_size != e->bytes)
		bad(k, "has %lld bytes, the manifest says %llu", (long long)st.st_size, (unsigned long long)e->bytes);
	written = is_as_written(k, e, &st);
	if (!written && e->type != CKPT_ENTRY_SYMLINK && (st.st_mode & 07777) != e->mode)
		bad(k, "has mode %04o, the manifest says %04o", st.st_mode & 07777, e->mode);
	if (!written && e->type == CKPT_ENTRY_FILE)
		compare_time(k, e, &st);
	if (e->type == CKPT_ENTRY_SYMLINK)
		compare_target(k, e, dirfd, name);
	return (uint64_t)st.st_size == e->bytes || e->type != CKPT_ENTRY_FILE;
}

static void set_path(struct check *k, uint32_t index)
{
	if (ckpt_manifest_path(k->m, index, k->path, sizeof(k->path)) < 0)
		snprintf(k->path, sizeof(k->path), "(a path too long)");
}

// A raw file that lies in another session, or there under another name.
static void check_elsewhere(struct check *k, const struct ckpt_entry *e)
{
	const char *uuid = ckpt_manifest_session(k->m, e->session);
	CLEANUP_FREE char *raw = ckpt_text("%s/%s", uuid ? uuid : "?", e->raw_path ? e->raw_path : k->path);
	CLEANUP_FREE char *parent = NULL;
	char *slash = strrchr(raw, '/');
	CLEANUP_FD int fd = -1;

	if (!uuid || !ckpt_uuid_check(uuid)) {
		bad(k, "is in a session that the manifest does not name");
		return;
	}
	parent = ckpt_text("%.*s", (int)(slash - raw), raw);
	fd = ckpt_sys.open(k->c->store->sessions_fd, parent, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		bad(k, "its folder sessions/%s: %s", parent, strerror(-fd));
	else if (compare(k, e, fd, slash + 1) && k->c->read_data)
		read_file(k, fd, slash + 1, e);
}

// What was added or renamed after the commit does not stand at its path, where an older version may have something else. Of a
// directory, a symlink or an empty file all is in the manifest.
static bool stands_elsewhere(const struct check *k, const struct ckpt_entry *e, int dirfd)
{
	struct statx stx;

	return k->strangers && (dirfd < 0 || statx(dirfd, e->name, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx) ||
				ckpt_store_ino(&stx) != e->ino);
}

// In packs; but its raw file is what a reader gets, where there is one. Packs that no file has lost anything by are told as such.
static void check_packed_file(struct check *k, uint32_t index)
{
	struct ckpt_step *step = ckpt_step_of_session(k->c->store, k->session);
	struct ckpt_seal seal;
	CLEANUP_FD int fd = -1;

	if (!step || ckpt_step_open_raw(step, k->m, index, &fd))
		check_packed(k, index);
	else if (k->c->read_data && ckpt_manifest_seal(k->m, index, &seal))
		compare_chunks(k, fd, &seal);
	ckpt_step_unref(step);
}

static void check_file(struct check *k, int dirfd, const struct ckpt_entry *e)
{
	const char *home = e->content == CKPT_CONTENT_NONE ? k->session : ckpt_manifest_session(k->m, e->session);

	if (e->content == CKPT_CONTENT_CHUNKS)
		check_packed_file(k, e->index);
	else if (e->content == CKPT_CONTENT_NONE && stands_elsewhere(k, e, dirfd))
		return;
	else if (e->raw_path || !home || strcmp(home, k->session) || dirfd < 0)
		check_elsewhere(k, e);
	else if (compare(k, e, dirfd, e->name) && k->c->read_data)
		read_file(k, dirfd, e->name, e);
}

// --- Beside a mount -----------------------------------------------------------------------------------------------------

// The manifest of the version that is the step's by now, also of one in the trash, with a reference; NULL: it is the one in hand.
static struct ckpt_manifest *newer_manifest(struct check *k)
{
	struct ckpt_step *step = ckpt_step_of_session(k->c->store, k->session);
	struct ckpt_manifest *now = NULL;

	if (step) {
		(void)ckpt_follow_newer(step);
		if (ckpt_step_manifest(step, &now))
			now = NULL;
		ckpt_step_unref(step);
	}
	if (now && !memcmp(ckpt_manifest_sha256(now), ckpt_manifest_sha256(k->m), CKPT_SHA256_LEN))
		ckpt_manifest_unref(TAKE_PTR(now));
	return now;
}

static bool find_same(const struct ckpt_manifest *now, const char *path, const struct ckpt_entry *was,
		      struct ckpt_entry *ret_entry)
{
	uint32_t index;

	if (ckpt_manifest_lookup(now, path, &index))
		return false;
	ckpt_manifest_entry(now, index, ret_entry);
	return ret_entry->ino == was->ino && ret_entry->bytes == was->bytes;
}

// Who has the store mounted may have put it into packs since we read the manifest, or into others, or taken it out of them, and
// may do so again while we look.
static void look_again(struct check *k, int dirfd, const struct ckpt_entry *was)
{
	const struct ckpt_manifest *m = k->m;
	struct ckpt_manifest *now, *before = NULL;
	bool *told = k->told;
	struct ckpt_entry e;

	k->told = NULL;
	while (k->problem && (now = newer_manifest(k))) {
		ckpt_manifest_unref(before);
		before = now;
		k->m = now;
		if (!find_same(now, k->path, was, &e))
			break;
		free(TAKE_PTR(k->problem));
		check_file(k, dirfd, &e);
	}
	k->m = m;
	k->told = told;
	ckpt_manifest_unref(before);
}

// A pack that is gone, which no version needs any more, was garbage.
static bool is_named_still(struct check *k, const struct ckpt_pack *pack)
{
	struct ckpt_manifest *now = newer_manifest(k);
	bool found = !now;

	for (uint32_t i = 0; now && !found && i < ckpt_manifest_pack_count(now); i++) {
		struct ckpt_pack other;

		ckpt_manifest_pack(now, i, &other);
		found = !memcmp(other.id, pack->id, sizeof(other.id));
	}
	ckpt_manifest_unref(now);
	return found;
}

// What no file has lost anything by: the files of these chunks are raw as well, or decoding does not need what is damaged.
static void check_packs(struct check *k)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(k->m); i++) {
		char key[CKPT_PACK_KEY_MAX];
		struct ckpt_pack pack;
		int rc;

		ckpt_manifest_pack(k->m, i, &pack);
		if (k->told[i])
			continue;
		rc = k->c->read_data ? ckpt_packs_bytes(k->c->packs, &pack) : ckpt_packs_pack(k->c->packs, &pack);
		if (!rc || (rc == -ENOENT && !is_named_still(k, &pack)))
			continue;
		ckpt_pack_key(pack.id, key);
		*k->path = '\0';
		bad(k, "%s, which it names, %s", key, ckpt_packs_why(rc));
		tell(k);
	}
}

// --- All of it ----------------------------------------------------------------------------------------------------------

static void check_dir(struct check *k, int dirfd, const struct ckpt_entry *dir);

static void check_entry(struct check *k, int dirfd, uint32_t index)
{
	uint8_t digest[CKPT_SHA256_LEN];
	struct ckpt_entry e;
	bool sound;
	int fd = -1;

	ckpt_manifest_entry(k->m, index, &e);
	set_path(k, index);
	if (e.type == CKPT_ENTRY_FILE && ckpt_manifest_first_link(k->m, index) == index &&
	    !ckpt_seal_sha256(k->m, &e, digest))
		k->c->unsealed(k->c->arg);
	if (e.type == CKPT_ENTRY_FILE) {
		if (!k->c->read_data)
			k->c->progress(k->c->arg, 1);
		check_file(k, dirfd, &e);
		if (k->problem)
			look_again(k, dirfd, &e);
		tell(k);
		return;
	}
	sound = stands_elsewhere(k, &e, dirfd) || compare(k, &e, dirfd, e.name);
	if (sound && e.type == CKPT_ENTRY_DIR && dirfd >= 0) {
		fd = ckpt_sys.open(dirfd, e.name, O_RDONLY | O_DIRECTORY, 0);
		if (fd < 0 && !stands_elsewhere(k, &e, dirfd))
			bad(k, "cannot be opened: %s", strerror(-fd));
	}
	tell(k);
	if (fd >= 0 || (sound && e.type == CKPT_ENTRY_DIR && k->strangers))
		check_dir(k, fd, &e);
}

// What a crash has left of a change after the commit, or of a file that the commit left out, is in nobody's way. A daemon that was killed before it could mark what it had
// just made left something that is younger than the step.
static bool is_left_by_an_amend(const struct check *k, DIR *dir, const char *name)
{
	CLEANUP_FD int fd = openat(dirfd(dir), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct statx stx;

	if (fd >= 0 &&
	    (fgetxattr(fd, CKPT_AMENDING_XATTR, NULL, 0) >= 0 || fgetxattr(fd, CKPT_TORN_XATTR, NULL, 0) >= 0))
		return true;
	return !statx(dirfd(dir), name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &stx) && stx.stx_mask & STATX_BTIME &&
	       stx.stx_btime.tv_sec * INT64_C(1000000000) + stx.stx_btime.tv_nsec + TICK_NS > k->committed_ns;
}

static void check_strangers(struct check *k, int dirfd, const struct ckpt_entry *dir)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	uint32_t index;

	if (!stream) {
		set_path(k, dir->index);
		bad(k, "cannot be listed: %s", strerror(errno));
		tell(k);
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((d = readdir(stream))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    !ckpt_manifest_child(k->m, dir->index, d->d_name, &index))
			continue;
		set_path(k, dir->index);
		snprintf(k->path + strlen(k->path), sizeof(k->path) - strlen(k->path), "%s%s", *k->path ? "/" : "",
			 d->d_name);
		if (is_left_by_an_amend(k, stream, d->d_name))
			continue;
		bad(k, "is in the session's directory, not in the manifest");
		tell(k);
	}
	closedir(stream);
}

// dirfd is taken; -1: its raw directory is not at its path.
static void check_dir(struct check *k, int dirfd, const struct ckpt_entry *dir)
{
	if (!k->strangers)
		check_strangers(k, dirfd, dir);
	for (uint32_t i = 0; i < dir->child_count; i++)
		check_entry(k, dirfd, dir->child_first + i);
	if (dirfd >= 0)
		close(dirfd);
}

static bool has_strangers(const struct ckpt_manifest *m, bool is_first)
{
	if (!is_first) // what a version has removed is still there
		return true;
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.raw_path)
			return true;
	}
	return false;
}

// Its files need not be here: the packs have them.
static bool is_of_another_node(const struct check *k, int fd)
{
	struct ckpt_said said;

	return fd < 0 ? !ckpt_journal_said(k->c->store->journal, k->session, &said) && said.pulled
		      : fgetxattr(fd, CKPT_PULLED_XATTR, NULL, 0) >= 0;
}

void ckpt_check_files(const struct ckpt_check *c, const struct ckpt_manifest *m, const struct ckpt_summary *summary)
{
	struct check *k = ckpt_need(calloc(1, sizeof(*k)));
	struct ckpt_entry root;
	int fd;

	*k = (struct check){
		.c = c,
		.m = m,
		.session = summary->session,
		.committed_ns = summary->committed_ns,
		.strangers = has_strangers(m, summary->first_committed_ns == summary->committed_ns),
	};
	k->buf = c->read_data ? ckpt_need(malloc(READ_BYTES)) : NULL;
	k->told = ckpt_need(calloc(ckpt_manifest_pack_count(m) + 1, sizeof(*k->told)));
	ckpt_manifest_entry(m, 0, &root);
	fd = ckpt_sys.open(c->store->sessions_fd, k->session, O_RDONLY | O_DIRECTORY, 0);
	if (is_of_another_node(k, fd)) {
		check_packs(k);
		if (fd >= 0)
			ckpt_sys.close(fd);
	} else if (fd < 0) {
		bad(k, "its files are gone: sessions/%s: %s", k->session, strerror(-fd));
		tell(k);
	} else {
		compare(k, &root, fd, ".");
		tell(k);
		check_dir(k, fd, &root);
		check_packs(k);
	}
	free(k->told);
	free(k->buf);
	free(k);
}

#include "tests/support/save.h"

#include "core/save/stage.h"
#include "core/save/version.h"
#include "core/step/store_folder.h"
#include "core/store/open.h"
#include "tests/support/hooks.h"
#include "tests/support/staged.h"

#include "backends/backends.h"
#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/trash.h"

#include <fcntl.h>
#include <stdio.h>

#define WRITERS_NS INT64_C(1000000)
#define BYTES_MAX 5000
#define TARGET_BYTES 4000
#define TIME_BASE 1600000000
#define UNFINISHED_STATES (1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_LEFT)
#define COMMITTED_STATES (1u << CKPT_STEP_COMMITTED)

const struct ckpt_save_step ckpt_save_steps[CKPT_SAVE_STEPS] = {
	{.name = "1000", .metadata = "{\"metrics\":{\"loss\":0.5}}", .metadata2 = "{\"metrics\":{\"loss\":0.25}}"},
	[CKPT_SAVE_MANY] = {.name = "1001", .temp = "1001.orbax-checkpoint-tmp-7", .files = 70},
	[CKPT_SAVE_LARGE] = {.name = "step_5", .folder = "run a", .links = 20, .metadata2 = "{\"temporary\":true}"},
	{.name = "1002", .leftover = true, .metadata = "{\"extras\":{}}"},
	{.name = "1003", .synced = true},
};

// --- What a step holds ------------------------------------------------------------------------------------------------

struct item {
	char path[64];
	enum ckpt_entry_type type;
	unsigned mode, nlink;
	size_t bytes;
	const char *same_as; // a hard link to this path
	const char *target;  // a symlink; NULL with links: a long one
	const char *xattr;   // the value of user.test.kind, or NULL
	unsigned seed;       // of bytes, time and long target; the same for hard links
};

static const struct item always[] = {
	{"config.json", CKPT_ENTRY_FILE, 0640, 1, 17, NULL, NULL, NULL, 1},
	{"empty", CKPT_ENTRY_FILE, 0600, 1, 0, NULL, NULL, NULL, 2},
	{"hollow", CKPT_ENTRY_DIR, 0755, 0, 0, NULL, NULL, NULL, 3},
	{"model.bin", CKPT_ENTRY_FILE, 0644, 1, BYTES_MAX, NULL, NULL, "weights", 4},
	{"shards", CKPT_ENTRY_DIR, 0750, 0, 0, NULL, NULL, "directory", 5},
	{"shards/0", CKPT_ENTRY_DIR, 0700, 0, 0, NULL, NULL, NULL, 6},
	{"shards/0/a.bin", CKPT_ENTRY_FILE, 0444, 2, 4096, NULL, NULL, NULL, 7},
	{"shards/0/b.bin", CKPT_ENTRY_FILE, 0444, 2, 4096, "shards/0/a.bin", NULL, NULL, 7},
	{"shards/latest", CKPT_ENTRY_SYMLINK, 0777, 1, 7, NULL, "0/a.bin", NULL, 8},
};

// The item with this number, parents before children; false past the last.
static bool item_of(unsigned step, size_t n, struct item *ret)
{
	const struct ckpt_save_step *s = &ckpt_save_steps[step];

	if (n < ARRAY_LEN(always)) {
		*ret = always[n];
		return true;
	}
	n -= ARRAY_LEN(always);
	*ret = (struct item){.type = CKPT_ENTRY_DIR, .mode = 0755, .seed = (unsigned)(20 + n)};
	if (s->files && n <= s->files) {
		strcpy(ret->path, "many");
		if (n) {
			sprintf(ret->path, "many/%03zu", n);
			ret->type = CKPT_ENTRY_FILE;
			ret->mode = 0600;
			ret->nlink = 1;
			ret->bytes = 9;
		}
		return true;
	}
	if (s->links && n <= s->links) {
		strcpy(ret->path, "links");
		if (n) {
			sprintf(ret->path, "links/%03zu", n);
			ret->type = CKPT_ENTRY_SYMLINK;
			ret->mode = 0777;
			ret->nlink = 1;
			ret->bytes = TARGET_BYTES;
		}
		return true;
	}
	return false;
}

static void content_of(unsigned step, const struct item *item, char *ret_data)
{
	for (size_t i = 0; i < item->bytes; i++)
		ret_data[i] = (char)('!' + (i / 5 + item->seed * 11 + step * 7) % 90);
}

static const char *target_of(const struct item *item, char *buf)
{
	if (item->target)
		return item->target;
	memset(buf, 'a' + (int)(item->seed % 26), TARGET_BYTES);
	buf[TARGET_BYTES] = '\0';
	return buf;
}

static struct timespec time_of(unsigned step, const struct item *item)
{
	return (struct timespec){TIME_BASE + step * 1000 + item->seed, 123456789};
}

// --- Writing ----------------------------------------------------------------------------------------------------------

static void mark(int fd, unsigned step, const struct item *item)
{
	struct timespec times[2] = {time_of(step, item), time_of(step, item)};

	if (item->xattr)
		ck_ok(ckpt_sys.fsetxattr(fd, "user.test.kind", item->xattr, strlen(item->xattr), 0));
	ck_assert_int_eq(fchmod(fd, item->mode), 0);
	ck_assert_int_eq(futimens(fd, times), 0);
}

// As the mount does at a client's fsync: the change time is that of before.
static void sync_and_tell(struct ckpt_step *step, int fd)
{
	int64_t began = ckpt_sys.now_ns();
	struct statx stx;

	ck_assert_int_eq(statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx), 0);
	ck_ok(ckpt_sys.fsync(fd));
	ckpt_stage_synced(step, ckpt_store_ino(&stx),
			  stx.stx_ctime.tv_sec * INT64_C(1000000000) + stx.stx_ctime.tv_nsec, began, 0);
}

static void write_file(struct ckpt_step *step, unsigned i, const struct item *item)
{
	CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, item->path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	char data[BYTES_MAX];

	ck_ok(fd);
	content_of(i, item, data);
	if (item->bytes)
		ck_ok(ckpt_sys.pwrite(fd, data, item->bytes, 0));
	mark(fd, i, item);
	if (ckpt_save_steps[i].synced)
		sync_and_tell(step, fd);
}

static void write_item(struct ckpt_step *step, unsigned i, const struct item *item)
{
	char target[TARGET_BYTES + 1];

	if (item->type == CKPT_ENTRY_DIR)
		ck_ok(ckpt_sys.mkdir(step->dirfd, item->path, 0700));
	else if (item->type == CKPT_ENTRY_SYMLINK)
		ck_ok(ckpt_sys.symlink(target_of(item, target), step->dirfd, item->path));
	else if (item->same_as)
		ck_ok(ckpt_sys.link(step->dirfd, item->same_as, step->dirfd, item->path));
	else
		write_file(step, i, item);
}

static void mark_path(struct ckpt_step *step, unsigned i, const struct item *item)
{
	struct timespec times[2] = {time_of(i, item), time_of(i, item)};

	if (item->type == CKPT_ENTRY_DIR) {
		CLEANUP_FD int fd = ckpt_sys.open(step->dirfd, item->path, O_RDONLY | O_DIRECTORY, 0);

		ck_ok(fd);
		mark(fd, i, item);
	} else if (item->type == CKPT_ENTRY_SYMLINK) {
		ck_assert_int_eq(utimensat(step->dirfd, item->path, times, AT_SYMLINK_NOFOLLOW), 0);
	}
}

static void hold(struct ckpt_step *step, struct ckpt_save_holder *holder)
{
	holder->fd = ckpt_sys.open(step->dirfd, "model.bin", O_RDWR, 0);
	ck_ok(holder->fd);
	ckpt_staged_writer(step, &holder->writer, holder->fd);
	ckpt_staged_close_once(&holder->writer);
}

int ckpt_save_begin(struct ckpt_store *s, unsigned i, struct ckpt_step **ret_step)
{
	const struct ckpt_save_step *shape = &ckpt_save_steps[i];
	char id[CKPT_FOLDER_ID_LEN + 1] = "";

	if (shape->folder) {
		CLEANUP_FD int fd = -1;
		int rc = ckpt_sys.mkdir(s->tree_fd, shape->folder, 0755);

		if (rc && rc != -EEXIST)
			return rc;
		fd = ckpt_sys.open(s->tree_fd, shape->folder, O_RDONLY | O_DIRECTORY, 0);
		rc = fd < 0 ? fd : ckpt_store_folder_id(s, fd, true, id);
		if (rc)
			return rc;
	}
	return ckpt_stage_begin(s, id, shape->temp ? shape->temp : shape->name, 0751, getuid(), getgid(), getpid(),
				ret_step);
}

void ckpt_save_write(struct ckpt_step *step, unsigned i, struct ckpt_save_holder *holder)
{
	struct item item;
	size_t n;

	for (n = 0; item_of(i, n, &item); n++)
		write_item(step, i, &item);
	while (n-- > 0 && item_of(i, n, &item))
		mark_path(step, i, &item);
	if (ckpt_save_steps[i].leftover)
		hold(step, holder);
}

int ckpt_save_commit(struct ckpt_step *step, unsigned i)
{
	const struct ckpt_save_step *shape = &ckpt_save_steps[i];
	struct ckpt_commit how = {
		.event = shape->temp ? "rename" : "marker",
		.profile = shape->temp ? "orbax" : "generic",
		.metadata = shape->metadata,
		.writers_ns = WRITERS_NS,
	};

	if (shape->temp) {
		how.folder_id = "";
		how.name = shape->name;
	}
	return ckpt_commit(step, &how);
}

int ckpt_save_metadata(struct ckpt_step *step, unsigned i)
{
	return ckpt_save_steps[i].metadata2 ? ckpt_commit_metadata(step, ckpt_save_steps[i].metadata2) : 0;
}

// What a fork writes late must not be seen by anybody.
void ckpt_save_release(struct ckpt_save_holder *holder)
{
	if (!holder->fd)
		return;
	ckpt_sys.pwrite(holder->fd, "garbage", 7, 100);
	ckpt_stage_writer_remove(&holder->writer);
	ckpt_sys.close(holder->fd);
	holder->fd = 0;
}

struct ckpt_step *ckpt_save_one(struct ckpt_store *s, unsigned i)
{
	struct ckpt_save_holder holder = {0};
	struct ckpt_step *step;

	ck_ok(ckpt_save_begin(s, i, &step));
	ckpt_save_write(step, i, &holder);
	ck_ok(ckpt_save_commit(step, i));
	ckpt_save_release(&holder);
	return step;
}

// --- A whole run ------------------------------------------------------------------------------------------------------

void ckpt_save_run(const char *dir, struct ckpt_save_log *log, uint64_t (*clock)(void *arg), void *arg)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_save_holder holder = {0};
		struct ckpt_step *step;

		ck_ok(ckpt_save_begin(s, i, &step));
		if (!i) { // the client begins with an fsync of the directory
			ck_ok(ckpt_stage_make_durable(step, true));
			log->at[i][CKPT_SAVE_BEGUN] = clock(arg) + 1;
		}
		ckpt_save_write(step, i, &holder);
		if (ckpt_save_steps[i].synced) {
			ck_ok(ckpt_stage_make_durable(step, true));
			log->at[i][CKPT_SAVE_BEGUN] = clock(arg) + 1;
		}
		log->at[i][CKPT_SAVE_COMMITS] = clock(arg) + 1;
		ck_ok(ckpt_save_commit(step, i));
		log->at[i][CKPT_SAVE_COMMITTED] = clock(arg) + 1;
		ckpt_save_release(&holder);
		if (ckpt_save_steps[i].metadata2) {
			log->at[i][CKPT_SAVE_METADATA] = clock(arg) + 1;
			ck_ok(ckpt_save_metadata(step, i));
			log->at[i][CKPT_SAVE_METADATA_OK] = clock(arg) + 1;
		}
		ckpt_step_unref(step);
	}
	ckpt_store_close(s);
}

static bool happened(const struct ckpt_save_log *log, unsigned i, enum ckpt_save_event event, uint64_t point)
{
	return log->at[i][event] && log->at[i][event] - 1 <= point;
}

// --- Finding ----------------------------------------------------------------------------------------------------------

struct ckpt_step *ckpt_save_find(struct ckpt_store *s, unsigned i)
{
	const struct ckpt_save_step *shape = &ckpt_save_steps[i];
	struct ckpt_step **steps, *found = NULL;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, COMMITTED_STATES, &steps, &count));
	for (size_t n = 0; n < count; n++)
		if (!strcmp(steps[n]->name, shape->name) && !steps[n]->folder_id[0] == !shape->folder)
			found = ckpt_step_ref(steps[n]);
	ckpt_step_list_free(steps, count);
	return found;
}

// Staged again, or left over: by its name, with its files to be read.
static struct ckpt_step *find_unfinished(struct ckpt_store *s, unsigned i)
{
	const struct ckpt_save_step *shape = &ckpt_save_steps[i];
	struct ckpt_step **steps, *found = NULL;
	struct ckpt_stage_usage usage;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, UNFINISHED_STATES, &steps, &count));
	for (size_t n = 0; n < count && !found; n++) {
		ck_ok(ckpt_stage_usage(steps[n], &usage));
		if (!strcmp(steps[n]->name, shape->temp ? shape->temp : shape->name))
			found = ckpt_step_ref(steps[n]);
	}
	ckpt_step_list_free(steps, count);
	return found;
}

size_t ckpt_save_count(struct ckpt_store *s, enum ckpt_step_state state)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, 1u << state, &steps, &count));
	ckpt_step_list_free(steps, count);
	return count;
}

size_t ckpt_save_unfinished_count(struct ckpt_store *s)
{
	return ckpt_save_count(s, CKPT_STEP_STAGED) + ckpt_save_count(s, CKPT_STEP_LEFT);
}

static struct ckpt_step *only(struct ckpt_store *s, unsigned states)
{
	struct ckpt_step **steps, *step;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, states, &steps, &count));
	ck_assert_uint_eq(count, 1);
	step = ckpt_step_ref(steps[0]);
	ckpt_step_list_free(steps, count);
	return step;
}

struct ckpt_step *ckpt_save_left(struct ckpt_store *s)
{
	return only(s, 1u << CKPT_STEP_LEFT);
}

struct ckpt_step *ckpt_save_unfinished(struct ckpt_store *s)
{
	return only(s, UNFINISHED_STATES);
}

struct ckpt_step *ckpt_save_set_aside(struct ckpt_store *s)
{
	struct ckpt_step *step = only(s, 1u << CKPT_STEP_STAGED);

	ck_ok(ckpt_stage_set_aside(step));
	return step;
}

// --- I1 ---------------------------------------------------------------------------------------------------------------

static void check_bytes(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, unsigned i,
			const struct item *item)
{
	char expected[BYTES_MAX + 1], there[BYTES_MAX + 1];

	content_of(i, item, expected);
	ck_assert_int_eq(ckpt_staged_read(step, m, index, there, sizeof(there)), (ssize_t)item->bytes);
	ck_assert_msg(!memcmp(expected, there, item->bytes), "%s/%s has other bytes", step->name, item->path);
}

static void check_xattrs(struct ckpt_manifest *m, const struct ckpt_entry *e, const struct item *item)
{
	const char *name;
	const void *value;
	size_t len;

	ck_assert_msg(ckpt_manifest_xattr(m, e, 0, &name, &value, &len) == !!item->xattr, "attributes of %s",
		      item->path);
	if (!item->xattr)
		return;
	ck_assert_str_eq(name, "user.test.kind");
	ck_assert_uint_eq(len, strlen(item->xattr));
	ck_assert_mem_eq(value, item->xattr, len);
	ck_assert(!ckpt_manifest_xattr(m, e, 1, &name, &value, &len));
}

static void check_item(struct ckpt_step *step, struct ckpt_manifest *m, unsigned i, const struct item *item)
{
	struct timespec mtime = time_of(i, item);
	char target[TARGET_BYTES + 1];
	struct ckpt_entry e;
	uint32_t index;

	ck_assert_msg(!ckpt_manifest_lookup(m, item->path, &index), "%s/%s is missing", step->name, item->path);
	ckpt_manifest_entry(m, index, &e);
	ck_assert_int_eq(e.type, item->type);
	ck_assert_uint_eq(e.mode, item->mode);
	ck_assert_uint_eq(e.uid, getuid());
	ck_assert_uint_eq(e.gid, getgid());
	ck_assert_int_eq(e.mtime_s, mtime.tv_sec);
	ck_assert_uint_eq(e.mtime_ns, (uint32_t)mtime.tv_nsec);
	ck_assert_uint_ne(e.ino, 0);
	if (item->type != CKPT_ENTRY_DIR) {
		ck_assert_uint_eq(e.bytes, item->bytes);
		ck_assert_uint_eq(e.nlink, item->nlink);
	}
	if (item->type == CKPT_ENTRY_SYMLINK)
		ck_assert_str_eq(e.target, target_of(item, target));
	if (item->same_as) {
		uint64_t ino = e.ino;

		ck_ok(ckpt_manifest_lookup(m, item->same_as, &index));
		ckpt_manifest_entry(m, index, &e);
		ck_assert_uint_eq(e.ino, ino);
	}
	check_xattrs(m, &e, item);
	if (item->type == CKPT_ENTRY_FILE)
		check_bytes(step, m, index, i, item);
}

static void check_record(struct ckpt_step *step, unsigned i)
{
	const struct ckpt_save_step *shape = &ckpt_save_steps[i];
	uint32_t version = step->version->is.version;
	const char *metadata = version == 2 ? shape->metadata2 : shape->metadata;
	struct ckpt_record r;

	ck_assert_uint_ge(version, 1);
	ck_assert_uint_le(version, shape->metadata2 ? 2 : 1);
	ck_ok(ckpt_step_record(step, version, &r));
	ck_assert(!r.metadata == !metadata);
	if (metadata)
		ck_assert_str_eq(r.metadata, metadata);
	ck_assert_str_eq(r.summary.event, shape->temp ? "rename" : "marker");
	ck_assert_int_eq(r.summary.temporary, metadata && strstr(metadata, "\"temporary\":true"));
	ckpt_record_done(&r);
}

void ckpt_save_check_files(struct ckpt_step *step, unsigned i)
{
	struct ckpt_manifest *m;
	struct item item;
	uint64_t files = 0, bytes = 0, total_files, total_bytes;
	size_t n;

	ck_ok(ckpt_step_manifest(step, &m));
	for (n = 0; item_of(i, n, &item); n++) {
		check_item(step, m, i, &item);
		if (item.type == CKPT_ENTRY_FILE && !item.same_as) {
			files++;
			bytes += item.bytes;
		}
	}
	ck_assert_uint_eq(ckpt_manifest_count(m), n + 1);
	ckpt_manifest_totals(m, &total_files, &total_bytes);
	ck_assert_uint_eq(total_bytes, bytes);
	ck_assert_uint_eq(step->version->is.bytes, bytes);
	ck_assert_uint_eq(step->version->is.files, total_files);
	ck_assert_uint_eq(total_files, files);
	ck_assert_uint_eq(step->version->is.dir_mode, 0751);
	ckpt_manifest_unref(m);
}

void ckpt_save_check_step(struct ckpt_step *step, unsigned i)
{
	ckpt_save_check_files(step, i);
	check_record(step, i);
}

// --- Listings and logs ------------------------------------------------------------------------------------------------

char *ckpt_save_listing(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	char *text = NULL, hex[65];
	size_t count, len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(out);
	ck_ok(ckpt_step_list(s, NULL, COMMITTED_STATES, &steps, &count));
	for (size_t n = 0; n < count; n++) {
		const struct ckpt_summary *sum = &steps[n]->version->is;

		ckpt_hex(sum->manifest_sha256, 32, hex);
		fprintf(out,
			"%s/%s %s v%u %s %llu files %llu bytes, number %lld, sequence %llu, %lld %lld, %o %u %u %u "
			"%llu %lld %d\n",
			sum->folder_id, sum->name, sum->session, sum->version, hex, (unsigned long long)sum->files,
			(unsigned long long)sum->bytes, (long long)sum->number, (unsigned long long)sum->sequence,
			(long long)sum->committed_ns, (long long)sum->first_committed_ns, sum->dir_mode, sum->dir_uid,
			sum->dir_gid, sum->dir_nlink, (unsigned long long)sum->dir_ino, (long long)sum->dir_mtime_ns,
			sum->temporary);
	}
	ckpt_step_list_free(steps, count);
	fclose(out);
	return text;
}

char *ckpt_save_listing_at(const char *dir)
{
	struct ckpt_store *s;
	char *text;

	ck_ok(ckpt_store_open(dir, CKPT_STORE_READ, NULL, &s));
	text = ckpt_save_listing(s);
	ckpt_store_close(s);
	return text;
}

unsigned ckpt_save_errors(struct ckpt_store *s, const char *text)
{
	CLEANUP_FREE char *all = NULL;
	unsigned count = 0;

	ck_ok(ckpt_errlog_text(s->errlog, &all));
	for (char *save = NULL, *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		count += strstr(line, text) != NULL;
	return count;
}

static int count_reopened(void *arg, struct ckpt_step *step)
{
	*(int *)arg += __atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE);
	return 0;
}

// Those who watch a reopened step wait for its end, and make no call meanwhile.
static int watchers_locked(struct ckpt_store *s)
{
	int count = 0;

	(void)ckpt_step_each_locked(s, NULL, 1u << CKPT_STEP_STAGED, count_reopened, &count);
	return count;
}

void ckpt_save_settle(struct ckpt_store *s)
{
	LOCK_SCOPE(&s->lock);

	while (s->threads.running > watchers_locked(s))
		ckpt_lock_wait(&s->threads.ended, &s->lock);
}

void ckpt_save_settle_all(struct ckpt_store *s)
{
	ckpt_save_settle(s);
	ckpt_trash_drain(*ckpt_trash_of(s));
}

void ckpt_save_fault(struct ckpt_store *s, struct ckpt_fault *fault)
{
	ckpt_save_settle(s);
	if (*ckpt_trash_of(s)) // a store that is only read has none
		ckpt_trash_drain(*ckpt_trash_of(s));
	ck_ok(ckpt_fault_new(s->objects, fault, &s->objects));
}

uint64_t ckpt_save_dirty_bytes;

static uint64_t seeming_dirty_bytes(void)
{
	return ckpt_save_dirty_bytes;
}

void ckpt_save_init(char *ret_dir)
{
	ckpt_hook_set(dirty_bytes, seeming_dirty_bytes);
	ckpt_temp_dir(ret_dir);
	ck_ok(ckpt_store_init(ret_dir));
}

struct ckpt_store *ckpt_save_open(const char *dir)
{
	struct ckpt_store *s;

	ck_ok(ckpt_store_open(dir, CKPT_STORE_WRITE, NULL, &s));
	return s;
}

// --- The invariants ---------------------------------------------------------------------------------------------------

// A step in a folder is reached through the folder's id.
static void check_folder(struct ckpt_store *s, struct ckpt_step *step, unsigned i)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->tree_fd, ckpt_save_steps[i].folder, O_RDONLY | O_DIRECTORY, 0);
	char id[CKPT_FOLDER_ID_LEN + 1];

	ck_ok(fd);
	ck_ok(ckpt_store_folder_id(s, fd, false, id));
	ck_assert_str_eq(id, step->folder_id);
}

static size_t check_listed(struct ckpt_store *s, const struct ckpt_save_log *log, uint64_t point)
{
	size_t listed = 0;

	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		const char *name = ckpt_save_steps[i].name;
		struct ckpt_step *step = ckpt_save_find(s, i), *left;

		if (!step) {
			ck_assert_msg(!happened(log, i, CKPT_SAVE_COMMITTED, point),
				      "I2: %s was acknowledged, and is gone", name);
			left = find_unfinished(s, i);
			ck_assert_msg(left || !happened(log, i, CKPT_SAVE_BEGUN, point), "the session of %s is gone",
				      name);
			ck_assert_msg(!left || ckpt_save_steps[i].folder || ckpt_stage_is_interrupted(left),
				      "%s has not its name", name);
			ckpt_step_unref(left);
			continue;
		}
		listed++;
		ck_assert_msg(happened(log, i, CKPT_SAVE_COMMITS, point), "I3: %s was not committed", name);
		ckpt_save_check_step(step, i);
		if (happened(log, i, CKPT_SAVE_METADATA_OK, point))
			ck_assert_msg(step->version->is.version == 2,
				      "I2: new metadata of %s was acknowledged, and is gone", name);
		if (!happened(log, i, CKPT_SAVE_METADATA, point))
			ck_assert_uint_eq(step->version->is.version, 1);
		if (ckpt_save_steps[i].folder)
			check_folder(s, step, i);
		ckpt_step_unref(step);
	}
	return listed;
}

static void index_remove(const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s/index", PATH_MAX - 16, dir);
	ckpt_temp_empty(path, true);
}

static void index_damage(const char *dir)
{
	char path[PATH_MAX], noise[3 * 4096];
	CLEANUP_FD int fd = -1;

	snprintf(path, sizeof(path), "%.*s/index/data.mdb", PATH_MAX - 32, dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	memset(noise, 0x5a, sizeof(noise));
	ck_assert_int_eq(pwrite(fd, noise, sizeof(noise), 2048), (ssize_t)sizeof(noise));
}

static void assert_same_listing(const char *dir, const char *listing, const char *when)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	CLEANUP_FREE char *there = ckpt_save_listing(s);

	ck_assert_msg(!strcmp(there, listing), "the listing differs %s:\n%sbefore:\n%s", when, there, listing);
	ckpt_store_close(s);
}

static void assert_kept(struct ckpt_store *s, char *listing)
{
	CLEANUP_FREE char *there = ckpt_save_listing(s);

	for (char *save = NULL, *line = strtok_r(listing, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		ck_assert_msg(strstr(there, line), "I4: another save changed\n%s\nto one of\n%s", line, there);
}

// The first step that is not there is saved again under its name; what is there stays as it is.
static void save_again(const char *dir, char *listing)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	for (unsigned i = 0; i < CKPT_SAVE_STEPS; i++) {
		struct ckpt_step *step = ckpt_save_find(s, i);

		if (step) {
			ckpt_step_unref(step);
			continue;
		}
		step = find_unfinished(s, i);
		if (step) // as who removes what is there, and saves anew
			ck_ok(ckpt_stage_abort(step, false));
		ckpt_step_unref(step);
		step = ckpt_save_one(s, i);
		ckpt_save_check_step(step, i);
		ckpt_step_unref(step);
		break;
	}
	assert_kept(s, listing);
	ckpt_store_close(s);
}

void ckpt_save_check(const char *dir, const struct ckpt_save_log *log, uint64_t point, bool thorough)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	CLEANUP_FREE char *listing = ckpt_save_listing(s);
	size_t count = ckpt_save_count(s, CKPT_STEP_COMMITTED);

	ck_assert_msg(check_listed(s, log, point) == count, "I3: there are steps that nobody saved:\n%s", listing);
	ckpt_store_close(s);
	if (!thorough)
		return;
	assert_same_listing(dir, listing, "at the second open (I4)");
	index_remove(dir);
	assert_same_listing(dir, listing, "without the index (I9)");
	index_damage(dir);
	assert_same_listing(dir, listing, "with a damaged index (I9)");
	save_again(dir, listing);
}

// --- Behind our back ----------------------------------------------------------------------------------------------------

static int take_span(void *arg, const struct ckpt_state_step *step)
{
	*(struct ckpt_span *)arg = ckpt_state_version(step, step->is.version)->record;
	return 0;
}

void ckpt_save_spoil_record(struct ckpt_step *step, size_t at, uint8_t with)
{
	uint8_t record[CKPT_RECORD_BYTES_MAX];
	char key[CKPT_LOG_KEY_MAX];
	struct ckpt_span span;
	int fd;

	ck_ok(ckpt_journal_step(step->store->journal, step->session, take_span, &span));
	ckpt_log_key(span.seq, key);
	fd = openat(step->store->dirfd, key, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, record, span.len, span.offset), (int)span.len);
	record[at] ^= with;
	if (at < 40)
		ckpt_sha256(record, span.len - CKPT_SHA256_LEN, record + span.len - CKPT_SHA256_LEN);
	ck_assert_int_eq(pwrite(fd, record, span.len, span.offset), (int)span.len);
	close(fd);
}

void ckpt_save_plant(struct ckpt_store *s, const char *name)
{
	struct ckpt_record r = {.summary = {.event = "marker", .profile = "generic", .number = -1, .version = 1}};
	struct ckpt_act act = {.kind = CKPT_ACT_SAVE};
	CLEANUP_FREE void *data = NULL;
	bool unknown;

	memcpy(r.store_id, s->id, sizeof(r.store_id));
	snprintf(r.summary.name, sizeof(r.summary.name), "%s", name);
	ck_ok(ckpt_uuid_make(r.summary.session));
	ck_ok(ckpt_record_encode(&r, &data, &act.record_len));
	act.record = data;
	ck_ok(ckpt_journal_append(s->journal, &act, false, &unknown));
}

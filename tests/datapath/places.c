// Where the file is. A round begins with a file of a place, does some hundred operations, and ends as the place has it: by
// a commit, mostly. What was committed is compared then, after later rounds, and after each remount.
#include "tests/datapath/exercise.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DISK_MB 768
#define OPTIONS "commit_quiet=10m,trash=1s" // what is deleted must leave the small disk soon
#define OPS_PER_REMOUNT 1500
#define FILES_PER_STEP 6 // that are added to one
#define FIRST_CHANGE 12  // one in so many operations is the first change

static size_t folder_len(const char *path)
{
	return (size_t)(strrchr(path, '/') - path);
}

static bool is_same_folder(const char *a, const char *b)
{
	return folder_len(a) == folder_len(b) && !strncmp(a, b, folder_len(a));
}

// --- What must stay ---------------------------------------------------------------------------------------------------

static void record_done(struct record *r)
{
	if (r->map)
		munmap(r->map, r->size);
	if (r->fd >= 0)
		close(r->fd);
	free(r->bytes);
	*r = (struct record){.fd = -1};
}

static void record_set(struct record *r, const struct subject *s)
{
	*r = (struct record){.size = s->size, .fd = -1, .bytes = malloc(s->size + 1)};
	ck_assert_ptr_nonnull(r->bytes);
	memcpy(r->path, s->path, sizeof(r->path));
	memcpy(r->bytes, s->shadow, s->size);
}

static void remove_folder(struct exercise *x, const char *of)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s", (int)folder_len(of), of);
	note(x, "rm -r %s", path + strlen(x->top));
	ckpt_temp_empty(path, 1);
	if (!access(path, F_OK) || errno != ENOENT)
		violated(x, "%s is there after rm -r", path);
}

// The oldest goes, and its step with its last file.
static void drop_oldest(struct exercise *x)
{
	struct record *r = x->records;
	bool last = !is_same_folder(r->path, x->file.path) && !(*x->source && is_same_folder(r->path, x->source));

	for (size_t i = 1; i < RECORDS; i++)
		last = last && !(x->records[i].bytes && is_same_folder(x->records[i].path, r->path));
	if (last)
		remove_folder(x, r->path);
	record_done(r);
	memmove(r, r + 1, (RECORDS - 1) * sizeof(*r));
	x->records[RECORDS - 1] = (struct record){.fd = -1};
}

static void remember(struct exercise *x, const struct subject *s)
{
	size_t i = 0;

	while (i < RECORDS && x->records[i].bytes && strcmp(x->records[i].path, s->path))
		i++;
	if (i == RECORDS) {
		drop_oldest(x);
		i--;
	}
	record_done(&x->records[i]);
	record_set(&x->records[i], s);
}

// Under this name there is nothing any more.
static void forget(struct exercise *x, const char *path)
{
	for (size_t i = 0; i < RECORDS; i++)
		if (x->records[i].bytes && !strcmp(x->records[i].path, path)) {
			record_done(&x->records[i]);
			memmove(&x->records[i], &x->records[i + 1], (RECORDS - 1 - i) * sizeof(*x->records));
			x->records[RECORDS - 1] = (struct record){.fd = -1};
		}
}

static void check_records(struct exercise *x, const char *when)
{
	for (size_t i = 0; i < RECORDS; i++)
		if (x->records[i].bytes)
			bytes_check(x, x->records[i].path, x->records[i].bytes, x->records[i].size, when);
}

// Who has the file open now reads these bytes for good.
static void keep(struct exercise *x, const struct subject *s)
{
	struct record *r = &x->kept;

	if (x->plain)
		return;
	record_done(r);
	record_set(r, s);
	r->fd = open(s->path, O_RDONLY | O_CLOEXEC);
	must(x, r->fd >= 0, "open by a reader that stays");
	if (r->size) {
		r->map = mmap(NULL, r->size, PROT_READ, MAP_SHARED, r->fd, 0);
		must(x, r->map != MAP_FAILED, "mmap by a reader that stays");
		must_equal(x, r->bytes, r->map, 0, pick(x, r->size), "the mapping of a reader that stays, at first");
	}
}

static void check_kept(struct exercise *x)
{
	struct record *r = &x->kept;
	struct stat st;

	if (!r->bytes)
		return;
	// As often before the calls that make the kernel ask for the size anew.
	if (r->size && pick(x, 2))
		must_equal(x, r->bytes, r->map, 0, r->size, "the mapping of a reader that stayed, at once");
	must(x, !fstat(r->fd, &st), "fstat by a reader that stayed");
	if ((size_t)st.st_size != r->size)
		violated(x, "a reader that stayed sees %lld bytes, not %zu", (long long)st.st_size, r->size);
	must(x, pread(r->fd, x->got, FILE_BYTES_MAX, 0) == (ssize_t)r->size, "read by a reader that stayed");
	must_equal(x, r->bytes, x->got, 0, r->size, "a reader that stayed");
	if (r->size)
		must_equal(x, r->bytes, r->map, 0, r->size, "the mapping of a reader that stayed");
	record_done(r);
}

// --- Steps ------------------------------------------------------------------------------------------------------------

static void commit(struct exercise *x, const char *of)
{
	char path[PATH_MAX];
	int fd;

	if (x->plain)
		return;
	note(x, "commit");
	ck_assert_int_lt(snprintf(path, sizeof(path), "%.*s/.finalize", (int)folder_len(of), of), PATH_MAX);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	must(x, fd >= 0, "open of the marker");
	must(x, !close(fd), "close of the marker");
	x->commits++;
}

static void name_files(struct exercise *x, const char *folder, unsigned number)
{
	struct subject *all[] = {&x->file, &x->pair};
	static const char *const names[] = {"data", "pair"};

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		struct subject *s = all[i];

		subject_resize(s, 0);
		s->changed = false;
		s->mtime = (struct timespec){0};
		ck_assert_int_lt(snprintf(s->path, PATH_MAX, "%s/%s%u.raw", folder, names[i], number), PATH_MAX);
		ck_assert_int_lt(snprintf(s->other, PATH_MAX, "%s/renamed-%s%u.raw", folder, names[i], number),
				 PATH_MAX);
	}
}

// A new folder with no files yet: a staged step, as its name is a number; or a plain one.
static void make_folder(struct exercise *x, bool staged)
{
	char folder[PATH_MAX], letters[16];
	unsigned number = ++x->steps;
	size_t i = 0;

	for (unsigned left = number; left; left /= 16)
		letters[i++] = (char)('a' + left % 16);
	letters[i] = '\0';
	if (staged)
		ck_assert_int_lt(snprintf(folder, PATH_MAX, "%s/%u", x->top, number), PATH_MAX);
	else
		ck_assert_int_lt(snprintf(folder, PATH_MAX, "%s/plain-%s", x->top, letters), PATH_MAX);
	note(x, "mkdir %s", folder + strlen(x->top));
	must(x, !mkdir(folder, 0755), "mkdir");
	name_files(x, folder, 0);
}

static void make_committed(struct exercise *x)
{
	struct subject *s = &x->file;

	make_folder(x, true);
	subject_open(x, s, O_RDWR | O_CREAT | O_EXCL);
	fill(x, s, 0, pick(x, x->bytes_max));
	must(x, pwrite(s->fd, s->shadow, s->size, 0) == (ssize_t)s->size, "pwrite");
	subject_close(x, s);
	commit(x, s->path);
	remember(x, s);
}

// On the plain filesystem a link is no file of its own, so there it is a copy.
static void link_source(struct exercise *x)
{
	struct subject *s = &x->file;
	struct record *r = x->records;

	while (r < x->records + RECORDS - 1 && (!r->bytes || strcmp(r->path, x->source)))
		r++;
	memcpy(s->shadow, r->bytes, r->size);
	s->size = r->size;
	note(x, "link %s", x->source + strlen(x->top));
	if (!x->plain) {
		must(x, !link(x->source, s->path), "link");
		return;
	}
	subject_open(x, s, O_RDWR | O_CREAT | O_EXCL);
	must(x, pwrite(s->fd, s->shadow, s->size, 0) == (ssize_t)s->size, "pwrite");
	subject_close(x, s);
}

static void open_unchanged(struct exercise *x)
{
	x->read_only = true;
	subject_open(x, &x->file, O_RDONLY);
	if (pick(x, 2))
		keep(x, &x->file);
}

// The first change of a file that is shared or committed, in each of the ways in which it can come.
static void change_first(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t way = pick(x, 4), size;

	subject_close(x, s);
	if (way == 0) {
		size = pick(x, s->size + PAGE);
		note(x, "first change: truncate to %zu", size);
		must(x, !truncate(s->path, (off_t)size), "truncate");
		subject_resize(s, size);
	} else if (way == 1) {
		note(x, "first change: O_TRUNC");
		subject_resize(s, 0);
		subject_open(x, s, O_WRONLY | O_TRUNC);
		subject_close(x, s); // in a plain folder it is new content, and seen when it is closed
	} else {
		note(x, "first change: open for writing");
	}
	subject_open(x, s, O_RDWR);
	x->read_only = false;
	if (way == 2) {
		size = pick(x, s->size);
		fill(x, s, size, 1);
		must(x, pwrite(s->fd, s->shadow + size, 1, (off_t)size) == 1, "pwrite of one byte");
	}
	subject_check(x, s, "after the first change");
}

// --- Rounds -----------------------------------------------------------------------------------------------------------

static void begin_amend(struct exercise *x)
{
	char folder[PATH_MAX];

	if ((x->round - 1) % FILES_PER_STEP == 0)
		make_committed(x);
	snprintf(folder, sizeof(folder), "%.*s", (int)folder_len(x->file.path), x->file.path);
	name_files(x, folder, x->round);
	subject_open(x, &x->file, O_RDWR | O_CREAT | O_EXCL);
}

void round_begin(struct exercise *x)
{
	static const size_t sizes[] = {16, 16, 64, 64, 64, 128, 256, FILE_BYTES_MAX / PAGE};

	x->round++;
	x->read_only = x->published = false;
	x->bytes_max = sizes[pick(x, ARRAY_LEN(sizes))] * PAGE;
	switch (x->place) {
	case PLACE_STAGED:
		make_folder(x, true);
		subject_open(x, &x->file, O_RDWR | O_CREAT | O_EXCL);
		break;
	case PLACE_PLAIN:
		x->bytes_max = MAX(x->bytes_max, (MAX(x->file.size, x->pair.size) + PAGE - 1) / PAGE * PAGE);
		if (!*x->file.path)
			make_folder(x, false);
		subject_open(x, &x->file, O_RDWR | O_CREAT);
		break;
	case PLACE_LINK:
		if (!*x->source) {
			make_committed(x);
			memcpy(x->source, x->file.path, sizeof(x->source));
		}
		make_folder(x, pick(x, 2));
		link_source(x);
		x->bytes_max = MAX(x->bytes_max, (x->file.size + PAGE - 1) / PAGE * PAGE);
		open_unchanged(x);
		break;
	case PLACE_REOPENED:
		if (!*x->file.path)
			make_committed(x);
		x->bytes_max = MAX(x->bytes_max, (MAX(x->file.size, x->pair.size) + PAGE - 1) / PAGE * PAGE);
		open_unchanged(x);
		break;
	default:
		begin_amend(x);
	}
}

static void remount(struct exercise *x)
{
	bool forgets = pick(x, 2);

	note(x, "remount");
	if (x->plain)
		return;
	world_umount(&x->world);
	if (forgets)
		world_forget_pages(&x->world);
	world_mount(&x->world);
	x->remounts++;
}

// The pair is there from the first copy on.
static void check_files(struct exercise *x, const char *when)
{
	subject_check(x, &x->file, when);
	if (!access(x->pair.path, F_OK))
		subject_check(x, &x->pair, when);
}

static void remember_files(struct exercise *x)
{
	remember(x, &x->file);
	if (!access(x->pair.path, F_OK))
		remember(x, &x->pair);
}

// A step that stays for the next round, and so does its file, whatever its name is now.
static void end_reopened(struct exercise *x)
{
	commit(x, x->file.path);
	check_files(x, "committed again");
	forget(x, x->file.other);
	remember_files(x);
}

static void end_plain(struct exercise *x)
{
	if (pick(x, 3))
		return;
	commit(x, x->file.path);
	check_files(x, "a plain folder that became a step");
	remember_files(x);
	*x->file.path = '\0';
	subject_resize(&x->file, 0);
	subject_resize(&x->pair, 0);
}

static void end_link(struct exercise *x)
{
	const char *slash = strrchr(x->file.path, '/');
	bool staged = slash[-1] >= '0' && slash[-1] <= '9';

	check_records(x, "after a link was changed");
	if (!staged && pick(x, 2)) {
		remove_folder(x, x->file.path);
		return;
	}
	commit(x, x->file.path);
	check_files(x, "committed");
	remember_files(x);
	memcpy(x->source, x->file.path, sizeof(x->source));
}

void round_end(struct exercise *x)
{
	if (x->place == PLACE_REOPENED && x->read_only) // else there is nothing to commit
		change_first(x);
	note(x, "end of round");
	subject_close(x, &x->file);
	subject_close(x, &x->pair);
	check_files(x, "closed");
	check_kept(x);
	switch (x->place) {
	case PLACE_STAGED:
		keep(x, &x->file);
		commit(x, x->file.path);
		check_kept(x);
		check_files(x, "committed");
		remember_files(x);
		break;
	case PLACE_PLAIN:
		end_plain(x);
		break;
	case PLACE_LINK:
		end_link(x);
		break;
	case PLACE_REOPENED:
		end_reopened(x);
		break;
	default:
		remember_files(x);
	}
}

static void check_all(struct exercise *x, const char *when)
{
	check_records(x, when);
	if (x->place == PLACE_PLAIN && *x->file.path)
		check_files(x, when);
}

static size_t round_ops(struct exercise *x)
{
	static const size_t most[PLACES] = {500, 400, 120, 250, 250};

	return 20 + pick(x, most[x->place]);
}

static void run_rounds(struct exercise *x)
{
	while (x->op < x->ops) {
		size_t count = round_ops(x);

		round_begin(x);
		for (size_t i = 0; i < count && x->op < x->ops; i++) {
			x->op++;
			if (x->read_only && !pick(x, FIRST_CHANGE))
				change_first(x);
			else
				operate(x);
		}
		round_end(x);
		if (pick(x, OPS_PER_REMOUNT) < count) {
			remount(x);
			check_all(x, "after a remount");
		}
	}
	remount(x);
	check_all(x, "in the end");
}

// --- The run ----------------------------------------------------------------------------------------------------------

// What the disk cannot do a mount on it cannot either.
static void look_at_disk(struct exercise *x)
{
	char path[PATH_MAX];
	CLEANUP_FD int fd = -1;

	ck_assert_int_lt(snprintf(path, sizeof(path), "%s/probe", x->world.disk), PATH_MAX);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	x->punches = !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE);
	x->zeroes = !fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, PAGE);
	ck_assert_int_eq(unlink(path), 0);
}

static void tell_end(struct exercise *x)
{
	struct timespec now;
	double seconds;

	clock_gettime(CLOCK_MONOTONIC, &now);
	seconds = (double)(now.tv_sec - x->started.tv_sec) + (double)(now.tv_nsec - x->started.tv_nsec) / 1e9;
	printf("datapath: %s %s, seed %llu: %lu operations in %.1f s (%.0f/s), %llu MiB, %u rounds, %u commits, %u "
	       "remounts\n",
	       mode_name(x), place_name(x->place), (unsigned long long)x->seed, x->op, seconds, (double)x->op / seconds,
	       (unsigned long long)x->moved >> 20, x->round, x->commits, x->remounts);
	fflush(stdout);
}

void exercise_run(struct exercise *x, enum place place, int mode, uint64_t seed, unsigned long ops)
{
	*x = (struct exercise){.seed = seed, .random = seed * 1000 + place, .ops = ops, .place = place};
	x->plain = mode > WORLD_URING;
	x->kept.fd = -1;
	for (size_t i = 0; i < RECORDS; i++)
		x->records[i].fd = -1;
	subject_init(&x->file);
	subject_init(&x->pair);
	ck_assert(!posix_memalign((void **)&x->got, PAGE, FILE_BYTES_MAX) && !pipe2(x->pipe, O_CLOEXEC));
	world_open(&x->world, x->plain ? WORLD_PASSTHROUGH : (enum world_io)mode, OPTIONS, DISK_MB);
	x->top = x->plain ? x->world.disk : x->world.mount;
	look_at_disk(x);
	exercise_watch_signals(x);
	clock_gettime(CLOCK_MONOTONIC, &x->started);
	run_rounds(x);
	tell_end(x);
	for (size_t i = 0; i < RECORDS; i++)
		record_done(&x->records[i]);
	subject_done(&x->file);
	subject_done(&x->pair);
	free(x->got);
	world_close(&x->world);
}

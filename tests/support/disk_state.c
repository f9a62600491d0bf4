// States after a power cut (disk.h): first which changes of names are there, then the bytes of each file that is
// reached, then the directory is written.
#include "tests/support/disk_journal.h"
#include "tests/support/suite.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/xattr.h>

#define BLOCK_BYTES 64 // what is torn apart; small, so that small files tear too

struct state {
	const struct ckpt_disk *d;
	size_t point;
	uint64_t seed;
	uint64_t random;
	unsigned eighths; // of the pending changes that are there, for random seeds
	int *slots;       // the inode at each slot
	char **paths;     // where each inode was written, for hard links
	int out;          // the directory being built
};

// ---- Chance

static uint64_t chance_next(struct state *s)
{
	uint64_t z = (s->random += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static size_t chance_below(struct state *s, size_t limit)
{
	return (size_t)(chance_next(s) % limit);
}

// Whether a change that nothing made durable is there.
static bool chance_pending(struct state *s)
{
	if (s->seed == CKPT_DISK_LEAST)
		return false;
	if (s->seed == CKPT_DISK_MOST)
		return true;
	return chance_below(s, 8) < s->eighths;
}

static bool durable(const struct state *s, const struct step *step)
{
	return step->durable_at < s->point;
}

// ---- Names

static bool removes_dir(const struct ckpt_disk *d, const struct step *step)
{
	return step->kind == STEP_UNLINK && step->inode != NONE && S_ISDIR(d->inodes[step->inode].mode);
}

// Flags by slot and by directory: a later step there needs, or an earlier step there lacks.
struct marks {
	bool *slots;
	bool *dirs;
};

static bool marked(const struct ckpt_disk *d, const struct marks *m, const struct step *step, bool with_dir)
{
	return m->slots[step->slot] || (step->to_slot != NONE && m->slots[step->to_slot]) ||
	       (with_dir && m->dirs[d->slots[step->slot].dir]) ||
	       (with_dir && step->to_slot != NONE && m->dirs[d->slots[step->to_slot].dir]);
}

static void mark(const struct ckpt_disk *d, struct marks *m, const struct step *step, bool with_dir)
{
	m->slots[step->slot] = true;
	if (step->to_slot != NONE)
		m->slots[step->to_slot] = true;
	if (with_dir)
		m->dirs[d->slots[step->slot].dir] = true;
	if (with_dir && step->to_slot != NONE)
		m->dirs[d->slots[step->to_slot].dir] = true;
}

static struct marks marks_new(const struct ckpt_disk *d)
{
	struct marks m = {calloc(d->slots_count + 1, sizeof(bool)), calloc(d->inodes_count + 1, sizeof(bool))};

	if (!m.slots || !m.dirs)
		abort();
	return m;
}

static void marks_done(struct marks *m)
{
	free(m->slots);
	free(m->dirs);
}

// Steps that are there whatever happens: the durable ones and, back from each, those of the same names before it; from
// the removal of a directory, those in it.
static void names_must(const struct state *s, bool *ret_must)
{
	CLEANUP(marks_done) struct marks needed = marks_new(s->d);

	for (size_t i = s->point; i-- > 0;) {
		const struct step *step = &s->d->steps[i];

		if (step->slot == NONE)
			continue;
		ret_must[i] = durable(s, step) || marked(s->d, &needed, step, true);
		if (!ret_must[i])
			continue;
		mark(s->d, &needed, step, false);
		if (removes_dir(s->d, step))
			needed.dirs[step->inode] = true;
	}
}

static void name_apply(struct state *s, const struct step *step)
{
	switch (step->kind) {
	case STEP_NAME:
		s->slots[step->slot] = step->inode;
		break;
	case STEP_UNLINK:
		s->slots[step->slot] = NONE;
		break;
	case STEP_RENAME:
		s->slots[step->slot] = NONE;
		s->slots[step->to_slot] = step->inode;
		break;
	case STEP_EXCHANGE:
		s->slots[step->slot] = step->to_inode;
		s->slots[step->to_slot] = step->inode;
		break;
	default:
		break;
	}
}

static void names_decide(struct state *s)
{
	CLEANUP(marks_done) struct marks lacking = marks_new(s->d);
	CLEANUP_FREE bool *must = calloc(s->point + 1, sizeof(bool));

	if (!must)
		abort();
	names_must(s, must);
	for (size_t i = 0; i < s->d->slots_count; i++)
		s->slots[i] = s->d->slots[i].base;
	for (size_t i = 0; i < s->point; i++) {
		const struct step *step = &s->d->steps[i];
		bool free_to = step->slot != NONE && !marked(s->d, &lacking, step, false) &&
			       !(removes_dir(s->d, step) && lacking.dirs[step->inode]);

		if (step->slot == NONE)
			continue;
		if (must[i] || (free_to && chance_pending(s)))
			name_apply(s, step);
		else
			mark(s->d, &lacking, step, true);
	}
}

// ---- Bytes

struct content {
	char *data;
	size_t len, cap;
};

static void content_done(struct content *c)
{
	free(c->data);
}

static void content_resize(struct content *c, size_t len)
{
	if (len > c->cap && ckpt_grow((void **)&c->data, &c->cap, len, 1) < 0)
		abort();
	if (len > c->len)
		memset(c->data + c->len, 0, len - c->len);
	c->len = len;
}

static void content_write(struct content *c, const char *data, size_t len, size_t offset)
{
	if (len == 0)
		return;
	if (offset + len > c->len)
		content_resize(c, offset + len);
	memcpy(c->data + offset, data, len);
}

static void content_apply(struct content *c, const struct step *step)
{
	if (step->kind == STEP_WRITE)
		content_write(c, step->data, step->len, step->offset);
	else
		content_resize(c, step->offset);
}

// A write of which any block may be missing. Returns the size that the whole write would have given.
static size_t content_tear(struct state *s, struct content *c, const struct step *step, size_t size)
{
	if (step->kind == STEP_TRUNCATE) {
		if (chance_pending(s))
			content_resize(c, step->offset);
		return step->offset;
	}
	for (size_t at = 0; at < step->len; at += BLOCK_BYTES)
		if (chance_pending(s))
			content_write(c, (const char *)step->data + at, MIN(step->len - at, (size_t)BLOCK_BYTES),
				      step->offset + at);
	return MAX(size, step->offset + step->len);
}

// The sizes a file passed through may each be the one on the disk, and any between.
static void content_size(struct state *s, struct content *c, size_t durable_size, size_t last_size)
{
	size_t low = MIN(durable_size, last_size), high = MAX(durable_size, last_size);

	switch (chance_below(s, 4)) {
	case 0:
		content_resize(c, durable_size);
		break;
	case 1:
		content_resize(c, last_size);
		break;
	case 2:
		content_resize(c, low + chance_below(s, high - low + 1));
		break;
	default:
		break;
	}
}

static bool changes_bytes(const struct step *step, int inode)
{
	return step->inode == inode && (step->kind == STEP_WRITE || step->kind == STEP_TRUNCATE);
}

static void content_decide(struct state *s, int inode, struct content *ret)
{
	bool torn = s->seed > CKPT_DISK_MOST && chance_below(s, 3) > 0;
	size_t durable_size, last_size;

	content_write(ret, s->d->inodes[inode].data, s->d->inodes[inode].len, 0);
	for (size_t i = 0; i < s->point; i++)
		if (changes_bytes(&s->d->steps[i], inode) && durable(s, &s->d->steps[i]))
			content_apply(ret, &s->d->steps[i]);
	durable_size = last_size = ret->len;
	for (size_t i = 0; i < s->point; i++) {
		const struct step *step = &s->d->steps[i];

		if (!changes_bytes(step, inode) || durable(s, step))
			continue;
		if (torn)
			last_size = content_tear(s, ret, step, last_size);
		else if (chance_pending(s))
			content_apply(ret, step);
	}
	if (torn)
		content_size(s, ret, durable_size, last_size);
}

// ---- Writing it out

static int xattrs_write(struct state *s, int inode, int fd)
{
	const struct inode *node = &s->d->inodes[inode];

	for (size_t i = 0; i < node->xattrs_count; i++)
		if (fsetxattr(fd, node->xattrs[i].name, node->xattrs[i].value, node->xattrs[i].len, 0) < 0)
			return -errno;
	for (size_t i = 0; i < s->point; i++) {
		const struct step *step = &s->d->steps[i];

		if (step->kind != STEP_XATTR || step->inode != inode)
			continue;
		if ((durable(s, step) || chance_pending(s)) && fsetxattr(fd, step->name, step->data, step->len, 0) < 0)
			return -errno;
	}
	return 0;
}

static int file_write(struct state *s, int inode, const char *path)
{
	CLEANUP(content_done) struct content c = {0};
	CLEANUP_FD int fd = openat(s->out, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
				   (s->d->inodes[inode].mode & 07777) | 0200);

	if (fd < 0)
		return -errno;
	content_decide(s, inode, &c);
	if (c.len && pwrite(fd, c.data, c.len, 0) != (ssize_t)c.len)
		return -EIO;
	return xattrs_write(s, inode, fd);
}

static int dir_write(struct state *s, int inode, const char *path);

static int inode_write(struct state *s, int inode, const char *path)
{
	const struct inode *node = &s->d->inodes[inode];

	if (S_ISDIR(node->mode)) {
		if (s->paths[inode])
			return 0; // a directory has one name
		if (mkdirat(s->out, path, (node->mode & 07777) | 0700) < 0)
			return -errno;
	} else if (s->paths[inode]) {
		return linkat(s->out, s->paths[inode], s->out, path, 0) < 0 ? -errno : 0;
	}
	s->paths[inode] = strdup(path);
	if (!s->paths[inode])
		return -ENOMEM;
	if (S_ISDIR(node->mode))
		return dir_write(s, inode, path);
	if (S_ISLNK(node->mode)) {
		CLEANUP_FREE char *target = strndup(node->data, node->len);

		return !target || symlinkat(target, s->out, path) < 0 ? -errno : 0;
	}
	return S_ISREG(node->mode) ? file_write(s, inode, path) : 0;
}

static int dir_write(struct state *s, int inode, const char *path)
{
	CLEANUP_FD int fd = openat(s->out, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = xattrs_write(s, inode, fd);
	for (size_t i = 0; i < s->d->slots_count && r == 0; i++) {
		char below[PATH_MAX];

		if (s->d->slots[i].dir != inode || s->slots[i] == NONE)
			continue;
		if (snprintf(below, sizeof(below), "%s/%s", path, s->d->slots[i].name) >= (int)sizeof(below))
			return -ENAMETOOLONG;
		r = inode_write(s, s->slots[i], below);
	}
	return r;
}

static int state_write(struct state *s)
{
	int r;

	s->slots = calloc(s->d->slots_count + 1, sizeof(*s->slots));
	s->paths = calloc(s->d->inodes_count + 1, sizeof(*s->paths));
	if (!s->slots || !s->paths)
		return -ENOMEM;
	names_decide(s);
	r = dir_write(s, ROOT, ".");
	for (size_t i = 0; i < s->d->inodes_count; i++)
		free(s->paths[i]);
	return r;
}

// ---- For people

static void slot_print(const struct ckpt_disk *d, int slot, FILE *out)
{
	fprintf(out, " #%d/%s", d->slots[slot].dir, d->slots[slot].name);
}

// One line per step, with the step that made it durable.
static void journal_print(struct ckpt_disk *d, size_t point, FILE *out)
{
	static const char *const kinds[] = {"name",  "unlink",   "rename", "exchange",
					    "write", "truncate", "xattr",  "sync"};

	LOCK_SCOPE(&d->lock);
	for (size_t i = 0; i < MIN(point, d->steps_count); i++) {
		const struct step *step = &d->steps[i];

		fprintf(out, "%4zu %-8s #%d", i, kinds[step->kind], step->inode);
		if (step->slot != NONE)
			slot_print(d, step->slot, out);
		if (step->to_slot != NONE)
			slot_print(d, step->to_slot, out);
		if (step->kind == STEP_WRITE || step->kind == STEP_TRUNCATE)
			fprintf(out, " at %zu, %zu bytes", step->offset, step->len);
		if (step->kind == STEP_SYNC)
			fprintf(out, "\n");
		else if (step->durable_at < point)
			fprintf(out, "  durable by %zu\n", step->durable_at);
		else
			fprintf(out, "  pending\n");
	}
}

// The state that was built last: what a test that fails was looking at.
static struct {
	struct ckpt_disk *disk;
	size_t point;
	uint64_t seed;
} built;

static void built_print(void)
{
	if (!built.disk)
		return;
	fprintf(stderr, "at point %zu, seed %llu:\n", built.point, (unsigned long long)built.seed);
	if (getenv("CKPT_CRASH_JOURNAL"))
		journal_print(built.disk, built.point, stderr);
}

static void built_note(struct ckpt_disk *d, size_t point, uint64_t seed)
{
	ckpt_suite_tell = built_print;
	built.disk = d;
	built.point = point;
	built.seed = seed;
}

void disk_forget(const struct ckpt_disk *d)
{
	if (built.disk == d)
		built.disk = NULL;
}

// ---- The cut

int ckpt_disk_crash(struct ckpt_disk *d, size_t point, uint64_t seed, const char *out_dir)
{
	static const unsigned eighths[] = {1, 4, 4, 7};
	struct state s = {.d = d, .point = point, .seed = seed, .out = -1};
	int r;

	built_note(d, point, seed);
	LOCK_SCOPE(&d->lock);
	s.point = MIN(point, d->steps_count);
	s.random = seed * 1000003 + point;
	s.eighths = eighths[chance_below(&s, ARRAY_LEN(eighths))];
	s.out = open(out_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s.out < 0)
		return -errno;
	r = state_write(&s);
	free(s.slots);
	free(s.paths);
	close(s.out);
	return r;
}

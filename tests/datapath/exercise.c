#include "tests/datapath/exercise.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CONTEXT_BYTES 16
#define LEN_BITS 17 // of the largest range

static struct exercise *of_signals;

const char *place_name(enum place place)
{
	static const char *const names[PLACES] = {"staged", "plain", "link", "reopened", "amend"};

	return names[place];
}

const char *mode_name(const struct exercise *x)
{
	static const char *const names[] = {"passthrough", "daemon", "uring"};

	return x->plain ? "plain" : names[x->world.io];
}

// --- Drawing ----------------------------------------------------------------------------------------------------------

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t draw(struct exercise *x)
{
	return mix(x->random += 0x9e3779b97f4a7c15u);
}

size_t pick(struct exercise *x, size_t below)
{
	return below ? (size_t)(draw(x) % below) : 0;
}

size_t pick_some(struct exercise *x, size_t most, size_t limit)
{
	size_t some = 1 + pick(x, most);

	return MIN(some, limit);
}

// Short ones as often as long ones, and often at the bounds of a page, where the cases are.
void draw_range(struct exercise *x, size_t limit, size_t *ret_at, size_t *ret_len)
{
	size_t at = pick(x, limit), len = 1 + pick(x, (size_t)1 << pick(x, LEN_BITS + 1));

	if (!pick(x, 4))
		at = at / PAGE * PAGE;
	if (!pick(x, 8) && at)
		at -= 1;
	if (!pick(x, 4))
		len = MAX(len / PAGE * PAGE, (size_t)PAGE);
	*ret_at = at;
	*ret_len = MIN(len, limit - at);
}

void fill(struct exercise *x, struct subject *s, size_t at, size_t len)
{
	uint64_t key = draw(x), word = 0;

	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0)
			word = mix(key + i);
		s->shadow[at + i] = (uint8_t)(word >> i % 8 * 8);
	}
	s->size = MAX(s->size, at + len);
	x->moved += len;
}

// --- Complaining ------------------------------------------------------------------------------------------------------

void note(struct exercise *x, const char *fmt, ...)
{
	char *text = x->notes[x->noted++ % NOTES];
	int len = snprintf(text, NOTE_BYTES, "%lu: ", x->op);
	va_list args;

	va_start(args, fmt);
	vsnprintf(text + len, NOTE_BYTES - (size_t)len, fmt, args);
	va_end(args);
}

static void tell_run(const struct exercise *x)
{
	fprintf(stderr, "  seed %llu, operation %lu, round %u, the file has %zu bytes\n  the last operations:\n",
		(unsigned long long)x->seed, x->op, x->round, x->file.size);
	for (unsigned i = x->noted > NOTES ? x->noted - NOTES : 0; i < x->noted; i++)
		fprintf(stderr, "    %s\n", x->notes[i % NOTES]);
	fprintf(stderr, "  again: CKPTFS=PROGRAM datapath --seed %llu --ops %lu --place %s --mode %s\n",
		(unsigned long long)x->seed, x->op, place_name(x->place), mode_name(x));
}

void violated(struct exercise *x, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fprintf(stderr, "datapath: %s %s: %s\n", mode_name(x), place_name(x->place), text);
	tell_run(x);
	if (!x->plain)
		world_tell(&x->world);
	ck_abort_msg("%s", text);
}

void must(struct exercise *x, bool ok, const char *what)
{
	if (!ok)
		violated(x, "%s: %s", what, strerror(errno));
}

static void tell_bytes(const char *title, const uint8_t *bytes, size_t len)
{
	fprintf(stderr, "  %s", title);
	for (size_t i = 0; i < len; i++)
		fprintf(stderr, " %02x", bytes[i]);
	fprintf(stderr, "\n");
}

void must_equal(struct exercise *x, const uint8_t *bytes, const uint8_t *got, size_t at, size_t len, const char *what)
{
	size_t first = 0, last = 0, count = 0;

	if (!memcmp(bytes + at, got + at, len))
		return;
	for (size_t i = at; i < at + len; i++)
		if (bytes[i] != got[i]) {
			first = count++ ? first : i;
			last = i;
		}
	tell_bytes("expected", bytes + first, MIN(last + 1 - first, (size_t)CONTEXT_BYTES));
	tell_bytes("got     ", got + first, MIN(last + 1 - first, (size_t)CONTEXT_BYTES));
	violated(x, "%s: %zu bytes of %zu+%zu differ, from %zu to %zu", what, count, at, len, first, last);
}

static void die_of_signal(int sig)
{
	fprintf(stderr, "datapath: signal %d\n", sig);
	tell_run(of_signals);
	_exit(1);
}

void exercise_watch_signals(struct exercise *x)
{
	of_signals = x;
	signal(SIGBUS, die_of_signal);
	signal(SIGSEGV, die_of_signal);
}

// --- The file ---------------------------------------------------------------------------------------------------------

void subject_init(struct subject *s)
{
	*s = (struct subject){.fd = -1};
	ck_assert(!posix_memalign((void **)&s->shadow, PAGE, FILE_BYTES_MAX));
	memset(s->shadow, 0, FILE_BYTES_MAX);
}

void subject_done(struct subject *s)
{
	free(s->shadow);
}

void subject_open(struct exercise *x, struct subject *s, int flags)
{
	s->fd = open(s->path, flags | O_CLOEXEC, 0644);
	if (s->fd < 0)
		violated(x, "open %s with flags %#x: %s", s->path, (unsigned)flags, strerror(errno));
}

void subject_unmap(struct exercise *x, struct subject *s)
{
	if (s->map)
		must(x, !munmap(TAKE_PTR(s->map), FILE_BYTES_MAX), "munmap");
}

void subject_close(struct exercise *x, struct subject *s)
{
	subject_unmap(x, s);
	if (s->fd >= 0)
		must(x, !close(TAKE_FD(s->fd)), "close");
}

void subject_resize(struct subject *s, size_t size)
{
	if (size < s->size)
		memset(s->shadow + size, 0, s->size - size);
	s->size = size;
}

// A file's time is the coarse clock's or later: no sleep is needed to see that it moved.
void subject_changes(struct subject *s)
{
	if (!s->changed)
		clock_gettime(CLOCK_REALTIME_COARSE, &s->then);
	s->changed = true;
}

static void read_all(struct exercise *x, int fd, size_t size, size_t piece)
{
	size_t at = 0;
	ssize_t n;

	while ((n = pread(fd, x->got + at, MIN(piece, FILE_BYTES_MAX - at), (off_t)at)) > 0)
		at += (size_t)n;
	must(x, !n, "read of all");
	if (at != size)
		violated(x, "%zu bytes were read of %zu", at, size);
}

void bytes_check(struct exercise *x, const char *path, const uint8_t *bytes, size_t size, const char *when)
{
	size_t way = pick(x, 4);
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | (way ? 0 : O_DIRECT));
	char what[PATH_MAX + 64];
	struct stat st;
	void *map;

	if (fd < 0)
		violated(x, "%s: open %s: %s", when, path, strerror(errno));
	snprintf(what, sizeof(what), "%s: %s", when, path);
	must(x, !fstat(fd, &st), what);
	if ((size_t)st.st_size != size)
		violated(x, "%s: has %lld bytes, not %zu", what, (long long)st.st_size, size);
	if (way == 1 && size) {
		map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
		must(x, map != MAP_FAILED, what);
		must_equal(x, bytes, map, 0, size, what);
		munmap(map, size);
	} else {
		read_all(x, fd, size, way == 2 ? 9 * PAGE : FILE_BYTES_MAX);
		must_equal(x, bytes, x->got, 0, size, what);
	}
	x->moved += size;
}

void subject_check(struct exercise *x, const struct subject *s, const char *when)
{
	bytes_check(x, s->path, s->shadow, s->size, when);
}

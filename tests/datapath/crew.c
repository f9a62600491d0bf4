#include "tests/datapath/crew.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define ALIGNMENT 4096
#define STOP_US 10000
#define PER_OCTAVE 8 // buckets

static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

// --- Processes --------------------------------------------------------------------------------------------------------

struct crew *crew_new(void)
{
	struct crew *crew = mmap(NULL, sizeof(*crew), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert(crew != MAP_FAILED);
	return crew;
}

void crew_start(struct crew *crew, const struct world *w, void (*work)(struct worker *me))
{
	struct worker me = {.crew = crew, .mount = w->mount, .number = crew->count, .random = crew->count};
	pid_t test = getpid(), pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid) {
		ck_assert_uint_lt(crew->count, CREW_MAX);
		crew->pids[crew->count++] = pid;
		return;
	}
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != test ||
	    posix_memalign((void **)&me.got, ALIGNMENT, CREW_BUFFER_BYTES) ||
	    posix_memalign((void **)&me.want, ALIGNMENT, CREW_BUFFER_BYTES))
		_exit(1);
	work(&me);
	_exit(0);
}

bool crew_goes_on(struct crew *crew)
{
	for (unsigned i = 0; i < crew->count; i++) {
		int status;

		if (!crew->pids[i] || waitpid(crew->pids[i], &status, WNOHANG) != crew->pids[i])
			continue;
		crew->pids[i] = 0;
		if (status) {
			fprintf(stderr, "worker %u ended with status %x\n", i, (unsigned)status);
			crew->failed = true;
		}
	}
	return !__atomic_load_n(&crew->failed, __ATOMIC_RELAXED);
}

static bool is_any_left(const struct crew *crew)
{
	for (unsigned i = 0; i < crew->count; i++)
		if (crew->pids[i])
			return true;
	return false;
}

void crew_stop(struct crew *crew, const struct world *w)
{
	__atomic_store_n(&crew->stop, true, __ATOMIC_RELAXED);
	while (is_any_left(crew)) {
		if (!crew_goes_on(crew)) {
			world_tell(w);
			ck_abort_msg("a worker failed");
		}
		usleep(STOP_US);
	}
}

bool is_stopped(const struct worker *me)
{
	return __atomic_load_n(&me->crew->stop, __ATOMIC_RELAXED);
}

size_t worker_pick(struct worker *me, size_t below)
{
	me->random += 0x9e3779b97f4a7c15u;
	return below ? (size_t)(mix(me->random) % below) : 0;
}

void worker_fail(struct worker *me, const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fprintf(stderr, "worker %u: %s\n", me->number, text);
	__atomic_store_n(&me->crew->failed, true, __ATOMIC_RELAXED);
	_exit(1);
}

void worker_must(struct worker *me, bool ok, const char *what, const char *path)
{
	if (!ok)
		worker_fail(me, "%s %s: %s", what, path, strerror(errno));
}

// --- Bytes ------------------------------------------------------------------------------------------------------------

uint64_t key_of(unsigned worker, unsigned step, const char *name)
{
	uint64_t key = mix((uint64_t)worker << 32 | step);

	while (*name)
		key = mix(key ^ (uint8_t)*name++);
	return key;
}

void bytes_of(uint64_t key, size_t at, size_t len, uint8_t *ret_bytes)
{
	for (size_t i = 0; i < len;) {
		size_t skip = (at + i) % 8, some = MIN(8 - skip, len - i);
		uint64_t word = mix(key + (at + i) / 8);

		memcpy(ret_bytes + i, (uint8_t *)&word + skip, some);
		i += some;
	}
}

void worker_compare(struct worker *me, const char *path, uint64_t key, size_t at, size_t len, const uint8_t *got)
{
	size_t i = 0;

	bytes_of(key, at, len, me->want);
	__atomic_add_fetch(&me->crew->reads, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&me->crew->bytes, len, __ATOMIC_RELAXED);
	if (!memcmp(got, me->want, len))
		return;
	while (got[i] == me->want[i])
		i++;
	worker_fail(me, "%s: byte %zu is %02x, not %02x (a read of %zu+%zu)", path, at + i, got[i], me->want[i], at,
		    len);
}

void worker_write(struct worker *me, const char *path, uint64_t key, size_t size)
{
	uint64_t start = now_us();
	CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	worker_must(me, fd >= 0, "create", path);
	latency_add(me->crew, LATENCY_CREATE, now_us() - start);
	for (size_t at = 0; at < size;) {
		size_t len = MIN(CREW_BUFFER_BYTES, size - at);

		bytes_of(key, at, len, me->want);
		worker_must(me, write(fd, me->want, len) == (ssize_t)len, "write", path);
		at += len;
	}
	worker_must(me, !close(TAKE_FD(fd)), "close", path);
}

void worker_check(struct worker *me, const char *path, uint64_t key, size_t size)
{
	uint64_t start = now_us();
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t n;

	worker_must(me, fd >= 0, "open", path);
	latency_add(me->crew, LATENCY_OPEN, now_us() - start);
	while ((n = read(fd, me->got, CREW_BUFFER_BYTES)) > 0) {
		worker_compare(me, path, key, at, (size_t)n, me->got);
		at += (size_t)n;
	}
	worker_must(me, !n, "read", path);
	if (at != size)
		worker_fail(me, "%s has %zu bytes, not %zu", path, at, size);
}

void worker_commit(struct worker *me, const char *folder)
{
	uint64_t start = now_us();
	char path[PATH_MAX + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/.finalize", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	worker_must(me, fd >= 0, "open", path);
	worker_must(me, !close(fd), "commit", folder);
	latency_add(me->crew, LATENCY_COMMIT, now_us() - start);
}

// --- Times ------------------------------------------------------------------------------------------------------------

uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

// Buckets of a ninth each, so that a percentile is that much off at most.
static size_t bucket_of(uint64_t us)
{
	unsigned octave = us < PER_OCTAVE ? 0 : (unsigned)(63 - __builtin_clzll(us)) - 2;

	return MIN((size_t)octave * PER_OCTAVE + (size_t)(us >> (octave ? octave - 1 : 0)) % PER_OCTAVE,
		   (size_t)LATENCY_BUCKETS - 1);
}

static double bucket_ms(size_t bucket)
{
	size_t octave = bucket / PER_OCTAVE, rest = bucket % PER_OCTAVE;
	double us = octave ? (double)((PER_OCTAVE + rest + 1) << (octave - 1)) : (double)rest + 1;

	return us / 1000;
}

void latency_add(struct crew *crew, enum latency what, uint64_t us)
{
	__atomic_add_fetch(&crew->times[what][bucket_of(us)], 1, __ATOMIC_RELAXED);
}

double latency_ms(const uint64_t *times, double percent)
{
	uint64_t total = 0, seen = 0;

	for (size_t i = 0; i < LATENCY_BUCKETS; i++)
		total += times[i];
	for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
		seen += times[i];
		if (total && (double)seen >= (double)total * percent / 100)
			return bucket_ms(i);
	}
	return 0;
}

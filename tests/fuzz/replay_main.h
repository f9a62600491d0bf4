// A fuzzer's main() for compilers without libFuzzer: runs every file of the directories and files that it is given, and
// then mutations of them, for a while. It sees no coverage; what it finds it finds by knowing the formats a little.
//
//	CKPT_FUZZ_SECONDS  how long to mutate: 5 by default, 30 with CKPT_TEST_FULL, 0: only the files
//	CKPT_FUZZ_SEED     another sequence of mutations; each is repeatable
//	CKPT_FUZZ_CRASHES  where to leave the input that ended it; by default the working directory
//
// The inputs run in a child, which tells its parent by shared memory what it runs now. So whatever ends it, the parent has
// the input, and a child that stands still at one is ended by it.
#pragma once

#include "tests/fuzz/replay.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define REPLAY_BYTES_MAX (1u << 20)
#define REPLAY_HANG_S 60 // sanitizers and a busy machine included
#define REPLAY_POLL_NS 20000000

struct replay_input {
	uint8_t *data;
	size_t len;
};

// What the child is at; read by the parent when it has ended.
struct replay_now {
	uint64_t runs; // atomic
	size_t len;
	uint8_t data[REPLAY_BYTES_MAX];
};

static struct {
	struct replay_input *inputs;
	size_t count, cap;
	struct replay_now *now;
	uint64_t state;
} replay;

__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

static double replay_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t replay_random(uint64_t limit)
{
	uint64_t x = replay.state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	replay.state = x;
	return limit ? (x >> 11) % limit : 0;
}

static void replay_number(const char *variable, uint64_t otherwise, uint64_t *ret)
{
	const char *text = getenv(variable);

	*ret = text && *text ? strtoull(text, NULL, 10) : otherwise;
}

// --- Inputs -----------------------------------------------------------------------------------------------------------

static int replay_by_bytes(const void *a, const void *b)
{
	const struct replay_input *x = a, *y = b;
	int order = memcmp(x->data, y->data, MIN(x->len, y->len));

	return order ? order : (x->len > y->len) - (x->len < y->len);
}

static int replay_load_file(const char *path)
{
	struct replay_input in = {.data = malloc(REPLAY_BYTES_MAX)};
	FILE *f = fopen(path, "rb");

	if (!f || !in.data || ckpt_grow((void **)&replay.inputs, &replay.cap, replay.count + 1, sizeof(in))) {
		perror(path);
		if (f)
			fclose(f);
		free(in.data);
		return -1;
	}
	in.len = fread(in.data, 1, REPLAY_BYTES_MAX, f);
	fclose(f);
	replay.inputs[replay.count++] = in;
	return 0;
}

static int replay_load(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char file[4096];
	int rc = 0;

	if (!dir)
		return replay_load_file(path);
	while (!rc && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		rc = replay_load_file(file);
	}
	closedir(dir);
	return rc;
}

// --- Mutations --------------------------------------------------------------------------------------------------------

static size_t replay_insert(uint8_t *data, size_t len, size_t at, const uint8_t *from, size_t count)
{
	count = MIN(count, REPLAY_BYTES_MAX - len);
	memmove(data + at + count, data + at, len - at);
	memmove(data + at, from, count);
	return len + count;
}

static size_t replay_remove(uint8_t *data, size_t len)
{
	size_t at = replay_random(len), count = 1 + replay_random(MIN(len - at, (size_t)1 << replay_random(8)));

	count = MIN(count, len - at);
	memmove(data + at, data + at + count, len - at - count);
	return len - count;
}

static size_t replay_repeat(uint8_t *data, size_t len)
{
	uint8_t piece[256];
	size_t from = replay_random(len), count = MIN(1 + replay_random(sizeof(piece) - 1), len - from);

	memcpy(piece, data + from, count);
	for (uint64_t i = 1 + replay_random(4); i; i--)
		len = replay_insert(data, len, replay_random(len), piece, count);
	return len;
}

static void replay_word(uint8_t *data, size_t len)
{
	static const uint64_t telling[] = {0,      1,       2,          0x7f,       0x80,      0xff,
					   0x7fff, 0xffff,  0x10000,    0x7fffffff, 1u << 31,  0xffffffff,
					   4096,   1 << 20, UINT64_MAX, INT64_MAX,  1ull << 63};
	size_t width = (size_t)1 << replay_random(4);
	size_t at;

	if (len < width)
		return;
	at = replay_random(len - width + 1);
	if (replay_random(2))
		at &= ~(width - 1);
	memcpy(data + at, &telling[replay_random(ARRAY_LEN(telling))], width);
}

static size_t replay_splice(uint8_t *data, size_t len)
{
	const struct replay_input *other = &replay.inputs[replay_random(replay.count)];
	size_t from = replay_random(other->len + 1), count = replay_random(other->len - from + 1);

	return replay_insert(data, len, replay_random(len + 1), other->data + from, count);
}

static size_t replay_mutate(uint8_t *data, size_t len)
{
	uint8_t byte = (uint8_t)replay_random(256);

	if (!len)
		return replay_insert(data, len, 0, &byte, 1);
	switch (replay_random(10)) {
	case 0:
		return replay_remove(data, len);
	case 1:
		return replay_repeat(data, len);
	case 2:
		return replay_splice(data, len);
	case 3:
		return replay_insert(data, len, replay_random(len + 1), &byte, 1);
	case 4:
		return replay_random(8) ? len : replay_random(len);
	case 5:
	case 6:
		replay_word(data, len);
		return len;
	case 7:
		data[replay_random(len)] = byte;
		return len;
	default:
		data[replay_random(len)] ^= (uint8_t)(1u << replay_random(8));
		return len;
	}
}

// --- The child --------------------------------------------------------------------------------------------------------

static void replay_run(void)
{
	uint8_t *copy = malloc(replay.now->len + !replay.now->len); // just as long: sanitizers see a byte too much

	if (!copy)
		abort();
	memcpy(copy, replay.now->data, replay.now->len);
	LLVMFuzzerTestOneInput(copy, replay.now->len);
	free(copy);
	__atomic_add_fetch(&replay.now->runs, 1, __ATOMIC_RELEASE);
}

static void replay_take(const struct replay_input *in)
{
	memcpy(replay.now->data, in->data, in->len);
	replay.now->len = in->len;
}

static void replay_child(uint64_t seconds, int argc, char **argv)
{
	double end;

	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	for (size_t i = 0; i < replay.count; i++) {
		replay_take(&replay.inputs[i]);
		replay_run();
	}
	end = replay_clock() + (double)seconds;
	while (replay_clock() < end) {
		replay_take(&replay.inputs[replay_random(replay.count)]);
		for (uint64_t i = (uint64_t)1 << replay_random(5); i; i--)
			replay.now->len = replay_mutate(replay.now->data, replay.now->len);
		replay_run();
	}
}

// --- The parent -------------------------------------------------------------------------------------------------------

static void replay_keep(const char *program)
{
	const char *dir = getenv("CKPT_FUZZ_CRASHES"), *base = strrchr(program, '/');
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.crash", dir ? dir : ".", base ? base + 1 : program);
	f = fopen(path, "wb");
	if (!f || fwrite(replay.now->data, 1, replay.now->len, f) != replay.now->len || fclose(f))
		perror(path);
	else
		fprintf(stderr, "the input that did it is in %s: CKPT_FUZZ_SECONDS=0 %s %s\n", path, program, path);
}

// How it ended, as of waitpid(2); killed when it stood still.
static int replay_watch(pid_t child)
{
	uint64_t runs = 0;
	double since = replay_clock();
	int status;

	while (!waitpid(child, &status, WNOHANG)) {
		uint64_t now = __atomic_load_n(&replay.now->runs, __ATOMIC_ACQUIRE);

		if (now != runs) {
			runs = now;
			since = replay_clock();
		} else if (replay_clock() - since > REPLAY_HANG_S) {
			fprintf(stderr, "an input takes more than %d s\n", REPLAY_HANG_S);
			kill(child, SIGABRT);
			waitpid(child, &status, 0);
			return status ? status : SIGABRT;
		}
		nanosleep(&(struct timespec){.tv_nsec = REPLAY_POLL_NS}, NULL);
	}
	return status;
}

int main(int argc, char **argv)
{
	uint64_t seconds, seed;
	double began = replay_clock();
	char temp[] = "/dev/shm/ckptfs-fuzz-XXXXXX";
	int status;
	pid_t child;

	replay_number("CKPT_FUZZ_SECONDS", getenv("CKPT_TEST_FULL") ? 30 : 5, &seconds);
	replay_number("CKPT_FUZZ_SEED", 1, &seed);
	replay.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
	for (int i = 1; i < argc; i++)
		if (replay_load(argv[i]))
			return EXIT_FAILURE;
	if (!replay.count) {
		fprintf(stderr, "no inputs\n"); // an empty corpus tests nothing
		return EXIT_FAILURE;
	}
	qsort(replay.inputs, replay.count, sizeof(*replay.inputs), replay_by_bytes); // whatever order the disk has
	replay.now = mmap(NULL, sizeof(*replay.now), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (replay.now == MAP_FAILED)
		return EXIT_FAILURE;
	if (mkdtemp(temp))
		setenv("CKPT_FUZZ_TEMP", temp, 1); // temp.h
	fflush(NULL);
	child = fork();
	if (child < 0)
		return EXIT_FAILURE;
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		replay_child(seconds, argc, argv);
		exit(EXIT_SUCCESS);
	}
	status = replay_watch(child);
	ckpt_temp_empty(temp, 1);
	printf("%zu inputs, %llu runs in %.1f s\n", replay.count, (unsigned long long)replay.now->runs,
	       replay_clock() - began);
	for (size_t i = 0; i < replay.count; i++)
		free(replay.inputs[i].data);
	free(replay.inputs);
	if (!status)
		return EXIT_SUCCESS;
	replay_keep(argv[0]);
	return EXIT_FAILURE;
}

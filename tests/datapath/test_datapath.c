// The data path: what is written is what is read, whatever way it is written and read, wherever the file is.
//
//   datapath passthrough|daemon|uring     100,000 operations in all three; CKPT_TEST_FULL=1: a million, CKPT_TEST_LONG=1: ten
//   datapath readers                      16 processes read a committed step while others save
//   datapath soak [--seconds N]           mixed work: what the daemon takes is looked at, and may not grow
//   datapath --seed N --ops M --place P --mode M     one run: of staged plain link reopened amend, in one of the modes
//                                         above, or in `plain`, without ckptfs, to see what the disk does itself
#include "tests/datapath/exercise.h"
#include "tests/datapath/readers.h"
#include "tests/datapath/soak.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <getopt.h>
#include <stdio.h>

#define OPS 6667 // in each of five places and three modes
#define CASE_S 120
#define READERS_S 4 // in each of two modes
#define SOAK_S 20
#define FULL_FACTOR 10
#define LONG_FACTOR 100

// Those of enum world_io, and others.
enum { MODE_PLAIN = WORLD_URING + 1, MODE_READERS, MODE_SOAK };
static const char *const modes[] = {"passthrough", "daemon", "uring", "plain", "readers", "soak"};

static struct {
	unsigned long long seed;
	unsigned long ops;
	unsigned seconds;
	int mode, place; // place -1: all
} wanted = {.place = -1, .mode = -1};

static bool is_set(const char *name)
{
	const char *text = getenv(name);

	return text && *text && strcmp(text, "0");
}

static unsigned factor(void)
{
	return is_set("CKPT_TEST_LONG") ? LONG_FACTOR : is_set("CKPT_TEST_FULL") ? FULL_FACTOR : 1;
}

START_TEST(what_is_written_is_read)
{
	struct exercise x;

	exercise_run(&x, (enum place)_i, wanted.mode, wanted.seed, wanted.ops);
}
END_TEST

START_TEST(many_read_what_was_committed)
{
	readers_run((enum world_io)_i, wanted.seconds);
}
END_TEST

static bool soaked;

// Not in the test itself: Check keeps what one takes in an int, in microseconds, which an hour does not fit into.
static void soak(void)
{
	soak_run(wanted.seconds);
	soaked = true;
}

START_TEST(nothing_grows)
{
	ck_assert(soaked);
}
END_TEST

static Suite *works(void)
{
	Suite *s = suite_create(modes[wanted.mode]);
	TCase *tc = tcase_create(modes[wanted.mode]);

	tcase_set_timeout(tc, CASE_S + wanted.seconds);
	if (wanted.mode == MODE_SOAK) {
		tcase_add_unchecked_fixture(tc, soak, NULL);
		tcase_add_test(tc, nothing_grows);
	} else {
		tcase_add_loop_test(tc, many_read_what_was_committed, WORLD_PASSTHROUGH, WORLD_DAEMON + 1);
	}
	suite_add_tcase(s, tc);
	return s;
}

static Suite *exercises(void)
{
	Suite *s = suite_create(modes[wanted.mode]);

	for (int i = 0; i < PLACES; i++) {
		TCase *tc = tcase_create(place_name((enum place)i));

		if (wanted.place >= 0 && wanted.place != i)
			continue;
		tcase_set_timeout(tc, CASE_S + (double)wanted.ops / 100);
		tcase_add_loop_test(tc, what_is_written_is_read, i, i + 1);
		suite_add_tcase(s, tc);
	}
	return s;
}

static int index_of(const char *text, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(text, names[i]))
			return i;
	return -1;
}

static bool read_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},    {"ops", required_argument, NULL, 'o'},
		{"place", required_argument, NULL, 'p'},   {"mode", required_argument, NULL, 'm'},
		{"seconds", required_argument, NULL, 't'}, {0}};
	int c;

	// The same in each short run, so that it can be relied on; another in each long one.
	wanted.seed = factor() == 1 ? 1 : (unsigned long long)time(NULL);
	wanted.ops = (unsigned long)OPS * factor();
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			wanted.seed = strtoull(optarg, NULL, 10);
		else if (c == 'o')
			wanted.ops = strtoul(optarg, NULL, 10);
		else if (c == 't')
			wanted.seconds = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'm')
			wanted.mode = index_of(optarg, modes, (int)ARRAY_LEN(modes));
		else if (c != 'p')
			return false;
		for (int i = 0; c == 'p' && i < PLACES; i++)
			if (!strcmp(optarg, place_name((enum place)i)))
				wanted.place = i;
		if (c == 'p' && wanted.place < 0)
			return false;
	}
	if (optind == argc - 1)
		wanted.mode = index_of(argv[optind++], modes, (int)ARRAY_LEN(modes));
	if (wanted.mode >= MODE_READERS && !wanted.seconds)
		wanted.seconds = wanted.mode == MODE_SOAK ? SOAK_S * factor() : READERS_S * MIN(factor(), 10u);
	return optind == argc && wanted.mode >= 0;
}

int main(int argc, char **argv)
{
	const char *obstacle = world_obstacle();

	if (!getenv("CKPTFS") || !read_options(argc, argv)) {
		fprintf(stderr, "usage: CKPTFS=PROGRAM datapath passthrough|daemon|uring|readers\n"
				"       CKPTFS=PROGRAM datapath soak [--seconds N]\n"
				"       CKPTFS=PROGRAM datapath [--seed N] [--ops N] [--place PLACE] --mode MODE\n");
		return 2;
	}
	if (!obstacle && wanted.mode == WORLD_URING)
		obstacle = world_uring_obstacle();
	if (obstacle) {
		printf("SKIPPED datapath %s: %s\n", modes[wanted.mode], obstacle);
		return 0;
	}
	return ckpt_suite_run(wanted.mode < MODE_READERS ? exercises() : works());
}

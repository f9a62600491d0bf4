// The walks. What was seen, and what was tried where, are two sets of numbers of 64 bits.
#include "tests/model/vary.h"
#include "tests/model/world.h"

#include "core/base/util.h"
#include "tests/support/suite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	WALK_MAX = 400,
	STALE_WALKS = 60,
	WALKS_LEAST = 20,
	STATES = 10000,
	STATES_LONG = 1000000,
	DEEP_STATES = 5000,    // so many of a scenario, and more goes wrong in it
	VARIED_STATES = 50000, // so many of a program, and scenarios are varied (vary.h)
	TOLD_WALKS = 20,       // then: of a scenario as it was told
	VARIED_WALKS = 24,     // of a variation: there is another one
	REPLAY_BYTES = 8 * WALK_MAX
};

struct set {
	uint64_t *at; // 0: free
	size_t cap, count;
};

static bool set_add(struct set *s, uint64_t x)
{
	size_t i;

	x += !x;
	if (2 * s->count >= s->cap) {
		struct set larger = {.cap = MAX(s->cap * 2, (size_t)1 << 12)};

		larger.at = calloc(larger.cap, sizeof(*larger.at));
		for (i = 0; i < s->cap; i++)
			if (s->at[i])
				(void)set_add(&larger, s->at[i]);
		free(s->at);
		*s = larger;
	}
	for (i = x % s->cap; s->at[i]; i = (i + 1) % s->cap)
		if (s->at[i] == x)
			return false;
	s->at[i] = x;
	s->count++;
	return true;
}

static bool set_has(const struct set *s, uint64_t x)
{
	x += !x;
	for (size_t i = s->cap ? x % s->cap : 0; s->cap && s->at[i]; i = (i + 1) % s->cap)
		if (s->at[i] == x)
			return true;
	return false;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t label_hash(const char *label)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *label; label++)
		h = (h ^ (uint8_t)*label) * UINT64_C(0x100000001b3);
	return h;
}

static struct set seen, tried;
static struct {
	uint64_t seed;
	unsigned choices[WALK_MAX];
	char labels[WALK_MAX][WORLD_LABEL];
	size_t len;
	bool is_deep;
} walk;

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

// --- One walk -------------------------------------------------------------------------------------------------------------

static void take(const struct world_choice *c, unsigned number)
{
	walk.choices[walk.len] = number;
	snprintf(walk.labels[walk.len++], WORLD_LABEL, "%s", c->label);
	world_do(c);
}

// One that was not tried in this state; else any.
static unsigned choose(const struct world_choice *c, size_t count, uint64_t state, uint64_t *chance)
{
	unsigned fresh[WORLD_CHOICES];
	size_t fresh_count = 0;

	for (unsigned i = 0; i < count; i++)
		if (!set_has(&tried, mix(state ^ label_hash(c[i].label))))
			fresh[fresh_count++] = i;
	*chance += UINT64_C(0x9e3779b97f4a7c15);
	return fresh_count ? fresh[mix(*chance) % fresh_count] : (unsigned)(mix(*chance) % count);
}

// --- Scripts ----------------------------------------------------------------------------------------------------------------

static unsigned find_choice(const struct world_choice *c, size_t count, const char *begins)
{
	for (unsigned i = 0; i < count; i++)
		if (!strncmp(c[i].label, begins, strlen(begins)))
			return i;
	return WORLD_CHOICES;
}

// The node gets an answer; or begins a turn, if it has something to do.
static unsigned find_progress(const struct world_choice *c, size_t count, char letter, bool turns)
{
	char turn[] = "? turns";

	*turn = letter;
	for (unsigned i = 0; i < count; i++)
		if (*c[i].label == letter && world_is_answer(&c[i]))
			return i;
	return turns ? find_choice(c, count, turn) : WORLD_CHOICES;
}

static void follow_line(const char *line)
{
	bool rests = !strcmp(line + 1, " rests"), only = !strncmp(line, "until ", 6);
	const char *begins = only ? line + 6 : line;

	while (!*world_wrong() && walk.len < WALK_MAX) {
		struct world_choice c[WORLD_CHOICES];
		size_t count = world_choices(c);
		unsigned i = rests ? WORLD_CHOICES : find_choice(c, count, begins);
		bool found = i < WORLD_CHOICES;

		if (found && only)
			return;
		if (!found)
			i = find_progress(c, count, *begins, rests);
		if (i == WORLD_CHOICES) {
			if (!rests)
				world_violate_script(line);
			return;
		}
		take(&c[i], i);
		if (found)
			return;
	}
}

// The number of states that were new.
static size_t walk_one(const struct model_scenario *sc, uint64_t seed)
{
	struct world_choice c[WORLD_CHOICES];
	uint64_t chance = seed, scenario = label_hash(sc->name);
	size_t before = seen.count, count;

	walk.seed = seed;
	walk.len = 0;
	world_begin(sc, seed);
	for (unsigned i = 0; i < MODEL_SCRIPT && sc->script[i]; i++)
		follow_line(sc->script[i]);
	while (!*world_wrong() && walk.len < WALK_MAX && (count = world_choices(c))) {
		uint64_t state = world_hash() ^ scenario;
		unsigned i;

		(void)set_add(&seen, state);
		i = choose(c, count, state, &chance);
		(void)set_add(&tried, mix(state ^ label_hash(c[i].label)));
		take(&c[i], i);
	}
	if (!*world_wrong())
		world_settle();
	return seen.count - before;
}

static void replay(const struct model_scenario *sc, uint64_t seed, const char *choices, bool tells)
{
	struct world_choice c[WORLD_CHOICES];

	walk.seed = seed;
	walk.len = 0;
	world_begin(sc, seed);
	while (*choices && !*world_wrong()) {
		size_t count = world_choices(c);
		char *end;
		unsigned long i = strtoul(choices, &end, 10);

		if (tells)
			printf("%s", world_text());
		if (i >= count) {
			printf("there are %zu choices, and not %lu\n", count, i);
			break;
		}
		if (tells)
			printf("--- %s\n", c[i].label);
		take(&c[i], (unsigned)i);
		choices = end + (*end == '.');
	}
	if (tells)
		printf("%s", world_text());
	if (!*world_wrong())
		world_settle();
}

// --- A failure --------------------------------------------------------------------------------------------------------------

static void tell_failure(const struct model_scenario *sc)
{
	CLEANUP_FREE char *choices = malloc(REPLAY_BYTES), *was = strdup(world_wrong());
	size_t len = 0;

	*choices = '\0';
	for (size_t i = 0; i < walk.len; i++) {
		printf("    %s\n", walk.labels[i]);
		len += (size_t)snprintf(choices + len, REPLAY_BYTES - len, "%s%u",
					i              ? "."
					: walk.is_deep ? "d"
						       : "",
					walk.choices[i]);
	}
	printf("%s--- %s: %s\n", world_text(), sc->name, was);
	printf("CKPT_MODEL_REPLAY='%s:%" PRIu64 ":%s'\n", sc->name, walk.seed, choices);
	fflush(stdout);
	world_end();
	replay(sc, walk.seed, choices + (*choices == 'd'), false);
	printf("again: %s\n",
	       strcmp(world_wrong(), was) ? *world_wrong() ? world_wrong() : "it was not seen" : "the same");
	world_end();
}

// More goes wrong where many states are wanted.
static struct model_scenario deepened(const struct model_scenario *sc, bool is_deep)
{
	struct model_scenario deep = *sc;

	walk.is_deep = is_deep;
	if (!is_deep)
		return deep;
	deep.lost += 3;
	deep.crashes += 2;
	for (unsigned i = 0; i < MODEL_NODES; i++) {
		deep.collections[i] += sc->collections[i] > 0;
		deep.snapshots[i] += sc->snapshots[i] > 0;
	}
	return deep;
}

// One of those that were told, or "NAME+VARIATION".
static const struct model_scenario *named(const struct model_scenario *scenarios, size_t count, const char *name)
{
	const char *plus = strrchr(name, '+');
	unsigned of = plus ? (unsigned)strtoul(plus + 1, NULL, 10) : 0;

	for (size_t i = 0; i < count; i++)
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	return of ? vary(scenarios, count, of) : NULL;
}

static int replay_named(const struct model_scenario *scenarios, size_t count, const char *what)
{
	CLEANUP_FREE char *name = strndup(what, strcspn(what, ":"));
	const struct model_scenario *found = named(scenarios, count, name);
	const char *at = what + strlen(name) + (what[strlen(name)] == ':');
	struct model_scenario sc;
	char *end;
	uint64_t seed;

	if (!found || strcmp(found->name, name)) {
		printf("no scenario of this program: %s\n", what);
		return 2;
	}
	seed = strtoull(at, &end, 10);
	end += *end == ':';
	sc = deepened(found, *end == 'd');
	replay(&sc, seed, end + (*end == 'd'), true);
	printf("%s: %s\n", sc.name, *world_wrong() ? world_wrong() : "nothing is wrong");
	fflush(stdout); // a failed check ends the process without that
	world_end();
	return *world_wrong() != '\0';
}

// --- All --------------------------------------------------------------------------------------------------------------------

static bool is_long(void)
{
	return ckpt_suite_setting("CKPT_TEST_LONG", 0);
}

static double ends_s; // no walk begins after that; 0: it never ends

static bool is_late(void)
{
	return ends_s > 0 && now_s() > ends_s;
}

// Ends with the last state that is wanted, or when so many walks have found nothing new, or after so many.
static int explore(const struct model_scenario *as_told, bool is_deep, size_t want, size_t most_walks, uint64_t seed)
{
	const struct model_scenario deep = deepened(as_told, is_deep), *sc = &deep;
	size_t first = seen.count, walks = 0, stale = 0;
	double began_s = now_s();

	while ((seen.count - first < want || walks < WALKS_LEAST) && stale < STALE_WALKS && walks < most_walks &&
	       !is_late()) {
		stale = walk_one(sc, seed + walks++) ? 0 : stale + 1;
		if (*world_wrong()) {
			tell_failure(sc);
			return 1;
		}
		world_end();
	}
	printf("%-16s %8zu states in %zu walks, %.1f s%s\n", sc->name, seen.count - first, walks, now_s() - began_s,
	       stale < STALE_WALKS ? "" : ": all there are, as it seems");
	fflush(stdout);
	return 0;
}

// The scenarios as they were told have fewer states than are wanted.
static int explore_more(const struct model_scenario *scenarios, size_t count, size_t want, uint64_t seed)
{
	for (unsigned of = 1; seen.count < want && !is_late(); of++)
		if (explore(vary(scenarios, count, of), true, want - seen.count, VARIED_WALKS, seed))
			return 1;
	return 0;
}

static int explore_all(const struct model_scenario *scenarios, size_t count, unsigned part)
{
	size_t want = ckpt_suite_setting("CKPT_MODEL_STATES", is_long() ? STATES_LONG : STATES) * (size_t)part / 100,
	       done = 0;
	uint64_t seed = ckpt_suite_setting("CKPT_MODEL_SEED", 1) * UINT64_C(1000003);
	double seconds = ckpt_suite_setting("CKPT_MODEL_SECONDS", 0);
	const char *only = getenv("CKPT_MODEL_ONLY");
	bool varies = !only && want >= VARIED_STATES;

	ends_s = seconds > 0 ? now_s() + seconds : 0;

	for (size_t i = 0; i < count; i++) { // one that has fewer leaves more to the others
		size_t before = seen.count;

		if (only && strcmp(only, scenarios[i].name))
			continue;
		size_t share = only ? want : (want - MIN(done, want)) / (count - i);

		if (explore(&scenarios[i], share >= DEEP_STATES, share, varies ? TOLD_WALKS : SIZE_MAX, seed))
			return 1;
		done += seen.count - before;
	}
	if (varies && explore_more(scenarios, count, want, seed))
		return 1;
	printf("%zu states\n", seen.count);
	return 0;
}

static const struct model_scenario *all;
static size_t all_count;
static unsigned all_part;

static int run_all(void)
{
	const char *again = getenv("CKPT_MODEL_REPLAY");

	return again ? replay_named(all, all_count, again) : explore_all(all, all_count, all_part);
}

START_TEST(nothing_is_lost_in_any_order)
{
	ck_assert_int_eq(run_all(), 0);
}
END_TEST

int model_main(const struct model_scenario *scenarios, size_t count, unsigned part)
{
	Suite *s = suite_create("model");
	TCase *c = tcase_create("model");

	all = scenarios;
	all_count = count;
	all_part = part;
	tcase_set_timeout(c, 0);
	tcase_add_test(c, nothing_is_lost_in_any_order);
	suite_add_tcase(s, c);
	return ckpt_suite_run(s);
}

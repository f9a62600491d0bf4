// How it judges. A thing's turn (shared.h) is odd while the trace changes what is complete already: then the thing may go
// out of the listing at any time, and who listed it before may find it with the changes, by its exact name. So a look
// counts
//   - at once when the turn was even and the same before and after it: it is as declared, and once seen it stays
//   - else when it is listed before and after, and was not as declared so many times in a row: a deletion that a full disk refuses
//     takes it out of the listing and brings it back, again and again, and who is slow meets it out of it many times
#include "tests/replay/observer.h"

#include "tests/replay/tree.h"

#include "core/base/util.h"

#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define LOOKS 100
#define PAUSE_US 1000

struct watch {
	const struct trace *trace;
	const struct expect *expect;
	struct shared *shared;
	unsigned seen[EXPECT_MAX]; // the turn of its last sight, plus 1
};

static unsigned turn_of(const struct watch *w, int i)
{
	return __atomic_load_n(&w->shared->turn[i], __ATOMIC_SEQ_CST);
}

// A dead daemon's mount answers nothing that could be judged.
static bool is_dead(const struct watch *w)
{
	return __atomic_load_n(&w->shared->dead, __ATOMIC_SEQ_CST);
}

// before: its turn when its folder was listed.
static bool look_at(struct watch *w, int i, unsigned before)
{
	const struct expected *x = &w->expect->things[i];

	for (int looks = 1;; looks++) {
		CLEANUP_FREE char *text = tree_text(x->path), *difference = NULL;
		int error = errno;
		bool steady = before % 2 == 0 && turn_of(w, i) == before;

		if (text && expect_fits(x, text)) {
			__atomic_add_fetch(&w->shared->sights, 1, __ATOMIC_SEQ_CST);
			return true;
		}
		before = turn_of(w, i);
		if (is_dead(w) || (!steady && !tree_is_listed(x->path)))
			return true;
		if (!steady && looks < LOOKS)
			continue;
		difference = text ? tree_difference(text, x->states[0] ? x->states[0] : "") : strdup(strerror(error));
		shared_fail(w->shared, "the observer: %s is listed, and in none of its %zu states; of the first: %s",
			    x->path, x->count, difference);
		return false;
	}
}

// A name that the trace has as plain: a pattern, with '/' at the end for a folder.
static bool is_plain(const struct watch *w, const char *path, bool *ret_folder)
{
	for (const char *const *plain = w->trace->plain; plain && *plain; plain++) {
		char pattern[EXPECT_PATH_MAX];
		size_t len = strlen(*plain);

		*ret_folder = (*plain)[len - 1] == '/';
		snprintf(pattern, sizeof(pattern), "%.*s", (int)(len - *ret_folder), *plain);
		if (!fnmatch(pattern, path, FNM_PATHNAME))
			return true;
	}
	return false;
}

// What has been seen stays, while the trace does nothing to it.
static bool look_for_missing(struct watch *w, const char *folder, const bool *listed, const unsigned *before)
{
	for (size_t i = 0; i < w->expect->count; i++) {
		const char *path = w->expect->things[i].path, *slash = strrchr(path, '/');
		size_t len = slash ? (size_t)(slash - path) : 0;
		unsigned seen = w->seen[i];

		if (strlen(folder) != len || strncmp(folder, path, len))
			continue;
		w->seen[i] = listed[i] ? before[i] + 1 : 0;
		if (listed[i] || !seen || before[i] % 2 || seen != before[i] + 1 || turn_of(w, (int)i) != before[i] ||
		    is_dead(w))
			continue;
		shared_fail(w->shared, "the observer: %s was listed and is not any more", path);
		return false;
	}
	return true;
}

// folder: "" or a path.
static bool look_into(struct watch *w, const char *folder)
{
	unsigned before[EXPECT_MAX];
	bool listed[EXPECT_MAX] = {0}, good = true;
	struct dirent **entries = NULL;
	int count;

	for (int i = 0; i < EXPECT_MAX; i++)
		before[i] = turn_of(w, i);
	count = scandir(*folder ? folder : ".", &entries, NULL, alphasort);
	if (count < 0) {
		if (is_dead(w) || (*folder && errno == ENOENT))
			return true;
		shared_fail(w->shared, "the observer: listing of /%s: %s", folder, strerror(errno));
		return false;
	}
	for (int k = 0; k < count; k++) {
		CLEANUP_FREE struct dirent *entry = entries[k];
		char path[PATH_MAX];
		bool is_folder;
		int i;

		if (!good || !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", entry->d_name);
		i = expect_find(w->expect, path);
		if (i >= 0) {
			listed[i] = true;
			good = look_at(w, i, before[i]);
		} else if (is_plain(w, path, &is_folder)) {
			good = !is_folder || look_into(w, path);
		} else if (!is_dead(w)) {
			shared_fail(w->shared, "the observer: %s is listed, and nothing has completed it", path);
			good = false;
		}
	}
	free(entries);
	return good && look_for_missing(w, folder, listed, before);
}

bool observer_look(const struct trace *trace, const struct expect *expect, struct shared *shared)
{
	struct watch w = {.trace = trace, .expect = expect, .shared = shared};

	return look_into(&w, "");
}

int observer_run(const struct trace *trace, const struct expect *expect, struct shared *shared)
{
	struct watch w = {.trace = trace, .expect = expect, .shared = shared};
	bool quit;

	do {
		quit = __atomic_load_n(&shared->quit, __ATOMIC_SEQ_CST);
		if (!look_into(&w, ""))
			return EXIT_FAILED;
		usleep(PAUSE_US);
	} while (!quit && !is_dead(&w));
	return EXIT_DONE;
}

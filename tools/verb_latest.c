#include "tools/verb.h"

#include "core/util.h"
#include "tools/listing.h"
#include "tools/output.h"

#include <fcntl.h>
#include <stdio.h>

#define BY_TRACKER (-1)

static const struct {
	const char *word;
	int by; // enum ckpt_latest_by, or BY_TRACKER
} orders[] = {
	{"commit", CKPT_LATEST_BY_COMMIT}, {"step", CKPT_LATEST_BY_STEP},   {"timestamp", CKPT_LATEST_BY_TIMESTAMP},
	{"tracker", BY_TRACKER},           {"mtime", CKPT_LATEST_BY_MTIME},
};

enum { KEY_BY = 0x100 };

static const struct argp_option options[] = {
	{"by", KEY_BY, "ORDER", 0,
	 "commit: the last that was committed (default); step: the highest number; timestamp: the last that was "
	 "committed first, by the clock; mtime: by its directory's time; tracker: the one that a framework's file says "
	 "(latest_checkpointed_iteration.txt, latest)",
	 0},
	{0},
};

static int on_option(int key __attribute__((unused)), char *arg, void *input)
{
	const char *words[ARRAY_LEN(orders) + 1] = {0}, *nearest;
	CLEANUP_FREE char *hint = NULL;

	for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
		words[i] = orders[i].word;
		if (!strcmp(arg, words[i])) {
			*(int *)input = orders[i].by;
			return 0;
		}
	}
	nearest = ckpt_nearest(arg, words);
	hint = nearest ? ckpt_text("did you mean %s?", nearest)
		       : ckpt_text("commit, step, timestamp, tracker or mtime");
	return ckpt_usage(arg, hint, "no such order");
}

// --- Trackers: a framework's own word for which step is the newest ------------------------------------------------------

// The one word that a small file holds; false: there is no such file, or it holds something else.
static bool read_word(int dirfd, const char *name, char word[CKPT_NAME_MAX + 1])
{
	CLEANUP_FD int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[CKPT_NAME_MAX + 32] = "";
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	char *start = text + strspn(text, " \t\r\n");
	size_t word_len = strcspn(start, "\r\n");

	while (word_len && (start[word_len - 1] == ' ' || start[word_len - 1] == '\t'))
		word_len--;
	if (len <= 0 || !word_len || word_len > CKPT_NAME_MAX)
		return false;
	memcpy(word, start, word_len);
	word[word_len] = '\0';
	return true;
}

static struct ckpt_step *find_committed(const struct ckpt_listing *l, const char *folder_id, const char *name)
{
	struct ckpt_step *step = ckpt_step_find(l->store, folder_id, name);

	if (step && ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		return step;
	ckpt_step_unref(step);
	return NULL;
}

// Of Megatron and ByteCheckpoint: a number, or "release".
static struct ckpt_step *step_of_iteration(const struct ckpt_listing *l, const char *folder_id, const char *word)
{
	static const char *const forms[] = {"iter_%07lld", "global_step_%lld"};
	struct ckpt_step *step = NULL;
	char *end;
	long long iteration;

	if (!strcmp(word, "release"))
		return find_committed(l, folder_id, word);
	errno = 0;
	iteration = strtoll(word, &end, 10);
	if (*end || errno || iteration < 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(forms) && !step; i++) {
		CLEANUP_FREE char *name = ckpt_text(forms[i], iteration);

		step = find_committed(l, folder_id, name);
	}
	return step;
}

// What a tracker in the folder says, if it is true.
static struct ckpt_step *tracked(const struct ckpt_listing *l, const char *folder, const char *folder_id)
{
	CLEANUP_FD int dirfd =
		openat(l->store->tree_fd, *folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char word[CKPT_NAME_MAX + 1];
	struct ckpt_step *step = NULL;

	if (dirfd < 0)
		return NULL;
	if (read_word(dirfd, "latest_checkpointed_iteration.txt", word))
		step = step_of_iteration(l, folder_id, word);
	if (!step && read_word(dirfd, "latest", word)) // of DeepSpeed: a name
		step = find_committed(l, folder_id, word);
	return step;
}

// --- The verb ---------------------------------------------------------------------------------------------------------

static char *latest_name(const struct ckpt_listing *l, const char *folder, int by)
{
	const char *folder_id = ckpt_listing_folder(l, folder);
	struct ckpt_step *step = NULL;
	char *name;

	if (folder_id)
		step = by == BY_TRACKER ? tracked(l, folder, folder_id)
					: ckpt_listing_latest(l, folder_id, (enum ckpt_latest_by)by, 0);
	name = step ? ckpt_listing_name(l, step->folder_id, step->name) : NULL;
	ckpt_step_unref(step);
	return name;
}

static int print(const char *name, const char *where, int by)
{
	if (ckpt_output.json)
		ckpt_output_json(json_pack("{s:o}", "name", ckpt_json_text(name)));
	else if (name)
		puts(name);
	if (!name)
		ckpt_note("%s: %s", where,
			  by == BY_TRACKER ? "no tracker names a committed step" : "no committed step");
	return name ? 0 : 1;
}

int ckpt_verb_latest(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [FOLDER]",
		.doc = "Prints the name of the newest committed step; exit status 1 when there is none.\v"
		       "Without FOLDER it is that of the root, or of all folders when the root has no steps.\n\n"
		       "Examples:\n"
		       "  ckptfs latest /ckpt && python train.py --resume\n"
		       "  ckptfs latest --by step /data/run42 checkpoints",
		.options = options,
		.option = on_option,
		.operands_max = 2,
	};
	struct ckpt_words words;
	struct ckpt_operand o;
	struct ckpt_listing l;
	int by = CKPT_LATEST_BY_COMMIT, rc;

	ckpt_verb_parse(&syntax, argc, argv, &by, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count > 1 ? ckpt_usage(o.steps[1], "usage: ckptfs latest [STORE] [FOLDER]", "one operand too many") : 0;
	if (!rc)
		rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		// The current directory counts as a folder where it is one of steps, as with other names.
		const char *here = ckpt_listing_folder(&l, o.folder) ? o.folder : "";
		const char *folder = o.count ? o.steps[0] : here;
		CLEANUP_FREE char *name = latest_name(&l, folder, by);

		rc = print(name, *folder ? folder : o.store, by);
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	return rc;
}

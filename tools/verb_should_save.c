// should-save: whether a step is to be saved. All who ask for one step get one answer.
#include "tools/verb.h"

#include "core/limits.h"
#include "core/should_save.h"
#include "core/sys.h"
#include "core/util.h"
#include "tools/listing.h"
#include "tools/output.h"

#include <stdio.h>

#define EXIT_ERROR 2 // 1 is no
// As long as the slowest decision of somebody else takes, and some more.
#define PATIENCE_NS ((CKPT_POLICY_EXEC_SECS_MAX + INT64_C(10)) * 1000000000)

// Where the store is mounted; malloc'ed, NULL: nowhere.
static char *mountpoint_of(const char *path)
{
	struct ckpt_holder h = {0};
	char *mountpoint = ckpt_store_holder(path, &h) ? NULL : TAKE_PTR(h.mountpoint);

	ckpt_holder_done(&h);
	return mountpoint;
}

// The store may be another asker's for as long as he decides. -EBUSY: for longer, or it is mounted by now.
static int open_store(const char *path, struct ckpt_store **ret_store)
{
	int64_t end_ns = ckpt_sys.mono_ns() + PATIENCE_NS;
	struct ckpt_settings settings;
	bool again = true;
	int rc = -EBUSY;

	ckpt_settings_init(&settings);
	settings.keep_trash = true;
	while (again) {
		CLEANUP_FREE char *mountpoint = NULL;

		rc = ckpt_store_open(path, CKPT_STORE_WRITE, &settings, ret_store);
		mountpoint = rc == -EBUSY ? mountpoint_of(path) : NULL;
		again = rc == -EBUSY && !mountpoint && ckpt_sys.mono_ns() < end_ns;
	}
	ckpt_settings_done(&settings);
	return rc;
}

static void print(const struct ckpt_decision *d)
{
	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:b, s:b, s:o}", "save", (int)d->save, "permanent",
						     (int)d->permanent, "policy", ckpt_json_text(d->by))));
	else if (d->save)
		printf("yes %s %s\n", d->permanent ? "permanent" : "temporary", d->by);
	else
		puts("no");
}

static int fail(const char *path, int error, const char *why)
{
	CLEANUP_FREE char *text = NULL, *hint = NULL;

	if (!why)
		ckpt_listing_explain(path, error, &text, &hint);
	(void)ckpt_fail(path, error == -EBADMSG && why ? "`ckptfs policy set` replaces it" : hint, "%s%s",
			error == -EBADMSG && why ? "its policy is damaged: " : "", why ? why : text);
	return EXIT_ERROR;
}

// The seam for mounts, which alone know of saves in progress and of preemptions: they are to decide for their store.
static int ask_mount(const char *path, const char *mountpoint)
{
	CLEANUP_FREE char *hint = ckpt_text("`ckptfs umount %s` first", mountpoint);

	(void)ckpt_fail(path, hint, "is mounted at %s, and a mount decides nothing yet", mountpoint);
	return EXIT_ERROR;
}

static int should_save(const char *path, struct ckpt_decide *q)
{
	CLEANUP_FREE char *why = NULL, *mountpoint = mountpoint_of(path);
	struct ckpt_decided decided;
	struct ckpt_decision d;
	struct ckpt_store *s;
	int rc;

	if (mountpoint)
		return ask_mount(path, mountpoint);
	rc = open_store(path, &s);
	if (rc)
		return fail(path, rc, NULL);
	rc = ckpt_should_save_at_rest(s, q, &decided, &d, &why);
	ckpt_store_close(s);
	if (rc)
		return fail(path, rc, why ? why : strerror(-rc));
	print(&d);
	return d.save ? 0 : 1;
}

static int parse_step(const char *word, int64_t *ret_step)
{
	if (!*word || strlen(word) > 18 || strspn(word, "0123456789") < strlen(word))
		return ckpt_usage(word, "usage: ckptfs should-save [STORE] N", "is no step number");
	*ret_step = atoll(word);
	return 0;
}

static int on_option(int key __attribute__((unused)), char *arg __attribute__((unused)), void *input)
{
	((struct ckpt_decide *)input)->force = true;
	return 0;
}

int ckpt_verb_should_save(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"force", 'f', NULL, 0, "yes, whatever the policy says", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] N",
		.doc = "Says whether the step N is to be saved, by the policy of the store: exit status 0 yes, 1 no, 2 "
		       "it "
		       "could not be decided.\v"
		       "All who ask for the same step get the same answer, for ten minutes, or until the step is "
		       "committed "
		       "or deleted. What is saved by time alone is temporary.\n\n"
		       "Examples:\n"
		       "  ckptfs should-save /data/run42 1000 && python save.py 1000\n"
		       "  ckptfs should-save --json /data/run42 1000",
		.options = options,
		.option = on_option,
		.operands_min = 1,
		.operands_max = 2,
	};
	struct ckpt_decide q = {.preempted_at = -1};
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &q, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return EXIT_ERROR;
	if (o.count != 1)
		rc = ckpt_usage("should-save", "usage: ckptfs should-save [STORE] N", "wants one step number");
	else
		rc = parse_step(words.at[words.count - 1], &q.step);
	if (!rc)
		rc = should_save(o.store, &q);
	ckpt_operand_done(&o);
	return rc;
}

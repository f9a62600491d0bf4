// should-save, preempt: whether a step is to be saved, and what is known when it is decided. All who ask for one step get
// one answer.
#include "core/request/should_save_ask.h"
#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/listing.h"
#include "tools/output.h"

#include <stdio.h>

#define EXIT_ERROR 2 // 1 is no

static int fail(const char *path, int error, const char *why)
{
	CLEANUP_FREE char *text = NULL, *hint = NULL;
	const char *better = ckpt_should_save_hint(error);

	if (!why)
		ckpt_listing_explain(path, error, &text, &hint);
	(void)ckpt_fail(path, better ? better : hint, "%s%s", error == -EBADMSG && why ? "its policy is damaged: " : "",
			why ? why : text);
	return EXIT_ERROR;
}

static int should_save(const char *path, struct ckpt_decide *q)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decided_step answer;
	const char *by = answer.by;
	int rc = ckpt_should_save_ask(path, q, &answer, &why);

	if (rc)
		return fail(path, rc, why);
	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:b, s:b, s:s?}", "save", (int)answer.save, "permanent",
						     (int)answer.permanent, "policy", *by ? by : NULL)));
	else if (answer.save)
		printf("yes %s %s\n", answer.permanent ? "permanent" : "temporary", by);
	else
		puts("no");
	return answer.save ? 0 : 1;
}

static int parse_step(const char *word, const char *usage, int64_t *ret_step)
{
	if (!*word || strlen(word) > 18 || strspn(word, "0123456789") < strlen(word))
		return ckpt_usage(word, usage, "is not a step number");
	*ret_step = atoll(word);
	return 0;
}

static int on_option(int key __attribute__((unused)), char *arg __attribute__((unused)), void *input)
{
	((struct ckpt_decide *)input)->force = true;
	return 0;
}

static const char usage[] = "usage: ckptfs should-save [STORE] [FOLDER/]N";

// The current directory is the run's where steps were ever in it, or where the root has none either: a run that begins there.
static bool is_run_here(const struct ckpt_operand *o)
{
	struct ckpt_listing l;
	bool is;

	if (!*o->folder || ckpt_listing_open(o->store, CKPT_STORE_READ, &l))
		return false;
	is = ckpt_listing_is_folder(&l, o->folder) || !ckpt_step_any(l.store, "");
	ckpt_listing_close(&l);
	return is;
}

// The folder is NULL where none is named, and we are in none of a run.
static int parse_run(const struct ckpt_operand *o, char **ret_folder, int64_t *ret_step)
{
	const char *word = o->steps[0], *slash = strrchr(word, '/');

	if (slash)
		*ret_folder = ckpt_text("%.*s", (int)(slash - word), word);
	else if (is_run_here(o))
		*ret_folder = ckpt_text("%s", o->folder);
	return parse_step(slash ? slash + 1 : word, usage, ret_step);
}

int ckpt_verb_should_save(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"force", 'f', NULL, 0, "answer yes, whatever the policy says", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [FOLDER/]N",
		.doc = "Says whether the policy of the store saves the step N. Exit status: 0 yes, 1 no, 2 "
		       "it could not be decided.\v"
		       "All processes that ask for one step get the same answer, for ten minutes, or until "
		       "the step is committed or deleted, or another policy is set. A step that only time "
		       "asked for is temporary, unless its marker says that it is not. FOLDER is the folder "
		       "of the run, in a store with several runs.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs should-save /data/run42 1000 && python save.py 1000\n"
		       "  ckptfs should-save --json /data/runs run7/1000",
		.options = options,
		.option = on_option,
		.operands_min = 1,
		.operands_max = 2,
	};
	struct ckpt_decide q = {.preempted_at = -1};
	CLEANUP_FREE char *run = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &q, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return EXIT_ERROR;
	rc = o.count == 1 ? parse_run(&o, &run, &q.step) : ckpt_usage("should-save", usage, "wants one step number");
	q.run = run;
	if (!rc)
		rc = should_save(o.store, &q);
	ckpt_operand_done(&o);
	return rc;
}

// --- preempt ----------------------------------------------------------------------------------------------------------

struct preempt {
	int64_t at_step; // -1: it is taken back
	bool given;
};

static const char preempt_usage[] = "usage: ckptfs preempt [STORE] [--at N | --cancel]";

static int preempt(const char *path, int64_t at_step)
{
	CLEANUP_FREE char *why = NULL, *text = NULL, *hint = NULL;
	int rc = ckpt_should_save_preempt(path, at_step, &why);

	if (!rc)
		return 0;
	if (!why)
		ckpt_listing_explain(path, rc, &text, &hint);
	return ckpt_fail(path, hint, "%s", why ? why : text);
}

static int on_preempt_option(int key, char *arg, void *input)
{
	struct preempt *p = input;

	if (p->given)
		return ckpt_usage(key == 'a' ? "--at" : "--cancel", preempt_usage, "takes no other option");
	p->given = true;
	p->at_step = -1;
	return key == 'a' ? parse_step(arg, preempt_usage, &p->at_step) : 0;
}

int ckpt_verb_preempt(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"at", 'a', "N", 0, "it comes at step N (default: at the next step that is asked for)", 0},
		{"cancel", 'c', NULL, 0, "take it back", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE]",
		.doc = "Announces a preemption, so that the policy can save the run before it.\v"
		       "SIGUSR1 to the process of the mount does the same, and so does `touch "
		       ".ckptfs/preempted` in the mount. `rm` of that file takes it back, and so does an "
		       "unmount. For a store that is not mounted it holds until --cancel, or until the next "
		       "mount ends. All processes that ask `ckptfs should-save` see it at the same step; "
		       "answers that were given before stay.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs preempt /ckpt\n"
		       "  ckptfs preempt --at 1200 /data/run42",
		.options = options,
		.option = on_preempt_option,
		.operands_max = 1,
	};
	struct preempt p = {0};
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &p, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count ? ckpt_usage(o.steps[0], preempt_usage, "is no store") : preempt(o.store, p.at_step);
	ckpt_operand_done(&o);
	return rc;
}

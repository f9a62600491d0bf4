// note: metrics and extras for a step that is committed.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/save/version.h"
#include "tools/act.h"
#include "tools/output.h"

static int note_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	return ckpt_version_note(step, act->metadata);
}

static int note_option(int key __attribute__((unused)), char *arg, void *input)
{
	*(const char **)input = arg;
	return 0;
}

static int note(const struct ckpt_operand *o, const char *file)
{
	struct ckpt_verb_act act = {.verb = "note", .at_rest = note_at_rest};
	CLEANUP_FREE char *session = NULL, *metadata = NULL;
	const char *word = o->count ? o->steps[0] : NULL;
	int rc;

	if (!word || !file)
		return ckpt_usage("note", "usage: ckptfs note [STORE] STEP --metadata FILE",
				  word ? "--metadata is missing" : "no step is named");
	if (ckpt_listing_is_trash(word))
		return ckpt_usage(word, "`ckptfs undelete` it first", "is in the trash");
	rc = ckpt_act_metadata(file, &metadata);
	if (!rc && !metadata)
		rc = ckpt_fail(file, "as in {\"metrics\":{\"loss\":1.5}}", "it is empty");
	if (!rc && ckpt_metadata_is_note(metadata) == -EINVAL)
		rc = ckpt_fail(file, "`ckptfs promote` makes a temporary step permanent",
			       "a note has metrics and extras alone");
	if (!rc)
		rc = ckpt_act_find(o, word, &session, NULL, NULL);
	act.metadata = metadata;
	return rc ? rc : ckpt_act_on(o->store, word, session, &act);
}

int ckpt_verb_note(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"metadata", 'm', "FILE", 0, "JSON to add: {\"metrics\":{...},\"extras\":{...}}; - is stdin", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP",
		.doc = "Adds metrics and extras to a committed step, as a new version with the same files. "
		       "A name that the step has already gets the new value; other names stay.\v"
		       "Examples:\n"
		       "  ckptfs note --metadata eval.json /ckpt 1000\n"
		       "  ckptfs note --metadata - /data/run42 latest < eval.json",
		.options = options,
		.option = note_option,
		.operands_min = 1,
		.operands_max = 2,
	};
	const char *file = NULL;
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &file, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count > 1 ? ckpt_usage(o.steps[1], "name one step", "is one step too many") : note(&o, file);
	ckpt_operand_done(&o);
	return rc;
}

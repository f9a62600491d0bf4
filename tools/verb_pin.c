// pin, unpin, promote: a step that is not to be deleted, or not by itself.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/policy/temporary.h"
#include "core/save/pin.h"
#include "tools/act.h"
#include "tools/output.h"

static int pin_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_pin(step, true);
}

static int unpin_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_pin(step, false);
}

static int promote_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_promote(step);
}

static int one(const struct ckpt_operand *o, const char *word, const struct ckpt_verb_act *act)
{
	CLEANUP_FREE char *session = NULL;
	int rc = ckpt_listing_is_trash(word) ? ckpt_usage(word, "`ckptfs undelete` it first", "is in the trash")
					     : ckpt_act_find(o, word, &session, NULL, NULL);

	return rc ? rc : ckpt_act_on(o->store, word, session, act);
}

static int each(const struct ckpt_words *words, const struct ckpt_verb_act *act)
{
	CLEANUP_FREE char *usage = ckpt_text("usage: ckptfs %s [STORE] STEP...", act->verb);
	struct ckpt_operand o;
	int status = ckpt_operand_take(words, &o);

	if (status)
		return status;
	if (!o.count)
		status = ckpt_usage(act->verb, usage, "no step is named");
	for (size_t i = 0; i < o.count; i++) {
		int rc = one(&o, o.steps[i], act);

		status = MAX(status, rc);
	}
	ckpt_operand_done(&o);
	return status;
}

int ckpt_verb_pin(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP...",
		.doc = "Pins steps: they cannot be deleted before `ckptfs unpin`.\v"
		       "Examples:\n"
		       "  ckptfs pin /ckpt 1000\n"
		       "  ckptfs pin /data/run42 latest checkpoints/2000",
		.operands_min = 1,
		.operands_max = UINT_MAX,
	};
	static const struct ckpt_verb_act act = {.verb = "pin", .at_rest = pin_at_rest};
	struct ckpt_words words;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	return each(&words, &act);
}

int ckpt_verb_unpin(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP...",
		.doc = "Unpins steps: they can be deleted again.\v"
		       "Examples:\n"
		       "  ckptfs unpin /ckpt 1000\n"
		       "  ckptfs unpin /data/run42 checkpoints/2000",
		.operands_min = 1,
		.operands_max = UINT_MAX,
	};
	static const struct ckpt_verb_act act = {.verb = "unpin", .at_rest = unpin_at_rest};
	struct ckpt_words words;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	return each(&words, &act);
}

int ckpt_verb_promote(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP...",
		.doc = "Makes temporary steps permanent: they stay when the next step is committed in their "
		       "folder. A step is temporary if its marker ({\"temporary\":true}), its framework or "
		       "the policy says so.\v"
		       "Examples:\n"
		       "  ckptfs promote /ckpt 1000\n"
		       "  ckptfs promote /data/run42 latest",
		.operands_min = 1,
		.operands_max = UINT_MAX,
	};
	static const struct ckpt_verb_act act = {.verb = "promote", .at_rest = promote_at_rest};
	struct ckpt_words words;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	return each(&words, &act);
}

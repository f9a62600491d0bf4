#include "core/base/util.h"
#include "core/save/restore.h"
#include "tools/act.h"
#include "tools/output.h"

#include <inttypes.h>
#include <stdio.h>

// The current version then.
static uint32_t made_at_rest;

static int restore_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	int rc = ckpt_restore(step, act->version);
	CLEANUP_VERSION struct ckpt_version *now = ckpt_step_version(step);

	made_at_rest = now->is.version;
	return rc;
}

// The session of the step, and the version that says where its bytes are.
static int find(const struct ckpt_operand *o, char **ret_session, uint32_t *ret_version)
{
	struct ckpt_at_version at;
	struct ckpt_listing l;
	const char *word = o->steps[0];
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = ckpt_listing_version(&l, o, word, &at);
	if (!rc) {
		*ret_session = ckpt_text("%s", at.named->session);
		*ret_version = at.version->is.version;
		if (*at.path)
			rc = ckpt_usage(word, "`ckptfs cat STEP@VERSION PATH` prints a file of a version",
					"a file in a step, where a whole step is wanted");
		else if (at.named != at.step)
			rc = ckpt_fail(word,
				       "`ckptfs rm` the step, then `ckptfs undelete` it: `ckptfs ls --trash` lists it",
				       "another save has replaced that one, which is in the trash");
		else if (ckpt_listing_is_trash(word))
			rc = ckpt_usage(word, "`ckptfs undelete` it first", "is in the trash");
		ckpt_at_version_done(&at);
	}
	ckpt_listing_close(&l);
	return rc;
}

static void tell(const char *word, const json_t *reply)
{
	json_int_t made = reply ? json_integer_value(json_object_get(reply, "version")) : made_at_rest;
	int len = (int)(strrchr(word, '@') - word);

	if (ckpt_output.json)
		ckpt_output_json(json_pack("{s:s%, s:I}", "step", word, (size_t)len, "version", made));
	else if (!ckpt_output.quiet)
		printf("%.*s: has the files of version %s again, as version %" JSON_INTEGER_FORMAT "\n", len, word,
		       word + len + 1, made);
}

int ckpt_verb_restore(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP@VERSION",
		.doc = "Makes the files of an older version of a step the current ones again, by a new version, in one "
		       "act. STEP@-1 is what the step had before its last change. The step keeps its metadata and its "
		       "place in the order of commits.\v"
		       "Examples:\n"
		       "  ckptfs diff /ckpt 1000@-1 1000\n"
		       "  ckptfs restore /ckpt 1000@-1\n"
		       "  ckptfs restore /data/run42 checkpoints/2000@3",
		.operands_min = 1,
		.operands_max = 2,
	};
	struct ckpt_verb_act act = {.verb = "restore", .at_rest = restore_at_rest, .hint = ckpt_restore_hint};
	CLEANUP_FREE char *session = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	json_t *reply = NULL;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	act.reply = &reply;
	rc = o.count == 1 ? find(&o, &session, &act.version)
			  : ckpt_usage("restore", "usage: ckptfs restore [STORE] STEP@VERSION", "wants one version");
	if (!rc)
		rc = ckpt_act_on(o.store, o.steps[0], session, &act);
	if (!rc)
		tell(o.steps[0], reply);
	json_decref(reply);
	ckpt_operand_done(&o);
	return rc;
}

// rm, undelete, mv: a step goes to the trash, or for good, and back; or gets another name.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/save/amend.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/rm_arrays.h"

#include <stdio.h>

struct rm {
	bool now, yes;
	const char *arrays; // the beginning of their names, or NULL
};

static int delete_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	return act->for_good                                  ? ckpt_delete_for_good(step)
	       : ckpt_step_state(step) == CKPT_STEP_COMMITTED ? ckpt_delete(step)
							      : 0;
}

static int undelete_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_undelete(step);
}

static int move_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	return ckpt_move_to(step, act->to);
}

static int remove_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act)
{
	return ckpt_amend_remove(step, act->to);
}

// A new version of the step, without it.
static int remove_path(const struct ckpt_operand *o, const char *word, const char *session, const char *path,
		       const struct rm *rm)
{
	const struct ckpt_verb_act act = {
		.verb = "remove", .to = path, .at_rest = remove_at_rest, .hint = ckpt_delete_hint};

	if (ckpt_listing_is_trash(word))
		return ckpt_usage(word, "`ckptfs undelete` it first", "in the trash, where nothing can be changed");
	if (rm->now)
		return ckpt_usage(word, "the version before it still has the file, and is deleted with the step",
				  "--now is for whole steps");
	return ckpt_act_on(o->store, word, session, &act);
}

static int fail_pinned(const struct ckpt_operand *o, const char *word, const char *path)
{
	int len = (int)(strlen(word) - strlen(path));
	CLEANUP_FREE char *hint = NULL;

	while (*path && len > 1 && word[len - 1] == '/')
		len--;
	hint = ckpt_text("`ckptfs unpin %s %.*s` first", o->store, len, word);
	return ckpt_fail(word, hint, "it is pinned, so it is not removed");
}

static int remove_one(const struct ckpt_operand *o, const char *word, const struct rm *rm)
{
	const struct ckpt_verb_act act = {.verb = "delete",
					  .for_good = rm->now,
					  .deleted_only = ckpt_listing_is_trash(word),
					  .at_rest = delete_at_rest,
					  .hint = rm->now ? ckpt_expire_hint : ckpt_delete_hint};
	CLEANUP_FREE char *session = NULL, *path = NULL;
	bool pinned = false;
	int rc;

	if (rm->arrays)
		return ckpt_rm_arrays(o, word, rm->arrays);
	if (ckpt_listing_is_trash(word) && !rm->now)
		return ckpt_usage(word, "`rm --now` deletes it permanently", "is already in the trash");
	rc = ckpt_act_find(o, word, &session, &path, &pinned);
	if (!rc && pinned)
		return fail_pinned(o, word, path);
	if (!rc && *path)
		return remove_path(o, word, session, path, rm);
	if (!rc && rm->now)
		rc = ckpt_confirm(word, rm->yes, "Delete the step %s permanently?", word);
	return rc ? rc : ckpt_act_on(o->store, word, session, &act);
}

static int each(const struct ckpt_words *words, const char *verb, const char *usage,
		int (*one)(const struct ckpt_operand *o, const char *word, const struct rm *rm), const struct rm *rm)
{
	struct ckpt_operand o;
	int status = ckpt_operand_take(words, &o);

	if (status)
		return status;
	if (!o.count)
		status = ckpt_usage(verb, usage, "no step is named");
	for (size_t i = 0; i < o.count; i++) {
		int rc = one(&o, o.steps[i], rm);

		status = MAX(status, rc);
	}
	ckpt_operand_done(&o);
	return status;
}

enum { KEY_ARRAYS = 0x200 };

static int rm_option(int key, char *arg, void *input)
{
	struct rm *rm = input;

	if (key == KEY_ARRAYS) {
		rm->arrays = arg;
		return 0;
	}
	*(key == 'n' ? &rm->now : &rm->yes) = true;
	return 0;
}

int ckpt_verb_rm(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"arrays", KEY_ARRAYS, "PREFIX", 0,
		 "only the arrays whose names begin with PREFIX: a new version without them", 0},
		{"now", 'n', NULL, 0, "delete permanently: not to the trash, or from the trash", 0},
		{"yes", 'y', NULL, 0, "with --now: do not ask; needed where stdin is no terminal", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP[/PATH]...",
		.doc = "Moves steps to the trash, each in one act. `ckptfs undelete` restores them until "
		       "they expire (mount option trash=7d), or until the disk needs their room "
		       "(trash_limit, trash_reserve). With a PATH, only that file or folder is removed: the "
		       "step gets a new version without it.\v"
		       "--arrays drops arrays out of files, in one act. A file goes if all of its arrays do. Else it "
		       "is written again without them (safetensors, npz, torch), and an index loses their names. In a "
		       "zip of torch.save an array goes with its key in a dictionary, and all else stays; an array in "
		       "a list, a tuple or an object is refused. An array of zarr or of Orbax without OCDBT goes with "
		       "its folder, and metadata that name it are written again. "
		       "So is .metadata of torch.distributed.checkpoint; a .distcp file goes if nothing else is in it. "
		       "Other formats are refused, and the step stays as it is: `ckptfs derive --not` makes a new step "
		       "then. `ckptfs restore STEP@-1` brings the arrays back.\n\n"
		       "Examples:\n"
		       "  ckptfs rm /ckpt 1000 2000\n"
		       "  ckptfs rm /ckpt 1000/optimizer.pt\n"
		       "  ckptfs rm --arrays optimizer. /ckpt 1000\n"
		       "  ckptfs rm --now --yes /data/run42 trash/1000",
		.options = options,
		.option = rm_option,
		.operands_min = 1,
		.operands_max = UINT_MAX,
	};
	struct ckpt_words words;
	struct rm rm = {0};

	ckpt_verb_parse(&syntax, argc, argv, &rm, &words);
	if (rm.arrays && rm.now)
		return ckpt_usage("rm", "the version before it still has the arrays, and is deleted with the step",
				  "--now is for whole steps");
	return each(&words, "rm", "usage: ckptfs rm [STORE] STEP[/PATH]...", remove_one, &rm);
}

static int undelete_one(const struct ckpt_operand *o, const char *word, const struct rm *rm __attribute__((unused)))
{
	static const struct ckpt_verb_act act = {
		.verb = "undelete", .at_rest = undelete_at_rest, .hint = ckpt_undelete_hint};
	CLEANUP_FREE char *in_trash = ckpt_text("%s%s", ckpt_listing_is_trash(word) ? "" : "trash/", word),
			  *session = NULL;
	int rc = ckpt_act_find(o, in_trash, &session, NULL, NULL);

	return rc ? rc : ckpt_act_on(o->store, word, session, &act);
}

int ckpt_verb_undelete(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP...",
		.doc = "Restores steps from the trash, as they were. A temporary step becomes permanent.\v"
		       "Examples:\n"
		       "  ckptfs ls --trash /ckpt\n"
		       "  ckptfs undelete /ckpt 1000\n"
		       "  ckptfs undelete /data/run42 checkpoints/2000",
		.operands_min = 1,
		.operands_max = UINT_MAX,
	};
	struct ckpt_words words;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	return each(&words, "undelete", "usage: ckptfs undelete [STORE] STEP...", undelete_one, NULL);
}

int ckpt_verb_mv(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] OLD NEW",
		.doc = "Renames a step in one act, also into another folder.\v"
		       "Examples:\n"
		       "  ckptfs mv /ckpt 1000 1000-before-the-crash\n"
		       "  ckptfs mv /data/run42 2000 best/2000",
		.operands_min = 2,
		.operands_max = 3,
	};
	CLEANUP_FREE char *session = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count != 2)
		rc = ckpt_usage("mv", "usage: ckptfs mv [STORE] OLD NEW", "wants a step and its new name");
	else if (ckpt_listing_is_trash(o.steps[0]))
		rc = ckpt_usage(o.steps[0], "`ckptfs undelete` it first", "is in the trash");
	else
		rc = ckpt_act_find(&o, o.steps[0], &session, NULL, NULL);
	if (!rc) {
		CLEANUP_FREE char *to = ckpt_operand_new_name(&o, 1, words.at[words.count - 1]);
		const struct ckpt_verb_act act = {
			.verb = "move", .to = to, .at_rest = move_at_rest, .hint = ckpt_move_hint};

		rc = ckpt_act_on(o.store, o.steps[0], session, &act);
	}
	ckpt_operand_done(&o);
	return rc;
}

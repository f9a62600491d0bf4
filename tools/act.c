#include "tools/act.h"

#include "core/base/util.h"
#include "core/find/find.h"
#include "core/record/metadata.h"
#include "core/save/pin.h"
#include "core/step/ask.h"
#include "core/step/errlog.h"
#include "core/step/trash.h"
#include "tools/output.h"
#include "tools/progress.h"

#include <stdio.h>

static struct ckpt_step *find_unfinished(struct ckpt_store *s, const char *session)
{
	struct ckpt_step *step = NULL;

	if (ckpt_find_unfinished(s, session, &step) == -ENOMEM)
		ckpt_need(NULL);
	return step;
}

static int act_at_rest(const char *store, const char *word, const char *session, const struct ckpt_verb_act *act)
{
	struct ckpt_listing l;
	struct ckpt_step *step;
	int rc = ckpt_listing_open(store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	step = act->sessions ? find_unfinished(l.store, session) : ckpt_step_of_session(l.store, session);
	if (step && act->deleted_only && ckpt_step_state(step) != CKPT_STEP_DELETED)
		ckpt_step_unref(TAKE_PTR(step));
	rc = step ? act->at_rest(step, act) : -ESTALE;
	ckpt_step_unref(step);
	if (!rc && act->for_good)
		ckpt_trash_drain(*ckpt_trash_of(l.store));
	ckpt_listing_close(&l);
	return rc ? ckpt_fail_errno(word, act->hint ? act->hint(rc) : NULL, rc) : 0;
}

int ckpt_act_ask(const char *store, const char *word, const char *session, const struct ckpt_verb_act *act,
		 json_t **ret_reply)
{
	json_t *json = ckpt_need(
		json_pack("{s:s, s:b, s:s?, s:b, s:b, s:b, s:b, s:b, s:s?, s:s?, s:s?, s:s?, s:s?, s:I}", "verb",
			  act->verb, "progress", 1, "session", session, "for_good", (int)act->for_good, "deleted_only",
			  (int)act->deleted_only, "add_only", (int)act->add_only, "force", (int)act->force, "parents",
			  (int)act->parents, "profile", act->profile, "event", act->event, "to", act->to, "metadata",
			  act->metadata, "only", act->only, "version", (json_int_t)act->version));
	CLEANUP_FREE char *request = ckpt_need(json_dumps(json, JSON_COMPACT));
	CLEANUP_FREE char *text = NULL;
	// It would be done all the same after who has asked for it gave up.
	int rc = ckpt_ask_at_length(store, request, ckpt_progress_add, &text);

	json_decref(json);
	if (rc == -ENOENT)
		return rc;
	if (rc)
		return ckpt_fail(store, ckpt_errno_hint(rc), "the process that has it mounted does not answer: %s",
				 strerror(-rc));
	rc = ckpt_answer_fail(word, text);
	if (!rc && ret_reply)
		*ret_reply = ckpt_need(json_loads(text, 0, NULL));
	return rc;
}

int ckpt_act_on(const char *store, const char *word, const char *session, const struct ckpt_verb_act *act)
{
	int rc = ckpt_act_ask(store, word, session, act, act->reply);

	return rc == -ENOENT ? act_at_rest(store, word, session, act) : rc;
}

int ckpt_act_find(const struct ckpt_operand *o, const char *word, char **ret_session, char **ret_path, bool *ret_pinned)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_listing l;
	struct ckpt_step *step;
	int rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = ckpt_listing_find(&l, o, word, &step, &path);
	if (!rc && *path && !ret_path)
		rc = ckpt_usage(word, "name the step alone", "this is a file in a step; the verb wants a whole step");
	if (!rc)
		*ret_session = ckpt_text("%s", step->session);
	if (!rc && ret_pinned)
		*ret_pinned = ckpt_pin_is(step);
	if (!rc || path)
		ckpt_step_unref(step);
	if (!rc && ret_path)
		*ret_path = TAKE_PTR(path);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_act_metadata(const char *path, char **ret_json)
{
	CLEANUP_FREE char *text = malloc(CKPT_METADATA_BYTES_MAX + 2), *why = NULL;
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	size_t len;
	int rc;

	if (!f)
		return ckpt_fail_errno(path, NULL, -errno);
	ckpt_need(text);
	len = fread(text, 1, CKPT_METADATA_BYTES_MAX + 1, f);
	rc = ferror(f) ? -EIO : 0;
	if (f != stdin)
		fclose(f);
	if (!rc)
		rc = ckpt_metadata_parse(text, len, ret_json, &why);
	return rc ? ckpt_fail(path, "as in {\"temporary\":false,\"metrics\":{\"loss\":1.5},\"extras\":{}}", "%s",
			      why ? why : strerror(-rc))
		  : 0;
}

#include "core/request/should_save_ask.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/request/reach.h"

#define ASK_S (CKPT_DECIDED_PATIENCE_S + CKPT_POLICY_EXEC_SECS_MAX + 10) // its turn, its programs, and some more

struct act {
	struct ckpt_decide *q;
	struct ckpt_decided_step *answer;
	int64_t preempted_at;
};

static int ask_mount(const char *directory, void *arg, char **ret_why)
{
	const struct act *act = arg;
	const struct ckpt_decide *q = act->q;
	const char *by;
	json_t *reply;
	int rc;

	ckpt_json_begin();
	rc = ckpt_reach_ask(directory,
			    json_pack("{s:s, s:I, s:s?, s:b, s:s?}", "verb", "should-save", "step", (json_int_t)q->step,
				      "run", q->run, "force", (int)q->force, "answer",
				      q->answered ? ckpt_should_save_word(q->answer) : NULL),
			    ASK_S, &reply, ret_why);
	if (rc)
		return rc;
	by = json_string_value(json_object_get(reply, "policy"));
	*act->answer = (struct ckpt_decided_step){.step = q->step,
						  .save = json_is_true(json_object_get(reply, "save")),
						  .permanent = json_is_true(json_object_get(reply, "permanent"))};
	snprintf(act->answer->by, sizeof(act->answer->by), "%s", by ? by : "");
	json_decref(reply);
	return 0;
}

static int ask_store(struct ckpt_store *s, void *arg, char **ret_why)
{
	const struct act *act = arg;

	return ckpt_should_save_at_rest(s, act->q, act->answer, ret_why);
}

int ckpt_should_save_ask(const char *directory, struct ckpt_decide *q, struct ckpt_decided_step *ret_answer,
			 char **ret_why)
{
	struct act act = {.q = q, .answer = ret_answer};
	struct ckpt_reach reach = {ask_mount, ask_store, &act, CKPT_DECIDED_PATIENCE_NS, false};
	int rc;

	*ret_why = NULL;
	if (q->run && !ckpt_name_is_utf8(q->run, strlen(q->run)))
		return -EINVAL;
	rc = ckpt_reach(directory, &reach, ret_why);
	if (!reach.read_only)
		return rc;
	// Nothing can be saved, and a mount for reading says the same.
	*ret_answer = (struct ckpt_decided_step){.step = q->step, .by = CKPT_DECIDED_READ_ONLY};
	return 0;
}

// To take it back is another verb: a mount that does not know it must not take it for the one.
static int tell_mount(const char *directory, void *arg, char **ret_why)
{
	const struct act *act = arg;
	const char *verb = act->preempted_at < 0 ? "preempt-cancel" : "preempt";
	json_t *reply;
	int rc;

	ckpt_json_begin();
	rc = ckpt_reach_ask(directory, json_pack("{s:s, s:I}", "verb", verb, "step", (json_int_t)act->preempted_at),
			    CKPT_SOCKET_TIMEOUT_S, &reply, ret_why);
	if (!rc)
		json_decref(reply);
	return rc;
}

static int tell_store(struct ckpt_store *s, void *arg, char **ret_why __attribute__((unused)))
{
	const struct act *act = arg;

	return ckpt_should_save_preempt_at_rest(s, act->preempted_at);
}

int ckpt_should_save_preempt(const char *directory, int64_t at_step, char **ret_why)
{
	struct act act = {.preempted_at = at_step};
	struct ckpt_reach reach = {tell_mount, tell_store, &act, CKPT_DECIDED_PATIENCE_NS, false};

	return ckpt_reach(directory, &reach, ret_why);
}

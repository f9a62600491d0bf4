#include "core/request/policy_set.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/policy/policy_store.h"
#include "core/request/reach.h"

#define PATIENCE_NS (INT64_C(60) * 1000000000) // with others who write the store

static int ask_mount(const char *directory, void *arg, char **ret_why)
{
	CLEANUP_FREE char *text = ckpt_policy_text(arg);
	json_t *policy = NULL, *reply;
	int rc;

	if (!text || ckpt_json_load(text, strlen(text), 0, NULL, &policy))
		return -ENOMEM;
	ckpt_json_begin();
	rc = ckpt_reach_ask(directory, json_pack("{s:s, s:o}", "verb", "policy", "policy", policy),
			    CKPT_SOCKET_TIMEOUT_S, &reply, ret_why);
	if (!rc)
		json_decref(reply);
	return rc;
}

static int set_at_rest(struct ckpt_store *s, void *arg, char **ret_why __attribute__((unused)))
{
	return ckpt_policy_set(s, arg);
}

int ckpt_policy_set_in(const char *directory, struct ckpt_policy *p, char **ret_why)
{
	struct ckpt_reach reach = {ask_mount, set_at_rest, p, PATIENCE_NS, false};

	return ckpt_reach(directory, &reach, ret_why);
}

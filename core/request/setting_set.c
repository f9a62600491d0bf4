#include "core/request/setting_set.h"

#include "core/base/json.h"
#include "core/request/reach.h"
#include "core/step/shared_settings.h"

#define PATIENCE_NS (INT64_C(60) * 1000000000) // with others who write the store

struct set {
	const struct ckpt_setting *setting;
	const char *value;
};

static int ask_mount(const char *directory, void *arg, char **ret_why)
{
	const struct set *set = arg;
	json_t *reply;
	int rc;

	ckpt_json_begin();
	rc = ckpt_reach_ask(
		directory,
		json_pack("{s:s, s:s, s:s?}", "verb", "config", "key", set->setting->name, "value", set->value),
		CKPT_SOCKET_TIMEOUT_S, &reply, ret_why);
	if (!rc)
		json_decref(reply);
	return rc;
}

static int set_at_rest(struct ckpt_store *s, void *arg, char **ret_why __attribute__((unused)))
{
	const struct set *set = arg;

	return ckpt_shared_setting_set(s, set->setting, set->value);
}

int ckpt_setting_set_in(const char *directory, const struct ckpt_setting *setting, const char *value, char **ret_why)
{
	struct set set = {setting, value};
	struct ckpt_reach reach = {ask_mount, set_at_rest, &set, PATIENCE_NS, false};

	return ckpt_reach(directory, &reach, ret_why);
}

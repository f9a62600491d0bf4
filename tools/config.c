#include "tools/config.h"

#include "core/base/units.h"
#include "core/base/util.h"
#include "core/remote/place.h"
#include "core/step/store.h"
#include "core/store/open.h"
#include "tools/output.h"
#include "tools/verb.h"

int ckpt_config_give(const char *what, const struct ckpt_setting *setting, const char *value, struct ckpt_settings *s)
{
	CLEANUP_FREE char *hint = ckpt_text("%s wants %s", setting->name, setting->wants);
	int rc;

	if (!value && setting->kind != CKPT_SETTING_SWITCH)
		return ckpt_usage(what, hint, "needs a value: %s=%s", setting->name, setting->value);
	rc = ckpt_setting_give(setting, value ? value : "yes", s);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	return rc ? ckpt_usage(what, hint, "not understood") : 0;
}

const struct ckpt_setting *ckpt_config_find(const char *name, size_t len)
{
	CLEANUP_FREE char *key = ckpt_text("%.*s", (int)len, name), *hint = NULL;
	const struct ckpt_setting *setting = ckpt_setting_find(key);
	const char *names[CKPT_SETTINGS_MAX + 1], *nearest;
	size_t n = 0;

	if (setting)
		return setting;
	for (; ckpt_setting_at(n); n++)
		names[n] = ckpt_setting_at(n)->name;
	names[n] = NULL;
	nearest = ckpt_nearest(key, names);
	hint = nearest ? ckpt_text("did you mean %s?", nearest) : ckpt_text("`ckptfs config STORE` lists them");
	(void)ckpt_usage(*key ? key : "KEY", hint, "no such setting");
	return NULL;
}

int ckpt_config_read(const char *store, struct ckpt_settings *ret_settings)
{
	struct ckpt_store *s;
	int rc;

	if (!ckpt_remote_is_at(store))
		return ckpt_store_settings(store, ret_settings);
	rc = ckpt_store_open(store, CKPT_STORE_READ, NULL, &s);
	if (rc)
		return rc;
	rc = ckpt_settings_copy(ret_settings, &s->settings);
	ckpt_store_close(s);
	return rc;
}

json_t *ckpt_config_value(const struct ckpt_setting *setting, const struct ckpt_settings *s)
{
	CLEANUP_FREE char *text = ckpt_need(ckpt_setting_text(setting, s));
	uint64_t bytes;
	int64_t ns;

	switch (setting->kind) {
	case CKPT_SETTING_DURATION:
		if (ckpt_duration_parse(text, &ns))
			return json_null();
		return ckpt_need(ns % 1000000000 ? json_real((double)ns / 1e9) : json_integer(ns / 1000000000));
	case CKPT_SETTING_BYTES:
		return ckpt_size_parse(text, &bytes) ? json_null() : ckpt_need(json_integer((json_int_t)bytes));
	case CKPT_SETTING_COUNT:
		return strcmp(text, "all") ? ckpt_need(json_integer(atoll(text))) : ckpt_json_text(text);
	case CKPT_SETTING_SWITCH:
		return json_boolean(!strcmp(text, "yes"));
	default:
		return ckpt_json_text(*text ? text : NULL);
	}
}

json_t *ckpt_config_values(const struct ckpt_settings *s)
{
	json_t *values = ckpt_need(json_object());
	const struct ckpt_setting *setting;

	for (size_t i = 0; (setting = ckpt_setting_at(i)); i++)
		if (json_object_set_new(values, setting->name, ckpt_config_value(setting, s)))
			ckpt_need(NULL);
	return values;
}

#include "core/step/shared_settings.h"

#include "core/base/util.h"
#include "core/state/journal.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

#include <stdio.h>

// A value is "=" and the text that `ckptfs config` takes; "=" alone is the default. A key without a value says nothing of its setting.
#define SIGN '='

struct said {
	char key[CKPT_VALUE_KEY_MAX + 1];
	char *text;
};

struct said_list {
	struct said *at;
	size_t count, cap;
};

static void said_done(struct said_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->at[i].text);
	free(l->at);
}

static int add_said(void *arg, const struct ckpt_state *state)
{
	const struct ckpt_value_list *values = ckpt_state_values(state);
	struct said_list *l = arg;

	for (size_t i = 0; i < values->count; i++) {
		const struct ckpt_state_value *v = &values->at[i];
		struct said said = {.text = NULL};

		if (!ckpt_value_is_setting(v->key))
			continue;
		if (ckpt_grow((void **)&l->at, &l->cap, l->count + 1, sizeof(*l->at)))
			return -ENOMEM;
		memcpy(said.key, v->key, sizeof(said.key));
		said.text = strdup(v->text);
		if (!said.text)
			return -ENOMEM;
		l->at[l->count++] = said;
	}
	return 0;
}

// "setting" and the name without its underscores, which no key has.
static bool is_key_of(const char *key, const struct ckpt_setting *setting)
{
	const char *name = setting->name;

	for (key += strlen(CKPT_VALUE_SETTING); *key; key++) {
		name += strspn(name, "_");
		if (*name++ != *key)
			return false;
	}
	return !*name;
}

static void key_of(const struct ckpt_setting *setting, char ret_key[CKPT_VALUE_KEY_MAX + 1])
{
	size_t len = strlen(strcpy(ret_key, CKPT_VALUE_SETTING));

	for (const char *c = setting->name; *c && len < CKPT_VALUE_KEY_MAX; c++)
		if (*c != '_')
			ret_key[len++] = *c;
	ret_key[len] = '\0';
}

// NULL: this version has none, or it is no matter of others.
static const struct ckpt_setting *setting_of(const char *key)
{
	const struct ckpt_setting *setting;

	for (size_t i = 0; (setting = ckpt_setting_at(i)); i++)
		if (!setting->of_node && is_key_of(key, setting))
			return setting;
	return NULL;
}

// -EINVAL: it is none.
static int take(const struct ckpt_setting *setting, const char *text, struct ckpt_settings *s)
{
	if (*text != SIGN)
		return -EINVAL;
	return text[1] ? ckpt_setting_parse(setting, text + 1, s) : ckpt_setting_reset(setting, s);
}

static int load(struct ckpt_store *s, const struct said *said)
{
	const struct ckpt_setting *setting = setting_of(said->key);
	int rc;

	if (!setting) {
		ckpt_errlog_add(s->errlog, "settings", -EINVAL, "a later version of ckptfs may know it",
				"another node has set %s, which is no setting of this version: it is ignored",
				said->key + strlen(CKPT_VALUE_SETTING));
		return 0;
	}
	if (ckpt_setting_is_given(setting, &s->settings))
		return 0;
	rc = take(setting, said->text, &s->settings);
	if (rc != -EINVAL)
		return rc;
	ckpt_errlog_add(s->errlog, "settings", rc, "set it with `ckptfs config STORE KEY=VALUE`",
			"the value of %s that the nodes of the store share is wrong and is ignored", setting->name);
	return 0;
}

int ckpt_shared_settings_load(struct ckpt_store *s)
{
	CLEANUP(said_done) struct said_list l = {0};
	int rc = ckpt_journal_look(s->journal, add_said, &l);

	for (size_t i = 0; i < l.count && !rc; i++)
		rc = load(s, &l.at[i]);
	return rc;
}

int ckpt_shared_setting_set(struct ckpt_store *s, const struct ckpt_setting *setting, const char *value)
{
	char key[CKPT_VALUE_KEY_MAX + 1];
	CLEANUP_FREE char *text = NULL;

	if (asprintf(&text, "%c%s", SIGN, value ? value : "") < 0) {
		text = NULL;
		return -ENOMEM;
	}
	if (strlen(text) > CKPT_VALUE_SETTING_BYTES_MAX)
		return -EFBIG;
	key_of(setting, key);
	return ckpt_journal_set(s->journal, key, CKPT_ACT_ANY, text);
}

// --- A remote comes and goes --------------------------------------------------------------------------------------------

static bool is_said(const struct said_list *l, const struct ckpt_setting *setting)
{
	for (size_t i = 0; i < l->count; i++)
		if (is_key_of(l->at[i].key, setting))
			return true;
	return false;
}

// As it is written from then on; NULL: store.json has no value of it that counts. -ENOMEM.
static int text_in(const json_t *object, const struct ckpt_setting *setting, char **ret_text)
{
	const char *text = json_string_value(json_object_get(object, setting->name));
	struct ckpt_settings s;
	int rc;

	*ret_text = NULL;
	if (!text)
		return 0;
	ckpt_settings_init(&s);
	rc = ckpt_setting_parse(setting, text, &s);
	if (!rc) {
		*ret_text = ckpt_setting_text(setting, &s);
		rc = *ret_text ? 0 : -ENOMEM;
	}
	ckpt_settings_done(&s);
	return rc == -EINVAL ? 0 : rc;
}

int ckpt_shared_settings_add(struct ckpt_store *s, const json_t *object)
{
	CLEANUP(said_done) struct said_list l = {0};
	const struct ckpt_setting *setting;
	int rc = ckpt_journal_look(s->journal, add_said, &l);

	for (size_t i = 0; !rc && (setting = ckpt_setting_at(i)); i++) {
		CLEANUP_FREE char *text = NULL;

		if (setting->of_node)
			continue;
		rc = text_in(object, setting, &text);
		if (!rc && (text || is_said(&l, setting)))
			rc = ckpt_shared_setting_set(s, setting, text);
	}
	return rc;
}

static int keep(const struct said *said, json_t *object)
{
	const struct ckpt_setting *setting = setting_of(said->key);
	struct ckpt_settings s;
	int rc;

	if (!setting)
		return 0;
	ckpt_settings_init(&s);
	rc = take(setting, said->text, &s);
	ckpt_settings_done(&s);
	if (rc)
		return rc == -EINVAL ? 0 : rc;
	if (said->text[1])
		return json_object_set_new(object, setting->name, json_string(said->text + 1)) ? -ENOMEM : 0;
	(void)json_object_del(object, setting->name);
	return 0;
}

int ckpt_shared_settings_keep(struct ckpt_store *s, json_t *object)
{
	CLEANUP(said_done) struct said_list l = {0};
	int rc = ckpt_journal_look(s->journal, add_said, &l);

	for (size_t i = 0; i < l.count && !rc; i++)
		rc = keep(&l.at[i], object);
	return rc;
}

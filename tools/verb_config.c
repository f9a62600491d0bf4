// config: the settings that a store keeps for its mounts.
#include "core/step/holder.h"
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/remote/place.h"
#include "core/request/setting_set.h"
#include "core/step/store.h"
#include "tools/config.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/push.h"

#include <stdio.h>

struct config {
	struct ckpt_settings now, initial;
};

static const char *owner_of(const struct ckpt_setting *setting)
{
	return setting->of_node ? "node" : "store";
}

static json_t *row(const struct config *c, const struct ckpt_setting *setting)
{
	return ckpt_need(json_pack("{s:o, s:o, s:s, s:s}", "value", ckpt_config_value(setting, &c->now), "default",
				   ckpt_config_value(setting, &c->initial), "of", owner_of(setting), "help",
				   setting->help));
}

static void print_json(const struct config *c, const struct ckpt_setting *only)
{
	json_t *rows = ckpt_need(json_object());
	const struct ckpt_setting *setting;

	for (size_t i = 0; (setting = ckpt_setting_at(i)); i++)
		if ((!only || setting == only) && json_object_set_new(rows, setting->name, row(c, setting)))
			ckpt_need(NULL);
	ckpt_output_json(rows);
}

static void print_table(const struct config *c)
{
	struct ckpt_table *t = ckpt_table_new();
	const struct ckpt_setting *setting;

	ckpt_table_column(t, "KEY", CKPT_LEFT);
	ckpt_table_column(t, "VALUE", CKPT_LEFT);
	ckpt_table_column(t, "DEFAULT", CKPT_LEFT);
	ckpt_table_column(t, "OF", CKPT_LEFT);
	ckpt_table_column(t, "MEANING", CKPT_LEFT);
	for (size_t i = 0; (setting = ckpt_setting_at(i)); i++) {
		CLEANUP_FREE char *value = ckpt_need(ckpt_setting_text(setting, &c->now));
		CLEANUP_FREE char *initial = ckpt_need(ckpt_setting_text(setting, &c->initial));

		ckpt_table_row(t, (const char *const[]){setting->name, *value ? value : NULL, *initial ? initial : NULL,
							owner_of(setting), setting->help});
	}
	ckpt_table_print(t);
}

static int refused(const char *store, int error)
{
	CLEANUP_FREE char *why = NULL, *hint = NULL;

	ckpt_listing_explain(store, error, &why, &hint);
	return ckpt_fail(store, hint, "%s", why);
}

static int show(const char *store, const struct ckpt_setting *only)
{
	struct config c;
	int rc = ckpt_config_read(store, &c.now);

	if (rc)
		return refused(store, rc);
	ckpt_settings_init(&c.initial);
	if (ckpt_output.json) {
		print_json(&c, only);
	} else if (only) {
		CLEANUP_FREE char *value = ckpt_need(ckpt_setting_text(only, &c.now));

		puts(value);
	} else {
		print_table(&c);
	}
	ckpt_settings_done(&c.now);
	ckpt_settings_done(&c.initial);
	return 0;
}

static void tell_mount(const char *store)
{
	struct ckpt_holder h = {0};

	if (!ckpt_store_holder(store, &h) && h.mountpoint)
		ckpt_note("%s is mounted at %s: this takes effect at its next mount", store, h.mountpoint);
	ckpt_holder_done(&h);
}

static int set_here(const char *store, const struct ckpt_setting *setting, const char *text)
{
	int rc = ckpt_store_set(store, setting, text);

	return rc ? refused(store, rc) : 0;
}

static int share(const char *store, const struct ckpt_setting *setting, const char *text)
{
	CLEANUP_FREE char *why = NULL, *hint = NULL;
	int rc = ckpt_setting_set_in(store, setting, text, &why);

	if (rc == -EFBIG)
		return ckpt_fail(setting->name, NULL, "the value is too long for a store with a URL");
	if (rc && !why)
		ckpt_listing_explain(store, rc, &why, &hint);
	return rc ? ckpt_fail(store, rc == -EIO ? "`ckptfs config` says whether it is set" : hint, "%s", why) : 0;
}

// value "": its default again.
static int set(const char *store, const char *word, const struct ckpt_setting *setting, const char *value)
{
	struct ckpt_settings s;
	CLEANUP_FREE char *text = NULL;
	int rc;

	ckpt_settings_init(&s);
	rc = *value ? ckpt_config_give(word, setting, value, &s) : 0;
	if (!rc && *value)
		text = ckpt_need(ckpt_setting_text(setting, &s));
	ckpt_settings_done(&s);
	if (rc)
		return rc;
	rc = !setting->of_node && ckpt_remote_is_at(store) ? share(store, setting, text)
							   : set_here(store, setting, text);
	if (rc)
		return rc;
	tell_mount(store);
	if (ckpt_output.json)
		rc = show(store, setting);
	return rc ? rc : ckpt_push(store, INT64_MAX);
}

static int one(const char *store, const char *word)
{
	size_t len = strcspn(word, "=");
	const struct ckpt_setting *setting = ckpt_config_find(word, len);

	if (!setting)
		return CKPT_EXIT_USAGE;
	return word[len] ? set(store, word, setting, word + len + 1) : show(store, setting);
}

int ckpt_verb_config(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [KEY[=VALUE]]",
		.doc = "Shows or changes the settings that a store keeps for its mounts; KEY= sets the "
		       "default again. A mount option -o wins over a setting. A change holds from the next "
		       "mount on. Settings of a store with a URL are those of all its nodes, but for those "
		       "that are shown as OF node, which are about the disk of this machine.\v"
		       "Examples:\n"
		       "  ckptfs config /data/run42\n"
		       "  ckptfs config /data/run42 trash=30d\n"
		       "  ckptfs config s3://bucket/run42 amend=deny",
		.operands_max = 2,
	};
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (!o.count)
		rc = show(o.store, NULL);
	else if (o.count > 1)
		rc = ckpt_usage(o.steps[1], "usage: ckptfs config [STORE] [KEY[=VALUE]]", "one operand too many");
	else
		rc = one(o.store, words.at[words.count - 1]); // as it was written: it is no STEP
	ckpt_operand_done(&o);
	return rc;
}

// Hostile settings: the text as one value of each setting, and as the "settings" of store.json. What is taken is written
// back in a form that is taken and says the same; what is not taken changes nothing.

#include "tests/fuzz/replay.h"

#include "core/base/units.h"
#include "core/base/util.h"
#include "core/step/settings.h"

static void try_value(const struct ckpt_setting *setting, const char *text)
{
	struct ckpt_settings s, again;
	int rc;

	ckpt_settings_init(&s);
	CLEANUP_FREE char *before = ckpt_setting_text(setting, &s);
	rc = ckpt_setting_give(setting, text, &s);
	CLEANUP_FREE char *after = ckpt_setting_text(setting, &s), *back = NULL;

	fuzz_assert(rc == 0 || rc == -EINVAL);
	fuzz_assert(ckpt_setting_is_given(setting, &s) == !rc);
	if (rc) {
		fuzz_assert(!strcmp(before, after));
	} else {
		ckpt_settings_init(&again);
		fuzz_assert(!ckpt_setting_parse(setting, after, &again));
		back = ckpt_setting_text(setting, &again);
		fuzz_assert(!strcmp(after, back) && !strchr(after, '\n'));
		ckpt_settings_done(&again);
	}
	ckpt_settings_done(&s);
}

static void count_bad(void *arg, const char *name)
{
	fuzz_assert(name && ckpt_setting_find(name) ? 1 : !strcmp(name, "settings"));
	++*(unsigned *)arg;
}

static void try_object(const uint8_t *data, size_t len)
{
	json_t *object = json_loadb((const char *)data, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	struct ckpt_settings s, copy;
	unsigned bad = 0;

	ckpt_settings_init(&s);
	fuzz_assert(!ckpt_settings_load(&s, object, count_bad, &bad) && bad <= CKPT_SETTINGS_MAX);
	CLEANUP_FREE char *lines = ckpt_settings_lines(&s), *same = NULL;

	fuzz_assert(lines && !ckpt_settings_copy(&copy, &s));
	same = ckpt_settings_lines(&copy);
	fuzz_assert(same && !strcmp(lines, same));
	ckpt_settings_done(&copy);
	ckpt_settings_done(&s);
	json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	CLEANUP_FREE char *text = malloc(len + 1);
	const struct ckpt_setting *setting;
	uint64_t bytes;

	if (!text)
		return 0;
	memcpy(text, data, len);
	text[len] = '\0';
	for (size_t i = 0; (setting = ckpt_setting_at(i)); i++)
		try_value(setting, text);
	(void)ckpt_size_parse(text, &bytes);
	try_object(data, len);
	return 0;
}

#include "core/step/settings.h"

#include "core/base/units.h"
#include "core/base/util.h"
#include "core/profile/profile.h"
#include "core/record/name.h"

#include <stdio.h>

#define FIELD(field) offsetof(struct ckpt_settings, field)

#define PACK_BYTES_LEAST (UINT64_C(1) << 20)
#define LIMIT_LEAST (UINT64_C(1) << 20)
#define LIMIT_MOST (UINT64_C(1) << 60)
#define QUIET_INITIAL "10s"
#define QUIET_INITIAL_NS INT64_C(10000000000)

static const char duration_wanted[] = "a duration: 5s, 10m, 7d";
static const char limit_wanted[] = "a size from 1MiB to 1024PiB, or none";

static const struct ckpt_setting table[] = {
	{
		.name = "marker",
		.kind = CKPT_SETTING_NAME,
		.at = FIELD(marker),
		.initial = CKPT_MARKER_DEFAULT,
		.value = "NAME",
		.wants = "a file name",
		.help = "closing a file of this name completes a step",
	},
	{
		.name = "steps_at",
		.kind = CKPT_SETTING_TEXT,
		.at = FIELD(steps_at),
		.value = "PATTERN[:...]",
		.wants = "patterns with ':' between them",
		.help = "only directories with such paths are steps; unset, the forms of their names decide",
	},
	{
		.name = "profile",
		.kind = CKPT_SETTING_PROFILES,
		.at = FIELD(profiles),
		.initial = "auto",
		.value = "auto|A[:B...]",
		.wants = "auto, or names with ':' between them: generic, orbax, orbax-commitfile, dcp, megatron, "
			 "deepspeed, hf-trainer, hf-storage, accelerate, lightning, levanter, nemo, nanotron, axlearn, "
			 "flax, eformer, torchsnapshot, bytecheckpoint, single-file",
		.help = "which frameworks complete a step by their last act: all known ones, or these",
	},
	{
		.name = "amend",
		.kind = CKPT_SETTING_CHOICE,
		.at = FIELD(amend),
		.value = "deny",
		.wants = "deny",
		.choices = {[CKPT_AMEND_ALLOWED] = "", [CKPT_AMEND_DENY] = "deny"},
		.help = "a committed step can be deleted but not changed (EROFS); unset, each change is a "
			"new version",
	},
	{
		.name = "commit_quiet",
		.kind = CKPT_SETTING_DURATION,
		.at = FIELD(commit_quiet_ns),
		.initial = QUIET_INITIAL,
		.or_off = true,
		.value = "DURATION|off",
		.wants = "a duration of at least 10ms: 10s, 1m; or off",
		.least = UINT64_C(10000000),
		.help = "a staged step is completed when nothing in it has changed for this time and it has "
			"the files of the step before it. Without a step before it: six times as long; in "
			"doubt: thirty times; off: never. A staged directory without array data becomes a "
			"plain folder after thirty times as long, or once after its maker has ended. Changed arrays of "
			"a committed step become a "
			"version after six times as long (off: both as with 10s)",
	},
	{
		.name = "open_writers",
		.kind = CKPT_SETTING_DURATION,
		.at = FIELD(open_writers_ns),
		.initial = "5s",
		.value = "DURATION",
		.wants = duration_wanted,
		.help = "how long a commit waits for files that are open for writing",
	},
	{
		.name = "commit_timeout",
		.kind = CKPT_SETTING_DURATION,
		.at = FIELD(commit_timeout_ns),
		.initial = "10m",
		.value = "DURATION",
		.wants = duration_wanted,
		.help = "a commit that makes no progress fails after this",
	},
	{
		.name = "durability",
		.kind = CKPT_SETTING_CHOICE,
		.at = FIELD(durability),
		.initial = "local",
		.value = "local|remote",
		.wants = "local or remote",
		.choices = {[CKPT_DURABILITY_LOCAL] = "local", [CKPT_DURABILITY_REMOTE] = "remote"},
		.help = "where a step is when the call that completes it returns: on the disk of this node, or in the "
			"object store, too. remote needs a store with a URL",
	},
	{
		.name = "staging_ttl",
		.kind = CKPT_SETTING_DURATION,
		.at = FIELD(staging_ttl_ns),
		.initial = "7d",
		.value = "DURATION",
		.wants = duration_wanted,
		.help = "a staged step with a temporary name is dropped when nothing has changed in it for "
			"this time",
	},
	{
		.name = "trash",
		.kind = CKPT_SETTING_DURATION,
		.at = FIELD(trash_ns),
		.initial = "7d",
		.value = "DURATION",
		.wants = duration_wanted,
		.help = "how long `ckptfs undelete` can restore a deleted step",
	},
	{
		.name = "trash_limit",
		.kind = CKPT_SETTING_SHARE,
		.of_node = true,
		.at = FIELD(trash_limit),
		.initial = "10%",
		.value = "SIZE|PERCENT%|none",
		.wants = "a size, a percentage of the disk, or none",
		.or_none = true,
		.help = "how much deleted steps may take on the disk; beyond it the oldest are removed, "
			"except the one that was deleted last",
	},
	{
		.name = "trash_reserve",
		.kind = CKPT_SETTING_SHARE,
		.of_node = true,
		.at = FIELD(trash_reserve),
		.initial = "auto",
		.value = "SIZE|PERCENT%|auto",
		.wants = "a size, a percentage of the disk, or auto",
		.or_auto = true,
		.help = "how much of the disk a mount keeps free by removing deleted steps early; auto: the size of "
			"the "
			"newest step, or 1GiB but at most a quarter of the disk, whichever is more",
	},
	{
		.name = "seal",
		.kind = CKPT_SETTING_SWITCH,
		.at = FIELD(seal),
		.initial = "yes",
		.wants = "yes or no",
		.help = "read committed files once in the background and keep their SHA-256, which `ckptfs "
			"verify` compares",
	},
	{
		.name = "findings",
		.kind = CKPT_SETTING_CHOICE,
		.at = FIELD(findings),
		.initial = "elements",
		.value = "elements|headers|off",
		.wants = "elements, headers or off",
		.choices = {[CKPT_FINDINGS_ELEMENTS] = "elements",
			    [CKPT_FINDINGS_HEADERS] = "headers",
			    [CKPT_FINDINGS_OFF] = "off"},
		.help = "look into the arrays of sealed steps in the background: what is missing, NaN, infinite, zero, "
			"or as in the step before; headers: without reading elements",
	},
	{
		.name = "hot",
		.kind = CKPT_SETTING_COUNT,
		.of_node = true,
		.at = FIELD(hot),
		.initial = "2",
		.value = "N|all",
		.wants = "a number from 0 to 1000000, or all",
		.most = 1000000,
		.or_all = true,
		.help = "how many of the newest steps of each folder stay as files; older ones are packed in "
			"the background once they are sealed, as by `ckptfs cool`",
	},
	{
		.name = "delta",
		.kind = CKPT_SETTING_COUNT,
		.at = FIELD(delta),
		.initial = "0",
		.value = "N",
		.wants = "a number from 0 to 100",
		.most = 100,
		.help = "packed arrays are stored as the difference to one of the N steps before, where that "
			"is smaller; 0: never",
	},
	{
		.name = "target_data_file_size",
		.kind = CKPT_SETTING_BYTES,
		.at = FIELD(pack_bytes),
		.initial = "64MiB",
		.value = "SIZE",
		.wants = "a size from 1MiB to 1GiB",
		.least = PACK_BYTES_LEAST,
		.most = CKPT_PACK_BYTES_MAX,
		.help = "how large the packs are that `ckptfs cool` puts steps into",
	},
	{
		.name = "work_limit",
		.kind = CKPT_SETTING_BYTES,
		.of_node = true,
		.at = FIELD(work_limit),
		.initial = "none",
		.value = "SIZE|none",
		.wants = limit_wanted,
		.least = LIMIT_LEAST,
		.most = LIMIT_MOST,
		.or_none = true,
		.help = "how much unfinished work may take on the disk: staged steps, left-over sessions, "
			"new content of files; beyond it writing fails with ENOSPC. Of a store with a URL: how much "
			"its work directory may take; copies of steps that the object store has go first",
	},
	{
		.name = "user_limit",
		.kind = CKPT_SETTING_BYTES,
		.of_node = true,
		.at = FIELD(user_limit),
		.initial = "none",
		.value = "SIZE|none",
		.wants = limit_wanted,
		.least = LIMIT_LEAST,
		.most = LIMIT_MOST,
		.or_none = true,
		.help = "the same limit for each user except root (EDQUOT)",
	},
	{
		.name = "show_staged",
		.kind = CKPT_SETTING_SWITCH,
		.at = FIELD(show_staged),
		.initial = "no",
		.wants = "yes or no",
		.help = "`ls` shows staged steps, too",
	},
	{
		.name = "show_latest",
		.kind = CKPT_SETTING_SWITCH,
		.at = FIELD(show_latest),
		.initial = "no",
		.wants = "yes or no",
		.help = "`ls` shows the link `latest`, too",
	},
	{
		.name = "latest_by",
		.kind = CKPT_SETTING_CHOICE,
		.at = FIELD(latest_by),
		.initial = "commit",
		.value = "commit|step",
		.wants = "commit or step",
		.choices = {[CKPT_LATEST_BY_COMMIT] = "commit", [CKPT_LATEST_BY_STEP] = "step"},
		.help = "`latest` leads to the step that was committed last, or to the one with the highest "
			"number",
	},
};
_Static_assert(ARRAY_LEN(table) <= CKPT_SETTINGS_MAX, "ckpt_settings.given has a bit for each");

const struct ckpt_setting *ckpt_setting_at(size_t i)
{
	return i < ARRAY_LEN(table) ? &table[i] : NULL;
}

const struct ckpt_setting *ckpt_setting_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (!strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

static uint64_t bit_of(const struct ckpt_setting *setting)
{
	return UINT64_C(1) << (setting - table);
}

// --- One value --------------------------------------------------------------------------------------------------------

static bool is_plain_text(const char *text)
{
	for (const char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return false;
	return *text && ckpt_name_is_utf8(text, strlen(text));
}

static int parse_switch(const char *text, bool *ret_on)
{
	bool on = !strcmp(text, "yes") || !strcmp(text, "true");

	if (!on && strcmp(text, "no") && strcmp(text, "false"))
		return -EINVAL;
	*ret_on = on;
	return 0;
}

static int parse_duration(const struct ckpt_setting *setting, const char *text, int64_t *ret_ns)
{
	int64_t ns;

	if (setting->or_off && !strcmp(text, "off")) {
		*ret_ns = CKPT_QUIET_OFF;
		return 0;
	}
	if (ckpt_duration_parse(text, &ns) || (uint64_t)ns < setting->least)
		return -EINVAL;
	*ret_ns = ns;
	return 0;
}

static int parse_choice(const struct ckpt_setting *setting, const char *text, unsigned *ret_choice)
{
	for (unsigned i = 0; setting->choices[i]; i++)
		if (*text && !strcmp(text, setting->choices[i])) {
			*ret_choice = i;
			return 0;
		}
	return -EINVAL;
}

static int parse_bytes(const struct ckpt_setting *setting, const char *text, uint64_t *ret_bytes)
{
	uint64_t bytes;

	if (setting->or_none && !strcmp(text, "none")) {
		*ret_bytes = UINT64_MAX;
		return 0;
	}
	if (ckpt_size_parse(text, &bytes) || bytes < setting->least || bytes > setting->most)
		return -EINVAL;
	*ret_bytes = bytes;
	return 0;
}

uint64_t ckpt_share_of(uint64_t share, uint64_t all_bytes)
{
	if (share == CKPT_SHARE_NONE || share == CKPT_SHARE_AUTO)
		return UINT64_MAX;
	return share & CKPT_SHARE_PERCENT ? all_bytes / 100 * (share & ~CKPT_SHARE_PERCENT) : share;
}

static int parse_percent(const char *text, size_t digits, uint64_t *ret_share)
{
	unsigned percent = 0;

	if (!digits || digits > 3)
		return -EINVAL;
	for (size_t i = 0; i < digits; i++)
		percent = percent * 10 + (unsigned)(text[i] - '0');
	*ret_share = CKPT_SHARE_PERCENT | percent;
	return percent <= 100 ? 0 : -EINVAL;
}

static int parse_share(const struct ckpt_setting *setting, const char *text, uint64_t *ret_share)
{
	size_t digits = strspn(text, "0123456789");
	uint64_t share;
	int rc = 0;

	if (setting->or_none && !strcmp(text, "none"))
		share = CKPT_SHARE_NONE;
	else if (setting->or_auto && !strcmp(text, "auto"))
		share = CKPT_SHARE_AUTO;
	else if (!strcmp(text + digits, "%"))
		rc = parse_percent(text, digits, &share);
	else
		rc = ckpt_size_parse(text, &share) || share > LIMIT_MOST ? -EINVAL : 0;
	if (!rc)
		*ret_share = share;
	return rc;
}

static const char *share_text(uint64_t share, char text[CKPT_SIZE_EXACT_MAX])
{
	if (share == CKPT_SHARE_NONE || share == CKPT_SHARE_AUTO)
		return share == CKPT_SHARE_NONE ? "none" : "auto";
	if (!(share & CKPT_SHARE_PERCENT))
		return ckpt_size_exact(share, text);
	snprintf(text, CKPT_SIZE_EXACT_MAX, "%u%%", (unsigned)(share & ~CKPT_SHARE_PERCENT) % 1000);
	return text;
}

// Digits alone, too few of them to wrap.
static int parse_count(const struct ckpt_setting *setting, const char *text, uint64_t *ret_count)
{
	size_t len = strlen(text);
	uint64_t count = 0;

	if (setting->or_all && !strcmp(text, "all")) {
		*ret_count = UINT64_MAX;
		return 0;
	}
	if (!len || len > 18 || strspn(text, "0123456789") != len)
		return -EINVAL;
	while (*text)
		count = count * 10 + (uint64_t)(*text++ - '0');
	if (count < setting->least || count > setting->most)
		return -EINVAL;
	*ret_count = count;
	return 0;
}

int ckpt_setting_parse(const struct ckpt_setting *setting, const char *text, struct ckpt_settings *s)
{
	void *field = (char *)s + setting->at;
	char *copy;

	switch (setting->kind) {
	case CKPT_SETTING_NAME:
		if (ckpt_name_check(text, strlen(text)))
			return -EINVAL;
		snprintf(field, CKPT_NAME_MAX + 1, "%s", text);
		return 0;
	case CKPT_SETTING_TEXT:
		if (!is_plain_text(text))
			return -EINVAL;
		copy = strdup(text);
		if (!copy)
			return -ENOMEM;
		free(*(char **)field);
		*(char **)field = copy;
		return 0;
	case CKPT_SETTING_DURATION:
		return parse_duration(setting, text, field);
	case CKPT_SETTING_BYTES:
		return parse_bytes(setting, text, field);
	case CKPT_SETTING_SHARE:
		return parse_share(setting, text, field);
	case CKPT_SETTING_COUNT:
		return parse_count(setting, text, field);
	case CKPT_SETTING_SWITCH:
		return parse_switch(text, field);
	case CKPT_SETTING_CHOICE:
		return parse_choice(setting, text, field);
	case CKPT_SETTING_PROFILES:
		return ckpt_profiles_parse(text, field);
	}
	return -EINVAL;
}

int ckpt_setting_reset(const struct ckpt_setting *setting, struct ckpt_settings *s)
{
	void *field = (char *)s + setting->at;

	s->given &= ~bit_of(setting);
	if (setting->initial)
		return ckpt_setting_parse(setting, setting->initial, s);
	if (setting->kind == CKPT_SETTING_TEXT)
		free(TAKE_PTR(*(char **)field));
	else if (setting->kind == CKPT_SETTING_CHOICE)
		*(unsigned *)field = 0;
	return 0;
}

int ckpt_setting_give(const struct ckpt_setting *setting, const char *text, struct ckpt_settings *s)
{
	int rc = ckpt_setting_parse(setting, text, s);

	if (!rc)
		s->given |= bit_of(setting);
	return rc;
}

bool ckpt_setting_is_given(const struct ckpt_setting *setting, const struct ckpt_settings *s)
{
	return s->given & bit_of(setting);
}

char *ckpt_setting_text(const struct ckpt_setting *setting, const struct ckpt_settings *s)
{
	const void *field = (const char *)s + setting->at;
	char duration[CKPT_DURATION_EXACT_MAX], size[CKPT_SIZE_EXACT_MAX], count[24];
	const char *text = NULL;

	switch (setting->kind) {
	case CKPT_SETTING_NAME:
		text = field;
		break;
	case CKPT_SETTING_TEXT:
		text = *(char *const *)field;
		break;
	case CKPT_SETTING_DURATION:
		text = setting->or_off && *(const int64_t *)field == CKPT_QUIET_OFF
			       ? "off"
			       : ckpt_duration_exact(*(const int64_t *)field, duration);
		break;
	case CKPT_SETTING_BYTES:
		text = *(const uint64_t *)field == UINT64_MAX ? "none"
							      : ckpt_size_exact(*(const uint64_t *)field, size);
		break;
	case CKPT_SETTING_SHARE:
		text = share_text(*(const uint64_t *)field, size);
		break;
	case CKPT_SETTING_COUNT:
		snprintf(count, sizeof(count), "%llu", (unsigned long long)*(const uint64_t *)field);
		text = *(const uint64_t *)field == UINT64_MAX ? "all" : count;
		break;
	case CKPT_SETTING_SWITCH:
		text = *(const bool *)field ? "yes" : "no";
		break;
	case CKPT_SETTING_CHOICE:
		text = setting->choices[*(const unsigned *)field];
		break;
	case CKPT_SETTING_PROFILES:
		return ckpt_profiles_text(*(const uint64_t *)field);
	}
	return strdup(text ? text : "");
}

// --- All --------------------------------------------------------------------------------------------------------------

void ckpt_settings_init(struct ckpt_settings *s)
{
	*s = (struct ckpt_settings){0};
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].initial)
			(void)ckpt_setting_parse(&table[i], table[i].initial, s);
}

int64_t ckpt_settings_quiet_ns(const struct ckpt_settings *s, int64_t times)
{
	int64_t ns = s->commit_quiet_ns == CKPT_QUIET_OFF ? QUIET_INITIAL_NS : s->commit_quiet_ns;
	int64_t product;

	return __builtin_mul_overflow(ns, times, &product) ? INT64_MAX : product;
}

void ckpt_settings_done(struct ckpt_settings *s)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].kind == CKPT_SETTING_TEXT)
			free(*(char **)((char *)s + table[i].at));
	free(s->work_dir);
	*s = (struct ckpt_settings){0};
}

int ckpt_settings_copy(struct ckpt_settings *to, const struct ckpt_settings *from)
{
	bool whole = true;

	*to = *from;
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		char *const *text = (char *const *)((const char *)from + table[i].at);

		if (table[i].kind != CKPT_SETTING_TEXT || !*text)
			continue;
		*(char **)((char *)to + table[i].at) = strdup(*text);
		whole &= *(char **)((char *)to + table[i].at) != NULL;
	}
	to->work_dir = from->work_dir ? strdup(from->work_dir) : NULL;
	return whole && !from->work_dir == !to->work_dir ? 0 : -ENOMEM;
}

int ckpt_settings_load(struct ckpt_settings *s, const json_t *object, void (*bad)(void *arg, const char *name),
		       void *arg)
{
	if (object && !json_is_object(object))
		bad(arg, "settings");
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		const json_t *value = json_object_get(object, table[i].name);
		const char *text = json_string_value(value);
		int rc = -EINVAL;

		if (!value || ckpt_setting_is_given(&table[i], s))
			continue;
		if (text && strlen(text) == json_string_length(value))
			rc = ckpt_setting_parse(&table[i], text, s);
		if (rc == -ENOMEM)
			return rc;
		if (rc)
			bad(arg, table[i].name);
	}
	return 0;
}

char *ckpt_settings_lines(const struct ckpt_settings *s)
{
	char *lines = NULL;
	size_t len;
	FILE *f = open_memstream(&lines, &len);
	bool whole = f;

	for (size_t i = 0; whole && i < ARRAY_LEN(table); i++) {
		CLEANUP_FREE char *text = ckpt_setting_text(&table[i], s);

		whole = text && fprintf(f, "%s=%s\n", table[i].name, text) > 0;
	}
	if (f && fclose(f))
		whole = false;
	if (!whole)
		free(TAKE_PTR(lines));
	return lines;
}

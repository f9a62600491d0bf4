#include "core/record/name.h"

#include "core/base/hash.h"
#include "core/base/utf8.h"
#include "core/base/util.h"

#include <stdio.h>

#define DIGEST_BYTES 32

// The forms, as data (ckpt_name_matches).
// What frameworks write today is in here; a new framework is a line, not code.

// Names that a step has only while it is unfinished.
static const char *const temp_forms[] = {
	"*.orbax-checkpoint-tmp",   // Orbax: the final name is what stands before
	"*.orbax-checkpoint-tmp-*", // older Orbax: with a time behind
	"*.partial_save",           // Orbax partial saving
	"tmp-checkpoint-*",         // HF Trainer
	"checkpoint_tmp",           // flax
	"checkpoint_tmp_gda",       // flax, multi-process arrays
};

// Prefixed numbers. Not among them: "release" (Megatron), which is a plain word; a marker makes it a step.
static const char *const number_forms[] = {
	"checkpoint-#",
	"checkpoint_#",
	"checkpoint#",
	"ckpt-#",
	"ckpt_#",
	"ckpt#",
	"step_#",
	"step-#",
	"step#",
	"step=#",
	"iter_#",
	"iter-#",
	"global_step#",
	"global_step_#",
	"global-step-#",
	"run-#",
	"epoch_#",
	"epoch-#",
	"epoch#",
	"epoch=#",
	"epoch=#-step=#",
	"epoch=#-step=#.ckpt", // Lightning's folders of shards; -v1 where the name is taken
	"epoch=#-step=#-v#.ckpt",
	"epoch_#-step_#",
	"epoch_#_step_#",
	"checkpoint-step-#",
	"checkpoint_step_#",
};

// Steps of a framework that writes a file `latest` beside them.
static const char *const own_latest_forms[] = {
	"global_step#", // DeepSpeed
};

// Checkpoints that are one file.
static const char *const file_step_forms[] = {
	"*.pt",         "*.pth",     "*.ckpt", "*.bin", "*.safetensors", "*.npz",  "*.npy",  "*.h5",  "*.keras",
	"*.msgpack",    "*.pth.tar", "*.pkl",  "*.ubj", "*.eqx",         "*.gguf", "*.onnx", "*.zip",
	"checkpoint_#", // flax
};

static const char *const logs_forms[] = {"logs", "*_logs", "runs", "tensorboard", "wandb", "mlruns"};
static const char *const checkpoints_forms[] = {"checkpoint", "checkpoints", "ckpt", "ckpts"};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

// Only the last star is ever given more: what stands before it has matched as early as it can, which leaves the most to the
// rest. So a pattern of any kind takes no longer than its length times that of the name.
bool ckpt_name_matches(const char *pattern, const char *name)
{
	const char *star = NULL, *taken = NULL; // behind the last star, and behind what it stands for so far

	while (*pattern || *name) {
		if (*pattern == '#' && is_digit(*name)) {
			while (is_digit(*name))
				name++;
			pattern++;
		} else if (*pattern == '*' && *name) {
			star = ++pattern;
			taken = ++name;
		} else if (*pattern && *pattern != '#' && *pattern != '*' && *pattern == *name) {
			pattern++;
			name++;
		} else if (star && *taken) {
			pattern = star;
			name = ++taken;
		} else {
			return false;
		}
	}
	return true;
}

static bool matches_any(const char *const *patterns, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (ckpt_name_matches(patterns[i], name))
			return true;
	return false;
}

bool ckpt_name_is_utf8(const char *text, size_t len)
{
	const uint8_t *s = (const uint8_t *)text;

	for (size_t i = 0, step; i < len; i += step) {
		step = ckpt_utf8_sequence(s + i, len - i);
		if (!step)
			return false;
	}
	return true;
}

char *ckpt_name_clean(const char *text)
{
	size_t left = strlen(text);
	char *clean = malloc(left * 3 + 1), *out = clean;

	if (!clean)
		return NULL;
	while (left) {
		size_t len = ckpt_utf8_sequence((const uint8_t *)text, left);

		out = len ? mempcpy(out, text, len) : mempcpy(out, "\xef\xbf\xbd", 3);
		len = MAX(len, (size_t)1);
		text += len;
		left -= len;
	}
	*out = '\0';
	return clean;
}

int ckpt_name_check(const char *name, size_t len)
{
	if (!len)
		return -EINVAL;
	if (len > CKPT_NAME_MAX)
		return -ENAMETOOLONG;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		uint8_t byte = (uint8_t)name[i];

		if (byte < 0x20 || byte == 0x7f || byte == '/')
			return -EINVAL;
	}
	return ckpt_name_is_utf8(name, len) ? 0 : -EILSEQ;
}

bool ckpt_name_is_temp(const char *name)
{
	return matches_any(temp_forms, ARRAY_LEN(temp_forms), name);
}

bool ckpt_name_has_own_latest(const char *name)
{
	return matches_any(own_latest_forms, ARRAY_LEN(own_latest_forms), name);
}

bool ckpt_name_is_file_step(const char *name)
{
	return matches_any(file_step_forms, ARRAY_LEN(file_step_forms), name);
}

bool ckpt_name_is_logs(const char *name)
{
	return matches_any(logs_forms, ARRAY_LEN(logs_forms), name);
}

bool ckpt_name_is_checkpoints(const char *name)
{
	return matches_any(checkpoints_forms, ARRAY_LEN(checkpoints_forms), name);
}

bool ckpt_name_is_step(const char *name, const struct ckpt_place *place)
{
	if (ckpt_name_is_temp(name))
		return true;
	if (!place->below_logs && matches_any(number_forms, ARRAY_LEN(number_forms), name))
		return true;
	return (place->root || place->in_checkpoints || place->holds_steps) && ckpt_name_matches("#", name);
}

void ckpt_name_conflict(char ret_name[CKPT_NAME_MAX + 1], const char *name, const char *host, unsigned n)
{
	char suffix[sizeof(CKPT_NAME_CONFLICT) + CKPT_NAME_HOST_MAX + 16];
	const char *earlier = strstr(name, CKPT_NAME_CONFLICT);
	size_t len = earlier && earlier != name ? (size_t)(earlier - name) : strlen(name), room;

	snprintf(suffix, sizeof(suffix), n > 1 ? CKPT_NAME_CONFLICT "%s-%u" : CKPT_NAME_CONFLICT "%s", host, n);
	room = CKPT_NAME_MAX - strlen(suffix);
	while (len > room || (len && ((unsigned char)name[len] & 0xc0) == 0x80)) // a character whole
		len--;
	snprintf(ret_name, CKPT_NAME_MAX + 1, "%.*s%s", (int)len, name, suffix);
}

int64_t ckpt_name_number(const char *name)
{
	bool is_again = ckpt_name_matches("*#-v#.ckpt", name); // Lightning's second save of the same step
	size_t end = is_again ? (size_t)(strrchr(name, '-') - name) : strlen(name), start;
	int64_t number = 0;

	if (strstr(name, CKPT_NAME_CONFLICT))
		return -1;
	while (end && !is_digit(name[end - 1]))
		end--;
	if (!end)
		return -1;
	for (start = end; start && is_digit(name[start - 1]);)
		start--;
	for (size_t i = start; i < end; i++)
		if (__builtin_mul_overflow(number, (int64_t)10, &number) ||
		    __builtin_add_overflow(number, (int64_t)(name[i] - '0'), &number))
			return -1;
	return number;
}

bool ckpt_name_is_folder_id(const char *folder_id)
{
	size_t len = strnlen(folder_id, CKPT_FOLDER_ID_LEN + 1);

	return len == 0 || (len == CKPT_FOLDER_ID_LEN && strspn(folder_id, "0123456789abcdef") == len);
}

static bool is_key_byte(char c)
{
	return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c && strchr("._=+@~-", c));
}

// The percent-encoded name into out, which has room for CKPT_KEY_NAME_MAX bytes; its length, 0 when it does not fit.
static size_t encode_name(const char *name, char *out)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t len = 0;

	for (; *name; name++) {
		uint8_t byte = (uint8_t)*name;

		if (len + (is_key_byte(*name) ? 1 : 3) > CKPT_KEY_NAME_MAX)
			return 0;
		if (is_key_byte(*name)) {
			out[len++] = *name;
		} else {
			out[len++] = '%';
			out[len++] = hex[byte >> 4];
			out[len++] = hex[byte & 15];
		}
	}
	return len;
}

int ckpt_name_key(const char *folder_id, const char *name, char *ret_key)
{
	char key[CKPT_STEP_KEY_MAX] = "";
	uint8_t digest[DIGEST_BYTES];
	size_t prefix, len;

	if (!ckpt_name_is_folder_id(folder_id) || ckpt_name_check(name, strlen(name)))
		return -EINVAL;
	if (folder_id[0]) {
		memcpy(key, folder_id, CKPT_FOLDER_ID_LEN);
		memcpy(key + CKPT_FOLDER_ID_LEN, "%2F", 3);
	}
	prefix = strlen(key);
	len = encode_name(name, key + prefix);
	if (len) {
		key[prefix + len] = '\0';
	} else {
		ckpt_sha256(name, strlen(name), digest);
		memcpy(key + prefix, "%%", 2);
		ckpt_hex(digest, sizeof(digest), key + prefix + 2);
	}
	memcpy(ret_key, key, sizeof(key));
	return 0;
}

// The policy of names: a pattern, a 0 byte, and a name. Patterns match as a slow and plain model of them says, and as fast
// for hostile ones; names that are valid have a key, and it leads back to the record.

#include "tests/fuzz/replay.h"

#include "core/base/util.h"
#include "core/record/name.h"

#include <time.h>

#define TEXT_MAX 600
#define MATCH_NS INT64_C(500000000) // sanitizers and a busy machine included

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

// Which starts of the name a pattern's end matches, from the last piece of it to the first.
static bool model_matches(const char *pattern, const char *name)
{
	size_t len = strlen(name);
	bool after[TEXT_MAX + 2] = {0}, here[TEXT_MAX + 2];

	after[len] = true;
	for (size_t p = strlen(pattern); p--;) {
		for (size_t i = 0; i <= len; i++) {
			size_t end = i;

			here[i] = false;
			if (pattern[p] == '#') {
				while (is_digit(name[end]))
					end++;
				here[i] = end > i && after[end];
			} else if (pattern[p] == '*') {
				while (end++ < len)
					here[i] |= after[end];
			} else {
				here[i] = name[i] == pattern[p] && after[i + 1];
			}
		}
		memcpy(after, here, sizeof(after));
	}
	return after[0];
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void try_pattern(const char *pattern, const char *name)
{
	int64_t began = now_ns();
	bool matches = ckpt_name_matches(pattern, name);

	fuzz_assert(now_ns() - began < MATCH_NS);
	fuzz_assert(matches == model_matches(pattern, name));
}

static void try_forms(const char *name)
{
	for (unsigned i = 0; i < 16; i++) {
		struct ckpt_place place = {i & 1, i & 2, i & 4, i & 8};
		bool step = ckpt_name_is_step(name, &place);

		fuzz_assert(step || !ckpt_name_is_temp(name));
	}
	(void)ckpt_name_has_own_latest(name);
	(void)ckpt_name_is_logs(name);
	(void)ckpt_name_is_checkpoints(name);
	(void)ckpt_name_is_file_step(name);
	fuzz_assert(ckpt_name_number(name) >= -1);
}

static void try_clean(const char *text)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(text);

	fuzz_assert(clean && ckpt_name_is_utf8(clean, strlen(clean)));
	fuzz_assert(!ckpt_name_is_utf8(text, strlen(text)) || !strcmp(clean, text));
}

static void try_key(const char *name)
{
	static const char *const folders[] = {"", "0123456789abcdef"};

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		char key[CKPT_STEP_KEY_MAX];
		int valid = ckpt_name_check(name, strlen(name)), rc = ckpt_name_key(folders[i], name, key);

		fuzz_assert(valid ? rc == -EINVAL : rc == 0);
		if (rc)
			continue;
		fuzz_assert(memchr(key, 0, sizeof(key)) && !strchr(key, '/') && key[0] != '.' ? 1 : name[0] == '.');
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char text[TEXT_MAX + 1];
	const char *name;
	size_t pattern_len;

	len = MIN(len, (size_t)TEXT_MAX);
	memcpy(text, data, len);
	text[len] = '\0';
	pattern_len = strlen(text);
	name = pattern_len < len ? text + pattern_len + 1 : "";
	try_pattern(text, name);
	try_forms(name);
	try_clean(name);
	try_key(name);
	(void)ckpt_name_is_folder_id(name);
	return 0;
}

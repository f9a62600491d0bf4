#include "tests/model/vary.h"

#include "core/base/util.h"

#include <stdint.h>
#include <stdio.h>

enum { MORE_LEAST = 1, MORE_MOST = 4, BYTES_FIRST = 200, POOL_MAX = 256, TEXT_MAX = 40 };

static uint64_t chance;

static unsigned below(size_t limit)
{
	uint64_t x = chance += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return (unsigned)((x ^ (x >> 31)) % limit);
}

static const char *second_word(const char *words, char buf[TEXT_MAX])
{
	const char *at = strchrnul(words, ' ');

	at += *at == ' ';
	snprintf(buf, TEXT_MAX, "%.*s", (int)strcspn(at, " "), at);
	return buf;
}

// Some content of the scenario names this step, and the act takes the name away.
static bool takes_name(const struct model_scenario *base, const char *words)
{
	static const char *const verbs[] = {"delete ", "rename ", "expire "};
	char name[TEXT_MAX], names[TEXT_MAX];
	bool takes = false;

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		takes |= !strncmp(words, verbs[i], strlen(verbs[i]));
	second_word(words, name);
	for (unsigned k = 0; takes && k < MODEL_NODES * MODEL_ACTS; k++) {
		const char *act = base->acts[k / MODEL_ACTS][k % MODEL_ACTS];

		if (act &&
		    (sscanf(act, "write %*s %*s %39s", names) == 1 || sscanf(act, "swap %*s %*s %39s", names) == 1) &&
		    !strcmp(names, name))
			return true;
	}
	return false;
}

static size_t make_pool(const struct model_scenario *scenarios, size_t count, const struct model_scenario *base,
			const char *ret_pool[POOL_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		for (unsigned k = 0; k < MODEL_NODES * MODEL_ACTS; k++) {
			const char *words = scenarios[i].acts[k / MODEL_ACTS][k % MODEL_ACTS];

			if (words && strncmp(words, "beside ", 7) && !takes_name(base, words) && n < POOL_MAX)
				ret_pool[n++] = words;
		}
	return n;
}

// The same act with a size of its own, which tells it from all others.
static void write_act(const char *words, unsigned bytes, char ret_text[TEXT_MAX])
{
	size_t len = 0;

	while (words[len] && !(words[len] == ' ' && words[len + 1] >= '0' && words[len + 1] <= '9'))
		len++;
	if (words[len])
		snprintf(ret_text, TEXT_MAX, "%.*s %u", (int)len, words, bytes);
	else
		snprintf(ret_text, TEXT_MAX, "%s", words);
}

const struct model_scenario *vary(const struct model_scenario *scenarios, size_t count, unsigned of)
{
	static struct model_scenario made;
	static char name[TEXT_MAX], texts[MODEL_NODES][MODEL_ACTS][TEXT_MAX];
	const struct model_scenario *base = &scenarios[(of - 1) % count];
	const char *pool[POOL_MAX];
	size_t pool_count = make_pool(scenarios, count, base, pool);
	unsigned bytes = BYTES_FIRST;

	chance = of;
	made = *base;
	made.strict = false; // others may delete the step that a tracker names
	snprintf(name, sizeof(name), "%s+%u", base->name, of);
	made.name = name;
	for (unsigned i = 0; i < MODEL_NODES; i++) {
		unsigned k = 0, more = MORE_LEAST + below(MORE_MOST - MORE_LEAST + 1);

		while (k < MODEL_ACTS && made.acts[i][k])
			k++;
		for (; k < MODEL_ACTS && more--; k++) {
			write_act(pool[below(pool_count)], bytes++, texts[i][k]);
			made.acts[i][k] = texts[i][k];
		}
	}
	return &made;
}

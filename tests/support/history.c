#include "tests/support/history.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

static void parse_step(const char *word, struct ckpt_policy_step *ret)
{
	char *end;

	*ret = (struct ckpt_policy_step){.number = strtoll(word, &end, 10)};
	ck_assert_msg(*end == '@', "%s", word);
	ret->committed_ns = (int64_t)(strtod(end + 1, &end) * 1e9);
	for (; *end == 't' || *end == 'p'; end++)
		*(*end == 't' ? &ret->temporary : &ret->pinned) = true;
	if (*end == '=') {
		json_t *metrics = json_pack("{s:o}", "loss", json_loads(end + 1, JSON_DECODE_ANY, NULL));

		ck_assert_msg(metrics, "%s", word);
		ret->metrics = metrics;
		end += strlen(end);
	}
	ck_assert_msg(!*end, "%s", word);
}

void history_parse(const char *text, struct history *ret)
{
	CLEANUP_FREE char *copy = strdup(text);
	char *rest = copy, *word;

	*ret = (struct history){0};
	while ((word = strsep(&rest, " "))) {
		if (!*word)
			continue;
		ck_assert_uint_lt(ret->count, HISTORY_MAX);
		parse_step(word, &ret->steps[ret->count++]);
	}
}

void history_done(struct history *h)
{
	for (size_t i = 0; i < h->count; i++)
		json_decref((json_t *)h->steps[i].metrics);
}

struct ckpt_policy policy_of(const char *text)
{
	CLEANUP_FREE char *copy = strdup(text), *why = NULL;
	struct ckpt_policy p;
	int rc;

	for (char *at = copy; *at; at++)
		if (*at == '\'')
			*at = '"';
	rc = ckpt_policy_parse(copy, strlen(copy), &p, &why);
	ck_assert_msg(!rc, "%s: %s", text, why ? why : strerror(-rc));
	return p;
}

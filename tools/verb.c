#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/help.h"
#include "tools/output.h"

#include <stdio.h>

enum { KEY_JSON = 0x1000, KEY_HELP };

// Options that a verb may lack come first and last.
static const struct argp_option common_options[] = {
	{"json", KEY_JSON, NULL, 0, "one JSON document on stdout", -2},
	{"quiet", 'q', NULL, 0, "show only failures, no progress", -2},
	{"verbose", 'v', NULL, 0, "say more", -2},
	{"help", KEY_HELP, NULL, 0, "show this help", -1},
	{"options", 'o', "OPTS", 0, "of a STORE that is a URL, as `ckptfs mount` takes them; may be repeated", -2},
	{0},
};
static char *store_options;

const char *ckpt_verb_store_options(void)
{
	return store_options;
}

static void add_store_options(const char *text)
{
	CLEANUP_FREE char *before = store_options;

	store_options = before ? ckpt_text("%s,%s", before, text) : ckpt_text("%s", text);
}

struct parse {
	const struct ckpt_syntax *syntax;
	void *input;
	struct argp argp;
	struct ckpt_words words;
	bool help;
	int status; // of a wrong option
	int next;   // where getopt had come to when something was wrong
};

static error_t on_common(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;

	switch (key) {
	case KEY_JSON:
		if (p->syntax->no_json) {
			p->status = ckpt_usage("--json", NULL, "this verb has no JSON form");
			return EINVAL;
		}
		ckpt_output.json = true;
		return 0;
	case 'q':
		ckpt_output.quiet = true;
		return 0;
	case 'v':
		ckpt_output.verbose++;
		return 0;
	case KEY_HELP:
		p->help = true;
		return 0;
	case 'o':
		add_store_options(arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void ckpt_verb_help_common(void)
{
	ckpt_help_options(common_options);
}

static error_t on_key(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;

	if (key == ARGP_KEY_INIT) {
		state->child_inputs[0] = p;
		return 0;
	}
	if (key == ARGP_KEY_ERROR) {
		p->next = state->next;
		return 0;
	}
	if (key == ARGP_KEY_ARG) {
		p->words.at[p->words.count++] = arg;
		return 0;
	}
	for (const struct argp_option *o = p->syntax->options; o && (o->name || o->key); o++) {
		if (o->key != key)
			continue;
		p->status = p->syntax->option(key, arg, p->input);
		return p->status ? EINVAL : 0;
	}
	return ARGP_ERR_UNKNOWN;
}

// --- Wrong usage ----------------------------------------------------------------------------------------------------

static const struct argp_option *find_option(const struct argp_option *options, const char *name, size_t len)
{
	for (; options && (options->name || options->key); options++)
		if (len == 1 ? options->key == *name
			     : options->name && strlen(options->name) == len && !memcmp(options->name, name, len))
			return options;
	return NULL;
}

static const char *nearest_option(const struct ckpt_syntax *syntax, const char *name)
{
	const char *names[64];
	size_t n = 0;

	for (const struct argp_option *o = syntax->options; o && (o->name || o->key) && n < 58; o++)
		if (o->name)
			names[n++] = o->name;
	for (const struct argp_option *o = common_options; o->name; o++)
		names[n++] = o->name;
	names[n] = NULL;
	return ckpt_nearest(name, names);
}

// getopt says that a word is wrong, not why.
static int explain(const struct ckpt_syntax *syntax, const char *verb, char *const *argv, int next)
{
	const char *word = next > 0 && argv[next - 1][0] == '-' ? argv[next - 1]
			   : argv[next]                         ? argv[next]
								: argv[next - 1];
	CLEANUP_FREE char *hint = ckpt_text("%s --help", verb);
	const struct argp_option *known = NULL;
	const char *nearest = NULL;

	if (!strncmp(word, "--", 2)) {
		size_t len = strcspn(word + 2, "=");

		known = find_option(syntax->options, word + 2, len);
		if (!known)
			known = find_option(common_options, word + 2, len);
		nearest = known ? NULL : nearest_option(syntax, word + 2);
	} else if (word[0] == '-' && word[1]) {
		for (const char *letter = word + 1; *letter && (known || letter == word + 1); letter++) {
			known = find_option(syntax->options, letter, 1);
			if (!known)
				known = find_option(common_options, letter, 1);
		}
	}
	if (known)
		return ckpt_usage(word, hint, known->arg ? "needs a value, %s" : "takes no value%.0s", known->arg);
	if (nearest) {
		free(hint);
		hint = ckpt_text("did you mean --%s? %s --help has all", nearest, verb);
	}
	return ckpt_usage(word, hint, "unknown option");
}

static void check_operands(const struct ckpt_syntax *syntax, const char *verb, const struct ckpt_words *words)
{
	CLEANUP_FREE char *hint = ckpt_text("usage: %s %s", verb, syntax->operands);

	if (words->count < syntax->operands_min)
		exit(ckpt_output_finish(
			ckpt_usage(strchr(verb, ' ') ? strchr(verb, ' ') + 1 : verb, hint, "an operand is missing")));
	if (words->count > syntax->operands_max)
		exit(ckpt_output_finish(ckpt_usage(words->at[syntax->operands_max], hint, "one operand too many")));
}

// Kept to the end, for the verb.
static char **operands;

void ckpt_verb_parse(const struct ckpt_syntax *syntax, int argc, char **argv, void *input, struct ckpt_words *ret_words)
{
	struct parse p = {.syntax = syntax, .input = input};
	struct argp_option options[ARRAY_LEN(common_options)];
	struct argp common = {.options = options, .parser = on_common};
	const struct argp values = {.options = syntax->values};
	const struct argp_child children[] = {
		{&common, 0, NULL, 0},
		{syntax->values ? &values : NULL, 0, syntax->values_title, 1},
		{0},
	};

	p.argp = (struct argp){.options = syntax->options,
			       .parser = on_key,
			       .args_doc = syntax->operands,
			       .doc = syntax->doc,
			       .children = children};
	memcpy(options, common_options, sizeof(options));
	if (syntax->no_options || find_option(syntax->options, "o", 1))
		options[ARRAY_LEN(options) - 2] = (struct argp_option){0};
	free(operands);
	p.words.at = operands = ckpt_need(calloc((size_t)argc + 1, sizeof(*operands)));
	if (argp_parse(&p.argp, argc, argv, ARGP_SILENT, NULL, &p))
		exit(ckpt_output_finish(p.status ? p.status : explain(syntax, argv[0], argv, p.next)));
	if (p.help) {
		common.options += syntax->no_json; // --json comes first: what is refused is not offered
		ckpt_help_print(&p.argp, syntax, common.options, argv[0]);
		ckpt_output.json = false;
		exit(ckpt_output_finish(0));
	}
	check_operands(syntax, argv[0], &p.words);
	*ret_words = p.words;
}

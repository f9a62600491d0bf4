#include "tools/help.h"

#include "core/base/util.h"

#include <stdio.h>

enum ckpt_help_form ckpt_help_form;

// --- troff ----------------------------------------------------------------------------------------------------------

// All characters stand for themselves; a dot that begins a line would be a command.
static void put_roff(const char *text, size_t len)
{
	static const struct {
		char character;
		const char *name;
	} special[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'`', "\\(ga"},
		       {'"', "\\(dq"}, {'~', "\\(ti"}, {'^', "\\(ha"}};
	size_t s;

	if (len && *text == '.')
		fputs("\\&", stdout);
	for (; len; len--, text++) {
		for (s = 0; s < ARRAY_LEN(special) && special[s].character != *text; s++)
			;
		if (s < ARRAY_LEN(special))
			fputs(special[s].name, stdout);
		else
			putchar(*text);
	}
}

static void put_font(char font, const char *text)
{
	printf("\\f%c", font);
	put_roff(text, strlen(text));
	fputs("\\fR", stdout);
}

// The name of an option that stands for words is "NAME" or "NAME=VALUE" itself.
static void put_word(const char *word)
{
	size_t len = strcspn(word, "=");

	fputs("\\fB", stdout);
	put_roff(word, len);
	fputs("\\fR", stdout);
	if (word[len]) {
		putchar('=');
		put_font('I', word + len + 1);
	}
}

static bool has_letter(const struct argp_option *o)
{
	return !(o->flags & OPTION_DOC) && o->key > ' ' && o->key <= '~';
}

static void put_names(const struct argp_option *o)
{
	char letter[] = {'-', (char)o->key, '\0'};

	if (o->flags & OPTION_DOC) {
		put_word(o->name);
		return;
	}
	if (has_letter(o))
		put_font('B', letter);
	if (has_letter(o) && o->name)
		fputs(", ", stdout);
	if (o->name) {
		fputs("\\fB\\-\\-", stdout);
		put_roff(o->name, strlen(o->name));
		fputs("\\fR", stdout);
	}
	if (o->arg) {
		putchar(o->name ? '=' : ' ');
		put_font('I', o->arg);
	}
}

void ckpt_help_options(const struct argp_option *options)
{
	for (const struct argp_option *o = options; o && (o->name || o->key); o++) {
		puts(".TP");
		put_names(o);
		putchar('\n');
		put_roff(o->doc, strlen(o->doc));
		putchar('\n');
	}
}

// Lines that begin with two spaces are commands and stay as they are; an empty line parts paragraphs.
static void put_paragraphs(const char *text)
{
	bool shown = false;

	puts(".PP");
	while (*text) {
		size_t len = strcspn(text, "\n");
		bool show = !strncmp(text, "  ", 2);

		if (show != shown)
			puts(show ? ".RS 4\n.EX" : ".EE\n.RE");
		shown = show;
		if (!len)
			fputs(".PP", stdout);
		put_roff(text + (show ? 2 : 0), len - (show ? 2 : 0));
		putchar('\n');
		text += len + (text[len] == '\n');
	}
	if (shown)
		puts(".EE\n.RE");
}

static void put_part(const struct ckpt_syntax *syntax, const char *verb)
{
	size_t purpose = strcspn(syntax->doc, "\v");

	fputs(".SS ", stdout);
	put_roff(verb, strlen(verb));
	fputs(" [OPTION...] ", stdout);
	put_roff(syntax->operands, strlen(syntax->operands));
	putchar('\n');
	put_roff(syntax->doc, purpose);
	putchar('\n');
	ckpt_help_options(syntax->options);
	if (syntax->values) {
		puts(".PP");
		put_roff(syntax->values_title, strlen(syntax->values_title));
		putchar('\n');
		ckpt_help_options(syntax->values);
	}
	if (syntax->doc[purpose])
		put_paragraphs(syntax->doc + purpose + 1);
}

static void put_page(const struct ckpt_syntax *syntax, const struct argp_option *common, const char *verb)
{
	printf(".TH CKPTFS 1 \"\" \"ckptfs %s\"\n.SH NAME\n", CKPT_VERSION);
	put_roff(verb, strlen(verb));
	fputs(" \\- ", stdout);
	put_roff(syntax->doc, strcspn(syntax->doc, ";.\v"));
	puts("\n.SH USAGE");
	put_part(syntax, verb);
	puts(".SH OPTIONS OF ALL VERBS");
	ckpt_help_options(common);
	puts(".SH SEE ALSO\n\\fBckptfs\\fR(1) says how stores and steps are named.");
}

// --- Words ----------------------------------------------------------------------------------------------------------

static void put_option_words(const struct argp_option *options)
{
	for (const struct argp_option *o = options; o && (o->name || o->key); o++) {
		if (has_letter(o))
			printf("-%c\n", o->key);
		if (o->name && o->flags & OPTION_DOC)
			printf("%.*s\n", (int)(strcspn(o->name, "=") + (strchr(o->name, '=') != NULL)), o->name);
		else if (o->name)
			printf("--%s%s\n", o->name, o->arg ? "=" : "");
	}
}

void ckpt_help_print(const struct argp *argp, const struct ckpt_syntax *syntax, const struct argp_option *common,
		     const char *verb)
{
	switch (ckpt_help_form) {
	case CKPT_HELP_TEXT:
		argp_help(argp, stdout, ARGP_HELP_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC, (char *)verb);
		break;
	case CKPT_HELP_PAGE:
		put_page(syntax, common, verb);
		break;
	case CKPT_HELP_PART:
		put_part(syntax, verb);
		break;
	case CKPT_HELP_WORDS:
		put_option_words(syntax->options);
		put_option_words(syntax->values);
		put_option_words(common);
		break;
	}
}

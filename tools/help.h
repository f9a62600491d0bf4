// The help of a verb, made from its syntax: the one source of --help, of the man pages and of completion.
// Threads: one. Blocks on the terminal or pipe behind stdout.
#pragma once

#include "tools/verb.h"

// What a verb prints for --help.
enum ckpt_help_form {
	CKPT_HELP_TEXT,  // as argp lays it out
	CKPT_HELP_PAGE,  // a man page, as troff
	CKPT_HELP_PART,  // what a man page has of this verb
	CKPT_HELP_WORDS, // options and values as a shell completes them, one a line; "=" ends what wants a value
};
extern enum ckpt_help_form ckpt_help_form;

// In the form that is set. verb is as in "ckptfs ls", common are the options of all verbs.
void ckpt_help_print(const struct argp *argp, const struct ckpt_syntax *syntax, const struct argp_option *common,
		     const char *verb);
// Options as paragraphs of a man page.
void ckpt_help_options(const struct argp_option *options);

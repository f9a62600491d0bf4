// The answers of verbs, as JSON text: malloc'ed, NULL: no memory. Threads: any.
#pragma once

// error is of errno(3), for programs; text for people.
char *answer_refusal(int error, const char *text, const char *hint);
// hint: what to do about it, NULL where nothing better is known than what goes for the error anywhere.
char *answer_failure(int rc, const char *hint);
char *answer_done(void);

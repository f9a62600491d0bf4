// A STORE that is a URL of an object store: its work directory on this node (core/remote/place.h).
#pragma once

#include "core/remote/place.h"

// Takes the options that were given with -o (verb.h). 0, or wrong usage.
int ckpt_remote_at_options(struct ckpt_remote_at *at);
// Says why there is none, or why it cannot be used: errors of place.h, with what the objects say of that. An exit status.
int ckpt_remote_fail(const char *url, int rc, const char *why);
bool ckpt_is_remote_url(const char *word);
// Makes an empty store there. Says why not on stderr; 0, or an exit status.
int ckpt_remote_init(const char *url);
// malloc'ed. Says why on stderr; 0, or an exit status.
int ckpt_remote_operand(const struct ckpt_remote_at *at, char **ret_path);
// The same of a store that may be absent: it is made, or with make false *ret_path is NULL.
int ckpt_remote_target(const char *url, bool make, char **ret_path);

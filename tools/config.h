// The settings of core/step/settings.h as users write them and read them: for -o, `init --set` and `config`.
// Threads: one. Nothing blocks. Failures are said on stderr here, once; the functions return 0 or an exit status.
#pragma once

#include "core/step/settings.h"

#include <jansson.h>

// NAME=VALUE; value NULL: the name alone, which means yes of a switch. what is how the user wrote it.
int ckpt_config_give(const char *what, const struct ckpt_setting *setting, const char *value, struct ckpt_settings *s);
// The setting of this name, of len bytes. NULL: there is none, which has been said.
const struct ckpt_setting *ckpt_config_find(const char *name, size_t len);

// As ckpt_store_settings(), with those that all nodes of a remote share.
int ckpt_config_read(const char *store, struct ckpt_settings *ret_settings);

// A value as JSON: seconds, true or false, text or null.
json_t *ckpt_config_value(const struct ckpt_setting *setting, const struct ckpt_settings *s);
// All values, by name.
json_t *ckpt_config_values(const struct ckpt_settings *s);

// Settings that all nodes of a remote share. Its log has each under a key of its own (core/state/values.h), so that changes of different
// settings by two nodes are both kept; of two changes of one setting the later in the log holds.
//
// A setting is shared unless it is about the disk of one machine (ckpt_setting.of_node). Of a store with a remote the log wins over store.json,
// which goes on holding for settings that no node has set since: so a store of before keeps what it had. Of a store without a remote store.json
// alone counts. A change holds from the next time on that a store is opened.
//
// Any node that may write the remote may write anything there: a value that is none, or of an unknown setting, is told and ignored.
//
// Threads: any; the store is open. Blocks on the disk. Errors: those of ckpt_journal_set(), -ENOMEM.
#pragma once

#include "core/step/settings.h"

struct ckpt_store;

// Settings of the log come over s->settings, but not over what was given with -o. While the store is opened, behind its journal.
int ckpt_shared_settings_load(struct ckpt_store *s);
// value is one that the setting takes; NULL: its default again. -EFBIG: it is too long to be shared.
int ckpt_shared_setting_set(struct ckpt_store *s, const struct ckpt_setting *setting, const char *value);
// The store is about to have a remote: its log says what store.json's object says, and nothing else. It may be done again.
int ckpt_shared_settings_add(struct ckpt_store *s, const json_t *object);
// The store is about to have none: store.json's object says what the log says. 0, -ENOMEM.
int ckpt_shared_settings_keep(struct ckpt_store *s, json_t *object);

// Values of the store itself, each under a key; and those that all nodes of a remote share.
//
// A SET in the node's own log holds at once. Some keys are shared: such a value is pushed, as a SET in the remote's log, and comes to other
// nodes with that. Of values that two nodes have set at once the later in the remote's log holds, as of two new names. Until its own is there a
// node goes on showing that. All other keys are a matter of the node alone: a SET of one in the remote's log is void.
//
// Each setting of the store (core/step/shared_settings.h) has a key of its own, so that two nodes may change two of them at once. This unit
// does not know which ones there are: those of a later version are kept and passed on. Their number and size are limited.
//
// Ownership: the lists own their texts. Threads: those of the state (state.h). Nothing blocks.
#pragma once

#include "core/state/act.h"

#include <stdbool.h>

#define CKPT_VALUE_POLICY "policy"   // shared
#define CKPT_VALUE_SETTING "setting" // what keys of settings begin with; all are shared
#define CKPT_VALUE_SETTING_BYTES_MAX 4096
#define CKPT_VALUE_SETTINGS_MAX 128 // of a remote

struct ckpt_state_value {
	char key[CKPT_VALUE_KEY_MAX + 1];
	uint64_t seq; // of the entry that says so, or a number that no entry has
	char *text;   // never empty
	bool pulled;  // another node has set it
};

struct ckpt_value_list {
	struct ckpt_state_value *at; // by key
	size_t count, cap;
};

struct ckpt_values {
	struct ckpt_value_list is, there; // here; the shared ones as the remote's log has them
};

bool ckpt_value_is_shared(const char *key);
bool ckpt_value_is_setting(const char *key);
const struct ckpt_state_value *ckpt_value_find(const struct ckpt_value_list *list, const char *key);
// Puts a copy of the value with so many bytes of its text; 0: there is to be none. 0, -ENOMEM.
int ckpt_value_put(struct ckpt_value_list *list, const struct ckpt_state_value *of, size_t len);
void ckpt_values_done(struct ckpt_values *values);

// A shared key whose value here is another than there, and that value, "" where there is to be none; borrowed. NULL: there is none, or the
// remote's log would not take it.
const char *ckpt_values_changed(const struct ckpt_values *values, const char **ret_text);
// A SET of the node's own log, in its entry seq; or, with remote_seq, one of that entry of the remote's log. As ckpt_state_apply().
int ckpt_values_act(struct ckpt_values *values, const struct ckpt_act *a, uint64_t seq, uint64_t remote_seq);
// A JUMP with this number: the remote's log has these from then on. 0, -ENOMEM: it may be done again.
int ckpt_values_jump(struct ckpt_values *values, const struct ckpt_value_list *there, uint64_t number);
// The store has no remote any more: its values are this node's.
void ckpt_values_detach(struct ckpt_values *values);

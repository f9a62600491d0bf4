// One act on one step, or session, of a store: done by the process that has the store mounted, or here where there is none.
// Threads: one. May block on the disk, and for as long as that process takes. Failures are said on stderr, once.
#pragma once

#include "tools/listing.h"

#include <jansson.h>

struct ckpt_verb_act {
	const char *verb; // as the mount knows it (fs/verbs.h)
	bool for_good;
	bool deleted_only;           // not if it was had back meanwhile
	const char *to, *metadata;   // or NULL
	const char *only;            // warm: a glob, or NULL
	bool add_only, force;        // begin, as is
	bool parents;                // the folders on the way are made
	const char *profile, *event; // commit: of the record; NULL: "generic", "verb"
	uint32_t version;            // restore
	bool sessions;               // it is about an unfinished session, not about a step
	int (*at_rest)(struct ckpt_step *step, const struct ckpt_verb_act *act); // 0, -errno
	const char *(*hint)(int error);                                          // what to do about that, or NULL
	void *arg;                                                               // for at_rest
	json_t **reply; // what the mount has answered, where it did it; NULL: not wanted
};

// word is what the user called it. 0 or an exit status.
int ckpt_act_on(const char *store, const char *word, const char *session, const struct ckpt_verb_act *act);
// The mount alone: -ENOENT nobody has the store mounted. session may be NULL. *ret_reply (NULL: not wanted) is its answer.
int ckpt_act_ask(const char *store, const char *word, const char *session, const struct ckpt_verb_act *act,
		 json_t **ret_reply);

// The session of the committed step that word names, or of the deleted one; the path in it, where there may be one; both
// malloc'ed; and whether it is committed and pinned. ret_path NULL: the step alone is meant; ret_pinned NULL: not wanted. 0 or
// an exit status.
int ckpt_act_find(const struct ckpt_operand *o, const char *word, char **ret_session, char **ret_path,
		  bool *ret_pinned);

// A step's metadata out of a file ("-": stdin), as canonical JSON, malloc'ed; NULL when that is empty.
int ckpt_act_metadata(const char *path, char **ret_json);

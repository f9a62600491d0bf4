// The place where a node has its part of a store that is known by a URL: its work directory. It is no cache: it has what is not pushed yet.
//
// Threads: any. Blocks on the disk, and, the first time, on the network.
#pragma once

#include "core/objects/objects.h"
#include "core/step/settings.h"

#include <jansson.h>

struct ckpt_store;

struct ckpt_remote_at {
	const char *url;
	const char *const *
		options; // as of core/objects/stack.h; NULL: those that the work directory has, if any. Others are kept; without make only if the remote answers
	const char *work_dir; // NULL: $CKPTFS_WORK_DIR/NAME, else in the place of the system or of the user
	const struct ckpt_settings *settings; // that were given, for a new work directory; NULL
	bool make;                            // the remote, if there is none
};

// The path of the work directory, malloc'ed, with a store in it. -ENOENT: the remote has no store; -EEXIST: the directory is a store of
// another URL; -EMEDIUMTYPE, -ENOTSUP ...: what the remote has is no store of ours, or a newer one; -EPROTO: it cannot have one
// (core/objects/probe.h); else as of the objects. why: as of core/objects/stack.h.
int ckpt_remote_place(const struct ckpt_remote_at *at, char **ret_path, char why[CKPT_OBJECTS_WHY_MAX]);
// The store in the directory at path has a remote. False where it cannot be read.
bool ckpt_remote_is_at(const char *path);
// The remote was tried for all that a log needs (core/objects/probe.h), or is now. Who makes the work directory by a mount tries it with writers that
// race; else who pushes first, without a race: once for each endpoint option, and store.json says so.
// 0, also of a store without a remote; -EPROTO: a store there would lose steps; else as of the objects. why: as of core/objects/stack.h.
int ckpt_remote_prove(const char *path, char why[CKPT_OBJECTS_WHY_MAX]);
bool ckpt_remote_is_proved(const json_t *remote); // of store.json: it was tried
// Gives the local store s, which is open for writing and has no remote, the one at the URL, from the next time on that it is opened: makes the remote as
// the same store, and says so in store.json. Nothing is appended but the settings (core/step/shared_settings.h): what s has is pushed as any change of it (core/state/shared.h). The remote
// is tried as by ckpt_remote_make(). -EEXIST: it has a log of this store; -EREMCHG: it
// is another store; -ENOTEMPTY: it has objects, and is no store; -EALREADY: s has a remote; else as of ckpt_remote_place().
int ckpt_remote_add(const struct ckpt_remote_at *at, struct ckpt_store *s, char why[CKPT_OBJECTS_WHY_MAX]);
// The store, which is open for writing, has no remote from the next time on that it is opened (detach.h). In the same act store.json takes over the settings
// that its nodes share; durability=remote ends. 0, also of one without.
int ckpt_remote_forget(struct ckpt_store *s);
// The work directory that this node has of the URL, and what it keeps of the mount: {"url", "options"}. Makes nothing and asks nobody. -ENOENT:
// there is none. *ret_path is malloc'ed, *ret_remote the caller's.
int ckpt_remote_known(const struct ckpt_remote_at *at, char **ret_path, json_t **ret_remote);
// The store.json of a remote: that of a store of ours. -ENOENT: there is none; -EMEDIUMTYPE, -ENOTSUP; else as of the objects.
int ckpt_remote_identity(struct ckpt_objects *objects, json_t **ret_identity);
// Makes an empty store at the URL, and nothing on this node. -EEXIST: there is one; -ENOTEMPTY: there are
// objects as a store has them; else as above.
int ckpt_remote_make(const struct ckpt_remote_at *at, char why[CKPT_OBJECTS_WHY_MAX]);

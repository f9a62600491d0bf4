// Older versions of a step, for who pushes it (push.h): of the states of its files that this node has made since the last push each that can still
// be restored goes into the remote's log by itself, the oldest first, before the current version. Which these are says core/step/older.h,
// so that versions which are thinned here are not sent.
//
// Such a version goes with its own number, nonce and time. Its manifest is made anew: its files are in packs by that. Nothing of it is put into the
// log of this node, which gets the version by the entry of the remote's log. Raw files stay as long as the version does.
//
// A version whose files cannot be read any more is passed over, for the life of the process, and the versions behind it go on. So is one that an
// edit made, if the disk has no room for its packs.
//
// Threads: one, that pushes. Blocks on the disk.
#pragma once

#include "core/cold/packing.h"
#include "core/step/older.h"
#include "core/tier/cool.h"

struct ckpt_push_passed {
	char session[CKPT_UUID_LEN + 1];
	uint32_t version; // up to this one
};

// Zeroed: nothing is known.
struct ckpt_push_older {
	// The version that was packed last, and its packs, which are pinned.
	char session[CKPT_UUID_LEN + 1];
	uint32_t version;
	struct ckpt_manifest *m; // NULL: none was
	struct ckpt_packing packing;
	// Its manifest is an object that was put here (m/): until its entry is read nobody else names it. session "": there is none.
	struct ckpt_push_object {
		char session[CKPT_UUID_LEN + 1];
		uint32_t version;
		uint8_t sha256[CKPT_SHA256_LEN];
	} object;
	struct ckpt_push_passed *passed; // malloc'ed
	size_t passed_count, passed_cap;
};

void ckpt_push_older_done(struct ckpt_push_older *o);

// The version that is next, behind version `sent` of the remote's log. -ENOENT: it is the current one; -ENOMEM.
int ckpt_push_older_next(const struct ckpt_push_older *o, struct ckpt_step *step, uint32_t sent,
			 struct ckpt_older *ret_state);
// The manifest of that version with all files in packs that may be named, with a reference. record: its own; gets what the manifest says.
// pack: puts the files of the current version into packs, as far as it can; what both have is packed once. 0; -EINTR; errors of ckpt_seal_older() and ckpt_cool_older().
int ckpt_push_older_pack(struct ckpt_push_older *o, struct ckpt_step *step, struct ckpt_record *record,
			 const struct ckpt_tier_how *how, int (*pack)(void *arg), void *pack_arg,
			 struct ckpt_manifest **ret_manifest);
// No older version of this step is to be sent any more: the log names all packs that were made for it, which are not pinned any more. NULL: of any step.
void ckpt_push_older_sent(struct ckpt_push_older *o, const char *session);
// It is not sent, because of this error, which is told; a manifest that was put for it is removed. Takes acts_lock. 0, -ENOMEM.
int ckpt_push_older_pass(struct ckpt_push_older *o, struct ckpt_step *step, uint32_t version, int error);
// All files with bytes are in packs.
bool ckpt_push_is_in_packs(const struct ckpt_manifest *m);

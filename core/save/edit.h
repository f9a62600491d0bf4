// The next version of a committed step with another manifest: that of before, entry by entry, with what the act leaves out,
// adds, or has learnt of its files.
//
// Calling sequence, under store->acts_lock: ckpt_edit_begin(); ckpt_edit_copy(); what is added with writer and handles;
// ckpt_edit_put(); ckpt_edit_done() in any case. Blocks on the disk.
#pragma once

#include "core/step/step.h"

#define CKPT_EDIT_GONE UINT32_MAX // the handle of an entry that is left out
#define CKPT_EDIT_TRIES 8         // of an act that finds a version that it did not know (-EAGAIN)

struct ckpt_edit {
	struct ckpt_step *step;
	const char *event;    // of the version; NULL: as it was
	bool frees;           // it removes files: its version can be put on a full disk too (version.h)
	bool same_files;      // clients see nothing of it: its time stays
	bool attributes;      // what was changed of attributes until now (attributes.h) is in it
	bool only_attributes; // and nothing else: where these are what they were, no version is put
	// The place of a chunk, or of one that others are decoded beside (with chunk->pack not 0, *pack says which). NULL: as it was.
	void (*locate)(void *arg, struct ckpt_chunk *chunk, struct ckpt_pack *pack);
	// The i-th base of a chunk that was located, in no pack: locate() says where it is. False: what m says of it. NULL: as false.
	bool (*base)(void *arg, const struct ckpt_chunk *chunk, uint32_t i, struct ckpt_chunk *ret_base);
	// The manifest that says where the bytes of a file of m are, which stays the callback's, and the file in it. False: m does. NULL: as false.
	bool (*bytes_in)(void *arg, uint32_t index, const struct ckpt_manifest **ret_from, uint32_t *ret_index);
	bool (*leaves_out)(void *arg, uint32_t index); // of m: the entry is not copied. NULL: all are
	void *arg;
	const char *findings; // in the arrays of these files (core/view/examine.h); NULL: as it was
	const void *catalog;  // of them, encoded, in place of one that m may have; NULL: as it was
	size_t catalog_len;
	char *says;        // ours: metadata, canonical, that takes the place of what was said before; NULL: that stays
	bool names;        // names change: each empty file says where its raw file is, too
	uint32_t moved;    // an entry that has another name, with all below it, by index in m; 0: none
	uint32_t moved_to; // the directory that it is in, and
	const char *moved_name; // its name there
	bool takes_top;         // the record has the mode and owner that the manifest has of the step's directory
	bool merges; // it is a MERGE (core/state/act.h), up to the version merged; the step may be in the trash
	uint32_t merged;
	bool needs_files; // a version without a file is not put: -ENODATA
	bool adopted;     // the version may have what an act before did without an answer
	uint64_t attributes_mark;
	const struct ckpt_summary
		*restores; // m is not of the version of before, but of this one, whose files come back; NULL: it is
	// Of the version of before.
	struct ckpt_manifest *m;
	int64_t committed_ns;
	struct ckpt_manifest_writer *w;
	uint32_t *handles; // in w, by index in m
	uint32_t *subdirs; // by index in m: the directories in it that are left out
	bool *sealed;      // by index in m: of these hard links one has its seal in w
	uint32_t parent;   // the directory, by index in m, that has dirs_in_parent more
	int dirs_in_parent;
	// The result.
	struct ckpt_manifest *next;
	void *data;
	size_t len;
};

// Not of one that restores: that has m before.
// Nobody else is changing the step: -ESTALE it is not committed (any more); -EBUSY it is reopened, or being
// removed as a whole and this is no end of that; ... What was put before without an answer is settled; *adopted: it may be the answer.
int ckpt_edit_begin(struct ckpt_edit *d, bool *adopted);
// All but what is at and below `removed`, an index; 0: all. What moves keeps its number and its raw files where they are.
int ckpt_edit_copy(struct ckpt_edit *d, uint32_t removed);
// Entry index of m once more, as a hard link, under this name in directory parent of m. After _copy.
int ckpt_edit_link(struct ckpt_edit *d, uint32_t index, uint32_t parent, const char *name);
// Without _begin and _put: the manifest alone, as `next` with data and len. m is the caller's choice, of any version of the step, and
// _done's to release.
int ckpt_edit_make(struct ckpt_edit *d);
// -EAGAIN: the step has another version than the one that was copied, begin again; -ENODATA: it would have no file (needs_files); -EIO the outcome is unknown; ...
int ckpt_edit_put(struct ckpt_edit *d);
void ckpt_edit_done(struct ckpt_edit *d);

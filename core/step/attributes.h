// Attributes of what is in a committed step, changed after its commit: mode, owner, time of change and extended attributes.
//
// A change is kept in memory and seen at once. It becomes a version of the step, with the manifest of before but for these attributes,
//   1 s after the last change, 5 s after the first at the latest, at fsync (ckpt_change_publish), at the end of the store,
//   or with the next addition or move in the step, whose version has it, too.
// A crash before that has the version before. Raw files keep the attributes that they have, for other versions share them: the manifest
// says those of an entry whose own have changed, in the extended attribute CKPT_RAW_XATTR (FORMAT.md).
//
// Changes are by inode number, so that they are those of all hard links, and go with a file that is moved in the step.
// Ownership: the step's, as long as it is committed. Threads: any; guarded by step->lock. _publish blocks on the disk, and so may
// _set where no thread can be started; all else does not.
#pragma once

#include "core/step/step.h"

#define CKPT_RAW_XATTR CKPT_OWN_XATTRS "raw"

enum {
	CKPT_ATTRIBUTE_MODE = 1,
	CKPT_ATTRIBUTE_UID = 2,
	CKPT_ATTRIBUTE_GID = 4,
	CKPT_ATTRIBUTE_MTIME = 8,
};

struct ckpt_attributes_new {
	unsigned which; // of those that follow are set
	uint32_t mode;  // permission bits, setuid, setgid and sticky
	uint32_t uid, gid;
	int64_t mtime_s;
	uint32_t mtime_ns;
};

struct ckpt_changed {
	struct ckpt_attributes *attributes; // or NULL; set under step->lock, read without
};
CKPT_PART(struct ckpt_step, struct ckpt_changed, ckpt_changed)

// --- Changing -----------------------------------------------------------------------------------------------------------

// As of change.h. *ret_starts: nobody publishes the changes of the step yet, and the caller is to see to that.
int ckpt_attributes_set(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			const struct ckpt_attributes_new *what, bool *ret_starts);
int ckpt_attributes_set_xattr(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			      const char *name, const void *value, size_t len, int flags, bool *ret_starts);

// --- Reading ------------------------------------------------------------------------------------------------------------

// The entry of m, the current manifest or one before, as it is by now.
void ckpt_attributes_apply(struct ckpt_step *step, const struct ckpt_manifest *m, struct ckpt_entry *e);
// The same of the step's own directory; under step->lock.
void ckpt_attributes_apply_top_locked(struct ckpt_step *step, struct ckpt_summary *summary);

// All extended attributes of an entry, ours too, by now. Free with _done; those of an entry without any cost nothing. -ENOMEM.
struct ckpt_xattrs {
	struct ckpt_xattr {
		const char *name;
		const void *value;
		size_t len;
	} * at;
	size_t count;
};
int ckpt_attributes_xattrs(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
			   struct ckpt_xattrs *ret_xattrs);
void ckpt_xattrs_done(struct ckpt_xattrs *x);
// NULL: there is none of this name.
const struct ckpt_xattr *ckpt_xattrs_find(const struct ckpt_xattrs *x, const char *name);

// --- Versions -----------------------------------------------------------------------------------------------------------

// Some change is in no version yet.
bool ckpt_attributes_any(struct ckpt_step *step);
// For edit.c. The changes that are there by now, as a mark; those after it are not in the version; and the version was put.
uint64_t ckpt_attributes_mark(struct ckpt_step *step);
void ckpt_attributes_put(struct ckpt_step *step, uint64_t mark, const struct ckpt_manifest *was);
// The extended attributes of an entry of m in the version that is written; e: with what it has by now.
int ckpt_attributes_write(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
			  struct ckpt_manifest_writer *w, uint32_t handle);

// Another step has its place (successor.h): the changes that are in no version are changes of that, by path. *ret_starts as of _set. On
// -ENOMEM some are. Errors of ckpt_step_manifest().
int ckpt_attributes_hand_on(struct ckpt_step *from, struct ckpt_step *to, bool *ret_starts);
// Drops the changes that are in no version.
void ckpt_attributes_forget(struct ckpt_step *step);
void ckpt_attributes_forget_locked(struct ckpt_step *step); // under step->lock
// The raw file or directory behind the entry may have others.
bool ckpt_attributes_differ(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e);
// The attributes of that raw file, by the manifest. False: they are those of the entry.
bool ckpt_attributes_raw(const struct ckpt_manifest *m, const struct ckpt_entry *e, uint32_t *ret_mode,
			 struct timespec *ret_mtime);

// For change.c, whose thread watches the changes of a step: it is time to publish them; that failed; the error log was told of it (and is,
// from now on); all is over, and the thread is no watch any more; there is no thread.
bool ckpt_attributes_are_due(struct ckpt_step *step);
void ckpt_attributes_failed(struct ckpt_step *step);
bool ckpt_attributes_have_told(struct ckpt_step *step);
bool ckpt_attributes_leave(struct ckpt_step *step, bool closing);
void ckpt_attributes_unwatch(struct ckpt_step *step);

// Shared files: a file of a committed step that stands in another place, too, a staged step or a plain folder, without a
// byte having moved: as a hard link of its raw file.
//
// Clients see a file of its own there, with an inode number of its own and one link. The raw file carries a mark (an
// extended attribute, set before its first second name), so that nobody changes it in place, whoever finds it later: the
// first change of data or attributes gives the name a copy (reflink where the disk has them), which is an ordinary file.
// What the raw file's own step is deleted and expires for, it loses a name by: the others keep it.
//
// Threads: any. All but the number block on the disk.
#pragma once

#include "core/base/extents.h"
#include "core/step/step.h"

#include <sys/stat.h>

// Set once.
struct ckpt_sharing {
	struct ckpt_number *numbers; // of a reopened step's files from its base
	size_t number_count;
};
CKPT_PART(struct ckpt_step, struct ckpt_sharing, ckpt_sharing)

// Whether what has this name in a live tree is shared. stx is of it; for most files it says all.
bool ckpt_share_is(int dirfd, const char *name, const struct statx *stx);
// Whether the file may be one, though only this name of it is left: then others may still have it open under the name that it
// had in its step. So it is not changed in place either. O_PATH will do.
bool ckpt_share_is_marked(int fd);

// The file that is open at fd gets that mark, before it gets a second name. Errors of fsetxattr(2).
int ckpt_share_mark(int fd);

// The name's copy of its own, in two parts. Made: with all attributes, and with empty none of the bytes; with durable it is on
// disk. It has no name yet but one in the trash; `of` 0: what has the name is not marked (any more), there is no copy.
struct ckpt_share_copy {
	char aside[64];
	uint64_t of; // the number of the file that it is a copy of
};
int ckpt_share_copy_make(struct ckpt_store *s, int dirfd, const char *name, bool empty, bool durable,
			 struct ckpt_share_copy *ret_copy);
// Placed, or dropped: -ESTALE, another file has the name meanwhile, or none. The caller sees to it that nothing is renamed
// from or to this name meanwhile; others may unlink and create.
int ckpt_share_copy_place(struct ckpt_store *s, const struct ckpt_share_copy *copy, int dirfd, const char *name);

// The inode number that clients see of what stands at path in a live tree (step NULL: the plain one; dir_ino: that of its
// directory). What a reopened step has from the version it comes from keeps its number (reopen.h).
uint64_t ckpt_share_ino(struct ckpt_step *step, const char *path, uint64_t dir_ino, const struct statx *stx,
			bool shared);

// Of what was just made for a step from its base, and is not shared: directories, which keep their numbers, wherever they are moved in
// it, and copies of files. -ENOMEM, errors of statx(2).
int ckpt_share_know(struct ckpt_step *step, struct ckpt_manifest *m);
// The number in the base of one of these; 0: it is none.
uint64_t ckpt_share_before(const struct ckpt_step *step, const struct statx *stx);
// The same by its number alone, of a file that is in a manifest of the step.
uint64_t ckpt_share_number_before(const struct ckpt_step *step, uint64_t own);
// Whether it is one, and had this number in the base or in the first version that this mount has reopened.
bool ckpt_share_comes_from(const struct ckpt_step *step, const struct statx *stx, uint64_t number);

// The same of a file or symlink in a committed step, by its entry; a copy where the disk allows no more names of one file,
// we may not mark it, or it is in packs. -EIO: the raw file is gone or changed; -EISDIR.
int ckpt_share_entry(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int dirfd, const char *name);

// The attributes of an entry, as clients see them, for a file or directory that is open at fd.
int ckpt_share_attributes(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int fd);

struct ckpt_share_progress {
	bool durable; // it is on disk when the call returns
	bool raw;     // it is to be a raw file of the step again: with the attributes that the raw file had
	const struct ckpt_extents
		*kept; // the file is there already, with these parts of it and nothing else; NULL: it is made
	// With each piece, where the file is in packs: false ends it with -EINTR. NULL: on and on.
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
};
// A file of a committed step as one of its own, with all its attributes, from wherever its bytes are. progress may be NULL. What fails leaves no
// file, one that was there included.
// -EEXIST; -EIO: they are gone or damaged; ...
int ckpt_share_copy_entry(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int dirfd, const char *name,
			  const struct ckpt_share_progress *progress);

// The seal of the shared file at path in a reopened step, if it is the very file that the version it comes from has there, and has
// sealed: nobody changes such a file in place. stx is of it, handle its place in w. 0, also where there is none; -ENOMEM.
int ckpt_share_seal(struct ckpt_step *step, const char *path, const struct statx *stx, struct ckpt_manifest_writer *w,
		    uint32_t handle);

// All that is in a committed step, and was not removed from it (remove.h), as shared files below dirfd, which is empty.
// The directory itself gets its mode, owner, attributes and time.
int ckpt_share_tree(struct ckpt_step *step, struct ckpt_manifest *m, int dirfd);

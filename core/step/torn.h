// Torn files: files of a staged step that a killed process had open for writing, or that a commit left out as cut off. Such a file may
// end anywhere, whatever its format, so it joins no step until somebody writes it anew (core/save/left_out.h).
//
// The mark is an extended attribute of the file, CKPT_TORN_XATTR, with the file's size and mtime: text "BYTES SECONDS NANOSECONDS".
// A later write changes the mtime, and the mark says nothing any more: nothing has to take it away.
//
// Threads: any. Blocks: an extended attribute is read or written.
#pragma once

#include "core/record/name.h"

#include <stdbool.h>
#include <sys/stat.h>

#define CKPT_TORN_XATTR CKPT_OWN_XATTRS "torn"

// A failure does no harm: the format of the file is still looked at. Nothing is done to a file with several names: another step
// may have it.
void ckpt_torn_mark(int fd);
// It was marked, and has not been written since.
bool ckpt_torn_is(int fd, const struct statx *stx);

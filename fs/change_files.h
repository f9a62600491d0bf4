// Files of a committed step that are changed at once, as a verb asks for it.
#pragma once

struct ckpt_step;

// text: a JSON array of {"path", "raw" or null, "ino", "bytes", "mtime_s", "mtime_ns"}, as of ckpt_amend_change_all(). -EINVAL, and its errors.
// Threads: any. Blocks on the disk.
int change_files(struct ckpt_step *step, const char *text);

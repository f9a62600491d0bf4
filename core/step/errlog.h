// The failures that a user should read, newest last: `.ckptfs/errors`, kept over restarts in the store's "errors" file.
//
// One line each: time (RFC 3339 UTC), step or path, errno name, what happened, what to do; fields parted by tabs, no
// other control bytes. The newest CKPT_ERRORS_LINES_MAX are kept. Threads: any. Adding waits 0.1 s at most for
// the disk, which a thread of the log writes to; closing waits until all is there. A log that cannot be written keeps its
// lines in memory and never fails its caller.
// Each line also goes to the daemon's log (core/base/log.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_errlog;
struct ckpt_jobs;

// dirfd (borrowed for the log's life, as jobs is) is the store's directory; jobs NULL: reads the file only.
int ckpt_errlog_open(int dirfd, struct ckpt_jobs *jobs, struct ckpt_errlog **ret_log); // 0, -ENOMEM
void ckpt_errlog_close(struct ckpt_errlog *log);
__attribute__((format(printf, 5, 6))) void ckpt_errlog_add(struct ckpt_errlog *log, const char *subject, int error,
							   const char *hint, const char *what, ...);
// All lines in one malloc'ed string. 0, -ENOMEM.
int ckpt_errlog_text(struct ckpt_errlog *log, char **ret_text);
// The newest line's time (0: none) and text (malloc'ed, may be NULL).
int ckpt_errlog_last(struct ckpt_errlog *log, int64_t *ret_at_ns, char **ret_message);
// How many lines with an error were added since it was opened.
uint64_t ckpt_errlog_failures(struct ckpt_errlog *log);
const char *ckpt_errno_name(int error); // "EBUSY" for EBUSY or -EBUSY; "E?" when unknown
const char *ckpt_errno_hint(int error); // what to do about it where nothing better is known, or NULL

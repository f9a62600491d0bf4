// Where the daemon's log goes: a file, syslog or stderr. Lines come by ckpt_log() (core/base/log.h), from any thread.
//
// A thread writes them, from the first line on, so that a disk that hangs stops nobody else. At most LINES_MAX wait for it;
// more are dropped, and the next line says how many.
// Calling sequence: log_open() before threads and before the fork; log_close() at the end.
// Errors: a log that cannot be written loses its lines.
#pragma once

// where: a file, "syslog", "-" (stderr). level: error, warn, info, debug; NULL: info. -EINVAL, or -errno of the file.
int log_open(const char *where, const char *level);
// Waits until all lines are written, for 1 s at most.
void log_close(void);

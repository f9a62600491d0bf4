// Lines of the daemon's log: what it does, for those who run it. What users should read goes to the error log of the store
// (core/step/errlog.h). Core writes lines; fs/log.h says where they go. Without a sink, as in the tools, they are dropped.
//
//   info     mounts, commits, deletions, retention, freed room, interrupted sessions
//   warn     the daemon works, but less well than it should
//   error    something failed that nobody else is told of
//   debug    for developers
//
// Calling sequence: ckpt_log_to() before threads start, then ckpt_log().
// Threads: any, with any locks held but leaf ones: a line is handed to the sink's queue (a leaf lock), and no I/O is done here.
// Blocks: never. Errors: none; a line that there is no room for is dropped, and the log says so.
#pragma once

#include <stdbool.h>

#define CKPT_LOG_LINE_MAX 1024

enum ckpt_log_level {
	CKPT_LOG_ERROR,
	CKPT_LOG_WARN,
	CKPT_LOG_INFO,
	CKPT_LOG_DEBUG,
};

// Gets each line, without a line break. It must not block.
typedef void ckpt_log_fn(enum ckpt_log_level level, const char *line);

void ckpt_log_to(ckpt_log_fn *sink, enum ckpt_log_level level_max);
// Whether a line of this level goes anywhere: for a caller that has to work for its words.
bool ckpt_log_wants(enum ckpt_log_level level);
// A longer line than CKPT_LOG_LINE_MAX is cut off.
__attribute__((format(printf, 2, 3))) void ckpt_log(enum ckpt_log_level level, const char *format, ...);

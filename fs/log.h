// What the daemon says of itself, for those who run it: a file, syslog or stderr. What users should read goes to the
// error log of the store (core/store/errlog.h), not here.
// Threads: any, after log_open. A log that cannot be written loses its lines.
#pragma once

#include <stdarg.h>

// where: a file, "syslog", "-" (stderr). level: error, warn, info, debug. -EINVAL, or -errno of the file.
int log_open(const char *where, const char *level);
__attribute__((format(printf, 2, 3))) void log_line(int priority, const char *format, ...); // priorities of syslog(3)

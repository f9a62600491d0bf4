// The metadata of a step: JSON of a small, known form, as its finalize marker carries it.
//
//   { "temporary": bool, "extras": object, "metrics": object of numbers, "world_size": integer >= 1 }
//
// All fields may be absent; others are refused, because a misspelt field would be lost in silence. A metric that is NaN or infinite, as
// Python writes them, is left out. What the marker does not say of
// extras and metrics, name by name, a step can say itself while it is staged:
//
//   user.ckptfs.meta.NAME   extended attributes of its directory: extras.NAME, a JSON value, or else text
//   metrics.json            a file in it, an object of numbers, as frameworks write it: metrics
//
// Where that file is added to a committed step, or written anew, as who evaluates it later does, what it says takes the place of
// what was said before, name by name.
//
// A record has one field more, which no marker may have: "findings", an object, what ckptfs has found in the arrays of the step's files
// (core/view/examine.h). It is of these files alone: a version with other files does not have that of the version before.
//
// Threads: any. Nothing blocks, but for what is said of staged steps.
#pragma once

#include "core/record/name.h"

#include <stdbool.h>
#include <stddef.h>

#define CKPT_METRICS_FILE "metrics.json"
#define CKPT_META_XATTRS CKPT_OWN_XATTRS "meta." // read by name, in no list

struct ckpt_errlog;
struct json_t;

// text is empty (white space counts as empty) or one such object, at most CKPT_METADATA_BYTES_MAX bytes. *ret_json is
// its canonical form (sorted, compact), malloc'ed, or NULL for empty. -EINVAL and -EFBIG: *ret_why says what is wrong
// and where (malloc'ed, may be NULL). -ENOMEM.
int ckpt_metadata_parse(const char *text, size_t len, char **ret_json, char **ret_why);
int ckpt_metadata_temporary(const char *json, bool *ret_temporary); // of a canonical form; NULL: false. 0, -ENOMEM
// Canonical forms, or NULL: json with all of below that it does not have, of extras and metrics name by name. *ret_json is malloc'ed, or NULL. -EFBIG:
// it would be more than CKPT_METADATA_BYTES_MAX; -ENOMEM.
// Findings are those of json.
int ckpt_metadata_merge(const char *json, const char *below, char **ret_json);
// Canonical forms, or NULL: of json the names whose values `was` does not have, but for findings. *ret_json is malloc'ed, or NULL where there is none. -ENOMEM.
int ckpt_metadata_changes(const char *json, const char *was, char **ret_json);
// 0: a canonical form says metrics and extras alone; -EINVAL: more, or nothing; -ENOMEM.
int ckpt_metadata_is_note(const char *json);
// One of the extras, text as it is and all else as JSON; malloc'ed. -ENODATA, -ENOMEM.
int ckpt_metadata_extra(const char *json, const char *name, char **ret_value);
// Canonical forms, or NULL: json with these findings in place of its own; NULL: without any. *ret_json is malloc'ed, or NULL. -EFBIG, -ENOMEM.
int ckpt_metadata_set_findings(const char *json, const char *findings, char **ret_json);
// The findings of a canonical form, or NULL; malloc'ed. -ENODATA: it has none; -ENOMEM.
int ckpt_metadata_findings(const char *json, char **ret_findings);
// A value of an extra. -EINVAL: it is neither JSON nor text, or nested too deep; -ENOMEM.
int ckpt_metadata_value(const char *text, size_t len, struct json_t **ret_value);

// --- Of a staged step, whose directory is open as dirfd. Blocks on the disk. -------------------------------------------------------

// Whether it may have this attribute, too: 0; -EINVAL, and why; -errno.
int ckpt_metadata_may_set(int dirfd, const char *xattr, const char *value, size_t len, const char **ret_why);
// What the marker carried (canonical, or NULL) and what the step says itself. Of that, what cannot be used is left out and said in
// the error log under this name. 0; -ENOMEM, -EIO ...: it could not be read.
int ckpt_metadata_of_staged(int dirfd, const char *metadata, struct ckpt_errlog *log, const char *name,
			    char **ret_json);
// {"metrics": {...}}, malloc'ed, of a file in dirfd that is the step's metrics.json, or NULL: of it nothing can be used.
int ckpt_metadata_of_metrics(int dirfd, const char *file, struct ckpt_errlog *log, const char *name, char **ret_json);

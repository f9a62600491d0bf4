// The verbs on saves that are unfinished: abort, begin, resume and commit (verbs.h has their requests). session: of such a save.
//
// As verbs_answer(). Threads: any. May block on the disk, and a commit on open writers.
#pragma once

#include "core/base/json.h"
#include "fs/fs.h"

char *answer_abort(struct ckpt_fs *fs, const char *session);
// from: the session of a step, or NULL. "force": a committed step may have the name, and is replaced by the commit.
char *answer_begin(struct ckpt_fs *fs, const char *path, const char *from_session, const json_t *request);
char *answer_resume(struct ckpt_fs *fs, const char *session);
char *answer_commit(struct ckpt_fs *fs, const char *session, const json_t *request);

// Renames of a step's own directory, and of a plain folder to the name of one (ops_rename.c says which is which): commits, moves, and
// staged steps that become a directory of another.
//
// Threads: those of calls (call_detach). Blocks: a commit waits for open writers and for the disk.
#pragma once

#include "fs/call.h"

// Renames the step that has c->name in c->node to c->other_name in c->other, and answers.
void rename_step_run(struct call *c);
// The plain folder of that name is committed as a step of its new name: *ret_step, a reference. 1: it is to be renamed as a plain folder.
int rename_step_commit_folder(struct call *c, struct ckpt_step **ret_step);
// Answers such a rename, of which step came (NULL: none), once that is as durable as was asked for.
void rename_step_reply(struct call *c, int rc, struct ckpt_step *step);

// No arrays, no step: a staged directory without array data became a plain folder (core/save/looker.h). Where the first array file is
// made in it, it is staged again, with all that is in it. ckptfs-steps(7) says so.
//
// Open files and nodes stay what they are. What has a name of array files counts as one: what is in it nobody knows yet.
// Threads: _is_due any; _then not those that serve the kernel: changes of the plain tree that are under way end first.
#pragma once

#include "fs/call.h"

// Whether a file of this name, which is about to be made in the plain folder dir, is the first one of such a folder. Reads an extended
// attribute of folders that have a step's name.
bool restage_is_due(struct ckpt_fs *fs, struct node *dir, const char *name);
// Stages the folder in which c->node, or with `other` c->other, is, and runs the call once more, on a thread of its own. What cannot be
// staged stays a plain folder.
void restage_then(struct call *c, bool other);

// `.ckptfs/metrics`: what the mount counts and measures, in the text form that Prometheus reads.
//
// Names never change their meaning; what is only in memory counts from the mount on. Threads: any. Walks the staged steps on
// the disk.
#pragma once

#include "fs/fs.h"

char *metrics_text(struct ckpt_fs *fs); // malloc'ed; NULL: no memory

// The words after -o, as CLI.md of the command line lists them, into struct ckpt_mount.
// Threads: one. Nothing blocks, but user names are looked up.
#pragma once

#include "fs/mount.h"

#include <argp.h>

// Applies one -o argument ("ro,marker=.done,x-systemd.automount"). The strings of m live until the process ends.
// 0, or the exit status of a failure that has been said.
int ckpt_mount_options(const char *text, struct ckpt_mount *m);
// Those of this version, for the help; they stay to the end of the process.
const struct argp_option *ckpt_mount_options_help(void);
#define CKPT_MOUNT_OPTIONS_TITLE "Mount options, for -o, with ',' between them:"

// What the files of fs/ share: the mount that is served, and how a request finds it.
//
// fs/ turns requests of the kernel into calls of core and answers them. Rooms:
//   mount     options, start, the loop, the end          node      nodeids, names, paths
//   attr      attributes as clients see them         attr_node  those of any node
//   call      requests that a commit makes wait          handle    open files and passthrough
//   ops_name  mkdir, mknod, links                        ops_file  create, open, read, write, sync
//   ops_remove  unlink, rmdir                            ops_rename  rename(2)
//   rename_step  the part of that which is about steps
//   ops_dir   listing                                    ops_attr  attributes, extended attributes, statfs
//   folder    plain folders, and the steps in them       unstage   staged directories that become plain folders
//   restage   and those of them that are staged again
//   marker    the finalize marker                        complete  what ends a step: that, a framework's last act
//   complete_watch  the names of such acts
//   amend     files whose close is an act of ours        draft     new content of plain files
//   amend_file  what is known of such a file
//   copy_up   the first change of a shared file          latest    the link to the newest step
//   latest_led  threads that it led to a step
//   control   the directory .ckptfs                      control_file  the files of it, open
//   control_conflicts  its folder of conflict copies
//   control_arrays     STEP/.arrays and STEP/.views, the arrays of a step
//   decider   whether a step is to be saved              status    status.json; metrics
//   client    what /proc says of the caller              end       how it ends in time
//   verbs     what the command line asks of a mount      listener  the socket that it asks by
//   verbs_session  those on unfinished saves             verbs_answer  what they answer
//   limit     whether more may be written
//   notify    words to the service manager               abilities  what can be made use of here
//   hook      the program that is run after commits
//   signals   those that the mount is sent               attributes  changes of attributes in committed steps
//   look_again  readers of a name that is replaced all the time
//   ops_space fallocate, copies, holes                   unwritten  files of committed steps, open for writing
//   unwritten_list  who has them open
//   ops_lookup  what names lead to     beside    editors' files in committed steps
//   others    the plain tree, which other nodes change, too
//   durable   waiting for the object store              tell      words to the kernel
//   waiter    a client that waits
#pragma once

#include "core/step/store.h"
#include "fs/node.h"
#include "fs/options.h"

#include <fuse_lowlevel.h>

struct ckpt_fs {
	struct ckpt_store *store;
	const struct ckpt_mount *mount;
	struct fuse_session *se;
	char *mountpoint; // absolute
	// Agreed with the kernel by its first request, which status may be quicker than.
	_Atomic bool passthrough, io_uring;  // in use
	const char *_Atomic passthrough_why; // when not in use
	struct node_table *nodes;
	struct drafts *drafts;
	struct look_again *look_again;
	struct ckpt_array_cache *arrays;    // those of steps
	struct ckpt_array_pool *array_pool; // and their open files
	uint8_t array_key[16];              // of their numbers: a secret of this mount
	uint64_t views_told[16];            // digests of the names that the error log has as wrong: atomic each
	struct hooks *hooks;                // NULL: no program is run after commits
	mode_t umask;                       // of who mounted
	struct decider *decider;
	int64_t started_ns;
	bool ending; // atomic: clients are let go, whatever they wait for (end.h)
};

static inline struct ckpt_fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

// core answers with 0 or -errno, libfuse wants errno.
static inline void reply_error(fuse_req_t req, int rc)
{
	fuse_reply_err(req, -rc);
}

// How long the kernel may believe what it was told, in seconds (DESIGN.md section 3). Names and attributes change by the
// kernel's own requests, which it knows of, with these exceptions: a commit changes the time of its folder (the kernel is
// told, folder_touch), stores into shared mappings change times, and a verb may drop a staged step (the kernel is told,
// verbs.c). That a name is not there is never believed: a rename by the daemon may bring it.
#define TIMEOUT_COMMITTED 60.0
#define TIMEOUT_NAME 60.0
#define TIMEOUT_ATTR 1.0
#define TIMEOUT_NONE 0.0 // the control directory, markers and `latest`

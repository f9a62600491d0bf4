// New names for what a step has in a remote, where the old ones were condemned before an entry of the log named them (REMOTE.md P4).
//
// Chunks in condemned packs go into new packs, encoded again from raw files or as they are stored, and a new version of the step says so. Where
// its manifest alone is condemned, the new version has the same files and another manifest.
//
// Threads: one, beside all that goes on. Blocks on the disk, and on the network for packs that are not on this node.
#pragma once

struct ckpt_job;
struct ckpt_step;

// The newest version names nothing that is condemned as far as the log was read. 0: there was nothing to do, or it is done. -EINTR: the job is to
// end. -EBUSY, -ESTALE: the step is being changed or is not committed. -EBADMSG: a chunk of it cannot be read any more; what could be was moved.
// Else as of ckpt_repack().
int ckpt_renew(struct ckpt_step *step, struct ckpt_job *job);

// A disk that loses what was not synced. It takes the place of ckpt_sys over a real directory, lets every call through,
// and keeps a journal of the changes and of what made each durable. From the journal it builds the directory as a power
// cut at any point could have left it, so one run of a test's body serves for every point:
//
//	ckpt_disk_begin(dir, &disk);
//	... the body: opens dir, saves, notes ckpt_disk_count(disk) with each acknowledgement ...
//	ckpt_disk_end(disk);
//	for (point = 0; point <= ckpt_disk_count(disk); point++)
//		for (seed = 0; seed < seeds; seed++)
//			ckpt_disk_crash(disk, point, seed, empty_dir); ... check it ...
//	ckpt_disk_free(disk);
//
// What it promises is POSIX and no more:
//  - Bytes, sizes and truncations of a file are durable after fsync or fdatasync of the file; extended attributes after
//    fsync. Before, any part of them may be there: none, all, single blocks with zeroes between, a short tail.
//  - A name (create, mkdir, symlink, link, unlink, rename) is durable after fsync of its directory; the fsync of the
//    file or directory itself does nothing for its name. Before, any subset may be there, but two changes of the same
//    name are seen in their order, and rmdir after all changes in what it removed.
//  - A rename is one change, wholly there or not, and durable with its target's directory.
//  - syncfs makes everything durable.
//  - Modes, owners and times are not modelled: files come back with the mode they were created with.
// What is in the directory at the start is durable. Changes made behind ckpt_sys (LMDB's files) are not on this disk.
//
// One disk at a time. Threads: the body may use any; each call is one step of the journal. Not for large files: all
// bytes written are kept in memory.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckpt_disk;

#define CKPT_DISK_LEAST 0u // the seed for which only what is durable is there
#define CKPT_DISK_MOST 1u  // the seed for which everything done is there; others are random, and repeatable

// The k-th seed of a loop that leaves out the MOST: what is there then is what is there when the process dies.
static inline uint64_t ckpt_disk_seed(unsigned k)
{
	return k ? CKPT_DISK_MOST + k : CKPT_DISK_LEAST;
}

// dir is an existing directory. 0, -errno.
int ckpt_disk_begin(const char *dir, struct ckpt_disk **ret_disk);
// Puts the former ckpt_sys back; the journal stays.
void ckpt_disk_end(struct ckpt_disk *disk);
void ckpt_disk_free(struct ckpt_disk *disk);

// Changes and syncs so far. Points 0 to count: the cut comes after that many of them.
size_t ckpt_disk_count(struct ckpt_disk *disk);
// From point on every change and sync fails with -EIO and does nothing, as on a disk that is gone.
void ckpt_disk_stop(struct ckpt_disk *disk, size_t point);
// Changes that met files or directories which were made behind ckpt_sys.
size_t ckpt_disk_unknown(struct ckpt_disk *disk);

// Builds a state after a cut at the point in the empty directory out_dir. 0, -errno. A test that fails afterwards prints the
// point and the seed of the last one, and with CKPT_CRASH_JOURNAL in the environment the journal up to there.
int ckpt_disk_crash(struct ckpt_disk *disk, size_t point, uint64_t seed, const char *out_dir);

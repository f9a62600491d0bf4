// Checks the file of an index before LMDB maps it: LMDB trusts its pages, and a damaged one makes it read outside of
// the mapping (SIGBUS), follow wild offsets or abort. This reads with pread(2), follows no pointer, and knows only the
// file format (LMDB 0.9, data version 1; one unnamed tree, no DUPSORT), not the library.
//
// Checked: both meta pages, and for one snapshot every branch and leaf page, the header of every run of overflow pages,
// and the list of free pages: bounds, order of keys, counters, no page used twice. Not checked: the bytes of values,
// which carry checksums of their own.
// Threads: plain functions. Every call blocks on the disk. Errors: -EBADMSG damaged, -ENOMEM, -EIO.
#pragma once

#include <stdint.h>

// The meta pages, and that the file is as long as they say. Enough to let LMDB open it. -EAGAIN: a writer in another
// process changes them all the time.
int ckpt_index_check_header(int fd);

// The snapshot of transaction txnid. The caller holds a read transaction of that number, so that none of its pages is
// reused meanwhile. -EAGAIN: a writer in another process has since replaced the meta page; begin a newer one.
int ckpt_index_check_snapshot(int fd, uint64_t txnid);

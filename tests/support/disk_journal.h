// Inside disk.h: the tables that disk.c fills and disk_state.c reads.
#pragma once

#include "tests/support/disk.h"

#include "core/base/lock.h"
#include "core/base/sys.h"

#include <stdbool.h>
#include <sys/stat.h>

#define NONE (-1)
#define ROOT 0 // the inode of the directory itself
#define NEVER SIZE_MAX

struct xattr {
	char *name;
	void *value;
	size_t len;
};

// data and xattrs are those of the start; a symlink's data is its target.
struct inode {
	dev_t dev;
	ino_t ino;
	int pin;
	mode_t mode;
	char *data;
	size_t len;
	struct xattr *xattrs;
	size_t xattrs_count, xattrs_cap;
};

struct slot {
	int dir; // inode
	char *name;
	int base; // inode at the start, or NONE
};

enum step_kind {
	STEP_NAME,     // slot gets inode
	STEP_UNLINK,   // slot loses inode; of a directory too
	STEP_RENAME,   // slot loses inode, to_slot gets it in place of to_inode
	STEP_EXCHANGE, // slot gets to_inode, to_slot inode
	STEP_WRITE,    // inode gets data at offset
	STEP_TRUNCATE, // inode gets the size offset
	STEP_XATTR,    // inode gets name = data
	STEP_SYNC,     // of inode; what it covered has its number in durable_at
};

struct step {
	enum step_kind kind;
	int inode, to_inode;
	int slot, to_slot;
	size_t offset, len;
	char *name;
	void *data;
	size_t durable_at; // the number of the sync step, or NEVER
};

struct ckpt_disk {
	struct ckpt_sys below;
	struct ckpt_lock lock;
	// Guarded by lock while the disk is installed.
	struct inode *inodes;
	size_t inodes_count, inodes_cap;
	struct slot *slots;
	size_t slots_count, slots_cap;
	struct step *steps;
	size_t steps_count, steps_cap;
	size_t stop;
	size_t unknown;
};

// The disk goes: no state of it is the one that a test looks at.
void disk_forget(const struct ckpt_disk *d);

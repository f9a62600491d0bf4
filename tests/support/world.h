// A store and its mount in a folder of its own, the daemon that serves it, and what can be done to them.
//
// For the test's process only, which gets a mount name space of its own: others do not see the mount, and it goes with the
// last process there. What fails ends the test, and the daemon with it.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// How a mount does its I/O (MODES in mounting.py). The kernel's switch for io_uring is one for all.
enum world_io {
	WORLD_PASSTHROUGH, // the kernel reads and writes the files behind
	WORLD_DAEMON,      // the daemon does
	WORLD_URING,       // passthrough, and requests over io_uring
};

struct world {
	char base[PATH_MAX];
	char disk[PATH_MAX]; // a small filesystem of its own below base, where the store lies; "": it lies in base
	char store[PATH_MAX], mount[PATH_MAX], plain[PATH_MAX], states[PATH_MAX];
	char options[256];
	enum world_io io;
	pid_t daemon; // 0: not mounted
};

// Why there can be no mount here; NULL: there can.
const char *world_obstacle(void);
// Why there can be none with io_uring.
const char *world_uring_obstacle(void);

// disk_mb: the store lies on ext4 of this size, on a loop device; 0: on what base is on. options may be NULL. The store is
// made and mounted; plain is an empty folder in base.
void world_open(struct world *w, enum world_io io, const char *options, unsigned disk_mb);
void world_close(struct world *w);
void world_mount(struct world *w);
void world_umount(struct world *w); // the daemon must end well
// Drops what the machine's memory has of the store's files, so that the next read of them is one of the disk. Unmounted only.
void world_forget_pages(struct world *w);
// The daemon is killed, or was; its mount is taken away and made anew.
void world_kill(struct world *w);
// Leaves this much room on the disk, and gives it back.
void world_fill_disk(struct world *w, uint64_t bytes);
void world_make_room(struct world *w);
// The daemon's log and the mount's errors, to stderr: for who reads the failure, of which Check's message has no room for them.
void world_tell(const struct world *w);

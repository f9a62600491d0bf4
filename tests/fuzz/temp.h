// A directory for a fuzz target that needs a disk: in memory where that can be, and gone when the program ends. One that
// crashes leaves it behind, but for a child of replay_main.h, whose parent removes it.
#pragma once

#include "tests/fuzz/replay.h"

#include "tests/support/suite.h"

#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static char fuzz_temp[PATH_MAX];
static pid_t fuzz_temp_owner;

static void fuzz_temp_remove(void)
{
	if (getpid() == fuzz_temp_owner) // not a child that looks at an index
		ckpt_temp_empty(fuzz_temp, 1);
}

// Sets fuzz_temp, once.
static inline void fuzz_temp_init(void)
{
	const char *given = getenv("CKPT_FUZZ_TEMP");

	snprintf(fuzz_temp, sizeof(fuzz_temp), "%s/XXXXXX", given ? given : "/dev/shm");
	if (!mkdtemp(fuzz_temp) || setxattr(fuzz_temp, "user.test", "", 0, 0)) {
		rmdir(fuzz_temp);
		snprintf(fuzz_temp, sizeof(fuzz_temp), "/tmp/ckptfs-fuzz-XXXXXX");
		fuzz_assert(mkdtemp(fuzz_temp));
	}
	fuzz_temp_owner = getpid();
	atexit(fuzz_temp_remove);
}

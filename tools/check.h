// The files of a committed version against its manifest: that each exists in its session with the type, size, mode and
// time that the manifest gives, that nothing else was there when it was committed, and that their bytes are those that were sealed. Of a file
// in packs: that each of its chunks is where the manifest says.
//
// A mount goes on beside it: what is not as the manifest says is looked at once more where a newer version says something else.
//
// Before a file is sealed nobody knows what its bytes were: they are read, to see that they can be. Threads: one. Blocks on the
// disk.
#pragma once

#include "core/record/manifest.h"
#include "core/step/store.h"

struct ckpt_packs;

struct ckpt_check {
	struct ckpt_store *store;
	struct ckpt_packs *packs; // of the store, borrowed
	bool read_data;
	// Called for each problem; path is in the step, NULL for the step itself.
	void (*bad)(void *arg, const char *path, const char *problem);
	// Called now and then with the bytes (read_data) or files dealt with since the last call.
	void (*progress)(void *arg, uint64_t done);
	// Called for each file, hard links once, that is not sealed: its bytes can be compared with nothing.
	void (*unsealed)(void *arg);
	void *arg;
};

// summary: of the version that m describes. Where it is its session's first, nothing else may lie in the directory that was there when
// it was committed; later ones may lack what those before them had.
void ckpt_check_files(const struct ckpt_check *c, const struct ckpt_manifest *m, const struct ckpt_summary *summary);

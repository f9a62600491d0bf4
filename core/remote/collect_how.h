// The orders and the report of a collection on a remote (collect.h).
//
// Threads: plain data. Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_COLLECT_GRACE_NS (INT64_C(24) * 3600 * 1000000000)
#define CKPT_COLLECT_DELAY_NS (INT64_C(3600) * 1000000000)
#define CKPT_COLLECT_HOLD_NS (INT64_C(7) * 24 * 3600 * 1000000000) // so long a HOLD holds
#define CKPT_COLLECT_UPLOADS_NS (INT64_C(24) * 3600 * 1000000000)
#define CKPT_COLLECT_REPACK_BYTES (UINT64_C(8) << 30) // of a mount by itself, at once
#define CKPT_COLLECT_WHY_MAX 512

struct ckpt_collect_how {
	int64_t grace_ns; // an object that is younger is no candidate
	int64_t delay_ns; // between a CONDEMN and the removal
	bool dry_run; // nothing is appended or removed: what would be condemned counts as condemned, what would go as deleted
	bool force; // even if it is most of what is there
	struct {
		uint64_t bytes_max; // of what is needed of half-dead packs, to move at once; 0: they stay as they are
		bool gently, quiet; // as of ckpt_repack_how
	} repack;
	bool leaves_word; // a CONDEMN is appended, though there is no garbage, so that others need not look
	// Now and then, on the caller's thread; bytes were removed since the call before. Ends it by answering false. NULL: on and on.
	bool (*go_on)(void *arg, uint64_t bytes);
	void *arg;
};

struct ckpt_collect_count {
	uint64_t objects, bytes; // packs and manifests
};

struct ckpt_collect_done {
	struct ckpt_collect_count live;      // needed, or held
	struct ckpt_collect_count young;     // needed by nobody yet, and younger than the grace time
	struct ckpt_collect_count condemned; // by this collection
	struct ckpt_collect_count deleted;
	struct ckpt_collect_count waiting; // condemned, and not removed before the delay is over
	int64_t waiting_ns;                // until the last of those may go, from now on
	uint64_t uploads;                  // in parts, that were given up
	struct ckpt_collect_count
		half_dead; // packs of which less than half is needed, by listed steps alone; bytes: that nobody needs
	struct ckpt_collect_count
		repacked; // of them, that nobody needs once this node has pushed that; bytes: that were put elsewhere
	uint64_t damaged; // of them, that stay, as something of them cannot be read
	char why[CKPT_COLLECT_WHY_MAX]; // it failed, for people; "" else
};

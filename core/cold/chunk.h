// Where a file is cut into chunks, the pieces that have a hash of their own: so that the same array is the same chunks
// wherever it stands, in files of other headers, neighbours and formats.
//
// A chunk begins at the first byte of each array of CKPT_CHUNK_ARRAY_MIN bytes and more, and every 4 MiB from there to the
// array's end. What lies between such arrays, headers, gaps and smaller arrays, is gathered: it is chunks from its own first
// byte, every 4 MiB, to the next such array or the end of the file. So there are never more than one for each 4 MiB, two for
// each such array, and one. A file whose format is not known has none, and is cut every 4 MiB.
//
// The bound: a chunk costs some 64 bytes in the manifest, with the gap in front of it twice that, and later an entry in the
// index and in a pack; of 64 KiB that is 0.2 %. What is smaller is little of a model (biases, norms, scalars), so that
// little is lost by gathering it; and there may be many, as optimizers keep their counts.
//
// Ownership: the caller's, until _done. Threads: one at a time. _init blocks as the source does; it reads what array.h
// reads.
#pragma once

#include "core/base/source.h"

#define CKPT_CHUNK_BYTES (4u << 20)
#define CKPT_CHUNK_ARRAY_MIN (64u << 10)

struct ckpt_cuts {
	uint64_t bytes; // of the file
	struct ckpt_cut {
		uint64_t begin, end;
	} * arrays; // that have chunks of their own, in order
	size_t count;
	size_t next; // the first that does not lie before what was asked for last
};

// -ENOMEM, or what the source says. _done is for what failed, too.
int ckpt_cuts_init(struct ckpt_cuts *c, const struct ckpt_source *s);
void ckpt_cuts_done(struct ckpt_cuts *c);
// The length of the chunk that begins at `at`, below bytes: 0, then the ends of the chunks, in order.
uint32_t ckpt_cuts_next(struct ckpt_cuts *c, uint64_t at);

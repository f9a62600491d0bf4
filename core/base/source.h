// Bytes that are read at any place and have an end: those of a file, or what else has some. So what reads a format does not
// know where they come from.
//
// Ownership: a source is the caller's, and what arg is of lives as long as it is read. Threads and blocking are those of
// read().
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckpt_source {
	uint64_t bytes;
	// All of these, which lie within bytes: 0, or -errno; -ENODATA when there are fewer than were promised.
	int (*read)(void *arg, uint64_t offset, void *buf, size_t len);
	void *arg;
	// Of all bytes, 32 of them, where that is known: who needs it does not read them for it. Else NULL.
	const uint8_t *sha256;
};

// That of an open file.
struct ckpt_source ckpt_source_file(int fd, uint64_t bytes);

// 0; -EINVAL: it does not have so many bytes there, and none was asked for; else what read() said, which is never -EINVAL.
int ckpt_source_read(const struct ckpt_source *s, uint64_t offset, void *buf, size_t len);

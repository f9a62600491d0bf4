#include "core/codec/codec_lzf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LITERALS_MAX 32u // a first byte below this is a literal
#define LENGTH_ON 7u     // of the three bits: a byte more follows
#define MATCH_LEAST 2u

struct part {
	bool is_match;
	size_t bytes, distance; // bytes of it, decoded
	size_t taken;           // bytes of the block in front of a literal's, or all of a match
};

// False: the block ends in it.
static bool take_part(const uint8_t *at, size_t left, struct part *ret_part)
{
	bool is_long = *at >> 5 == LENGTH_ON;

	*ret_part = (struct part){.is_match = *at >= LITERALS_MAX, .bytes = *at + 1u, .taken = 1};
	if (!ret_part->is_match)
		return ret_part->bytes < left;
	ret_part->taken = is_long ? 3 : 2;
	if (left < ret_part->taken)
		return false;
	ret_part->bytes = (size_t)(*at >> 5) + (is_long ? at[1] : 0) + MATCH_LEAST;
	ret_part->distance = ((size_t)(*at & 31) << 8 | at[ret_part->taken - 1]) + 1;
	return true;
}

int ckpt_lzf_bytes(const void *block, size_t block_bytes, size_t most, size_t *ret_bytes)
{
	const uint8_t *at = block, *end = at + block_bytes;
	size_t bytes = 0;
	struct part p;

	while (at < end) {
		if (!take_part(at, (size_t)(end - at), &p) || p.bytes > most - bytes)
			return -EBADMSG;
		bytes += p.bytes;
		at += p.taken + (p.is_match ? 0 : p.bytes);
	}
	*ret_bytes = bytes;
	return 0;
}

int ckpt_lzf_decode(const void *block, size_t block_bytes, void *plain, size_t bytes)
{
	const uint8_t *at = block, *end = at + block_bytes;
	uint8_t *begin = plain, *to = begin;
	struct part p;

	while (at < end) {
		if (!take_part(at, (size_t)(end - at), &p) || p.bytes > bytes - (size_t)(to - begin))
			return -EBADMSG;
		at += p.taken;
		if (!p.is_match) {
			memcpy(to, at, p.bytes);
			to += p.bytes;
			at += p.bytes;
			continue;
		}
		if (p.distance > (size_t)(to - begin))
			return -EBADMSG;
		for (size_t i = 0; i < p.bytes; i++, to++) // a match may reach into itself
			*to = to[-(ptrdiff_t)p.distance];
	}
	return to == begin + bytes ? 0 : -EBADMSG;
}

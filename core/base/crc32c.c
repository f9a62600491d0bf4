// Eight bytes at a time, with a table for the place of each (Kounavis and Berry, "slicing by 8"). The tables are made at the first
// call.
#include "core/base/crc32c.h"

#include "core/base/util.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u // its bits reversed
#define SLICES 8

static uint32_t tables[SLICES][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		tables[0][byte] = crc;
	}
	for (int slice = 1; slice < SLICES; slice++)
		for (uint32_t byte = 0; byte < 256; byte++) {
			uint32_t crc = tables[slice - 1][byte];

			tables[slice][byte] = crc >> 8 ^ tables[0][crc & 255];
		}
}

static uint32_t add_word(uint32_t crc, const uint8_t *p)
{
	uint64_t word = ckpt_get64(p) ^ crc;

	crc = 0;
	for (int i = 0; i < SLICES; i++)
		crc ^= tables[SLICES - 1 - i][word >> 8 * i & 255];
	return crc;
}

uint32_t ckpt_crc32c(uint32_t before, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	uint32_t crc = ~before;

	pthread_once(&made, make_tables);
	for (; len >= SLICES; len -= SLICES, p += SLICES)
		crc = add_word(crc, p);
	for (; len; len--)
		crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 255];
	return ~crc;
}

#include "core/base/utf8.h"

size_t ckpt_utf8_sequence(const uint8_t *text, size_t len)
{
	uint8_t low = 0x80, high = 0xbf;
	size_t want;

	if (!len)
		return 0;
	if (text[0] < 0x80)
		return 1;
	if (text[0] >= 0xc2 && text[0] <= 0xdf) {
		want = 2;
	} else if (text[0] >= 0xe0 && text[0] <= 0xef) {
		want = 3;
		low = text[0] == 0xe0 ? 0xa0 : 0x80;
		high = text[0] == 0xed ? 0x9f : 0xbf;
	} else if (text[0] >= 0xf0 && text[0] <= 0xf4) {
		want = 4;
		low = text[0] == 0xf0 ? 0x90 : 0x80;
		high = text[0] == 0xf4 ? 0x8f : 0xbf;
	} else {
		return 0;
	}
	if (len < want || text[1] < low || text[1] > high)
		return 0;
	for (size_t i = 2; i < want; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	return want;
}

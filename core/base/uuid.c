#include "core/base/uuid.h"

#include "core/base/sys.h"
#include "core/base/util.h"

#include <stdio.h>

int ckpt_uuid_make(char ret_uuid[CKPT_UUID_LEN + 1])
{
	uint8_t b[16];
	int rc = ckpt_sys.random(b, sizeof(b));

	if (rc)
		return rc;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	snprintf(ret_uuid, CKPT_UUID_LEN + 1, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return 0;
}

bool ckpt_uuid_check(const char *text)
{
	for (int i = 0; i < CKPT_UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = text[i];

		if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return !text[CKPT_UUID_LEN];
}

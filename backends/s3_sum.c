#include "backends/s3_sum.h"

#include "core/base/util.h"

void ckpt_s3_sum_text(const uint8_t sha256[CKPT_SHA256_LEN], char ret_text[CKPT_S3_SUM_MAX])
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *to = ret_text;

	for (size_t i = 0; i < CKPT_SHA256_LEN; i += 3) {
		uint32_t bits = (uint32_t)sha256[i] << 16 | (uint32_t)sha256[i + 1] << 8;

		if (i + 2 < CKPT_SHA256_LEN)
			bits |= sha256[i + 2];
		for (int shift = 18; shift >= 0; shift -= 6)
			*to++ = digits[bits >> shift & 63];
	}
	to[-1] = '='; // 32 bytes are 43 digits
	*to = '\0';
}

bool ckpt_s3_sum_check(const struct ckpt_s3_request *r, struct ckpt_range *const *sorted, size_t count, uint64_t total)
{
	char sent[CKPT_S3_SUM_MAX + 16], text[CKPT_S3_SUM_MAX];
	uint8_t sha256[CKPT_SHA256_LEN];

	ckpt_http_header(&r->call.answer, "x-amz-checksum-sha256", sent, sizeof(sent));
	if (strlen(sent) != 44 || !count || sorted[0]->offset || sorted[0]->len < total)
		return true; // of an upload in parts it is one of their sums, and has "-N" behind it
	ckpt_sha256(sorted[0]->buf, (size_t)total, sha256);
	ckpt_s3_sum_text(sha256, text);
	return !strcmp(sent, text);
}

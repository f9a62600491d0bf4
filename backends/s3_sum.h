// The SHA-256 of an object, as stores keep it with the object: x-amz-checksum-sha256, in base64.
// Pure functions, any thread, nothing blocks.
#pragma once

#include "backends/s3_request.h"

#define CKPT_S3_SUM_MAX 48 // with the NUL

// Of the SHA-256 in hex digits that a request has.
void ckpt_s3_sum_text(const uint8_t sha256[CKPT_SHA256_LEN], char ret_text[CKPT_S3_SUM_MAX]);
// False: the answer has a sum, one of the sorted ranges has all of the object's bytes, and they are not those.
bool ckpt_s3_sum_check(const struct ckpt_s3_request *r, struct ckpt_range *const *sorted, size_t count, uint64_t total);

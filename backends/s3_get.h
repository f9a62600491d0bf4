// Ranges of one object of an S3 store, several requests at once.
#pragma once

#include "backends/s3_request.h"

// As get_ranges of objects.h: -ESTALE where the answers are of different versions.
int ckpt_s3_get_ranges(struct ckpt_s3 *s3, const char *key, struct ckpt_range *ranges, size_t count,
		       const struct ckpt_until *until, struct ckpt_object *ret_object);
int ckpt_s3_head(struct ckpt_s3 *s3, const char *key, const struct ckpt_until *until, struct ckpt_object *ret_object);

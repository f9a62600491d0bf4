// An object of an S3 store that is put in parts (a multipart upload): sent several at once, and each again by itself.
#pragma once

#include "backends/s3_request.h"

// As put_from of objects.h. An upload that fails is aborted; one whose abort fails stays, unseen, until ckpt_s3_abort_uploads().
int ckpt_s3_put_parts(struct ckpt_s3 *s3, const char *key, const struct ckpt_source *source,
		      const struct ckpt_until *until, struct ckpt_object *ret_object);
// The headers of a new object that the store's options ask for.
int ckpt_s3_put_headers(struct ckpt_s3_request *r);
// The right to abort an upload: one is begun at this key and aborted, unless the abort of one that does not exist is refused already. Errors:
// of requests; after -EACCES nothing is left.
int ckpt_s3_try_abort(struct ckpt_s3 *s3, const char *key);
// Those that were begun and not ended, of packs, manifests, snapshots and probes below the store's prefix. oldest_ns: 0 without any.
int ckpt_s3_count_uploads(struct ckpt_s3 *s3, uint64_t *ret_count, int64_t *ret_oldest_ns);
// As abort_uploads of objects.h, of packs, manifests, snapshots and probes below the store's prefix. Errors: those of requests.
int ckpt_s3_abort_uploads(struct ckpt_s3 *s3, int64_t before_ns, uint64_t *ret_count);

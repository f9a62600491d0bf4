// Objects in a bucket of AWS S3, or of a store that speaks its language: Ceph, SeaweedFS, MinIO, R2.
//
//   put      PUT with If-None-Match: *, whose outcome is the store's own; never sent twice by itself. Above 64 MiB packs, manifests and
//            snapshots are multipart uploads, which some stores complete without looking at the condition: their names are new anyway.
//   get      GET with a range. The SHA-256 that a put has sent is compared where the store gives it back with a whole object.
//   list     all pages are read and sorted before the first key is given: some stores list in another order than that of the
//            bytes. Some 120 bytes of memory for each object. Keys that are not ours (objects.h) are left out.
//   remove   DELETE, which does not say whether there was something.
// Every request has a deadline of its own, and is made again by retry.c, not here; but for the pages of a list and the parts of an upload,
// which only this unit knows.
//
// Threads: any; all requests go over one thread of http.h. What this backend cannot do: names of versions, object lock, encryption with
// keys of the client.
#pragma once

#include "backends/s3_config.h"
#include "core/objects/stack.h"

// As stack.h says, of an URL that begins with "s3://". Asks the store for nothing yet; may ask a source of keys.
// Errors: as s3_config.h and credentials.h.
int ckpt_s3_open(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects);
// The same of a config, which is copied.
int ckpt_s3_new(const struct ckpt_s3_config *config, bool writable, char ret_why[CKPT_OBJECTS_WHY_MAX],
		struct ckpt_objects **ret_objects);

// An S3 store as `describe` of objects.h tells of it: the server, the keys, the rights (s3_describe.c), and the bucket (s3_bucket.c).
//
// Threads: any; blocks on the store for some fifteen requests, each made once. Nothing of it is in the daily work.
#pragma once

#include "backends/s3_request.h"

// As describe of objects.h.
int ckpt_s3_describe(struct ckpt_objects *o, ckpt_objects_finding_fn *fn, void *arg, struct ckpt_rights *ret_rights);

// --- For the two units ----------------------------------------------------------------------------------------------------

struct ckpt_s3_report {
	struct ckpt_s3 *s3;
	ckpt_objects_finding_fn *fn;
	void *arg;
};

// hint: NULL where there is none.
__attribute__((format(printf, 5, 6))) void ckpt_s3_report(const struct ckpt_s3_report *report, const char *name,
							  enum ckpt_finding_verdict verdict, const char *hint,
							  const char *format, ...);
// The newest failure, as `why` of objects.h, once: "" where there was none since.
void ckpt_s3_newest(struct ckpt_s3 *s3, char ret_why[CKPT_OBJECTS_WHY_MAX]);
// Versions, locks, rules and uploads of the bucket.
void ckpt_s3_describe_bucket(const struct ckpt_s3_report *report);

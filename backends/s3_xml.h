// The XML that an S3 store answers with: pages of lists, errors, and answers with a few fields.
//
// Every byte of it is hostile: a document type (so any entity), more than 16 levels, a text of more than 64 KiB and an answer of
// more than 16 MiB are refused. Unknown elements are passed over.
// Pure functions, any thread, nothing blocks. Errors: -EBADMSG: it is no XML, or not what was asked for; -ENOMEM; and what a
// callback has returned.
// Source: "Amazon S3 API Reference", ListObjectsV2, ListMultipartUploads, GetBucketLifecycleConfiguration and "Error responses".
#pragma once

#include "core/objects/objects.h"

#define CKPT_S3_XML_MAX ((size_t)16 << 20)
#define CKPT_S3_KEY_MAX 3200 // an S3 key has 1,024 bytes at most; encoded they are three times as many
#define CKPT_S3_TOKEN_MAX 4096

// Called for each object of a page. The key is decoded, and may be any that the bucket has.
typedef int ckpt_s3_entry_fn(void *arg, const char *key, const struct ckpt_object *object);

struct ckpt_s3_page {
	bool truncated;                // there are more, behind the token
	char token[CKPT_S3_TOKEN_MAX]; // "" where the answer has none
};

int ckpt_s3_page_parse(const char *xml, size_t len, ckpt_s3_entry_fn *fn, void *arg, struct ckpt_s3_page *ret_page);

// Called for each upload in parts that was begun and not ended. The key is decoded.
struct ckpt_s3_upload {
	const char *key, *id;
	int64_t began_ns;
};
typedef int ckpt_s3_upload_fn(void *arg, const struct ckpt_s3_upload *upload);
struct ckpt_s3_uploads_page {
	bool truncated; // there are more, behind the two, which are decoded
	char key[CKPT_S3_KEY_MAX], id[CKPT_S3_TOKEN_MAX];
};
int ckpt_s3_uploads_parse(const char *xml, size_t len, ckpt_s3_upload_fn *fn, void *arg,
			  struct ckpt_s3_uploads_page *ret_page);

// A rule of a bucket's lifecycle. Texts are "" where there are none, and numbers 0.
struct ckpt_s3_rule {
	char id[256]; // cut where it is longer
	char prefix[CKPT_S3_KEY_MAX];
	bool enabled;
	bool is_tagged;                                       // it is about objects with certain tags only
	bool expires;                                         // objects, not only the markers of deleted ones
	bool archives;                                        // it moves them to where they cannot be read at once
	unsigned expires_days, old_versions_days, abort_days; // expires_days: 0 also for a date
};
typedef int ckpt_s3_rule_fn(void *arg, const struct ckpt_s3_rule *rule);
int ckpt_s3_rules_parse(const char *xml, size_t len, ckpt_s3_rule_fn *fn, void *arg);

// Elements that have no others inside of them, by their names, wherever they stand; of several the last one.
struct ckpt_s3_field {
	const char *name;
	char *text; // takes size bytes, with the NUL; "" where there is none; a longer one is -EBADMSG
	size_t size;
};

// root: the name of the first element, which must be this one, or NULL.
int ckpt_s3_fields_parse(const char *xml, size_t len, const char *root, struct ckpt_s3_field *fields, size_t count);
// An etag as it is in a header or a list: without the quotes around it. False: too long.
bool ckpt_s3_etag(const char *text, char ret_etag[CKPT_ETAG_MAX]);

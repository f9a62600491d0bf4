// The place of an S3 store and the manner of its requests, out of its URL, its options and the environment.
//
//   s3://BUCKET[/PREFIX]          the keys of the store stand below PREFIX/
//
//   endpoint=URL                  else $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, the profile, AWS itself. Other endpoints are asked for
//                                 HOST/BUCKET/KEY, unless HOST begins with "BUCKET."; AWS itself for BUCKET.HOST/KEY.
//   allow_http                    a URL with http:// is taken; without it only on loopback
//   region=NAME                   else $AWS_REGION, $AWS_DEFAULT_REGION, the profile, us-east-1
//   credentials_profile=NAME      see credentials.h
//   no_sign_request, requester_pays, storage_class=, sse=, sse_kms_key=, acl=     as the aws program has them
//   bwlimit=SIZE                  bytes a second, each way
//   max_connections=N             1 to 256; else 32
//   page_keys=N                   of a list, 1 to 1000; else 1000. `mount` does not take it: it is for tests
//
// Pure functions, nothing blocks. Errors: -EINVAL, and ret_why names what was wrong; -ENAMETOOLONG.
#pragma once

#include "core/objects/objects.h"

#define CKPT_S3_HOST_MAX 256
#define CKPT_S3_PREFIX_MAX 400 // with the key behind it, at most the 1,024 bytes that S3 takes

struct ckpt_s3_config {
	char bucket[64];
	char prefix[CKPT_S3_PREFIX_MAX]; // "" or with a '/' behind it
	char endpoint[CKPT_S3_HOST_MAX]; // as it was given; "": AWS
	char host[CKPT_S3_HOST_MAX];     // with the port, where the endpoint says one; set by ckpt_s3_config_settle()
	bool is_http, is_loopback, path_style;
	char region[64]; // "": not said
	char profile[128];
	bool allow_http, unsigned_requests, requester_pays;
	char storage_class[64], sse[32], sse_kms_key[256], acl[64];
	uint64_t bytes_per_s;
	unsigned connections_max, page_keys; // 0: not said
	int64_t quiet_ns;                    // of http.h; no option: for tests
};

int ckpt_s3_config_parse(const char *url, const char *const *options, struct ckpt_s3_config *ret_config,
			 char ret_why[CKPT_OBJECTS_WHY_MAX]);
// With what the profile says where neither options nor the environment do ("": nothing), makes the host of it.
int ckpt_s3_config_settle(struct ckpt_s3_config *config, const char *region, const char *endpoint,
			  char ret_why[CKPT_OBJECTS_WHY_MAX]);

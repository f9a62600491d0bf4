// The keys that requests to AWS, and to stores that do as it does, are signed with.
//
// Sources, the first that has some:
//   1. $AWS_ACCESS_KEY_ID, $AWS_SECRET_ACCESS_KEY, $AWS_SESSION_TOKEN; not where a profile was named by credentials_profile=
//   2. the profile ($AWS_PROFILE, else "default") of $AWS_SHARED_CREDENTIALS_FILE and $AWS_CONFIG_FILE: role_arn with source_profile,
//      credential_source or web_identity_token_file; keys; credential_process; sso_session or sso_start_url
//   3. $AWS_WEB_IDENTITY_TOKEN_FILE and $AWS_ROLE_ARN
//   4. $AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or ..._FULL_URI
//   5. the metadata service of a machine (IMDSv2 only), unless $AWS_EC2_METADATA_DISABLED is "true"
//
// Calling sequence: ckpt_credentials_new(), ckpt_credentials_get() for each request, ckpt_credentials_free().
// Keys that expire are fetched again five minutes before. While a source fails, keys that still hold are given; a search that has
// failed is made again after ten seconds.
// Ownership: http is borrowed and outlives it. ret_keys is the caller's, who wipes it (ckpt_keys_wipe()).
// Threads: any. Blocks: ckpt_credentials_get() where keys must be fetched, one thread at a time, at most a minute.
// Secrets are kept in memory of their own, which no core dump has, and are wiped; they are in no message.
// Errors: -EACCES: no source has keys, or one refused; -EINVAL: a profile that was named is not there, or says nothing that we know;
// -ENOTCONN: a source does not answer; -EIO, -ENOMEM. ret_why says it for people.
// Source: "AWS SDKs and Tools Reference Guide", "Settings reference".
#pragma once

#include "backends/http.h"
#include "backends/sign.h"

#define CKPT_CREDENTIALS_WHY_MAX 256
#define CKPT_CREDENTIALS_SOURCE_MAX 160

struct ckpt_credentials;

// profile: NULL or "": that of the environment. region: for the token service, "": that of the profile.
int ckpt_credentials_new(struct ckpt_http *http, const char *profile, const char *region,
			 struct ckpt_credentials **ret_credentials);
void ckpt_credentials_free(struct ckpt_credentials *c); // NULL is fine
int ckpt_credentials_get(struct ckpt_credentials *c, struct ckpt_keys *ret_keys,
			 char ret_why[CKPT_CREDENTIALS_WHY_MAX]);
// A store has refused these keys as expired: where they have not been replaced yet, the next get fetches new ones.
void ckpt_credentials_refuse(struct ckpt_credentials *c, const struct ckpt_keys *keys);
// The source of the keys that were given last, for people: "the profile NAME, its role"; "" before the first.
void ckpt_credentials_source(struct ckpt_credentials *c, char ret_source[CKPT_CREDENTIALS_SOURCE_MAX]);
// Another setting of the profile, as "region" or "endpoint_url"; "" where it has none.
void ckpt_credentials_setting(struct ckpt_credentials *c, const char *name, char *ret_value, size_t size);

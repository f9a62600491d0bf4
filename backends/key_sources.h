// The sources of keys that are somewhere else: token services, metadata of a machine or a container, programs.
//
// Each asks once. ret_keys is written on success. Threads: any. Blocks: up to some seconds, for a program up to a minute.
// Errors: -ENOENT: this source is not set up; -ENOTCONN: it does not answer; -EACCES: it refused, or must not be asked; -EINVAL,
// -EIO, -ENOMEM. ret_why says it for people, and has no secret.
#pragma once

#include "backends/credentials.h"

struct ckpt_key_source {
	struct ckpt_http *http;
	const char *region; // of the token services
	char *ret_why;      // CKPT_CREDENTIALS_WHY_MAX bytes
};

struct ckpt_role {
	char arn[256];
	char session_name[128];
	char external_id[256];
	char duration_s[16];
};

// The keys of a role that the owner of `keys` may take.
int ckpt_keys_assume_role(const struct ckpt_key_source *s, const struct ckpt_role *role, const struct ckpt_keys *keys,
			  struct ckpt_keys *ret_keys);
// The same, with the token in this file instead of keys.
int ckpt_keys_web_identity(const struct ckpt_key_source *s, const struct ckpt_role *role, const char *token_path,
			   struct ckpt_keys *ret_keys);
// With the token that `aws sso login` has left in ~/.aws/sso/cache for this start URL.
int ckpt_keys_sso(const struct ckpt_key_source *s, const char *start_url, const char *account_id, const char *role_name,
		  struct ckpt_keys *ret_keys);
int ckpt_keys_container(const struct ckpt_key_source *s, struct ckpt_keys *ret_keys);
int ckpt_keys_machine(const struct ckpt_key_source *s, struct ckpt_keys *ret_keys);
// A program, which a shell runs, writes them.
int ckpt_keys_program(const struct ckpt_key_source *s, const char *command, struct ckpt_keys *ret_keys);

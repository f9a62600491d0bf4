// The profiles of AWS programs: the files $AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and $AWS_CONFIG_FILE (~/.aws/config).
//
// Ownership: texts that are given live as long as the profiles. Threads: any, once loaded. Blocks: the load, on the disk.
// The texts may be secret: they are wiped when freed. Settings inside of others (lines that begin with a space) are passed over.
// A file must belong to us or to root and be writable by its owner only; where others can read it, the log says so.
// Source: "AWS SDKs and Tools Reference Guide", "Shared config and credentials files".
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ckpt_profiles;

// 0, also where there are no files; -EACCES: a file that others may write; -EFBIG; -ENOMEM; as open(2) and read(2). ret_why names the file.
int ckpt_profiles_load(struct ckpt_profiles **ret_profiles, char *ret_why, size_t why_size);
void ckpt_profiles_free(struct ckpt_profiles *p); // NULL is fine
// True: one of the files has the profile.
bool ckpt_profiles_have(const struct ckpt_profiles *p, const char *profile);
// The value into ret_value, "" where there is none, or a longer one. What is in the file of credentials counts more.
void ckpt_profiles_get(const struct ckpt_profiles *p, const char *profile, const char *name, char *ret_value,
		       size_t size);
// The same of a section "sso-session NAME".
void ckpt_profiles_session(const struct ckpt_profiles *p, const char *session, const char *name, char *ret_value,
			   size_t size);

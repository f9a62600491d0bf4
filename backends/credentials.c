// keys is empty, or fresh, or stale: fetched anew under the lock by the first who needs them five minutes before they expire. The lock is held
// over that: all others would wait for the same keys anyway.
#include "backends/credentials.h"

#include "backends/key_sources.h"
#include "backends/profiles.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <stdio.h>
#include <sys/mman.h>

#define EARLY_NS INT64_C(300000000000)
#define PROFILES_MAX 8               // that one role leads to through others
#define REST_NS INT64_C(10000000000) // between two searches

struct ckpt_credentials {
	struct ckpt_http *http; // borrowed
	char profile[128];
	bool is_named; // by an option, which counts more than the environment
	char region[64];
	struct ckpt_lock lock; // over requests, too
	// Guarded by lock.
	struct ckpt_keys keys;
	bool has_keys;
	int failed; // the search, with this; it has a rest then
	char why[CKPT_CREDENTIALS_WHY_MAX];
	char source[CKPT_CREDENTIALS_SOURCE_MAX]; // of the keys
	int64_t rest_until_ns;                    // monotonic
};

struct search {
	struct ckpt_credentials *c;
	struct ckpt_profiles *profiles;
	struct ckpt_key_source source;
	char region[64];
};

// The last one that succeeds is told: of a role that another profile leads to, the role.
static int from(const struct search *s, int rc, const char *profile, const char *what)
{
	if (!rc)
		snprintf(s->c->source, sizeof(s->c->source), "%s%.64s%s%s", *profile ? "the profile " : "", profile,
			 *profile ? ", " : "", what);
	return rc;
}

// --- Sources ------------------------------------------------------------------------------------------------------------

static int take_variable(const char *name, char *ret_value, size_t size)
{
	const char *value = getenv(name);

	*ret_value = '\0';
	if (!value || !*value)
		return -ENOENT;
	return (size_t)snprintf(ret_value, size, "%s", value) < size ? 0 : -EINVAL;
}

static int from_environment(struct ckpt_keys *ret_keys)
{
	int rc = take_variable("AWS_ACCESS_KEY_ID", ret_keys->id, sizeof(ret_keys->id));

	if (!rc)
		rc = take_variable("AWS_SECRET_ACCESS_KEY", ret_keys->secret, sizeof(ret_keys->secret));
	if (!rc && take_variable("AWS_SESSION_TOKEN", ret_keys->token, sizeof(ret_keys->token)) == -EINVAL)
		rc = -EINVAL;
	ret_keys->expires_ns = 0;
	return rc;
}

static void get(const struct search *s, const char *profile, const char *name, char *ret_value, size_t size)
{
	ckpt_profiles_get(s->profiles, profile, name, ret_value, size);
}

static int from_file(const struct search *s, const char *profile, struct ckpt_keys *ret_keys)
{
	get(s, profile, "aws_access_key_id", ret_keys->id, sizeof(ret_keys->id));
	get(s, profile, "aws_secret_access_key", ret_keys->secret, sizeof(ret_keys->secret));
	get(s, profile, "aws_session_token", ret_keys->token, sizeof(ret_keys->token));
	ret_keys->expires_ns = 0;
	return *ret_keys->id && *ret_keys->secret ? 0 : -ENOENT;
}

static int from_program(const struct search *s, const char *profile, struct ckpt_keys *ret_keys)
{
	char command[4096];

	get(s, profile, "credential_process", command, sizeof(command));
	return *command ? ckpt_keys_program(&s->source, command, ret_keys) : -ENOENT;
}

static int from_sso(const struct search *s, const char *profile, struct ckpt_keys *ret_keys)
{
	char session[128], url[512], account[128], role[256], region[64];
	struct ckpt_key_source source = s->source;

	get(s, profile, "sso_session", session, sizeof(session));
	get(s, profile, "sso_account_id", account, sizeof(account));
	get(s, profile, "sso_role_name", role, sizeof(role));
	if (*session) {
		ckpt_profiles_session(s->profiles, session, "sso_start_url", url, sizeof(url));
		ckpt_profiles_session(s->profiles, session, "sso_region", region, sizeof(region));
	} else {
		get(s, profile, "sso_start_url", url, sizeof(url));
		get(s, profile, "sso_region", region, sizeof(region));
	}
	if (!*url || !*account || !*role)
		return -ENOENT;
	if (*region)
		source.region = region;
	return ckpt_keys_sso(&source, url, account, role, ret_keys);
}

static int refuse(const struct search *s, const char *profile, const char *why)
{
	snprintf(s->source.ret_why, CKPT_CREDENTIALS_WHY_MAX, "no keys from the profile %.64s: %s", profile, why);
	return -EINVAL;
}

static int from_source_named(const struct search *s, const char *profile, const char *name, struct ckpt_keys *ret_keys)
{
	int rc;

	if (!strcmp(name, "Environment"))
		rc = from_environment(ret_keys);
	else if (!strcmp(name, "EcsContainer"))
		rc = ckpt_keys_container(&s->source, ret_keys);
	else if (!strcmp(name, "Ec2InstanceMetadata"))
		rc = ckpt_keys_machine(&s->source, ret_keys);
	else
		return refuse(s, profile, "its credential_source is none that we know");
	return rc == -ENOENT ? refuse(s, profile, "its credential_source has none") : rc;
}

static int from_profile(const struct search *s, const char *profile, unsigned depth, struct ckpt_keys *ret_keys);

static int from_role(const struct search *s, const char *profile, unsigned depth, struct ckpt_keys *ret_keys)
{
	char source[128], named[64], token_path[512], mfa[256];
	struct ckpt_keys keys = {0};
	struct ckpt_role role;
	int rc;

	get(s, profile, "role_arn", role.arn, sizeof(role.arn));
	if (!*role.arn)
		return -ENOENT;
	get(s, profile, "role_session_name", role.session_name, sizeof(role.session_name));
	get(s, profile, "external_id", role.external_id, sizeof(role.external_id));
	get(s, profile, "duration_seconds", role.duration_s, sizeof(role.duration_s));
	get(s, profile, "source_profile", source, sizeof(source));
	get(s, profile, "credential_source", named, sizeof(named));
	get(s, profile, "web_identity_token_file", token_path, sizeof(token_path));
	get(s, profile, "mfa_serial", mfa, sizeof(mfa));
	if (*mfa)
		return refuse(s, profile, "its role asks for a code (mfa_serial), which nobody here can type");
	if (*token_path)
		return ckpt_keys_web_identity(&s->source, &role, token_path, ret_keys);
	if (*source && !strcmp(source, profile)) // its own keys are meant, or it would never end
		rc = from_file(s, profile, &keys);
	else if (*source)
		rc = from_profile(s, source, depth + 1, &keys);
	else if (*named)
		rc = from_source_named(s, profile, named, &keys);
	else
		rc = refuse(s, profile, "role_arn needs a source_profile or a credential_source");
	if (rc == -ENOENT)
		rc = refuse(s, profile, "its source_profile has none");
	if (!rc)
		rc = ckpt_keys_assume_role(&s->source, &role, &keys, ret_keys);
	ckpt_keys_wipe(&keys);
	return rc;
}

static int from_profile(const struct search *s, const char *profile, unsigned depth, struct ckpt_keys *ret_keys)
{
	int rc;

	if (depth == PROFILES_MAX)
		return refuse(s, profile, "its source_profile leads in a circle");
	rc = from(s, from_role(s, profile, depth, ret_keys), profile, "its role");
	if (rc == -ENOENT)
		rc = from(s, from_file(s, profile, ret_keys), profile, "its keys");
	if (rc == -ENOENT)
		rc = from(s, from_program(s, profile, ret_keys), profile, "its credential_process");
	if (rc == -ENOENT)
		rc = from(s, from_sso(s, profile, ret_keys), profile, "its single sign-on");
	return rc;
}

static int from_web_identity(const struct search *s, struct ckpt_keys *ret_keys)
{
	struct ckpt_role role = {0};
	char path[512];

	if (take_variable("AWS_WEB_IDENTITY_TOKEN_FILE", path, sizeof(path)) ||
	    take_variable("AWS_ROLE_ARN", role.arn, sizeof(role.arn)))
		return -ENOENT;
	(void)take_variable("AWS_ROLE_SESSION_NAME", role.session_name, sizeof(role.session_name));
	return ckpt_keys_web_identity(&s->source, &role, path, ret_keys);
}

// --- The search -----------------------------------------------------------------------------------------------------------

static int search_profile(const struct search *s, struct ckpt_keys *ret_keys)
{
	const struct ckpt_credentials *c = s->c;
	bool is_default = !strcmp(c->profile, "default");
	int rc = from_profile(s, c->profile, 0, ret_keys);

	if (rc != -ENOENT || (is_default && !c->is_named))
		return rc;
	if (!ckpt_profiles_have(s->profiles, c->profile))
		return refuse(s, c->profile, "no file has it");
	return c->is_named ? refuse(s, c->profile, "it has none") : rc;
}

static int search_all(const struct search *s, struct ckpt_keys *ret_keys)
{
	int rc = s->c->is_named ? -ENOENT : from(s, from_environment(ret_keys), "", "the environment");

	if (rc == -ENOENT)
		rc = search_profile(s, ret_keys);
	if (rc == -ENOENT)
		rc = from(s, from_web_identity(s, ret_keys), "", "the web identity token");
	if (rc == -ENOENT)
		rc = from(s, ckpt_keys_container(&s->source, ret_keys), "", "the container's metadata service");
	if (rc == -ENOENT)
		rc = from(s, ckpt_keys_machine(&s->source, ret_keys), "", "the machine's metadata service");
	if (rc != -ENOENT)
		return rc;
	snprintf(s->source.ret_why, CKPT_CREDENTIALS_WHY_MAX,
		 "no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or say no_sign_request");
	return -EACCES;
}

static int fetch_locked(struct ckpt_credentials *c, char *ret_why)
{
	struct search s = {.c = c, .source = {.http = c->http, .ret_why = ret_why}};
	struct ckpt_keys keys = {0};
	int rc = ckpt_profiles_load(&s.profiles, ret_why, CKPT_CREDENTIALS_WHY_MAX);

	if (rc)
		return rc == -ENOMEM || rc == -EACCES ? rc : -EINVAL;
	snprintf(s.region, sizeof(s.region), "%s", c->region);
	if (!*s.region)
		get(&s, c->profile, "region", s.region, sizeof(s.region));
	s.source.region = *s.region ? s.region : "us-east-1";
	rc = search_all(&s, &keys);
	if (!rc) {
		c->keys = keys;
		c->has_keys = true;
	}
	ckpt_keys_wipe(&keys);
	ckpt_profiles_free(s.profiles);
	return rc;
}

static bool holds_locked(const struct ckpt_credentials *c, int64_t for_ns)
{
	return c->has_keys && (!c->keys.expires_ns || c->keys.expires_ns - ckpt_sys.now_ns() > for_ns);
}

int ckpt_credentials_get(struct ckpt_credentials *c, struct ckpt_keys *ret_keys, char ret_why[CKPT_CREDENTIALS_WHY_MAX])
{
	LOCK_SCOPE(&c->lock);
	// The sources are slow to say no, and many threads ask. Keys that live shortly are not asked for each time, either.
	bool rests = ckpt_sys.mono_ns() < c->rest_until_ns && (c->failed || holds_locked(c, 0));

	if (!holds_locked(c, EARLY_NS) && !rests) {
		*c->why = '\0';
		c->failed = fetch_locked(c, c->why);
		c->rest_until_ns = ckpt_sys.mono_ns() + REST_NS;
	}
	strcpy(ret_why, c->why);
	if (c->failed && !holds_locked(c, 0))
		return c->failed;
	*ret_keys = c->keys;
	return 0;
}

void ckpt_credentials_refuse(struct ckpt_credentials *c, const struct ckpt_keys *keys)
{
	LOCK_SCOPE(&c->lock);
	if (c->has_keys && !strcmp(c->keys.id, keys->id) && !strcmp(c->keys.token, keys->token))
		c->has_keys = false;
}

void ckpt_credentials_source(struct ckpt_credentials *c, char ret_source[CKPT_CREDENTIALS_SOURCE_MAX])
{
	LOCK_SCOPE(&c->lock);
	strcpy(ret_source, c->source);
}

void ckpt_credentials_setting(struct ckpt_credentials *c, const char *name, char *ret_value, size_t size)
{
	char why[CKPT_CREDENTIALS_WHY_MAX];
	struct ckpt_profiles *profiles;

	*ret_value = '\0';
	if (ckpt_profiles_load(&profiles, why, sizeof(why)))
		return;
	ckpt_profiles_get(profiles, c->profile, name, ret_value, size);
	ckpt_profiles_free(profiles);
}

// --- Memory -------------------------------------------------------------------------------------------------------------

int ckpt_credentials_new(struct ckpt_http *http, const char *profile, const char *region,
			 struct ckpt_credentials **ret_credentials)
{
	struct ckpt_credentials *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *from_env = getenv("AWS_PROFILE");

	if (c == MAP_FAILED)
		return -ENOMEM;
	(void)madvise(c, sizeof(*c), MADV_DONTDUMP);
	c->http = http;
	c->is_named = profile && *profile;
	snprintf(c->profile, sizeof(c->profile), "%s",
		 c->is_named             ? profile
		 : from_env && *from_env ? from_env
					 : "default");
	snprintf(c->region, sizeof(c->region), "%s", region);
	ckpt_lock_init(&c->lock, CKPT_LOCK_KEYS);
	*ret_credentials = c;
	return 0;
}

void ckpt_credentials_free(struct ckpt_credentials *c)
{
	if (!c)
		return;
	ckpt_lock_done(&c->lock);
	ckpt_keys_wipe(&c->keys);
	munmap(c, sizeof(*c));
}

#include "backends/key_sources.h"

#include "backends/s3_xml.h"
#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#define ANSWER_MAX ((size_t)64 << 10)
#define SERVICE_NS INT64_C(20000000000)
#define METADATA_NS INT64_C(2000000000)
#define PROGRAM_NS INT64_C(60000000000)
#define BEARER_MAX ((size_t)16 << 10)
#define TIMES 3 // as many times as a source is asked

static int say(const struct ckpt_key_source *s, int rc, const char *what, const char *why)
{
	snprintf(s->ret_why, CKPT_CREDENTIALS_WHY_MAX, "no keys from %s: %s", what, why);
	return rc;
}

static void wipe_text(char **at)
{
	if (*at)
		explicit_bzero(*at, strlen(*at));
	free(*at);
}

static void answer_done(struct ckpt_http_text *t)
{
	if (t->data)
		explicit_bzero(t->data, t->cap);
	free(t->data);
}

// --- Requests -----------------------------------------------------------------------------------------------------------

// The body ends with a NUL that is not counted. A status other than 200 is -EACCES, but -ENOENT where it is 404.
static int ask_once(const struct ckpt_key_source *s, struct ckpt_http_request *request, struct ckpt_http_text *t)
{
	CLEANUP_FREE struct ckpt_http_call *call = calloc(1, sizeof(*call));
	int rc;

	if (!call)
		return -ENOMEM;
	t->len = 0;
	t->max = ANSWER_MAX;
	call->request = *request;
	call->request.take = ckpt_http_take_text;
	call->request.arg = t;
	rc = ckpt_http_run(s->http, call);
	if (!rc)
		rc = ckpt_grow((void **)&t->data, &t->cap, t->len + 1, 1);
	if (rc)
		return rc == -ETIMEDOUT || rc == -EIO ? -ENOTCONN : rc;
	t->data[t->len] = '\0';
	if (call->answer.status >= 500 || call->answer.status == 429)
		return -ENOTCONN;
	return call->answer.status == 200 ? 0 : call->answer.status == 404 ? -ENOENT : -EACCES;
}

static int ask(const struct ckpt_key_source *s, const char *what, struct ckpt_http_request *request,
	       struct ckpt_http_text *t)
{
	int rc = ask_once(s, request, t);

	for (int i = 1; i < TIMES && rc == -ENOTCONN; i++) {
		ckpt_sys.sleep_ns(INT64_C(200000000) << i);
		rc = ask_once(s, request, t);
	}
	if (rc)
		say(s, rc, what, rc == -ENOTCONN ? "no answer" : rc == -EACCES ? "refused" : strerror(-rc));
	return rc;
}

// Without TLS only where nobody is on the way.
static bool is_near(const char *url)
{
	static const char *const near[] = {"http://127.0.0.1",       "http://localhost",      "http://[::1]",
					   "http://169.254.170.2",   "http://169.254.170.23", "http://[fd00:ec2::23]",
					   "http://169.254.169.254", "http://[fd00:ec2::254]"};

	for (size_t i = 0; i < ARRAY_LEN(near); i++) {
		size_t len = strlen(near[i]);

		if (!strncmp(url, near[i], len) && (!url[len] || strchr(":/", url[len])))
			return true;
	}
	return false;
}

static bool is_safe(const char *url)
{
	return !strncmp(url, "https://", 8) || is_near(url);
}

// --- Answers ------------------------------------------------------------------------------------------------------------

// jansson's copy is wiped, too.
static int take_string(json_t *from, const char *name, char *ret_text, size_t size)
{
	json_t *value = json_object_get(from, name);
	const char *text = json_string_value(value);
	int rc = text && strlen(text) < size ? 0 : -EBADMSG;

	if (!rc)
		strcpy(ret_text, text);
	if (text)
		explicit_bzero((char *)(uintptr_t)text, strlen(text));
	return rc;
}

struct names {
	const char *id, *secret, *token, *expires;
};

static int read_keys(json_t *from, const struct names *names, struct ckpt_keys *ret_keys)
{
	struct ckpt_keys keys = {0};
	char expires[64] = "";
	json_t *time = json_object_get(from, names->expires);
	int rc = take_string(from, names->id, keys.id, sizeof(keys.id));

	if (!rc)
		rc = take_string(from, names->secret, keys.secret, sizeof(keys.secret));
	if (!rc && json_object_get(from, names->token))
		rc = take_string(from, names->token, keys.token, sizeof(keys.token));
	if (!rc && json_is_integer(time) && json_integer_value(time) < INT64_MAX / 1000000)
		keys.expires_ns = json_integer_value(time) * 1000000; // milliseconds
	else if (!rc && json_is_string(time))
		rc = take_string(from, names->expires, expires, sizeof(expires)) ||
				     ckpt_time_parse(expires, false, &keys.expires_ns)
			     ? -EBADMSG
			     : 0;
	if (!rc && *keys.id && *keys.secret)
		*ret_keys = keys;
	else
		rc = -EBADMSG;
	ckpt_keys_wipe(&keys);
	return rc;
}

// inside: the member that has the keys, or NULL.
static int parse_keys(const struct ckpt_key_source *s, const char *what, const char *text, size_t len,
		      const char *inside, const struct names *names, struct ckpt_keys *ret_keys)
{
	json_t *json = NULL;
	int rc = ckpt_json_load(text, len, 0, NULL, &json);

	if (!rc)
		rc = read_keys(inside ? json_object_get(json, inside) : json, names, ret_keys);
	json_decref(json);
	return rc == -ENOMEM ? rc : rc ? say(s, -EIO, what, "its answer has no keys that make sense") : 0;
}

static const struct names usual = {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"};

// --- Roles --------------------------------------------------------------------------------------------------------------

static bool token_service(const struct ckpt_key_source *s, char *ret_url, size_t size)
{
	const char *url = getenv("AWS_ENDPOINT_URL_STS");

	if (url && *url)
		snprintf(ret_url, size, "%s%s", url, url[strlen(url) - 1] == '/' ? "" : "/");
	else
		snprintf(ret_url, size, "https://sts.%s.amazonaws.com%s/", s->region,
			 !strncmp(s->region, "cn-", 3) ? ".cn" : "");
	return is_safe(ret_url);
}

static int parse_role(const struct ckpt_key_source *s, const struct ckpt_http_text *t, const char *root,
		      struct ckpt_keys *ret_keys)
{
	struct ckpt_keys keys = {0};
	char expires[64];
	struct ckpt_s3_field fields[] = {{"AccessKeyId", keys.id, sizeof(keys.id)},
					 {"SecretAccessKey", keys.secret, sizeof(keys.secret)},
					 {"SessionToken", keys.token, sizeof(keys.token)},
					 {"Expiration", expires, sizeof(expires)}};
	int rc = ckpt_s3_fields_parse(t->data, t->len, root, fields, ARRAY_LEN(fields));

	if (!rc && (!*keys.id || !*keys.secret || ckpt_time_parse(expires, false, &keys.expires_ns)))
		rc = -EBADMSG;
	if (!rc)
		*ret_keys = keys;
	ckpt_keys_wipe(&keys);
	return rc == -ENOMEM ? rc
	       : rc          ? say(s, -EIO, "the token service", "its answer has no keys that make sense")
			     : 0;
}

static bool encode(const char *name, const char *value, char *body, size_t size)
{
	size_t len = strlen(body);
	int n = snprintf(body + len, size - len, "&%s=", name);

	return (size_t)n < size - len && ckpt_sign_encode(value, false, body + len + n, size - len - (size_t)n);
}

// The same parameters for both ways, in the body of a POST.
static int role_body(const struct ckpt_role *role, const char *action, const char *token, char *body, size_t size)
{
	bool fits;

	snprintf(body, size, "Action=%s&Version=2011-06-15", action);
	fits = encode("RoleArn", role->arn, body, size) &&
	       encode("RoleSessionName", *role->session_name ? role->session_name : "ckptfs", body, size);
	if (fits && *role->external_id)
		fits = encode("ExternalId", role->external_id, body, size);
	if (fits && *role->duration_s)
		fits = encode("DurationSeconds", role->duration_s, body, size);
	if (fits && token)
		fits = encode("WebIdentityToken", token, body, size);
	return fits ? 0 : -EINVAL;
}

static int sign_post(const struct ckpt_key_source *s, const struct ckpt_keys *keys, const char *url, const char *body,
		     char text[4][CKPT_KEYS_TOKEN_MAX + 64], const char **ret_lines)
{
	const char *host = strstr(url, "://") + 3;
	char time[CKPT_SIGN_TIME_MAX], hex[CKPT_SHA256_TEXT_MAX], path[256], authorization[CKPT_SIGN_MAX];
	uint8_t sha256[CKPT_SHA256_LEN];
	size_t count = 0;
	int rc;

	ckpt_sign_time(ckpt_sys.now_ns(), time);
	ckpt_sha256(body, strlen(body), sha256);
	ckpt_hex(sha256, sizeof(sha256), hex);
	snprintf(path, sizeof(path), "%s", host + strcspn(host, "/"));
	snprintf(text[count++], sizeof(text[0]), "host: %.*s", (int)strcspn(host, "/"), host);
	snprintf(text[count++], sizeof(text[0]), "x-amz-date: %s", time);
	if (*keys->token)
		snprintf(text[count++], sizeof(text[0]), "x-amz-security-token: %s", keys->token);
	for (size_t i = 0; i < count; i++)
		ret_lines[i] = text[i];
	rc = ckpt_sign(keys,
		       &(struct ckpt_sign){.method = "POST",
					   .path = path,
					   .query = "",
					   .headers = ret_lines,
					   .payload = hex,
					   .time = time,
					   .region = s->region,
					   .service = "sts"},
		       authorization);
	snprintf(text[count], sizeof(text[0]), "%s", authorization);
	ret_lines[count] = text[count];
	return rc;
}

static int post(const struct ckpt_key_source *s, const char *what, const char *url, const char *const *headers,
		const char *body, struct ckpt_http_text *t)
{
	return ask(s, what,
		   &(struct ckpt_http_request){.method = "POST",
					       .url = url,
					       .headers = headers,
					       .body = body,
					       .body_len = strlen(body),
					       .allow_http = is_near(url),
					       .direct = is_near(url),
					       .limit_ns = SERVICE_NS},
		   t);
}

int ckpt_keys_assume_role(const struct ckpt_key_source *s, const struct ckpt_role *role, const struct ckpt_keys *keys,
			  struct ckpt_keys *ret_keys)
{
	CLEANUP(answer_done) struct ckpt_http_text t = {0};
	char url[512], body[2048], text[4][CKPT_KEYS_TOKEN_MAX + 64];
	const char *lines[6] = {0};
	int rc;

	if (!token_service(s, url, sizeof(url)))
		return say(s, -EACCES, "the token service", "its endpoint must have https://");
	rc = role_body(role, "AssumeRole", NULL, body, sizeof(body));
	if (!rc)
		rc = sign_post(s, keys, url, body, text, lines);
	if (rc)
		return say(s, rc, "the token service", "the role cannot be asked for in these words");
	lines[4] = lines[3] ? "content-type: application/x-www-form-urlencoded" : NULL;
	if (!lines[3])
		lines[3] = "content-type: application/x-www-form-urlencoded";
	rc = post(s, "the token service (AssumeRole)", url, lines, body, &t);
	explicit_bzero(text, sizeof(text));
	return rc ? rc : parse_role(s, &t, "AssumeRoleResponse", ret_keys);
}

// A bearer's token, without the line breaks around it.
static int read_token(const char *path, char **ret_token)
{
	CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	CLEANUP(wipe_text) char *token = calloc(1, BEARER_MAX);
	ssize_t n;

	if (!token)
		return -ENOMEM;
	if (fd < 0 || (n = read(fd, token, BEARER_MAX - 1)) < 0)
		return -errno;
	while (n && strchr(" \r\n\t", token[n - 1]))
		token[--n] = '\0';
	if (!n || strpbrk(token, "\r\n"))
		return -EBADMSG;
	*ret_token = TAKE_PTR(token);
	return 0;
}

int ckpt_keys_web_identity(const struct ckpt_key_source *s, const struct ckpt_role *role, const char *token_path,
			   struct ckpt_keys *ret_keys)
{
	CLEANUP(answer_done) struct ckpt_http_text t = {0};
	CLEANUP(wipe_text) char *token = NULL, *body = calloc(1, 4 * BEARER_MAX);
	static const char *const lines[] = {"content-type: application/x-www-form-urlencoded", NULL};
	char url[512];
	int rc;

	if (!body)
		return -ENOMEM;
	if (!token_service(s, url, sizeof(url)))
		return say(s, -EACCES, "the token service", "its endpoint must have https://");
	rc = read_token(token_path, &token);
	if (rc)
		return say(s, -EACCES, token_path, strerror(-rc));
	rc = role_body(role, "AssumeRoleWithWebIdentity", token, body, 4 * BEARER_MAX);
	if (rc)
		return say(s, rc, "the token service", "the role cannot be asked for in these words");
	rc = post(s, "the token service (AssumeRoleWithWebIdentity)", url, lines, body, &t);
	return rc ? rc : parse_role(s, &t, "AssumeRoleWithWebIdentityResponse", ret_keys);
}

// --- SSO ----------------------------------------------------------------------------------------------------------------

// The token of one file of the cache, if it is for this URL and holds.
static bool read_cached(int dirfd, const char *name, const char *start_url, char *ret_token, size_t size)
{
	CLEANUP(wipe_text) char *text = calloc(1, ANSWER_MAX);
	CLEANUP_FD int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	ssize_t n = text && fd >= 0 ? read(fd, text, ANSWER_MAX - 1) : -1;
	char url[512], expires[64];
	json_t *json = NULL;
	int64_t expires_ns;
	bool found;

	if (n <= 0 || ckpt_json_load(text, (size_t)n, 0, NULL, &json))
		return false;
	found = !take_string(json, "startUrl", url, sizeof(url)) && !strcmp(url, start_url) &&
		!take_string(json, "expiresAt", expires, sizeof(expires)) &&
		!ckpt_time_parse(expires, false, &expires_ns) && expires_ns > ckpt_sys.now_ns() &&
		!take_string(json, "accessToken", ret_token, size);
	json_decref(json);
	return found;
}

static bool find_cached(const char *start_url, char *ret_token, size_t size)
{
	const char *home = getenv("HOME");
	char path[PATH_MAX];
	struct dirent *e;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/.aws/sso/cache", home && *home ? home : "/root");
	dir = opendir(path);
	while (dir && !found && (e = readdir(dir)))
		found = strstr(e->d_name, ".json") && read_cached(dirfd(dir), e->d_name, start_url, ret_token, size);
	if (dir)
		closedir(dir);
	return found;
}

int ckpt_keys_sso(const struct ckpt_key_source *s, const char *start_url, const char *account_id, const char *role_name,
		  struct ckpt_keys *ret_keys)
{
	static const struct names names = {"accessKeyId", "secretAccessKey", "sessionToken", "expiration"};
	CLEANUP(answer_done) struct ckpt_http_text t = {0};
	CLEANUP(wipe_text) char *header = calloc(1, BEARER_MAX + 64);
	const char *lines[] = {header, NULL}, *base = getenv("AWS_ENDPOINT_URL_SSO");
	char url[1024], account[128], role[512];
	int at, rc;

	if (!header)
		return -ENOMEM;
	at = sprintf(header, "x-amz-sso_bearer_token: ");
	if (!find_cached(start_url, header + at, BEARER_MAX))
		return say(s, -EACCES, "SSO", "no token holds any more: run `aws sso login`");
	if (base && *base)
		at = snprintf(url, sizeof(url), "%s", base);
	else
		at = snprintf(url, sizeof(url), "https://portal.sso.%s.amazonaws.com", s->region);
	if (!ckpt_sign_encode(account_id, false, account, sizeof(account)) ||
	    !ckpt_sign_encode(role_name, false, role, sizeof(role)) || (size_t)at >= sizeof(url) || !is_safe(url))
		return say(s, -EINVAL, "SSO", "its endpoint, account or role makes no sense");
	snprintf(url + at, sizeof(url) - (size_t)at, "/federation/credentials?account_id=%s&role_name=%s", account,
		 role);
	rc = ask(s, "SSO",
		 &(struct ckpt_http_request){.method = "GET",
					     .url = url,
					     .headers = lines,
					     .allow_http = is_near(url),
					     .direct = is_near(url),
					     .limit_ns = SERVICE_NS},
		 &t);
	return rc ? rc : parse_keys(s, "SSO", t.data, t.len, "roleCredentials", &names, ret_keys);
}

// --- Containers and machines ----------------------------------------------------------------------------------------------

int ckpt_keys_container(const struct ckpt_key_source *s, struct ckpt_keys *ret_keys)
{
	const char *path = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
		   *full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
		   *token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
		   *token_path = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	CLEANUP(answer_done) struct ckpt_http_text t = {0};
	CLEANUP(wipe_text) char *header = NULL, *from_file = NULL;
	char url[1024];
	int rc;

	if ((!path || !*path) && (!full || !*full))
		return -ENOENT;
	snprintf(url, sizeof(url), "%s%s", path && *path ? "http://169.254.170.2" : "", path && *path ? path : full);
	if (!is_safe(url))
		return say(s, -EACCES, "the container", "its endpoint must have https://, or be on this machine");
	if (token_path && *token_path) {
		rc = read_token(token_path, &from_file);
		if (rc)
			return say(s, -EACCES, token_path, strerror(-rc));
		token = from_file;
	}
	if (token && *token && (strpbrk(token, "\r\n") || asprintf(&header, "authorization: %s", token) < 0))
		return -ENOMEM;
	rc = ask(s, "the container",
		 &(struct ckpt_http_request){.method = "GET",
					     .url = url,
					     .headers = (const char *const[]){header, NULL},
					     .allow_http = true,
					     .direct = true,
					     .limit_ns = METADATA_NS},
		 &t);
	return rc == -ENOENT ? -EACCES
	       : rc          ? rc
			     : parse_keys(s, "the container", t.data, t.len, NULL, &usual, ret_keys);
}

struct machine {
	const struct ckpt_key_source *s;
	const char *base;
	char token[1024]; // as a header
};

static int ask_machine(struct machine *m, const char *method, const char *path, const char *header,
		       struct ckpt_http_text *t)
{
	char url[1024];

	if ((size_t)snprintf(url, sizeof(url), "%s%s", m->base, path) >= sizeof(url))
		return -EINVAL;
	return ask_once(m->s,
			&(struct ckpt_http_request){.method = method,
						    .url = url,
						    .headers = (const char *const[]){header, NULL},
						    .allow_http = true,
						    .direct = true,
						    .limit_ns = METADATA_NS},
			t);
}

// Only as IMDSv2 has it: a token first, which a request that was lured here cannot get.
static int ask_role(struct machine *m, struct ckpt_http_text *t)
{
	static const char path[] = "/latest/meta-data/iam/security-credentials/";
	char whole[512];
	int rc = ask_machine(m, "PUT", "/latest/api/token", "x-aws-ec2-metadata-token-ttl-seconds: 21600", t);

	if (!rc &&
	    (strpbrk(t->data, "\r\n") ||
	     (size_t)snprintf(m->token, sizeof(m->token), "x-aws-ec2-metadata-token: %s", t->data) >= sizeof(m->token)))
		rc = -EBADMSG;
	if (!rc)
		rc = ask_machine(m, "GET", path, m->token, t);
	if (rc)
		return rc;
	t->data[strcspn(t->data, "\r\n")] = '\0';
	if (!*t->data || strpbrk(t->data, "/?# %") ||
	    (size_t)snprintf(whole, sizeof(whole), "%s%s", path, t->data) >= sizeof(whole))
		return -EBADMSG;
	return ask_machine(m, "GET", whole, m->token, t);
}

int ckpt_keys_machine(const struct ckpt_key_source *s, struct ckpt_keys *ret_keys)
{
	const char *disabled = getenv("AWS_EC2_METADATA_DISABLED"), *base = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	CLEANUP(answer_done) struct ckpt_http_text t = {0};
	struct machine m = {.s = s, .base = base && *base ? base : "http://169.254.169.254"};
	char trimmed[256];
	int rc;

	if (disabled && !strcasecmp(disabled, "true"))
		return -ENOENT;
	snprintf(trimmed, sizeof(trimmed), "%s", m.base);
	while (*trimmed && trimmed[strlen(trimmed) - 1] == '/')
		trimmed[strlen(trimmed) - 1] = '\0';
	m.base = trimmed;
	if (!is_near(m.base))
		return say(s, -EACCES, "this machine's metadata", "their endpoint must be on this machine or its link");
	rc = ask_role(&m, &t);
	explicit_bzero(m.token, sizeof(m.token));
	if (rc == -ENOTCONN || rc == -ENOENT) // there is no such service, or this machine has no role
		return -ENOENT;
	if (rc)
		return say(s, rc == -EBADMSG ? -EIO : rc, "this machine's metadata", strerror(-rc));
	return parse_keys(s, "this machine's metadata", t.data, t.len, NULL, &usual, ret_keys);
}

// --- Programs -----------------------------------------------------------------------------------------------------------

static int read_output(int fd, int64_t until_ns, char *ret_text, size_t size)
{
	size_t len = 0;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left_ns = until_ns - ckpt_sys.mono_ns();
		ssize_t n;

		if (left_ns <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)(left_ns / 1000000) + 1) <= 0)
			continue;
		n = read(fd, ret_text + len, size - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 0;
		len += (size_t)n;
		if (len == size - 1)
			return -EFBIG;
	}
}

static int spawn(const char *command, int output_fd, pid_t *ret_pid)
{
	char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)command, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	posix_spawnattr_init(&attr); // these two cannot fail
	posix_spawn_file_actions_init(&files);
	rc = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	if (!rc)
		rc = posix_spawnattr_setsigmask(&attr, &none);
	if (!rc)
		rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&files, output_fd, STDOUT_FILENO);
	if (!rc)
		rc = posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
	if (!rc)
		rc = posix_spawn(ret_pid, "/bin/sh", &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

static int run(const char *command, char *ret_text, size_t size)
{
	int fds[2], status = 0, rc;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	rc = spawn(command, fds[1], &pid);
	close(fds[1]);
	if (!rc) {
		rc = read_output(fds[0], ckpt_sys.mono_ns() + PROGRAM_NS, ret_text, size);
		if (rc)
			kill(-pid, SIGKILL);
		if (TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0 || (!rc && status))
			rc = -ECHILD;
	}
	close(fds[0]);
	return rc;
}

int ckpt_keys_program(const struct ckpt_key_source *s, const char *command, struct ckpt_keys *ret_keys)
{
	static const struct names names = {"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"};
	CLEANUP(wipe_text) char *text = calloc(1, ANSWER_MAX);
	int rc = text ? run(command, text, ANSWER_MAX) : -ENOMEM;

	if (rc)
		return say(s, rc == -ENOMEM ? rc : -EACCES, "credential_process",
			   rc == -ECHILD ? "the program has failed" : strerror(-rc));
	return parse_keys(s, "credential_process", text, strlen(text), NULL, &names, ret_keys);
}

// Where keys come from: each source, in its order, against a server that answers as the services do; and each way for them to be refused.
#include "tests/support/httpd.h"
#include "tests/support/suite.h"

#include "backends/credentials.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define CANARY "canary-of-a-secret"

static struct httpd server;
static char home[PATH_MAX], why[CKPT_CREDENTIALS_WHY_MAX], logged[65536];
static struct ckpt_http *http;
static struct ckpt_credentials *c;
static struct ckpt_keys keys;
static char requests[16][4096];
static const char *expires = "2099-01-01T00:00:00Z";
static int status = 200;
static const char *body; // instead of the usual one

static struct httpd_reply json(int code, const char *text)
{
	static _Thread_local char reply[2048];

	snprintf(reply, sizeof(reply), "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n\r\n%s", code, strlen(text), text);
	return (struct httpd_reply){reply, HTTPD_GO_ON};
}

// All services in one; the id tells which it was.
static struct httpd_reply serve(void *arg, size_t n, const char *request)
{
	static _Thread_local char text[1024];
	const char *id = strstr(request, "/container") ? "ID-CONTAINER" : "ID-MACHINE";
	bool is_web = strstr(request, "WebIdentity");

	(void)arg;
	snprintf(requests[n % ARRAY_LEN(requests)], sizeof(requests[0]), "%s", request);
	if (status != 200)
		return json(status, "");
	if (body)
		return json(200, body);
	if (!strncmp(request, "PUT /latest/api/token ", 22))
		return json(200, "machine-token");
	if (strstr(request, "/latest/") && !strstr(request, "x-aws-ec2-metadata-token: machine-token\r\n"))
		return json(401, "");
	if (strstr(request, "security-credentials/ HTTP"))
		return json(200, "the-role");
	if (strstr(request, "/federation/")) {
		snprintf(text, sizeof(text),
			 "{\"roleCredentials\":{\"accessKeyId\":\"ID-SSO\",\"secretAccessKey\":\"" CANARY
			 "\",\"sessionToken\":\"T\",\"expiration\":4070908800000}}");
		return json(200, text);
	}
	if (strstr(request, "Action=AssumeRole"))
		snprintf(
			text, sizeof(text),
			"<AssumeRole%sResponse><R><Credentials><AccessKeyId>ID-%s</AccessKeyId><SecretAccessKey>" CANARY
			"</SecretAccessKey><SessionToken>T</SessionToken><Expiration>%s</Expiration></Credentials></R>"
			"</AssumeRole%sResponse>",
			is_web ? "WithWebIdentity" : "", is_web ? "WEB" : "ROLE", expires,
			is_web ? "WithWebIdentity" : "");
	else
		snprintf(text, sizeof(text),
			 "{\"AccessKeyId\":\"%s\",\"SecretAccessKey\":\"" CANARY
			 "\",\"Token\":\"T\",\"Expiration\":\"%s\"}",
			 id, expires);
	return json(200, text);
}

static void keep_log(enum ckpt_log_level level, const char *line)
{
	(void)level;
	strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
}

static void write_file(const char *name, mode_t mode, const char *text)
{
	char path[PATH_MAX + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", home, name);
	for (char *slash = strchr(path + strlen(home) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	fchmod(fd, mode);
	close(fd);
}

static void setenv_path(const char *variable, const char *name)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", home, name);
	setenv(variable, path, 1);
}

static void setup(void)
{
	static const char *const names[] = {"AWS_ACCESS_KEY_ID",
					    "AWS_SECRET_ACCESS_KEY",
					    "AWS_SESSION_TOKEN",
					    "AWS_PROFILE",
					    "AWS_SHARED_CREDENTIALS_FILE",
					    "AWS_CONFIG_FILE",
					    "AWS_WEB_IDENTITY_TOKEN_FILE",
					    "AWS_ROLE_ARN",
					    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
					    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
					    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
					    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		unsetenv(names[i]);
	ckpt_temp_dir(home);
	setenv("HOME", home, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	server = (struct httpd){.serve = serve};
	httpd_start(&server);
	setenv("AWS_ENDPOINT_URL_STS", server.url, 1);
	setenv("AWS_ENDPOINT_URL_SSO", server.url, 1);
	ckpt_log_to(keep_log, CKPT_LOG_DEBUG);
	ck_ok(ckpt_http_new(&(struct ckpt_http_config){0}, &http));
}

static void teardown(void)
{
	ckpt_credentials_free(c);
	ckpt_http_free(http);
	httpd_stop(&server);
	ck_assert_ptr_null(strstr(logged, CANARY));
	ck_assert_ptr_null(strstr(why, CANARY));
}

static int get_again(void)
{
	return ckpt_credentials_get(c, &keys, why);
}

static int get_of(const char *profile)
{
	ckpt_credentials_free(c);
	ck_ok(ckpt_credentials_new(http, profile, "", &c));
	return get_again();
}

static void assert_keys(const char *id)
{
	ck_assert_str_eq(keys.id, id);
	ck_assert_str_eq(keys.secret, CANARY);
}

static void assert_source(const char *expected)
{
	char source[CKPT_CREDENTIALS_SOURCE_MAX];

	ckpt_credentials_source(c, source);
	ck_assert_str_eq(source, expected);
}

START_TEST(the_environment_comes_first_but_after_a_profile_that_was_named)
{
	write_file(".aws/credentials", 0600, "[p]\naws_access_key_id = ID-P\naws_secret_access_key=" CANARY "\n");
	setenv("AWS_ACCESS_KEY_ID", "ID-ENV", 1);
	setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
	setenv("AWS_SESSION_TOKEN", "T", 1);
	ck_ok(get_of(NULL));
	assert_keys("ID-ENV");
	ck_assert_str_eq(keys.token, "T");
	assert_source("the environment");
	ck_ok(get_of("p"));
	assert_keys("ID-P");
	assert_source("the profile p, its keys");
	ck_assert_str_eq(keys.token, "");
}
END_TEST

START_TEST(profiles_are_read_from_both_files)
{
	char region[32];

	write_file(".aws/credentials", 0600,
		   "# comment\n[default]\n aws_access_key_id = WRONG\naws_access_key_id\t=\tID-D "
		   "\r\naws_secret_access_key = " CANARY
		   "\n[other]\naws_access_key_id=ID-O\naws_secret_access_key=" CANARY "\n");
	write_file(".aws/config", 0600,
		   "[profile  other]\nregion = r-other\ns3 =\n  region = nested\n[default]\nregion=r-default\n"
		   "[profile third]\naws_access_key_id=ID-T\naws_secret_access_key=" CANARY "\naws_session_token=T");
	ck_ok(get_of(NULL));
	assert_keys("ID-D");
	ckpt_credentials_setting(c, "region", region, sizeof(region));
	ck_assert_str_eq(region, "r-default");
	setenv("AWS_PROFILE", "other", 1);
	ck_ok(get_of(NULL));
	assert_keys("ID-O");
	ckpt_credentials_setting(c, "region", region, sizeof(region));
	ck_assert_str_eq(region, "r-other");
	ck_ok(get_of("third"));
	assert_keys("ID-T");
	ck_assert_str_eq(keys.token, "T");
	ck_error(get_of("fourth"), EINVAL);
	ck_assert_msg(strstr(why, "fourth") != NULL, "%s", why);
}
END_TEST

START_TEST(a_file_that_others_may_write_is_not_read)
{
	write_file(".aws/credentials", 0620, "[default]\naws_access_key_id=A\naws_secret_access_key=" CANARY "\n");
	ck_error(get_of(NULL), EACCES);
	ck_assert_msg(strstr(why, "credentials") != NULL, "%s", why);
	write_file(".aws/credentials", 0644, "[default]\naws_access_key_id=A\naws_secret_access_key=" CANARY "\n");
	ck_ok(get_of(NULL)); // as secrets of Kubernetes are
	ck_assert_ptr_nonnull(strstr(logged, "can be read by other users"));
}
END_TEST

START_TEST(a_role_is_taken_with_the_keys_of_another_profile)
{
	write_file(".aws/credentials", 0600, "[base]\naws_access_key_id=ID-B\naws_secret_access_key=" CANARY "\n");
	write_file(".aws/config", 0600,
		   "[profile r]\nrole_arn=arn:aws:iam::1:role/x\nsource_profile=base\nexternal_id=e/1\n"
		   "[profile rr]\nrole_arn=arn:y\nsource_profile=r\n"
		   "[profile loop]\nrole_arn=arn:z\nsource_profile=pool\n[profile "
		   "pool]\nrole_arn=arn:z\nsource_profile=loop\n"
		   "[profile alone]\nrole_arn=arn:z\n[profile mfa]\nrole_arn=arn:z\nsource_profile=base\nmfa_serial=m\n"
		   "[profile env]\nrole_arn=arn:e\ncredential_source=Environment\n");
	ck_ok(get_of("r"));
	assert_keys("ID-ROLE");
	ck_assert_ptr_nonnull(strstr(requests[0], "Credential=ID-B/"));
	ck_assert_ptr_nonnull(strstr(requests[0], "/us-east-1/sts/aws4_request,"));
	ck_assert_ptr_nonnull(strstr(requests[0],
				     "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx&"
				     "RoleSessionName=ckptfs&ExternalId=e%2F1"));
	ck_assert_int_gt(keys.expires_ns, ckpt_sys.now_ns());
	assert_source("the profile r, its role");
	ck_ok(get_of("rr"));
	assert_source("the profile rr, its role"); // not that which it leads to
	ck_assert_uint_eq(httpd_count(&server), 3);
	ck_assert_ptr_nonnull(strstr(requests[2], "Credential=ID-ROLE/"));
	ck_assert_ptr_nonnull(strstr(requests[2], "x-amz-security-token: T\r\n"));
	ck_error(get_of("loop"), EINVAL);
	ck_error(get_of("alone"), EINVAL);
	ck_error(get_of("mfa"), EINVAL);
	ck_error(get_of("env"), EINVAL);
	setenv("AWS_ACCESS_KEY_ID", "ID-ENV", 1);
	setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
	ck_ok(get_of("env"));
	assert_keys("ID-ROLE");
	status = 403;
	ck_error(get_of("r"), EACCES);
	ck_assert_msg(strstr(why, "AssumeRole") != NULL, "%s", why);
}
END_TEST

START_TEST(a_program_says_keys)
{
	write_file(".aws/config", 0600,
		   "[profile p]\ncredential_process = printf "
		   "'{\"Version\":1,\"AccessKeyId\":\"ID-PROG\",\"SecretAccessKey\":\"" CANARY
		   "\",\"SessionToken\":\"T\",\"Expiration\":\"2099-01-01T00:00:00Z\"}'\n"
		   "[profile fails]\ncredential_process = echo " CANARY " >&2; exit 3\n"
		   "[profile mumbles]\ncredential_process = echo " CANARY "\n"
		   "[profile talks]\ncredential_process = yes " CANARY "\n");
	ck_ok(get_of("p"));
	assert_keys("ID-PROG");
	ck_error(get_of("fails"), EACCES);
	ck_error(get_of("mumbles"), EIO);
	ck_error(get_of("talks"), EACCES);
}
END_TEST

START_TEST(sso_uses_the_token_of_its_cache)
{
	write_file(".aws/config", 0600,
		   "[profile s]\nsso_session=corp\nsso_account_id=1\nsso_role_name=r/1\n"
		   "[sso-session corp]\nsso_start_url=https://corp/start\nsso_region=eu-west-1\n"
		   "[profile old]\nsso_start_url=https://old/start\nsso_region=x\nsso_account_id=1\nsso_role_name=r\n");
	write_file(".aws/sso/cache/a.json", 0600, "{\"clientId\":\"x\"}");
	write_file(".aws/sso/cache/b.json", 0600,
		   "{\"startUrl\":\"https://corp/"
		   "start\",\"accessToken\":\"bearer-1\",\"expiresAt\":\"2099-01-01T00:00:00Z\"}");
	write_file(".aws/sso/cache/c.json", 0600,
		   "{\"startUrl\":\"https://old/"
		   "start\",\"accessToken\":\"bearer-2\",\"expiresAt\":\"2001-01-01T00:00:00Z\"}");
	ck_ok(get_of("s"));
	assert_keys("ID-SSO");
	ck_assert_int_eq(keys.expires_ns, INT64_C(4070908800000000000));
	ck_assert_ptr_nonnull(strstr(requests[0], "x-amz-sso_bearer_token: bearer-1\r\n"));
	ck_assert_ptr_nonnull(strstr(requests[0], "GET /federation/credentials?account_id=1&role_name=r%2F1 "));
	ck_error(get_of("old"), EACCES);
	ck_assert_msg(strstr(why, "aws sso login") != NULL, "%s", why);
}
END_TEST

START_TEST(a_web_identity_becomes_a_role)
{
	write_file("token", 0644, "jwt.a+b\n");
	setenv_path("AWS_WEB_IDENTITY_TOKEN_FILE", "token");
	setenv("AWS_ROLE_ARN", "arn:w", 1);
	ck_ok(get_of(NULL));
	assert_keys("ID-WEB");
	ck_assert_ptr_nonnull(strstr(requests[0], "&WebIdentityToken=jwt.a%2Bb"));
	ck_assert_ptr_null(strcasestr(requests[0], "authorization:"));
	setenv_path("AWS_WEB_IDENTITY_TOKEN_FILE", "none");
	ck_error(get_of(NULL), EACCES);
	setenv_path("AWS_WEB_IDENTITY_TOKEN_FILE", "token");
	setenv("AWS_ENDPOINT_URL_STS", "http://sts.example.org", 1);
	ck_error(get_of(NULL), EACCES); // not over an open line
}
END_TEST

START_TEST(a_container_has_an_endpoint)
{
	char url[64];

	snprintf(url, sizeof(url), "%s/container", server.url);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "auth-1", 1);
	ck_ok(get_of(NULL));
	assert_keys("ID-CONTAINER");
	ck_assert_ptr_nonnull(strstr(requests[0], "authorization: auth-1\r\n"));
	write_file("auth", 0600, "auth-2\n");
	setenv_path("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "auth");
	ck_ok(get_of(NULL));
	ck_assert_ptr_nonnull(strstr(requests[1], "authorization: auth-2\r\n"));
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.org/container", 1);
	ck_error(get_of(NULL), EACCES);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1.example.org/container", 1);
	ck_error(get_of(NULL), EACCES);
}
END_TEST

START_TEST(a_machine_is_asked_by_the_second_version_only)
{
	setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url, 1);
	ck_ok(get_of(NULL));
	assert_keys("ID-MACHINE");
	ck_assert_ptr_nonnull(strstr(requests[2], "GET /latest/meta-data/iam/security-credentials/the-role "));
	body = "a/../b"; // no name of a role
	ck_error(get_of(NULL), EIO);
	body = NULL;
	status = 403; // the token is refused: nobody falls back to the first version
	__atomic_store_n(&server.count, 0, __ATOMIC_RELAXED);
	ck_error(get_of(NULL), EACCES);
	ck_assert_uint_eq(httpd_count(&server), 1);
	setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://example.org", 1);
	ck_error(get_of(NULL), EACCES);
}
END_TEST

START_TEST(without_any_source_the_ways_are_named)
{
	ck_error(get_of(NULL), EACCES);
	ck_assert_msg(strstr(why, "AWS_ACCESS_KEY_ID") && strstr(why, "no_sign_request"), "%s", why);
	*why = '\0';
	setenv("AWS_ACCESS_KEY_ID", "ID-ENV", 1);
	setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
	ck_error(get_again(), EACCES); // it was told a moment ago, and says the same
	ck_assert_str_ne(why, "");
}
END_TEST

static void set_expiry(int64_t in_s)
{
	static char text[CKPT_TIME_LEN + 1];

	ckpt_time_format(ckpt_sys.now_ns() + in_s * 1000000000, text);
	expires = text;
}

START_TEST(keys_are_fetched_again_before_they_expire)
{
	char url[64];

	snprintf(url, sizeof(url), "%s/container", server.url);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	set_expiry(3600);
	ck_ok(get_of(NULL));
	ck_ok(get_again());
	ck_assert_uint_eq(httpd_count(&server), 1);
	ckpt_credentials_refuse(c, &keys);
	ck_ok(get_again());
	ck_assert_uint_eq(httpd_count(&server), 2);
	keys.id[0] = 'X'; // others than those that are held
	ckpt_credentials_refuse(c, &keys);
	ck_ok(get_again());
	ck_assert_uint_eq(httpd_count(&server), 2);

	set_expiry(200);
	ck_ok(get_of(NULL));
	ck_assert_uint_eq(httpd_count(&server), 3);
	status = 403;
	ck_ok(get_again()); // they hold; and after that failure the source has a rest
	ck_ok(get_again());
	ck_assert_uint_le(httpd_count(&server), 4);
}
END_TEST

static const char *const nonsense[] = {
	"",
	"x",
	"[]",
	"{}",
	"{\"AccessKeyId\":\"a\"}",
	"{\"AccessKeyId\":1,\"SecretAccessKey\":\"b\"}",
	"{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Expiration\":\"soon\"}",
	"{\"AccessKeyId\":\"\",\"SecretAccessKey\":\"\"}",
};

START_TEST(an_answer_without_sense_is_refused)
{
	char url[64];

	snprintf(url, sizeof(url), "%s/container", server.url);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	body = nonsense[_i];
	ck_error(get_of(NULL), EIO);
	ck_assert_msg(strstr(why, "container") != NULL, "%s", why);
}
END_TEST

int main(void)
{
	static const TTest *const *const tests[] = {
		&the_environment_comes_first_but_after_a_profile_that_was_named,
		&profiles_are_read_from_both_files,
		&a_file_that_others_may_write_is_not_read,
		&a_role_is_taken_with_the_keys_of_another_profile,
		&a_program_says_keys,
		&sso_uses_the_token_of_its_cache,
		&a_web_identity_becomes_a_role,
		&a_container_has_an_endpoint,
		&a_machine_is_asked_by_the_second_version_only,
		&without_any_source_the_ways_are_named,
		&keys_are_fetched_again_before_they_expire,
	};
	Suite *suite = suite_create("credentials");
	TCase *tcase = tcase_create("sources");

	tcase_add_checked_fixture(tcase, setup, teardown);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(tcase, *tests[i]);
	tcase_add_loop_test(tcase, an_answer_without_sense_is_refused, 0, ARRAY_LEN(nonsense));
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

// Requests over HTTP: connections are used again and are not too many, answers have limits, and TLS trusts nobody whom it should not.
#include "tests/support/httpd.h"
#include "tests/support/suite.h"

#include "backends/http.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define ANSWER "HTTP/1.1 200 OK\r\nX-Test: \t a b\r\nContent-Length: 5\r\n\r\nhello"

static struct httpd server;
static struct ckpt_http *http;
static const char *reply = ANSWER;
static char asked[4096];       // the first request
static unsigned at_once, most; // atomic: requests that are being answered

static struct httpd_reply serve(void *arg, size_t n, const char *request)
{
	unsigned now = __atomic_add_fetch(&at_once, 1, __ATOMIC_SEQ_CST);

	(void)arg;
	if (!n)
		snprintf(asked, sizeof(asked), "%s", request);
	if (now > __atomic_load_n(&most, __ATOMIC_SEQ_CST))
		__atomic_store_n(&most, now, __ATOMIC_SEQ_CST);
	if (strstr(request, "/slow"))
		usleep(50000);
	__atomic_sub_fetch(&at_once, 1, __ATOMIC_SEQ_CST);
	return (struct httpd_reply){reply, HTTPD_GO_ON};
}

static void setup(void)
{
	server = (struct httpd){.serve = serve};
	httpd_start(&server);
	ck_ok(ckpt_http_new(&(struct ckpt_http_config){.connections_max = 3}, &http));
}

static void teardown(void)
{
	ckpt_http_free(http);
	httpd_stop(&server);
}

static struct ckpt_http_text text;

static struct ckpt_http_call *make(const char *url, bool allow_http)
{
	struct ckpt_http_call *call = calloc(1, sizeof(*call));

	text.max = 100;
	text.len = 0;
	call->request = (struct ckpt_http_request){.method = "GET",
						   .url = url,
						   .allow_http = allow_http,
						   .direct = true,
						   .take = ckpt_http_take_text,
						   .arg = &text};
	return call;
}

static int get_url(const char *url)
{
	CLEANUP_FREE struct ckpt_http_call *call = make(url, true);

	return ckpt_http_run(http, call);
}

START_TEST(a_connection_is_used_again)
{
	for (int i = 0; i < 20; i++)
		ck_ok(get_url(server.url));
	ck_assert_uint_eq(text.len, 5);
	ck_assert_uint_eq(httpd_count(&server), 20);
	ck_assert_uint_eq(__atomic_load_n(&server.connections, __ATOMIC_RELAXED), 1);
}
END_TEST

static void *get_slowly(void *arg)
{
	char url[64];
	struct ckpt_http_call call = {.request = {.method = "GET", .url = url, .allow_http = true, .direct = true}};

	(void)arg;
	snprintf(url, sizeof(url), "%s/slow", server.url);
	ck_ok(ckpt_http_run(http, &call));
	ck_assert_int_eq(call.answer.status, 200);
	return NULL;
}

START_TEST(many_requests_share_a_few_connections)
{
	pthread_t threads[24];

	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		ck_assert(!pthread_create(&threads[i], NULL, get_slowly, NULL));
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(httpd_count(&server), 24);
	ck_assert_uint_eq(most, 3);
	ck_assert_uint_le(__atomic_load_n(&server.connections, __ATOMIC_RELAXED), 3);
}
END_TEST

START_TEST(a_request_that_waits_for_a_connection_is_called_off)
{
	struct ckpt_http_call calls[3] = {0};
	struct ckpt_until until = {.deadline_ns = ckpt_sys.mono_ns() + 20000000};
	CLEANUP_FREE struct ckpt_http_call *late = make(server.url, true);
	char url[64];

	snprintf(url, sizeof(url), "%s/slow", server.url);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		calls[i].request =
			(struct ckpt_http_request){.method = "GET", .url = url, .allow_http = true, .direct = true};
		ck_ok(ckpt_http_start(http, &calls[i]));
	}
	late->request.until = &until;
	ck_error(ckpt_http_run(http, late), ETIMEDOUT);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++)
		ck_ok(ckpt_http_wait(http, &calls[i]));
}
END_TEST

START_TEST(headers_are_found_by_any_case)
{
	CLEANUP_FREE struct ckpt_http_call *call = make(server.url, true);
	char value[16];

	reply = "HTTP/1.1 100 Continue\r\nX-Test: no\r\n\r\n" ANSWER;
	ck_ok(ckpt_http_run(http, call));
	ckpt_http_header(&call->answer, "x-test", value, sizeof(value));
	ck_assert_str_eq(value, "a b");
	ckpt_http_header(&call->answer, "x-tes", value, sizeof(value));
	ck_assert_str_eq(value, "");
	ckpt_http_header(&call->answer, "x-test", value, 3);
	ck_assert_str_eq(value, "");
}
END_TEST

START_TEST(answers_have_limits)
{
	static char many[20000];

	text.max = 4;
	CLEANUP_FREE struct ckpt_http_call *call = make(server.url, true);
	text.max = 4;
	ck_error(ckpt_http_run(http, call), EFBIG);
	strcpy(many, "HTTP/1.1 200 OK\r\nX: ");
	memset(many + strlen(many), 'x', CKPT_HTTP_HEADERS_MAX);
	strcat(many, "\r\nContent-Length: 0\r\n\r\n");
	reply = many;
	ck_error(get_url(server.url), EIO);
	reply = "HTTP/2.0 nonsense\r\n\r\n";
	ck_error(get_url(server.url), EIO);
	reply = "SSH-2.0-x\r\n";
	ck_error(get_url(server.url), EIO);
}
END_TEST

START_TEST(what_is_no_url_or_not_allowed_is_not_asked)
{
	CLEANUP_FREE struct ckpt_http_call *call = make(server.url, false);

	ck_error(ckpt_http_run(http, call), EINVAL);
	ck_error(get_url("ftp://127.0.0.1/"), EINVAL);
	ck_error(get_url("file:///etc/passwd"), EINVAL);
	ck_error(get_url("http://"), EINVAL);
	ck_assert_uint_eq(__atomic_load_n(&server.connections, __ATOMIC_RELAXED), 0);
	ck_error(get_url("http://127.0.0.1:1/"), ENOTCONN);
}
END_TEST

// What a proxy sees of a request with TLS is the name of the host.
START_TEST(a_proxy_that_refuses_was_told_the_host_only)
{
	static const char *const headers[] = {"authorization: canary", NULL};
	CLEANUP_FREE struct ckpt_http_call *call = make("https://bucket.example.org/secret-path", false);

	setenv("HTTPS_PROXY", server.url, 1);
	unsetenv("NO_PROXY");
	unsetenv("no_proxy");
	call->request.direct = false;
	call->request.headers = headers;
	reply = "HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n";
	ck_error(ckpt_http_run(http, call), ENOTCONN);
	ck_assert_uint_eq(httpd_count(&server), 1);
	ck_assert_ptr_nonnull(strstr(asked, "CONNECT bucket.example.org:443 HTTP/1.1\r\n"));
	ck_assert_ptr_null(strstr(asked, "canary"));
	ck_assert_ptr_null(strstr(asked, "secret-path"));
}
END_TEST

START_TEST(times_of_headers_are_read)
{
	ck_assert_int_eq(ckpt_http_time_ns("Fri, 27 Nov 2026 21:01:13 GMT"), INT64_C(1795813273000000000));
	ck_assert_int_eq(ckpt_http_time_ns("yesterday"), 0);
	ck_assert_int_eq(ckpt_http_time_ns(""), 0);
}
END_TEST

// ---- TLS

static char dir[PATH_MAX];

static void make_certificate(const char *name, const char *subject)
{
	char command[3 * PATH_MAX];

	snprintf(command, sizeof(command),
		 "cd %s && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=x -addext subjectAltName=%s "
		 "-keyout %s.key "
		 "-out %s.pem 2>/dev/null && echo hello > file",
		 dir, subject, name, name);
	ck_assert_int_eq(system(command), 0);
}

static uint16_t free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	CLEANUP_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	return ntohs(at.sin_port);
}

static pid_t serve_tls(const char *name, uint16_t port)
{
	char key[32], pem[32], at[32];
	pid_t pid = fork();

	if (pid)
		return pid;
	snprintf(key, sizeof(key), "%s.key", name);
	snprintf(pem, sizeof(pem), "%s.pem", name);
	snprintf(at, sizeof(at), "127.0.0.1:%u", port);
	if (chdir(dir) || dup2(open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO) < 0)
		_exit(1);
	dup2(STDOUT_FILENO, STDERR_FILENO);
	execlp("openssl", "openssl", "s_server", "-accept", at, "-cert", pem, "-key", key, "-WWW", "-tls1_2", NULL);
	_exit(1);
}

// With these certificates trusted; waits for the server.
static int get_tls(const char *trusted, const char *host, uint16_t port)
{
	char path[PATH_MAX + 32], url[64];
	struct ckpt_http *secure;
	int rc = -ENOTCONN;

	snprintf(path, sizeof(path), "%s/%s.pem", dir, trusted);
	setenv("AWS_CA_BUNDLE", path, 1);
	ck_ok(ckpt_http_new(&(struct ckpt_http_config){0}, &secure));
	snprintf(url, sizeof(url), "https://%s:%u/file", host, port);
	for (int i = 0; i < 200 && rc == -ENOTCONN; i++) {
		CLEANUP_FREE struct ckpt_http_call *call = make(url, false);

		usleep(25000);
		rc = ckpt_http_run(secure, call);
	}
	ckpt_http_free(secure);
	return rc;
}

START_TEST(tls_trusts_the_right_name_of_the_right_authority)
{
	uint16_t port = free_port();
	pid_t pid;

	ckpt_temp_dir(dir);
	make_certificate("good", "IP:127.0.0.1");
	make_certificate("other", "IP:127.0.0.1");
	pid = serve_tls("good", port);
	ck_ok(get_tls("good", "127.0.0.1", port));
	ck_assert_uint_ge(text.len, 6);
	ck_error(get_tls("other", "127.0.0.1", port), EACCES);
	ck_error(get_tls("good", "localhost", port), EACCES);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

int main(void)
{
	static const TTest *const *const tests[] = {
		&a_connection_is_used_again,
		&many_requests_share_a_few_connections,
		&a_request_that_waits_for_a_connection_is_called_off,
		&headers_are_found_by_any_case,
		&answers_have_limits,
		&what_is_no_url_or_not_allowed_is_not_asked,
		&a_proxy_that_refuses_was_told_the_host_only,
		&times_of_headers_are_read,
		&tls_trusts_the_right_name_of_the_right_authority,
	};
	Suite *suite = suite_create("http");
	TCase *tcase = tcase_create("http");

	tcase_add_checked_fixture(tcase, setup, teardown);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(tcase, *tests[i]);
	suite_add_tcase(suite, tcase);
	return ckpt_suite_run(suite);
}

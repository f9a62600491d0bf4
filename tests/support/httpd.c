#include "tests/support/httpd.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>

struct connection {
	struct httpd *h;
	int fd;
};

static bool wait_input(struct httpd *h, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (!__atomic_load_n(&h->stopping, __ATOMIC_RELAXED))
		if (poll(&p, 1, 20) > 0)
			return true;
	return false;
}

void httpd_step(struct httpd *h)
{
	__atomic_fetch_add(&h->steps, 1, __ATOMIC_ACQ_REL);
}

size_t httpd_count(struct httpd *h)
{
	httpd_step(h);
	return __atomic_load_n(&h->count, __ATOMIC_RELAXED);
}

static void reset(int fd)
{
	struct linger now = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

static size_t body_of(const char *request)
{
	const char *length = strcasestr(request, "\r\nContent-Length:");

	return length ? strtoul(length + strlen("\r\nContent-Length:"), NULL, 10) : 0;
}

// One request; what does not fit of its body is read and dropped.
static bool read_request(struct connection *c, char *request)
{
	size_t len = 0, left = 0, head = 0;

	*request = '\0';
	while (!head || left) {
		size_t room = HTTPD_REQUEST_MAX - 1 - len;
		char drop[4096];
		ssize_t n;

		if (!wait_input(c->h, c->fd))
			return false;
		n = room ? recv(c->fd, request + len, room, 0) : recv(c->fd, drop, sizeof(drop), 0);
		if (n <= 0)
			return false;
		if (room)
			request[len += (size_t)n] = '\0';
		if (head) {
			left -= MIN(left, (size_t)n);
		} else if (strstr(request, "\r\n\r\n")) {
			head = (size_t)(strstr(request, "\r\n\r\n") + 4 - request);
			left = body_of(request);
			left -= MIN(left, len - head);
			httpd_step(c->h);
			if (c->h->resets_early)
				return true;
		}
	}
	return true;
}

static void send_all(int fd, const char *text)
{
	size_t len = strlen(text);

	while (len) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

static void *serve_connection(void *arg)
{
	CLEANUP_FREE struct connection *c = arg;
	CLEANUP_FREE char *request = malloc(HTTPD_REQUEST_MAX);

	while (request && read_request(c, request)) {
		size_t n = __atomic_fetch_add(&c->h->count, 1, __ATOMIC_RELAXED);
		struct httpd_reply reply = c->h->serve(c->h->arg, n, request);

		httpd_step(c->h);
		if (reply.text)
			send_all(c->fd, reply.text);
		while (reply.then == HTTPD_STALL && !__atomic_load_n(&c->h->stopping, __ATOMIC_RELAXED))
			usleep(10000);
		if (reply.then == HTTPD_RESET)
			reset(c->fd);
		if (reply.then != HTTPD_GO_ON)
			break;
	}
	close(c->fd);
	return NULL;
}

static void *accept_all(void *arg)
{
	struct httpd *h = arg;
	pthread_t threads[256];
	size_t count = 0;

	while (count < ARRAY_LEN(threads) && wait_input(h, h->fd)) {
		struct connection *c = malloc(sizeof(*c));

		*c = (struct connection){h, accept4(h->fd, NULL, NULL, SOCK_CLOEXEC)};
		if (c->fd < 0) { // the test has shut the door
			free(c);
			break;
		}
		__atomic_fetch_add(&h->connections, 1, __ATOMIC_RELAXED);
		ck_assert_int_eq(pthread_create(&threads[count++], NULL, serve_connection, c), 0);
	}
	while (count)
		pthread_join(threads[--count], NULL);
	return NULL;
}

void httpd_start(struct httpd *h)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);

	h->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(h->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(h->fd, 64), 0);
	ck_assert_int_eq(getsockname(h->fd, (struct sockaddr *)&at, &len), 0);
	h->port = ntohs(at.sin_port);
	snprintf(h->url, sizeof(h->url), "http://127.0.0.1:%u", h->port);
	ck_assert_int_eq(pthread_create(&h->thread, NULL, accept_all, h), 0);
}

void httpd_stop(struct httpd *h)
{
	__atomic_store_n(&h->stopping, true, __ATOMIC_RELAXED);
	pthread_join(h->thread, NULL);
	close(h->fd);
}

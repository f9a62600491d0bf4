#include "core/step/ask.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/step/holder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>

#define REPLY_BYTES_MAX (64 << 20)
#define ERRNO_MAX 4095

void ckpt_socket_address(int dirfd, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%s", dirfd, CKPT_SOCKET_FILE);
}

void ckpt_socket_timeouts(int fd, int seconds)
{
	struct timeval limit = {.tv_sec = seconds};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

int ckpt_socket_send(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = TEMP_FAILURE_RETRY(send(fd, text, len, MSG_NOSIGNAL));

		if (n <= 0)
			return n < 0 && errno == EAGAIN ? -ETIMEDOUT : -EPIPE;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

// What is behind the lines that say how far it is stays. Returns its length.
static size_t take_progress(char *text, size_t len, void (*progress)(uint64_t bytes))
{
	const char *line = text, *end;

	while (len && *line == '+' && (end = memchr(line, '\n', len))) {
		progress(strtoull(line + 1, NULL, 10));
		len -= (size_t)(end + 1 - line);
		line = end + 1;
	}
	memmove(text, line, len);
	return len;
}

int ckpt_socket_receive(int fd, size_t bytes_max, void (*progress)(uint64_t bytes), char **ret_text)
{
	CLEANUP_FREE char *text = NULL;
	size_t len = 0, cap = 0;
	ssize_t n;

	do {
		if (len >= bytes_max || ckpt_grow((void **)&text, &cap, len + 4096, 1))
			return -EFBIG;
		n = TEMP_FAILURE_RETRY(recv(fd, text + len, cap - len - 1, 0));
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		len += (size_t)n;
		if (progress)
			len = take_progress(text, len, progress);
	} while (n);
	text[len] = '\0';
	*ret_text = TAKE_PTR(text);
	return 0;
}

static int ask(const char *store, const char *request, int seconds, void (*progress)(uint64_t bytes), char **ret_reply)
{
	CLEANUP_FD int dirfd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;
	CLEANUP_FREE char *reply = NULL;
	int rc;

	if (dirfd < 0 || fd < 0)
		return -errno;
	if (ckpt_holder_is_ending(dirfd))
		return -ENOENT; // its socket is there until its last thread is gone
	ckpt_socket_address(dirfd, &address);
	ckpt_socket_timeouts(fd, seconds);
	// A local connection that a signal interrupts is not under way, but not begun.
	if (TEMP_FAILURE_RETRY(connect(fd, (struct sockaddr *)&address, sizeof(address))))
		return errno == ECONNREFUSED ? -ENOENT : -errno;
	rc = ckpt_socket_send(fd, request, strlen(request));
	if (!rc && shutdown(fd, SHUT_WR))
		rc = -errno;
	if (!rc)
		rc = ckpt_socket_receive(fd, REPLY_BYTES_MAX, progress, &reply);
	if (!rc && !*reply)
		rc = -EPROTO;
	if (!rc)
		*ret_reply = TAKE_PTR(reply);
	return rc;
}

int ckpt_ask(const char *store, const char *request, int seconds, char **ret_reply)
{
	return ask(store, request, seconds, NULL, ret_reply);
}

int ckpt_ask_at_length(const char *store, const char *request, void (*progress)(uint64_t bytes), char **ret_reply)
{
	return ask(store, request, CKPT_SOCKET_PATIENT, progress, ret_reply);
}

static int error_of(const json_t *reply)
{
	const json_t *error = json_object_get(reply, "errno");
	json_int_t number = json_integer_value(error);

	return number > 0 && number <= ERRNO_MAX ? -(int)number : -EREMOTEIO;
}

int ckpt_ask_json(const char *store, json_t *request, int seconds, json_t **ret_reply, char **ret_why)
{
	CLEANUP_FREE char *text = ckpt_json_dump(request, JSON_COMPACT), *answer = NULL;
	const char *why;
	json_t *reply;
	int rc = text ? ckpt_ask(store, text, seconds, &answer) : -ENOMEM;

	if (ret_why)
		*ret_why = NULL;
	if (rc)
		return rc == -ENOENT ? -ENOTCONN : rc;
	rc = ckpt_json_load(answer, strlen(answer), 0, NULL, &reply);
	if (rc)
		return rc == -EINVAL ? -EPROTO : rc;
	rc = json_object_get(reply, "error") ? error_of(reply) : json_is_object(reply) ? 0 : -EPROTO;
	why = json_string_value(json_object_get(reply, "error"));
	if (why && ret_why)
		*ret_why = strdup(why);
	if (rc)
		json_decref(reply);
	else
		*ret_reply = reply;
	return rc;
}

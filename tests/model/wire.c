#include "tests/model/wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

int wire_send(int fd, const struct wire *w)
{
	size_t len = offsetof(struct wire, bytes) + w->len;

	return send(fd, w, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -errno;
}

int wire_receive(int fd, struct wire *w, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ssize_t n = poll(&p, 1, timeout_ms);

	if (n <= 0)
		return n ? -errno : -ETIMEDOUT;
	n = recv(fd, w, sizeof(*w), 0);
	if (n <= 0)
		return n ? -errno : 0;
	w->bytes[w->len < WIRE_BYTES_MAX ? w->len : WIRE_BYTES_MAX - 1] = '\0';
	return 1;
}

void wire_text(struct wire *w, const char *text)
{
	w->len = (uint32_t)strnlen(text, WIRE_BYTES_MAX - 1);
	memcpy(w->bytes, text, w->len);
}

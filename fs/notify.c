// The protocol is the section "Notes" of sd_notify(3): one datagram, of lines, to the socket in $NOTIFY_SOCKET, which is
// a path, or a name in the abstract namespace with "@" in the place of its first, zero, byte.
#include "fs/notify.h"

#include "core/base/log.h"
#include "core/base/util.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

static int manager = -1; // set before there are threads

void notify_open(void)
{
	const char *name = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = name ? strlen(name) : 0;
	CLEANUP_FD int fd = -1;

	if (!len)
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (len < sizeof(address.sun_path))
		memcpy(address.sun_path, name, len);
	if (*name == '@')
		address.sun_path[0] = '\0';
	if (fd < 0 || (*name != '/' && *name != '@') || len >= sizeof(address.sun_path) ||
	    connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len))) {
		ckpt_log(CKPT_LOG_WARN, "NOTIFY_SOCKET=%s cannot be reached", name);
		return;
	}
	manager = TAKE_FD(fd);
}

void notify(const char *text, ...)
{
	CLEANUP_FREE char *lines = NULL;
	va_list ap;

	if (manager < 0)
		return;
	va_start(ap, text);
	if (vasprintf(&lines, text, ap) < 0)
		lines = NULL;
	va_end(ap);
	if (!lines || send(manager, lines, strlen(lines), MSG_NOSIGNAL) < 0)
		ckpt_log(CKPT_LOG_WARN, "the service manager cannot be told: %s", strerror(errno));
}

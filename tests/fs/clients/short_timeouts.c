// Preloaded into a verb: nobody is waited for longer than a fifth of a second.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/time.h>

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	int (*real)(int, int, int, const void *, socklen_t) =
		(int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
	struct timeval limit = {.tv_usec = 200000};

	if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO))
		return real(fd, level, name, &limit, sizeof(limit));
	return real(fd, level, name, value, len);
}

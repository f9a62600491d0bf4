// Preloaded into a daemon: its CLOCK_MONOTONIC is ahead by as many seconds as the file $LATER says. Waits are as long as ever.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long ahead(void)
{
	const char *path = getenv("LATER");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char text[32];
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int (*real)(clockid_t, struct timespec *) =
		(int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(clock, now);

	if (clock == CLOCK_MONOTONIC)
		now->tv_sec += ahead();
	return rc;
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until)
{
	int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) =
		(int (*)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *))dlsym(
			RTLD_NEXT, "pthread_cond_clockwait");
	struct timespec when = *until;

	if (clock == CLOCK_MONOTONIC)
		when.tv_sec -= ahead();
	return real(cond, mutex, clock, &when);
}

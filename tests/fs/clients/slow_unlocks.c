// Preloaded into a mount: while there is a file $SLOW_UNLOCKS, who lets a lock go stands still for a moment, so that what lies
// between two locks is wide enough for others.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define STILL_USEC 3000

static int (*real)(pthread_mutex_t *mutex);
static const char *sign;

__attribute__((constructor)) static void find(void)
{
	real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	sign = getenv("SLOW_UNLOCKS");
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int rc = real(mutex);

	if (sign && !access(sign, F_OK))
		usleep(STILL_USEC);
	return rc;
}

// Preloaded into a mount: while there is a file $UNEVEN_UNLOCKS, a thread that lets a lock go stands still now and then, for longer
// than what other threads do between two of their locks. So threads overtake each other at each place where no lock is held.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define ONE_OF 16
#define STILL_USEC 20000

static const char *sign;

__attribute__((constructor)) static void find(void)
{
	sign = getenv("UNEVEN_UNLOCKS");
}

static void stand_still(void)
{
	static _Thread_local uint64_t state;

	if (!sign || access(sign, F_OK))
		return;
	if (!state)
		state = (uint64_t)gettid();
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	if (!((state >> 33) % ONE_OF))
		usleep(STILL_USEC);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*real)(pthread_mutex_t *); // other libraries take locks before this one begins
	int rc;

	if (!real)
		real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	rc = real(mutex);

	stand_still();
	return rc;
}

int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	static int (*real)(pthread_rwlock_t *);
	int rc;

	if (!real)
		real = (int (*)(pthread_rwlock_t *))dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
	rc = real(lock);

	stand_still();
	return rc;
}

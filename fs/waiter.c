#include "fs/waiter.h"

#include "fs/client.h"

bool waiter_is_gone(void *arg)
{
	const struct waiter *w = arg;

	return __atomic_load_n(w->ending, __ATOMIC_ACQUIRE) || client_is_dying(w->tid);
}

#include "core/view/header_catalog.h"

#include "core/base/util.h"
#include "core/view/step_arrays.h"

#include <linux/ioprio.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

struct making {
	const struct ckpt_header_catalog *how;
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	void *bytes;
	size_t len;
	int rc;
};

static bool goes_on(void *arg)
{
	const struct making *made = arg;

	return !made->how->go_on || made->how->go_on(made->how->arg, 0);
}

static void *make(void *arg)
{
	const struct sched_param none = {0};
	struct making *made = arg;
	struct ckpt_catalog_stop stop = {.go_on = goes_on, .arg = made};
	struct ckpt_step_arrays *arrays;

	if (made->how->behind) {
		(void)sched_setscheduler(0, SCHED_IDLE, &none);
		(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
	}
	made->rc = ckpt_step_arrays_read_until(made->step, made->m, "", &stop, &arrays);
	if (made->rc)
		return NULL;
	if (ckpt_catalog_count(ckpt_step_arrays_catalog(arrays)))
		made->rc = ckpt_step_arrays_encode(arrays, &made->bytes, &made->len);
	ckpt_step_arrays_free(arrays);
	return NULL;
}

int ckpt_header_catalog_make(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_header_catalog *how,
			     void **ret_bytes, size_t *ret_len)
{
	struct making made = {.how = how, .step = step, .m = m};
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	rc = pthread_attr_setstacksize(&attr, CKPT_HEADER_STACK) ?: pthread_create(&thread, &attr, make, &made);
	pthread_attr_destroy(&attr);
	if (rc)
		return -rc;
	pthread_join(thread, NULL);
	if (made.rc)
		return made.rc;
	*ret_bytes = made.bytes;
	*ret_len = made.len;
	return 0;
}

#include "core/view/header_catalog.h"

#include "core/base/util.h"
#include "core/view/step_arrays.h"

#include <linux/ioprio.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

struct making {
	const struct ckpt_header_catalog *how;
	struct ckpt_step *step;
	struct ckpt_manifest *m;
	void *bytes;
	size_t len;
};

static bool goes_on(void *arg)
{
	const struct making *made = arg;

	return !made->how->go_on || made->how->go_on(made->how->arg, 0);
}

static int make(void *arg)
{
	const struct sched_param none = {0};
	struct making *made = arg;
	struct ckpt_catalog_stop stop = {.go_on = goes_on, .arg = made};
	struct ckpt_step_arrays *arrays;
	int rc;

	if (made->how->behind) {
		(void)sched_setscheduler(0, SCHED_IDLE, &none);
		(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
	}
	rc = ckpt_step_arrays_read_until(made->step, made->m, "", &stop, &arrays);
	if (rc)
		return rc;
	if (ckpt_catalog_count(ckpt_step_arrays_catalog(arrays)))
		rc = ckpt_step_arrays_encode(arrays, &made->bytes, &made->len);
	ckpt_step_arrays_free(arrays);
	return rc;
}

int ckpt_header_catalog_make(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_header_catalog *how,
			     void **ret_bytes, size_t *ret_len)
{
	struct making made = {.how = how, .step = step, .m = m};
	int rc = ckpt_step_arrays_with_stack(make, &made);

	if (rc)
		return rc;
	*ret_bytes = made.bytes;
	*ret_len = made.len;
	return 0;
}

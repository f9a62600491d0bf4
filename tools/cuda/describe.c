#include "tools/cuda/ckptfs_cuda.h"
#include "tools/cuda/cufile.h"
#include "tools/cuda/device.h"

#include "core/base/util.h"

#include <stdio.h>

int ckpt_cuda_describe(char text[CKPT_CUDA_WHY_MAX])
{
	struct ckpt_device_found f;

	ckpt_device_cuda_find(&f);
	if (f.devices)
		snprintf(text, CKPT_CUDA_WHY_MAX, "%s, %d device%s, driver %d.%d, runtime %d.%d", f.name, f.devices,
			 f.devices == 1 ? "" : "s", f.driver / 1000, f.driver % 1000 / 10, f.runtime / 1000,
			 f.runtime % 1000 / 10);
	else if (f.built)
		snprintf(text, CKPT_CUDA_WHY_MAX, "%s (runtime %d.%d)", f.why, f.runtime / 1000, f.runtime % 1000 / 10);
	else
		snprintf(text, CKPT_CUDA_WHY_MAX, "%s", f.why);
	return f.devices ? 0 : -ENODEV;
}

int ckpt_cuda_describe_gpudirect(char text[CKPT_CUDA_WHY_MAX])
{
	char why[CKPT_CUFILE_WHY_MAX];
	struct ckpt_cufile *c;
	int rc = ckpt_cufile_open(why, &c);

	if (rc == -ENOMEM)
		return rc;
	snprintf(text, CKPT_CUDA_WHY_MAX, rc ? "not used, loads go through pinned memory: %s" : "%s", why);
	if (!rc)
		ckpt_cufile_free(c);
	return rc;
}

// GPUs, of which libckptfs_cuda knows: it is loaded for the question, so that nothing else here needs CUDA.
#include "tools/doctor.h"

#include "core/base/util.h"
#include "tools/cuda/ckptfs_cuda.h"
#include "tools/output.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>

#define LIBRARY "libckptfs_cuda.so.1"

// Where the loader looks, beside the program, and where an installation has it.
static void *load(void)
{
	static const char *const beside[] = {"", "/../lib", "/../lib64", "/../lib/" CKPT_MULTIARCH};
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	char program[PATH_MAX], path[PATH_MAX + 64];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
	char *slash;

	program[MAX(len, 0)] = '\0';
	slash = strrchr(program, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < ARRAY_LEN(beside) && !library && slash; i++) {
		snprintf(path, sizeof(path), "%s%s/" LIBRARY, program, beside[i]);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return library;
}

static void check_pinned(struct ckpt_doctor *d)
{
	struct rlimit limit = {0};
	unsigned long long memory =
		(unsigned long long)sysconf(_SC_PHYS_PAGES) * (unsigned long long)sysconf(_SC_PAGESIZE);
	CLEANUP_FREE char *locked = NULL;

	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	locked = limit.rlim_cur == RLIM_INFINITY ? ckpt_text("no limit")
						 : ckpt_text("%llu MiB", (unsigned long long)limit.rlim_cur >> 20);
	ckpt_doctor_tell(d, "pinned memory", false, true,
			 ckpt_text("at most the memory of this machine, %llu MiB; limit of memory that is locked by "
				   "other means: %s",
				   memory >> 20, locked ? locked : "?"),
			 NULL);
}

static void check_gpudirect(struct ckpt_doctor *d, void *library)
{
	int (*describe)(char text[CKPT_CUDA_WHY_MAX]);
	char text[CKPT_CUDA_WHY_MAX] = "out of memory";

	*(void **)&describe = dlsym(library, "ckpt_cuda_describe_gpudirect");
	if (describe)
		(void)describe(text);
	ckpt_doctor_tell(d, "GPUDirect", false, true,
			 describe ? ckpt_text("%s", text) : ckpt_text(LIBRARY " is of another version"), NULL);
}

void ckpt_doctor_device(struct ckpt_doctor *d)
{
	int (*describe)(char text[CKPT_CUDA_WHY_MAX]);
	char text[CKPT_CUDA_WHY_MAX];
	void *library = load();
	int rc;

	if (!library) {
		ckpt_doctor_tell(d, "device", false, true, ckpt_text("not looked at: there is no " LIBRARY), NULL);
		return;
	}
	*(void **)&describe = dlsym(library, "ckpt_cuda_describe");
	rc = describe ? describe(text) : -ENOSYS;
	ckpt_doctor_tell(d, "device", false, true,
			 describe ? ckpt_text("%s", text) : ckpt_text(LIBRARY " is of another version"), NULL);
	if (rc)
		return;
	check_pinned(d);
	check_gpudirect(d, library);
}

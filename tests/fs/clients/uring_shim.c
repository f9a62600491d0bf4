// Preloaded into a daemon: the administrator turns FUSE over io_uring off at the worst moment, after the kernel has offered
// it and before the daemon has answered.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

struct io_uring;
struct io_uring_params;

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
	int (*real)(unsigned, struct io_uring *, struct io_uring_params *) =
		(int (*)(unsigned, struct io_uring *, struct io_uring_params *))dlsym(RTLD_NEXT,
										      "io_uring_queue_init_params");
	int fd = open("/sys/module/fuse/parameters/enable_uring", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "N", 1) != 1)
		_exit(99);
	close(fd);
	return real(entries, ring, params);
}

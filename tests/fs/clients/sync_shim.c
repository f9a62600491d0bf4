// Preloaded into a daemon: what waits for the disk behaves as on a bad disk. In the folder $SYNC_SHIM,
//   hang  keeps every such call waiting until it is removed, or where it has a letter, as count does, only these;
//   fail  makes the next one fail with EIO, and is gone then: as the kernel tells a lost write once to each open file;
//   dead  makes all fail with EIO until it is removed, or where it has a letter, only these;
//   count gets a letter of each call while it is there: f, d, or s for syncfs.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char letter_of(const char *name)
{
	return name[1] == 'd' ? 'd' : name[1] == 'y' ? 's' : 'f';
}

static void count(const char *path, const char *name)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, &(char){letter_of(name)}, 1) != 1)
		abort();
	close(fd);
}

static int is_meant(const char *path, const char *name)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char only;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, &only, 1);
	close(fd);
	return n < 1 || only == letter_of(name);
}

static int sync_with(const char *name, int fd)
{
	int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
	const char *folder = getenv("SYNC_SHIM");
	char path[4096];

	snprintf(path, sizeof(path), "%s/count", folder);
	count(path, name);
	snprintf(path, sizeof(path), "%s/hang", folder);
	while (is_meant(path, name))
		usleep(10000);
	snprintf(path, sizeof(path), "%s/fail", folder);
	if (unlink(path)) {
		snprintf(path, sizeof(path), "%s/dead", folder);
		if (!is_meant(path, name))
			return real(fd);
	}
	errno = EIO;
	return -1;
}

int fsync(int fd)
{
	return sync_with("fsync", fd);
}

int fdatasync(int fd)
{
	return sync_with("fdatasync", fd);
}

int syncfs(int fd)
{
	return sync_with("syncfs", fd);
}

// Saves a step while a timer signal comes every 10 ms, without SA_RESTART: every system call that a plain filesystem
// does not interrupt must not be interrupted here either. Prints how many signals came; exit status 1 names the call.
//
//     timer_save STEP_DIRECTORY FILES BYTES_EACH

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t signals; // as C wants it of what a handler changes

static void on_alarm(int sig)
{
	(void)sig;
	signals++;
}

static long check(long result, const char *call)
{
	if (result >= 0)
		return result;
	fprintf(stderr, "%s: %s after %d signals\n", call, strerror(errno), (int)signals);
	exit(1);
}

static void start_timer(void)
{
	struct sigaction action = {.sa_handler = on_alarm};
	struct itimerval every = {{0, 10000}, {0, 10000}};

	check(sigaction(SIGALRM, &action, NULL), "sigaction");
	check(setitimer(ITIMER_REAL, &every, NULL), "setitimer");
}

static void save_file(int dir, int number, size_t bytes)
{
	char temp[40], name[40], *data = malloc(bytes), *back = malloc(bytes);
	size_t done = 0;
	struct stat st;
	int fd;

	snprintf(temp, sizeof(temp), "%d.part", number);
	snprintf(name, sizeof(name), "%d", number);
	memset(data, number, bytes);
	fd = (int)check(openat(dir, temp, O_CREAT | O_EXCL | O_RDWR, 0644), "open");
	while (done < bytes) {
		long n = check(write(fd, data + done, bytes - done > 100000 ? 100000 : bytes - done), "write");

		if (n == 0)
			errno = EIO, check(-1, "write of nothing");
		done += (size_t)n;
	}
	if (number % 4 == 0)
		check(fsync(fd), "fsync");
	check(fstat(fd, &st), "fstat");
	if ((size_t)st.st_size != bytes)
		errno = EIO, check(-1, "size");
	if ((size_t)check(pread(fd, back, bytes, 0), "pread") != bytes || memcmp(data, back, bytes) != 0)
		errno = EIO, check(-1, "read back");
	check(close(fd), "close");
	check(renameat(dir, temp, dir, name), "rename");
	free(data);
	free(back);
}

static void list(int dir, int want)
{
	DIR *d = fdopendir((int)check(openat(dir, ".", O_RDONLY | O_DIRECTORY), "open of the directory"));
	int found = 0;

	while (errno = 0, readdir(d))
		found++;
	check(errno ? -1 : 0, "readdir");
	closedir(d);
	if (found != want + 2) {
		fprintf(stderr, "%d names listed, not %d\n", found - 2, want);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int dir, marker, files;

	if (argc != 4)
		return 2;
	files = atoi(argv[2]);
	start_timer();
	check(mkdir(argv[1], 0755), "mkdir");
	dir = (int)check(open(argv[1], O_RDONLY | O_DIRECTORY), "open");
	for (int i = 0; i < files; i++)
		save_file(dir, i, (size_t)atol(argv[3]));
	list(dir, files);
	check(fsync(dir), "fsync of the directory");
	marker = (int)check(openat(dir, ".finalize", O_CREAT | O_WRONLY, 0644), "open of the marker");
	check(write(marker, "{}", 2), "write of the marker");
	check(close(marker), "close of the marker");
	printf("%d\n", (int)signals);
	return 0;
}

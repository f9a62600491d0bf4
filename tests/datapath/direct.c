// Reads and writes that pass by the page cache, alone and several at once by Linux AIO. Its calls are made by number, so
// that no library is needed.
#include "tests/datapath/exercise.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>

#define AIO_MAX 8

// In a committed step no second one may write the file: its close would publish it.
int direct_open(struct exercise *x, int flags)
{
	int fd;

	if (x->place != PLACE_AMEND) {
		fd = open(x->file.path, flags | O_DIRECT | O_CLOEXEC);
		must(x, fd >= 0, "open with O_DIRECT");
		return fd;
	}
	must(x, !fcntl(x->file.fd, F_SETFL, O_DIRECT), "F_SETFL with O_DIRECT");
	return x->file.fd;
}

void direct_close(struct exercise *x, int fd)
{
	if (fd == x->file.fd)
		must(x, !fcntl(fd, F_SETFL, 0), "F_SETFL without O_DIRECT");
	else
		must(x, !close(fd), "close with O_DIRECT");
}

// Whole pages.
static void draw_pages(struct exercise *x, size_t *ret_at, size_t *ret_len)
{
	size_t at, len;

	draw_range(x, x->bytes_max, &at, &len);
	*ret_at = at / PAGE * PAGE;
	*ret_len = MIN((len + PAGE - 1) / PAGE * PAGE, x->bytes_max - *ret_at);
}

static void check_read(struct exercise *x, size_t at, size_t len, ssize_t got, const char *what)
{
	size_t want = at < x->file.size ? MIN(len, x->file.size - at) : 0;

	if (got < 0)
		violated(x, "%s %zu+%zu: %s", what, at, len, strerror((int)-got));
	if ((size_t)got != want)
		violated(x, "%s %zu+%zu: %zd bytes, not %zu", what, at, len, got, want);
	must_equal(x, x->file.shadow, x->got, at, want, what);
}

void direct_read(struct exercise *x)
{
	size_t at, len;
	ssize_t n;
	int fd;

	draw_pages(x, &at, &len);
	note(x, "direct read %zu+%zu of %zu", at, len, x->file.size);
	fd = direct_open(x, O_RDONLY);
	n = pread(fd, x->got + at, len, (off_t)at);
	check_read(x, at, len, n < 0 ? -errno : n, "direct read");
	direct_close(x, fd);
}

void direct_write(struct exercise *x)
{
	struct subject *s = &x->file;
	size_t at, len;
	int fd;

	draw_pages(x, &at, &len);
	note(x, "direct write %zu+%zu of %zu", at, len, s->size);
	fd = direct_open(x, O_RDWR);
	subject_changes(s);
	fill(x, s, at, len);
	must(x, pwrite(fd, s->shadow + at, len, (off_t)at) == (ssize_t)len, "direct write");
	direct_close(x, fd);
}

// --- AIO --------------------------------------------------------------------------------------------------------------

struct aio {
	struct iocb requests[AIO_MAX], *list[AIO_MAX];
	size_t count;
};

// Pages one behind the other, so that no two requests have the same.
static void draw_requests(struct exercise *x, struct aio *aio)
{
	size_t at = pick(x, x->bytes_max) / PAGE * PAGE;

	for (aio->count = 0; aio->count < AIO_MAX && at < x->bytes_max; aio->count++) {
		struct iocb *r = &aio->requests[aio->count];
		size_t len = pick_some(x, 8, (x->bytes_max - at) / PAGE) * PAGE;

		*r = (struct iocb){.aio_data = aio->count, .aio_offset = (int64_t)at, .aio_nbytes = len};
		aio->list[aio->count] = r;
		at += len + pick(x, 3) * PAGE;
	}
}

// All at once; what each gave.
static void run_requests(struct exercise *x, struct aio *aio, int fd, int opcode, uint8_t *bytes, int64_t *ret_results)
{
	struct io_event events[AIO_MAX];
	long n;

	for (size_t i = 0; i < aio->count; i++) {
		struct iocb *r = &aio->requests[i];

		r->aio_fildes = (uint32_t)fd;
		r->aio_lio_opcode = (uint16_t)opcode;
		r->aio_buf = (uintptr_t)(bytes + r->aio_offset);
	}
	// One for all: to end one takes the kernel tens of milliseconds.
	if (!x->aio)
		must(x, !syscall(SYS_io_setup, AIO_MAX, &x->aio), "io_setup");
	n = syscall(SYS_io_submit, x->aio, (long)aio->count, aio->list);
	must(x, n == (long)aio->count, "io_submit");
	n = syscall(SYS_io_getevents, x->aio, (long)aio->count, (long)AIO_MAX, events, NULL);
	must(x, n == (long)aio->count, "io_getevents");
	for (long i = 0; i < n; i++)
		ret_results[events[i].data] = events[i].res;
}

void aio_read(struct exercise *x)
{
	int64_t results[AIO_MAX];
	struct aio aio = {0};
	int fd;

	draw_requests(x, &aio);
	note(x, "aio read of %zu ranges from %lld of %zu", aio.count, (long long)aio.requests[0].aio_offset,
	     x->file.size);
	fd = direct_open(x, O_RDONLY);
	run_requests(x, &aio, fd, IOCB_CMD_PREAD, x->got, results);
	for (size_t i = 0; i < aio.count; i++)
		check_read(x, (size_t)aio.requests[i].aio_offset, aio.requests[i].aio_nbytes, results[i], "aio read");
	direct_close(x, fd);
}

void aio_write(struct exercise *x)
{
	struct subject *s = &x->file;
	int64_t results[AIO_MAX];
	struct aio aio = {0};
	int fd;

	draw_requests(x, &aio);
	note(x, "aio write of %zu ranges from %lld of %zu", aio.count, (long long)aio.requests[0].aio_offset, s->size);
	fd = direct_open(x, O_RDWR);
	subject_changes(s);
	for (size_t i = 0; i < aio.count; i++)
		fill(x, s, (size_t)aio.requests[i].aio_offset, aio.requests[i].aio_nbytes);
	run_requests(x, &aio, fd, IOCB_CMD_PWRITE, s->shadow, results);
	for (size_t i = 0; i < aio.count; i++)
		if (results[i] != (int64_t)aio.requests[i].aio_nbytes)
			violated(x, "aio write %lld+%llu: %lld", (long long)aio.requests[i].aio_offset,
				 (unsigned long long)aio.requests[i].aio_nbytes, (long long)results[i]);
	direct_close(x, fd);
}

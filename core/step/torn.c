#include "core/step/torn.h"

#include "core/base/sys.h"

#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#define TEXT_MAX 80

static size_t text_of(uint64_t bytes, int64_t seconds, uint32_t nanoseconds, char ret_text[static TEXT_MAX])
{
	return (size_t)snprintf(ret_text, TEXT_MAX, "%llu %lld %u", (unsigned long long)bytes, (long long)seconds,
				nanoseconds);
}

void ckpt_torn_mark(int fd)
{
	char text[TEXT_MAX];
	struct stat st;
	size_t len;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1)
		return;
	len = text_of((uint64_t)st.st_size, st.st_mtim.tv_sec, (uint32_t)st.st_mtim.tv_nsec, text);
	(void)ckpt_sys.fsetxattr(fd, CKPT_TORN_XATTR, text, len, 0);
}

bool ckpt_torn_is(int fd, const struct statx *stx)
{
	char marked[TEXT_MAX], now[TEXT_MAX];
	ssize_t n = fgetxattr(fd, CKPT_TORN_XATTR, marked, sizeof(marked));

	if (n <= 0)
		return false;
	return (size_t)n == text_of(stx->stx_size, stx->stx_mtime.tv_sec, stx->stx_mtime.tv_nsec, now) &&
	       !memcmp(marked, now, (size_t)n);
}

#include "core/remote/early_list.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/garbage.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#define FILE_NAME "early"
#define LINE_BYTES (CKPT_SHA256_LEN * 2 + 1)

static int add(struct ckpt_early_list *l, const uint8_t id[CKPT_SHA256_LEN])
{
	int rc = l->count < CKPT_EARLY_LIST_MAX ? ckpt_grow((void **)&l->ids, &l->cap, l->count + 1, sizeof(*l->ids))
						: -ENOSPC;

	if (!rc)
		memcpy(l->ids[l->count++], id, CKPT_SHA256_LEN);
	return rc;
}

// Each line has its place, so that one that was cut off is written over.
static void write_lines(const struct ckpt_early_list *l, int dirfd, size_t first)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, FILE_NAME, O_WRONLY | O_CREAT, 0644);
	char line[LINE_BYTES + 1];

	for (size_t i = first; fd >= 0 && i < l->count; i++) {
		ckpt_hex(l->ids[i], CKPT_SHA256_LEN, line);
		line[LINE_BYTES - 1] = '\n';
		if (ckpt_sys.pwrite(fd, line, LINE_BYTES, (off_t)(i * LINE_BYTES)) != (ssize_t)LINE_BYTES)
			break;
	}
	if (fd >= 0)
		(void)ckpt_sys.ftruncate(fd, (off_t)(l->count * LINE_BYTES));
}

void ckpt_early_list_load(struct ckpt_early_list *l, struct ckpt_store *s)
{
	CLEANUP_FD int fd = ckpt_sys.open(s->dirfd, FILE_NAME, O_RDONLY | O_NONBLOCK, 0);
	char line[LINE_BYTES + 1] = "";

	*l = (struct ckpt_early_list){0};
	for (off_t at = 0; fd >= 0 && ckpt_sys.pread(fd, line, LINE_BYTES, at) == (ssize_t)LINE_BYTES;
	     at += (off_t)LINE_BYTES) {
		struct ckpt_pack pack = {0};

		line[LINE_BYTES - 1] = '\0';
		if (ckpt_unhex(line, CKPT_SHA256_LEN, pack.id) || add(l, pack.id))
			break;
		ckpt_garbage_expect_pack(s, &pack);
	}
}

void ckpt_early_list_add(struct ckpt_early_list *l, struct ckpt_store *s, const struct ckpt_pack *pack)
{
	if (!add(l, pack->id))
		write_lines(l, s->dirfd, l->count - 1);
}

static bool names(const struct ckpt_manifest *m, const uint8_t *id)
{
	struct ckpt_pack pack;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		ckpt_manifest_pack(m, i, &pack);
		if (!memcmp(pack.id, id, sizeof(pack.id)))
			return true;
	}
	return false;
}

void ckpt_early_list_named(struct ckpt_early_list *l, struct ckpt_store *s, const struct ckpt_manifest *m)
{
	size_t stay = 0;

	for (size_t i = 0; i < l->count; i++)
		if (!names(m, l->ids[i]))
			memmove(l->ids[stay++], l->ids[i], sizeof(l->ids[i]));
	if (stay == l->count)
		return;
	l->count = stay;
	write_lines(l, s->dirfd, 0);
}

void ckpt_early_list_end(struct ckpt_early_list *l, struct ckpt_store *s)
{
	(void)ckpt_sys.unlink(s->dirfd, FILE_NAME, 0);
	free(TAKE_PTR(l->ids));
	*l = (struct ckpt_early_list){0};
}

// What a committed step has on disk: its raw files and its records.
#include "core/step.h"

#include "core/manifest.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"
#include "core/uuid.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

int ckpt_step_raw_path(const struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, char *buf, size_t cap)
{
	struct ckpt_entry e;
	int n;

	ckpt_manifest_entry(m, index, &e);
	if (e.type != CKPT_ENTRY_FILE || (e.content != CKPT_CONTENT_RAW && e.bytes))
		return -EINVAL;
	n = snprintf(buf, cap, "%s/", ckpt_manifest_session(m, e.session) ?: step->session);
	if (e.raw_path)
		n = snprintf(buf + n, cap - (size_t)n, "%s", e.raw_path);
	else
		n = ckpt_manifest_path(m, index, buf + n, cap - (size_t)n);
	return MIN(n, 0);
}

int ckpt_step_open_raw(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, int *ret_fd)
{
	char path[CKPT_RAW_PATH_MAX];
	struct ckpt_entry e;
	struct stat st;
	int fd, rc = ckpt_step_raw_path(step, m, index, path, sizeof(path));

	if (rc)
		return rc;
	ckpt_manifest_entry(m, index, &e);
	fd = ckpt_sys.open(step->store->sessions_fd, path, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return fd == -ENOENT || fd == -ELOOP || fd == -ENOTDIR ? -EIO : fd;
	rc = fstat(fd, &st) ? -errno : 0;
	if (!rc && (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != e.bytes))
		rc = -EIO;
	if (rc) {
		ckpt_sys.close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

int ckpt_step_record(struct ckpt_step *step, uint32_t version, struct ckpt_record *ret_record)
{
	char key[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12];
	CLEANUP_FREE void *data = NULL;
	size_t len;
	int rc;

	ckpt_lock_take(&step->store->lock);
	snprintf(key, sizeof(key), "steps/%s/%u", step->key, version);
	ckpt_lock_drop(&step->store->lock);
	rc = ckpt_backend_get_all(step->store->backend, key, CKPT_RECORD_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc;
	return ckpt_record_decode(data, len, ret_record);
}

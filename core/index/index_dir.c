#include "core/index/index_dir.h"

#include "core/base/lock.h"
#include "core/base/util.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>

// Without a name in linux/magic.h.
#define GPFS_MAGIC 0x47504653
#define LUSTRE_MAGIC 0x0bd00bd0
#define BEEGFS_MAGIC 0x19830326

struct ckpt_index_claim {
	dev_t dev;
	ino_t ino;
	pid_t pid;
	struct ckpt_index_claim *next;
};

static struct ckpt_lock claims_lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF);
static struct ckpt_index_claim *claims; // under claims_lock

// Where mapped files and locks of several machines do not go together.
static bool is_network_fs(uint32_t magic)
{
	static const uint32_t magics[] = {
		NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC, CEPH_SUPER_MAGIC,
		AFS_SUPER_MAGIC, AFS_FS_MAGIC,    CODA_SUPER_MAGIC, V9FS_MAGIC,       FUSE_SUPER_MAGIC,
		GPFS_MAGIC,      LUSTRE_MAGIC,    BEEGFS_MAGIC,
	};

	for (size_t i = 0; i < ARRAY_LEN(magics); i++)
		if (magic == magics[i])
			return true;
	return false;
}

int ckpt_index_dir_open(const char *path, bool readonly, int *ret_fd)
{
	CLEANUP_FD int fd = -1;
	struct statfs fs;

	if (!readonly && mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstatfs(fd, &fs))
		return -errno;
	if (is_network_fs((uint32_t)fs.f_type))
		return -EMEDIUMTYPE;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int ckpt_index_dir_set_aside(int dirfd)
{
	if (renameat(dirfd, CKPT_INDEX_DATA, dirfd, CKPT_INDEX_BAD) && errno != ENOENT)
		return -errno;
	if (unlinkat(dirfd, CKPT_INDEX_LOCK, 0) && errno != ENOENT)
		return -errno;
	return 0;
}

int ckpt_index_dir_claim(int dirfd, struct ckpt_index_claim **ret_claim)
{
	CLEANUP_FREE struct ckpt_index_claim *claim = ckpt_calloc(1, sizeof(*claim));
	struct stat st;

	if (!claim)
		return -ENOMEM;
	if (fstat(dirfd, &st))
		return -EIO;
	claim->dev = st.st_dev;
	claim->ino = st.st_ino;
	claim->pid = getpid();
	LOCK_SCOPE(&claims_lock);
	for (const struct ckpt_index_claim *other = claims; other; other = other->next)
		if (other->dev == claim->dev && other->ino == claim->ino && other->pid == claim->pid)
			return -EBUSY;
	claim->next = claims;
	claims = *ret_claim = TAKE_PTR(claim);
	return 0;
}

void ckpt_index_dir_release(struct ckpt_index_claim *claim)
{
	LOCK_SCOPE(&claims_lock);
	for (struct ckpt_index_claim **at = &claims; *at; at = &(*at)->next) {
		if (*at == claim) {
			*at = claim->next;
			free(claim);
			return;
		}
	}
}

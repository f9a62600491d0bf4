#include "fs/unwritten_list.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/save/stage.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <sys/stat.h>

// Guards the lists, and what of they are while they are not empty. It is taken before the lock of a twin's use.
static struct ckpt_lock lists = CKPT_LOCK_INIT(CKPT_LOCK_UNWRITTEN);

int unwritten_enlist(struct handle *h)
{
	LOCK_SCOPE(&lists);
	struct node *of = node_twin(h->node);
	int rc = of && !h->node->given ? node_use(of) : -EAGAIN;

	if (rc)
		return rc;
	h->unwritten_next = of->use->unwritten;
	__atomic_store_n(&of->use->unwritten, h, __ATOMIC_RELAXED); // unwritten_any() looks without the lock
	__atomic_store_n(&h->unwritten, true, __ATOMIC_RELEASE);
	return 0;
}

void unwritten_strike_off(struct handle *h)
{
	struct handle **slot;

	if (!unwritten_is(h))
		return;
	LOCK_SCOPE(&lists);
	if (!unwritten_is(h))
		return;
	slot = &node_twin(h->node)->use->unwritten;
	while (*slot && *slot != h)
		slot = &(*slot)->unwritten_next;
	if (*slot)
		__atomic_store_n(slot, h->unwritten_next, __ATOMIC_RELAXED);
	__atomic_store_n(&h->unwritten, false, __ATOMIC_RELEASE);
}

static int give_file_locked(struct handle *h, struct ckpt_step *step, int fd)
{
	h->fd = handle_reopen_fd(fd, h->flags);
	if (h->fd < 0)
		return TAKE_FD(h->fd);
	if (step) {
		h->writer.ino = h->node->number;
		h->writer.fd = h->node->use->fd;
		ckpt_stage_writer_add(step, &h->writer);
	}
	return 0;
}

// A descriptor that is in use goes on being one, of another file.
static int change_file_locked(struct node *twin, int fd)
{
	struct node_use *use = twin->use;
	int own = use->fd >= 0 ? dup3(fd, use->fd, O_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own < 0)
		return -errno;
	__atomic_store_n(&use->fd, own, __ATOMIC_RELEASE);
	return 0;
}

static void give_all(struct node *n, struct ckpt_step *step, int fd, int rc)
{
	struct node_use *use = node_used(n);
	struct handle *h;

	while (use && (h = use->unwritten)) {
		int given = rc;

		if (!given) {
			LOCK_SCOPE(&h->node->use->lock);
			given = give_file_locked(h, step, fd);
		}
		__atomic_store_n(&use->unwritten, h->unwritten_next, __ATOMIC_RELAXED);
		__atomic_store_n(&h->unwritten, false, __ATOMIC_RELEASE); // without a descriptor its writes fail
	}
}

int unwritten_follow(struct node *n, struct node *twin, struct ckpt_step *step, int fd)
{
	struct node_use *use = node_used(twin);
	struct statx stx;
	uint64_t ino;
	int rc = 0;

	if (statx(fd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx))
		return -errno;
	ino = ckpt_store_ino(&stx);
	LOCK_SCOPE(&lists);
	__atomic_store_n(&twin->file, ino == twin->number ? 0 : ino, __ATOMIC_RELAXED);
	if (use) {
		LOCK_SCOPE(&use->lock);
		rc = use->opens || unwritten_any(n) ? change_file_locked(twin, fd) : 0;
		use->written |= use->opens > 0;
	}
	give_all(n, step, fd, rc);
	twin->given = true;
	return rc;
}

int unwritten_hand_over(struct ckpt_fs *fs, struct node *n, struct node *twin, struct ckpt_step *step, int fd)
{
	int rc;

	if (!twin)
		return 0;
	rc = unwritten_follow(n, twin, step, fd);
	node_end_twin(fs, twin);
	node_unref(fs, twin);
	return rc;
}

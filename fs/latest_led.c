#include "fs/latest_led.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "fs/folder.h"

#include <stdio.h>
#include <string.h>

#define FOLLOWERS 64
#define FOLLOWED_NS (INT64_C(10) * 1000000000) // from the link to the call that a thread followed it for, at most

struct follower {
	pid_t tid;
	int64_t at_ns;
	char folder_id[CKPT_FOLDER_ID_LEN + 1], name[CKPT_NAME_MAX + 1];
};

// The threads that looked a link up last. If one is forgotten, the link leads to the step before while its step is changed.
static struct {
	struct ckpt_lock lock;
	struct follower at[FOLLOWERS];
	size_t next;
} followers = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF)};

static struct follower *find_locked(pid_t tid)
{
	for (size_t i = 0; i < FOLLOWERS; i++)
		if (followers.at[i].tid == tid)
			return &followers.at[i];
	return NULL;
}

void latest_remember(struct ckpt_fs *fs, struct node *dir, const struct node *n, pid_t tid)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct follower *f;

	if (!tid || folder_id_of(fs, dir, false, id))
		return;
	LOCK_SCOPE(&followers.lock);
	f = find_locked(tid) ?: &followers.at[followers.next++ % FOLLOWERS];
	f->tid = tid;
	f->at_ns = ckpt_sys.mono_ns();
	memcpy(f->folder_id, id, sizeof(id));
	snprintf(f->name, sizeof(f->name), "%s", n->target);
}

bool latest_led_to(struct ckpt_step *step, pid_t tid)
{
	struct ckpt_step_name name;
	const struct follower *f;

	if (!tid)
		return false;
	ckpt_step_name(step, &name);
	LOCK_SCOPE(&followers.lock);
	f = find_locked(tid);
	return f && ckpt_sys.mono_ns() - f->at_ns <= FOLLOWED_NS && !strcmp(f->folder_id, name.folder_id) &&
	       !strcmp(f->name, name.name);
}

#include "fs/complete_watch.h"

#include "core/profile/profile.h"

static bool watches(struct ckpt_fs *fs, const struct node *dir, enum ckpt_event act, const char *from, const char *name)
{
	uint64_t profiles = fs->store->settings.profiles;
	bool inside = dir != node_root(fs);

	if (__atomic_load_n(&dir->beside, __ATOMIC_RELAXED))
		return false;
	return (inside && ckpt_profile_watches(profiles, act, from, name, false)) ||
	       (!node_is_top(dir) && ckpt_profile_watches(profiles, act, from, name, true));
}

bool complete_names_step(struct ckpt_fs *fs, const struct node *dir, const char *name)
{
	return !node_is_top(dir) &&
	       ckpt_profile_watches(fs->store->settings.profiles, CKPT_EVENT_CLOSE, NULL, name, true);
}

static bool is_late(struct ckpt_fs *fs, const struct node *dir, const char *name)
{
	return dir != node_root(fs) && !__atomic_load_n(&dir->beside, __ATOMIC_RELAXED) &&
	       ckpt_profile_is_late(fs->store->settings.profiles, name);
}

static bool is_served(struct ckpt_fs *fs, const struct node *dir, const char *name)
{
	return watches(fs, dir, CKPT_EVENT_CLOSE, NULL, name) || is_late(fs, dir, name);
}

bool complete_watches_close(struct ckpt_fs *fs, const struct node *dir, const struct ckpt_step *step, const char *name)
{
	return (!step || node_is_top(dir)) && is_served(fs, dir, name);
}

bool complete_watches_node(struct ckpt_fs *fs, struct node *n)
{
	bool is;

	names_read_lock(fs);
	is = n->names && is_served(fs, n->names->parent, n->names->text);
	names_unlock(fs);
	return is;
}

bool complete_is_late(struct ckpt_fs *fs, struct node *n)
{
	bool is;

	names_read_lock(fs);
	is = n->names && is_late(fs, n->names->parent, n->names->text);
	names_unlock(fs);
	return is;
}

bool complete_watches_rename(struct ckpt_fs *fs, const struct node *dir, const char *from, const char *name)
{
	return watches(fs, dir, CKPT_EVENT_RENAME, from, name);
}

bool complete_watches_unlink(struct ckpt_fs *fs, const struct node *dir, const char *name)
{
	return watches(fs, dir, CKPT_EVENT_UNLINK, NULL, name);
}

#include "fs/mount_check.h"

#include "core/base/clock.h"
#include "core/base/util.h"
#include "core/step/ask.h"
#include "core/step/holder.h"
#include "core/step/store.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#define ANSWER_S 2

struct mount_outcome mount_outcome;

int mount_fail(int rc, const char *hint, const char *why, ...)
{
	va_list ap;

	va_start(ap, why);
	vsnprintf(mount_outcome.why, sizeof(mount_outcome.why), why, ap);
	va_end(ap);
	snprintf(mount_outcome.hint, sizeof(mount_outcome.hint), "%s", hint ? hint : "");
	mount_outcome.rc = rc;
	return rc;
}

static bool is_inside(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (!path[len] || path[len] == '/' || !strcmp(dir, "/"));
}

static bool is_a_mount_point(const char *path)
{
	CLEANUP_FREE char *parent = NULL;
	struct stat here, above;

	if (asprintf(&parent, "%s/..", path) < 0)
		return false;
	return !stat(path, &here) && !stat(parent, &above) &&
	       (here.st_dev != above.st_dev || here.st_ino == above.st_ino);
}

#define ENTRIES_NAMED 3

// "a, b, c and 7 more", the first by name.
static void name_entries(struct dirent *const *at, size_t count, char *text, size_t cap)
{
	size_t len = 0;

	*text = '\0';
	for (size_t i = 0; i < MIN(count, (size_t)ENTRIES_NAMED) && len < cap; i++)
		len += (size_t)snprintf(text + len, cap - len, "%s%.60s", i ? ", " : "", at[i]->d_name);
	if (count > ENTRIES_NAMED && len < cap)
		snprintf(text + len, cap - len, " and %zu more", count - ENTRIES_NAMED);
}

static int is_entry(const struct dirent *d)
{
	return strcmp(d->d_name, ".") && strcmp(d->d_name, "..");
}

// The mount would hide what is there: often a save that went into the bare directory. Where we may not look, nothing is said.
static int check_empty(const char *mountpoint, const char *absolute)
{
	struct dirent **entries;
	int count = scandir(absolute, &entries, is_entry, alphasort);
	char names[256];

	if (count <= 0) {
		if (!count)
			free(entries);
		return 0;
	}
	name_entries(entries, (size_t)count, names, sizeof(names));
	for (int i = 0; i < count; i++)
		free(entries[i]);
	free(entries);
	return mount_fail(-ENOTEMPTY, "move them out of the way, or let the mount hide them with -o nonempty",
			  "%s is not empty: %s", mountpoint, names);
}

// STORE DIR the wrong way round would make a new store of the mount point and mount it over the real one.
static int check_operands(const struct ckpt_mount *m, const char *mountpoint)
{
	char hint[sizeof(mount_outcome.hint)];

	if (!ckpt_store_probe(mountpoint) || ckpt_store_probe(m->store))
		return 0;
	snprintf(hint, sizeof(hint), "did you mean `ckptfs mount %s %s`?", m->mountpoint, m->store);
	return mount_fail(-EINVAL, hint, "%s is a store, and %s is not", m->mountpoint, m->store);
}

static int explain_mountpoint(const char *mountpoint, int rc)
{
	char hint[sizeof(mount_outcome.hint)];

	if (rc != -ENOTCONN)
		return mount_fail(rc, rc == -ENOENT ? "make the directory first" : NULL, "%s: %s", mountpoint,
				  strerror(-rc));
	snprintf(hint, sizeof(hint), "`ckptfs umount %s` removes it", mountpoint);
	return mount_fail(rc, hint, "%s: the process of this mount has died", mountpoint);
}

static int check_mountpoint(const struct ckpt_mount *m, char **ret_absolute)
{
	CLEANUP_FREE char *absolute = realpath(m->mountpoint, NULL);
	struct stat st;

	if (!absolute || stat(absolute, &st))
		return explain_mountpoint(m->mountpoint, -errno);
	if (!S_ISDIR(st.st_mode))
		return mount_fail(-ENOTDIR, "give a directory", "%s: not a directory", m->mountpoint);
	if (is_a_mount_point(absolute))
		return mount_fail(-EBUSY, "unmount it first, or choose another directory",
				  "%s: something is mounted there already", m->mountpoint);
	*ret_absolute = TAKE_PTR(absolute);
	return 0;
}

// The absolute path of something that may not exist yet, in a directory that does; NULL otherwise.
static char *path_to_be(const char *path)
{
	char *absolute = realpath(path, NULL), *joined = NULL;
	CLEANUP_FREE char *parent = NULL;
	CLEANUP_FREE char *copy = NULL;
	char *slash;

	if (absolute || errno != ENOENT)
		return absolute;
	copy = strdup(path);
	slash = copy ? strrchr(copy, '/') : NULL;
	if (slash)
		*slash = '\0';
	parent = realpath(!slash ? "." : *copy ? copy : "/", NULL);
	if (!parent || asprintf(&joined, "%s/%s", parent, slash ? slash + 1 : path) < 0)
		return NULL;
	return joined;
}

// What we write ourselves below our own mount point would make us wait for ourselves, for ever.
static int check_outside(const char *path, const char *what, const char *mountpoint)
{
	CLEANUP_FREE char *absolute = path ? path_to_be(path) : NULL;

	if (!absolute || !is_inside(absolute, mountpoint))
		return 0;
	return mount_fail(-EINVAL, "choose another place for it", "the %s %s is inside the mount point %s", what,
			  absolute, mountpoint);
}

static int check_own_paths(const struct ckpt_mount *m, const char *mountpoint)
{
	bool log_is_file = m->log && strcmp(m->log, "-") && strcmp(m->log, "syslog");
	int rc = check_outside(m->settings.work_dir, "work_dir", mountpoint);

	return rc ? rc : check_outside(log_is_file ? m->log : NULL, "log", mountpoint);
}

int mount_check_point(const struct ckpt_mount *m, char **ret_absolute)
{
	int rc = check_mountpoint(m, ret_absolute);

	return rc ? rc : check_own_paths(m, *ret_absolute);
}

int mount_check_store(const struct ckpt_mount *m, const char *mountpoint)
{
	// The same holds for reading.
	CLEANUP_FREE char *store = path_to_be(m->store);
	int rc;

	if (store && (is_inside(store, mountpoint) || is_inside(mountpoint, store)))
		return mount_fail(-EINVAL, "choose two directories that are not inside each other",
				  "one of the store %s and the mount point %s is inside the other", store, mountpoint);
	rc = check_operands(m, mountpoint);
	if (!rc && !m->nonempty)
		rc = check_empty(m->mountpoint, mountpoint);
	if (rc || m->readonly || ckpt_store_probe(m->store))
		return rc;
	rc = ckpt_store_init(m->store);
	switch (rc) {
	case 0:
	case -EEXIST:
		return 0;
	case -ENOTEMPTY:
		return mount_fail(-EMEDIUMTYPE, "give an empty or a new directory to make a store",
				  "%s: not a store, and not empty", m->store);
	case -ENOTDIR:
		return mount_fail(-EMEDIUMTYPE, "give a directory", "%s: not a store", m->store);
	default:
		return mount_fail(rc, NULL, "%s: cannot make a store: %s", m->store, strerror(-rc));
	}
}

// Whether the mount that has the store would serve anybody who is sent there. Of one that is not ours to ask it is believed.
static bool answers(const char *store)
{
	CLEANUP_FREE char *reply = NULL;
	int rc = ckpt_ask(store, "{}", ANSWER_S, &reply);

	return !rc || rc == -EACCES;
}

static int explain_holder(const struct ckpt_mount *m)
{
	char since[CKPT_TIME_LEN + 1];
	struct ckpt_holder h;
	int rc = ckpt_store_holder(m->store, &h);

	if (rc)
		return mount_fail(-EBUSY, "try again", "%s: in use a moment ago", m->store);
	ckpt_time_format(h.since_ns, since);
	if (h.mountpoint && !answers(m->store))
		mount_fail(-EBUSY, "try again; if it hangs, see its log. Killing it loses no committed step",
			   "%s: mounted at %s by process %d on %s since %s, which does not answer", m->store,
			   h.mountpoint, h.pid, h.host, since);
	else if (h.mountpoint)
		mount_fail(-EBUSY, "use that mount, or add -o ro for a read-only one",
			   "%s: mounted at %s by process %d on %s since %s", m->store, h.mountpoint, h.pid, h.host,
			   since);
	else
		mount_fail(-EBUSY, "wait until it has ended, or add -o ro for a read-only mount",
			   "%s: in use by process %d on %s", m->store, h.pid, h.host);
	ckpt_holder_done(&h);
	return -EBUSY;
}

int mount_explain_open(const struct ckpt_mount *m, int rc)
{
	switch (rc) {
	case -EBUSY:
		return explain_holder(m);
	case -EMEDIUMTYPE:
	case -ENOENT:
		return mount_fail(rc, "ckptfs init STORE makes one", "%s: not a store", m->store);
	case -ENOTSUP:
		return mount_fail(rc, "use a newer ckptfs", "%s: the store is of a newer format", m->store);
	case -EPROTONOSUPPORT:
		return mount_fail(rc, "copy its steps out with the ckptfs that made it",
				  "%s: the store is of an older format, without a log", m->store);
	case -EBADMSG:
		return mount_fail(rc, "restore store.json from a backup", "%s: the store's identity is damaged",
				  m->store);
	case -EUCLEAN:
		return mount_fail(rc, "-o ro shows the rest; `ckptfs doctor --repair STORE` mends the log",
				  "%s: the log of the store is damaged", m->store);
	case -EREMOTE:
		return mount_fail(rc, "-o work_dir=DIR, a directory on a local disk",
				  "%s: the index needs a local disk",
				  m->settings.work_dir ? m->settings.work_dir : m->store);
	case -ENXIO:
		return mount_fail(rc, "make the directory first", "%s: work_dir does not exist", m->settings.work_dir);
	default:
		return mount_fail(rc, NULL, "%s: cannot open the store: %s", m->store, strerror(-rc));
	}
}

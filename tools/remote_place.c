#include "tools/remote_place.h"

#include "core/base/util.h"
#include "core/step/holder.h"
#include "core/store/open.h"
#include "tools/mount_options.h"
#include "tools/output.h"
#include "tools/verb.h"

bool ckpt_is_remote_url(const char *word)
{
	return !strncmp(word, "s3://", strlen("s3://"));
}

static const char *hint_of(int rc)
{
	switch (rc) {
	case -ENOENT:
		return "`ckptfs init` makes one, and so does a mount that may write";
	case -EEXIST:
		return "give another directory with -o work_dir=DIR";
	case -EPROTO:
		return "take another server; `-o ro` mounts a store that is there";
	case -EREMCHG:
		return "-o work_dir=DIR gives the new one a directory of its own; the old one has what was not pushed";
	case -EACCES:
		return "look at the credentials, and at the rights on the bucket";
	case -ETIMEDOUT:
	case -EIO:
	case -EAGAIN:
		return "look at the endpoint and the network";
	default:
		return NULL;
	}
}

// NULL: the cause says it all.
static const char *text_of(int rc)
{
	switch (rc) {
	case -ENOENT:
		return "there is no store";
	case -EEXIST:
		return "the work directory is that of another store";
	case -EMEDIUMTYPE:
		return "what is there is no store of ckptfs";
	case -ENOTSUP:
		return "the store was made by a newer ckptfs";
	case -EPROTO:
		return "a store there would lose steps";
	case -EREMCHG:
		return "another store is there than the one whose part is on this machine";
	case -EACCES:
		return "Permission denied";
	default:
		return NULL;
	}
}

// Entries that others have appended, where no mount here reads them anyway. A store that cannot be asked shows what it knows.
static int catch_up(const char *path)
{
	struct ckpt_store *s;
	int rc = ckpt_store_holder(path, NULL) ? ckpt_store_open(path, CKPT_STORE_WRITE, NULL, &s) : -EBUSY;

	if (!rc)
		ckpt_store_close(s);
	return rc == -EBUSY ? 0 : rc;
}

int ckpt_remote_fail(const char *url, int rc, const char *why)
{
	const char *text = text_of(rc);

	if (!text && !*why)
		text = strerror(-rc);
	return ckpt_fail(url, hint_of(rc), "%s%s%s", text ? text : "", text && *why ? ": " : "", why);
}

int ckpt_remote_init(const char *url)
{
	struct ckpt_remote_at at = {.url = url, .make = true};
	char why[CKPT_OBJECTS_WHY_MAX];
	int rc = ckpt_remote_at_options(&at);

	if (rc)
		return rc;
	rc = ckpt_remote_make(&at, why);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc == -EEXIST)
		return ckpt_fail(url, "`ckptfs info` shows it", "is a store already");
	if (rc == -ENOTEMPTY)
		return ckpt_fail(url, "a store starts below a prefix of its own", "has objects and is not a store");
	return rc ? ckpt_remote_fail(url, rc, why) : 0;
}

int ckpt_remote_at_options(struct ckpt_remote_at *at)
{
	static struct ckpt_mount m; // to the end of the process, as what it holds
	const char *text = ckpt_verb_store_options();
	int rc;

	if (!text)
		return 0;
	m = (struct ckpt_mount){0};
	ckpt_settings_init(&m.settings);
	rc = ckpt_mount_options(text, &m);
	at->options = m.remote_options;
	at->work_dir = m.settings.work_dir;
	return rc;
}

// without: the answer where there is no store, and no word of it is said; 0: that is a failure like others.
static int take(const struct ckpt_remote_at *at, bool catches_up, int without, char **ret_path)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	int rc = ckpt_remote_place(at, ret_path, why);

	if (rc == -ENOENT && without)
		return without;
	if (!rc && catches_up) {
		rc = catch_up(*ret_path);
		if (rc)
			free(TAKE_PTR(*ret_path));
	}
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	return rc ? ckpt_remote_fail(at->url, rc, why) : 0;
}

int ckpt_remote_operand(const struct ckpt_remote_at *at, char **ret_path)
{
	return take(at, !at->make, 0, ret_path);
}

int ckpt_remote_target(const char *url, bool make, char **ret_path)
{
	struct ckpt_remote_at at = {.url = url, .make = make};
	int rc = ckpt_remote_at_options(&at);

	if (rc)
		return rc;
	rc = take(&at, true, make ? 0 : -ENOENT, ret_path);
	if (rc == -ENOENT)
		*ret_path = NULL;
	return rc == -ENOENT ? 0 : rc;
}

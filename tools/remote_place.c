#include "tools/remote_place.h"

#include "core/base/util.h"
#include "core/step/holder.h"
#include "core/store/open.h"
#include "tools/output.h"

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

static int fail(const char *url, int rc, const char *why)
{
	const char *text = text_of(rc);

	if (!text && !*why)
		text = strerror(-rc);
	return ckpt_fail(url, hint_of(rc), "%s%s%s", text ? text : "", text && *why ? ": " : "", why);
}

int ckpt_remote_init(const char *url)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	int rc = ckpt_remote_make(&(struct ckpt_remote_at){.url = url, .make = true}, why);

	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc == -EEXIST)
		return ckpt_fail(url, "`ckptfs info` shows it", "is a store already");
	if (rc == -ENOTEMPTY)
		return ckpt_fail(url, "a store starts below a prefix of its own", "has objects and is not a store");
	return rc ? fail(url, rc, why) : 0;
}

int ckpt_remote_operand(const struct ckpt_remote_at *at, char **ret_path)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	int rc = ckpt_remote_place(at, ret_path, why);

	if (!rc && !at->make) {
		rc = catch_up(*ret_path);
		if (rc)
			free(TAKE_PTR(*ret_path));
	}
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	return rc ? fail(at->url, rc, why) : 0;
}

#include "core/policy/policy_store.h"

#include "core/base/util.h"
#include "core/objects/stack.h"
#include "core/limits.h"
#include "core/store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define FOLDER "policy"
#define KEY FOLDER "/current"
#define SET_TRIES 100 // with others between; what is no object can never be replaced

int ckpt_policy_load(struct ckpt_store *s, struct ckpt_policy *ret_policy, char ret_etag[CKPT_ETAG_MAX], char **ret_why)
{
	CLEANUP_FREE void *text = NULL;
	struct ckpt_object object;
	size_t len;
	int rc = ckpt_objects_get_all(s->objects, KEY, CKPT_POLICY_BYTES_MAX, &text, &len, &object);

	*ret_why = NULL;
	*ret_etag = '\0';
	if (rc == -ENOENT)
		return ckpt_policy_default(ret_policy);
	if (!rc)
		rc = ckpt_policy_parse(text, len, ret_policy, ret_why);
	else if (rc == -EFBIG && ckpt_objects_head(s->objects, KEY, &object))
		return -EIO;
	if (!rc || rc == -EINVAL || rc == -EFBIG)
		memcpy(ret_etag, object.etag, CKPT_ETAG_MAX);
	return rc == -EINVAL || rc == -EFBIG ? -EBADMSG : rc;
}

int ckpt_policy_etag(struct ckpt_store *s, char ret_etag[CKPT_ETAG_MAX])
{
	struct ckpt_object object = {.etag = ""};
	int rc = ckpt_objects_head(s->objects, KEY, &object);

	memcpy(ret_etag, object.etag, CKPT_ETAG_MAX);
	return rc == -ENOENT ? 0 : rc;
}

int ckpt_policy_put_object(struct ckpt_objects *b, const char *key, const char *etag, const char *text)
{
	int rc;

	if (*etag)
		return ckpt_objects_replace(b, key, etag, text, strlen(text), NULL);
	rc = ckpt_objects_put(b, key, text, strlen(text), NULL);
	return rc == -EEXIST ? -ESTALE : rc;
}

// Whatever there is, and however often somebody else comes between.
static int set(struct ckpt_objects *b, const char *text)
{
	struct ckpt_object object;
	int rc = -ESTALE;

	for (int i = 0; i < SET_TRIES && rc == -ESTALE; i++) {
		rc = ckpt_objects_head(b, KEY, &object);
		if (!rc || rc == -ENOENT)
			rc = ckpt_policy_put_object(b, KEY, rc ? "" : object.etag, text);
	}
	return rc == -ESTALE ? -EIO : rc;
}

int ckpt_policy_set(struct ckpt_store *s, const struct ckpt_policy *p)
{
	CLEANUP_FREE char *text = ckpt_policy_text(p);
	struct ckpt_objects *own;
	int rc;

	if (!text)
		return -ENOMEM;
	if (s->writable)
		return set(s->objects, text);
	rc = ckpt_objects_open(&(struct ckpt_objects_at){.dirfd = s->dirfd, .writable = true}, &own);
	if (rc)
		return rc;
	rc = set(own, text);
	ckpt_objects_close(own);
	return rc;
}

static bool is_written_by_us_alone(int dirfd, const char *path)
{
	struct stat st;

	return !fstatat(dirfd, path, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) &&
	       (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

int ckpt_policy_check_programs(struct ckpt_store *s, const struct ckpt_policy *p, char **ret_why)
{
	static const char *const places[] = {"", FOLDER, KEY}; // who may write a directory may put another file there

	if (!ckpt_policy_has(&p->save, CKPT_POLICY_EXEC))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if (is_written_by_us_alone(s->dirfd, places[i]))
			continue;
		if (asprintf(ret_why,
			     "its policy runs a program (exec), and others could have set it: they may write %s%s%s",
			     s->path, *places[i] ? "/" : "", places[i]) < 0)
			*ret_why = NULL;
		return -EPERM;
	}
	return 0;
}

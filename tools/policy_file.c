#include "tools/policy_file.h"

#include "core/base/util.h"
#include "core/limits.h"
#include "core/policy/policy_store.h"
#include "tools/output.h"

#include <stdio.h>

// One byte more than is allowed tells that there is too much.
static int read_text(const char *path, char text[CKPT_POLICY_BYTES_MAX + 1], size_t *ret_len)
{
	FILE *f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	int rc;

	if (!f)
		return -errno;
	errno = 0;
	*ret_len = fread(text, 1, CKPT_POLICY_BYTES_MAX + 1, f);
	rc = ferror(f) ? -(errno ? errno : EIO) : 0;
	if (f != stdin)
		fclose(f);
	return rc;
}

int ckpt_policy_file_read(const char *path, struct ckpt_policy *ret_policy)
{
	CLEANUP_FREE char *text = ckpt_need(malloc(CKPT_POLICY_BYTES_MAX + 1)), *why = NULL;
	size_t len = 0;
	int rc = read_text(path, text, &len);

	if (!rc)
		rc = ckpt_policy_parse(text, len, ret_policy, &why);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	return rc ? ckpt_fail(path, NULL, "%s", why ? why : strerror(-rc)) : 0;
}

int ckpt_policy_of_store(const struct ckpt_listing *l, struct ckpt_policy *ret_policy)
{
	CLEANUP_FREE char *why = NULL;
	uint64_t seq;
	int rc = ckpt_policy_load(l->store, ret_policy, &seq, &why);

	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc == -EBADMSG)
		return ckpt_fail(l->store->path, "`ckptfs policy set` replaces it", "its policy is damaged: %s",
				 why ? why : strerror(-rc));
	return rc ? ckpt_fail_errno(l->store->path, NULL, rc) : 0;
}

// Contents of the plain tree, read from the log of this node.
#include "core/state/journal.h"

#include "core/base/util.h"
#include "core/state/plain.h"

struct wanted {
	const char *folder_id, *name;
	uint64_t version;
	struct ckpt_plain is; // without its name
};

static int find(void *arg, const struct ckpt_state *s)
{
	struct wanted *w = arg;
	const struct ckpt_plain *e = ckpt_state_plain(s, w->folder_id, w->name);

	if (!e || e->version != w->version || *e->id)
		return -ENOENT;
	w->is = *e;
	return 0;
}

int ckpt_journal_plain(struct ckpt_journal *j, const char *folder_id, const char *name, uint64_t version,
		       void **ret_content, size_t *ret_len)
{
	struct wanted w = {.folder_id = folder_id, .name = name, .version = version};
	CLEANUP_FREE void *data = NULL;
	int rc = ckpt_journal_look(j, find, &w);

	if (rc)
		return rc;
	rc = ckpt_journal_read(j, &w.is.content, &data);
	if (rc == -ENOENT) // the entry was trimmed, since another version is there by now; or it is lost
		return ckpt_journal_look(j, find, &w) ? -ENOENT : -EBADMSG;
	if (rc)
		return rc;
	if (!ckpt_plain_is_content(&w.is, data))
		return -EBADMSG;
	*ret_len = w.is.content.len;
	*ret_content = TAKE_PTR(data);
	return 0;
}

#include "core/remote/expired.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/log/entry.h"
#include "core/state/act.h"
#include "core/state/journal.h"
#include "core/state/state.h"
#include "core/step/trash.h"

typedef void id_fn(struct ckpt_store *s, const char *id);

static void each_expiry(struct ckpt_store *s, const struct ckpt_log_entry *entry, id_fn *fn)
{
	struct ckpt_operation op;
	size_t cursor = 0;

	while (ckpt_log_entry_next(entry, &cursor, &op)) {
		struct ckpt_act a;

		if (op.kind == CKPT_ACT_EXPIRE && !ckpt_act_decode(op.kind, op.body, op.len, &a))
			fn(s, a.step);
	}
}

static void remove_copy(struct ckpt_store *s, const char *id)
{
	const struct ckpt_record_copies copies = ckpt_store_copies(s);

	ckpt_record_copy_remove(&copies, id);
}

// A step that stays, since this node has changed it or another had it back.
static void put_copy_back(struct ckpt_store *s, const char *id)
{
	const struct ckpt_record_copies copies = ckpt_store_copies(s);

	ckpt_record_copy_put(&copies, id, NULL, 0);
}

// At a mount the trash is not open yet: it finds them when it is.
static void remove_files(struct ckpt_store *s, const char *id)
{
	char name[CKPT_TRASH_SESSION_NAME];
	struct ckpt_said said;

	if (ckpt_journal_said(s->journal, id, &said) != -ENOENT || ckpt_trash_take(s, id, name))
		return;
	if (*ckpt_trash_of(s))
		ckpt_trash_remove_behind(*ckpt_trash_of(s), name);
}

static void each_expiry_of(struct ckpt_store *s, const struct ckpt_pull *pulls, size_t count, id_fn *fn)
{
	for (size_t i = 0; i < count; i++) {
		struct ckpt_log_entry entry;

		if (!ckpt_log_entry_decode(pulls[i].entry, pulls[i].entry_len, &entry))
			each_expiry(s, &entry, fn);
	}
}

static bool any_expiry(const struct ckpt_pull *pulls, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct ckpt_log_entry entry;
		struct ckpt_operation op;
		size_t cursor = 0;

		if (!ckpt_log_entry_decode(pulls[i].entry, pulls[i].entry_len, &entry))
			while (ckpt_log_entry_next(&entry, &cursor, &op))
				if (op.kind == CKPT_ACT_EXPIRE)
					return true;
	}
	return false;
}

int ckpt_expired_pull(struct ckpt_store *s, const struct ckpt_pull *pulls, size_t count)
{
	int rc;

	if (!s->writable || !any_expiry(pulls, count))
		return ckpt_journal_pull(s->journal, pulls, count);
	LOCK_SCOPE(&s->acts_lock); // an act of this node would put a copy there meanwhile
	each_expiry_of(s, pulls, count, remove_copy);
	rc = ckpt_sys.fsync(s->records_fd) ?: ckpt_journal_pull(s->journal, pulls, count);
	each_expiry_of(s, pulls, count, put_copy_back);
	if (!rc)
		each_expiry_of(s, pulls, count, remove_files);
	return rc;
}

int ckpt_expired_before_jump(struct ckpt_store *s, const struct ckpt_state *to, struct ckpt_expired *ret)
{
	CLEANUP_FREE struct ckpt_said *list = NULL;
	size_t count = 0;
	int rc = s->writable ? ckpt_journal_list(s->journal, &list, &count) : 0;

	*ret = (struct ckpt_expired){0};
	if (!rc && count && !(ret->ids = ckpt_calloc(count, sizeof(*ret->ids))))
		rc = -ENOMEM;
	for (size_t i = 0; !rc && i < count; i++) {
		if (!list[i].pulled || ckpt_state_step(to, list[i].is.session))
			continue;
		memcpy(ret->ids[ret->count++], list[i].is.session, sizeof(*ret->ids));
		remove_copy(s, list[i].is.session);
	}
	if (!rc && ret->count)
		rc = ckpt_sys.fsync(s->records_fd);
	return rc;
}

void ckpt_expired_after_jump(struct ckpt_store *s, struct ckpt_expired *e)
{
	for (size_t i = 0; i < e->count; i++) {
		put_copy_back(s, e->ids[i]);
		remove_files(s, e->ids[i]);
	}
	free(TAKE_PTR(e->ids));
	e->count = 0;
}

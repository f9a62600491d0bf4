#include "core/remote/fetch.h"

#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/cold/pack.h"
#include "core/remote/near.h"
#include "core/state/condemned.h"
#include "core/state/shared.h"
#include "core/step/behind.h"
#include "core/step/errlog.h"

struct afar {
	struct ckpt_objects *there;
	char key[CKPT_PACK_KEY_MAX];
};

static int read_afar(void *arg, uint64_t offset, void *buf, size_t len)
{
	const struct afar *a = arg;
	size_t got;
	int rc = ckpt_objects_get(a->there, a->key, offset, buf, len, &got, NULL);

	return rc ? rc : got < len ? -ENODATA : 0;
}

static void fetch_pack(struct ckpt_store *s, const struct ckpt_pack *pack)
{
	struct afar afar = {.there = ckpt_near_there(s->objects)};
	const struct ckpt_source source = {.bytes = pack->bytes, .read = read_afar, .arg = &afar};
	struct ckpt_object object;
	int rc;

	ckpt_pack_key(pack->id, afar.key);
	rc = ckpt_objects_head(ckpt_near_here(s->objects), afar.key, &object);
	if (rc == -ENOENT)
		rc = ckpt_objects_put_from(ckpt_near_here(s->objects), afar.key, &source, NULL, NULL);
	if (rc && rc != -EEXIST)
		ckpt_errlog_add(s->errlog, "remote", rc, NULL,
				"%s cannot be fetched: a file of a deleted version that is open here may not be "
				"readable in an hour",
				afar.key);
}

static void fetch_manifest(struct ckpt_store *s, const struct ckpt_manifest *m, struct ckpt_behind *behind)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && !(behind && ckpt_behind_stops(behind)); i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		if (ckpt_journal_pack_condemned(s->journal, pack.id))
			fetch_pack(s, &pack);
	}
}

static bool condemns(const struct ckpt_log_entry *entry)
{
	struct ckpt_operation op;
	size_t cursor = 0;

	while (ckpt_log_entry_next(entry, &cursor, &op))
		if (op.kind == CKPT_ACT_CONDEMN)
			return true;
	return false;
}

// Steps whose files the remote's log does not have: their chunks go into new packs when they are pushed, and so must be here.
struct waiting {
	char (*ids)[CKPT_UUID_LEN + 1];
	size_t count;
};

static int look_for_waiting(void *arg, const struct ckpt_state *state)
{
	struct waiting *w = arg;
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

	w->ids = ckpt_calloc(count + 1, sizeof(*w->ids));
	for (size_t i = 0; w->ids && i < count; i++)
		if (!changed[i]->gone && ckpt_state_has_changed_files(changed[i]))
			memcpy(w->ids[w->count++], changed[i]->id, sizeof(*w->ids));
	return 0;
}

static void fetch_waiting(struct ckpt_store *s, struct ckpt_behind *behind)
{
	struct waiting w = {0};

	(void)ckpt_journal_look(s->journal, look_for_waiting, &w);
	for (size_t i = 0; i < w.count; i++) {
		struct ckpt_step *step = ckpt_step_of_session(s, w.ids[i]);
		struct ckpt_manifest *m;

		if (step && !ckpt_step_read_current(step, &m)) {
			fetch_manifest(s, m, behind);
			ckpt_manifest_unref(m);
		}
		ckpt_step_unref(step);
	}
	free(w.ids);
}

void ckpt_fetch_condemned(struct ckpt_store *s, const struct ckpt_log_entry *entry, struct ckpt_behind *behind)
{
	struct ckpt_manifest **manifests;
	size_t count;

	if (!condemns(entry))
		return;
	fetch_waiting(s, behind);
	if (ckpt_file_manifests(s, &manifests, &count))
		return;
	for (size_t i = 0; i < count; i++)
		fetch_manifest(s, manifests[i], behind);
	ckpt_file_manifests_free(manifests, count);
}

#include "core/remote/detach.h"

#include "core/base/keys.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/pack.h"
#include "core/remote/near.h"
#include "core/remote/remote.h"
#include "core/remote/tree.h"
#include "core/remote/tree_seen.h"
#include "core/save/session.h"
#include "core/state/journal.h"
#include "core/step/older.h"

// --- What is in the remote alone ----------------------------------------------------------------------------------------

struct keeping {
	struct ckpt_store *store;
	struct ckpt_fetch_round *fetch;
	ckpt_detach_lack_fn *lacks;
	void *arg;
	struct ckpt_keys checked; // packs, by id
};

static int keep_manifest_object(struct ckpt_store *s, const struct ckpt_summary *is)
{
	struct ckpt_objects *here = ckpt_near_here(s->objects);
	char key[sizeof("m/") + CKPT_SHA256_HEX_LEN] = "m/";
	CLEANUP_FREE void *data = NULL;
	uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_object object;
	size_t len;
	int rc;

	ckpt_hex(is->manifest_sha256, CKPT_SHA256_LEN, key + strlen(key));
	rc = ckpt_objects_head(here, key, &object);
	if (rc != -ENOENT)
		return rc;
	rc = ckpt_objects_get_all(ckpt_near_there(s->objects), key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc;
	ckpt_sha256(data, len, sha256);
	if (memcmp(sha256, is->manifest_sha256, sizeof(sha256)) != 0)
		return -EBADMSG;
	rc = ckpt_objects_put(here, key, data, len, NULL);
	return rc == -EEXIST ? 0 : rc;
}

// Every byte, also of one that was here before: there is no other copy from now on. One that is damaged is fetched again once.
static int check_pack(struct keeping *k, const struct ckpt_pack *pack)
{
	struct ckpt_objects *here = ckpt_near_here(k->store->objects);
	char key[CKPT_PACK_KEY_MAX];
	struct ckpt_chunk bad;
	int rc = ckpt_pack_check(here, pack, &bad);

	if (rc != -EBADMSG)
		return rc;
	ckpt_pack_key(pack->id, key);
	rc = ckpt_objects_remove(here, key);
	if (!rc)
		rc = ckpt_fetch_pack(k->store, k->fetch, pack);
	return rc ? rc : ckpt_pack_check(here, pack, &bad);
}

static int note_checked(struct keeping *k, const struct ckpt_pack *pack, bool *ret_new)
{
	uint64_t key[CKPT_SHA256_LEN / sizeof(uint64_t) + 1];

	memcpy(key, pack->id, sizeof(pack->id));
	key[ARRAY_LEN(key) - 1] = 1;
	return ckpt_keys_add(&k->checked, key, ARRAY_LEN(key), ret_new);
}

// Packs of files that lie raw here, too: who cools the step relies on them.
static int keep_packs(struct keeping *k, const struct ckpt_manifest *m)
{
	int rc = 0;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && !rc; i++) {
		struct ckpt_pack pack;
		bool is_new;

		ckpt_manifest_pack(m, i, &pack);
		rc = ckpt_fetch_pack(k->store, k->fetch, &pack);
		if (!rc)
			rc = note_checked(k, &pack, &is_new);
		if (!rc && is_new)
			rc = check_pack(k, &pack);
	}
	return rc;
}

static int keep_version(struct keeping *k, struct ckpt_step *step, uint32_t version)
{
	struct ckpt_manifest *m = NULL;
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);

	if (rc)
		return rc == -ENOENT ? -EBADMSG : rc;
	rc = r.manifest ? 0 : keep_manifest_object(k->store, &r.summary);
	if (!rc)
		rc = ckpt_step_read_manifest(step, &r.summary, &m);
	if (!rc)
		rc = keep_packs(k, m);
	ckpt_manifest_unref(m);
	ckpt_record_done(&r);
	return rc;
}

// In a local store each step has its directory: one in the trash without is taken for a step that has expired. Its own that is missing is damage.
static int keep_directory(struct ckpt_step *step)
{
	CLEANUP_FD int fd = ckpt_session_open(step);

	return fd == -ENOENT ? 0 : MIN(fd, 0);
}

static int keep_step(struct keeping *k, struct ckpt_step *step)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count = 0;
	int rc = ckpt_older_list(step, &list, &count);

	if (rc)
		return rc == -ENOENT ? 0 : rc; // it is gone
	for (size_t i = 0; i < count; i++) {
		bool current = i + 1 == count;

		if (list[i].over && !current)
			continue;
		rc = keep_version(k, step, list[i].says);
		if (!rc && current)
			rc = keep_directory(step);
		if (rc == -EINTR || rc == -ENOMEM)
			return rc;
		if (rc)
			k->lacks(k->arg, step, NULL, current, rc);
	}
	return 0;
}

static void tell_file(void *arg, const char *path)
{
	const struct keeping *k = arg;

	k->lacks(k->arg, NULL, path, true, -EAGAIN);
}

int ckpt_detach_fetch(struct ckpt_store *s, struct ckpt_fetch_round *fetch, ckpt_detach_lack_fn *lacks, void *arg)
{
	struct keeping k = {.store = s, .fetch = fetch, .lacks = lacks, .arg = arg};
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list_stored(s, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++)
		rc = keep_step(&k, steps[i]);
	ckpt_step_list_free(steps, count);
	ckpt_keys_done(&k.checked);
	return rc ? rc : ckpt_tree_lacks(ckpt_remote_tree(*ckpt_remote_of(s)), tell_file, &k);
}

// --- Behind it ----------------------------------------------------------------------------------------------------------

static int look_whether_attached(void *arg, const struct ckpt_state *state)
{
	(void)arg;
	return ckpt_state_is_attached(state);
}

// The table of the plain tree goes first, durably: beside another remote it would say that files which that has not were removed there.
int ckpt_detach_end(struct ckpt_store *s)
{
	const struct ckpt_pull detaches = {.host = ""};
	int rc;

	if (!ckpt_journal_look(s->journal, look_whether_attached, NULL))
		return 0;
	rc = ckpt_sys.unlink(s->dirfd, CKPT_TREE_SEEN_FILE, 0);
	if (!rc || rc == -ENOENT)
		rc = ckpt_sys.fsync(s->dirfd);
	return rc ? rc : ckpt_journal_pull(s->journal, &detaches, 1);
}

// A step's turn: list the states of its files; of those that have expired since the last turn take the raw paths that no other state has; move
// these to trash/, under acts_lock and only as long as the step has the version that was looked at; then note how far it was (older.h).
#include "core/save/outdated.h"

#include "core/base/hash.h"
#include "core/base/keys.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/garbage.h"
#include "core/record/manifest.h"
#include "core/step/amending.h"
#include "core/step/older.h"
#include "core/step/store.h"
#include "core/step/trash.h"

#include <stdio.h>

#define BATCH 1024 // files, under the lock for which clients wait
#define RETRY_NS (INT64_C(60) * 1000000000)
#define KEY_WORDS 4 // SHA-256
#define NAME_MAX_ASIDE 64

struct outdated {
	struct ckpt_step *step;
	const bool *stop;
	struct ckpt_older *list;
	size_t count;
	struct ckpt_older_limits now, done;
	uint32_t version;      // the current one
	struct ckpt_keys kept; // raw paths and packs that are needed, or are taken already
	char **paths;          // raw files that go
	size_t path_count, path_cap;
};

static bool goes_on(const struct outdated *o)
{
	return !__atomic_load_n(o->stop, __ATOMIC_RELAXED);
}

static bool is_new(const struct outdated *o, size_t i)
{
	return (ckpt_older_has_expired(o->list, o->count, i, &o->now) &&
		!ckpt_older_has_expired(o->list, o->count, i, &o->done)) ||
	       (i + 1 < o->count && ckpt_older_is_over(&o->list[i], &o->now) &&
		!ckpt_older_is_over(&o->list[i], &o->done));
}

// --- What goes ----------------------------------------------------------------------------------------------------------

// True: it was not there.
static int keep(struct outdated *o, const uint8_t sha256[CKPT_SHA256_LEN], bool *ret_new)
{
	uint64_t key[KEY_WORDS];

	memcpy(key, sha256, sizeof(key));
	key[KEY_WORDS - 1] |= 1;
	return ckpt_keys_add(&o->kept, key, KEY_WORDS, ret_new);
}

static int keep_path(struct outdated *o, const char *path, bool *ret_new)
{
	uint8_t sha256[CKPT_SHA256_LEN];

	ckpt_sha256(path, strlen(path), sha256);
	return keep(o, sha256, ret_new);
}

static int take_path(struct outdated *o, const char *path)
{
	bool is_own = !strncmp(path, o->step->session, CKPT_UUID_LEN), is_new_path;
	int rc = is_own ? keep_path(o, path, &is_new_path) : 0;

	if (rc || !is_own || !is_new_path)
		return rc;
	rc = ckpt_grow((void **)&o->paths, &o->path_cap, o->path_count + 1, sizeof(*o->paths));
	if (rc)
		return rc;
	o->paths[o->path_count] = strdup(path);
	return o->paths[o->path_count] ? (o->path_count++, 0) : -ENOMEM;
}

static int each_path(struct outdated *o, struct ckpt_manifest *m, bool goes)
{
	int rc = 0;

	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !rc; i++) {
		char path[CKPT_RAW_PATH_MAX];
		struct ckpt_entry e;
		bool is_new_path;

		ckpt_manifest_entry(m, i, &e);
		if (e.type != CKPT_ENTRY_FILE || e.content == CKPT_CONTENT_NONE)
			continue;
		rc = ckpt_step_raw_path(o->step, m, i, path, sizeof(path));
		if (!rc)
			rc = goes ? take_path(o, path) : keep_path(o, path, &is_new_path);
	}
	return rc;
}

static int each_pack(struct outdated *o, struct ckpt_manifest *m, bool goes)
{
	int rc = 0;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && !rc; i++) {
		struct ckpt_pack pack;
		bool is_new_pack;

		ckpt_manifest_pack(m, i, &pack);
		rc = keep(o, pack.id, &is_new_pack);
		if (!rc && goes && is_new_pack)
			ckpt_garbage_expect_pack(o->step->store, &pack);
	}
	return rc;
}

static int look_at(struct outdated *o, const struct ckpt_older *state, bool goes)
{
	struct ckpt_manifest *m;
	struct ckpt_record r;
	int rc = goes_on(o) ? ckpt_step_record(o->step, state->says, &r) : -EINTR;

	if (rc)
		return rc;
	rc = ckpt_step_read_manifest(o->step, &r.summary, &m);
	ckpt_record_done(&r);
	if (rc)
		return rc;
	rc = each_path(o, m, goes);
	if (!rc && (!goes || state->over))
		rc = each_pack(o, m, goes);
	ckpt_manifest_unref(m);
	return rc;
}

static int choose(struct outdated *o)
{
	int rc = 0;

	for (size_t i = 0; i < o->count && !rc; i++)
		if (!o->list[i].expired)
			rc = look_at(o, &o->list[i], false);
	for (size_t i = 0; i < o->count && !rc; i++)
		if (is_new(o, i))
			rc = look_at(o, &o->list[i], true);
	return rc;
}

// --- The removal --------------------------------------------------------------------------------------------------------

// A restoration, or a step that reopened this one and links its raw files, waits for the lock.
static int may_remove(const struct outdated *o)
{
	int rc = ckpt_amending_settle_locked(o->step);

	if (!rc && (ckpt_step_state(o->step) != CKPT_STEP_COMMITTED || ckpt_step_is_reopened(o->step)))
		rc = -EBUSY;
	return rc ? rc : o->step->version->is.version == o->version ? 0 : -EAGAIN;
}

static int remove_batch(struct outdated *o, uint64_t salt)
{
	struct ckpt_store *s = o->step->store;
	LOCK_SCOPE(&s->acts_lock);
	int rc = may_remove(o);

	for (int i = 0; i < BATCH && o->path_count && !rc; i++) {
		CLEANUP_FREE char *path = o->paths[--o->path_count];
		char name[NAME_MAX_ASIDE];

		snprintf(name, sizeof(name), CKPT_TRASH_COPY "%016llx-%zu", (unsigned long long)salt, o->path_count);
		rc = ckpt_sys.rename(s->sessions_fd, path, s->trash_fd, name, RENAME_NOREPLACE);
		if (!rc)
			ckpt_trash_remove_behind(*ckpt_trash_of(s), name);
		if (rc == -ENOENT || rc == -ENOTDIR) // it was cooled away
			rc = 0;
	}
	return rc;
}

static int remove_all(struct outdated *o)
{
	uint64_t salt;
	int rc = ckpt_sys.random(&salt, sizeof(salt));

	while (!rc && o->path_count)
		rc = goes_on(o) ? remove_batch(o, salt) : -EINTR;
	if (rc)
		return rc;
	o->now.replaced_ns = MAX(o->now.replaced_ns, o->done.replaced_ns);
	o->now.thinned_ns = MAX(o->now.thinned_ns, o->done.thinned_ns);
	return ckpt_older_limits_keep(o->step, &o->now);
}

static void outdated_done(struct outdated *o)
{
	while (o->path_count)
		free(o->paths[--o->path_count]);
	free(o->paths);
	free(o->list);
	ckpt_keys_done(&o->kept);
}

static int64_t next_ns(const struct outdated *o)
{
	int64_t next = INT64_MAX;

	for (size_t i = 0; i < o->count; i++)
		if (!o->list[i].expired)
			next = MIN(next, ckpt_older_expires_ns(o->list, o->count, i, o->step));
	return next;
}

static int64_t turn(struct ckpt_step *step, const bool *stop)
{
	struct outdated o = {.step = step, .stop = stop};
	int64_t now_ns = ckpt_sys.now_ns(), next = INT64_MAX;
	bool any = false;
	int rc;

	o.now = ckpt_older_limits(step, now_ns); // before the list, which has its own moment
	rc = ckpt_older_list(step, &o.list, &o.count);
	if (!rc && o.count > 1) {
		o.version = o.list[o.count - 1].last;
		o.done = ckpt_older_limits_done(step);
		for (size_t i = 0; i < o.count; i++)
			any |= is_new(&o, i);
		next = next_ns(&o);
	}
	if (any)
		rc = choose(&o);
	if (any && !rc)
		rc = remove_all(&o);
	outdated_done(&o);
	return rc && rc != -ENOENT ? MIN(next, now_ns + RETRY_NS) : next;
}

int64_t ckpt_outdated_remove(struct ckpt_store *s, const bool *stop)
{
	struct ckpt_step **steps;
	int64_t next = INT64_MAX;
	size_t count;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		return next;
	for (size_t i = 0; i < count && !__atomic_load_n(stop, __ATOMIC_RELAXED); i++)
		next = MIN(next, turn(steps[i], stop));
	ckpt_step_list_free(steps, count);
	return next;
}

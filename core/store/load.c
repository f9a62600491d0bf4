#include "core/store/load.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/commit/move.h"
#include "core/stage/draft.h"
#include "core/stage/stage.h"
#include "core/store/store.h"
#include "core/tier/dedupe.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

struct version_ref {
	char *key; // step key
	uint32_t version;
	int64_t stored_ns;            // the time of its object
	struct ckpt_summary *summary; // from the index, else NULL
};

struct version_list {
	struct version_ref *refs;
	size_t count, cap;
};

static void list_done(struct version_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->refs[i].key);
		free(l->refs[i].summary);
	}
	free(l->refs);
}

static int list_add(struct version_list *l, const char *key, size_t key_len, uint32_t version, int64_t stored_ns,
		    const struct ckpt_summary *summary)
{
	struct version_ref ref = {.key = strndup(key, key_len), .version = version, .stored_ns = stored_ns};
	int rc = ckpt_grow((void **)&l->refs, &l->cap, l->count + 1, sizeof(*l->refs));

	if (summary && (ref.summary = malloc(sizeof(*summary))))
		*ref.summary = *summary;
	if (rc || !ref.key || (summary && !ref.summary)) {
		free(ref.key);
		free(ref.summary);
		return -ENOMEM;
	}
	l->refs[l->count++] = ref;
	return 0;
}

static int by_key_and_version(const void *a, const void *b)
{
	const struct version_ref *x = a, *y = b;
	int order = strcmp(x->key, y->key);

	return order ? order : (x->version > y->version) - (x->version < y->version);
}

static int from_index(void *arg, const char *key, const struct ckpt_summary *summary)
{
	return list_add(arg, key, strlen(key), summary->version, summary->stored_ns, summary);
}

// Anything else there is not ours and stays unseen.
static int from_store(void *arg, const char *object, const struct ckpt_object *info)
{
	char key[CKPT_STEP_KEY_MAX];
	uint32_t version;

	return ckpt_name_of_record(object, key, &version)
		       ? list_add(arg, key, strlen(key), version, info->mtime_ns, NULL)
		       : 0;
}

// A record says itself which step it is of: one that was copied under another key is not believed.
static int read_summary(struct ckpt_store *s, const struct version_ref *ref, struct ckpt_summary *ret_summary)
{
	char object[sizeof("steps/") + CKPT_STEP_KEY_MAX + 12], key[CKPT_STEP_KEY_MAX];
	CLEANUP_FREE void *data = NULL;
	struct ckpt_record r;
	size_t len;
	int rc;

	snprintf(object, sizeof(object), "steps/%s/%u", ref->key, ref->version);
	rc = ckpt_objects_get_all(s->objects, object, CKPT_RECORD_BYTES_MAX, &data, &len, NULL);
	if (!rc)
		rc = ckpt_record_decode(data, len, &r);
	if (!rc) {
		if (strcmp(r.store_id, s->id) || r.summary.version != ref->version ||
		    ckpt_name_key(r.summary.folder_id, r.summary.name, key) || strcmp(key, ref->key))
			rc = -EBADMSG;
		else
			*ret_summary = r.summary;
		ret_summary->stored_ns = ref->stored_ns;
		ckpt_record_done(&r);
	}
	if (rc == -ENOENT && !s->writable) // it has expired since it was listed
		return rc;
	if (rc && rc != -ENOMEM)
		ckpt_errlog_add(s->errlog, ref->key, rc,
				rc == -ENOTSUP ? "mount it with a newer ckptfs" : "run `ckptfs verify` on the store",
				"version %u is not listed: its record is %s", ref->version,
				rc == -ENOTSUP ? "of a newer format" : "damaged, or does not match its key");
	return rc == -ENOMEM ? rc : rc ? -EBADMSG : 0;
}

static int adopt(struct ckpt_store *s, const struct ckpt_summary *summary)
{
	ckpt_lock_take(&s->lock);
	s->sequence = MAX(s->sequence, summary->sequence);
	ckpt_lock_drop(&s->lock);
	return ckpt_step_load(s, summary);
}

// Records that the index lacks are read and put there, in few transactions.
#define BATCH 1024

struct batch {
	const char *keys[BATCH];
	struct ckpt_summary *summaries;
	size_t count;
};

static int batch_write(struct ckpt_store *s, struct batch *b)
{
	int rc = b->count && s->writable && s->index ? ckpt_index_put_many(s->index, b->keys, b->summaries, b->count)
						     : 0;

	b->count = 0;
	return rc == -ENOMEM ? rc : 0; // an index that cannot be written costs speed, not the mount
}

// Once: a reader loads again and again.
static int remember_unreadable(struct ckpt_store *s, const char *key)
{
	LOCK_SCOPE(&s->lock);
	char *copy;

	if (ckpt_store_unreadable(s, key))
		return 0;
	if (ckpt_grow((void **)&s->unreadable, &s->unreadable_cap, s->unreadable_count + 1, sizeof(*s->unreadable)))
		return -ENOMEM;
	copy = strdup(key);
	if (!copy)
		return -ENOMEM;
	s->unreadable[s->unreadable_count++] = copy;
	return 0;
}

static int load_one(struct ckpt_store *s, const struct version_ref *ref, const struct version_list *indexed,
		    struct batch *b)
{
	struct version_ref *known =
		indexed->count ? bsearch(ref, indexed->refs, indexed->count, sizeof(*ref), by_key_and_version) : NULL;
	int rc;

	// A version of this number that has expired may be what the index knows.
	if (known && ref->stored_ns && known->stored_ns == ref->stored_ns) {
		rc = adopt(s, known->summary);
		free(TAKE_PTR(known->summary)); // what keeps its summary to the end is not in the store
		return rc;
	}
	rc = read_summary(s, ref, &b->summaries[b->count]);
	if (rc)
		return rc == -EBADMSG ? remember_unreadable(s, ref->key) : rc == -ENOENT ? 0 : rc;
	if (known)
		free(TAKE_PTR(known->summary));
	rc = adopt(s, &b->summaries[b->count]);
	b->keys[b->count++] = ref->key;
	return rc ? rc : b->count == BATCH ? batch_write(s, b) : 0;
}

static int load_all(struct ckpt_store *s, const struct version_list *stored, struct version_list *indexed)
{
	CLEANUP_FREE struct batch *b = calloc(1, sizeof(*b));
	int rc = 0;

	if (!b)
		return -ENOMEM;
	b->summaries = calloc(BATCH, sizeof(*b->summaries));
	if (!b->summaries)
		return -ENOMEM;
	for (size_t i = 0; i < stored->count && !rc; i++)
		rc = load_one(s, &stored->refs[i], indexed, b);
	if (!rc)
		rc = batch_write(s, b);
	free(b->summaries);
	for (size_t i = 0; i < indexed->count && s->writable && s->index; i++)
		if (indexed->refs[i].summary)
			ckpt_index_remove(s->index, indexed->refs[i].key, indexed->refs[i].version);
	return rc;
}

// Beside a mount that writes: what has expired there is forgotten here, for its name may have begun anew with version 1.
static int forget_expired(struct ckpt_store *s, const struct version_list *stored)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, &steps, &count);

	if (rc)
		return rc;
	ckpt_lock_take(&s->lock);
	for (size_t i = 0; i < count; i++) {
		struct version_ref last = {.key = steps[i]->key,
					   .version = MAX(steps[i]->summary.version, steps[i]->deleted_by)};

		if (!stored->count || !bsearch(&last, stored->refs, stored->count, sizeof(last), by_key_and_version))
			ckpt_step_forget_locked(steps[i]);
	}
	ckpt_lock_drop(&s->lock);
	ckpt_step_list_free(steps, count);
	return 0;
}

int ckpt_load_steps(struct ckpt_store *s, bool index_is_fresh)
{
	struct version_list stored = {0}, indexed = {0};
	int rc = 0;

	if (s->index && !index_is_fresh) {
		rc = ckpt_index_each(s->index, from_index, &indexed);
		if (rc && rc != -ENOMEM) {
			list_done(&indexed);
			indexed = (struct version_list){0};
			rc = s->writable ? ckpt_index_reset(s->index) : 0;
			if (ckpt_is_full(rc)) {
				ckpt_store_forgo_index(s);
				rc = 0;
			}
		}
	}
	// The store is listed first and the index believed after, in the reverse of the order in which they are written.
	if (!rc)
		rc = ckpt_objects_list(s->objects, "steps/", NULL, from_store, &stored);
	if (!rc && stored.count) // the versions of a step in their order
		qsort(stored.refs, stored.count, sizeof(*stored.refs), by_key_and_version);
	if (!rc && indexed.count)
		qsort(indexed.refs, indexed.count, sizeof(*indexed.refs), by_key_and_version);
	if (!rc && !s->writable)
		rc = forget_expired(s, &stored);
	if (!rc)
		rc = load_all(s, &stored, &indexed);
	if (!rc)
		rc = ckpt_move_settle(s);
	list_done(&stored);
	list_done(&indexed);
	return rc;
}

// What has gone since it was listed is not there any more, and what cannot be read was told at the open.
static int put_listed(struct ckpt_store *s, const struct version_list *stored, struct batch *b)
{
	int rc = 0;

	for (size_t i = 0; i < stored->count && !rc; i++) {
		rc = read_summary(s, &stored->refs[i], &b->summaries[b->count]);
		if (!rc)
			b->keys[b->count++] = stored->refs[i].key;
		rc = rc == -EBADMSG ? 0 : rc;
		if (!rc && (b->count == BATCH || i + 1 == stored->count) && b->count) {
			rc = ckpt_index_put_many(s->index, b->keys, b->summaries, b->count);
			b->count = 0;
		}
	}
	return rc;
}

static int put_all_listed(struct ckpt_store *s, const struct version_list *stored)
{
	CLEANUP_FREE struct batch *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return -ENOMEM;
	b->summaries = calloc(BATCH, sizeof(*b->summaries));
	rc = b->summaries ? put_listed(s, stored, b) : -ENOMEM;
	free(b->summaries);
	return rc;
}

int ckpt_load_index(struct ckpt_store *s, bool (*go_on)(void *arg), void *arg)
{
	struct version_list stored = {0};
	int rc = ckpt_store_take_packs(s, false, go_on, arg);

	if (rc)
		return rc;
	rc = s->index ? ckpt_index_reset(s->index) : -ENOENT;
	if (!rc)
		rc = ckpt_objects_list(s->objects, "steps/", NULL, from_store, &stored);
	if (!rc)
		rc = put_all_listed(s, &stored);
	if (!rc)
		ckpt_dedupe_look(s);
	ckpt_lock_drop(&s->packs_lock);
	list_done(&stored);
	return rc;
}

// A commit of a new step changes the time of steps/. It is read before the listing: what comes in between is seen twice. A
// second change within a tick of the clock that the filesystem takes its times from would not show: a time is believed
// only when it is older than that.
#define TICK_NS INT64_C(20000000)

// A session that was taken for a left one and was another mount's, in the middle of its save: it is a step now.
static int drop_what_was_committed(struct ckpt_store *s)
{
	struct ckpt_step **left, **steps;
	size_t left_count, count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &left_count);

	if (rc)
		return rc;
	rc = left_count ? ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count) : 0;
	if (!rc && left_count) {
		for (size_t i = 0; i < left_count; i++)
			for (size_t j = 0; j < count; j++)
				if (!strcmp(left[i]->session, steps[j]->session))
					ckpt_stage_vanish(left[i]);
		ckpt_step_list_free(steps, count);
	}
	ckpt_step_list_free(left, left_count);
	return rc;
}

static int refresh_locked(struct ckpt_store *s)
{
	int64_t now = ckpt_sys.now_ns(), mtime_ns;
	struct stat st;
	int rc;

	if (fstatat(s->dirfd, "steps", &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
	if (s->steps_seen_ns == mtime_ns)
		return 0;
	rc = ckpt_load_steps(s, false);
	if (!rc)
		rc = drop_what_was_committed(s);
	if (!rc && mtime_ns < now - TICK_NS)
		s->steps_seen_ns = mtime_ns;
	return rc;
}

int ckpt_load_refresh(struct ckpt_store *s)
{
	if (s->writable)
		return 0;
	LOCK_SCOPE(&s->refresh_lock); // over the listing: who comes second finds what the first has seen
	return refresh_locked(s);
}

bool ckpt_load_newer(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	struct ckpt_record r;
	uint32_t version;

	if (s->writable) // nobody else has made any
		return false;
	ckpt_lock_take(&step->lock);
	version = step->summary.version;
	ckpt_lock_drop(&step->lock);
	if (ckpt_step_record(step, version + 1, &r))
		return false;
	ckpt_record_done(&r);
	LOCK_SCOPE(&s->refresh_lock);
	return !ckpt_load_steps(s, false);
}

// --- Sessions ---------------------------------------------------------------------------------------------------------

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int load_session(struct ckpt_store *s, const char *name, char **named, size_t named_count)
{
	int rc;

	if (!ckpt_uuid_check(name) || (named_count && bsearch(&name, named, named_count, sizeof(*named), by_text)))
		return 0;
	rc = ckpt_draft_is_empty(s, name);
	if (rc > 0)
		return 0;
	if (rc != -ENOMEM)
		rc = ckpt_step_load_left(s, name);
	return rc == -ENOMEM ? rc : 0;
}

int ckpt_load_sessions(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	CLEANUP_FREE char **named = NULL;
	size_t count;
	struct dirent *d;
	DIR *dir;
	int fd, rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, &steps, &count);

	if (rc)
		return rc;
	named = calloc(count + 1, sizeof(*named));
	fd = ckpt_sys.open(s->sessions_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	dir = fd < 0 ? NULL : fdopendir(fd);
	rc = !named ? -ENOMEM : fd < 0 ? fd : !dir ? -ENOMEM : 0;
	if (!rc) {
		for (size_t i = 0; i < count; i++)
			named[i] = steps[i]->session;
		qsort(named, count, sizeof(*named), by_text);
		while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d)
			rc = load_session(s, d->d_name, named, count);
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	ckpt_step_list_free(steps, count);
	return rc;
}

#include "core/remote/evict.h"

#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/base/walk.h"
#include "core/cold/pack.h"
#include "core/cold/pack_pins.h"
#include "core/remote/arrival.h"
#include "core/remote/near.h"
#include "core/remote/remote.h"
#include "core/save/limit.h"
#include "core/step/errlog.h"
#include "core/step/latest.h"
#include "core/step/older.h"
#include "core/step/removal.h"
#include "core/step/store.h"
#include "core/tier/cool.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LOOK_NS INT64_C(500000000)
#define UNREADABLE_NS INT64_C(60000000000) // until a manifest is read again that could not be

// --- What goes ----------------------------------------------------------------------------------------------------------

static bool goes_before(const struct ckpt_evict_row *a, const struct ckpt_evict_row *b)
{
	if (a->deleted != b->deleted)
		return a->deleted;
	if (a->read_ns != b->read_ns)
		return a->read_ns && (!b->read_ns || a->read_ns < b->read_ns);
	return a->sequence < b->sequence;
}

size_t ckpt_evict_order(const struct ckpt_evict_row *rows, size_t count, size_t *ret_order)
{
	size_t n = 0, at;

	for (size_t i = 0; i < count; i++) {
		if (!rows[i].durable || rows[i].stays || rows[i].open)
			continue;
		for (at = n++; at && goes_before(&rows[i], &rows[ret_order[at - 1]]); at--)
			ret_order[at] = ret_order[at - 1];
		ret_order[at] = i;
	}
	return n;
}

uint64_t ckpt_evict_target(uint64_t limit_bytes, uint64_t newest_bytes)
{
	return limit_bytes - MIN(newest_bytes * 2, limit_bytes / 2);
}

// --- What is here -------------------------------------------------------------------------------------------------------

// A pack on this node, and how many steps here need it.
struct local_pack {
	uint8_t id[CKPT_SHA256_LEN];
	uint64_t bytes;
	uint32_t users;
	bool stays;
};

struct known {
	char session[CKPT_UUID_LEN + 1];
	uint32_t version;
};

struct session {
	char id[CKPT_UUID_LEN + 1];
};

struct round {
	struct ckpt_store *store;
	struct ckpt_step **steps;
	size_t count;
	struct ckpt_evict_row *rows;
	struct known *known;  // by session
	struct session *open; // of files that this process has open, for whomever
	size_t open_count, open_cap;
	struct local_pack *packs; // by id
	size_t pack_count, pack_cap;
	uint64_t freed;
	bool unreachable;       // the remote does not answer: packs stay, as nobody knows what it has
	int64_t read_before_ns; // only raw files go that were kept since they were read, until then; 0: all that may
	bool packs_stay; // a step that the remote has not needs some of them, and its manifest does not say which
	bool (*go_on)(void *arg);
	void *arg;
};

static void round_done(struct round *r)
{
	if (r->steps)
		ckpt_step_list_free(r->steps, r->count);
	free(r->rows);
	free(r->known);
	free(r->open);
	free(r->packs);
}

static bool goes_on(const struct round *r)
{
	return !r->go_on || r->go_on(r->arg);
}

static int add_pack(void *arg, const char *key, const struct ckpt_object *object)
{
	struct round *r = arg;
	struct local_pack pack = {.bytes = object->bytes};
	int rc;

	if (!ckpt_pack_of_key(key, pack.id))
		return 0;
	rc = ckpt_grow((void **)&r->packs, &r->pack_cap, r->pack_count + 1, sizeof(*r->packs));
	if (!rc)
		r->packs[r->pack_count++] = pack;
	return rc;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct local_pack *)a)->id, ((const struct local_pack *)b)->id, CKPT_SHA256_LEN);
}

static struct local_pack *find_pack(const struct round *r, const struct ckpt_manifest *m, uint32_t index)
{
	struct local_pack want;
	struct ckpt_pack pack;

	ckpt_manifest_pack(m, index, &pack);
	memcpy(want.id, pack.id, sizeof(want.id));
	return r->pack_count ? bsearch(&want, r->packs, r->pack_count, sizeof(*r->packs), by_id) : NULL;
}

static int list_packs(struct round *r)
{
	int rc = ckpt_objects_list(ckpt_near_here(r->store->objects), "packs/", NULL, add_pack, r);

	if (!rc && r->pack_count)
		qsort(r->packs, r->pack_count, sizeof(*r->packs), by_id);
	return rc;
}

static int keep_packs(void *arg, const struct ckpt_manifest *m)
{
	const struct round *r = arg;

	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct local_pack *pack = find_pack(r, m, i);

		if (pack)
			pack->stays = true;
	}
	return 0;
}

static void use_packs(const struct round *r, const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct local_pack *pack = find_pack(r, m, i);

		if (pack)
			pack->users++;
	}
}

// --- Open files ---------------------------------------------------------------------------------------------------------
// A mount has each raw file open that a client has open, also where the kernel reads it. To ask for a lease instead would turn away who
// opens the file at that moment.

static bool is_open(const struct round *r, const char *session)
{
	for (size_t i = 0; i < r->open_count; i++)
		if (!strcmp(r->open[i].id, session))
			return true;
	return false;
}

// The path that a descriptor leads to: SESSIONS/ID/..., where SESSIONS has this length.
static int add_open(struct round *r, const char *path, size_t len)
{
	struct session session;
	int rc;

	if (strnlen(path + len, sizeof(session.id)) < sizeof(session.id) || path[len + CKPT_UUID_LEN] != '/')
		return 0;
	memcpy(session.id, path + len, CKPT_UUID_LEN);
	session.id[CKPT_UUID_LEN] = '\0';
	if (is_open(r, session.id))
		return 0;
	rc = ckpt_grow((void **)&r->open, &r->open_cap, r->open_count + 1, sizeof(*r->open));
	if (!rc)
		r->open[r->open_count++] = session;
	return rc;
}

static int look_at_descriptor(struct round *r, int dirfd, const char *name)
{
	char sessions[PATH_MAX], path[PATH_MAX];
	int len = snprintf(sessions, sizeof(sessions), "%s/sessions/", r->store->path);
	ssize_t n = readlinkat(dirfd, name, path, sizeof(path) - 1);
	struct stat st;

	if (n <= len || len >= (int)sizeof(sessions) || memcmp(path, sessions, (size_t)len))
		return 0;
	path[n] = '\0';
	return fstat(atoi(name), &st) || !S_ISREG(st.st_mode) ? 0 : add_open(r, path, (size_t)len);
}

static int list_open(struct round *r)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *d;
	int rc = dir ? 0 : -errno;

	while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d)
		rc = look_at_descriptor(r, dirfd(dir), d->d_name);
	if (dir)
		closedir(dir);
	return rc;
}

// --- Steps --------------------------------------------------------------------------------------------------------------

static int add_bytes(void *arg, int dirfd __attribute__((unused)), const char *name __attribute__((unused)),
		     const struct statx *stx)
{
	uint64_t *bytes = arg;

	*bytes += S_ISREG(stx->stx_mode) ? stx->stx_blocks * 512 : 0;
	return 0;
}

static bool is_damage(int rc)
{
	return rc == -EBADMSG || rc == -EIO || rc == -ENOTSUP || rc == -EFBIG;
}

// The failure that is known of this version; 0: it is to be read.
static int known_damage(struct ckpt_step *step, uint32_t version)
{
	LOCK_SCOPE(&step->lock);
	const struct ckpt_evict_unreadable *u = ckpt_evict_unreadable_of(step);

	return u->version == version && ckpt_sys.mono_ns() < u->again_ns ? u->error : 0;
}

// False: it was known.
static bool keep_damage(struct ckpt_step *step, uint32_t version, int rc)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_evict_unreadable *u = ckpt_evict_unreadable_of(step);
	bool is_new = u->version != version || u->error != rc;

	*u = (struct ckpt_evict_unreadable){version, rc,
					    rc == -EBADMSG ? INT64_MAX : ckpt_sys.mono_ns() + UNREADABLE_NS};
	return is_new;
}

// Nobody knows what it needs. It stays, and all others go on.
static void pass_over(struct round *r, size_t i, const struct ckpt_version *v, int rc)
{
	struct ckpt_step *step = r->steps[i];

	r->rows[i].stays = true;
	r->packs_stay = r->packs_stay || !r->rows[i].durable;
	if (keep_damage(step, v->is.version, rc))
		ckpt_errlog_add(r->store->errlog, step->name, rc, "`ckptfs verify` says what is damaged",
				"its manifest cannot be read (%s): its copy here stays, whatever work_limit says%s",
				strerror(-rc), r->rows[i].durable ? "" : ", and so do all packs");
}

// A step that does not go keeps its packs. The remote has no older versions that were made here before it had the step.
static int look_at_packs(struct round *r, struct ckpt_step *step, const struct ckpt_version *v, bool durable)
{
	struct ckpt_manifest *m;
	int rc = v->is.version && !v->is.deleted ? ckpt_step_read_manifest(step, &v->is, &m) : -ENOENT;

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	use_packs(r, m);
	ckpt_manifest_unref(m);
	return durable ? 0 : ckpt_older_each_packs(step, keep_packs, r);
}

static int look_at(struct round *r, size_t i)
{
	struct ckpt_step *step = r->steps[i];
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_evict_row *row = &r->rows[i];
	enum ckpt_step_state state = ckpt_step_state(step);
	bool durable = ckpt_remote_has(r->store, step->session);
	int rc;

	if (durable && faccessat(r->store->sessions_fd, step->session, F_OK, AT_SYMLINK_NOFOLLOW))
		return 0; // nothing of it is here, but perhaps packs that another one needs
	*row = (struct ckpt_evict_row){
		.sequence = v->is.sequence,
		.deleted = state == CKPT_STEP_DELETED,
		.durable = durable,
		.stays = v->is.pinned || ckpt_step_is_reopened(step) || ckpt_removal_any(step) ||
			 (state != CKPT_STEP_COMMITTED && state != CKPT_STEP_DELETED),
	};
	row->open = is_open(r, step->session);
	row->read_ns = ckpt_warm_read_ns(step);
	if (durable && !row->stays)
		(void)ckpt_walk(r->store->sessions_fd, step->session, add_bytes, &row->raw_bytes);
	rc = known_damage(step, v->is.version);
	if (!rc)
		rc = look_at_packs(r, step, v, durable);
	if (is_damage(rc))
		pass_over(r, i, v, rc);
	return is_damage(rc) ? 0 : rc;
}

// --- The log is ahead ---------------------------------------------------------------------------------------------------

static int by_session(const void *a, const void *b)
{
	return strcmp(((const struct known *)a)->session, ((const struct known *)b)->session);
}

static int look_for_stranger(void *arg, const struct ckpt_state_step *step)
{
	const struct round *r = arg;
	struct known want, *found;

	memcpy(want.session, step->id, sizeof(want.session));
	found = r->count ? bsearch(&want, r->known, r->count, sizeof(want), by_session) : NULL;
	return !step->since || (found && found->version >= step->is.version)
		       ? 0
		       : -EAGAIN; // what the remote has needs nothing here
}

// A version that the table of steps does not know yet may need any pack.
static int check_known(struct round *r)
{
	r->known = ckpt_calloc(r->count + 1, sizeof(*r->known));
	if (!r->known)
		return -ENOMEM;
	for (size_t i = 0; i < r->count; i++) {
		LOCK_SCOPE(&r->steps[i]->lock);

		memcpy(r->known[i].session, r->steps[i]->session, sizeof(r->known[i].session));
		r->known[i].version = r->steps[i]->version->is.version;
	}
	if (r->count)
		qsort(r->known, r->count, sizeof(*r->known), by_session);
	return ckpt_journal_each(r->store->journal, look_for_stranger, r);
}

// --- Removal ------------------------------------------------------------------------------------------------------------

static bool goes(void *arg __attribute__((unused)), const struct ckpt_manifest *m __attribute__((unused)),
		 uint32_t index __attribute__((unused)))
{
	return true;
}

static bool go_on_sweeping(void *arg, uint64_t bytes __attribute__((unused)))
{
	return goes_on(arg);
}

static int drop_raw(struct round *r, struct ckpt_step *step)
{
	const struct ckpt_tier_how how = {.go_on = go_on_sweeping, .arg = r};
	const struct ckpt_sweep sweep = {.step = step, .how = &how, .goes = goes, .of_deleted = true};
	struct ckpt_tier_done done = {0};
	int rc = ckpt_cool_sweep(&sweep, &done);

	r->freed += done.bytes;
	return rc;
}

// The remote is asked once more: somebody may have removed something there.
static bool is_there(struct round *r, const struct local_pack *pack, const char *key)
{
	struct ckpt_object object;
	int rc = ckpt_objects_head(ckpt_near_there(r->store->objects), key, &object);

	r->unreachable = rc && rc != -ENOENT;
	return !rc && object.bytes == pack->bytes;
}

static void drop_pack(struct round *r, struct local_pack *pack)
{
	struct ckpt_pack_pins *pins = *ckpt_pack_pins_of(r->store);
	char key[CKPT_PACK_KEY_MAX];
	int rc;

	ckpt_pack_key(pack->id, key);
	if (!is_there(r, pack, key) || ckpt_pack_condemn(pins, pack->id))
		return;
	rc = ckpt_objects_remove(ckpt_near_here(r->store->objects), key);
	ckpt_pack_condemned_end(pins, pack->id, rc && rc != -ENOENT);
	r->freed += rc ? 0 : pack->bytes;
}

static int drop_packs(struct round *r, struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_manifest *m;
	int rc = ckpt_step_read_manifest(step, &v->is, &m);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m) && goes_on(r) && !r->unreachable; i++) {
		struct local_pack *pack = find_pack(r, m, i);

		if (pack && pack->users && !--pack->users && !pack->stays)
			drop_pack(r, pack);
	}
	ckpt_manifest_unref(m);
	return goes_on(r) ? 0 : -EINTR;
}

// A writer that waits for room sees at once that there is some.
static void tell_freed(struct ckpt_store *s)
{
	__atomic_store_n(&ckpt_evict_of(s)->removed_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
	ckpt_limit_freed(*ckpt_limit_of(s));
}

// It is durable still, and as it was looked at: else it is passed over.
static int drop(struct round *r, struct ckpt_step *step, uint64_t raw_bytes)
{
	uint64_t before = r->freed;
	char size[CKPT_SIZE_MAX];
	int rc = ckpt_remote_has(r->store, step->session) ? 0 : -ESTALE;

	if (!rc && raw_bytes)
		rc = drop_raw(r, step);
	if (r->freed > before)
		tell_freed(r->store);
	if (!rc && !r->unreachable && !r->packs_stay && !r->read_before_ns)
		rc = drop_packs(r, step);
	if (r->freed > before)
		tell_freed(r->store);
	if (r->freed > before)
		ckpt_log(CKPT_LOG_INFO, "work_limit: removed %s of %s here, which the object store has",
			 ckpt_size_text(r->freed - before, size), step->name);
	return rc == -ESTALE || rc == -EBUSY || is_damage(rc) ? 0 : rc;
}

static bool is_meant(const struct round *r, const struct ckpt_evict_row *row)
{
	// A clock that was set back since would keep it for as long again.
	return !r->read_before_ns ||
	       (row->read_ns && (row->read_ns <= r->read_before_ns || row->read_ns > ckpt_sys.now_ns()));
}

static int drop_in_order(struct round *r, uint64_t bytes)
{
	CLEANUP_FREE size_t *order = ckpt_calloc(r->count + 1, sizeof(*order));
	size_t n = order ? ckpt_evict_order(r->rows, r->count, order) : 0;
	int rc = order ? 0 : -ENOMEM;

	for (size_t i = 0; i < n && !rc && r->freed < bytes; i++) {
		const struct ckpt_evict_row *row = &r->rows[order[i]];

		if (is_meant(r, row))
			rc = goes_on(r) ? drop(r, r->steps[order[i]], row->raw_bytes) : -EINTR;
	}
	return rc;
}

static int look(struct round *r)
{
	int rc = list_packs(r);

	if (!rc)
		rc = list_open(r);
	if (!rc)
		rc = ckpt_step_list_stored(r->store, &r->steps, &r->count);
	if (!rc)
		rc = check_known(r);
	if (!rc) {
		r->rows = ckpt_calloc(r->count + 1, sizeof(*r->rows));
		rc = r->rows ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < r->count && !rc; i++)
		rc = goes_on(r) ? look_at(r, i) : -EINTR;
	return rc;
}

static int run_round(struct round *r, uint64_t bytes, uint64_t *ret_bytes)
{
	int rc;

	ckpt_pack_pins_begin(*ckpt_pack_pins_of(r->store));
	rc = look(r);
	if (!rc)
		rc = drop_in_order(r, bytes);
	ckpt_pack_pins_end(*ckpt_pack_pins_of(r->store));
	*ret_bytes = r->freed;
	return rc;
}

int ckpt_evict_round(struct ckpt_store *s, uint64_t bytes, uint64_t *ret_bytes, bool (*go_on)(void *arg), void *arg)
{
	CLEANUP(round_done) struct round r = {.store = s, .go_on = go_on, .arg = arg};

	return run_round(&r, bytes, ret_bytes);
}

int ckpt_evict_read(struct ckpt_store *s, uint64_t bytes, int64_t before_ns, uint64_t *ret_bytes,
		    bool (*go_on)(void *arg), void *arg)
{
	CLEANUP(round_done) struct round r = {.store = s, .read_before_ns = before_ns, .go_on = go_on, .arg = arg};

	return run_round(&r, bytes, ret_bytes);
}

// --- Of a mount -----------------------------------------------------------------------------------------------------------

static bool go_on(void *job)
{
	return !ckpt_job_stops(job);
}

// Beside what waits to be pushed, which may not go.
static uint64_t target_beside(struct ckpt_store *s, const struct ckpt_remote_queue *queue)
{
	uint64_t target = ckpt_evict_target(s->settings.work_limit, ckpt_latest_bytes(s));

	return target - MIN(queue->bytes, target / 2);
}

// A failure is tried again at the next look: the limit tells those that lack room.
static int64_t turn(void *arg, struct ckpt_job *job)
{
	struct ckpt_store *s = arg;
	struct ckpt_remote_queue queue;
	uint64_t used, target, freed = 0;

	ckpt_remote_queue(*ckpt_remote_of(s), &queue);
	target = target_beside(s, &queue);
	if (!ckpt_limit_used(*ckpt_limit_of(s), &used) && used > target)
		(void)ckpt_evict_round(s, used - target, &freed, go_on, job);
	if (__atomic_exchange_n(&ckpt_evict_of(s)->hurried, false, __ATOMIC_RELAXED) && !freed &&
	    ckpt_remote_give_back(*ckpt_remote_of(s)))
		tell_freed(s);
	return ckpt_sys.mono_ns() + LOOK_NS;
}

uint64_t ckpt_evict_left(struct ckpt_store *s)
{
	struct ckpt_remote_queue queue;
	uint64_t used, target;

	if (s->settings.work_limit == CKPT_LIMIT_NONE)
		return CKPT_LIMIT_NONE;
	ckpt_remote_queue(*ckpt_remote_of(s), &queue);
	target = target_beside(s, &queue);
	return ckpt_limit_used(*ckpt_limit_of(s), &used) ? 0 : target - MIN(used, target);
}

uint64_t ckpt_evict_expected(struct ckpt_store *s)
{
	struct ckpt_remote_queue queue;

	ckpt_remote_queue(*ckpt_remote_of(s), &queue);
	return queue.unreachable_ns ? 0 : s->settings.work_limit - target_beside(s, &queue);
}

static struct ckpt_job *job_of(struct ckpt_store *s)
{
	return __atomic_load_n(&ckpt_evict_of(s)->job, __ATOMIC_ACQUIRE);
}

void ckpt_evict_hurry(struct ckpt_store *s)
{
	if (!job_of(s))
		return;
	__atomic_store_n(&ckpt_evict_of(s)->hurried, true, __ATOMIC_RELAXED);
	ckpt_remote_wake(*ckpt_remote_of(s));
	(void)ckpt_job_wake(job_of(s));
}

bool ckpt_evict_may_help(struct ckpt_store *s, int64_t since_ns)
{
	const struct ckpt_evict *e = ckpt_evict_of(s);
	struct ckpt_remote_queue queue;
	int64_t last_ns;

	if (!job_of(s))
		return false;
	ckpt_remote_queue(*ckpt_remote_of(s), &queue);
	last_ns = MAX(ckpt_remote_progressed_ns(*ckpt_remote_of(s)), __atomic_load_n(&e->removed_ns, __ATOMIC_RELAXED));
	return ckpt_sys.mono_ns() - MAX(since_ns, last_ns) <
	       (queue.steps ? CKPT_EVICT_PATIENCE_NS : CKPT_EVICT_LAST_NS);
}

int ckpt_evict_start(struct ckpt_store *s)
{
	const struct ckpt_job_of of = {"evict", CKPT_JOB_PROMPT, turn, s, false};

	return !*ckpt_remote_of(s) || s->settings.work_limit == CKPT_LIMIT_NONE
		       ? 0
		       : ckpt_job_new(s->jobs, &of, &ckpt_evict_of(s)->job);
}

struct ckpt_part ckpt_evict_unreadable_part = {.bytes = sizeof(struct ckpt_evict_unreadable)};
struct ckpt_part ckpt_evict_part = {.bytes = sizeof(struct ckpt_evict)};

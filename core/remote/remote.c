#include "core/remote/remote.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/objects/stack.h"
#include "core/remote/ahead.h"
#include "core/remote/early_push.h"
#include "core/remote/expired.h"
#include "core/remote/fetch.h"
#include "core/remote/known.h"
#include "core/remote/near.h"
#include "core/remote/place.h"
#include "core/remote/push.h"
#include "core/remote/push_value.h"
#include "core/remote/reunion.h"
#include "core/remote/snapshots.h"
#include "core/remote/tree.h"
#include "core/remote/tree_large.h"
#include "core/remote/yield.h"
#include "core/state/difference.h"
#include "core/state/plain.h"
#include "core/step/follow.h"

#include <stdio.h>
#include <unistd.h>

#define POLL_NS INT64_C(2000000000)
#define AGAIN_FIRST_NS INT64_C(1000000000) // after a failure; twice that after the next one
#define AGAIN_MOST_NS INT64_C(60000000000)
#define TELL_NS INT64_C(3600000000000) // between two lines of the error log that say the same
#define OPTIONS_MAX 64
#define READ_NS INT64_C(60000000000) // so long another thread waits until the log is read
#define NEWS_NS INT64_C(10000000000) // the same of a reader
#define NAP_NS INT64_C(10000000)

struct ckpt_remote {
	struct ckpt_store *store;
	char node[CKPT_UUID_LEN + 1];
	char *url;
	struct ckpt_log *log;
	struct ckpt_tree *tree;
	struct ckpt_job *job;          // NULL: nothing is done behind; atomic
	struct ckpt_early_push *early; // data that is sent before its commit; atomic; NULL: none is
	struct ckpt_failures failures;
	// Of the thread, or of who opens.
	bool loaded;       // the steps are: what is read shows in the plain tree at once
	bool news;         // entries were read that the steps, or their edits, do not follow yet
	bool apart;        // some steps could not be put together yet (core/save/reunite.h)
	bool snapshot_due; // this node has put an entry by which a snapshot may be due
	bool proved;       // the remote keeps to what a log needs (place.h); atomic
	bool far;          // it had to read so many entries that the next node is to find a snapshot
	int64_t again_ns;  // what it waits after the next failure
	int64_t tried_ns;  // of push.h, as the next one
	struct ckpt_hold hold;
	struct ckpt_push_older older;

	// Guarded by the store's acts_lock.
	struct ckpt_known *following, *untold; // while the steps follow; what clients do not know yet
	bool follows;                          // the steps, in the thread itself

	int64_t progressed_ns;          // of push.h; atomic
	struct ckpt_remote_turns turns; // each atomic
	struct ckpt_remote_turns reads; // of the log; the same

	struct ckpt_lock lock;
	// Guarded by lock.
	int64_t failing_since_ns, told_ns; // monotonic; 0: it answers
	int told, error;                   // the last failure; 0: it answers
	struct ckpt_put_off put_off;       // when the last exchange came to its end
};

// --- Opening ----------------------------------------------------------------------------------------------------------

static int take_options(const json_t *remote, const char *ret_options[OPTIONS_MAX + 1])
{
	const json_t *options = json_object_get(remote, "options");
	size_t count = json_array_size(options);

	if (count > OPTIONS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < count; i++) {
		ret_options[i] = json_string_value(json_array_get(options, i));
		if (!ret_options[i])
			return -EINVAL;
	}
	ret_options[count] = NULL;
	return 0;
}

static int open_objects(struct ckpt_remote *r, const json_t *remote, char *why)
{
	const char *options[OPTIONS_MAX + 1];
	struct ckpt_objects *there = NULL, *near;
	int rc = take_options(remote, options);

	if (!rc)
		rc = ckpt_objects_open(&(struct ckpt_objects_at){.url = r->url,
								 .dirfd = -1,
								 .writable = r->store->writable,
								 .options = options,
								 .why = why},
				       &there);
	if (!rc)
		rc = ckpt_near_new(r->store->objects, there, &near);
	if (rc)
		ckpt_objects_close(there);
	else
		r->store->objects = near;
	return rc;
}

int ckpt_remote_open(struct ckpt_store *s, const json_t *identity, char why[CKPT_OBJECTS_WHY_MAX])
{
	const json_t *remote = json_object_get(identity, "remote");
	const char *url = json_string_value(json_object_get(remote, "url"));
	const char *node = json_string_value(json_object_get(identity, "node"));
	struct ckpt_remote *r;
	int rc;

	if (!url || !node)
		return 0;
	r = ckpt_calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->store = s;
	r->again_ns = AGAIN_FIRST_NS;
	r->tried_ns = ckpt_sys.now_ns();
	snprintf(r->node, sizeof(r->node), "%s", node);
	ckpt_lock_init(&r->lock, CKPT_LOCK_LEAF);
	ckpt_failures_init(&r->failures);
	r->url = strdup(url);
	r->proved = ckpt_remote_is_proved(remote);
	rc = r->url ? open_objects(r, remote, why) : -ENOMEM;
	if (!rc)
		rc = ckpt_tree_new(s, node, &r->failures, &r->tree);
	if (rc)
		ckpt_remote_close(r);
	else
		*ckpt_remote_of(s) = r;
	return rc;
}

void ckpt_remote_close(struct ckpt_remote *r)
{
	if (!r)
		return;
	ckpt_tree_free(r->tree);
	ckpt_log_free(r->log);
	ckpt_failures_done(&r->failures);
	ckpt_push_older_done(&r->older);
	ckpt_lock_done(&r->lock);
	free(r->url);
	free(r);
}

// --- Pulling ----------------------------------------------------------------------------------------------------------

static int follow(struct ckpt_remote *r);

static bool is_on_tree(const struct ckpt_log_entry *entry)
{
	struct ckpt_operation op;
	size_t cursor = 0;

	while (ckpt_log_entry_next(entry, &cursor, &op))
		if (ckpt_act_is_on_tree(op.kind))
			return true;
	return false;
}

// The steps of the entries before show first, the tree before those behind: who sees a tracker sees the step that it names.
static int take_entry(void *arg, const struct ckpt_log_entry *entry)
{
	struct ckpt_remote *r = arg;
	bool on_tree = r->loaded && is_on_tree(entry);
	int rc = on_tree ? follow(r) : 0;

	r->news = true;
	if (!strcmp(entry->node, r->node) && entry->seq % CKPT_SNAPSHOTS_ENTRIES == 0)
		r->snapshot_due = true;
	if (!rc)
		rc = ckpt_expired_pull(
			r->store, &(struct ckpt_pull){.host = "", .entry = entry->data, .entry_len = entry->data_len},
			1);
	if (!rc && on_tree)
		ckpt_tree_carry_out(r->tree);
	if (!rc && r->loaded)
		ckpt_fetch_after(r->store, entry);
	return rc;
}

struct position {
	bool attached;
	struct ckpt_log_position at;
};

static int look_at_position(void *arg, const struct ckpt_state *state)
{
	struct position *p = arg;

	p->attached = ckpt_state_is_attached(state);
	p->at = ckpt_state_remote(state);
	return 0;
}

// The name of this machine, as a part of names of steps.
static void host_name(char ret_host[CKPT_PULL_HOST_MAX + 1])
{
	if (gethostname(ret_host, CKPT_PULL_HOST_MAX + 1))
		*ret_host = '\0';
	ret_host[CKPT_PULL_HOST_MAX] = '\0';
	if (!ckpt_pull_is_host(ret_host, strlen(ret_host)))
		strcpy(ret_host, "node");
}

static int attach(struct ckpt_remote *r)
{
	char host[CKPT_PULL_HOST_MAX + 1];

	host_name(host);
	return ckpt_journal_pull(r->store->journal, &(struct ckpt_pull){.host = host}, 1);
}

static void tell_failure(struct ckpt_remote *r, int rc)
{
	char why[CKPT_OBJECTS_WHY_MAX];

	ckpt_objects_why(ckpt_near_there(r->store->objects), why);
	ckpt_errlog_add(r->store->errlog, "remote", rc,
			"nothing is lost: what waits is pushed once it answers; `ckptfs status` says how much",
			"%s: %s%s%s", r->url, strerror(-rc), *why ? ": " : "", why);
}

static void note_failure(struct ckpt_remote *r, int rc)
{
	LOCK_SCOPE(&r->lock);

	if (!r->failing_since_ns)
		r->failing_since_ns = ckpt_sys.mono_ns();
	r->error = rc;
}

// The entry that this node has read last is still that. Another one, or none: the remote was put back to an earlier state, or is another's.
static int check_position(struct ckpt_remote *r, const struct ckpt_log_position *at)
{
	struct ckpt_objects *there = ckpt_near_there(r->store->objects);
	uint8_t sha256[CKPT_SHA256_LEN];
	CLEANUP_FREE void *data = NULL;
	char key[CKPT_LOG_KEY_MAX];
	size_t len;
	int rc;

	if (!at->seq)
		return 0;
	ckpt_log_key(at->seq, key);
	rc = ckpt_objects_get_all(there, key, CKPT_LOG_ENTRY_BYTES_MAX, &data, &len, NULL);
	if (rc)
		return rc == -ENOENT || rc == -EFBIG ? -EREMCHG : rc;
	ckpt_sha256(data, len, sha256);
	return memcmp(sha256, at->sha256, sizeof(sha256)) ? -EREMCHG : 0;
}

// The store may be elsewhere for a while, and is there again.
static bool is_away(int rc)
{
	return rc == -EIO || rc == -ETIMEDOUT || rc == -EAGAIN || rc == -EACCES || rc == -ECANCELED;
}

static struct position position(struct ckpt_remote *r)
{
	struct position p;

	(void)ckpt_journal_look(r->store->journal, look_at_position, &p);
	return p;
}

// Some entries at once. How many; -errno of the node's own log.
static int read_some(struct ckpt_remote *r, size_t count)
{
	struct ckpt_log_position at = position(r).at, was = at;
	struct ckpt_ahead_entry entries[CKPT_AHEAD_MAX];
	struct ckpt_pull pulls[CKPT_AHEAD_MAX];
	size_t n = ckpt_ahead_read(ckpt_near_there(r->store->objects), &at, count, entries);
	int rc;

	for (size_t i = 0; i < n; i++)
		pulls[i] = (struct ckpt_pull){.host = "", .entry = entries[i].data, .entry_len = entries[i].len};
	rc = n ? ckpt_expired_pull(r->store, pulls, n) : 0;
	ckpt_ahead_free(entries, n);
	if (rc == -EBADMSG || rc == -ENOTSUP || rc == -EFBIG) // who reads them one by one says which
		return 0;
	return rc ? rc : (int)(position(r).at.seq - was.seq);
}

// The first entry alone: where there is none, that is all. It is the one that this node may have put before it ended, so that all behind it
// is by others, and a snapshot may take its place.
static int read_ahead(struct ckpt_remote *r)
{
	int n = read_some(r, 1), count = 1;
	uint64_t read = 0;
	int rc = n == count ? ckpt_snapshots_jump(r->store) : MIN(n, 0);

	while (!rc && n == count) {
		count = read ? CKPT_AHEAD_MAX : CKPT_AHEAD_THREADS;
		n = read_some(r, (size_t)count);
		rc = MIN(n, 0);
		read += (uint64_t)MAX(n, 0);
	}
	r->far = read >= CKPT_SNAPSHOTS_READ;
	return rc;
}

int ckpt_remote_catch_up(struct ckpt_remote *r)
{
	struct position p = position(r);
	int rc = p.attached ? 0 : attach(r);

	if (!rc)
		rc = check_position(r, &p.at);
	if (!rc)
		rc = read_ahead(r);
	if (!rc || (p.attached && is_away(rc))) {
		struct ckpt_log_position at = position(r).at;
		int made = ckpt_log_new(ckpt_near_there(r->store->objects), r->store->id, r->node, at.seq ? &at : NULL,
					false, take_entry, r, &r->log);

		rc = made ? made : rc ? rc : ckpt_log_read(r->log);
	}
	if (p.attached && is_away(rc)) {
		note_failure(r, rc);
		tell_failure(r, rc);
		rc = 0;
	}
	r->news = true;
	return rc;
}

// An act of any thread finds out what was read, too, and the steps follow it (follow.h). Clients are told of the changes by the thread of
// the remote alone: an act that is not over may still name the steps and files that it began with.
static int before_follow(void *arg)
{
	struct ckpt_remote *r = arg;

	return ckpt_known_new(r->store, &r->following);
}

static void after_follow(void *arg)
{
	struct ckpt_remote *r = arg;

	if (ckpt_known_add_changed(&r->untold, TAKE_PTR(r->following)) && !r->follows)
		ckpt_remote_wake(r);
}

void ckpt_remote_ready(struct ckpt_remote *r)
{
	if (!r)
		return;
	r->loaded = true;
	r->store->calls.before_follow = before_follow;
	r->store->calls.after_follow = after_follow;
	r->store->calls.follow_arg = r;
	ckpt_tree_carry_out(r->tree);
}

struct ckpt_tree *ckpt_remote_tree(struct ckpt_remote *r)
{
	return r ? r->tree : NULL;
}

// --- Behind -----------------------------------------------------------------------------------------------------------

// The steps follow what was read.
static int follow(struct ckpt_remote *r)
{
	CLEANUP(ckpt_known_free) struct ckpt_known *k = NULL;
	struct ckpt_yielded yielded = {0};
	struct ckpt_store *s = r->store;
	bool due;
	int rc = 0;

	if (r->loaded && r->news)
		ckpt_reunion_fetch(s, r->job);
	ckpt_lock_take(&s->acts_lock);
	due = r->news || s->behind || r->untold || r->apart;
	r->follows = true;
	if (r->news || s->behind)
		rc = ckpt_follow(s);
	if (!rc && r->loaded && s->behind && ckpt_yield_names(s, &yielded))
		rc = ckpt_follow(s);
	r->follows = false;
	k = TAKE_PTR(r->untold);
	ckpt_known_renew(k);
	if (!rc)
		r->news = false;
	ckpt_lock_drop(&s->acts_lock);
	ckpt_yield_tell(&yielded);
	ckpt_known_tell(k);
	if (!rc && due)
		rc = ckpt_reunion_all(s, &r->apart);
	ckpt_known_tell_lost_names(k);
	return rc;
}

static int read_log(struct ckpt_remote *r)
{
	uint64_t number = __atomic_add_fetch(&r->reads.begun, 1, __ATOMIC_RELAXED);
	int rc = ckpt_log_is_settled(r->log) ? 0 : ckpt_log_settle(r->log), followed;

	if (rc == -ENOENT || rc == -EEXIST)
		rc = 0;
	if (!rc)
		rc = ckpt_log_read(r->log);
	followed = follow(r); // what was read shows, even if the rest cannot be read now
	rc = rc ? rc : followed;
	if (!rc)
		__atomic_store_n(&r->reads.ended, number, __ATOMIC_RELEASE);
	return rc;
}

// The plain tree may push now all that was done before the first step that waits. Such a step is in a folder that the log knows.
struct ahead {
	const struct ckpt_failure_list *failed;
	bool keeps_deleted;
	uint64_t before;
	bool lacks_folder;
};

static int look_ahead(void *arg, const struct ckpt_state *state)
{
	struct ahead *a = arg;
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

	a->before = ckpt_push_place(state, a->failed, a->keeps_deleted);
	a->lacks_folder = false;
	for (size_t i = 0; i < count && !a->lacks_folder; i++)
		a->lacks_folder = !changed[i]->deleted_by && *changed[i]->is.folder_id &&
				  !ckpt_state_plain_folder(state, changed[i]->is.folder_id);
	return 0;
}

// Before the first thing that this node writes there.
static int prove(struct ckpt_remote *r)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	int rc = ckpt_remote_proved(r) ? 0 : ckpt_remote_prove(r->store->path, why);

	if (rc == -EPROTO)
		ckpt_errlog_add(r->store->errlog, "remote", rc, "take another server; `ckptfs doctor` says more",
				"nothing is pushed to %s, since a store there would lose steps: %s", r->url, why);
	if (!rc)
		__atomic_store_n(&r->proved, true, __ATOMIC_RELAXED);
	return rc;
}

static void keep_put_off(struct ckpt_remote *r, const struct ckpt_put_off *put_off)
{
	LOCK_SCOPE(&r->lock);

	r->put_off = *put_off;
}

static int push(struct ckpt_remote *r, struct ckpt_job *job)
{
	struct ckpt_put_off put_off;
	struct ckpt_push p = {.store = r->store,
			      .log = r->log,
			      .node = r->node,
			      .job = job,
			      .tried_ns = &r->tried_ns,
			      .progressed_ns = &r->progressed_ns,
			      .failures = &r->failures,
			      .early = __atomic_load_n(&r->early, __ATOMIC_ACQUIRE),
			      .hold = &r->hold,
			      .older = &r->older,
			      .put_off = &put_off};
	CLEANUP(ckpt_failure_list_done) struct ckpt_failure_list failed;
	char name[CKPT_NAME_MAX + 1];
	struct ahead ahead = {.failed = &failed};
	int rc;

	ckpt_failures_follow(&r->failures, r->store->journal);
	rc = ckpt_failures_list(&r->failures, &failed);
	if (rc)
		return rc;
	p.failed = &failed;
	ahead.keeps_deleted = ckpt_tree_holds_deletions(r->tree);
	(void)ckpt_journal_look(r->store->journal, look_ahead, &ahead);
	rc = ckpt_tree_push(r->tree, r->log, ahead.before, ahead.lacks_folder);
	p.keeps_deleted = ckpt_tree_holds_deletions(r->tree);
	if (!rc)
		rc = ckpt_push_value(r->store, r->log, r->node);
	if (!rc)
		rc = ckpt_push_next(&p, name);
	else
		return rc;
	if (!rc)
		keep_put_off(r, &put_off);
	return rc;
}

static int exchange(struct ckpt_remote *r, struct ckpt_job *job)
{
	int rc = 1;

	ckpt_tree_pace(r->tree, &(struct ckpt_tree_pace){.go_on = ckpt_job_go_on, .arg = job});
	while (rc > 0 && !ckpt_job_stops(job)) {
		rc = read_log(r);
		if (!rc)
			rc = prove(r);
		if (!rc)
			rc = push(r, job);
	}
	return MIN(rc, 0);
}

static void succeeded(struct ckpt_remote *r)
{
	LOCK_SCOPE(&r->lock);

	r->failing_since_ns = r->told_ns = 0;
	r->error = 0;
	r->again_ns = AGAIN_FIRST_NS;
}

static int64_t failed(struct ckpt_remote *r, int rc)
{
	int64_t now_ns = ckpt_sys.mono_ns(), again_ns = r->again_ns;
	bool tells;

	note_failure(r, rc);
	ckpt_lock_take(&r->lock);
	tells = !r->told_ns || r->told != rc || now_ns - r->told_ns >= TELL_NS;
	if (tells) {
		r->told_ns = now_ns;
		r->told = rc;
	}
	ckpt_lock_drop(&r->lock);
	if (tells)
		tell_failure(r, rc);
	r->again_ns = MIN(again_ns * 2, AGAIN_MOST_NS);
	return now_ns + again_ns;
}

// For the nodes to come. This one does without: what fails is left to the next time that one is due.
static int put_snapshot(struct ckpt_remote *r)
{
	int rc = r->snapshot_due || r->far ? ckpt_snapshots_put(r->store, r->far) : 0;

	r->snapshot_due = r->far = false;
	return rc == -EINTR ? rc : 0;
}

static _Thread_local bool is_remotes; // this thread reads the log itself

static int64_t turn(void *arg, struct ckpt_job *job)
{
	struct ckpt_remote *r = arg;
	int rc;

	__atomic_add_fetch(&r->turns.begun, 1, __ATOMIC_RELAXED);
	is_remotes = true;
	rc = exchange(r, job);
	is_remotes = false;
	if (!rc && !ckpt_job_stops(job))
		__atomic_store_n(&r->turns.ended, r->turns.begun, __ATOMIC_RELEASE);
	if (!rc)
		rc = put_snapshot(r);
	if (rc && rc != -EINTR)
		return failed(r, rc);
	succeeded(r);
	return ckpt_sys.mono_ns() + POLL_NS;
}

// By the thread, from its beginning: one that runs now may have looked before.
static bool read_news(void *arg)
{
	struct ckpt_remote *r = arg;
	int64_t until_ns = ckpt_sys.mono_ns() + NEWS_NS;
	uint64_t begun = __atomic_load_n(&r->reads.begun, __ATOMIC_RELAXED);

	while (__atomic_load_n(&r->reads.ended, __ATOMIC_ACQUIRE) <= begun) {
		if (is_remotes || ckpt_sys.mono_ns() >= until_ns || ckpt_job_stops(r->job))
			return false;
		ckpt_remote_wake(r);
		ckpt_sys.sleep_ns(NAP_NS);
	}
	return true;
}

// Older steps go first: their data would share the way.
static enum ckpt_early_push_may may_send_early(void *arg)
{
	struct ckpt_remote *r = arg;
	struct ckpt_remote_queue queue;

	ckpt_remote_queue(r, &queue);
	return queue.unreachable_ns                        ? CKPT_EARLY_PUSH_NOT
	       : queue.due_bytes || !ckpt_remote_proved(r) ? CKPT_EARLY_PUSH_WAIT
							   : CKPT_EARLY_PUSH_GO;
}

uint64_t ckpt_remote_give_back(struct ckpt_remote *r)
{
	return r ? ckpt_early_push_give_back(__atomic_load_n(&r->early, __ATOMIC_ACQUIRE)) : 0;
}

// Without it, all is sent after its commit.
static void start_early(struct ckpt_remote *r)
{
	const struct ckpt_early_push_of of = {
		.store = r->store, .may = may_send_early, .arg = r, .progressed_ns = &r->progressed_ns};
	struct ckpt_early_push *early;

	if (!ckpt_early_push_new(&of, &early))
		__atomic_store_n(&r->early, early, __ATOMIC_RELEASE);
}

// Other threads of the store run by now, and wake it. A node may be lost at any time, and with it what was not pushed.
int ckpt_remote_start(struct ckpt_remote *r)
{
	const struct ckpt_job_of of = {"remote", CKPT_JOB_HURRIES, turn, r, false};
	int rc;

	if (!r)
		return 0;
	succeeded(r); // the job finds out by itself
	rc = ckpt_job_new(r->store->jobs, &of, &r->job);
	if (rc)
		return rc;
	start_early(r);
	r->store->calls.read_news_arg = r;
	__atomic_store_n(&r->store->calls.read_news, read_news, __ATOMIC_RELEASE);
	return 0;
}

void ckpt_remote_wake(struct ckpt_remote *r)
{
	if (r)
		(void)ckpt_job_wake(__atomic_load_n(&r->job, __ATOMIC_ACQUIRE));
}

bool ckpt_remote_proved(const struct ckpt_remote *r)
{
	return __atomic_load_n(&r->proved, __ATOMIC_RELAXED);
}

const char *ckpt_remote_url(const struct ckpt_remote *r)
{
	return r ? r->url : NULL;
}

const char *ckpt_remote_node(const struct ckpt_remote *r)
{
	return r->node;
}

int ckpt_remote_read_to(struct ckpt_remote *r, uint64_t seq)
{
	int64_t until_ns = ckpt_sys.mono_ns() + READ_NS;
	int rc;

	if (!__atomic_load_n(&r->job, __ATOMIC_ACQUIRE)) {
		rc = read_log(r);
		return rc ? rc : position(r).at.seq < seq ? -ENODATA : 0;
	}
	while (position(r).at.seq < seq) {
		if (ckpt_sys.mono_ns() >= until_ns || ckpt_job_stops(r->job))
			return -ETIMEDOUT;
		ckpt_remote_wake(r);
		ckpt_sys.sleep_ns(NAP_NS);
	}
	return 0;
}

void ckpt_remote_stop(struct ckpt_remote *r)
{
	if (!r)
		return;
	ckpt_early_push_stop(r->early);
	ckpt_job_stop(r->job);
	ckpt_early_push_free(TAKE_PTR(r->early));
	LOCK_SCOPE(&r->store->acts_lock); // others may still make the steps follow
	r->store->calls.before_follow = NULL;
	r->store->calls.after_follow = NULL;
	ckpt_known_free(&r->untold);
}

struct ckpt_remote_turns ckpt_remote_turns(const struct ckpt_remote *r)
{
	struct ckpt_remote_turns turns;

	turns.ended = __atomic_load_n(&r->turns.ended, __ATOMIC_ACQUIRE);
	turns.begun = __atomic_load_n(&r->turns.begun, __ATOMIC_RELAXED);
	return turns;
}

int64_t ckpt_remote_progressed_ns(const struct ckpt_remote *r)
{
	return r ? __atomic_load_n(&r->progressed_ns, __ATOMIC_RELAXED) : 0;
}

// --- What is told -------------------------------------------------------------------------------------------------------

struct counted {
	struct ckpt_remote_queue *queue;
	struct ckpt_put_off put_off;
	struct ckpt_failure_list failed;
};

static bool is_put_off(const struct ckpt_put_off *put_off, const char *session)
{
	for (size_t i = 0; i < put_off->count; i++)
		if (!strcmp(put_off->ids[i], session))
			return true;
	return false;
}

static int count(void *arg, const struct ckpt_state *state)
{
	struct counted *c = arg;
	struct ckpt_remote_queue *q = c->queue;
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];
	size_t changed_count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &changed_count);
	const char *text;

	q->value = ckpt_state_changed_value(state, &text);
	q->files += q->value;
	for (size_t i = 0; i < changed_count; i++) {
		if ((changed[i]->deleted_by || changed[i]->gone) &&
		    (!changed[i]->shared || changed[i]->shared->deleted_by))
			continue; // in the trash here, and there or nowhere: nobody waits for it
		if (ckpt_state_is_left_out(state, changed[i])) {
			q->holds |= ckpt_state_is_dropped(changed[i]) && !changed[i]->until;
			continue;
		}
		if (ckpt_failure_of(&c->failed, changed[i]->id))
			continue;
		q->steps++;
		if (!ckpt_state_has_changed_files(changed[i]))
			continue;
		q->bytes += changed[i]->is.bytes;
		if (!is_put_off(&c->put_off, changed[i]->id) && ckpt_state_difference(state, changed[i], false, acts))
			q->due_bytes += changed[i]->is.bytes;
	}
	return 0;
}

void ckpt_remote_queue(struct ckpt_remote *r, struct ckpt_remote_queue *ret_queue)
{
	struct counted c = {.queue = ret_queue};

	*ret_queue = (struct ckpt_remote_queue){0};
	if (!r)
		return;
	(void)ckpt_failures_list(&r->failures, &c.failed); // without memory it is as if there were none
	ckpt_lock_take(&r->lock);
	c.put_off = r->put_off;
	ckpt_lock_drop(&r->lock);
	(void)ckpt_journal_look(r->store->journal, count, &c);
	ckpt_failure_list_done(&c.failed);
	ret_queue->files += ckpt_tree_waits(r->tree);
	LOCK_SCOPE(&r->lock);
	ret_queue->error = r->error;
	if (r->failing_since_ns)
		ret_queue->unreachable_ns = ckpt_sys.mono_ns() - r->failing_since_ns;
}

bool ckpt_remote_is_put_off(struct ckpt_remote *r, const char *session)
{
	LOCK_SCOPE(&r->lock);

	return is_put_off(&r->put_off, session);
}

int ckpt_remote_failures(struct ckpt_remote *r, struct ckpt_failure_list *ret_list)
{
	*ret_list = (struct ckpt_failure_list){0};
	return r ? ckpt_failures_list(&r->failures, ret_list) : 0;
}

struct ckpt_part ckpt_remote_part = {.bytes = sizeof(struct ckpt_remote *)};

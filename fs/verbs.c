#include "fs/verbs.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/dedupe.h"
#include "core/gc/gc.h"
#include "core/policy/policy_store.h"
#include "core/policy/retain.h"
#include "core/policy/should_save.h"
#include "core/policy/temporary.h"
#include "core/remote/collect.h"
#include "core/remote/queue.h"
#include "core/save/amend.h"
#include "core/save/commit.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/pin.h"
#include "core/save/reopen.h"
#include "core/save/replace.h"
#include "core/save/restore.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/folders.h"
#include "core/step/removal.h"
#include "core/step/shared_settings.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"
#include "fs/change_files.h"
#include "fs/decider.h"
#include "fs/draft.h"
#include "fs/end.h"
#include "fs/folder.h"
#include "fs/handle.h"
#include "fs/shown.h"
#include "fs/status.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

// error is of errno(3), for programs; text for people.
static char *refusal(int error, const char *text, const char *hint)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(text); // it may have a path in it
	json_t *reply = json_pack("{s:s, s:i, s:s?}", "error", clean ? clean : "", "errno", error, "hint", hint);
	char *dump = json_dumps(reply, JSON_COMPACT);

	json_decref(reply);
	return dump;
}

// hint: what to do about it, NULL where nothing better is known than what goes for the error anywhere.
static char *failure(int rc, const char *hint)
{
	return refusal(-rc, strerror(-rc), hint ? hint : ckpt_errno_hint(rc));
}

static char *done(void)
{
	return strdup("{\"ok\":true}");
}

// Of a commit. Whoever has asked for it waits for the object store by himself, as `ckptfs wait` does: a request holds one of few places.
static char *committed(const struct ckpt_fs *fs)
{
	return strdup(fs->store->settings.durability == CKPT_DURABILITY_REMOTE
			      ? "{\"ok\":true,\"durability\":\"remote\"}"
			      : "{\"ok\":true}");
}

// --- abort --------------------------------------------------------------------------------------------------------------

#define UNFINISHED (1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING | 1u << CKPT_STEP_LEFT)

// How well a step fits the words of a user; 0: not at all.
static size_t fitness(struct ckpt_step *step, const char *session)
{
	struct ckpt_step_name now;

	if (!strcmp(step->session, session))
		return 3;
	ckpt_step_name(step, &now);
	return strcmp(now.name, session) ? 0 : ckpt_step_state(step) == CKPT_STEP_LEFT ? 1 : 2;
}

// The unfinished step that session names: by its uuid, or its name, where a staged one comes before left ones. A reference; or
// NULL and why not, malloc'ed.
static struct ckpt_step *find_session(struct ckpt_fs *fs, const char *session, char **ret_refusal)
{
	struct ckpt_step **steps, *found = NULL;
	size_t count, matches = 0, best = 0;
	int rc = ckpt_step_list(fs->store, NULL, UNFINISHED, &steps, &count);

	if (rc) {
		*ret_refusal = failure(rc, NULL);
		return NULL;
	}
	for (size_t i = 0; i < count; i++) {
		size_t fit = fitness(steps[i], session);

		matches = fit > best ? 1 : matches + (fit && fit == best);
		found = fit > best ? steps[i] : found;
		best = MAX(best, fit);
	}
	if (matches == 1)
		ckpt_step_ref(found);
	ckpt_step_list_free(steps, count);
	if (matches == 1)
		return found;
	*ret_refusal =
		matches ? refusal(EINVAL, "several sessions have this name", "name one by its id: `ckptfs sessions`")
			: refusal(ESTALE, "there is no such session", "`ckptfs sessions` lists them");
	return NULL;
}

// The node of a session's directory with a reference, or NULL.
static struct node *session_top(struct ckpt_fs *fs, const struct ckpt_step *step)
{
	struct statx stx;

	if (statx(fs->store->sessions_fd, step->session, AT_SYMLINK_NOFOLLOW, CKPT_STATX_WANT, &stx))
		return NULL;
	if (ckpt_reopen_shares(step))
		return node_find(fs, SPACE_LIVE, step->base->born.dir_ino);
	return node_find(fs, SPACE_LIVE, ckpt_store_ino(&stx));
}

static char *answer_abort(struct ckpt_fs *fs, const char *session)
{
	char *no = NULL;
	struct ckpt_step *step = find_session(fs, session, &no);
	struct node *top;
	int rc;

	if (!step)
		return no;
	top = session_top(fs, step);
	rc = ckpt_stage_abort(step, false);
	if (!rc && top)
		folder_forget(fs, top);
	node_unref(fs, top);
	ckpt_step_unref(step);
	return rc ? failure(rc, rc == -EBUSY ? "it is being committed" : NULL) : done();
}

// --- begin, resume, commit ----------------------------------------------------------------------------------------------

// from: the session of a step, or NULL. "force": a committed step may have the name, and is replaced by the commit.
static char *answer_begin(struct ckpt_fs *fs, const char *path, const char *from_session, const json_t *request)
{
	bool force = json_is_true(json_object_get(request, "force"));
	struct ckpt_step *from = from_session ? ckpt_step_of_session(fs->store, from_session) : NULL;
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *step = NULL;
	json_t *reply = NULL;
	const char *name;
	char *text;
	int rc = from_session && !from ? -ESTALE : 0;

	if (!rc && json_is_true(json_object_get(request, "parents"))) {
		rc = ckpt_folders_make(fs->store, path);
		folder_touch(fs, node_root(fs));
	}
	if (!rc)
		rc = ckpt_folders_place(fs->store, path, id, &name);
	if (!rc && force)
		rc = ckpt_replace_begin(fs->store, id, name, 0755, geteuid(), getegid(), 0, &step);
	else if (!rc)
		rc = ckpt_stage_begin_from(fs->store, id, name, from,
					   json_is_true(json_object_get(request, "add_only")), &step);
	ckpt_step_unref(from);
	if (rc)
		return failure(rc, ckpt_replace_hint(rc));
	reply = json_pack("{s:b, s:s}", "ok", 1, "session", step->session);
	text = json_dumps(reply, JSON_COMPACT);
	json_decref(reply);
	ckpt_step_unref(step);
	return text;
}

static int resume(struct ckpt_fs *fs, struct ckpt_step *step)
{
	struct node *top = session_top(fs, step); // it has a name under .ckptfs/staged
	int rc = ckpt_stage_resume(step);

	if (!rc && top)
		folder_forget(fs, top);
	node_unref(fs, top);
	return rc;
}

static char *answer_resume(struct ckpt_fs *fs, const char *session)
{
	char *no = NULL;
	struct ckpt_step *step = find_session(fs, session, &no);
	int rc = step ? resume(fs, step) : 0;

	if (rc == -ESTALE && ckpt_stage_is_interrupted(step))
		rc = 0; // it was staged again when the store was opened
	ckpt_step_unref(step);
	return !step           ? no
	       : rc == -ESTALE ? refusal(ESTALE, "it is staged already", NULL)
	       : rc == -ENOTDIR
		       ? refusal(ENOTDIR, "it is one file, not a step", "copy it from .ckptfs/staged in the mount")
	       : rc ? failure(rc, ckpt_move_hint(rc))
		    : done();
}

static bool is_ending(void *arg)
{
	const struct ckpt_fs *fs = arg;

	return __atomic_load_n(&fs->ending, __ATOMIC_ACQUIRE);
}

// over: what the step is called from then on, instead of one that is there; NULL: as it is.
static int commit_as(struct ckpt_fs *fs, struct ckpt_step *step, struct ckpt_commit *how, const char *over)
{
	char id[CKPT_FOLDER_ID_LEN + 1];
	struct ckpt_step *replaced;
	struct node *top;
	int rc = over ? ckpt_folders_place(fs->store, over, id, &how->name) : 0;

	if (rc || !over)
		return rc ? rc : ckpt_commit(step, how);
	how->folder_id = id;
	top = session_top(fs, step); // it has another name so far
	rc = ckpt_replace_commit(step, how, &replaced);
	if (!rc && top)
		folder_forget(fs, top);
	if (!rc && replaced)
		folder_step_gone(fs, replaced);
	if (!rc)
		ckpt_step_unref(replaced);
	node_unref(fs, top);
	return rc;
}

// A left-over file is published under its name.
static char *answer_commit_file(struct ckpt_fs *fs, struct ckpt_step *left)
{
	int rc = draft_commit(fs, left);

	return rc == -ENOENT ? refusal(ENOENT, "its folder does not exist any more",
				       "copy it from .ckptfs/staged in the mount")
	       : rc == -EBUSY
		       ? refusal(EBUSY, "a process is writing it", "it is published when the last process closes it")
	       : rc == -EINVAL ? refusal(EINVAL, "it is cut off, and would replace a whole file of its name",
					 "copy it from .ckptfs/staged in the mount, or move the other file away first")
	       : rc            ? failure(rc, ".ckptfs/errors in the mount says more")
			       : done();
}

static char *answer_commit(struct ckpt_fs *fs, const char *session, const json_t *request)
{
	const char *over = json_string_value(json_object_get(request, "to"));
	struct ckpt_commit how = {
		.event = json_string_value(json_object_get(request, "event")) ?: "verb",
		.profile = json_string_value(json_object_get(request, "profile")) ?: "generic",
		.metadata = json_string_value(json_object_get(request, "metadata")),
		.writers_ns = fs->store->settings.open_writers_ns,
		.abandoned = is_ending,
		.abandoned_arg = fs,
	};
	char *no = NULL;
	struct ckpt_step *step = find_session(fs, session, &no);
	bool whole = true;
	struct node *top;
	int rc = 0;

	// Who asks again had no answer: of this process, or of one that died before all was on disk.
	if (!step && (step = ckpt_step_live_session(fs->store, session))) {
		free(no);
		rc = ckpt_sys.syncfs(fs->store->dirfd);
	}
	if (!step)
		return no;
	if (!rc && ckpt_step_state(step) == CKPT_STEP_LEFT && ckpt_staging_of(step)->is_file && !over) {
		char *answer = answer_commit_file(fs, step);

		ckpt_step_unref(step);
		return answer;
	}
	if (!rc)
		whole = !ckpt_reopen_check_whole(step);
	if (!rc && whole && ckpt_step_state(step) == CKPT_STEP_LEFT) {
		rc = resume(fs, step);
		whole = rc || !ckpt_reopen_check_whole(step);
	}
	if (!rc && whole)
		rc = commit_as(fs, step, &how, over);
	if (!rc && whole) {
		top = session_top(fs, step);
		if (top)
			folder_touch_above(fs, top);
		else if (!*step->folder_id)
			folder_touch(fs, node_root(fs));
		node_unref(fs, top);
	}
	ckpt_step_unref(step);
	if (!whole)
		return refusal(EINVAL, "a file of it, which .ckptfs/errors names, is cut off",
			       "`ckptfs abort` keeps the version before; or write that file again first");
	if (rc == -ENOTDIR)
		return refusal(ENOTDIR, "it is one file, not a step", "copy it from .ckptfs/staged in the mount");
	return rc ? failure(rc, ".ckptfs/errors in the mount says more") : committed(fs);
}

// --- delete, undelete, move ---------------------------------------------------------------------------------------------

// space: where its nodes were before it was deleted.
static void forget_step(struct ckpt_fs *fs, struct ckpt_step *step, uint64_t space)
{
	struct node *top = node_find(fs, space, step->born.dir_ino);

	if (top)
		folder_forget(fs, top);
	node_unref(fs, top);
}

// for_good: of what is in the trash already nothing is kept, either.
static char *answer_delete(struct ckpt_fs *fs, const char *session, bool for_good, bool deleted_only)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = step ? 0 : -ESTALE;

	if (!rc && ckpt_step_state(step) == CKPT_STEP_COMMITTED) {
		uint64_t space = node_space(step);

		rc = deleted_only ? -ESTALE : for_good ? ckpt_delete_for_good(step) : ckpt_delete(step);
		if (ckpt_step_state(step) != CKPT_STEP_COMMITTED)
			forget_step(fs, step, space);
	} else if (!rc && for_good) {
		rc = ckpt_expire_at_once(step);
	}
	ckpt_step_unref(step);
	return rc ? failure(rc, for_good ? ckpt_expire_hint(rc) : ckpt_delete_hint(rc)) : done();
}

static int retain(struct ckpt_fs *fs, struct ckpt_step *const *steps, size_t count, json_t *results)
{
	uint64_t spaces[CKPT_RETAIN_MAX];
	int each[CKPT_RETAIN_MAX], rc;

	for (size_t i = 0; i < count; i++)
		spaces[i] = steps[i] ? node_space(steps[i]) : 0;
	rc = ckpt_retain(fs->store, steps, count, each);
	for (size_t i = 0; i < count && !rc; i++) {
		if (!each[i])
			forget_step(fs, steps[i], spaces[i]);
		json_array_append_new(results, json_integer(-each[i]));
	}
	return rc;
}

// {"results": [errno, ...]}, in the order of the sessions.
static char *answer_retain(struct ckpt_fs *fs, const json_t *sessions)
{
	struct ckpt_step *steps[CKPT_RETAIN_MAX];
	size_t count = json_array_size(sessions);
	json_t *results, *reply;
	char *text;
	int rc;

	if (count > CKPT_RETAIN_MAX)
		return failure(-EINVAL, NULL);
	results = json_array();
	for (size_t i = 0; i < count; i++) {
		const char *session = json_string_value(json_array_get(sessions, i));

		steps[i] = session ? ckpt_step_of_session(fs->store, session) : NULL; // that one is gone
	}
	rc = retain(fs, steps, count, results);
	for (size_t i = 0; i < count; i++)
		ckpt_step_unref(steps[i]);
	reply = json_pack("{s:b, s:o}", "ok", 1, "results", results);
	text = rc ? failure(rc, ckpt_delete_hint(rc)) : json_dumps(reply, JSON_COMPACT);
	json_decref(reply);
	return text;
}

static char *answer_remove(struct ckpt_fs *fs, const char *session, const char *path)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	struct ckpt_manifest *m = NULL;
	int rc = !step ? -ESTALE : ckpt_removal_hides(step) ? -EBUSY : ckpt_step_manifest(step, &m);

	if (!rc) {
		handle_back_all(fs, step);
		rc = ckpt_amend_remove(step, path);
	}
	if (!rc)
		shown_forget(fs, step, m, path);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	return rc ? failure(rc, ckpt_delete_hint(rc)) : done();
}

// Of a step that clients see: they see what becomes of it.
static int change(struct ckpt_fs *fs, struct ckpt_step *step, int (*fn)(void *arg, struct ckpt_step *step), void *arg)
{
	struct ckpt_manifest *was = NULL, *is = NULL;
	int rc = ckpt_step_manifest(step, &was);

	if (!rc) {
		handle_back_all(fs, step);
		rc = fn(arg, step);
	}
	if (!rc && !ckpt_step_manifest(step, &is))
		shown_change(fs, step, was, is);
	ckpt_manifest_unref(was);
	ckpt_manifest_unref(is);
	return rc;
}

static int restore(void *arg, struct ckpt_step *step)
{
	return ckpt_restore(step, *(const uint32_t *)arg);
}

static int change_several(void *arg, struct ckpt_step *step)
{
	return change_files(step, arg);
}

static char *answer_change(struct ckpt_fs *fs, const char *session, const char *text)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = step ? change(fs, step, change_several, (void *)text) : -ESTALE;

	ckpt_step_unref(step);
	return rc ? failure(rc, rc == -ESTALE ? "it was changed meanwhile: try again" : ckpt_delete_hint(rc)) : done();
}

static char *answer_restore(struct ckpt_fs *fs, const char *session, int64_t version)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	uint32_t number = (uint32_t)version;
	int rc = !step ? -ESTALE : version <= 0 || version > UINT32_MAX ? -EINVAL : change(fs, step, restore, &number);
	struct ckpt_version *now = step ? ckpt_step_version(step) : NULL;
	json_t *reply;
	char *text;

	if (rc) {
		text = failure(rc, ckpt_restore_hint(rc));
	} else {
		reply = json_pack("{s:b, s:I}", "ok", 1, "version", (json_int_t)now->is.version);
		text = json_dumps(reply, JSON_COMPACT);
		json_decref(reply);
	}
	ckpt_version_unref(now);
	ckpt_step_unref(step);
	return text;
}

// One flag of it: is it pinned, is it permanent.
static char *answer_flag(struct ckpt_fs *fs, const char *session, const char *verb)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = !step ? -ESTALE : !strcmp(verb, "promote") ? ckpt_promote(step) : ckpt_pin(step, !strcmp(verb, "pin"));

	ckpt_step_unref(step);
	if (rc == -EBUSY || rc == -ESTALE)
		return failure(rc, "it is gone, or being removed or changed; `ckptfs ls --all` lists the steps");
	return rc ? failure(rc, NULL) : done();
}

#define TELL_NS INT64_C(100000000)

// Who waits for an answer that takes long.
struct peer {
	int fd;
	bool listens; // and wants to hear how far it is (ask.h)
	struct ckpt_lock lock;
	uint64_t untold; // bytes; guarded by lock, as is
	int64_t told_ns;
};

static struct peer peer_of(const json_t *request, int fd)
{
	return (struct peer){.fd = fd,
			     .listens = json_is_true(json_object_get(request, "progress")),
			     .lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF)};
}

static void tell(struct peer *p, uint64_t bytes)
{
	int64_t now_ns = ckpt_sys.mono_ns();
	char line[32];
	int len;
	LOCK_SCOPE(&p->lock);

	p->untold += bytes;
	if (!p->listens || now_ns - p->told_ns < TELL_NS)
		return;
	len = snprintf(line, sizeof(line), "+%" PRIu64 "\n", p->untold);
	if (send(p->fd, line, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) == len)
		p->untold = 0;
	p->told_ns = now_ns;
}

// What is read without anybody who waits for it, the mount does behind, and slower.
static bool goes_on(void *arg, uint64_t bytes)
{
	struct peer *p = arg;
	struct pollfd peer = {.fd = p->fd};

	tell(p, bytes);
	return !end_has_begun() && (poll(&peer, 1, 0) != 1 || !(peer.revents & (POLLHUP | POLLERR)));
}

static char *answer_seal(struct ckpt_fs *fs, const char *session, struct peer *peer)
{
	const struct ckpt_seal_how how = {.go_on = goes_on, .arg = peer};
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = step ? ckpt_seal(step, &how) : -ESTALE;

	ckpt_step_unref(step);
	if (rc == -EBUSY || rc == -ESTALE)
		return failure(rc, "it is gone, or being removed or changed; `ckptfs ls --all` lists the steps");
	return rc ? failure(rc, rc == -EINTR ? "the mount is ending" : ".ckptfs/errors in the mount says more")
		  : done();
}

// only: a glob, or NULL.
static char *answer_tier(struct ckpt_fs *fs, const char *session, bool cools, const char *only, struct peer *peer)
{
	const struct ckpt_tier_how how = {
		.go_on = goes_on, .arg = peer, .pack_bytes = fs->store->settings.pack_bytes, .only = only};
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	struct ckpt_tier_done tier = {0};
	json_t *reply;
	char *text;
	int rc = !step ? -ESTALE : cools ? ckpt_cool_sealed(step, &how, &tier) : ckpt_warm(step, &how, &tier);

	ckpt_step_unref(step);
	if (rc)
		return failure(rc, ckpt_tier_hint(rc));
	reply = json_pack("{s:b, s:I, s:I, s:I}", "ok", 1, "files", (json_int_t)tier.files, "bytes",
			  (json_int_t)tier.bytes, "stored_bytes", (json_int_t)tier.stored_bytes);
	text = json_dumps(reply, JSON_COMPACT);
	json_decref(reply);
	return text;
}

static char *answer_collect(struct ckpt_fs *fs, const json_t *request, struct peer *peer)
{
	const struct ckpt_collect_how how = {
		.grace_ns = json_integer_value(json_object_get(request, "grace_ns")),
		.delay_ns = json_integer_value(json_object_get(request, "delay_ns")),
		.dry_run = json_is_true(json_object_get(request, "dry_run")),
		.force = json_is_true(json_object_get(request, "force")),
		.repack = {.bytes_max = UINT64_MAX},
		.go_on = goes_on,
		.arg = peer,
	};
	struct ckpt_collect_done did;
	int rc = how.grace_ns < 0 || how.delay_ns < 0 ? -EINVAL : ckpt_collect(fs->store, &how, &did);

	if (!rc)
		return ckpt_collect_json(&did);
	return rc != -EINVAL && *did.why ? refusal(-rc, did.why, ckpt_collect_hint(rc))
					 : failure(rc, rc == -EINTR ? "the mount is ending" : NULL);
}

static bool is_waited_for(void *arg)
{
	return goes_on(arg, 0);
}

static char *answer_gc(struct ckpt_fs *fs, const json_t *request, struct peer *peer)
{
	const json_t *grace = json_object_get(request, "grace_ns");
	const struct ckpt_gc_how how = {
		.grace_ns = json_is_integer(grace) ? json_integer_value(grace) : CKPT_GC_GRACE_NS,
		.dry_run = json_is_true(json_object_get(request, "dry_run")),
		.force = json_is_true(json_object_get(request, "force")),
		.repack = {.none = json_is_true(json_object_get(request, "no_repack"))},
		.go_on = is_waited_for,
		.arg = peer,
	};
	struct ckpt_gc_done did;
	int rc = how.grace_ns < 0 ? -EINVAL : ckpt_gc(fs->store, &how, &did);

	if (!rc)
		return ckpt_gc_json(&did);
	return rc != -EINVAL && *did.why ? refusal(-rc, did.why, ckpt_gc_hint(rc))
					 : failure(rc, rc == -EINTR ? "the mount is ending" : NULL);
}

// --- remote -------------------------------------------------------------------------------------------------------------

static char *answer_remote(struct ckpt_fs *fs, bool syncs)
{
	struct ckpt_remote *r = *ckpt_remote_of(fs->store);

	if (!r)
		return refusal(EOPNOTSUPP, "a local store has no object store", "`ckptfs remote add` gives it one");
	if (syncs)
		ckpt_remote_wake(r);
	return ckpt_queue_json(fs->store);
}

static char *answer_drop(struct ckpt_fs *fs, const char *session)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = step ? ckpt_queue_drop(step) : -ESTALE;

	ckpt_step_unref(step);
	return rc ? failure(rc, ckpt_queue_drop_hint(rc)) : done();
}

// --- policy, should-save, preempt ---------------------------------------------------------------------------------------------

static char *answer_should_save(struct ckpt_fs *fs, int64_t step, const json_t *request)
{
	CLEANUP_FREE char *why = NULL;
	struct ckpt_decide q = {.step = step,
				.run = json_string_value(json_object_get(request, "run")),
				.force = json_is_true(json_object_get(request, "force"))};
	struct ckpt_decided_step answer;
	int rc;

	q.answered = ckpt_should_save_answer(json_string_value(json_object_get(request, "answer")), &q.answer);
	rc = step < 0 ? -EINVAL : decider_ask(fs, &q, &answer, &why);

	if (rc)
		return refusal(-rc, why ? why : strerror(-rc), ckpt_should_save_hint(rc));
	return decider_json(&answer);
}

static char *answer_policy(struct ckpt_fs *fs, json_t *policy)
{
	CLEANUP_FREE char *text = json_dumps(policy, JSON_COMPACT), *why = NULL;
	struct ckpt_policy p = {0};
	int rc = text ? ckpt_policy_parse(text, strlen(text), &p, &why) : json_is_object(policy) ? -ENOMEM : -EINVAL;

	if (!rc)
		rc = ckpt_policy_set(fs->store, &p);
	ckpt_policy_done(&p);
	return rc ? refusal(-rc, why ? why : strerror(-rc), ckpt_errno_hint(rc)) : done();
}

// A mount goes on with the settings that it has.
static char *answer_config(struct ckpt_fs *fs, const char *key, const char *value)
{
	const struct ckpt_setting *setting = key ? ckpt_setting_find(key) : NULL;
	struct ckpt_settings s;
	int rc = setting && !setting->of_node && *ckpt_remote_of(fs->store) ? 0 : -EINVAL;

	if (!rc && value) {
		ckpt_settings_init(&s);
		rc = ckpt_setting_parse(setting, value, &s);
		ckpt_settings_done(&s);
	}
	if (!rc)
		rc = ckpt_shared_setting_set(fs->store, setting, value);
	return rc ? failure(rc, NULL) : done();
}

static char *answer_preempt(struct ckpt_fs *fs, int64_t at_step)
{
	decider_preempt(fs->decider, MAX(at_step, 0));
	return done();
}

static char *answer_preempt_cancel(struct ckpt_fs *fs)
{
	decider_preempt(fs->decider, -1);
	return done();
}

static char *answer_index(struct ckpt_fs *fs, struct peer *peer)
{
	int rc = ckpt_dedupe_rebuild(fs->store, is_waited_for, peer);

	return rc ? failure(rc, rc == -ENOENT  ? "the disk was full when it was mounted: mount it again"
				: rc == -EINTR ? "the mount is ending"
					       : NULL)
		  : done();
}

static char *answer_undelete(struct ckpt_fs *fs, const char *session)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = step ? ckpt_undelete(step) : -ESTALE;

	if (!rc && !*step->folder_id)
		folder_touch(fs, node_root(fs));
	ckpt_step_unref(step);
	return rc ? failure(rc, ckpt_undelete_hint(rc)) : done();
}

static char *answer_move(struct ckpt_fs *fs, const char *session, const char *to)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = !step ? -ESTALE : ckpt_removal_hides(step) ? -EBUSY : ckpt_move_to(step, to);

	if (!rc) {
		forget_step(fs, step, node_space(step));
		folder_touch(fs, node_root(fs)); // or a folder that nobody has looked into, or will see by its own time
	}
	ckpt_step_unref(step);
	return rc ? failure(rc, ckpt_move_hint(rc)) : done();
}

// --- The request --------------------------------------------------------------------------------------------------------

static char *answer_on_session(struct ckpt_fs *fs, const char *verb, const char *session, json_t *json,
			       struct peer *peer)
{
	const char *to = json_string_value(json_object_get(json, "to"));

	if (!strcmp(verb, "abort"))
		return answer_abort(fs, session);
	if (!strcmp(verb, "resume"))
		return answer_resume(fs, session);
	if (!strcmp(verb, "commit"))
		return answer_commit(fs, session, json);
	if (!strcmp(verb, "delete"))
		return answer_delete(fs, session, json_is_true(json_object_get(json, "for_good")),
				     json_is_true(json_object_get(json, "deleted_only")));
	if (!strcmp(verb, "pin") || !strcmp(verb, "unpin") || !strcmp(verb, "promote"))
		return answer_flag(fs, session, verb);
	if (!strcmp(verb, "seal"))
		return answer_seal(fs, session, peer);
	if (!strcmp(verb, "cool") || !strcmp(verb, "warm"))
		return answer_tier(fs, session, !strcmp(verb, "cool"), json_string_value(json_object_get(json, "only")),
				   peer);
	if (!strcmp(verb, "drop"))
		return answer_drop(fs, session);
	if (!strcmp(verb, "undelete"))
		return answer_undelete(fs, session);
	if (!strcmp(verb, "restore"))
		return answer_restore(fs, session, json_integer_value(json_object_get(json, "version")));
	if (!strcmp(verb, "remove") && to)
		return answer_remove(fs, session, to);
	if (!strcmp(verb, "change") && to)
		return answer_change(fs, session, to);
	if (!strcmp(verb, "move") && to)
		return answer_move(fs, session, to);
	return refusal(ENOSYS, "the mount does not know this verb", "it is of another version: mount again");
}

char *verbs_answer(struct ckpt_fs *fs, const char *request, int peer_fd)
{
	const char *verb, *session, *to;
	int64_t step = -1;
	struct peer peer;
	json_t *json;
	char *reply;

	if (ckpt_json_load(request, strlen(request), 0, NULL, &json) == -ENOMEM)
		return failure(-ENOMEM, NULL);
	peer = peer_of(json, peer_fd);
	verb = json_string_value(json_object_get(json, "verb"));
	session = json_string_value(json_object_get(json, "session"));
	to = json_string_value(json_object_get(json, "to"));
	if (json_is_integer(json_object_get(json, "step")))
		step = json_integer_value(json_object_get(json, "step"));
	if (!verb)
		reply = refusal(EINVAL, "not a request", NULL);
	else if (!strcmp(verb, "status"))
		reply = status_json(fs);
	else if (!strcmp(verb, "sessions"))
		reply = status_sessions_json(fs);
	else if (!strcmp(verb, "gc"))
		reply = json_is_true(json_object_get(json, "bucket")) ? answer_collect(fs, json, &peer)
								      : answer_gc(fs, json, &peer);
	else if (!strcmp(verb, "remote"))
		reply = answer_remote(fs, json_is_true(json_object_get(json, "sync")));
	else if (!strcmp(verb, "index"))
		reply = answer_index(fs, &peer);
	else if (!strcmp(verb, "begin") && to)
		reply = answer_begin(fs, to, session, json);
	else if (!strcmp(verb, "should-save"))
		reply = answer_should_save(fs, step, json);
	else if (!strcmp(verb, "policy"))
		reply = answer_policy(fs, json_object_get(json, "policy"));
	else if (!strcmp(verb, "config"))
		reply = answer_config(fs, json_string_value(json_object_get(json, "key")),
				      json_string_value(json_object_get(json, "value")));
	else if (!strcmp(verb, "preempt"))
		reply = answer_preempt(fs, step);
	else if (!strcmp(verb, "preempt-cancel"))
		reply = answer_preempt_cancel(fs);
	else if (!strcmp(verb, "retain"))
		reply = answer_retain(fs, json_object_get(json, "sessions"));
	else if (!session)
		reply = refusal(EINVAL, "no session was named, or the verb is unknown",
				"the mount may be of another version: mount again");
	else
		reply = answer_on_session(fs, verb, session, json, &peer);
	json_decref(json);
	return reply;
}

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
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/pin.h"
#include "core/save/restore.h"
#include "core/save/version.h"
#include "core/step/errlog.h"
#include "core/step/removal.h"
#include "core/step/shared_settings.h"
#include "core/tier/cool.h"
#include "core/tier/seal.h"
#include "fs/change_files.h"
#include "fs/decider.h"
#include "fs/end.h"
#include "fs/folder.h"
#include "fs/handle.h"
#include "fs/shown.h"
#include "fs/status.h"
#include "fs/verbs_answer.h"
#include "fs/verbs_session.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

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
	return rc ? answer_failure(rc, for_good ? ckpt_expire_hint(rc) : ckpt_delete_hint(rc)) : answer_done();
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
		return answer_failure(-EINVAL, NULL);
	results = json_array();
	for (size_t i = 0; i < count; i++) {
		const char *session = json_string_value(json_array_get(sessions, i));

		steps[i] = session ? ckpt_step_of_session(fs->store, session) : NULL; // that one is gone
	}
	rc = retain(fs, steps, count, results);
	for (size_t i = 0; i < count; i++)
		ckpt_step_unref(steps[i]);
	reply = json_pack("{s:b, s:o}", "ok", 1, "results", results);
	text = rc ? answer_failure(rc, ckpt_delete_hint(rc)) : json_dumps(reply, JSON_COMPACT);
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
	return rc ? answer_failure(rc, ckpt_delete_hint(rc)) : answer_done();
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
	return rc ? answer_failure(rc, rc == -ESTALE ? "it was changed meanwhile: try again" : ckpt_delete_hint(rc))
		  : answer_done();
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
		text = answer_failure(rc, ckpt_restore_hint(rc));
	} else {
		reply = json_pack("{s:b, s:I}", "ok", 1, "version", (json_int_t)now->is.version);
		text = json_dumps(reply, JSON_COMPACT);
		json_decref(reply);
	}
	ckpt_version_unref(now);
	ckpt_step_unref(step);
	return text;
}

#define ACT_GONE "it is gone, or being removed or changed; `ckptfs ls --all` lists the steps"

// One flag of it: is it pinned, is it permanent.
static char *answer_flag(struct ckpt_fs *fs, const char *session, const char *verb)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = !step ? -ESTALE : !strcmp(verb, "promote") ? ckpt_promote(step) : ckpt_pin(step, !strcmp(verb, "pin"));

	ckpt_step_unref(step);
	return rc ? answer_failure(rc, rc == -EBUSY || rc == -ESTALE ? ACT_GONE : NULL) : answer_done();
}

static char *answer_note(struct ckpt_fs *fs, const char *session, const char *metadata)
{
	struct ckpt_step *step = metadata ? ckpt_step_of_session(fs->store, session) : NULL;
	int rc = !metadata ? -EINVAL : !step ? -ESTALE : ckpt_version_note(step, metadata);

	ckpt_step_unref(step);
	return !rc ? answer_done()
		   : answer_failure(rc, rc == -EBUSY || rc == -ESTALE ? ACT_GONE
					: rc == -EFBIG ? "together with what the step has it is more than 64 KiB"
						       : NULL);
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
		return answer_failure(rc, "it is gone, or being removed or changed; `ckptfs ls --all` lists the steps");
	return rc ? answer_failure(rc, rc == -EINTR ? "the mount is ending" : ".ckptfs/errors in the mount says more")
		  : answer_done();
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
		return answer_failure(rc, ckpt_tier_hint(rc));
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
	return rc != -EINVAL && *did.why ? answer_refusal(-rc, did.why, ckpt_collect_hint(rc))
					 : answer_failure(rc, rc == -EINTR ? "the mount is ending" : NULL);
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
	return rc != -EINVAL && *did.why ? answer_refusal(-rc, did.why, ckpt_gc_hint(rc))
					 : answer_failure(rc, rc == -EINTR ? "the mount is ending" : NULL);
}

// --- remote -------------------------------------------------------------------------------------------------------------

static char *answer_remote(struct ckpt_fs *fs, bool syncs)
{
	struct ckpt_remote *r = *ckpt_remote_of(fs->store);

	if (!r)
		return answer_refusal(EOPNOTSUPP, "a local store has no object store",
				      "`ckptfs remote add` gives it one");
	if (syncs)
		ckpt_remote_wake(r);
	return ckpt_queue_json(fs->store);
}

static char *answer_drop(struct ckpt_fs *fs, const char *session)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = step ? ckpt_queue_drop(step) : -ESTALE;

	ckpt_step_unref(step);
	return rc ? answer_failure(rc, ckpt_queue_drop_hint(rc)) : answer_done();
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
		return answer_refusal(-rc, why ? why : strerror(-rc), ckpt_should_save_hint(rc));
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
	return rc ? answer_refusal(-rc, why ? why : strerror(-rc), ckpt_errno_hint(rc)) : answer_done();
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
	return rc ? answer_failure(rc, NULL) : answer_done();
}

static char *answer_preempt(struct ckpt_fs *fs, int64_t at_step)
{
	decider_preempt(fs->decider, MAX(at_step, 0));
	return answer_done();
}

static char *answer_preempt_cancel(struct ckpt_fs *fs)
{
	decider_preempt(fs->decider, -1);
	return answer_done();
}

static char *answer_index(struct ckpt_fs *fs, struct peer *peer)
{
	int rc = ckpt_dedupe_rebuild(fs->store, is_waited_for, peer);

	return rc ? answer_failure(rc, rc == -ENOENT  ? "the disk was full when it was mounted: mount it again"
				       : rc == -EINTR ? "the mount is ending"
						      : NULL)
		  : answer_done();
}

static char *answer_undelete(struct ckpt_fs *fs, const char *session)
{
	struct ckpt_step *step = ckpt_step_of_session(fs->store, session);
	int rc = step ? ckpt_undelete(step) : -ESTALE;

	if (!rc && !*step->folder_id)
		folder_touch(fs, node_root(fs));
	ckpt_step_unref(step);
	return rc ? answer_failure(rc, ckpt_undelete_hint(rc)) : answer_done();
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
	return rc ? answer_failure(rc, ckpt_move_hint(rc)) : answer_done();
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
	if (!strcmp(verb, "note"))
		return answer_note(fs, session, json_string_value(json_object_get(json, "metadata")));
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
	return answer_refusal(ENOSYS, "the mount does not know this verb", "it is of another version: mount again");
}

char *verbs_answer(struct ckpt_fs *fs, const char *request, int peer_fd)
{
	const char *verb, *session, *to;
	int64_t step = -1;
	struct peer peer;
	json_t *json;
	char *reply;

	if (ckpt_json_load(request, strlen(request), 0, NULL, &json) == -ENOMEM)
		return answer_failure(-ENOMEM, NULL);
	peer = peer_of(json, peer_fd);
	verb = json_string_value(json_object_get(json, "verb"));
	session = json_string_value(json_object_get(json, "session"));
	to = json_string_value(json_object_get(json, "to"));
	if (json_is_integer(json_object_get(json, "step")))
		step = json_integer_value(json_object_get(json, "step"));
	if (!verb)
		reply = answer_refusal(EINVAL, "not a request", NULL);
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
		reply = answer_refusal(EINVAL, "no session was named, or the verb is unknown",
				       "the mount may be of another version: mount again");
	else
		reply = answer_on_session(fs, verb, session, json, &peer);
	json_decref(json);
	return reply;
}

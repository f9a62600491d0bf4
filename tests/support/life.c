#include "tests/support/life.h"

#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/hooks.h"
#include "tests/support/staged.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/save/delete.h"
#include "core/save/share.h"
#include "core/step/reopened.h"
#include "core/step/trash.h"
#include "core/store/room.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#define WRITERS_NS INT64_C(1000000)
#define LIVE_STATES (1u << CKPT_STEP_COMMITTED)
#define TRASH_STATES (1u << CKPT_STEP_DELETED)

static const struct {
	unsigned shape;
	const char *name;
} lives[CKPT_LIVES] = {
	[LIFE_FIRST] = {0, "1000"},     [LIFE_LARGE] = {CKPT_SAVE_LARGE, "1000"},
	[LIFE_THIRD] = {4, "1000"},     [LIFE_OTHER] = {4, "2000"}, // whatever is done to the others
	[LIFE_LAST] = {0, "1000"},      [LIFE_AGAIN] = {0, "1000"},
	[LIFE_ONCE_MORE] = {0, "1000"}, [LIFE_DERIVED] = {0, "3000"},
};

const struct ckpt_life_script ckpt_life_whole = {
	.ops =
		{
			{CKPT_LIFE_SAVE, LIFE_FIRST},
			{CKPT_LIFE_METADATA, LIFE_FIRST},
			{CKPT_LIFE_DELETE, LIFE_FIRST},
			{CKPT_LIFE_UNDELETE, LIFE_FIRST},
			{CKPT_LIFE_DELETE, LIFE_FIRST},
			{CKPT_LIFE_SAVE, LIFE_OTHER},
			{CKPT_LIFE_SAVE, LIFE_LARGE},
			{CKPT_LIFE_EXPIRE, LIFE_FIRST}, // the name is another's
			{CKPT_LIFE_DELETE, LIFE_LARGE},
			{CKPT_LIFE_SAVE, LIFE_THIRD},
			{CKPT_LIFE_DELETE, LIFE_THIRD},
			{CKPT_LIFE_UNDELETE, LIFE_LARGE}, // beyond the versions of the third
			{CKPT_LIFE_EXPIRE, LIFE_THIRD},
			{CKPT_LIFE_DELETE, LIFE_LARGE},
			{CKPT_LIFE_MAKE_ROOM, LIFE_LARGE},
			{CKPT_LIFE_SAVE, LIFE_LAST}, // version 1 again
			{CKPT_LIFE_DELETE, LIFE_LAST},
		},
	.count = 17,
};

const struct ckpt_life_script ckpt_life_reopened = {
	.ops =
		{
			{CKPT_LIFE_SAVE, LIFE_FIRST},
			{CKPT_LIFE_RESAVE, LIFE_AGAIN},
			{CKPT_LIFE_DERIVE, LIFE_DERIVED},
			{CKPT_LIFE_DELETE, LIFE_AGAIN},
			{CKPT_LIFE_EXPIRE, LIFE_AGAIN}, // before the older one
			{CKPT_LIFE_UNDELETE, LIFE_FIRST},
			{CKPT_LIFE_RESAVE, LIFE_ONCE_MORE},
			{CKPT_LIFE_EXPIRE, LIFE_FIRST}, // whose files are another's, too
			{CKPT_LIFE_DELETE, LIFE_DERIVED},
			{CKPT_LIFE_DELETE, LIFE_ONCE_MORE},
			{CKPT_LIFE_EXPIRE_ALL, LIFE_ONCE_MORE},
			{CKPT_LIFE_SAVE, LIFE_LAST},
			{CKPT_LIFE_GIVE_UP, LIFE_LAST},
		},
	.count = 13,
};

// --- The acts ---------------------------------------------------------------------------------------------------------

static int begin(struct ckpt_store *s, enum ckpt_life life, struct ckpt_life_log *log, struct ckpt_step **ret_step)
{
	int rc = ckpt_stage_begin(s, "", lives[life].name, 0751, getuid(), getgid(), getpid(), ret_step);

	if (rc)
		return rc;
	snprintf(log->session[life], sizeof(log->session[life]), "%s", (*ret_step)->session);
	ckpt_save_write(*ret_step, lives[life].shape, NULL);
	return 0;
}

static int save(struct ckpt_store *s, enum ckpt_life life, struct ckpt_life_log *log)
{
	struct ckpt_commit how = {
		.event = "marker",
		.profile = "generic",
		.metadata = ckpt_save_steps[lives[life].shape].metadata,
		.writers_ns = WRITERS_NS,
	};
	struct ckpt_step *step = ckpt_step_find(s, "", lives[life].name); // staged, when it is tried again
	int rc = step ? 0 : begin(s, life, log, &step);

	if (rc)
		return rc;
	rc = ckpt_commit(step, &how);
	ckpt_step_unref(step);
	return rc;
}

static int change(struct ckpt_step *step)
{
	struct ckpt_share_copy copy = {0};
	int rc = ckpt_staging_of(step)->outcome_unknown ? 0 : ckpt_stage_enter(step, true);

	if (rc || ckpt_staging_of(step)->outcome_unknown) // then completing it again says what it is
		return rc;
	rc = ckpt_share_copy_make(step->store, step->dirfd, "model.bin", false, false, &copy);
	if (!rc && copy.of)
		rc = ckpt_share_copy_place(step->store, &copy, step->dirfd, "model.bin");
	ckpt_stage_leave(step);
	return rc;
}

static int commit(struct ckpt_step *step, enum ckpt_life life)
{
	struct ckpt_commit how = {.event = "marker",
				  .profile = "generic",
				  .metadata = ckpt_save_steps[lives[life].shape].metadata,
				  .writers_ns = WRITERS_NS};

	return ckpt_commit(step, &how);
}

// What was reopened by a try before is dropped, unless it may be there: a file of it may have lost its data.
static int resave(struct ckpt_store *s, enum ckpt_life life, struct ckpt_life_log *log)
{
	struct ckpt_step *base = ckpt_step_find(s, "", lives[life].name), *step = NULL;
	int rc = 0;

	if (ckpt_step_is_reopened(base) && !ckpt_staging_of(base->reopened)->outcome_unknown) {
		step = ckpt_step_now(ckpt_step_ref(base));
		rc = ckpt_stage_abort(step, false);
		ckpt_step_unref(TAKE_PTR(step));
	}
	if (!rc)
		rc = ckpt_reopen(base, &step);
	if (!rc)
		snprintf(log->session[life], sizeof(log->session[life]), "%s", step->session);
	if (!rc)
		rc = change(step);
	if (!rc)
		rc = commit(step, life);
	ckpt_step_unref(step);
	ckpt_step_unref(base);
	return rc;
}

static int fill_from(struct ckpt_step *step, struct ckpt_step *base)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(base, &m);

	if (rc)
		return rc;
	rc = ckpt_share_tree(base, m, step->dirfd);
	ckpt_manifest_unref(m);
	return rc;
}

static int begin_derived(struct ckpt_store *s, enum ckpt_life life, struct ckpt_life_log *log, struct ckpt_step *base,
			 struct ckpt_step **ret_step)
{
	int rc = ckpt_stage_begin(s, "", lives[life].name, 0751, getuid(), getgid(), getpid(), ret_step);

	if (rc)
		return rc;
	snprintf(log->session[life], sizeof(log->session[life]), "%s", (*ret_step)->session);
	rc = fill_from(*ret_step, base);
	return rc ? rc : change(*ret_step);
}

// Begun anew when it is tried again, unless it may be there.
static int derive(struct ckpt_store *s, enum ckpt_life life, struct ckpt_life_log *log)
{
	struct ckpt_step *base = ckpt_step_find(s, "", lives[LIFE_AGAIN].name);
	struct ckpt_step *step = ckpt_step_find(s, "", lives[life].name);
	int rc = 0;

	if (step && !ckpt_staging_of(step)->outcome_unknown) {
		rc = ckpt_stage_abort(step, false);
		ckpt_step_unref(TAKE_PTR(step));
	}
	if (!rc && !step)
		rc = begin_derived(s, life, log, base, &step);
	if (!rc)
		rc = commit(step, life);
	ckpt_step_unref(step);
	ckpt_step_unref(base);
	return rc;
}

static int drop_left(struct ckpt_store *s)
{
	struct ckpt_step **left;
	size_t count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &count);

	for (size_t i = 0; i < count && !rc; i++)
		rc = ckpt_stage_abort(left[i], false);
	ckpt_step_list_free(left, count);
	return rc;
}

static int give_up(struct ckpt_store *s, enum ckpt_life life)
{
	struct ckpt_step *base = ckpt_step_find(s, "", lives[life].name), *step = NULL;
	int rc = drop_left(s); // of a try before

	if (!rc)
		rc = ckpt_reopen(base, &step);

	if (!rc)
		rc = change(step);
	if (step) {
		ckpt_lock_take(&step->lock);
		ckpt_staging_of(step)->lost.any = true; // its writer was killed in a file
		ckpt_staging_of(step)->lost.pid = getpid();
		ckpt_lock_drop(&step->lock);
		ckpt_staged_quiet(step);
		ckpt_lock_take(&step->lock);
		while (step->state != CKPT_STEP_LEFT)
			ckpt_lock_wait(&step->changed, &step->lock);
		ckpt_lock_drop(&step->lock);
		ckpt_save_settle(s); // its thread has ended
	}
	if (!rc)
		rc = drop_left(s);
	ckpt_step_unref(step);
	ckpt_step_unref(base);
	return rc;
}

static int expire_all(struct ckpt_store *s)
{
	bool stop = false;
	int64_t next = ckpt_expire_before(s, ckpt_sys.now_ns() + 1, &stop);

	ckpt_trash_drain(*ckpt_trash_of(s));
	return next == INT64_MAX ? 0 : -EIO;
}

static int no_room(int fd __attribute__((unused)), uint64_t *ret_free, uint64_t *ret_all)
{
	*ret_free = 0;
	*ret_all = UINT64_C(1) << 40;
	return 0;
}

static int make_room(struct ckpt_store *s)
{
	int (*room_below)(int fd, uint64_t *ret_free, uint64_t *ret_all) = ckpt_hooks.room;
	struct ckpt_step **steps;
	struct ckpt_room *room;
	size_t count;

	ckpt_hook_set(room, no_room);
	ck_ok(ckpt_room_new(s, &room));
	(void)ckpt_room_make(room, 0);
	ckpt_room_free(room);
	ckpt_hook_set(room, room_below);
	ckpt_trash_drain(*ckpt_trash_of(s));
	ck_ok(ckpt_deleted_list(s, &steps, &count));
	ckpt_step_list_free(steps, count);
	return count ? -EIO : 0;
}

static int expire(struct ckpt_store *s, struct ckpt_step *step)
{
	int rc = ckpt_expire(step);

	ckpt_trash_drain(*ckpt_trash_of(s));
	return rc;
}

int ckpt_life_do(struct ckpt_store *s, const struct ckpt_life_op *op, struct ckpt_life_log *log)
{
	struct ckpt_step *step;
	int rc = -ESTALE;

	if (op->act == CKPT_LIFE_SAVE)
		return save(s, op->life, log);
	if (op->act == CKPT_LIFE_RESAVE)
		return resave(s, op->life, log);
	if (op->act == CKPT_LIFE_DERIVE)
		return derive(s, op->life, log);
	if (op->act == CKPT_LIFE_GIVE_UP)
		return give_up(s, op->life);
	if (op->act == CKPT_LIFE_EXPIRE_ALL)
		return expire_all(s);
	if (op->act == CKPT_LIFE_MAKE_ROOM)
		return make_room(s);
	step = ckpt_step_of_session(s, log->session[op->life]);
	ck_assert_ptr_nonnull(step);
	switch (op->act) {
	case CKPT_LIFE_METADATA:
		rc = ckpt_save_metadata(step, lives[op->life].shape);
		break;
	case CKPT_LIFE_DELETE:
		rc = ckpt_delete(step);
		break;
	case CKPT_LIFE_UNDELETE:
		rc = ckpt_undelete(step);
		break;
	default:
		rc = expire(s, step);
	}
	ckpt_step_unref(step);
	return rc;
}

void ckpt_life_run(const char *dir, const struct ckpt_life_script *script, struct ckpt_life_log *log,
		   uint64_t (*clock)(void *arg), void *arg)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	for (size_t i = 0; i < script->count; i++) {
		log->began[i] = clock(arg) + 1;
		ck_ok(ckpt_life_do(s, &script->ops[i], log));
		log->done[i] = clock(arg) + 1;
	}
	ckpt_store_close(s);
}

size_t ckpt_life_at(const struct ckpt_life_script *script, const struct ckpt_life_log *log, uint64_t point)
{
	size_t i = 0;

	while (i < script->count && log->done[i] && log->done[i] - 1 <= point)
		i++;
	return i;
}

// --- The model --------------------------------------------------------------------------------------------------------

enum state { NOWHERE, LIVE, IN_TRASH };

struct model {
	enum state before[CKPT_LIVES], after[CKPT_LIVES]; // differ when an act was cut
	bool metadata_before[CKPT_LIVES], metadata_after[CKPT_LIVES];
	bool expiring[CKPT_LIVES];
	bool saving;
};

static void apply(const struct ckpt_life_op *op, enum state *states, bool *metadata)
{
	switch (op->act) {
	case CKPT_LIFE_GIVE_UP:
		break;
	case CKPT_LIFE_RESAVE:
		for (size_t i = 0; i < CKPT_LIVES; i++)
			if (states[i] == LIVE && !strcmp(lives[i].name, lives[op->life].name))
				states[i] = IN_TRASH;
		states[op->life] = LIVE;
		break;
	case CKPT_LIFE_DERIVE:
	case CKPT_LIFE_SAVE:
	case CKPT_LIFE_UNDELETE:
		states[op->life] = LIVE;
		break;
	case CKPT_LIFE_METADATA:
		metadata[op->life] = true;
		break;
	case CKPT_LIFE_DELETE:
		states[op->life] = IN_TRASH;
		break;
	case CKPT_LIFE_EXPIRE:
		states[op->life] = NOWHERE;
		break;
	case CKPT_LIFE_EXPIRE_ALL:
	case CKPT_LIFE_MAKE_ROOM:
		for (size_t i = 0; i < CKPT_LIVES; i++)
			states[i] = states[i] == IN_TRASH ? NOWHERE : states[i];
	}
}

bool ckpt_life_saves(const struct ckpt_life_op *op)
{
	return op->act <= CKPT_LIFE_GIVE_UP;
}

// A session that is dropped may come back with the power.
static bool may_leave(const struct ckpt_life_script *script, size_t done, bool cut)
{
	bool may = cut && ckpt_life_saves(&script->ops[done]);

	for (size_t i = 0; i < done; i++)
		may |= script->ops[i].act == CKPT_LIFE_GIVE_UP;
	return may;
}

static void model_of(const struct ckpt_life_script *script, const struct ckpt_life_log *log, size_t done, bool cut,
		     struct model *m)
{
	const struct ckpt_life_op *op = &script->ops[done];

	memset(m, 0, sizeof(*m));
	for (size_t i = 0; i < done; i++)
		apply(&script->ops[i], m->before, m->metadata_before);
	memcpy(m->after, m->before, sizeof(m->after));
	memcpy(m->metadata_after, m->metadata_before, sizeof(m->metadata_after));
	m->saving = may_leave(script, done, cut) || log->may_leave;
	if (!cut)
		return;
	apply(op, m->after, m->metadata_after);
	for (size_t i = 0; i < CKPT_LIVES; i++)
		m->expiring[i] = m->before[i] == IN_TRASH && m->after[i] == NOWHERE;
}

// --- Comparing --------------------------------------------------------------------------------------------------------

static const char *const state_names[] = {"nowhere", "live", "in the trash"};

static size_t life_of(const struct ckpt_life_log *log, const struct ckpt_step *step)
{
	size_t i = 0;

	while (i < CKPT_LIVES && strcmp(log->session[i], step->session))
		i++;
	ck_assert_msg(i < CKPT_LIVES, "I3: %s of session %s was never saved", step->name, step->session);
	return i;
}

static bool has_files(struct ckpt_step *step)
{
	return !faccessat(step->store->sessions_fd, step->session, F_OK, AT_SYMLINK_NOFOLLOW);
}

static void check_metadata(struct ckpt_step *step, const struct model *m, size_t life)
{
	const struct ckpt_save_step *shape = &ckpt_save_steps[lives[life].shape];
	struct ckpt_record r;

	ck_ok(ckpt_step_record(step, step->version->is.version, &r));
	ck_assert_str_eq(r.summary.session, step->session);
	ck_assert(!r.summary.deleted);
	if (shape->metadata && m->metadata_before[life])
		ck_assert_str_eq(r.metadata, shape->metadata2);
	else if (shape->metadata && !m->metadata_after[life])
		ck_assert_str_eq(r.metadata, shape->metadata);
	ckpt_record_done(&r);
}

// An expiry that has begun may have taken its files. It is a step again only as a whole: what is left of its files is all.
static void check_one(struct ckpt_step *step, const struct model *m, size_t life)
{
	if (m->expiring[life] && !has_files(step))
		return;
	ckpt_save_check_files(step, lives[life].shape);
	check_metadata(step, m, life);
}

static void check_in(struct ckpt_store *s, const struct model *m, const struct ckpt_life_log *log, enum state state,
		     enum state *seen)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, state == LIVE ? LIVE_STATES | 1u << CKPT_STEP_STAGED : TRASH_STATES, &steps,
			     &count));
	for (size_t i = 0; i < count; i++) {
		size_t life;

		if (state == LIVE && ckpt_step_state(steps[i]) == CKPT_STEP_STAGED) {
			struct ckpt_step *base = steps[i]->reopens ? ckpt_step_ref(steps[i]->base) : NULL;

			ckpt_step_unref(steps[i]);
			steps[i] = base; // it is listed everywhere else
		}
		if (!steps[i])
			continue;
		life = life_of(log, steps[i]);

		ck_assert_str_eq(steps[i]->name, lives[life].name);
		ck_assert_msg(seen[life] == NOWHERE, "life %zu is there twice", life);
		ck_assert_msg(m->before[life] == state || m->after[life] == state, "I11: life %zu is %s, not %s or %s",
			      life, state_names[state], state_names[m->before[life]], state_names[m->after[life]]);
		check_one(steps[i], m, life);
		seen[life] = state;
	}
	ckpt_step_list_free(steps, count); // NULL is fine
}

// Of two lives that change in one act not one does alone. What expires may do so one by one.
static void check_one_act(const struct model *m, const enum state *seen)
{
	bool before = true, after = true;

	for (size_t i = 0; i < CKPT_LIVES; i++) {
		if (m->expiring[i])
			return;
		before &= seen[i] == m->before[i];
		after &= seen[i] == m->after[i];
	}
	ck_assert_msg(before || after, "an act was done in part");
}

void ckpt_life_check_store(struct ckpt_store *s, const struct ckpt_life_script *script, const struct ckpt_life_log *log,
			   size_t done, bool cut)
{
	enum state seen[CKPT_LIVES] = {NOWHERE};
	struct model m;

	model_of(script, log, done, cut, &m);
	check_in(s, &m, log, LIVE, seen);
	check_in(s, &m, log, IN_TRASH, seen);
	check_one_act(&m, seen);
	for (size_t i = 0; i < CKPT_LIVES; i++)
		ck_assert_msg(seen[i] != NOWHERE || m.before[i] == NOWHERE || m.after[i] == NOWHERE,
			      "I2: life %zu is nowhere, not %s or %s", i, state_names[m.before[i]],
			      state_names[m.after[i]]);
	ck_assert_msg(m.saving || !ckpt_save_unfinished_count(s), "a session is left that nobody was saving");
}

char *ckpt_life_listing(struct ckpt_store *s)
{
	CLEANUP_FREE char *listed = ckpt_save_listing(s);
	struct ckpt_step **steps;
	char *text = NULL;
	size_t count, len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(out);
	fputs(listed, out);
	ck_ok(ckpt_deleted_list(s, &steps, &count));
	for (size_t i = 0; i < count; i++)
		fprintf(out, "deleted %s %s by v%u at %lld\n", steps[i]->name, steps[i]->session, steps[i]->deleted_by,
			(long long)steps[i]->deleted_ns);
	ckpt_step_list_free(steps, count);
	fclose(out);
	return text;
}

// --- The end of what is deleted ---------------------------------------------------------------------------------------

static bool is_live(struct ckpt_store *s, const char *session)
{
	struct ckpt_step *step = ckpt_step_of_session(s, session);
	bool live = step && ckpt_step_state(step) == CKPT_STEP_COMMITTED;

	ckpt_step_unref(step);
	return live;
}

static void each_name(struct ckpt_store *s, const char *below, bool (*belongs)(struct ckpt_store *s, const char *name))
{
	int fd = openat(s->dirfd, below, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fdopendir(fd);
	struct dirent *d;

	ck_assert_ptr_nonnull(dir);
	while ((d = readdir(dir)))
		ck_assert_msg(d->d_name[0] == '.' || belongs(s, d->d_name), "%s/%s is left over", below, d->d_name);
	closedir(dir);
}

static bool never(struct ckpt_store *s, const char *name)
{
	(void)s;
	(void)name;
	return false;
}

static int check_listed(void *arg, const struct ckpt_state_step *step)
{
	(void)arg;
	ck_assert_msg(!step->deleted_by, "%s is left over", step->is.name);
	return 0;
}

static bool is_live_manifest(struct ckpt_store *s, const char *name)
{
	struct ckpt_step **steps;
	bool found = false;
	size_t count;

	ck_ok(ckpt_step_list(s, NULL, LIVE_STATES, &steps, &count));
	for (size_t i = 0; i < count; i++) {
		char hex[65];

		ckpt_hex(steps[i]->version->is.manifest_sha256, 32, hex);
		found |= !strcmp(hex, name);
	}
	ckpt_step_list_free(steps, count);
	return found;
}

void ckpt_life_check_expiry(struct ckpt_store *s, bool saving)
{
	CLEANUP_FREE char *before = ckpt_save_listing(s);
	CLEANUP_FREE char *after = NULL;

	ck_ok(expire_all(s));
	after = ckpt_save_listing(s);
	ck_assert_str_eq(before, after);
	ck_assert_uint_eq(ckpt_save_count(s, CKPT_STEP_DELETED), 0);
	each_name(s, "trash", never);
	ck_ok(ckpt_journal_each(s->journal, check_listed, NULL));
	if (saving)
		return; // what a save that was cut leaves has its own tests
	each_name(s, "sessions", is_live);
	each_name(s, "m", is_live_manifest);
}

// --- The check --------------------------------------------------------------------------------------------------------

static void assert_same(const char *dir, const char *listing, const char *when)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	CLEANUP_FREE char *there = ckpt_life_listing(s);

	ck_assert_msg(!strcmp(there, listing), "the listing differs %s:\n%sbefore:\n%s", when, there, listing);
	ckpt_store_close(s);
}

// Each that is in the trash, and back there after it.
static void have_back(struct ckpt_store *s, const struct ckpt_life_log *log)
{
	struct ckpt_step **steps;
	size_t count;

	ck_ok(ckpt_deleted_list(s, &steps, &count));
	for (size_t i = 0; i < count; i++) {
		struct ckpt_step *live = ckpt_step_find(s, "", steps[i]->name);

		if (live) {
			ck_error(ckpt_undelete(steps[i]), EEXIST);
		} else if (!has_files(steps[i])) {
			ck_error(ckpt_undelete(steps[i]), ESTALE);
		} else {
			ck_ok(ckpt_undelete(steps[i]));
			ckpt_save_check_files(steps[i], lives[life_of(log, steps[i])].shape);
			ck_ok(ckpt_delete(steps[i]));
		}
		ckpt_step_unref(live);
	}
	ckpt_step_list_free(steps, count);
}

static void save_anew(const char *dir)
{
	struct ckpt_store *s = ckpt_save_open(dir);
	struct ckpt_step *live = ckpt_step_find(s, "", "1000");
	struct ckpt_life_log log = {0};

	if (live && ckpt_step_state(live) == CKPT_STEP_STAGED)
		ck_ok(ckpt_stage_abort(live, false));
	else if (live)
		ck_ok(ckpt_delete(live));
	ckpt_step_unref(live);
	ck_ok(save(s, LIFE_THIRD, &log));
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
	live = ckpt_step_find(s, "", "1000");
	ck_assert_ptr_nonnull(live);
	ckpt_save_check_files(live, lives[LIFE_THIRD].shape);
	ckpt_step_unref(live);
	ckpt_store_close(s);
}

void ckpt_life_check(const char *dir, const struct ckpt_life_script *script, const struct ckpt_life_log *log,
		     uint64_t point, bool thorough)
{
	size_t done = ckpt_life_at(script, log, point);
	bool cut = done < script->count && log->began[done] && log->began[done] - 1 <= point;
	bool saving = may_leave(script, done, cut);
	struct ckpt_store *s = ckpt_save_open(dir);
	CLEANUP_FREE char *listing = ckpt_life_listing(s);
	CLEANUP_FREE char *live = NULL;

	ckpt_life_check_store(s, script, log, done, cut);
	if (thorough) {
		char index[PATH_MAX];

		ckpt_store_close(s);
		assert_same(dir, listing, "at the second open (I4)");
		snprintf(index, sizeof(index), "%.*s/index", PATH_MAX - 16, dir);
		ckpt_temp_empty(index, true);
		assert_same(dir, listing, "without the index (I9)");
		s = ckpt_save_open(dir);
		have_back(s, log);
	}
	ckpt_life_check_expiry(s, saving);
	live = ckpt_life_listing(s);
	ckpt_store_close(s);
	assert_same(dir, live, "after what was deleted has expired");
	if (thorough)
		save_anew(dir);
}

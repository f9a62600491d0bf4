#include "tests/support/tiers.h"

#include "core/record/event.h"
#include "core/save/stage.h"
#include "core/store/open.h"
#include "tests/support/save.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/gc/repack.h"
#include "core/save/delete.h"
#include "core/tier/seal.h"

#include <fcntl.h>

#define FILES 2

static const struct {
	const char *name;
	const char *texts[FILES];
	enum ckpt_tiers_act saved, deleted;
	int undeleted; // -1: never
} steps[] = {
	{"a", {"a text of two steps", "one of a"}, CKPT_TIERS_SAVE_A, CKPT_TIERS_DELETE_A, -1},
	{"b", {"a text of two steps", "one of b"}, CKPT_TIERS_SAVE_B, CKPT_TIERS_DELETE_B, CKPT_TIERS_UNDELETE_B},
	{"c", {"one of c", "one of a"}, CKPT_TIERS_SAVE_C, CKPT_TIERS_ACTS, -1},
	{"d", {"more than half of a pack", "less than that"}, CKPT_TIERS_SAVE_D, CKPT_TIERS_DELETE_D, -1},
	{"e", {"less than that", "one of e"}, CKPT_TIERS_SAVE_E, CKPT_TIERS_ACTS, -1},
	{"f", {"one of f", "less than that"}, CKPT_TIERS_SAVE_F, CKPT_TIERS_ACTS, -1},
};

enum { A, B, C, D, E, F };

// --- The acts -----------------------------------------------------------------------------------------------------------
// They assert nothing: they are done while calls and allocations fail.

static int write_files(struct ckpt_step *step, size_t i)
{
	static const char *const paths[FILES] = {"0", "1"};
	int rc = 0;

	for (size_t k = 0; k < FILES && !rc; k++) {
		int fd = ckpt_sys.open(step->dirfd, paths[k], O_RDWR | O_CREAT | O_EXCL, 0644);

		if (fd < 0)
			return fd;
		rc = (int)MIN(ckpt_sys.pwrite(fd, steps[i].texts[k], strlen(steps[i].texts[k]), 0), 0);
		ckpt_sys.close(fd);
	}
	return rc;
}

static int save(struct ckpt_store *s, size_t i)
{
	struct ckpt_step *step;
	int rc = ckpt_stage_begin(s, "", steps[i].name, 0755, getuid(), getgid(), getpid(), &step);

	if (rc)
		return rc;
	rc = write_files(step, i);
	if (!rc)
		rc = ckpt_commit(step, &ckpt_staged_plain);
	if (!rc)
		rc = ckpt_seal(step, &(struct ckpt_seal_how){0});
	ckpt_step_unref(step);
	return rc;
}

static int cool(struct ckpt_step *step)
{
	const struct ckpt_tier_how how = {.pack_bytes = 1};
	struct ckpt_tier_done done;

	return ckpt_cool(step, &how, &done);
}

static int cool_together(struct ckpt_step *step)
{
	const struct ckpt_tier_how how = {.pack_bytes = CKPT_PACK_BYTES_MAX};
	struct ckpt_tier_done done;

	return ckpt_cool(step, &how, &done);
}

static int warm(struct ckpt_step *step)
{
	struct ckpt_tier_done done;

	return ckpt_warm(step, &(struct ckpt_tier_how){0}, &done);
}

static int gc(struct ckpt_store *s)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_gc_done done;

	return ckpt_gc(s, &all, &done);
}

static struct ckpt_step *find_deleted(struct ckpt_store *s, size_t i)
{
	struct ckpt_step **deleted, *found = NULL;
	size_t count;

	if (ckpt_deleted_list(s, &deleted, &count))
		return NULL;
	for (size_t k = 0; k < count; k++)
		if (!strcmp(deleted[k]->name, steps[i].name))
			found = ckpt_step_ref(deleted[k]);
	ckpt_step_list_free(deleted, count);
	return found;
}

static int act_on(struct ckpt_store *s, size_t i, bool deleted, int (*act)(struct ckpt_step *step))
{
	struct ckpt_step *step = deleted ? find_deleted(s, i) : ckpt_step_find(s, "", steps[i].name);
	int rc = step ? act(step) : -ESTALE;

	ckpt_step_unref(step);
	return rc;
}

int ckpt_tiers_do(struct ckpt_store *s, enum ckpt_tiers_act act)
{
	switch (act) {
	case CKPT_TIERS_SAVE_A:
		return save(s, A);
	case CKPT_TIERS_SAVE_B:
		return save(s, B);
	case CKPT_TIERS_SAVE_C:
		return save(s, C);
	case CKPT_TIERS_SAVE_D:
		return save(s, D);
	case CKPT_TIERS_SAVE_E:
		return save(s, E);
	case CKPT_TIERS_SAVE_F:
		return save(s, F);
	case CKPT_TIERS_COOL_A:
		return act_on(s, A, false, cool);
	case CKPT_TIERS_COOL_B:
	case CKPT_TIERS_COOL_B_AGAIN:
		return act_on(s, B, false, cool);
	case CKPT_TIERS_COOL_C:
		return act_on(s, C, false, cool);
	case CKPT_TIERS_COOL_D:
		return act_on(s, D, false, cool_together);
	case CKPT_TIERS_COOL_E:
		return act_on(s, E, false, cool);
	case CKPT_TIERS_COOL_F:
		return act_on(s, F, false, cool);
	case CKPT_TIERS_WARM_B:
		return act_on(s, B, false, warm);
	case CKPT_TIERS_WARM_E:
		return act_on(s, E, false, warm);
	case CKPT_TIERS_DELETE_A:
		return act_on(s, A, false, ckpt_delete);
	case CKPT_TIERS_DELETE_B:
		return act_on(s, B, false, ckpt_delete);
	case CKPT_TIERS_DELETE_D:
		return act_on(s, D, false, ckpt_delete);
	case CKPT_TIERS_EXPIRE_A:
		return act_on(s, A, true, ckpt_expire);
	case CKPT_TIERS_EXPIRE_D:
		return act_on(s, D, true, ckpt_expire);
	case CKPT_TIERS_UNDELETE_B:
		return act_on(s, B, true, ckpt_undelete);
	default:
		return gc(s);
	}
}

static void check_repacked(struct ckpt_store *s)
{
	struct ckpt_step *step = ckpt_step_find(s, "", steps[F].name);

	ck_assert_str_eq(step->version->is.event, CKPT_EVENT_REPACK);
	ckpt_step_unref(step);
}

void ckpt_tiers_run(const char *dir, struct ckpt_tiers_log *log, uint64_t (*clock)(void *arg), void *arg)
{
	struct ckpt_store *s = ckpt_save_open(dir);

	for (int act = 0; act < CKPT_TIERS_ACTS; act++) {
		log->began[act] = clock(arg) + 1;
		ck_ok(ckpt_tiers_do(s, (enum ckpt_tiers_act)act));
		log->done[act] = clock(arg) + 1;
	}
	ckpt_save_settle_all(s);
	check_repacked(s);
	ckpt_store_close(s);
}

void ckpt_tiers_log_to(struct ckpt_tiers_log *log, enum ckpt_tiers_act last, bool done)
{
	*log = (struct ckpt_tiers_log){0};
	for (int act = 0; act <= (int)last; act++) {
		log->began[act] = 1;
		log->done[act] = act < (int)last || done;
	}
}

// --- What must hold -----------------------------------------------------------------------------------------------------

static bool began(const struct ckpt_tiers_log *log, int act, uint64_t point)
{
	return act >= 0 && act < CKPT_TIERS_ACTS && log->began[act] && log->began[act] <= point;
}

static bool is_done(const struct ckpt_tiers_log *log, int act, uint64_t point)
{
	return act >= 0 && act < CKPT_TIERS_ACTS && log->done[act] && log->done[act] - 1 <= point;
}

static void check_files(struct ckpt_step *step, size_t i)
{
	static const char *const paths[FILES] = {"0", "1"};

	for (size_t k = 0; k < FILES; k++)
		ck_ok(ckpt_packed_read(step, paths[k], steps[i].texts[k]));
}

static void check_listed(struct ckpt_store *s, const struct ckpt_tiers_log *log, uint64_t point)
{
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct ckpt_step *step = ckpt_step_find(s, "", steps[i].name);
		bool must = is_done(log, (int)steps[i].saved, point) && !began(log, (int)steps[i].deleted, point);

		ck_assert_msg(step || !(must || is_done(log, steps[i].undeleted, point)), "%s is gone", steps[i].name);
		if (step && ckpt_step_state(step) == CKPT_STEP_COMMITTED)
			check_files(step, i);
		ckpt_step_unref(step);
	}
}

// It can be had back, but for one that was about to expire.
static void check_trash(struct ckpt_store *s, const struct ckpt_tiers_log *log, uint64_t point)
{
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct ckpt_step *step = find_deleted(s, i);
		int rc = step ? ckpt_undelete(step) : 0;

		if (step && !rc)
			check_files(step, i);
		ck_assert_msg(!rc || (i == A && began(log, CKPT_TIERS_EXPIRE_A, point)) ||
				      (i == D && began(log, CKPT_TIERS_EXPIRE_D, point)),
			      "%s cannot be had back: %s", steps[i].name, strerror(-rc));
		ckpt_step_unref(step);
	}
}

static void collect(struct ckpt_store *s)
{
	const struct ckpt_gc_how all = {.force = true};
	struct ckpt_gc_done done;

	ck_ok(ckpt_gc(s, &all, &done));
	for (int i = 0; i < CKPT_GC_KEPT; i++)
		ck_assert_msg(!done.kept[i].objects, "kept: %s", ckpt_gc_kept_text((enum ckpt_gc_kept)i));
	ck_ok(ckpt_gc(s, &all, &done)); // what it has repacked is as it should be
	ck_assert(!done.garbage_bytes && !done.deleted_bytes && !done.repacked_objects);
	ck_assert_uint_eq(done.live_bytes, ckpt_packs_bytes(s));
}

void ckpt_tiers_check(struct ckpt_store *s, const struct ckpt_tiers_log *log, uint64_t point, bool whole)
{
	check_listed(s, log, point);
	if (!whole)
		return;
	collect(s);
	check_listed(s, log, point);
	check_trash(s, log, point);
	collect(s);
	check_listed(s, log, point);
}

void ckpt_tiers_check_at(const char *dir, const struct ckpt_tiers_log *log, uint64_t point, bool whole)
{
	struct ckpt_store *s;

	ck_ok(ckpt_store_open(dir, whole ? CKPT_STORE_WRITE : CKPT_STORE_READ, NULL, &s));
	ckpt_tiers_check(s, log, point, whole);
	ckpt_store_close(s);
}

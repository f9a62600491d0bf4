#include "core/commit/remove.h"

#include "core/base/hash.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/commit/delete.h"
#include "core/commit/pin.h"
#include "core/store/errlog.h"
#include "core/store/store.h"

struct ckpt_removal {
	int64_t changed_ns;          // monotonic
	uint8_t of[CKPT_SHA256_LEN]; // the manifest whose entries these are
	size_t words;
	uint64_t bits[]; // by entry
};

// It has the entries of the current version, under the same numbers.
static bool is_same_locked(const struct ckpt_step *step, const uint8_t sha256[CKPT_SHA256_LEN])
{
	const uint8_t *current = step->summary.manifest_sha256;

	return !memcmp(sha256, current, CKPT_SHA256_LEN) || (!memcmp(step->same_entries.is, current, CKPT_SHA256_LEN) &&
							     !memcmp(step->same_entries.was, sha256, CKPT_SHA256_LEN));
}

// What was added to the step meanwhile (amend.h) has made other entries of them, and all of them whole.
static bool has_locked(const struct ckpt_step *step, uint32_t index)
{
	return step->removal && is_same_locked(step, step->removal->of) && index / 64 < step->removal->words &&
	       step->removal->bits[index / 64] >> (index % 64) & 1;
}

bool ckpt_remove_has(struct ckpt_step *step, uint32_t index)
{
	if (!__atomic_load_n(&step->removal, __ATOMIC_RELAXED)) // nearly always
		return false;
	LOCK_SCOPE(&step->lock);

	return has_locked(step, index);
}

static bool is_empty_locked(const struct ckpt_step *step, const struct ckpt_entry *dir)
{
	for (uint32_t i = 0; i < dir->child_count; i++)
		if (!has_locked(step, dir->child_first + i))
			return false;
	return true;
}

static int begin_locked(struct ckpt_step *step, const struct ckpt_manifest *m)
{
	size_t words = ckpt_manifest_count(m) / 64 + 1;
	struct ckpt_removal *r = step->removal;

	// The marks of another manifest say nothing of this one, and have room for its entries only.
	if (r && !is_same_locked(step, r->of)) {
		ckpt_remove_forget_locked(step);
		r = NULL;
	}
	if (!r)
		r = calloc(1, sizeof(*r) + words * sizeof(r->bits[0]));
	if (!r)
		return -ENOMEM;
	r->changed_ns = ckpt_sys.mono_ns();
	memcpy(r->of, step->summary.manifest_sha256, sizeof(r->of));
	r->words = words;
	__atomic_store_n(&step->removal, r, __ATOMIC_RELAXED);
	return 0;
}

static int mark_locked(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		       uint32_t index)
{
	int rc;

	if (step->state != CKPT_STEP_COMMITTED)
		return -EROFS;
	if (step->reopening || __atomic_load_n(&step->reopened, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	if (step->summary.pinned)
		return -EPERM;
	if (has_locked(step, index))
		return -ENOENT;
	if (e->type == CKPT_ENTRY_DIR && !is_empty_locked(step, e))
		return -ENOTEMPTY;
	if (!is_same_locked(step, ckpt_manifest_sha256(m)))
		return -EBUSY; // it has another version since the caller looked
	rc = begin_locked(step, m);
	if (!rc)
		step->removal->bits[index / 64] |= UINT64_C(1) << (index % 64);
	return rc;
}

int ckpt_remove_entry(struct ckpt_step *step, const struct ckpt_manifest *m, uint32_t dir, const char *name,
		      bool want_dir)
{
	struct ckpt_entry e;
	uint32_t index;
	int rc = ckpt_manifest_child(m, dir, name, &index);

	if (rc)
		return rc;
	ckpt_manifest_entry(m, index, &e);
	if ((e.type == CKPT_ENTRY_DIR) != want_dir)
		return want_dir ? -ENOTDIR : -EISDIR;
	ckpt_lock_take(&step->lock);
	rc = mark_locked(step, m, &e, index);
	ckpt_lock_drop(&step->lock);
	if (rc == -EPERM)
		ckpt_pin_tell(step);
	return rc;
}

void ckpt_remove_forget_locked(struct ckpt_step *step)
{
	free(__atomic_exchange_n(&step->removal, NULL, __ATOMIC_RELAXED));
}

void ckpt_remove_same_entries(struct ckpt_step *step, const struct ckpt_manifest *was, const struct ckpt_manifest *is)
{
	LOCK_SCOPE(&step->lock);

	memcpy(step->same_entries.was, ckpt_manifest_sha256(was), CKPT_SHA256_LEN);
	memcpy(step->same_entries.is, ckpt_manifest_sha256(is), CKPT_SHA256_LEN);
}

void ckpt_remove_forget(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	ckpt_remove_forget_locked(step);
}

int ckpt_remove_whole(struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	struct ckpt_entry top;
	int rc = ckpt_step_manifest(step, &m);

	if (rc)
		return rc;
	ckpt_manifest_entry(m, 0, &top);
	ckpt_lock_take(&step->lock);
	rc = is_empty_locked(step, &top) ? 0 : -ENOTEMPTY;
	ckpt_lock_drop(&step->lock);
	ckpt_manifest_unref(m);
	if (rc)
		return rc;
	rc = ckpt_delete(step);
	LOCK_SCOPE(&step->lock);
	ckpt_remove_forget_locked(step); // a deleted one is whole in the trash
	return rc;
}

static bool stands_still_locked(const struct ckpt_step *step)
{
	return step->removal && ckpt_sys.mono_ns() - step->removal->changed_ns >
					ckpt_settings_quiet_ns(&step->store->settings, CKPT_QUIET_TIMES);
}

bool ckpt_remove_hides(struct ckpt_step *step)
{
	if (!__atomic_load_n(&step->removal, __ATOMIC_RELAXED))
		return false;
	LOCK_SCOPE(&step->lock);

	return step->removal && !stands_still_locked(step);
}

void ckpt_remove_give_up(struct ckpt_step *step)
{
	bool back;

	if (!__atomic_load_n(&step->removal, __ATOMIC_RELAXED))
		return;
	ckpt_lock_take(&step->lock);
	back = stands_still_locked(step);
	if (back)
		ckpt_remove_forget_locked(step);
	ckpt_lock_drop(&step->lock);
	if (back)
		ckpt_errlog_add(step->store->errlog, step->name, 0, "remove it again, whole, or with `ckptfs rm`",
				"its removal was not brought to an end: it is back, with all its files");
}

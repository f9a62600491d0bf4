#include "core/save/quiet.h"

#include "core/step/settings.h"

static struct ckpt_quiet_verdict wait_for(enum ckpt_quiet_reason reason)
{
	return (struct ckpt_quiet_verdict){CKPT_QUIET_WAIT, reason, INT64_MAX};
}

// Every file that is to be expected is there, closed and whole: how its writers end makes no difference.
static bool is_whole(const struct ckpt_quiet_facts *f)
{
	return f->has_arrays && f->has_neighbour && !f->lacks_file && !f->is_open && !f->is_cut;
}

// It was whole before the daemon or the machine ended, and is as it was.
static bool was_whole(const struct ckpt_quiet_facts *f)
{
	return is_whole(f) && !f->has_later_file;
}

static bool mixes_attempts(const struct ckpt_quiet_facts *f)
{
	return f->was_interrupted && f->has_earlier_array && !f->copied_since && !was_whole(f);
}

static int64_t units(const struct ckpt_quiet_facts *f)
{
	if (f->is_claimed || f->unknown)
		return CKPT_QUIET_TIMES_CLAIMED;
	if (f->copier_ended || is_whole(f))
		return 1;
	return f->has_neighbour || f->name_is_used ? CKPT_QUIET_TIMES_CLAIMED : CKPT_QUIET_TIMES;
}

static enum ckpt_quiet_reason obstacle(const struct ckpt_quiet_facts *f)
{
	if (!f->has_arrays)
		return CKPT_QUIET_NO_ARRAYS;
	if (mixes_attempts(f))
		return CKPT_QUIET_INTERRUPTED;
	if (f->is_open)
		return CKPT_QUIET_OPEN;
	if (f->is_cut)
		return CKPT_QUIET_CUT;
	if (f->stopped)
		return CKPT_QUIET_STOPPED;
	if (f->is_claimed && f->living)
		return CKPT_QUIET_LIVING;
	if (f->is_claimed && f->unknown)
		return CKPT_QUIET_UNKNOWN;
	return f->unit_ns ? CKPT_QUIET_TIME : CKPT_QUIET_NEVER;
}

static struct ckpt_quiet_verdict after(struct ckpt_quiet_verdict v, const struct ckpt_quiet_facts *f, int64_t unit_ns,
				       int64_t times, int act)
{
	if (__builtin_mul_overflow(unit_ns, times, &v.after_ns))
		v.after_ns = INT64_MAX;
	if (f->still_ns >= v.after_ns)
		v.act = (unsigned)act;
	return v;
}

// What an interrupted save has made before its first file is no folder of anybody.
static bool may_be_plain(const struct ckpt_quiet_facts *f)
{
	return !f->is_declared && !f->has_arrays && !f->has_known && !f->has_beginning &&
	       (f->has_files || (!f->failed && !f->was_interrupted));
}

static struct ckpt_quiet_verdict decide_plain(const struct ckpt_quiet_facts *f)
{
	if (f->stopped)
		return wait_for(CKPT_QUIET_STOPPED);
	if (!f->has_files && f->any_lives)
		return wait_for(CKPT_QUIET_NO_ARRAYS);
	return after(wait_for(CKPT_QUIET_NO_ARRAYS), f, f->plain_unit_ns,
		     f->all_ended && !f->is_open ? 1 : CKPT_QUIET_TIMES_CLAIMED, CKPT_QUIET_UNSTAGE);
}

struct ckpt_quiet_verdict ckpt_quiet_decide(const struct ckpt_quiet_facts *f)
{
	struct ckpt_quiet_verdict v = wait_for(obstacle(f));

	if (may_be_plain(f))
		return decide_plain(f);
	if (f->failed && !is_whole(f)) {
		v.act = CKPT_QUIET_INTERRUPT;
		return v;
	}
	if (v.reason != CKPT_QUIET_TIME)
		return v;
	return after(v, f, f->unit_ns, units(f), CKPT_QUIET_COMMIT);
}

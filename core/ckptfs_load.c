// Many arrays of a step at once, by a template, for programs (ckptfs.h).
#include "core/ckptfs.h"

#include "core/ckptfs_look.h"

#include "core/array/fill.h"
#include "core/base/lock.h"
#include "core/base/many.h"
#include "core/base/util.h"

#include <assert.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define AT_ONCE_BY_ITSELF 8u
#define DECODING_BYTES ((uint64_t)160 << 20) // CKPT_GATHER_BYTES_MAX, and two buffers of CKPT_FILL_DECODED_BYTES

static_assert((int)CKPT_SHAPES_PADDED == (int)CKPT_MATCH_PADDED &&
		      (int)CKPT_SHAPES_RELAXED == (int)CKPT_MATCH_RELAXED && CKPT_MATCH_RULES == 3,
	      "rules for shapes");
static_assert((int)CKPT_FITTED_FIRST == (int)CKPT_FIT_FIRST && (int)CKPT_FITTED_RESHAPED == (int)CKPT_FIT_RESHAPED &&
		      (int)CKPT_FITTED_PADDED == (int)CKPT_FIT_PADDED && (int)CKPT_FITTED_KEPT == (int)CKPT_FIT_KEPT &&
		      (int)CKPT_FITTED_ABSENT == (int)CKPT_FIT_ABSENT,
	      "how arrays fit");
static_assert((int)CKPT_STRICT_LOG_ALL == (int)CKPT_NAMES_LOG_ALL &&
		      (int)CKPT_STRICT_RAISE_ALL == (int)CKPT_NAMES_RAISE_ALL &&
		      (int)CKPT_STRICT_RETURN_ALL == (int)CKPT_NAMES_RETURN_ALL &&
		      (int)CKPT_STRICT_IGNORE_ALL == (int)CKPT_NAMES_IGNORE_ALL,
	      "modes");

// -EINVAL: it is not of the form that the header says.
static int wanted_of(const struct ckpt_array_request *r, struct ckpt_match_wanted *ret_wanted)
{
	if (!r->name || r->shapes >= CKPT_MATCH_RULES || !r->start != !r->extent || r->has_flat > 1 ||
	    (!r->has_flat && (r->flat_start || r->flat_count)) || (r->shape && r->ndim > CKPT_ARRAY_DIMS_MAX))
		return -EINVAL;
	*ret_wanted = (struct ckpt_match_wanted){.name = r->name,
						 .dtype = r->dtype,
						 .shape = r->shape,
						 .ndim = r->ndim,
						 .rule = (enum ckpt_match_rule)r->shapes,
						 .start = r->start,
						 .extent = r->extent,
						 .has_flat = r->has_flat,
						 .flat_start = r->flat_start,
						 .flat_count = r->flat_count};
	return 0;
}

// --- Reading ----------------------------------------------------------------------------------------------------------------

struct reading {
	struct ckpt_array_set *set;
	const struct ckpt_array_request *requests;
	int *results;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	uint64_t decoding; // bytes of the arrays that are being decoded; guarded by lock
};

static uint64_t decoding_of(const struct ckpt_gather *g, const struct ckpt_match_one *one)
{
	uint64_t width = MAX(ckpt_dtype_width(one->from), ckpt_dtype_width(one->to));
	uint64_t buffer = MIN(MIN(ckpt_gather_elements(g), (uint64_t)CKPT_FILL_DECODED_BYTES) * width,
			      (uint64_t)CKPT_FILL_DECODED_BYTES);

	return MIN(ckpt_gather_held_most(g) + (one->from == one->to ? buffer : 2 * buffer), DECODING_BYTES);
}

// Small arrays are decoded side by side, and large ones one after the other: threads do not multiply the memory.
static void begin_decoding(struct reading *of, uint64_t bytes)
{
	{
		LOCK_SCOPE(&of->lock);
		while (of->decoding > DECODING_BYTES - bytes)
			ckpt_lock_wait(&of->changed, &of->lock);
		of->decoding += bytes;
	}
	ckpt_array_set_forget(of->set);
}

static void end_decoding(struct reading *of, uint64_t bytes)
{
	LOCK_SCOPE(&of->lock);
	of->decoding -= bytes;
	pthread_cond_broadcast(&of->changed);
}

static int fill(struct ckpt_gather *g, const struct ckpt_array_request *r, const struct ckpt_array_info *info,
		const struct ckpt_match_one *one)
{
	const struct ckpt_fill f = {.fit = one->fit,
				    .from = one->from,
				    .to = one->to,
				    .ndim = r->shape ? r->ndim : info->ndim,
				    .shape = r->shape ? r->shape : info->shape,
				    .found = info->shape,
				    .start = r->start,
				    .extent = r->extent,
				    .into = r->into,
				    .strides = r->strides};

	return r->has_flat ? ckpt_fill_flat(g, &f, r->flat_start, r->flat_count) : ckpt_fill_box(g, &f);
}

static int read_one(struct reading *of, const struct ckpt_array_request *r)
{
	struct ckpt_array_set *set = of->set;
	uint64_t decoding = 0;
	const struct ckpt_array_info *info;
	struct ckpt_match_wanted wanted;
	struct ckpt_match_one one;
	struct ckpt_gather *g;
	int rc = wanted_of(r, &wanted);

	if (!rc)
		rc = ckpt_match_one(ckpt_array_set_catalog(set), ckpt_array_set_names(set), &wanted, &one, NULL);
	if (!rc)
		rc = one.rc;
	if (rc || !r->into || one.fit == CKPT_FIT_KEPT)
		return rc ? rc : (int)one.fit;
	info = ckpt_array_set_at(set, one.at);
	if (r->strides && !r->shape && !r->has_flat && r->ndim != info->ndim)
		return -EINVAL;
	rc = ckpt_array_set_take(set, one.at, &g);
	if (rc)
		return rc;
	if (ckpt_gather_is_decoded(g)) {
		decoding = decoding_of(g, &one);
		begin_decoding(of, decoding);
	}
	rc = fill(g, r, info, &one);
	ckpt_array_set_give(set, one.at, g);
	if (decoding)
		end_decoding(of, decoding);
	return rc ? rc : (int)one.fit;
}

static void read_next(void *arg, size_t i)
{
	struct reading *r = arg;

	r->results[i] = read_one(r, &r->requests[i]);
}

int ckpt_array_set_read_many(struct ckpt_array_set *set, const struct ckpt_array_request *requests, size_t count,
			     unsigned at_once, int *results)
{
	struct reading r = {.set = set, .requests = requests, .results = results, .changed = PTHREAD_COND_INITIALIZER};
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	sigset_t all, before;

	if (!at_once)
		at_once = MIN((unsigned)MAX(processors, 1L), AT_ONCE_BY_ITSELF);
	at_once = MIN(at_once, CKPT_MANY_AT_ONCE_MAX);
	ckpt_lock_init(&r.lock, CKPT_LOCK_LEAF);
	// Threads that are started take the mask of this one: the program's signals are none of theirs.
	sigfillset(&all);
	if (at_once > 1)
		pthread_sigmask(SIG_SETMASK, &all, &before);
	ckpt_many_run(&(struct ckpt_many){.count = count, .at_once = at_once, .call = read_next, .arg = &r});
	if (at_once > 1)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	ckpt_lock_done(&r.lock);
	for (size_t i = 0; i < count; i++)
		if (results[i] < 0)
			return results[i];
	return 0;
}

// --- A template -------------------------------------------------------------------------------------------------------------

struct matched {
	struct ckpt_array_match shown; // first: it is what the program has
	struct ckpt_match match;
	int results[];
};

int ckpt_array_set_match(const struct ckpt_array_set *set, const struct ckpt_array_request *requests, size_t count,
			 unsigned strict, struct ckpt_array_match **ret_match)
{
	CLEANUP_FREE struct ckpt_match_wanted *wanted = ckpt_calloc(count + 1, sizeof(*wanted));
	struct matched *m = calloc(1, sizeof(*m) + count * sizeof(*m->results)); // wanted's sizes are larger
	int rc = wanted && m ? 0 : -ENOMEM;

	if (strict >= CKPT_NAMES_MODES)
		rc = -EINVAL;
	for (size_t i = 0; !rc && i < count; i++)
		rc = wanted_of(&requests[i], &wanted[i]);
	if (!rc)
		rc = ckpt_match(ckpt_array_set_catalog(set), ckpt_array_set_names(set), wanted, count,
				(enum ckpt_match_mode)strict, &m->match);
	if (rc) {
		free(m);
		return rc;
	}
	for (size_t i = 0; i < count; i++)
		m->results[i] = m->match.ones[i].rc ? m->match.ones[i].rc : (int)m->match.ones[i].fit;
	m->shown = (struct ckpt_array_match){.refused = m->match.refused,
					     .message = m->match.message,
					     .missing = (const char *const *)m->match.missing,
					     .unexpected = (const char *const *)m->match.unexpected,
					     .missing_count = m->match.missing_count,
					     .unexpected_count = m->match.unexpected_count,
					     .results = m->results,
					     .count = count};
	*ret_match = &m->shown;
	return 0;
}

void ckpt_array_match_free(struct ckpt_array_match *match)
{
	struct matched *m = (struct matched *)match;

	if (!m)
		return;
	ckpt_match_done(&m->match);
	free(m);
}

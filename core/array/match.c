#include "core/array/match.h"

#include "core/array/cast.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// --- Words ------------------------------------------------------------------------------------------------------------------

// As Python prints a tuple.
static void put_shape(FILE *out, const uint64_t *shape, unsigned ndim)
{
	fputc('(', out);
	for (unsigned k = 0; k < ndim; k++)
		fprintf(out, "%s%" PRIu64, k ? ", " : "", shape[k]);
	fputs(ndim == 1 ? ",)" : ")", out);
}

struct words {
	char *text;
	size_t len;
	FILE *out;
};

static bool begin_words(struct words *w)
{
	*w = (struct words){0};
	w->out = open_memstream(&w->text, &w->len);
	return w->out;
}

// NULL: no memory.
static char *end_words(struct words *w)
{
	bool failed = ferror(w->out);

	if (fclose(w->out) || failed) {
		free(w->text);
		return NULL;
	}
	return w->text;
}

static int say(char **ret_why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int say(char **ret_why, const char *format, ...)
{
	va_list args;
	int rc;

	if (!ret_why)
		return 0;
	va_start(args, format);
	rc = vasprintf(ret_why, format, args);
	va_end(args);
	if (rc < 0)
		*ret_why = NULL;
	return rc < 0 ? -ENOMEM : 0;
}

// BEFORE shape MIDDLE shape AFTER
static int say_shapes(char **ret_why, const char *before, const struct ckpt_catalog_array *a, const char *middle,
		      const struct ckpt_match_wanted *w, const char *after)
{
	struct words words;

	if (!ret_why)
		return 0;
	if (!begin_words(&words))
		return -ENOMEM;
	fputs(before, words.out);
	put_shape(words.out, a->shape, a->ndim);
	fputs(middle, words.out);
	put_shape(words.out, w->shape, w->ndim);
	fputs(after, words.out);
	*ret_why = end_words(&words);
	return *ret_why ? 0 : -ENOMEM;
}

// --- Shapes -----------------------------------------------------------------------------------------------------------------

static bool is_same(const uint64_t *a, const uint64_t *b, unsigned ndim)
{
	return !ndim || !memcmp(a, b, ndim * sizeof(*a));
}

static bool count_of(const uint64_t *shape, unsigned ndim, uint64_t *ret_count)
{
	bool none = false;

	*ret_count = 1;
	for (unsigned k = 0; k < ndim; k++) {
		none |= !shape[k];
		if (shape[k] && __builtin_mul_overflow(*ret_count, shape[k], ret_count))
			return false;
	}
	if (none)
		*ret_count = 0;
	return true;
}

static enum ckpt_match_fit relax(const struct ckpt_catalog_array *a, const struct ckpt_match_wanted *w)
{
	uint64_t have, want;

	if (a->ndim == w->ndim + 1 && is_same(a->shape + 1, w->shape, w->ndim))
		return a->shape[0] ? CKPT_FIT_FIRST : CKPT_FIT_KEPT;
	return count_of(a->shape, a->ndim, &have) && count_of(w->shape, w->ndim, &want) && have == want
		       ? CKPT_FIT_RESHAPED
		       : CKPT_FIT_KEPT;
}

static int pad(const struct ckpt_catalog_array *a, const struct ckpt_match_wanted *w, struct ckpt_match_one *one,
	       char **ret_why)
{
	one->rc = -ERANGE;
	if (a->ndim != w->ndim) {
		CLEANUP_FREE char *after = NULL;

		return asprintf(&after, ") tensor for key %s", w->name) < 0
			       ? -ENOMEM
			       : say_shapes(ret_why, "Global shape mismatch for loaded (", a, ") and expected (", w,
					    after);
	}
	for (unsigned k = 0; k < a->ndim; k++)
		if (a->shape[k] > w->shape[k])
			return say(ret_why,
				   "Expected shape (%" PRIu64 ") smaller than actual (%" PRIu64
				   ") in dimension %u for %s",
				   w->shape[k], a->shape[k], k, w->name);
	one->rc = 0;
	one->fit = CKPT_FIT_PADDED;
	return 0;
}

static int fit_shape(const struct ckpt_catalog_array *a, const struct ckpt_match_wanted *w, struct ckpt_match_one *one,
		     char **ret_why)
{
	CLEANUP_FREE char *before = NULL;

	if (!w->shape || (a->ndim == w->ndim && is_same(a->shape, w->shape, a->ndim)))
		return 0;
	if (w->rule == CKPT_MATCH_RELAXED) {
		one->fit = relax(a, w);
		return 0;
	}
	if (w->rule == CKPT_MATCH_PADDED)
		return pad(a, w, one, ret_why);
	one->rc = -ERANGE;
	return asprintf(&before, "Array shape mismatch for key '%s': got ", w->name) < 0
		       ? -ENOMEM
		       : say_shapes(ret_why, before, a, ", expected ", w, ".");
}

// The box is in the wanted array, and begins in that of the catalog where that is smaller.
static int fit_box(const struct ckpt_catalog_array *a, const struct ckpt_match_wanted *w, struct ckpt_match_one *one,
		   char **ret_why)
{
	const uint64_t *shape = w->shape ? w->shape : a->shape;
	unsigned ndim = w->shape ? w->ndim : a->ndim;

	if (w->start && w->ndim != ndim) {
		one->rc = -EINVAL;
		return say(ret_why, "the box has rank %u, and %s has rank %u", w->ndim, w->name, ndim);
	}
	for (unsigned k = 0; w->start && k < ndim; k++) {
		if (w->start[k] > shape[k] || w->extent[k] > shape[k] - w->start[k]) {
			one->rc = -ERANGE;
			return say(ret_why,
				   "the box [%" PRIu64 ", +%" PRIu64
				   ") is not in dimension %u of %s, which has %" PRIu64,
				   w->start[k], w->extent[k], k, w->name, shape[k]);
		}
		if (one->fit == CKPT_FIT_PADDED && w->extent[k] && w->start[k] >= a->shape[k]) {
			one->rc = -ERANGE;
			return say(ret_why,
				   "Got empty slice for %s: it begins at %" PRIu64 " of %" PRIu64 " in dimension %u",
				   w->name, w->start[k], a->shape[k], k);
		}
	}
	return 0;
}

static int fit_flat(const struct ckpt_catalog_array *a, const struct ckpt_match_wanted *w, struct ckpt_match_one *one,
		    char **ret_why)
{
	const uint64_t *extent = w->start ? w->extent : w->shape ? w->shape : a->shape;
	unsigned ndim = w->shape || w->start ? w->ndim : a->ndim;
	uint64_t elements;

	if (!w->has_flat || (count_of(extent, ndim, &elements) && w->flat_start <= elements &&
			     w->flat_count <= elements - w->flat_start))
		return 0;
	one->rc = -ERANGE;
	return say(ret_why, "the flat range [%" PRIu64 ", +%" PRIu64 ") of %s is not in its box", w->flat_start,
		   w->flat_count, w->name);
}

// --- One array --------------------------------------------------------------------------------------------------------------

static int fit_dtype(const struct ckpt_catalog_array *a, const struct ckpt_match_wanted *w, struct ckpt_match_one *one,
		     char **ret_why)
{
	one->from = a->dtype;
	one->to = w->dtype ? ckpt_dtype_called(w->dtype) : a->dtype;
	if (a->why || !a->dtype || ckpt_dtype_bits(a->dtype) % 8) {
		one->rc = -ENOTSUP;
		return say(ret_why, "%s cannot be read: %s", w->name,
			   a->why      ? a->why
			   : !a->dtype ? "its dtype is not known"
				       : "several of its elements share a byte");
	}
	if (one->to == one->from || (ckpt_is_floating(one->from) && one->to && ckpt_is_floating(one->to)))
		return 0;
	one->rc = -ENOTSUP;
	return say(ret_why, "%s is %s and cannot be read as %s: only floating types are cast", w->name,
		   ckpt_dtype_numpy(a->dtype), w->dtype);
}

static int not_found(const struct ckpt_match_wanted *w, struct ckpt_match_one *one, char **ret_why)
{
	if (one->rc == -EEXIST)
		return say(ret_why, "several trees of the step have %s: name one as TREE:NAME", w->name);
	if (w->rule == CKPT_MATCH_RELAXED) {
		one->rc = 0;
		one->fit = CKPT_FIT_KEPT;
		return 0;
	}
	return say(ret_why, "Missing array for key '%s' in checkpoint.", w->name);
}

int ckpt_match_one(const struct ckpt_catalog *c, const struct ckpt_names *names, const struct ckpt_match_wanted *wanted,
		   struct ckpt_match_one *ret_one, char **ret_why)
{
	struct ckpt_catalog_array a;
	struct ckpt_match_one *one = ret_one;
	int rc;

	*one = (struct ckpt_match_one){.fit = CKPT_FIT_SAME};
	if (ret_why)
		*ret_why = NULL;
	one->rc = ckpt_names_find(names, wanted->name, &one->at);
	if (one->rc)
		return not_found(wanted, one, ret_why);
	ckpt_catalog_get(c, one->at, &a);
	rc = fit_dtype(&a, wanted, one, ret_why);
	if (!rc && !one->rc)
		rc = fit_shape(&a, wanted, one, ret_why);
	if (!rc && !one->rc)
		rc = fit_box(&a, wanted, one, ret_why);
	if (!rc && !one->rc)
		rc = fit_flat(&a, wanted, one, ret_why);
	return rc;
}

// --- All of them ------------------------------------------------------------------------------------------------------------

static const struct {
	bool unexpected, missing, says, refuses;
} modes[CKPT_NAMES_MODES] = {
	[CKPT_NAMES_LOG_UNEXPECTED] = {.unexpected = true, .says = true},
	[CKPT_NAMES_LOG_ALL] = {.unexpected = true, .missing = true, .says = true},
	[CKPT_NAMES_RAISE_UNEXPECTED] = {.unexpected = true, .says = true, .refuses = true},
	[CKPT_NAMES_RAISE_ALL] = {.unexpected = true, .missing = true, .says = true, .refuses = true},
	[CKPT_NAMES_RETURN_UNEXPECTED] = {.unexpected = true},
	[CKPT_NAMES_RETURN_ALL] = {.unexpected = true, .missing = true},
};

static int match_each(const struct ckpt_catalog *c, const struct ckpt_names *names,
		      const struct ckpt_match_wanted *wanted, size_t count, enum ckpt_match_mode mode,
		      struct ckpt_match *m, FILE *out)
{
	size_t lines = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++) {
		CLEANUP_FREE char *why = NULL;
		struct ckpt_match_one *one = &m->ones[i];

		rc = ckpt_match_one(c, names, &wanted[i], one, &why);
		if (rc)
			break;
		if (mode != CKPT_NAMES_ASSUME_OK_UNEXPECTED &&
		    ckpt_names_find(names, wanted[i].name, &(size_t){0}) == -ENOENT)
			*one = (struct ckpt_match_one){.fit = CKPT_FIT_ABSENT};
		if (one->rc && lines++ < CKPT_MATCH_LINES_MAX)
			fprintf(out, "%s%s", lines > 1 ? "\n" : "", why);
		if (one->rc && !m->refused)
			m->refused = one->rc;
	}
	if (lines > CKPT_MATCH_LINES_MAX)
		fprintf(out, "\nand %zu more", lines - CKPT_MATCH_LINES_MAX);
	return rc;
}

static int list_unexpected(const struct ckpt_match_wanted *wanted, size_t count, struct ckpt_match *m)
{
	m->unexpected = ckpt_calloc(count + 1, sizeof(*m->unexpected));
	if (!m->unexpected)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (m->ones[i].fit == CKPT_FIT_ABSENT) {
			m->unexpected[m->unexpected_count] = strdup(wanted[i].name);
			if (!m->unexpected[m->unexpected_count])
				return -ENOMEM;
			m->unexpected_count++;
		}
	return 0;
}

static int list_missing(const struct ckpt_catalog *c, const struct ckpt_names *names,
			const struct ckpt_match_wanted *wanted, size_t count, struct ckpt_match *m)
{
	size_t all = ckpt_catalog_count(c);
	CLEANUP_FREE bool *used = ckpt_calloc(all + 1, sizeof(*used));

	m->missing = ckpt_calloc(all + 1, sizeof(*m->missing));
	if (!used || !m->missing)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		size_t at;

		if (!ckpt_names_find(names, wanted[i].name, &at))
			used[at] = true;
	}
	for (size_t i = 0; i < all; i++) {
		struct ckpt_catalog_array a;
		char *name;

		if (used[i])
			continue;
		ckpt_catalog_get(c, i, &a);
		if (asprintf(&name, "%s%s%s", ckpt_names_is_unique(names, i) ? "" : a.tree,
			     ckpt_names_is_unique(names, i) ? "" : ":", a.name) < 0)
			return -ENOMEM;
		m->missing[m->missing_count++] = name;
	}
	return 0;
}

static void put_names(FILE *out, char *const *names, size_t count)
{
	fputc('{', out);
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s'%s'", i ? ", " : "", names[i]);
	fputs("}. ", out);
}

static void put_mismatch(const struct ckpt_match *m, FILE *out)
{
	if (m->missing_count)
		fputs("Some keys found in the checkpoint are missing in the template. ", out);
	if (m->unexpected_count)
		fputs("Unexpected keys (not found in the checkpoint) encountered in the template. ", out);
	fputc('\n', out);
	if (m->missing_count) {
		fputs("Missing keys: ", out);
		put_names(out, m->missing, m->missing_count);
	}
	if (m->unexpected_count) {
		fputs("Unexpected keys: ", out);
		put_names(out, m->unexpected, m->unexpected_count);
	}
}

static int match(const struct ckpt_catalog *c, const struct ckpt_names *names, const struct ckpt_match_wanted *wanted,
		 size_t count, enum ckpt_match_mode mode, struct ckpt_match *m)
{
	struct words shapes, words;
	int rc;

	m->ones = ckpt_calloc(count + 1, sizeof(*m->ones));
	if (!m->ones || !begin_words(&shapes))
		return -ENOMEM;
	rc = match_each(c, names, wanted, count, mode, m, shapes.out);
	if (!rc && modes[mode].unexpected)
		rc = list_unexpected(wanted, count, m);
	if (!rc && modes[mode].missing)
		rc = list_missing(c, names, wanted, count, m);
	shapes.text = end_words(&shapes);
	if (rc || !shapes.text || !begin_words(&words)) {
		free(shapes.text);
		return rc ? rc : -ENOMEM;
	}
	if (modes[mode].says && (m->missing_count || m->unexpected_count)) {
		put_mismatch(m, words.out);
		if (modes[mode].refuses)
			m->refused = -ENOENT;
		if (*shapes.text)
			fputc('\n', words.out);
	}
	fputs(shapes.text, words.out);
	free(shapes.text);
	m->message = end_words(&words);
	if (m->message && !*m->message) {
		free(m->message);
		m->message = NULL;
		return 0;
	}
	return m->message ? 0 : -ENOMEM;
}

int ckpt_match(const struct ckpt_catalog *c, const struct ckpt_names *names, const struct ckpt_match_wanted *wanted,
	       size_t count, enum ckpt_match_mode mode, struct ckpt_match *ret_match)
{
	struct ckpt_match m = {0};
	int rc = match(c, names, wanted, count, mode, &m);

	if (rc)
		ckpt_match_done(&m);
	else
		*ret_match = m;
	return rc;
}

void ckpt_match_done(struct ckpt_match *m)
{
	for (size_t i = 0; i < m->missing_count; i++)
		free(m->missing[i]);
	for (size_t i = 0; i < m->unexpected_count; i++)
		free(m->unexpected[i]);
	free(m->missing);
	free(m->unexpected);
	free(m->message);
	free(m->ones);
}

#include "core/view/examine_known.h"

#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/step/older.h"

#define STATES_MAX 64 // of the step's files, from the newest on: these are asked for their findings
#define TRIES_MAX 4   // of those with findings: a version that was restored is like one before the newest

// --- The same arrays ----------------------------------------------------------------------------------------------------

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool same_bytes(const void *a, const void *b, size_t len)
{
	return a == b || (a && b && !memcmp(a, b, len));
}

static bool same_array(const struct ckpt_catalog_array *a, const struct ckpt_catalog_array *b)
{
	return !strcmp(a->tree, b->tree) && !strcmp(a->name, b->name) && !strcmp(a->format, b->format) &&
	       same_text(a->why, b->why) && a->dtype == b->dtype && a->big_endian == b->big_endian &&
	       a->ndim == b->ndim && same_bytes(a->shape, b->shape, a->ndim * sizeof(*a->shape)) &&
	       same_bytes(a->fill, b->fill, ckpt_dtype_width(a->dtype)) && a->pieces == b->pieces;
}

static bool same_piece(const struct ckpt_piece *a, const struct ckpt_piece *b, unsigned ndim)
{
	return !strcmp(a->file, b->file) && a->offset == b->offset && ckpt_piece_is_alike(a, b, ndim) &&
	       same_bytes(a->data, b->data, (size_t)a->bytes);
}

static bool find_seal(const struct ckpt_manifest *m, const char *file, struct ckpt_seal *ret_seal)
{
	uint32_t index;

	return !ckpt_manifest_lookup(m, file, &index) && ckpt_manifest_seal(m, index, ret_seal);
}

struct sides {
	struct ckpt_manifest *m, *older_m; // one of those that are tried
	const struct ckpt_catalog *now, *older;
	const char *file; // the last one that was the same: arrays come mostly file by file
};

static bool same_file(struct sides *s, const char *file)
{
	struct ckpt_seal a, b;

	if (same_text(s->file, file))
		return true;
	if (!find_seal(s->m, file, &a) || !find_seal(s->older_m, file, &b) ||
	    memcmp(a.sha256, b.sha256, sizeof(a.sha256)))
		return false;
	s->file = file;
	return true;
}

static bool same_pieces(struct sides *s, size_t array, const struct ckpt_catalog_array *is)
{
	for (size_t k = 0; k < is->pieces; k++) {
		struct ckpt_piece a, b;

		ckpt_catalog_piece(s->now, array, k, &a);
		ckpt_catalog_piece(s->older, array, k, &b);
		if (!same_piece(&a, &b, is->ndim) || (!a.data && !same_file(s, a.file)))
			return false;
	}
	return true;
}

// 0; -ENOENT: they are others; -EINTR.
static int compare(struct sides *s)
{
	size_t count = ckpt_catalog_count(s->now);

	if (count != ckpt_catalog_count(s->older))
		return -ENOENT;
	for (size_t i = 0; i < count; i++) {
		struct ckpt_catalog_array a, b;

		ckpt_catalog_get(s->now, i, &a);
		ckpt_catalog_get(s->older, i, &b);
		if (!same_array(&a, &b) || !same_pieces(s, i, &a))
			return -ENOENT;
		if (ckpt_catalog_goes_on(s->now, 1 + a.pieces))
			return -EINTR;
	}
	return 0;
}

static void take_digests(struct ckpt_step_arrays *now, const struct ckpt_catalog *older)
{
	for (size_t i = 0; i < ckpt_catalog_count(older); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(older, i, &a);
		if (a.digest)
			(void)ckpt_step_arrays_set_digest(now, i, a.digest); // there may be no room for it
	}
}

// --- The older version --------------------------------------------------------------------------------------------------

static bool is_of_elements(enum ckpt_array_finding_kind kind)
{
	return kind == CKPT_FINDING_NAN || kind == CKPT_FINDING_INF || kind == CKPT_FINDING_ZERO ||
	       kind == CKPT_FINDING_SAME;
}

// All were read; what could not be read is tried again.
static bool says_all(const json_t *findings)
{
	const char *looked = json_string_value(json_object_get(findings, "looked"));
	const json_t *counts = json_object_get(findings, "counts");

	return looked && !strcmp(looked, "elements") && !json_object_get(findings, "not_read") &&
	       !json_object_get(counts, ckpt_array_finding_word(CKPT_FINDING_DAMAGED));
}

// 0; -ENOENT: it has none that say all; -ENOMEM.
static int read_findings(const struct ckpt_record *record, json_t **ret_findings)
{
	CLEANUP_FREE char *text = NULL;
	json_t *findings;
	int rc = ckpt_metadata_findings(record->metadata, &text);

	if (!rc)
		rc = ckpt_json_load(text, strlen(text), 0, NULL, &findings);
	if (rc)
		return rc == -ENOMEM ? rc : -ENOENT;
	if (!says_all(findings)) {
		json_decref(findings);
		return -ENOENT;
	}
	*ret_findings = findings;
	return 0;
}

// The catalog that a manifest keeps. -ENOENT: none.
static int read_kept(struct ckpt_step *step, struct ckpt_manifest *m, struct ckpt_step_arrays **ret_arrays)
{
	const void *bytes;
	size_t len;

	return ckpt_manifest_catalog(m, &bytes, &len) ? ckpt_step_arrays_read(step, m, "", ret_arrays) : -ENOENT;
}

// 0: the record's version has the same arrays, which now get their digests.
static int take_arrays(struct ckpt_step *step, const struct ckpt_record *record, struct sides *s,
		       struct ckpt_step_arrays *now)
{
	struct ckpt_step_arrays *older = NULL;
	int rc = ckpt_step_read_manifest(step, &record->summary, &s->older_m);

	s->file = NULL;
	if (!rc)
		rc = read_kept(step, s->older_m, &older);
	if (!rc) {
		s->older = ckpt_step_arrays_catalog(older);
		rc = compare(s);
	}
	if (!rc)
		take_digests(now, s->older);
	ckpt_step_arrays_free(older);
	ckpt_manifest_unref(TAKE_PTR(s->older_m));
	return rc;
}

// Versions without findings cost no try.
static int try_version(struct ckpt_step *step, uint32_t version, struct sides *s, struct ckpt_step_arrays *now,
		       json_t **ret_findings, unsigned *tries)
{
	struct ckpt_record record;
	int rc = ckpt_step_record(step, version, &record);

	if (rc)
		return rc;
	rc = read_findings(&record, ret_findings);
	if (!rc) {
		(*tries)++;
		rc = take_arrays(step, &record, s, now);
		if (rc)
			json_decref(TAKE_PTR(*ret_findings));
	}
	ckpt_record_done(&record);
	return rc;
}

int ckpt_examine_known_find(struct ckpt_step *step, struct ckpt_manifest *m, struct ckpt_step_arrays *now,
			    struct ckpt_examine_known *ret_known)
{
	struct sides s = {.m = m, .now = ckpt_step_arrays_catalog(now)};
	struct ckpt_older *list;
	unsigned tries = 0;
	size_t count;
	int rc = ckpt_older_list(step, &list, &count);

	if (rc)
		return rc == -ENOMEM ? rc : -ENOENT;
	rc = -ENOENT;
	for (size_t i = count; i-- > 0 && count - i <= STATES_MAX && tries < TRIES_MAX && rc;) {
		rc = try_version(step, list[i].says, &s, now, &ret_known->findings, &tries);
		if (rc == -ENOMEM || rc == -EINTR)
			break;
	}
	free(list);
	return !rc || rc == -ENOMEM || rc == -EINTR ? rc : -ENOENT;
}

void ckpt_examine_known_done(struct ckpt_examine_known *k)
{
	json_decref(TAKE_PTR(k->findings));
}

// --- Questions ----------------------------------------------------------------------------------------------------------

uint64_t ckpt_examine_known_count(const struct ckpt_examine_known *k, enum ckpt_array_finding_kind kind)
{
	const json_t *count = json_object_get(json_object_get(k->findings, "counts"), ckpt_array_finding_word(kind));

	return is_of_elements(kind) && json_is_integer(count) ? (uint64_t)MAX(json_integer_value(count), 0) : 0;
}

static bool is_wanted(const char *words, bool troubles)
{
	for (int kind = 0; kind < CKPT_FINDING_KINDS; kind++) {
		const char *word = ckpt_array_finding_word(kind);
		size_t len = strlen(word);

		if (!strncmp(words, word, len) && words[len] == ' ')
			return is_of_elements(kind) && ckpt_array_finding_is_trouble(kind) == troubles;
	}
	return false;
}

const char *ckpt_examine_known_words(const struct ckpt_examine_known *k, bool troubles, size_t i)
{
	const json_t *value;
	size_t at;

	json_array_foreach(json_object_get(k->findings, "first"), at, value)
	{
		const char *words = json_string_value(value);

		if (words && is_wanted(words, troubles) && !i--)
			return words;
	}
	return NULL;
}

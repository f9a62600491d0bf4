#include "tools/derive_side.h"

#include "core/array/cast.h"
#include "core/array/write.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/save/share.h"
#include "core/save/share_chunks.h"
#include "core/store/examiner.h"
#include "tools/output.h"
#include "tools/stop.h"

#include <limits.h>

int ckpt_derive_side_read(struct ckpt_derive_side *s, const struct ckpt_listing *l, const struct ckpt_operand *o,
			  const char *word)
{
	CLEANUP_FREE char *path = NULL;
	int rc = ckpt_listing_files(l, o, word, &s->step, &s->m, &path);

	s->word = word;
	s->under = ckpt_text("%s", "");
	if (rc)
		return rc;
	s->is_here = ckpt_examiner_is_here(s->step, s->m);
	rc = ckpt_step_arrays_read(s->step, s->m, path, &s->arrays);
	return rc ? ckpt_fail(word, "`ckptfs ls STORE STEP` lists its files; `ckptfs verify` says what is damaged",
			      "its arrays cannot be read: %s", strerror(-rc))
		  : 0;
}

void ckpt_derive_side_done(struct ckpt_derive_side *s)
{
	ckpt_whole_done(&s->whole);
	ckpt_step_arrays_free(s->arrays);
	ckpt_manifest_unref(s->m);
	ckpt_step_unref(s->step);
	free(s->chosen);
	free(s->skipped);
	free(s->under);
	*s = (struct ckpt_derive_side){0};
}

// --- Choosing ---------------------------------------------------------------------------------------------------------------

// As options name it; malloc'ed.
static char *final_name(const struct ckpt_export *e, const struct ckpt_catalog_array *a)
{
	CLEANUP_FREE char *full = ckpt_text("%s:%s", a->tree, a->name);

	return ckpt_need(e->how ? ckpt_choice_name(e->how, a->name, full, CKPT_CHOICE_WHOLE, false) : strdup(a->name));
}

struct names {
	char **at; // sorted
	size_t count;
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_names(const struct ckpt_derive_side *s, const struct ckpt_export *e, struct names *ret)
{
	const struct ckpt_catalog *c = ckpt_step_arrays_catalog(s->arrays);

	ret->at = ckpt_need(ckpt_calloc(ckpt_catalog_count(c) + 1, sizeof(*ret->at)));
	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		if (s->chosen[i])
			ret->at[ret->count++] = final_name(e, &a);
	}
	qsort(ret->at, ret->count, sizeof(*ret->at), by_text);
}

static bool has_name(const struct names *n, const struct ckpt_export *e, const struct ckpt_catalog_array *a)
{
	CLEANUP_FREE char *name = final_name(e, a);

	return n->count && bsearch(&name, n->at, n->count, sizeof(*n->at), by_text);
}

static void names_done(struct names *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->at[i]);
	free(n->at);
}

void ckpt_derive_side_choose(struct ckpt_derive_side *s, const struct ckpt_export *e,
			     const struct ckpt_derive_side *given)
{
	const struct ckpt_catalog *c = ckpt_step_arrays_catalog(s->arrays);
	struct names names = {0};

	s->chosen = ckpt_need(ckpt_calloc(ckpt_catalog_count(c) + 1, sizeof(*s->chosen)));
	if (given)
		list_names(given, e, &names);
	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		s->chosen[i] = given ? !has_name(&names, e, &a) : ckpt_export_wants(e, &a);
	}
	names_done(&names);
}

// --- Files that stay --------------------------------------------------------------------------------------------------------

static bool is_written_here(const char *format)
{
	for (size_t i = 0; ckpt_write_format(i); i++)
		if (!strcmp(ckpt_write_format(i), format))
			return true;
	return false;
}

static bool is_renamed(const struct ckpt_export *e, const struct ckpt_catalog_array *a)
{
	CLEANUP_FREE char *name = final_name(e, a);

	return strcmp(name, a->name) != 0;
}

static bool may_stay(const struct ckpt_export *e, const struct ckpt_catalog_array *a, const char *format)
{
	bool changes = e->dtype && a->dtype != e->dtype && (!a->dtype || ckpt_is_floating(a->dtype));

	changes |= e->how && (e->how->shards || e->how->unroll || is_renamed(e, a));
	return !changes && !a->why && (format ? !strcmp(a->format, format) : is_written_here(a->format));
}

static uint64_t file_bytes(const struct ckpt_derive_side *s, const char *path)
{
	struct ckpt_entry e = {0};
	uint32_t index;

	if (!ckpt_manifest_lookup(s->m, path, &index))
		ckpt_manifest_entry(s->m, index, &e);
	return e.bytes;
}

int ckpt_derive_side_find_whole(struct ckpt_derive_side *s, const struct ckpt_export *e, const char *format)
{
	const struct ckpt_catalog *c = ckpt_step_arrays_catalog(s->arrays);
	CLEANUP_FREE bool *stay = ckpt_need(ckpt_calloc(ckpt_catalog_count(c) + 1, sizeof(*stay)));
	int rc;

	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		struct ckpt_catalog_array a;

		ckpt_catalog_get(c, i, &a);
		stay[i] = s->chosen[i] && !e->shard_bytes && may_stay(e, &a, format);
	}
	rc = ckpt_whole_find(c, ckpt_step_arrays_files(s->arrays), stay, &s->whole);
	if (rc)
		return ckpt_fail_errno(s->word, NULL, rc);
	for (size_t i = 0; i < s->whole.count; i++)
		s->bytes += file_bytes(s, s->whole.files[i]);
	s->skipped = ckpt_need(ckpt_calloc(ckpt_catalog_count(c) + 1, sizeof(*s->skipped)));
	for (size_t i = 0; i < ckpt_catalog_count(c); i++) {
		s->array_count += s->whole.stays[i];
		s->skipped[i] = s->whole.stays[i] || !s->chosen[i];
	}
	return 0;
}

// --- Sharing ----------------------------------------------------------------------------------------------------------------

static int make_folders(int dirfd, char *path)
{
	int rc = 0;

	for (char *slash = strchr(path, '/'); slash && !rc; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		rc = ckpt_sys.mkdir(dirfd, path, 0777);
		*slash = '/';
		rc = rc == -EEXIST ? 0 : rc;
	}
	return rc;
}

static bool go_on(void *arg __attribute__((unused)), uint64_t bytes __attribute__((unused)))
{
	return !ckpt_stopped;
}

// Hard links within the step are one file, which cannot be shared name by name (core/save/share.h).
static int share_file(struct ckpt_derive_side *s, const struct ckpt_entry *e, int dirfd, const char *path)
{
	static const struct ckpt_share_progress progress = {.go_on = go_on};
	int rc = -EXDEV;

	if (e->nlink < 2 && ckpt_step_has_raw(s->step, s->m, e->index))
		return ckpt_share_entry(s->step, s->m, e->index, dirfd, path);
	if (e->nlink < 2 && s->is_here)
		rc = ckpt_share_chunks(s->step, s->m, e->index, dirfd, path);
	if (rc != -EXDEV)
		return rc;
	s->copied_bytes += e->bytes;
	s->copied_count++;
	return ckpt_share_copy_entry(s->step, s->m, e->index, dirfd, path, &progress);
}

static int share_path(struct ckpt_derive_side *s, int dirfd, const char *path)
{
	CLEANUP_FREE char *to = ckpt_text("%s%s", s->under, path);
	struct ckpt_entry e;
	uint32_t index;
	int rc = ckpt_manifest_lookup(s->m, path, &index);

	if (rc)
		return rc;
	ckpt_manifest_entry(s->m, index, &e);
	rc = make_folders(dirfd, to);
	return rc ? rc : share_file(s, &e, dirfd, to);
}

int ckpt_derive_side_share(struct ckpt_derive_side *s, int dirfd)
{
	for (size_t i = 0; i < s->whole.count; i++) {
		int rc = ckpt_stopped ? -EINTR : share_path(s, dirfd, s->whole.files[i]);

		if (rc)
			return rc == -EINTR ? 1 : ckpt_fail_errno(s->whole.files[i], NULL, rc);
	}
	return 0;
}

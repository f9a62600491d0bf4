#include "core/view/array_view.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/view/array_name.h"

#include <stdio.h>

struct ckpt_array_view {
	struct ckpt_view_spec spec;
	struct ckpt_array_choice *choice;
	struct ckpt_array_tree *tree;
	struct ckpt_joined_plan *joined;
	struct ckpt_view_why no_joined;
};

// --- Lists in files ---------------------------------------------------------------------------------------------------------

struct making {
	struct ckpt_array_view *v;
	const struct ckpt_catalog *c;
	const struct ckpt_catalog_files *files;
	struct ckpt_view_why *why;
	json_t *json[CKPT_VIEW_LISTS];
	const char **globs[CKPT_VIEW_LISTS]; // of only and not: those of the name and the file together
};

static void making_done(struct making *m)
{
	for (size_t i = 0; i < CKPT_VIEW_LISTS; i++) {
		json_decref(m->json[i]);
		free(m->globs[i]);
	}
}

static int wrong_file(struct making *m, const char *path, const char *what, const char *hint)
{
	ckpt_view_wrong(m->why, "%.120s %s", path, what);
	snprintf(m->why->hint, sizeof(m->why->hint), "%s", hint);
	return -ENOENT;
}

static int read_source(struct making *m, const char *path, const struct ckpt_source *source, json_t **ret_json)
{
	CLEANUP_FREE char *text = NULL;
	json_error_t error;
	int rc;

	if (source->bytes > CKPT_VIEW_LIST_BYTES_MAX)
		return wrong_file(m, path, "has more than 1 MiB", "a list of globs, or an object of names, in JSON");
	text = malloc((size_t)source->bytes + 1);
	rc = text ? source->read(source->arg, 0, text, (size_t)source->bytes) : -ENOMEM;
	if (!rc)
		rc = ckpt_json_load(text, (size_t)source->bytes, 0, &error, ret_json);
	return rc == -EINVAL ? wrong_file(m, path, "is no JSON", "a list of globs, or an object of names, in JSON")
			     : rc;
}

static int read_json(struct making *m, const char *path, json_t **ret_json)
{
	struct ckpt_source source;
	int rc = m->files->open(m->files->arg, path, &source);

	if (rc == -ENOENT)
		return wrong_file(m, path, "is no file of the step",
				  "the path of a file from the step's folder on; a slash in it is %2F");
	if (rc)
		return rc;
	rc = read_source(m, path, &source, ret_json);
	m->files->close(m->files->arg, &source);
	return rc;
}

// A list says what is wrong with it; the file is the subject of that.
static int blame_list(struct making *m, const char *path, int rc)
{
	struct ckpt_view_why why = *m->why;

	if (rc == -EINVAL)
		ckpt_view_wrong(m->why, "%.100s: %.200s", path, why.why);
	return rc == -EINVAL ? -ENOENT : rc;
}

static size_t count_of(const char *const *globs)
{
	size_t n = 0;

	while (globs[n])
		n++;
	return n;
}

// Those of the name, and those of the file, if it names one. ret_globs: NULL: none at all.
static int read_globs(struct making *m, size_t list, const char *const *globs, const char *path,
		      const char *const **ret_globs)
{
	CLEANUP_FREE const char **more = NULL;
	size_t count = count_of(globs), added;
	int rc;

	*ret_globs = count ? globs : NULL;
	if (!path)
		return 0;
	rc = read_json(m, path, &m->json[list]);
	if (!rc)
		rc = blame_list(m, path, ckpt_choice_globs(m->json[list], &more, m->why));
	if (rc)
		return rc;
	added = count_of(more);
	m->globs[list] = ckpt_calloc(count + added + 1, sizeof(char *));
	if (!m->globs[list])
		return -ENOMEM;
	memcpy(m->globs[list], globs, count * sizeof(char *));
	memcpy(m->globs[list] + count, more, added * sizeof(char *));
	*ret_globs = m->globs[list];
	return 0;
}

static int read_renames(struct making *m, const char *path, const json_t **ret_renames)
{
	int rc;

	*ret_renames = NULL;
	if (!path)
		return 0;
	rc = read_json(m, path, &m->json[2]);
	if (!rc)
		rc = blame_list(m, path, ckpt_choice_renames(m->json[2], m->why));
	*ret_renames = m->json[2];
	return rc;
}

// --- All --------------------------------------------------------------------------------------------------------------------

static int choose(struct making *m)
{
	const struct ckpt_view_spec *s = &m->v->spec;
	struct ckpt_choice_how how = {.unroll = s->unroll,
				      .unroll_axis = s->unroll_axis,
				      .shard = s->shard,
				      .shards = s->shards,
				      .axis = s->axis,
				      .dtype = s->dtype,
				      .prefix = s->prefix};
	int rc = read_globs(m, 0, s->only, s->only_file, &how.only);

	if (!rc)
		rc = read_globs(m, 1, s->not, s->not_file, &how.not );
	if (!rc)
		rc = read_renames(m, s->rename_file, &how.renames);
	if (!rc)
		rc = ckpt_array_choice_new(m->c, &how, &m->v->choice, m->why);
	if (rc == -EINVAL || rc == -EFBIG)
		return -ENOENT;
	if (!rc && !ckpt_array_choice_count(m->v->choice)) {
		ckpt_view_wrong(m->why, "no array is chosen");
		snprintf(m->why->hint, sizeof(m->why->hint),
			 "`ckptfs arrays STORE STEP` lists names; \"**\" matches \".\" and \"/\", \"*\" does not");
		return -ENOENT;
	}
	return rc;
}

// A folder never has the name of the file beside it.
static char *path_of(const char *name)
{
	CLEANUP_FREE char *path = ckpt_array_path(name);
	char *other;

	if (!path || strncmp(path, CKPT_JOINED_NAME "/", strlen(CKPT_JOINED_NAME "/")) != 0)
		return TAKE_PTR(path);
	return asprintf(&other, "model%%2Esafetensors%s", path + strlen(CKPT_JOINED_NAME)) < 0 ? NULL : other;
}

static int make_tree(struct making *m)
{
	struct ckpt_array_view *v = m->v;
	int rc = ckpt_array_tree_begin(v->joined ? CKPT_JOINED_NAME : NULL, &v->tree);

	for (size_t i = 0; i < ckpt_array_choice_count(v->choice) && !rc; i++) {
		CLEANUP_FREE char *path = NULL;
		struct ckpt_array_chosen chosen;

		ckpt_array_choice_get(v->choice, i, &chosen);
		path = path_of(chosen.name);
		rc = path ? ckpt_array_tree_add(v->tree, path, i) : -ENOMEM;
	}
	return rc;
}

int ckpt_array_view_new(const struct ckpt_catalog *c, const struct ckpt_catalog_files *files, const char *name,
			struct ckpt_array_view **ret_view, struct ckpt_view_why *ret_why)
{
	struct ckpt_array_view *v = ckpt_calloc(1, sizeof(*v));
	CLEANUP(making_done) struct making m = {.v = v, .c = c, .files = files, .why = ret_why};
	int rc = v ? ckpt_view_spec_parse(name, &v->spec, ret_why) : -ENOMEM;

	rc = rc == -EINVAL ? -ENOENT : rc;
	if (!rc)
		rc = choose(&m);
	if (!rc) {
		rc = ckpt_joined_plan_new(v->choice, &v->joined, &v->no_joined);
		rc = rc == -ENOTSUP ? 0 : rc;
	}
	if (!rc)
		rc = make_tree(&m);
	if (rc)
		ckpt_array_view_free(v);
	else
		*ret_view = v;
	return rc;
}

void ckpt_array_view_free(struct ckpt_array_view *v)
{
	if (!v)
		return;
	ckpt_array_tree_free(v->tree);
	ckpt_joined_plan_free(v->joined);
	ckpt_array_choice_free(v->choice);
	free(v);
}

size_t ckpt_array_view_bytes(const struct ckpt_array_view *v)
{
	return sizeof(*v) + ckpt_array_choice_bytes(v->choice) + (v->joined ? ckpt_joined_plan_memory(v->joined) : 0);
}

const char *ckpt_array_view_list(const struct ckpt_array_view *v, size_t i)
{
	const char *const lists[CKPT_VIEW_LISTS] = {v->spec.only_file, v->spec.not_file, v->spec.rename_file};

	return lists[i];
}

const struct ckpt_array_choice *ckpt_array_view_choice(const struct ckpt_array_view *v)
{
	return v->choice;
}

struct ckpt_array_tree *ckpt_array_view_take_tree(struct ckpt_array_view *v)
{
	return TAKE_PTR(v->tree);
}

const struct ckpt_joined_plan *ckpt_array_view_joined(const struct ckpt_array_view *v,
						      const struct ckpt_view_why **ret_why)
{
	*ret_why = &v->no_joined;
	return v->joined;
}

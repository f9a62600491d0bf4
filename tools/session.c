#include "tools/session.h"

#include "core/base/util.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/rows.h"

const char *ckpt_session_text(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

int ckpt_sessions_read(const char *store, json_t **ret_rows)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(store, CKPT_STORE_READ, &l);

	*ret_rows = NULL;
	if (rc)
		return rc;
	rc = ckpt_rows_sessions(&l, ret_rows);
	ckpt_listing_close(&l);
	return rc;
}

// How well a session fits the word of a user: by its id, by its name, or as a left one by the name that it had; 0: not at all.
static int fitness(const json_t *row, const char *word)
{
	const char *name = ckpt_session_text(row, "name"), *id = ckpt_session_text(row, "id"),
		   *state = ckpt_session_text(row, "state");

	if (id && !strcmp(id, word))
		return 3;
	return !name || strcmp(name, word) ? 0 : state && !strcmp(state, "left") ? 1 : 2;
}

// The sessions of this name in whatever folder: " f/step_2 k/step_2"; NULL: none.
static char *namesakes(const json_t *rows, const char *word)
{
	char *all = NULL;
	json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *name = ckpt_session_text(row, "name"), *leaf = name ? strrchr(name, '/') : NULL;
		char *longer;

		if (!leaf || strcmp(leaf + 1, word))
			continue;
		longer = ckpt_text("%s %s", all ? all : "", name);
		free(all);
		all = longer;
	}
	return all;
}

static int fail_unknown(const json_t *rows, const char *word, const char *store)
{
	CLEANUP_FREE char *others = namesakes(rows, word);
	CLEANUP_FREE char *hint = others ? ckpt_text("give its folder, too:%s", others)
					 : ckpt_text("`ckptfs sessions %s` lists them", store);

	return ckpt_fail(word, hint, "no such staged step");
}

int ckpt_sessions_find(const json_t *rows, const char *word, const char *store, json_t **ret_row)
{
	CLEANUP_FREE char *hint = ckpt_text("`ckptfs sessions %s` lists them", store);
	json_t *row, *found = NULL;
	size_t i, matches = 0;
	int best = 0;

	json_array_foreach(rows, i, row)
	{
		int fit = fitness(row, word);

		matches = fit > best ? 1 : matches + (fit && fit == best);
		found = fit > best ? row : found;
		best = MAX(best, fit);
	}
	if (!found)
		return fail_unknown(rows, word, store);
	if (matches > 1)
		return ckpt_fail(word, hint, "%zu sessions have this name: give the id of one", matches);
	*ret_row = found;
	return 0;
}

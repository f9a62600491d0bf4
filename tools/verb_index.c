// index: what is only there to be fast, looked at or made anew.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/cold/dedupe.h"
#include "core/cold/pack.h"
#include "core/step/ask.h"
#include "core/step/errlog.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"

#include <inttypes.h>
#include <stdio.h>

#define PROBLEMS_MAX 100 // that are told one by one

struct look {
	struct ckpt_index *ix;
	uint64_t steps, chunks;
	struct ckpt_pack *packs; // those that there are, by id
	size_t pack_count;
	json_t *problems;
	uint64_t more;
};

static void tell(struct look *l, char *problem)
{
	if (json_array_size(l->problems) < PROBLEMS_MAX)
		json_array_append_new(l->problems, ckpt_need(ckpt_json_text(problem)));
	else
		l->more++;
	free(problem);
}

static int add_pack(void *arg, const char *key, const struct ckpt_object *object)
{
	struct ckpt_pack pack = {.bytes = object->bytes};
	struct look *l = arg;

	if (!ckpt_pack_of_key(key, pack.id))
		return 0;
	l->packs = ckpt_need(reallocarray(l->packs, l->pack_count + 1, sizeof(*l->packs)));
	l->packs[l->pack_count++] = pack;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	return memcmp(((const struct ckpt_pack *)a)->id, ((const struct ckpt_pack *)b)->id, CKPT_SHA256_LEN);
}

static bool has_pack(const struct look *l, const struct ckpt_pack *pack)
{
	return l->pack_count && bsearch(pack, l->packs, l->pack_count, sizeof(*l->packs), by_id);
}

// What is being put or dropped now, or was when a process died, is not whole: that is set right before it is used.
static int see_pack(void *arg, const struct ckpt_pack *pack, bool whole)
{
	char key[CKPT_PACK_KEY_MAX];
	struct look *l = arg;

	ckpt_pack_key(pack->id, key);
	if (whole && !has_pack(l, pack))
		tell(l, ckpt_text("%s is in the index and not in the store", key));
	return 0;
}

static int see_chunk(void *arg, const struct ckpt_chunk *chunk __attribute__((unused)),
		     const struct ckpt_pack *pack __attribute__((unused)))
{
	struct look *l = arg;

	l->chunks++;
	return 0;
}

// Opening it has looked at its form; this reads every row but the manifests, whose digests are compared when they are used.
static int look_at(struct look *l)
{
	int rc = ckpt_index_each_pack(l->ix, see_pack, l);

	return rc ? rc : ckpt_index_each_chunk(l->ix, see_chunk, l);
}

static uint64_t count_steps(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	ckpt_step_list_free(steps, count);
	return count;
}

static int check(const char *store, struct look *ret_look)
{
	struct ckpt_index *own = NULL;
	struct ckpt_listing l;
	int rc = ckpt_listing_open(store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	ret_look->steps = count_steps(l.store);
	rc = ckpt_objects_list(l.store->objects, "packs/", NULL, add_pack, ret_look);
	if (!rc && !l.store->index) {
		CLEANUP_FREE char *path = ckpt_text("%s/index", l.store->path);
		bool fresh;

		rc = ckpt_index_open(path, l.store->id, true, &own, &fresh);
	}
	ret_look->ix = own ? own : l.store->index;
	if (!rc)
		rc = look_at(ret_look);
	ckpt_index_close(own);
	ckpt_listing_close(&l);
	if (rc == -EBADMSG)
		tell(ret_look, ckpt_text("it is damaged"));
	else if (rc == -ENOENT)
		ckpt_note("the store has no index yet: the next mount builds it");
	else if (rc)
		return ckpt_fail_errno(store, NULL, rc);
	return 0;
}

static int rebuild_at_rest(const char *store)
{
	struct ckpt_listing l;
	const char *hint;
	int rc = ckpt_listing_open(store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	rc = ckpt_dedupe_rebuild(l.store, NULL, NULL);
	ckpt_listing_close(&l);
	hint = rc == -ENOENT ? "make room on the disk first" : ckpt_errno_hint(rc);
	return rc ? ckpt_fail(store, hint ? hint : "try again; only the index is affected",
			      "cannot rebuild the index: %s", strerror(-rc))
		  : 0;
}

static int rebuild(const char *store)
{
	CLEANUP_FREE char *answer = NULL;
	int rc;

	ckpt_progress_start("index", 0, 1);
	rc = ckpt_ask_at_length(store, "{\"verb\":\"index\",\"progress\":true}", ckpt_progress_add, &answer);
	ckpt_progress_stop();
	if (rc == -ENOENT)
		return rebuild_at_rest(store);
	if (rc)
		return ckpt_fail(store, ckpt_errno_hint(rc), "the process that has it mounted does not answer: %s",
				 strerror(-rc));
	return ckpt_answer_fail(store, answer);
}

static int report(const char *store, struct look *l)
{
	bool ok = !json_array_size(l->problems);
	const json_t *problem;
	size_t i;

	if (l->more)
		tell(l, ckpt_text("and %" PRIu64 " more", l->more));
	if (ckpt_output.json) {
		ckpt_output_json(json_pack("{s:b, s:I, s:I, s:O}", "ok", (int)ok, "steps", (json_int_t)l->steps,
					   "chunks", (json_int_t)l->chunks, "problems", l->problems));
		return !ok;
	}
	ckpt_note("%" PRIu64 " steps, %" PRIu64 " chunks", l->steps, l->chunks);
	json_array_foreach(l->problems, i, problem)
		ckpt_fail(store, i ? NULL : "`ckptfs index rebuild` rebuilds the index; nothing is lost with it", "%s",
			  json_string_value(problem));
	return !ok;
}

int ckpt_verb_index(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "check|rebuild [STORE]",
		.doc = "Checks the index of a store, or rebuilds it from the store.\v"
		       "The index is a cache of the store. Nothing is lost with it: the next mount deletes "
		       "a damaged index and rebuilds it. Exit status 1: it is damaged.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs index check /data/run42\n"
		       "  ckptfs index rebuild /ckpt",
		.operands_min = 1,
		.operands_max = 2,
	};
	struct look l = {.problems = ckpt_need(json_array())};
	struct ckpt_words words, rest;
	struct ckpt_operand o;
	bool anew;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	anew = !strcmp(words.at[0], "rebuild");
	if (!anew && strcmp(words.at[0], "check"))
		return ckpt_usage(words.at[0], "`ckptfs index check` or `ckptfs index rebuild`", "is neither");
	rest = (struct ckpt_words){.at = words.at + 1, .count = words.count - 1};
	rc = ckpt_operand_take(&rest, &o);
	if (rc)
		return rc;
	if (o.count)
		rc = ckpt_usage(o.steps[0], "usage: ckptfs index check|rebuild [STORE]", "is no store");
	if (!rc && anew)
		rc = rebuild(o.store);
	if (!rc)
		rc = check(o.store, &l);
	if (!rc)
		rc = report(o.store, &l);
	json_decref(l.problems);
	free(l.packs);
	ckpt_operand_done(&o);
	return rc;
}

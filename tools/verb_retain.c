// retain: what the policy does not keep goes to the trash.
#include "tools/verb.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/policy/retain.h"
#include "core/save/delete.h"
#include "core/step/ask.h"
#include "tools/output.h"
#include "tools/policy_file.h"

struct row {
	char *name, *session;
	struct ckpt_verdict verdict;
};

struct rows {
	struct row *at;
	size_t count, goes;
};

static void rows_done(struct rows *rows)
{
	for (size_t i = 0; i < rows->count; i++) {
		free(rows->at[i].name);
		free(rows->at[i].session);
	}
	free(rows->at);
}

static struct row row_of(const struct ckpt_listing *l, const struct ckpt_step *step, struct ckpt_verdict verdict)
{
	return (struct row){.name = ckpt_listing_name(l, step->folder_id, step->name),
			    .session = ckpt_text("%s", step->session),
			    .verdict = verdict};
}

// Of those whose names have no number no policy is asked.
static void take_unnumbered(const struct ckpt_listing *l, struct ckpt_step *const *steps, size_t count,
			    struct rows *rows)
{
	for (size_t i = 0; i < count; i++) {
		CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(steps[i]);

		if (v->is.number < 0)
			rows->at[rows->count++] = row_of(l, steps[i], (struct ckpt_verdict){true, "has no number"});
	}
}

static void take(const struct ckpt_listing *l, const struct ckpt_retain *r, struct rows *ret)
{
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	*ret = (struct rows){.at = ckpt_need(ckpt_calloc(r->history.count + count + 1, sizeof(*ret->at)))};
	for (; ret->count < r->history.count; ret->count++) {
		ret->at[ret->count] = row_of(l, r->history.at[ret->count], r->verdicts[ret->count]);
		ret->goes += !r->verdicts[ret->count].keep;
	}
	take_unnumbered(l, steps, count, ret);
	ckpt_step_list_free(steps, count);
}

static int judge(const char *store, struct rows *ret_rows)
{
	struct ckpt_policy p;
	struct ckpt_retain r;
	struct ckpt_listing l;
	int rc = ckpt_listing_open(store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	rc = ckpt_policy_of_store(&l, &p);
	if (!rc) {
		int error = ckpt_retain_judge(l.store, &p, ckpt_sys.now_ns(), &r);

		if (error)
			rc = ckpt_fail(store, "`ckptfs verify` says which; nothing was removed",
				       "the metadata of a step cannot be read: %s", strerror(-error));
		else
			take(&l, &r, ret_rows);
		if (!error)
			ckpt_retain_done(&r);
		ckpt_policy_done(&p);
	}
	ckpt_listing_close(&l);
	return rc;
}

// --- Removing ---------------------------------------------------------------------------------------------------------

// Of one row, what came of it. What was pinned or made permanent since, or is gone, is none of ours any more.
static int settle(struct row *row, int result)
{
	if (result == -ESTALE)
		row->verdict = (struct ckpt_verdict){true, "changed meanwhile"};
	return result && result != -ESTALE ? ckpt_fail_errno(row->name, ckpt_delete_hint(result), result) : 0;
}

// -ENOTCONN: it is not mounted.
static int ask_mount(const char *store, struct row *const *rows, size_t count, int *ret_status)
{
	json_t *sessions = ckpt_need(json_array()), *reply;
	CLEANUP_FREE char *why = NULL;
	int rc;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(sessions, ckpt_need(json_string(rows[i]->session)));
	rc = ckpt_ask_json(store, json_pack("{s:s, s:o}", "verb", "retain", "sessions", sessions), CKPT_SOCKET_PATIENT,
			   &reply, &why);
	if (rc == -ENOTCONN)
		return rc;
	if (rc) {
		*ret_status = ckpt_fail(store, ckpt_delete_hint(rc), "%s", why ? why : strerror(-rc));
		return rc;
	}
	for (size_t i = 0; i < count; i++) {
		json_t *error = json_array_get(json_object_get(reply, "results"), i);
		int status = settle(rows[i], -(int)json_integer_value(error));

		*ret_status = MAX(*ret_status, status);
	}
	json_decref(reply);
	return 0;
}

static int do_at_rest(const char *store, struct row *const *rows, size_t count, int *ret_status)
{
	struct ckpt_step *steps[CKPT_RETAIN_MAX];
	int results[CKPT_RETAIN_MAX], rc;
	struct ckpt_listing l;

	rc = ckpt_listing_open(store, CKPT_STORE_WRITE, &l);
	if (rc) {
		*ret_status = rc;
		return -EIO;
	}
	for (size_t i = 0; i < count; i++)
		steps[i] = ckpt_step_of_session(l.store, rows[i]->session);
	rc = ckpt_retain(l.store, steps, count, results);
	for (size_t i = 0; i < count; i++) {
		int status = rc ? 0 : settle(rows[i], results[i]);

		*ret_status = MAX(*ret_status, status);
		ckpt_step_unref(steps[i]);
	}
	ckpt_listing_close(&l);
	if (rc)
		*ret_status = ckpt_fail_errno(store, NULL, rc);
	return rc;
}

static int remove_rows(const char *store, struct rows *rows)
{
	struct row *some[CKPT_RETAIN_MAX];
	size_t i = 0, count;
	int status = 0, rc;

	do {
		for (count = 0; i < rows->count && count < CKPT_RETAIN_MAX; i++)
			if (!rows->at[i].verdict.keep)
				some[count++] = &rows->at[i];
		rc = count ? ask_mount(store, some, count, &status) : 0;
		if (rc == -ENOTCONN)
			rc = do_at_rest(store, some, count, &status);
	} while (count && !rc);
	rows->goes = 0;
	for (i = 0; i < rows->count; i++)
		rows->goes += !rows->at[i].verdict.keep;
	return status;
}

static void print_json(const struct rows *rows)
{
	json_t *array = ckpt_need(json_array());

	for (size_t i = 0; i < rows->count; i++) {
		const struct row *row = &rows->at[i];
		json_t *json = ckpt_need(json_pack("{s:o, s:b, s:s}", "step", ckpt_json_text(row->name), "keep",
						   (int)row->verdict.keep, "why", row->verdict.why));

		if (json_array_append_new(array, json))
			ckpt_need(NULL);
	}
	ckpt_output_json(array);
}

static void print_table(const struct rows *rows)
{
	struct ckpt_table *t = ckpt_table_new();

	ckpt_table_column(t, "STEP", CKPT_LEFT);
	ckpt_table_column(t, "KEEP", CKPT_LEFT);
	ckpt_table_column(t, "WHY", CKPT_LEFT);
	for (size_t i = 0; i < rows->count; i++) {
		const struct row *row = &rows->at[i];

		ckpt_table_row(t, (const char *const[]){row->name, row->verdict.keep ? "yes" : "no", row->verdict.why});
	}
	ckpt_table_print(t);
}

static int retain(const char *store, bool dry_run)
{
	struct rows rows CLEANUP(rows_done) = {0};
	int rc = judge(store, &rows);

	if (rc)
		return rc;
	if (!dry_run)
		rc = remove_rows(store, &rows);
	if (ckpt_output.json)
		print_json(&rows);
	else if (dry_run)
		print_table(&rows);
	if (!rc)
		ckpt_note("%zu of %zu steps %s to the trash", rows.goes, rows.count, dry_run ? "would go" : "went");
	return rc;
}

static int on_option(int key __attribute__((unused)), char *arg __attribute__((unused)), void *input)
{
	*(bool *)input = true;
	return 0;
}

int ckpt_verb_retain(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"dry-run", 'n', NULL, 0, "remove nothing; show which steps stay and why", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE]",
		.doc = "Moves the steps that the policy does not keep to the trash. `ckptfs undelete` "
		       "restores them.\v"
		       "Each folder is judged by itself. The newest step, pinned steps, and steps without a "
		       "number in their name always stay. A temporary step stays until the next one is "
		       "committed.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs retain --dry-run /ckpt\n"
		       "  ckptfs retain /data/run42",
		.options = options,
		.option = on_option,
		.operands_max = 1,
	};
	bool dry_run = false;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &dry_run, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count ? ckpt_usage(o.steps[0], "usage: ckptfs retain [--dry-run] [STORE]",
				  "is not a store, and steps cannot be named")
		     : retain(o.store, dry_run);
	ckpt_operand_done(&o);
	return rc;
}

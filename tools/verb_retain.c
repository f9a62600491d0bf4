// retain: what the policy does not keep goes to the trash.
#include "tools/verb.h"

#include "core/delete.h"
#include "core/retain.h"
#include "core/sys.h"
#include "core/util.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/policy_file.h"

struct row {
	char *name, *session;
	struct ckpt_verdict verdict;
	bool temporary;
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

static void take(const struct ckpt_listing *l, const struct ckpt_retain *r, struct rows *ret)
{
	*ret = (struct rows){.at = ckpt_need(ckpt_calloc(r->history.count + 1, sizeof(*ret->at)))};
	for (; ret->count < r->history.count; ret->count++) {
		const struct ckpt_step *step = r->history.at[ret->count];

		ret->at[ret->count] = (struct row){.name = ckpt_listing_name(l, step->folder_id, step->name),
						   .session = ckpt_text("%s", step->session),
						   .verdict = r->verdicts[ret->count],
						   .temporary = r->history.steps[ret->count].temporary};
		ret->goes += !r->verdicts[ret->count].keep;
	}
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

// One that was pinned or made permanent since, or is gone, is none of ours any more.
static int retain_at_rest(struct ckpt_step *step, const struct ckpt_act *act)
{
	int rc = ckpt_delete_behind(step, act->temporary);

	return rc == -ESTALE ? 0 : rc;
}

static int remove_rows(const char *store, struct rows *rows)
{
	int status = 0;

	for (size_t i = 0; i < rows->count; i++) {
		const struct row *row = &rows->at[i];
		const struct ckpt_act act = {.verb = "retain",
					     .temporary = row->temporary,
					     .at_rest = retain_at_rest,
					     .hint = ckpt_delete_hint};
		int rc = row->verdict.keep ? 0 : ckpt_act_on(store, row->name, row->session, &act);

		status = MAX(status, rc);
	}
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
		{"dry-run", 'n', NULL, 0, "remove nothing, say which steps stay and why", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE]",
		.doc = "Moves the steps that the policy does not keep to the trash, where `ckptfs undelete` has them "
		       "back.\v"
		       "The steps of each folder are judged by themselves. Whatever the policy says, there stay the "
		       "newest "
		       "step, what is pinned, and steps whose names have no number. A temporary step stays until the "
		       "next "
		       "one is committed.\n\n"
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
				  "is no store, and steps are not named")
		     : retain(o.store, dry_run);
	ckpt_operand_done(&o);
	return rc;
}

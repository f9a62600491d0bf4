// get: a step becomes a folder, all of it or nothing.
#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/step_files.h"
#include "tools/stop.h"
#include "tools/whole_folder.h"

struct get {
	struct ckpt_step_files files;
	const char *word; // as the user called the step
};

static int get_files(void *arg, int to)
{
	struct get *g = arg;
	int rc = ckpt_step_files_copy(&g->files, to);

	if (rc && !ckpt_stopped)
		rc = ckpt_fail(g->word, rc == -EIO ? "`ckptfs verify` says what is damaged" : NULL, "%s: %s",
			       g->files.blamed, strerror(-rc));
	return rc;
}

static int print(const struct get *g)
{
	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:o, s:I, s:I}", "step", ckpt_json_text(g->word), "files",
						     (json_int_t)g->files.files, "bytes", (json_int_t)g->files.bytes)));
	return 0;
}

static int get(struct ckpt_step *step, struct ckpt_manifest *m, const char *word, const char *dir)
{
	struct get g = {.files = {.step = step, .m = m, .stop = &ckpt_stopped, .progress = ckpt_progress_update},
			.word = word};
	uint64_t files, bytes;
	int rc;

	ckpt_stop_begin();
	ckpt_manifest_totals(m, &files, &bytes);
	ckpt_progress_start("copying", bytes, 1);
	rc = ckpt_stop_end(ckpt_whole_folder(dir, get_files, &g));
	free(g.files.blamed);
	return rc ? rc : print(&g);
}

int ckpt_verb_get(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] STEP DIR",
		.doc = "Copies a step, or a version of one, into a folder that is absent or empty: all of it, or "
		       "nothing. The bytes are shared where the disk can (reflink).\v"
		       "Examples:\n"
		       "  ckptfs get /data/run42 latest /scratch/restored\n"
		       "  ckptfs get /ckpt 1000@-1 before-the-last-edit\n"
		       "  ckptfs get /ckpt trash/1000 saved-from-the-trash",
		.operands_min = 2,
		.operands_max = 3,
	};
	CLEANUP_FREE char *dir = NULL, *path = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	struct ckpt_listing l;
	struct ckpt_manifest *m;
	struct ckpt_step *step;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	dir = ckpt_path_absolute(words.at[words.count - 1]); // as it was written: it is no STEP
	rc = o.count == 2 ? ckpt_listing_open(o.store, CKPT_STORE_READ, &l)
			  : ckpt_usage("get", "usage: ckptfs get [STORE] STEP DIR", "wants one step and a folder");
	if (!rc) {
		rc = ckpt_listing_files(&l, &o, o.steps[0], &step, &m, &path);
		if (!rc) {
			rc = *path ? ckpt_usage(o.steps[0], "name the step alone; `ckptfs cat` prints single files",
						"a file in a step")
				   : get(step, m, o.steps[0], dir);
			ckpt_manifest_unref(m);
			ckpt_step_unref(step);
		}
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	return rc;
}

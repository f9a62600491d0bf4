// save: a folder becomes a step, without writing it through a mount.
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/step/store.h"
#include "tools/act.h"
#include "tools/config.h"
#include "tools/new_step.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/stop.h"
#include "tools/tree.h"

#include <fcntl.h>
#include <stdio.h>

static int print(const char *step, uint64_t files, uint64_t bytes)
{
	if (ckpt_output.json)
		ckpt_output_json(ckpt_need(json_pack("{s:o, s:I, s:I}", "step", ckpt_json_text(step), "files",
						     (json_int_t)files, "bytes", (json_int_t)bytes)));
	return 0;
}

struct save {
	const char *metadata_file;
	const char *from;
	int from_fd;
	struct ckpt_tree tree;
	struct ckpt_new_step step;
};

static int fill(void *arg, int to)
{
	struct save *v = arg;
	int rc;

	ckpt_progress_start("copying", ckpt_tree_bytes(v->from_fd), 1);
	rc = ckpt_tree_copy(&v->tree, v->from_fd, to);
	ckpt_progress_stop();
	if (!rc || ckpt_stopped)
		return rc;
	CLEANUP_FREE char *what =
		v->tree.blamed ? ckpt_text("%s/%s", v->from, v->tree.blamed) : ckpt_text("%s", v->from);

	if (rc == -EINVAL)
		return ckpt_fail(what, "a step has files, directories and symbolic links", "cannot be part of a step");
	return ckpt_fail_errno(what, rc == -EBUSY ? "it changed while it was copied: save again" : NULL, rc);
}

static int save(struct save *v)
{
	CLEANUP_FREE char *metadata = NULL;
	struct ckpt_new_step *n = &v->step;
	int rc;

	v->from_fd = open(v->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (v->from_fd < 0)
		return ckpt_fail_errno(v->from, NULL, -errno);
	rc = v->metadata_file ? ckpt_act_metadata(v->metadata_file, &metadata) : 0;
	if (!rc) {
		n->metadata = metadata;
		n->fill = fill;
		n->arg = v;
		rc = ckpt_new_step_run(n);
	}
	close(v->from_fd);
	if (!rc)
		print(n->name, v->tree.files, v->tree.bytes);
	free(v->tree.blamed);
	return rc;
}

static int save_option(int key, char *arg, void *input)
{
	struct save *v = input;

	if (key == 'f')
		v->step.force = true;
	else
		v->metadata_file = arg;
	return 0;
}

int ckpt_verb_save(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"metadata", 'm', "FILE", 0, "JSON of the step, as a marker may hold it; - is stdin", 0},
		{"force", 'f', NULL, 0, "replace a step of this name; it goes to the trash in the same act", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] DIR [NAME]",
		.doc = "Copies a folder into the store, as a step, in one act. No mount is needed. The "
		       "bytes are shared where the disk can (reflink), else copied. NAME is by default the "
		       "name of the folder. It is an error if a step of this name exists; with --force that "
		       "step stays until the new one is complete, and then goes to the trash.\v"
		       "Examples:\n"
		       "  ckptfs save /data/run42 /scratch/checkpoint-1000\n"
		       "  ckptfs save --metadata meta.json /ckpt out final",
		.options = options,
		.option = save_option,
		.operands_min = 1,
		.operands_max = 3,
	};
	struct save v = {.tree = {.stop = &ckpt_stopped, .progress = ckpt_progress_update}};
	struct ckpt_settings settings;
	CLEANUP_FREE char *from = NULL;
	CLEANUP_FREE char *name = NULL;
	struct ckpt_words words;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	if (o.count == 1 || o.count == 2) {
		from = ckpt_path_absolute(words.at[words.count - o.count]); // as it was written: it is no STEP
		v.step.store = o.store;
		v.from = from;
		name = o.count == 2 ? ckpt_operand_new_name(&o, 1, words.at[words.count - 1])
				    : ckpt_text("%s", strrchr(from, '/') + 1);
		v.step.name = name;
		if (ckpt_config_read(o.store, &settings))
			ckpt_settings_init(&settings); // what is wrong is said below
		v.tree.skip = settings.marker;
		rc = save(&v);
		ckpt_settings_done(&settings);
	} else {
		rc = ckpt_usage("save", "usage: ckptfs save [STORE] DIR [NAME]", "wants one folder");
	}
	ckpt_operand_done(&o);
	return rc;
}

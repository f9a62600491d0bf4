#include "tools/verb.h"

#include "core/base/util.h"
#include "tools/healthy.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/rows.h"

#include <stdio.h>

enum { KEY_BY = 0x100, KEY_HEALTHY };

static const struct argp_option options[] = {
	{"by", KEY_BY, "ORDER", 0,
	 "commit: the last commit (default, unless the setting latest_by says step); step: "
	 "the highest number; timestamp: by the timestamp in metadata.json (eFormer), else by "
	 "the first commit; mtime: by the time of its directory; tracker: what a framework's "
	 "file says (latest_checkpointed_iteration.txt, latest)",
	 0},
	{"healthy", KEY_HEALTHY, NULL, 0,
	 "pass over steps with trouble in their arrays: NaN, missing parts, broken files (`ckptfs "
	 "check`). A step that no mount has looked at yet is read and looked at now",
	 0},
	{0},
};

struct order {
	bool given, healthy;
	enum ckpt_latest_by by;
};

static int on_option(int key, char *arg, void *input)
{
	struct order *order = input;

	if (key == KEY_HEALTHY) {
		order->healthy = true;
		return 0;
	}
	order->given = true;
	return ckpt_listing_order(arg, &order->by);
}

static char *latest_name(const struct ckpt_listing *l, const struct ckpt_operand *o, const char *folder,
			 enum ckpt_latest_by by, bool healthy)
{
	struct ckpt_mounts mounts;
	struct ckpt_view v;
	struct ckpt_step *step;
	char *name = NULL;
	int rc = ckpt_mounts_read(&mounts);

	v = ckpt_listing_view(l, o, &mounts);
	if (healthy)
		ckpt_healthy_only(&v);
	if (rc != -ENOMEM)
		rc = ckpt_view_newest(&v, folder, by, &step);
	ckpt_mounts_done(&mounts);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc)
		return NULL;
	name = ckpt_listing_name(l, step->folder_id, step->name);
	ckpt_step_unref(step);
	return name;
}

static int print(const struct ckpt_listing *l, const char *name, const char *folder, const struct order *order,
		 enum ckpt_latest_by by)
{
	size_t staged = name || ckpt_output.json || ckpt_output.quiet ? 0 : ckpt_rows_staged_count(l, folder);
	const char *store = l->store->path;

	if (ckpt_output.json)
		ckpt_output_json(json_pack("{s:o}", "name", ckpt_json_text(name)));
	else if (name)
		puts(name);
	if (!name)
		ckpt_note("%s: %s", *folder ? folder : store,
			  by == CKPT_LATEST_BY_TRACKER ? "no tracker names a committed step"
			  : order->healthy             ? "no committed step without trouble"
						       : "no committed step");
	if (staged)
		ckpt_note("%zu step%s not complete yet: `ckptfs sessions %s`", staged, staged == 1 ? " is" : "s are",
			  store);
	return name ? 0 : 1;
}

int ckpt_verb_latest(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [FOLDER]",
		.doc = "Prints the name of the newest committed step. Exit status 1: there is no step, or with "
		       "--healthy none without trouble.\v"
		       "FOLDER is by default the root, or all folders if the root has no steps.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs latest /ckpt && python train.py --resume\n"
		       "  ckptfs latest --by step /data/run42 checkpoints\n"
		       "  ckptfs latest --healthy /ckpt",
		.options = options,
		.option = on_option,
		.operands_max = 2,
	};
	struct ckpt_words words;
	struct ckpt_operand o;
	struct ckpt_listing l;
	struct order order = {0};
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &order, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count > 1 ? ckpt_usage(o.steps[1], "usage: ckptfs latest [STORE] [FOLDER]", "one operand too many") : 0;
	if (!rc)
		rc = ckpt_listing_open(o.store, CKPT_STORE_READ, &l);
	if (!rc) {
		// The current directory counts as a folder where it is one of steps, as with other names.
		const char *here = ckpt_listing_is_folder(&l, o.folder) ? o.folder : "";
		const char *folder = o.count ? o.steps[0] : here;
		enum ckpt_latest_by by = order.given ? order.by : l.store->settings.latest_by;
		CLEANUP_FREE char *name = latest_name(&l, &o, folder, by, order.healthy);

		rc = print(&l, name, folder, &order, by);
		ckpt_listing_close(&l);
	}
	ckpt_operand_done(&o);
	return rc;
}

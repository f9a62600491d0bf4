#include "tools/verb.h"

#include "core/store.h"
#include "core/util.h"
#include "tools/listing.h"
#include "tools/operand.h"
#include "tools/output.h"
#include "tools/rows.h"

// What `--set` takes is what `config` shows: the store has no place for settings in this version.
static int init_option(int key __attribute__((unused)), char *arg, void *input __attribute__((unused)))
{
	static const char *const known[] = {"marker",      "steps_at",    "open_writers", "commit_timeout",
					    "show_staged", "work_dir",    "profile",      "amend",
					    "durability",  "latest_by",   "show_latest",  "hot",
					    "work_limit",  "staging_ttl", "trash",        "target_data_file_size",
					    NULL};
	CLEANUP_FREE char *name = ckpt_text("%.*s", (int)strcspn(arg, "="), arg);
	CLEANUP_FREE char *hint = NULL;
	const char *nearest = ckpt_nearest(name, known);

	if (!strchr(arg, '='))
		return ckpt_usage(arg, "--set KEY=VALUE", "no value");
	if (nearest && !strcmp(nearest, name)) {
		hint = ckpt_text("give it to the mount: `ckptfs mount -o %s STORE DIR`", arg);
		return ckpt_usage(arg, hint, "settings kept in the store come with `config`, in a later version");
	}
	hint = nearest ? ckpt_text("did you mean %s?", nearest) : NULL;
	return ckpt_usage(name, hint, "no such setting");
}

static int print_store(const char *path)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(path, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	ckpt_output_json(ckpt_row_store(&l));
	ckpt_listing_close(&l);
	return 0;
}

int ckpt_verb_init(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"set", 's', "KEY=VALUE", 0, "a setting of the store; may be repeated", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "STORE",
		.doc = "Makes an empty store in a directory that is absent or empty.\v"
		       "Examples:\n"
		       "  ckptfs init /data/run42\n"
		       "  ckptfs init --json /data/run42",
		.options = options,
		.option = init_option,
		.operands_min = 1,
		.operands_max = 1,
	};
	CLEANUP_FREE char *path = NULL;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	rc = ckpt_operand_directory(words.at[0], &path);
	if (rc)
		return rc;
	rc = ckpt_store_init(path);
	if (rc == -EEXIST)
		return ckpt_fail(words.at[0], "`ckptfs info` shows it", "is a store already");
	if (rc == -ENOTEMPTY)
		return ckpt_fail(words.at[0], "a store starts in an empty directory of its own",
				 "has files and is no store");
	if (rc)
		return ckpt_fail_errno(words.at[0], NULL, rc);
	if (ckpt_output.json)
		return print_store(path);
	ckpt_note("made an empty store in %s", path);
	return 0;
}

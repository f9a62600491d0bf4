#include "tools/verb.h"

#include "core/base/util.h"
#include "core/step/store.h"
#include "core/store/open.h"
#include "tools/config.h"
#include "tools/listing.h"
#include "tools/operand.h"
#include "tools/output.h"
#include "tools/remote_place.h"
#include "tools/rows.h"

struct given {
	struct ckpt_settings settings;
	bool any;
};

static int init_option(int key __attribute__((unused)), char *arg, void *input)
{
	struct given *given = input;
	const struct ckpt_setting *setting;
	const char *value = strchr(arg, '=');

	given->any = true;
	if (!value)
		return ckpt_usage(arg, "--set KEY=VALUE", "no value");
	setting = ckpt_config_find(arg, (size_t)(value - arg));
	return setting ? ckpt_config_give(arg, setting, value + 1, &given->settings) : CKPT_EXIT_USAGE;
}

// Settings are each node's own: a mount takes them.
static int init_remote(const char *url, bool has_settings)
{
	int rc = has_settings
			 ? ckpt_usage(url, "give it to `ckptfs mount` by -o", "--set is of a store on this machine")
			 : ckpt_remote_init(url);

	if (!rc && !ckpt_output.json)
		ckpt_note("made an empty store in %s", url);
	return rc;
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
		{"set", 's', "KEY=VALUE", 0, "a setting of the store, see `ckptfs config`; may be repeated", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "STORE",
		.doc = "Makes an empty store in a directory that is absent or empty, or below a prefix of a bucket.\v"
		       "Examples:\n"
		       "  ckptfs init /data/run42\n"
		       "  ckptfs init --set trash=30d /data/run42\n"
		       "  ckptfs init s3://bucket/run42",
		.options = options,
		.option = init_option,
		.operands_min = 1,
		.operands_max = 1,
	};
	CLEANUP_FREE char *path = NULL;
	struct given given = {0};
	struct ckpt_words words;
	int rc;

	ckpt_settings_init(&given.settings);
	ckpt_verb_parse(&syntax, argc, argv, &given, &words);
	if (ckpt_is_remote_url(words.at[0])) {
		ckpt_settings_done(&given.settings);
		return init_remote(words.at[0], given.any);
	}
	rc = ckpt_verb_store_options() ? ckpt_usage("-o", "--set gives it settings", "is of a STORE that is a URL")
				       : ckpt_operand_directory(words.at[0], &path);
	if (rc)
		return rc;
	rc = ckpt_store_init_with(path, &given.settings, NULL);
	ckpt_settings_done(&given.settings);
	if (rc == -EEXIST)
		return ckpt_fail(words.at[0], "`ckptfs info` shows it", "is a store already");
	if (rc == -ENOTEMPTY)
		return ckpt_fail(words.at[0], "a store starts in an empty directory of its own",
				 "has files and is not a store");
	if (rc)
		return ckpt_fail_errno(words.at[0], NULL, rc);
	if (ckpt_output.json)
		return print_store(path);
	ckpt_note("made an empty store in %s", path);
	return 0;
}

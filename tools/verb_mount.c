// mount, and mount.fuse.ckptfs.
#include "tools/verb.h"

#include "core/base/util.h"
#include "fs/mount.h"
#include "tools/mount_options.h"
#include "tools/operand.h"
#include "tools/output.h"
#include "tools/remote_place.h"

#include <signal.h>

static int mount_option(int key, char *arg, void *input)
{
	struct ckpt_mount *m = input;

	if (key == 'o')
		return ckpt_mount_options(arg, m);
	m->foreground = true;
	return 0;
}

static int remote_directory(struct ckpt_mount *m, const char *url, char **ret_path)
{
	CLEANUP_FREE char *work_dir = TAKE_PTR(m->settings.work_dir); // all of the store's, its index too

	return ckpt_remote_operand(&(struct ckpt_remote_at){.url = url,
							    .options = m->remote_options,
							    .work_dir = work_dir,
							    .settings = &m->settings,
							    .make = !m->readonly},
				   ret_path);
}

// The mount serves in this process: signals are fs's affair from here on.
static int mount_now(struct ckpt_mount *m, const char *store, const char *dir)
{
	CLEANUP_FREE char *store_path = NULL, *dir_path = ckpt_path_absolute(dir), *why = NULL, *hint = NULL;
	int rc = ckpt_is_remote_url(store) ? remote_directory(m, store, &store_path)
					   : ckpt_operand_directory(store, &store_path);

	if (rc)
		return rc;
	m->store = store_path;
	m->mountpoint = dir_path;
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	rc = ckpt_mount_run(m, &why, &hint);
	ckpt_settings_done(&m->settings);
	if (!rc)
		return 0;
	if (!why)
		return ckpt_fail_errno(dir, hint, rc);
	return ckpt_fail(NULL, hint, "%s", why); // it names what it is about
}

static const struct argp_option mount_option_list[] = {
	{"options", 'o', "OPTS", 0, "mount options, see below; may be repeated", 0},
	{"foreground", 'f', NULL, 0, "stay in the foreground, log to stderr (default: return once the mount answers)",
	 0},
	{0},
};

int ckpt_verb_mount(int argc, char **argv)
{
	const struct ckpt_syntax syntax = {
		.operands = "STORE DIR",
		.doc = "Mounts the store STORE on the directory DIR. Creates the store if it does not "
		       "exist.\vExamples:\n"
		       "  ckptfs mount /data/run42 /ckpt\n"
		       "  ckptfs mount -f -o ro,allow_other /data/run42 /mnt/ckpt",
		.options = mount_option_list,
		.option = mount_option,
		.values = ckpt_mount_options_help(),
		.values_title = CKPT_MOUNT_OPTIONS_TITLE,
		.operands_min = 2,
		.operands_max = 2,
	};
	struct ckpt_mount m = {0};
	struct ckpt_words words;

	ckpt_settings_init(&m.settings);
	ckpt_verb_parse(&syntax, argc, argv, &m, &words);
	return mount_now(&m, words.at[0], words.at[1]);
}

struct helper {
	struct ckpt_mount mount;
	bool fake;
};

static int helper_option(int key, char *arg, void *input)
{
	struct helper *h = input;

	h->fake |= key == 'f';
	return key == 'o' ? ckpt_mount_options(arg, &h->mount) : 0;
}

// The options are those that mount(8) gives to its helpers.
int ckpt_verb_mount_helper(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{NULL, 'o', "OPTS", 0, "mount options, see below; may be repeated", 0},
		{NULL, 'f', NULL, 0, "only check the words, and mount nothing", 0},
		{NULL, 's', NULL, 0, "accepted, changes nothing", 0},
		{NULL, 'n', NULL, 0, "accepted, changes nothing", 0},
		{NULL, 't', "TYPE", 0, "accepted, changes nothing", 0},
		{NULL, 'N', "NAMESPACE", 0, "accepted, changes nothing", 0},
		{0},
	};
	const struct ckpt_syntax syntax = {
		.operands = "STORE DIR",
		.doc = "Mounts the store STORE on the directory DIR, for mount(8); makes the store if there is none.\v"
		       "Examples:\n"
		       "  mount -t fuse.ckptfs /data/run42 /ckpt\n"
		       "  mount -t fuse.ckptfs -o ro,allow_other /data/run42 /mnt/ckpt",
		.options = options,
		.option = helper_option,
		.values = ckpt_mount_options_help(),
		.values_title = CKPT_MOUNT_OPTIONS_TITLE,
		.operands_min = 2,
		.operands_max = 2,
	};
	struct helper h = {0};
	struct ckpt_words words;

	ckpt_settings_init(&h.mount.settings);
	ckpt_verb_parse(&syntax, argc, argv, &h, &words);
	return h.fake ? 0 : mount_now(&h.mount, words.at[0], words.at[1]);
}

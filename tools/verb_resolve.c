#include "tools/verb.h"

#include "core/base/util.h"
#include "core/request/resolve.h"
#include "tools/healthy.h"
#include "tools/listing.h"
#include "tools/output.h"

#include <stdio.h>

#define EXIT_ERROR 2 // 1 is scratch

enum { KEY_RUN = 0x100, KEY_PARAMETERS, KEY_FULL_STATE, KEY_BY, KEY_HEALTHY };

static const struct argp_option options[] = {
	{"run", KEY_RUN, "RUN", 0,
	 "where the run saves: a store, a mount, a folder in one, or one step (default: as "
	 "STORE of the other verbs)",
	 0},
	{"load-parameters-path", KEY_PARAMETERS, "PATH", 0, "what to take the parameters from, if the run has no step",
	 0},
	{"load-full-state-path", KEY_FULL_STATE, "PATH", 0, "what to resume from, if the run has no step", 0},
	{"by", KEY_BY, "ORDER", 0,
	 "which step of the run is the newest: step: the highest number (default, as in "
	 "Orbax); commit, timestamp, mtime, tracker: as in `ckptfs latest`",
	 0},
	{"healthy", KEY_HEALTHY, NULL, 0,
	 "pass over steps of the run with trouble in their arrays, as `ckptfs latest --healthy`; a step that is named "
	 "is taken as it is",
	 0},
	{0},
};

struct resolve {
	char *run, *parameters, *full_state; // as given, or NULL
	enum ckpt_latest_by by;
	bool healthy;
};

static int on_option(int key, char *arg, void *input)
{
	struct resolve *r = input;

	switch (key) {
	case KEY_RUN:
		r->run = arg;
		return 0;
	case KEY_PARAMETERS:
		r->parameters = *arg ? arg : NULL; // as with MaxText: "" is none
		return 0;
	case KEY_FULL_STATE:
		r->full_state = *arg ? arg : NULL;
		return 0;
	case KEY_HEALTHY:
		r->healthy = true;
		return 0;
	default:
		return ckpt_listing_order(arg, &r->by);
	}
}

static int fail(const struct resolve *r, const struct ckpt_operand *o, int error, bool of_path)
{
	const char *what = !of_path ? r->run ? r->run : o->store : r->full_state ? r->full_state : r->parameters;
	CLEANUP_FREE char *why = NULL, *hint = NULL;

	if (!of_path && error == -ENOTDIR)
		return ckpt_fail(what, "name the folder that holds the steps, or a step", "is inside a step");
	switch (error) {
	case -EMLINK:
		return ckpt_fail(what, "name the one of the run: --run STORE/FOLDER", "several folders have steps");
	case -ENOENT:
		return ckpt_fail(what, "without the option the run would begin from scratch", "no such checkpoint");
	case -EBUSY:
		return ckpt_fail(what, "name one that is listed: `ckptfs ls`", "not complete, or being changed");
	case -EISDIR:
		hint = ckpt_text("name one of them: %s/latest is the newest", what);
		return ckpt_fail(what, hint, "holds steps, but is not a step");
	default:
		ckpt_listing_explain(what, error, &why, &hint);
		return ckpt_fail(what, hint, "%s", why);
	}
}

static int print(const struct ckpt_resolved *found, const struct ckpt_operand *o)
{
	const char *mode = ckpt_resolve_words[found->mode];
	bool any = found->mode != CKPT_RESOLVE_SCRATCH;

	if (ckpt_output.json)
		ckpt_output_json(json_pack("{s:s, s:o, s:o, s:o}", "mode", mode, "path", ckpt_json_text(found->path),
					   "step", ckpt_json_text(found->step), "store", ckpt_json_text(found->store)));
	else if (found->path)
		printf("%s %s\n", mode, found->path);
	else if (any)
		printf("%s %s/%s\n", mode, found->store, found->step);
	else
		puts(mode);
	if (!any)
		ckpt_note("%s: no complete step, and no path was given", o->store);
	else if (!found->path)
		ckpt_note("%s is not mounted here: `ckptfs mount` shows its files, `ckptfs get` copies them",
			  found->store);
	return any ? 0 : 1;
}

// The current directory is the run's where it ever had one, or where the root has none either: a run that begins there.
static char *folder_of(const struct resolve *r, const struct ckpt_operand *o, const struct ckpt_view *v)
{
	bool here = ckpt_view_is_run(v, o->folder) || !ckpt_step_any(v->store, "");

	if (o->count)
		return ckpt_operand_new_name(o, 0, r->run ? r->run : "/");
	return ckpt_text("%s", here ? o->folder : "");
}

static int resolve(const struct resolve *r, const struct ckpt_operand *o)
{
	CLEANUP_FREE char *folder = NULL, *parameters = NULL, *full_state = NULL;
	struct ckpt_resolve how = {.by = r->by};
	struct ckpt_resolved found;
	struct ckpt_mounts mounts;
	struct ckpt_listing l;
	struct ckpt_view v;
	bool of_path = false;
	int rc = r->parameters ? ckpt_operand_directory(r->parameters, &parameters) : 0;

	if (!rc && r->full_state)
		rc = ckpt_operand_directory(r->full_state, &full_state);
	if (!rc)
		rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &l);
	if (rc)
		return EXIT_ERROR;
	rc = ckpt_mounts_read(&mounts);
	v = ckpt_listing_view(&l, o, &mounts);
	if (r->healthy)
		ckpt_healthy_only(&v);
	folder = folder_of(r, o, &v);
	how.folder = folder;
	how.parameters = parameters;
	how.full_state = full_state;
	if (!rc)
		rc = ckpt_resolve_run(&v, &how, &found, &of_path);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc) {
		(void)fail(r, o, rc, of_path);
		rc = EXIT_ERROR;
	} else {
		rc = print(&found, o);
		ckpt_resolved_done(&found);
	}
	ckpt_mounts_done(&mounts);
	ckpt_listing_close(&l);
	return rc;
}

int ckpt_verb_resolve(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "",
		.doc = "Prints which checkpoint a run loads when it starts, and how: resume, the newest "
		       "complete step of the run; else full_state or parameters, the path that was given; "
		       "else scratch.\v"
		       "A PATH leads to a step (/ckpt/1000, /ckpt/latest, or STORE/1000 where nothing is "
		       "mounted), to something in a step, or to any other file or directory. .../items/1000 "
		       "and .../1000/items are the same.\n"
		       "\n"
		       "Exit status: 0 there is something to load; 1 there is not, and \"scratch\" is "
		       "printed; 2 it failed, and nothing is printed. With --quiet there is no line about "
		       "scratch on stderr.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs resolve --run /ckpt/a --load-parameters-path /ckpt/base/latest\n"
		       "  ckptfs resolve --json --by timestamp --run /data/run42",
		.options = options,
		.option = on_option,
	};
	struct resolve r = {.by = CKPT_LATEST_BY_STEP};
	struct ckpt_words words, run;
	struct ckpt_operand o;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &r, &words);
	if (r.parameters && r.full_state)
		return ckpt_usage("resolve", "leave one of them out",
				  "at most one of `load_parameters_path` or `load_full_state_path` should be set");
	run = (struct ckpt_words){.at = (char *[]){r.run, NULL}, .count = r.run != NULL};
	rc = ckpt_operand_take(&run, &o);
	if (rc)
		return EXIT_ERROR;
	rc = resolve(&r, &o);
	ckpt_operand_done(&o);
	return rc;
}

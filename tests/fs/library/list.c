// An example for libckptfs: what a store has, and what a run would load from it.
//
//	list STORE FOLDER [BY [LOAD_PARAMETERS_PATH [LOAD_FULL_STATE_PATH]]]
//
// A line for each step, then one for what to load, as `ckptfs resolve` says it.
#include <ckptfs.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int list_steps(struct ckpt *c, const char *folder)
{
	struct ckpt_list *list;
	int rc = ckpt_list(c, folder, &list);

	if (rc)
		return rc;
	for (size_t i = 0; i < ckpt_list_count(list); i++) {
		const struct ckpt_info *step = ckpt_list_at(list, i);

		printf("%s %" PRId64 " %" PRIu64 " %s %s\n", step->name, step->number, step->bytes,
		       step->path ? step->path : "-", step->metadata);
	}
	ckpt_list_free(list);
	return 0;
}

static int say_what_to_load(struct ckpt *c, const char *folder, const char *by, const char *parameters,
			    const char *full_state)
{
	static const char *const modes[] = {"scratch", "resume", "full_state", "parameters"};
	struct ckpt_choice *choice;
	int rc = ckpt_resolve(c, folder, by, parameters, full_state, &choice);

	if (rc)
		return rc;
	printf("%s %s %s\n", modes[choice->mode], choice->path ? choice->path : "-", choice->step ? choice->step : "-");
	ckpt_choice_free(choice);
	return 0;
}

int main(int argc, char **argv)
{
	const char *by = argc > 3 && *argv[3] ? argv[3] : NULL, *parameters = argc > 4 ? argv[4] : NULL;
	struct ckpt *c;
	int rc = argc > 2 ? ckpt_open(argv[1], 0, &c) : -1;

	if (!rc) {
		rc = list_steps(c, argv[2]);
		if (!rc)
			rc = say_what_to_load(c, argv[2], by, parameters, argc > 5 ? argv[5] : NULL);
		ckpt_close(c);
	}
	if (rc)
		fprintf(stderr, "%s\n", strerror(-rc));
	return rc != 0;
}

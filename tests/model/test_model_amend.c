// Additions, edits and removals of files of a committed step, on both nodes at once: AMEND (REMOTE.md section 4).
#include "tests/model/model.h"

#include "core/base/util.h"

static const struct model_scenario scenarios[] = {
	{.name = "edits",
	 .first = {"save S 100"},
	 .acts = {{"edit S f 101", "add S g 102"}, {"edit S f 103", "delete S"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "removal",
	 .first = {"save S 100", "add S g 101"},
	 .acts = {{"cut S g", "add S h 102"}, {"edit S g 103", "rename S N"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "trash",
	 .first = {"save S 100", "add S g 101"},
	 .acts = {{"edit S g 102", "cut S f"}, {"delete S", "undelete S"}},
	 .snapshots = {1},
	 .crashes = 1,
	 .lost = 1},
	{.name = "expired",
	 .first = {"save S 100"},
	 .acts = {{"add S g 101", "edit S g 102"}, {"delete S", "expire S"}},
	 .snapshots = {1},
	 .crashes = 1,
	 .lost = 1},
	{.name = "amend+gc",
	 .first = {"save S 100", "add S g 101"},
	 .acts = {{"edit S g 102", "save N 101"}, {"cut S g", "delete S", "expire S"}},
	 .collections = {0, 2},
	 .crashes = 1,
	 .lost = 1},
	{.name = "re-save",
	 .first = {"save S 100"},
	 .acts = {{"edit S f 101", "cut S f"}, {"save S 102", "add S h 103"}},
	 .crashes = 1,
	 .lost = 1},
};

int main(void)
{
	return model_main(scenarios, ARRAY_LEN(scenarios), 15);
}

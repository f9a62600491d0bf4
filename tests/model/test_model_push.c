// Push, conflicts, delete, undelete, expiry, additions, renames, pins; garbage collection beside them. The model is push.py of REMOTE.md, section 11.
#include "tests/model/model.h"

#include "core/base/util.h"

static const struct model_scenario scenarios[] = {
	{.name = "dedupe+gc",
	 .first = {"save S 100"},
	 .acts = {{"save N 100"}, {"delete S", "expire S"}},
	 .collections = {0, 2},
	 .crashes = 1,
	 .lost = 2},
	{.name = "two gcs",
	 .first = {"save S 100"},
	 .acts = {{"save N 100"}, {"delete S", "expire S"}},
	 .collections = {1, 2},
	 .crashes = 1,
	 .lost = 1},
	{.name = "snapshot+gc",
	 .first = {"save S 100", "write pad 2"},
	 .acts = {{"save N 100"}, {"delete S", "expire S"}},
	 .collections = {0, 2},
	 .offers = {0, 1},
	 .others = 70,
	 .crashes = 1,
	 .lost = 2},
	{.name = "undelete+gc",
	 .first = {"save S 100"},
	 .acts = {{"undelete S", "add S g 101"}, {"delete S", "expire S"}},
	 .collections = {0, 2},
	 .crashes = 1,
	 .lost = 1},
	{.name = "gone+gc",
	 .first = {"save S 100"},
	 .acts = {{"save N 100"}, {"delete S", "expire S", "save K 100"}},
	 .collections = {0, 1},
	 .lost = 1,
	 .dies = true},
	{.name = "same name",
	 .acts = {{"save N 101", "add N g 102"}, {"save N 103", "delete N"}},
	 .crashes = 1,
	 .lost = 2},
	{.name = "re-save",
	 .first = {"save S 100"},
	 .acts = {{"save S 101", "pin S"}, {"add S g 102", "delete S"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "rename",
	 .first = {"save S 100"},
	 .acts = {{"rename S N", "add N h 101"}, {"save N 102", "add S g 103"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "save+rename",
	 .first = {"save S 100"},
	 .acts = {{"save S 101"}, {"rename S N", "save N 102"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "cancel", .acts = {{"save N 101", "delete N"}, {"save N 102"}}, .crashes = 1, .lost = 2},
};

int main(void)
{
	return model_main(scenarios, ARRAY_LEN(scenarios), 40);
}

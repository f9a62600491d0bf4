// The order of a node's publishes, trackers, snapshots to which others jump. The model is order.py of REMOTE.md, section 11. (There a reader
// restarts; here A does, by crashes. The remote's log is never trimmed.)
#include "tests/model/model.h"

#include "core/base/util.h"

static const struct model_scenario scenarios[] = {
	{.name = "two trackers",
	 .acts = {{"save a 101", "write T 102 a"}, {"save b 103", "write T 104 b"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "snapshots",
	 .first = {"save S 100", "write pad 2"},
	 .acts = {{"save a 101", "write T 102 a", "save c 103"}, {"rename S K", "save b 104"}},
	 .offers = {0, 2},
	 .others = 70,
	 .crashes = 1,
	 .lost = 1},
	{.name = "saved again",
	 .acts = {{"save b 101", "write T 102 b", "save b 103"}, {"save N 104"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "remove",
	 .first = {"write T 101"},
	 .acts = {{"write T 102", "write T 103"}, {"unlink T", "write T 104"}},
	 .crashes = 1,
	 .lost = 1},
	{.name = "unseen",
	 .first = {"write T 101"},
	 .script = {"B: unlink T", "B turns", "until B: put log", "A: write T 102", "A turns", "A rests", "B: put log"},
	 .acts = {{"write T 102", "save a 103"}, {"unlink T", "write q 104"}},
	 .crashes = 1,
	 .lost = 1},
};

int main(void)
{
	return model_main(scenarios, ARRAY_LEN(scenarios), 15);
}

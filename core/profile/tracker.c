#include "core/profile/tracker.h"

#include "core/base/util.h"
#include "core/record/name.h"

static const char *const known_forms[] = {
	"latest", "latest*",         "*latest",        "*latest*",       "checkpoint",
	"*.json", "*iteration*.txt", "iteration*.txt", "*iteration.txt", "iteration.txt",
};

static const char *const log_forms[] = {"*.log", "*.out", "*.err", "*.csv", "*.jsonl", "events.out.*"};

static bool matches_any(const char *const *forms, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (ckpt_name_matches(forms[i], name))
			return true;
	return false;
}

bool ckpt_tracker_is_known(const char *name)
{
	return matches_any(known_forms, ARRAY_LEN(known_forms), name);
}

bool ckpt_tracker_is_log(const char *name)
{
	return matches_any(log_forms, ARRAY_LEN(log_forms), name);
}

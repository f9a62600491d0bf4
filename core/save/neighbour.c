#include "core/save/neighbour.h"

#include "core/array/data.h"
#include "core/base/util.h"
#include "core/record/event.h"
#include "core/step/latest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>

struct compare {
	const struct ckpt_survey *survey;
	struct ckpt_step *neighbour;
	struct ckpt_manifest *now,
		*then;              // its files now, and when it was completed; the same where nothing has changed
	int64_t number, its_number; // of the step, and of its neighbour
	bool *used;                 // of the survey's files
	struct ckpt_lack *lack;
};

// --- Names --------------------------------------------------------------------------------------------------------------

// The digits at path are this number.
static bool is_number(const char *path, size_t digits, int64_t number)
{
	int64_t value = 0;

	for (size_t i = 0; i < digits; i++)
		if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, path[i] - '0', &value))
			return false;
	return value == number;
}

bool ckpt_neighbour_rename(const char *path, int64_t from, int64_t to, char *ret_path)
{
	size_t len = 0;
	bool renamed = false;

	while (*path) {
		size_t digits = strspn(path, "0123456789"), part = digits ? digits : strcspn(path, "0123456789");
		int n;

		if (digits && is_number(path, digits, from)) {
			n = snprintf(ret_path + len, PATH_MAX - len, "%0*lld",
				     *path == '0' && digits > 1 ? (int)MIN(digits, (size_t)32) : 0, (long long)to);
			renamed = true;
		} else {
			n = snprintf(ret_path + len, PATH_MAX - len, "%.*s", (int)part, path);
		}
		if ((size_t)n >= PATH_MAX - len)
			return false;
		len += (size_t)n;
		path += part;
	}
	return renamed;
}

static bool is_file_in(const struct ckpt_manifest *m, const char *path)
{
	struct ckpt_entry e;
	uint32_t index;

	if (ckpt_manifest_lookup(m, path, &index))
		return false;
	ckpt_manifest_entry(m, index, &e);
	return e.type == CKPT_ENTRY_FILE;
}

static bool use(struct compare *c, const char *path)
{
	ssize_t i = ckpt_survey_find(c->survey, path);

	if (i < 0 || c->used[i])
		return false;
	c->used[i] = true;
	return true;
}

static bool has_counterpart(struct compare *c, const char *path)
{
	char renamed[PATH_MAX];

	if (use(c, path))
		return true;
	return c->number >= 0 && c->its_number >= 0 && c->number != c->its_number &&
	       ckpt_neighbour_rename(path, c->its_number, c->number, renamed) && !is_file_in(c->now, renamed) &&
	       use(c, renamed);
}

// --- Which files count --------------------------------------------------------------------------------------------------

// A file that is in packs only is of a step that was cooled: what was added to it then is looked at by its size.
static bool is_array(struct compare *c, struct ckpt_manifest *m, uint32_t index, const char *path)
{
	struct ckpt_entry e;
	CLEANUP_FD int fd = -1;

	if (!ckpt_step_open_raw(c->neighbour, m, index, &fd))
		return ckpt_data_is_open(fd, -1, path) > 0;
	ckpt_manifest_entry(m, index, &e);
	return e.bytes > CKPT_DATA_LARGE_BYTES;
}

// in: the manifest that the file is of; other: the other of the two.
static int compare_file(struct compare *c, struct ckpt_manifest *in, struct ckpt_manifest *other, uint32_t index)
{
	struct ckpt_entry e;
	char path[PATH_MAX];

	ckpt_manifest_entry(in, index, &e);
	if (e.type != CKPT_ENTRY_FILE || ckpt_manifest_path(in, index, path, sizeof(path)) < 0)
		return 0;
	if (in != other && is_file_in(other, path)) {
		if (in == c->then)
			return 0; // compared already
	} else if (in != other && is_array(c, in, index, path) != (in == c->now)) {
		return 0; // added since, and no array; or an array that was removed since
	}
	if (has_counterpart(c, path))
		return 0;
	c->lack->file = strdup(path);
	return c->lack->file ? 0 : -ENOMEM;
}

static int compare_files(struct compare *c)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && !c->lack->file && i < ckpt_manifest_count(c->now); i++)
		rc = compare_file(c, c->now, c->then, i);
	for (uint32_t i = 0; !rc && !c->lack->file && c->then != c->now && i < ckpt_manifest_count(c->then); i++)
		rc = compare_file(c, c->then, c->now, i);
	return rc;
}

// --- Its versions -------------------------------------------------------------------------------------------------------

// A version that was made of the one before, and completed nothing.
static bool completes(const struct ckpt_summary *sum)
{
	static const char *const others[] = {CKPT_EVENT_AMEND, CKPT_EVENT_EDIT, CKPT_EVENT_SEAL, CKPT_EVENT_COOL,
					     CKPT_EVENT_REPACK};

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (!strcmp(sum->event, others[i]))
			return false;
	return true;
}

// The files when it was completed, or as early as the store still has it.
static int find_then(struct compare *c)
{
	struct ckpt_summary sum;
	struct ckpt_record r;
	bool found = false;

	ckpt_lock_take(&c->neighbour->lock);
	sum = c->neighbour->version->is;
	ckpt_lock_drop(&c->neighbour->lock);
	while (!completes(&sum) && sum.version > 1 && !ckpt_step_record(c->neighbour, sum.version - 1, &r)) {
		sum = r.summary;
		ckpt_record_done(&r);
		found = true;
	}
	if (!found) {
		c->then = ckpt_manifest_ref(c->now);
		return 0;
	}
	return ckpt_step_read_manifest(c->neighbour, &sum, &c->then);
}

// --- The comparison -----------------------------------------------------------------------------------------------------

static bool find_latest(struct ckpt_step *step, struct ckpt_latest *ret_latest)
{
	struct ckpt_step_name now;

	ckpt_step_name(step, &now);
	return !ckpt_latest(step->store, now.folder_id, CKPT_LATEST_BY_COMMIT, 0, ret_latest);
}

uint64_t ckpt_neighbour_sequence(struct ckpt_step *step)
{
	struct ckpt_latest latest;

	return find_latest(step, &latest) ? latest.newest_sequence : 0;
}

static struct ckpt_step *newest_beside(struct ckpt_step *step, uint64_t *ret_sequence)
{
	struct ckpt_latest latest;
	struct ckpt_step *found;

	if (!find_latest(step, &latest))
		return NULL;
	*ret_sequence = latest.newest_sequence;
	found = ckpt_step_find(step->store, latest.folder_id, latest.name);
	if (found && ckpt_step_state(found) == CKPT_STEP_COMMITTED)
		return found;
	ckpt_step_unref(found);
	return NULL;
}

static int compare_with(struct compare *c)
{
	int rc = ckpt_step_manifest(c->neighbour, &c->now);

	if (!rc)
		rc = find_then(c);
	c->used = calloc(c->survey->file_count + 1, sizeof(*c->used));
	if (!rc)
		rc = c->used ? compare_files(c) : -ENOMEM;
	free(c->used);
	ckpt_manifest_unref(c->then);
	ckpt_manifest_unref(c->now);
	return rc;
}

int ckpt_neighbour_compare(struct ckpt_step *step, const struct ckpt_survey *survey, struct ckpt_lack *ret_lack)
{
	struct ckpt_lack lack = {0};
	struct compare c = {.survey = survey, .neighbour = newest_beside(step, &lack.sequence), .lack = &lack};
	struct ckpt_step_name its, own;
	int rc;

	if (!c.neighbour) {
		*ret_lack = lack;
		return 0;
	}
	ckpt_step_name(step, &own);
	ckpt_step_name(c.neighbour, &its);
	c.number = ckpt_name_number(own.name);
	c.its_number = ckpt_name_number(its.name);
	snprintf(lack.neighbour, sizeof(lack.neighbour), "%s", its.name);
	rc = compare_with(&c);
	ckpt_step_unref(c.neighbour);
	if (rc)
		free(lack.file);
	else
		*ret_lack = lack;
	return rc;
}

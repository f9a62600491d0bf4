// What the file holds is from outside: it is read up to a limit, and what is no date makes its step the oldest.
#include "core/store/timestamp.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/record/manifest.h"
#include "core/store/step.h"
#include "core/store/store.h"
#include "core/tier/file.h"

#include <ctype.h>
#include <time.h>

#define FILE_NAME "metadata.json"
#define FILE_BYTES_MAX (1u << 20) // as much as is looked at when it completes its step (profile.c)
#define DIGITS_MAX 4              // of a number in a date
#define SECOND_NS INT64_C(1000000000)

// --- The date ---------------------------------------------------------------------------------------------------------

// Exactly so many digits; false: other characters, or above most.
static bool take_number(const char **at, int digits, int most, int *ret)
{
	int n = 0;

	for (int i = 0; i < digits; i++) {
		if (!isdigit((unsigned char)(*at)[i]))
			return false;
		n = n * 10 + ((*at)[i] - '0');
	}
	*at += digits;
	*ret = n;
	return n <= most;
}

static bool take(const char **at, char c)
{
	if (**at != c)
		return false;
	++*at;
	return true;
}

static bool take_date(const char **at, struct tm *tm)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int year, month, day, leap;

	if (!take_number(at, DIGITS_MAX, 9999, &year) || !take(at, '-') || !take_number(at, 2, 12, &month) ||
	    !take(at, '-') || !take_number(at, 2, 31, &day) || !year || !month || !day)
		return false;
	leap = month == 2 && year % 4 == 0 && (year % 100 || year % 400 == 0);
	*tm = (struct tm){.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_isdst = -1};
	return day <= days[month - 1] + leap;
}

// What is not said is 0; digits behind the ninth are not looked at.
static bool take_time(const char **at, struct tm *tm, int64_t *ret_ns)
{
	int64_t scale = SECOND_NS / 10;

	*ret_ns = 0;
	if (!take(at, 'T') && !take(at, ' '))
		return true;
	if (!take_number(at, 2, 23, &tm->tm_hour))
		return false;
	if (!take(at, ':'))
		return true;
	if (!take_number(at, 2, 59, &tm->tm_min))
		return false;
	if (!take(at, ':'))
		return true;
	if (!take_number(at, 2, 59, &tm->tm_sec))
		return false;
	if (!take(at, '.') && !take(at, ','))
		return true;
	if (!isdigit((unsigned char)**at))
		return false;
	for (; isdigit((unsigned char)**at); ++*at, scale /= 10)
		*ret_ns += scale * (**at - '0');
	return true;
}

// *ret_seconds east of Greenwich; *ret_zoned false: nothing is said.
static bool take_zone(const char **at, bool *ret_zoned, int64_t *ret_seconds)
{
	bool west = **at == '-';
	int hours, minutes = 0;

	*ret_seconds = 0;
	*ret_zoned = **at;
	if (!**at || take(at, 'Z'))
		return true;
	if (!take(at, '+') && !take(at, '-'))
		return false;
	if (!take_number(at, 2, 23, &hours))
		return false;
	if ((take(at, ':') || **at) && !take_number(at, 2, 59, &minutes))
		return false;
	*ret_seconds = (west ? -60 : 60) * (hours * INT64_C(60) + minutes);
	return true;
}

int ckpt_timestamp_parse(const char *text, int64_t *ret_ns)
{
	int64_t seconds, east, ns;
	struct tm tm;
	bool zoned;

	if (!take_date(&text, &tm) || !take_time(&text, &tm, &ns) || !take_zone(&text, &zoned, &east) || *text)
		return -EINVAL;
	seconds = zoned ? (int64_t)timegm(&tm) - east : (int64_t)mktime(&tm);
	if (__builtin_mul_overflow(seconds, SECOND_NS, &seconds) || __builtin_add_overflow(seconds, ns, &ns))
		ns = tm.tm_year < 70 ? CKPT_TIMESTAMP_OLDEST : INT64_MAX;
	*ret_ns = ns;
	return 0;
}

// --- The file ---------------------------------------------------------------------------------------------------------

static int read_all(struct ckpt_file *f, char *text, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = ckpt_file_read(f, text + done, len - done, done);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		done += (size_t)n;
	}
	return 0;
}

static int read_json(struct ckpt_step *step, struct ckpt_manifest *m, uint32_t index, json_t **ret_json)
{
	CLEANUP_FREE char *text = NULL;
	struct ckpt_entry e;
	struct ckpt_file *f;
	int rc;

	ckpt_manifest_entry(m, index, &e);
	if (e.type != CKPT_ENTRY_FILE || !e.bytes || e.bytes > FILE_BYTES_MAX)
		return -EINVAL;
	text = malloc(e.bytes + 1);
	if (!text)
		return -ENOMEM;
	rc = ckpt_file_open(step, m, index, &f);
	if (rc)
		return rc;
	rc = read_all(f, text, e.bytes);
	ckpt_file_close(f);
	if (rc)
		return rc;
	ckpt_json_tame(text, e.bytes);
	return ckpt_json_load(text, e.bytes, 0, NULL, ret_json);
}

static int read_timestamp(struct ckpt_step *step, struct ckpt_manifest *m, int64_t *ret_ns)
{
	const json_t *value;
	uint32_t index;
	json_t *json;
	int rc;

	*ret_ns = CKPT_TIMESTAMP_NONE;
	if (ckpt_manifest_lookup(m, FILE_NAME, &index))
		return 0;
	rc = read_json(step, m, index, &json);
	*ret_ns = CKPT_TIMESTAMP_OLDEST;
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	value = json_object_get(json, "timestamp");
	if (json_is_object(json) && !value)
		*ret_ns = CKPT_TIMESTAMP_NONE; // that of another framework
	else if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
		(void)ckpt_timestamp_parse(json_string_value(value), ret_ns);
	json_decref(json);
	return 0;
}

static int look_at(struct ckpt_step *step)
{
	int64_t ns = CKPT_TIMESTAMP_NONE; // where nobody knows which files it has
	struct ckpt_manifest *m;
	uint32_t version;
	bool known;
	int rc;

	ckpt_lock_take(&step->lock);
	version = step->summary.version;
	known = step->saved.version == version;
	ckpt_lock_drop(&step->lock);
	if (known)
		return 0;
	rc = ckpt_step_manifest(step, &m);
	if (!rc) {
		rc = read_timestamp(step, m, &ns);
		ckpt_manifest_unref(m);
	}
	if (rc == -ENOMEM)
		return rc;
	LOCK_SCOPE(&step->lock);

	step->saved.version = version;
	step->saved.ns = ns;
	return 0;
}

int ckpt_timestamp_look(struct ckpt_store *s, const char *folder_id)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(s, folder_id, 1u << CKPT_STEP_COMMITTED, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++)
		rc = look_at(steps[i]);
	ckpt_step_list_free(steps, count);
	return rc;
}

int64_t ckpt_timestamp_locked(const struct ckpt_step *step)
{
	return step->saved.version && step->saved.version == step->summary.version ? step->saved.ns
										   : CKPT_TIMESTAMP_NONE;
}

// The settings of the bucket that cost money, or that remove what a store needs.
//
// A server without such settings answers that it cannot, or with a document of another kind: both mean that there are none. An answer that
// cannot be read is no such document: the setting is then not known.
#include "backends/s3_describe.h"
#include "backends/s3_parts.h"
#include "backends/s3_xml.h"
#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#include <inttypes.h>
#include <stdio.h>

#define DAY_NS INT64_C(86400000000000)

struct rules {
	const struct ckpt_s3_config *config;
	struct ckpt_s3_rule harmful; // the first one that is
	bool is_harmful;
	unsigned abort_days, old_versions_days; // of those that are about all objects of the store
};

// --- Asking -------------------------------------------------------------------------------------------------------------

enum answer { ANSWER, NONE, REFUSED, FAILED };

static int parse(const struct ckpt_s3_request *r, const char *root, struct ckpt_s3_field *fields, size_t count)
{
	return ckpt_s3_fields_parse(r->text.data ? r->text.data : "", r->text.len, root, fields, count);
}

// Others of 4xx say nothing of the setting: a busy server, a request that came too late.
static bool says_none(const struct ckpt_s3_request *r, int rc)
{
	return rc != -EAGAIN && (r->status == 400 || r->status == 404 || r->status == 405 || r->status == 501);
}

static bool is_of_another_kind(const struct ckpt_s3_request *r, const char *root)
{
	return parse(r, root, NULL, 0) == -EBADMSG && !parse(r, NULL, NULL, 0);
}

// root: of the answer. ANSWER: the request is the caller's, with its text.
static enum answer ask(struct ckpt_s3 *s3, const char *query, const char *root, struct ckpt_s3_request **ret_request)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = ckpt_s3_request_new(s3, "GET", NULL);
	char why[CKPT_OBJECTS_WHY_MAX];
	int rc;

	ckpt_s3_newest(s3, why); // of what was refused before
	if (!r)
		return FAILED;
	r->query = query;
	rc = ckpt_s3_request_run(r);
	if (rc == -EACCES)
		return REFUSED;
	if (rc)
		return says_none(r, rc) ? NONE : FAILED;
	if (is_of_another_kind(r, root))
		return NONE;
	*ret_request = TAKE_PTR(r);
	return ANSWER;
}

static enum answer fail_to_read(struct ckpt_s3 *s3, const char *root)
{
	ckpt_s3_say(s3, "the %s of %s cannot be read", root, s3->config.host);
	return FAILED;
}

static void report_unknown(const struct ckpt_s3_report *report, const char *name, const char *action,
			   enum answer answer)
{
	char hint[128], why[CKPT_OBJECTS_WHY_MAX];

	snprintf(hint, sizeof(hint), "allow %s to whoever asks", action);
	ckpt_s3_newest(report->s3, why);
	if (answer == REFUSED)
		ckpt_s3_report(report, name, CKPT_FINDING_WARN, hint, "not known: no right to ask (%s)", action);
	else
		ckpt_s3_report(report, name, CKPT_FINDING_WARN, NULL, "not known: %s",
			       *why ? why : "the server does not say");
}

// --- Rules --------------------------------------------------------------------------------------------------------------

static bool overlaps(const char *a, const char *b)
{
	return !strncmp(a, b, MIN(strlen(a), strlen(b)));
}

// probe/ is left out: nothing there is needed.
static bool is_about_ours(const struct ckpt_s3_config *c, const struct ckpt_s3_rule *rule)
{
	static const char *const parts[] = {CKPT_OBJECT_IDENTITY, "log/", "snap/", "m/", "packs/", "parts/"};
	char whole[CKPT_S3_PREFIX_MAX + 16];

	if (!rule->enabled || rule->is_tagged)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		snprintf(whole, sizeof(whole), "%s%s", c->prefix, parts[i]);
		if (overlaps(whole, rule->prefix))
			return true;
	}
	return false;
}

static bool is_about_all(const struct ckpt_s3_config *c, const struct ckpt_s3_rule *rule)
{
	return rule->enabled && !rule->is_tagged && !strncmp(c->prefix, rule->prefix, strlen(rule->prefix));
}

static int see_rule(void *arg, const struct ckpt_s3_rule *rule)
{
	struct rules *l = arg;

	if (!l->is_harmful && (rule->expires || rule->archives) && is_about_ours(l->config, rule)) {
		l->is_harmful = true;
		l->harmful = *rule;
	}
	if (!is_about_all(l->config, rule))
		return 0;
	if (rule->abort_days)
		l->abort_days = rule->abort_days;
	if (rule->old_versions_days)
		l->old_versions_days = rule->old_versions_days;
	return 0;
}

static enum answer get_rules(struct ckpt_s3 *s3, struct rules *ret_rules)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = NULL;
	enum answer answer = ask(s3, "lifecycle=", "LifecycleConfiguration", &r);

	ret_rules->config = &s3->config;
	if (answer == ANSWER && ckpt_s3_rules_parse(r->text.data ? r->text.data : "", r->text.len, see_rule, ret_rules))
		answer = fail_to_read(s3, "LifecycleConfiguration");
	return answer;
}

static void report_harmful(const struct ckpt_s3_report *report, const struct ckpt_s3_rule *rule)
{
	char after[32] = "";

	if (rule->expires && rule->expires_days)
		snprintf(after, sizeof(after), " after %u days", rule->expires_days);
	ckpt_s3_report(report, "lifecycle", CKPT_FINDING_FAIL,
		       "remove the rule, or give it another prefix: steps would be lost",
		       "the rule '%.100s' %s objects of this store%s, those with the prefix '%.200s'", rule->id,
		       rule->expires ? "removes" : "archives", after, rule->prefix);
}

static void report_rules(const struct ckpt_s3_report *report, const struct rules *l, enum answer answer)
{
	static const char name[] = "lifecycle";

	if (l->is_harmful) // also where a later rule cannot be read
		report_harmful(report, &l->harmful);
	else if (answer == REFUSED || answer == FAILED)
		report_unknown(report, name, "s3:GetLifecycleConfiguration", answer);
	else if (!l->abort_days)
		ckpt_s3_report(
			report, name, CKPT_FINDING_WARN,
			"`ckptfs doctor --policy` prints a rule that gives them up: AbortIncompleteMultipartUpload",
			"no rule removes objects of this store, and none gives up unfinished uploads");
	else
		ckpt_s3_report(report, name, CKPT_FINDING_OK, NULL,
			       "no rule removes objects of this store; unfinished uploads are given up after %u days",
			       l->abort_days);
}

// --- Versions, locks ----------------------------------------------------------------------------------------------------

static void report_versions(const struct ckpt_s3_report *report, const char *status, const struct rules *l)
{
	static const char hint[] = "`ckptfs doctor --policy` prints a rule that removes them: "
				   "NoncurrentVersionExpiration";

	if (strcmp(status, "Enabled") != 0 && strcmp(status, "Suspended") != 0)
		ckpt_s3_report(report, "versioning", CKPT_FINDING_OK, NULL, "off: what is deleted is gone");
	else if (l->old_versions_days)
		ckpt_s3_report(report, "versioning", CKPT_FINDING_OK, NULL,
			       "%s: what is deleted is paid for %u days more", status, l->old_versions_days);
	else if (!strcmp(status, "Enabled"))
		ckpt_s3_report(report, "versioning", CKPT_FINDING_WARN, hint,
			       "%s: what is deleted stays as an old version, and is paid for", status);
	else
		ckpt_s3_report(report, "versioning", CKPT_FINDING_WARN, hint,
			       "%s: old versions of before stay, and are paid for", status);
}

static void describe_versions(const struct ckpt_s3_report *report, const struct rules *l)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = NULL;
	char status[32] = "";
	struct ckpt_s3_field field = {"Status", status, sizeof(status)};
	enum answer answer = ask(report->s3, "versioning=", "VersioningConfiguration", &r);

	if (answer == ANSWER && parse(r, "VersioningConfiguration", &field, 1))
		answer = fail_to_read(report->s3, "VersioningConfiguration");
	if (answer == REFUSED || answer == FAILED)
		report_unknown(report, "versioning", "s3:GetBucketVersioning", answer);
	else
		report_versions(report, status, l);
}

static void describe_locks(const struct ckpt_s3_report *report)
{
	CLEANUP(ckpt_s3_request_free) struct ckpt_s3_request *r = NULL;
	char enabled[32] = "", mode[32] = "", days[16] = "", years[16] = "";
	struct ckpt_s3_field fields[] = {{"ObjectLockEnabled", enabled, sizeof(enabled)},
					 {"Mode", mode, sizeof(mode)},
					 {"Days", days, sizeof(days)},
					 {"Years", years, sizeof(years)}};
	enum answer answer = ask(report->s3, "object-lock=", "ObjectLockConfiguration", &r);

	if (answer == ANSWER && parse(r, "ObjectLockConfiguration", fields, ARRAY_LEN(fields)))
		answer = fail_to_read(report->s3, "ObjectLockConfiguration");
	if (answer == REFUSED || answer == FAILED)
		report_unknown(report, "object_lock", "s3:GetBucketObjectLockConfiguration", answer);
	else if (*mode)
		ckpt_s3_report(report, "object_lock", CKPT_FINDING_WARN,
			       "take a bucket without a default retention: garbage is paid for all that time",
			       "on: each object stays for %s%s (%s), deleted or not", *days ? days : years,
			       *days ? " days" : " years", mode);
	else
		ckpt_s3_report(report, "object_lock", CKPT_FINDING_OK, NULL,
			       strcmp(enabled, "Enabled") ? "off" : "on, without a default retention");
}

// --- Uploads ------------------------------------------------------------------------------------------------------------

static void describe_uploads(const struct ckpt_s3_report *report)
{
	char why[CKPT_OBJECTS_WHY_MAX], began[CKPT_TIME_LEN + 1];
	int64_t oldest_ns;
	uint64_t count;
	bool is_old;
	int rc;

	ckpt_s3_newest(report->s3, why); // of what was refused before
	rc = ckpt_s3_count_uploads(report->s3, &count, &oldest_ns);
	is_old = count && ckpt_time_between(oldest_ns, ckpt_sys.now_ns()) > DAY_NS;
	ckpt_time_format(oldest_ns, began);
	if (rc == -EACCES)
		report_unknown(report, "uploads", "s3:ListBucketMultipartUploads", REFUSED);
	else if (rc)
		report_unknown(report, "uploads", "", FAILED);
	else if (!count)
		ckpt_s3_report(report, "uploads", CKPT_FINDING_OK, NULL, "none is unfinished");
	else
		ckpt_s3_report(report, "uploads", is_old ? CKPT_FINDING_WARN : CKPT_FINDING_OK,
			       is_old ? "`ckptfs gc` gives up those that are older than a day" : NULL,
			       "%" PRIu64 " unfinished, the oldest of %.19sZ", count, began);
}

void ckpt_s3_describe_bucket(const struct ckpt_s3_report *report)
{
	struct rules *l = calloc(1, sizeof(*l));
	enum answer answer = l ? get_rules(report->s3, l) : FAILED;

	if (!l)
		return;
	report_rules(report, l, answer); // now: the newest failure is that of this question
	describe_versions(report, l);
	describe_locks(report);
	describe_uploads(report);
	free(l);
}

#include "tools/doctor.h"

#include "core/base/util.h"
#include "tools/output.h"

#include <string.h>

#define ABORT_DAYS 7
#define OLD_VERSIONS_DAYS 7

struct place {
	const char *partition; // of AWS
	char *bucket, *prefix; // the prefix is "" or ends with a slash
};

static const char *region_of(const char *const *options)
{
	static const char *const names[] = {"AWS_REGION", "AWS_DEFAULT_REGION"};

	for (; options && *options; options++)
		if (!strncmp(*options, "region=", 7))
			return *options + 7;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (getenv(names[i]))
			return getenv(names[i]);
	return "";
}

static void find_place(const char *url, const char *const *options, struct place *ret_place)
{
	const char *bucket = url + strlen("s3://"), *slash = strchrnul(bucket, '/'), *region = region_of(options);
	const char *prefix = *slash ? slash + 1 : slash;
	size_t len = strlen(prefix);

	while (len && prefix[len - 1] == '/')
		len--;
	ret_place->bucket = ckpt_text("%.*s", (int)(slash - bucket), bucket);
	ret_place->prefix = ckpt_text("%.*s%s", (int)len, prefix, len ? "/" : "");
	ret_place->partition = !strncmp(region, "cn-", 3)       ? "aws-cn"
			       : !strncmp(region, "us-gov-", 7) ? "aws-us-gov"
								: "aws";
}

// '*' and '?' stand for others in a policy, and '$' begins a name.
static char *resource_text(const struct place *p)
{
	char *text = ckpt_text("arn:%s:s3:::%s/", p->partition, p->bucket);

	for (const char *c = p->prefix; *c; c++) {
		char *longer = ckpt_text(strchr("*?$", *c) ? "%s${%c}" : "%s%c", text, *c);

		free(text);
		text = longer;
	}
	return text;
}

static json_t *policy(const struct place *p, json_t *bucket_actions, json_t *object_actions)
{
	CLEANUP_FREE char *bucket = ckpt_text("arn:%s:s3:::%s", p->partition, p->bucket);
	CLEANUP_FREE char *objects = resource_text(p);

	return json_pack("{s:s, s:[{s:s, s:o, s:s}, {s:s, s:o, s:s+}]}", "Version", "2012-10-17", "Statement", "Effect",
			 "Allow", "Action", ckpt_need(bucket_actions), "Resource", bucket, "Effect", "Allow", "Action",
			 ckpt_need(object_actions), "Resource", objects, "*");
}

// A condition on s3:prefix would let a key that is missing be answered as a refusal (see ckptfs-remote(7)).
static json_t *reader(const struct place *p)
{
	return policy(p, json_pack("[s]", "s3:ListBucket"), json_pack("[s]", "s3:GetObject"));
}

static json_t *writer(const struct place *p)
{
	return policy(p, json_pack("[s, s]", "s3:ListBucket", "s3:ListBucketMultipartUploads"),
		      json_pack("[s, s, s, s]", "s3:GetObject", "s3:PutObject", "s3:DeleteObject",
				"s3:AbortMultipartUpload"));
}

// The second one is of use where the bucket keeps versions.
static json_t *lifecycle(const struct place *p)
{
	return json_pack("{s:[{s:s, s:s, s:{s:s}, s:{s:i}}, {s:s, s:s, s:{s:s}, s:{s:i}, s:{s:b}}]}", "Rules", "ID",
			 "ckptfs-unfinished-uploads", "Status", "Enabled", "Filter", "Prefix", p->prefix,
			 "AbortIncompleteMultipartUpload", "DaysAfterInitiation", ABORT_DAYS, "ID",
			 "ckptfs-old-versions", "Status", "Enabled", "Filter", "Prefix", p->prefix,
			 "NoncurrentVersionExpiration", "NoncurrentDays", OLD_VERSIONS_DAYS, "Expiration",
			 "ExpiredObjectDeleteMarker", 1);
}

int ckpt_doctor_policy(const char *url, const char *const *options)
{
	struct ckpt_objects *o;
	struct place p;
	int rc = ckpt_doctor_open(url, options, &o); // it refuses what is no URL of a bucket

	if (rc)
		return rc;
	ckpt_objects_close(o);
	find_place(url, options, &p);
	ckpt_output_json(ckpt_need(json_pack("{s:o, s:o, s:o}", "reader", ckpt_need(reader(&p)), "writer",
					     ckpt_need(writer(&p)), "lifecycle", ckpt_need(lifecycle(&p)))));
	free(p.bucket);
	free(p.prefix);
	return 0;
}

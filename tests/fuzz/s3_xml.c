// Hostile answers of a store: each is refused, or every object of it makes sense.
#include "tests/fuzz/replay.h"

#include "backends/s3_xml.h"
#include "core/base/util.h"

static int see(void *arg, const char *key, const struct ckpt_object *object)
{
	(void)arg;
	fuzz_assert(strlen(key) < CKPT_S3_KEY_MAX);
	fuzz_assert(*object->etag && strlen(object->etag) < CKPT_ETAG_MAX);
	return 0;
}

static int see_rule(void *arg, const struct ckpt_s3_rule *rule)
{
	(void)arg;
	fuzz_assert(strlen(rule->id) < sizeof(rule->id) && strlen(rule->prefix) < sizeof(rule->prefix));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char code[16], message[32];
	struct ckpt_s3_field fields[] = {{"Code", code, sizeof(code)}, {"Message", message, sizeof(message)}};
	struct ckpt_s3_page page;
	int rc = ckpt_s3_page_parse((const char *)data, len, see, NULL, &page);

	fuzz_assert(rc == 0 || rc == -EBADMSG);
	rc = ckpt_s3_fields_parse((const char *)data, len, "Error", fields, ARRAY_LEN(fields));
	fuzz_assert(rc == 0 || rc == -EBADMSG);
	fuzz_assert(strlen(code) < sizeof(code) && strlen(message) < sizeof(message));
	rc = ckpt_s3_rules_parse((const char *)data, len, see_rule, NULL);
	fuzz_assert(rc == 0 || rc == -EBADMSG);
	return 0;
}

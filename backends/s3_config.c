#include "backends/s3_config.h"

#include "core/base/units.h"
#include "core/base/util.h"

#include <stdio.h>

#define CONNECTIONS_MAX 256
#define PAGE_KEYS_MAX 1000
#define BUCKET_MIN 3

static int refuse(char *ret_why, const char *what, const char *which, const char *hint)
{
	snprintf(ret_why, CKPT_OBJECTS_WHY_MAX, "%s '%.200s'%s%.200s", what, which, *hint ? ": " : "", hint);
	return -EINVAL;
}

static int set_text(const char *value, char *ret_text, size_t size)
{
	// A line break would be a header of its own.
	for (const char *c = value; *c; c++)
		if (*c <= ' ' || *c > '~')
			return -EINVAL;
	return *value && (size_t)snprintf(ret_text, size, "%s", value) < size ? 0 : -EINVAL;
}

// --- Options ------------------------------------------------------------------------------------------------------------

enum kind { FLAG, TEXT, RATE, COUNT };

#define OF(field) offsetof(struct ckpt_s3_config, field), sizeof(((struct ckpt_s3_config *)0)->field)

static const struct option {
	const char *name;
	enum kind kind;
	size_t offset, size;
	unsigned most; // of a COUNT
} table[] = {
	{"endpoint", TEXT, OF(endpoint), 0},
	{"allow_http", FLAG, OF(allow_http), 0},
	{"region", TEXT, OF(region), 0},
	{"credentials_profile", TEXT, OF(profile), 0},
	{"no_sign_request", FLAG, OF(unsigned_requests), 0},
	{"requester_pays", FLAG, OF(requester_pays), 0},
	{"storage_class", TEXT, OF(storage_class), 0},
	{"sse", TEXT, OF(sse), 0},
	{"sse_kms_key", TEXT, OF(sse_kms_key), 0},
	{"acl", TEXT, OF(acl), 0},
	{"bwlimit", RATE, OF(bytes_per_s), 0},
	{"max_connections", COUNT, OF(connections_max), CONNECTIONS_MAX},
	{"page_keys", COUNT, OF(page_keys), PAGE_KEYS_MAX},
};

static int set_count(const char *value, unsigned most, unsigned *ret_count)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || n < 1 || n > most)
		return -EINVAL;
	*ret_count = (unsigned)n;
	return 0;
}

static int set_option(const struct option *o, const char *value, struct ckpt_s3_config *c)
{
	void *at = (char *)c + o->offset;

	if (o->kind == FLAG ? value != NULL : !value)
		return -EINVAL;
	switch (o->kind) {
	case FLAG:
		*(bool *)at = true;
		return 0;
	case TEXT:
		return set_text(value, at, o->size);
	case RATE:
		return ckpt_size_parse(value, at) || !*(uint64_t *)at ? -EINVAL : 0;
	case COUNT:
		return set_count(value, o->most, at);
	}
	return -EINVAL;
}

static int parse_option(const char *text, struct ckpt_s3_config *c, char *ret_why)
{
	size_t len = strcspn(text, "=");
	const char *value = text[len] ? text + len + 1 : NULL;

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strlen(table[i].name) == len && !memcmp(table[i].name, text, len))
			return set_option(&table[i], value, c)
				       ? refuse(ret_why, "this is no value for the option", text, "")
				       : 0;
	return refuse(ret_why, "an s3 store has no option", text, "");
}

// --- The URL ------------------------------------------------------------------------------------------------------------

static bool is_bucket(const char *name)
{
	size_t len = strlen(name);

	return len >= BUCKET_MIN &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == len &&
	       !strstr(name, "..") && name[0] != '.' && name[0] != '-';
}

static bool has_odd_component(const char *path)
{
	for (size_t len; *path; path += len + (path[len] == '/')) {
		len = strcspn(path, "/");
		if (!len || (path[0] == '.' && (len == 1 || (len == 2 && path[1] == '.'))))
			return true;
	}
	return false;
}

static int parse_url(const char *url, struct ckpt_s3_config *c, char *ret_why)
{
	const char *bucket = url + strlen("s3://"), *slash = strchrnul(bucket, '/');
	size_t len;

	if ((size_t)(slash - bucket) >= sizeof(c->bucket))
		return refuse(ret_why, "no bucket has the name", bucket, "");
	memcpy(c->bucket, bucket, (size_t)(slash - bucket));
	if (!is_bucket(c->bucket))
		return refuse(ret_why, "no bucket has the name", c->bucket, "the form is s3://BUCKET/PREFIX");
	slash += *slash == '/';
	len = strlen(slash);
	while (len && slash[len - 1] == '/')
		len--;
	if (!len)
		return 0;
	if (len + 2 > sizeof(c->prefix))
		return refuse(ret_why, "this prefix is too long:", slash, "");
	memcpy(c->prefix, slash, len);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)c->prefix[i] < ' ' || c->prefix[i] == 0x7f)
			return refuse(ret_why, "a prefix has no control characters:", "", "");
	if (has_odd_component(c->prefix))
		return refuse(ret_why, "a prefix has no empty part, no '.' and no '..':", c->prefix, "");
	c->prefix[len] = '/';
	return 0;
}

static void take_environment(const char *const *names, char *ret_text, size_t size)
{
	for (; *names && !*ret_text; names++) {
		const char *value = getenv(*names);

		if (value && set_text(value, ret_text, size))
			*ret_text = '\0';
	}
}

int ckpt_s3_config_parse(const char *url, const char *const *options, struct ckpt_s3_config *ret_config,
			 char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	static const char *const endpoints[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
	static const char *const regions[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
	struct ckpt_s3_config c = {0};
	int rc;

	*ret_why = '\0';
	rc = parse_url(url, &c, ret_why);
	for (; options && *options && !rc; options++)
		rc = parse_option(*options, &c, ret_why);
	take_environment(endpoints, c.endpoint, sizeof(c.endpoint));
	take_environment(regions, c.region, sizeof(c.region));
	if (!rc)
		*ret_config = c;
	return rc;
}

// --- The host -----------------------------------------------------------------------------------------------------------

static bool is_loopback(const char *host)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
	size_t len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == len && !strncmp(host, names[i], len))
			return true;
	return len > strlen(".localhost") &&
	       !strncmp(host + len - strlen(".localhost"), ".localhost", strlen(".localhost"));
}

static int settle_endpoint(struct ckpt_s3_config *c, char *ret_why)
{
	const char *host = c->endpoint;
	size_t len, bucket_len = strlen(c->bucket);

	if (!strncmp(host, "http://", 7))
		c->is_http = true;
	else if (strncmp(host, "https://", 8) != 0)
		return refuse(ret_why, "an endpoint begins with https:// or http://:", host, "");
	host += c->is_http ? 7 : 8;
	len = strcspn(host, "/");
	if (!len || host[len + (host[len] == '/')] || strpbrk(host, "@?#"))
		return refuse(ret_why, "an endpoint is a scheme, a host and a port:", c->endpoint, "");
	snprintf(c->host, sizeof(c->host), "%.*s", (int)len, host);
	c->is_loopback = is_loopback(c->host);
	if (c->is_http && !c->allow_http && !c->is_loopback)
		return refuse(ret_why, "anybody on the way can read what goes to", c->endpoint,
			      "use https://, or say allow_http");
	c->path_style = strncmp(c->host, c->bucket, bucket_len) != 0 || c->host[bucket_len] != '.';
	return 0;
}

int ckpt_s3_config_settle(struct ckpt_s3_config *c, const char *region, const char *endpoint,
			  char ret_why[CKPT_OBJECTS_WHY_MAX])
{
	if (!*c->region && set_text(*region ? region : "us-east-1", c->region, sizeof(c->region)))
		return refuse(ret_why, "no region has the name", region, "");
	if (strspn(c->region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != strlen(c->region))
		return refuse(ret_why, "no region has the name", c->region, "");
	if (!*c->endpoint && *endpoint && set_text(endpoint, c->endpoint, sizeof(c->endpoint)))
		return refuse(ret_why, "this is no endpoint:", endpoint, "");
	if (*c->endpoint)
		return settle_endpoint(c, ret_why);
	// No certificate has more than one label before the host's own.
	c->path_style = strchr(c->bucket, '.');
	snprintf(c->host, sizeof(c->host), "%s%ss3.%s.amazonaws.com%s", c->path_style ? "" : c->bucket,
		 c->path_style ? "" : ".", c->region, !strncmp(c->region, "cn-", 3) ? ".cn" : "");
	return 0;
}

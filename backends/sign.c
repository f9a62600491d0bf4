#include "backends/sign.h"

#include "core/base/util.h"

#include <stdio.h>
#include <time.h>

#define BLOCK_BYTES 64 // of SHA-256

void ckpt_keys_wipe(struct ckpt_keys *keys)
{
	explicit_bzero(keys, sizeof(*keys));
}

void ckpt_sign_time(int64_t now_ns, char ret_time[CKPT_SIGN_TIME_MAX])
{
	time_t s = (time_t)(now_ns / 1000000000);
	struct tm tm;

	if (!gmtime_r(&s, &tm) || strftime(ret_time, CKPT_SIGN_TIME_MAX, "%Y%m%dT%H%M%SZ", &tm) == 0)
		strcpy(ret_time, "19700101T000000Z");
}

bool ckpt_sign_encode(const char *text, bool keep_slash, char *ret_text, size_t size)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	size_t at = 0;

	for (; *text && at + 4 <= size; text++) {
		if (strchr(plain, *text) || (keep_slash && *text == '/'))
			ret_text[at++] = *text;
		else
			at += (size_t)snprintf(ret_text + at, 4, "%%%02X", (unsigned char)*text);
	}
	ret_text[*text ? 0 : at] = '\0';
	return !*text;
}

static void hmac(const void *key, size_t key_len, const void *data, size_t len, uint8_t ret_mac[CKPT_SHA256_LEN])
{
	uint8_t inner[BLOCK_BYTES] = {0}, outer[BLOCK_BYTES];
	struct ckpt_sha256 sum;

	if (key_len > sizeof(inner))
		ckpt_sha256(key, key_len, inner);
	else
		memcpy(inner, key, key_len);
	for (size_t i = 0; i < sizeof(inner); i++) {
		outer[i] = inner[i] ^ 0x5c;
		inner[i] ^= 0x36;
	}
	ckpt_sha256_begin(&sum);
	ckpt_sha256_add(&sum, inner, sizeof(inner));
	ckpt_sha256_add(&sum, data, len);
	ckpt_sha256_end(&sum, ret_mac);
	ckpt_sha256_begin(&sum);
	ckpt_sha256_add(&sum, outer, sizeof(outer));
	ckpt_sha256_add(&sum, ret_mac, CKPT_SHA256_LEN);
	ckpt_sha256_end(&sum, ret_mac);
	explicit_bzero(inner, sizeof(inner));
	explicit_bzero(outer, sizeof(outer));
	explicit_bzero(&sum, sizeof(sum));
}

// The key of a day, a region and a service.
static void derive(const struct ckpt_keys *keys, const struct ckpt_sign *what, uint8_t ret_key[CKPT_SHA256_LEN])
{
	const char *const parts[] = {what->region, what->service, "aws4_request"};
	char first[4 + CKPT_KEYS_SECRET_MAX];
	int len = snprintf(first, sizeof(first), "AWS4%s", keys->secret);

	hmac(first, (size_t)len, what->time, 8, ret_key);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		hmac(ret_key, CKPT_SHA256_LEN, parts[i], strlen(parts[i]), ret_key);
	explicit_bzero(first, sizeof(first));
}

static int by_name(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	size_t x_len = strcspn(x, ":"), y_len = strcspn(y, ":");
	int order = memcmp(x, y, MIN(x_len, y_len));

	return order ? order : (x_len > y_len) - (x_len < y_len);
}

static void add(struct ckpt_sha256 *sum, const char *text)
{
	ckpt_sha256_add(sum, text, strlen(text));
}

// The canonical request, as its hash, and the names of its headers.
static int canonical(const struct ckpt_sign *what, uint8_t ret_sha256[CKPT_SHA256_LEN], char *ret_names, size_t size)
{
	const char *sorted[CKPT_SIGN_HEADERS_MAX];
	struct ckpt_sha256 sum;
	size_t count = 0, at = 0;

	for (; what->headers[count]; count++) {
		if (count == ARRAY_LEN(sorted))
			return -E2BIG;
		sorted[count] = what->headers[count];
	}
	qsort(sorted, count, sizeof(*sorted), by_name);
	ckpt_sha256_begin(&sum);
	add(&sum, what->method);
	add(&sum, "\n");
	add(&sum, what->path);
	add(&sum, "\n");
	add(&sum, what->query);
	add(&sum, "\n");
	for (size_t i = 0; i < count; i++) {
		size_t len = strcspn(sorted[i], ":");
		const char *value = sorted[i] + len + 1;

		at += (size_t)snprintf(ret_names + at, size - at, "%s%.*s", i ? ";" : "", (int)len, sorted[i]);
		if (at >= size)
			return -E2BIG;
		ckpt_sha256_add(&sum, sorted[i], len + 1);
		add(&sum, value + strspn(value, " "));
		add(&sum, "\n");
	}
	add(&sum, "\n");
	add(&sum, ret_names);
	add(&sum, "\n");
	add(&sum, what->payload);
	ckpt_sha256_end(&sum, ret_sha256);
	return 0;
}

int ckpt_sign(const struct ckpt_keys *keys, const struct ckpt_sign *what, char ret_header[CKPT_SIGN_MAX])
{
	char names[640], scope[160], text[400], hex[CKPT_SHA256_TEXT_MAX];
	uint8_t mac[CKPT_SHA256_LEN], key[CKPT_SHA256_LEN];
	int len, rc = canonical(what, mac, names, sizeof(names));

	if (rc)
		return rc;
	len = snprintf(scope, sizeof(scope), "%.8s/%s/%s/aws4_request", what->time, what->region, what->service);
	if ((size_t)len >= sizeof(scope))
		return -E2BIG;
	ckpt_hex(mac, sizeof(mac), hex);
	len = snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", what->time, scope, hex);
	derive(keys, what, key);
	hmac(key, sizeof(key), text, (size_t)len, mac);
	explicit_bzero(key, sizeof(key));
	ckpt_hex(mac, sizeof(mac), hex);
	len = snprintf(ret_header, CKPT_SIGN_MAX,
		       "authorization: AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s", keys->id,
		       scope, names, hex);
	return len < CKPT_SIGN_MAX ? 0 : -E2BIG;
}

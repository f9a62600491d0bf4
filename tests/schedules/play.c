#include "tests/schedules/play.h"

#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/base/uuid.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *setting(const char *name)
{
	const char *value = getenv(name);

	ck_assert_msg(value != NULL, "%s is not set: run this below tests/servers/with-s3 --proxy", name);
	return value;
}

const char *ckpt_play_url(void)
{
	static char url[256];
	char uuid[CKPT_UUID_LEN + 1];

	if (!*url) {
		ck_ok(ckpt_uuid_make(uuid));
		snprintf(url, sizeof(url), "s3://%s/play/%s", setting("CKPT_TEST_S3_BUCKET"), uuid);
	}
	return url;
}

const char *const *ckpt_play_options(bool direct)
{
	static char texts[2][256];
	static char page[32];
	static const char *options[2][3] = {{texts[0]}, {texts[1]}};
	unsigned keys = ckpt_suite_setting("CKPT_PLAY_PAGE", 0);

	snprintf(texts[direct], sizeof(texts[direct]), "endpoint=%s",
		 setting(direct ? "CKPT_TEST_S3_DIRECT" : "CKPT_TEST_S3_ENDPOINT"));
	if (keys) {
		snprintf(page, sizeof(page), "page_keys=%u", keys);
		options[false][1] = page;
	}
	return options[direct];
}

// --- Chance -------------------------------------------------------------------------------------------------------------

static uint64_t chance;

void ckpt_play_seed(uint64_t seed)
{
	chance = seed;
}

uint32_t ckpt_play_below(uint32_t limit)
{
	uint64_t z = chance += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) % limit);
}

// --- The proxy ----------------------------------------------------------------------------------------------------------

static int connect_to_proxy(void)
{
	const char *port = strrchr(setting("CKPT_TEST_S3_ENDPOINT"), ':');
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(port + 1)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void command(const char *json)
{
	CLEANUP_FD int fd = connect_to_proxy();
	char text[512];
	int len = snprintf(
		text, sizeof(text),
		"POST /-/fault-proxy HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(json), json);

	ck_assert_int_eq(write(fd, text, (size_t)len), len);
	memset(text, 0, sizeof(text));
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	ck_assert_msg(strstr(text, " 200 ") != NULL, "%s: %s", json, text);
}

void ckpt_play_calm(void)
{
	command("{\"do\": \"play\", \"schedule\": {}}");
	command("{\"do\": \"settle\"}");
}

// Every backend and every stack of layers that the contract suites run against, and what they ask of a store.
//
// A test is added with tcase_add_loop_test(.., 0, stand_count()) and begins with STAND(s): a new, empty store, closed at the
// end of the scope. The assertions end the test.
// Stacks on S3 need a server, as tests/servers/with-s3 starts one: CKPT_TEST_S3_ENDPOINT is its URL, CKPT_TEST_S3_BUCKET a bucket of it
// ("ckptfs" without), and the keys are AWS_ACCESS_KEY_ID and so on. Without the first they are left out, and stand_count() says so. Each stand is a prefix of its own in the
// bucket, and what is left there is not removed: the server is thrown away.
#pragma once

#include "tests/support/suite.h"

#include "backends/backends.h"
#include "core/base/util.h"

struct stand {
	struct ckpt_objects *b;
	bool is_s3;              // a remove does not say whether there was something, and times are in seconds
	struct ckpt_fault fault; // of the stacks with that layer; does not fire
	int trace_fd;
};

int stand_count(void); // of stacks
void stand_open(struct stand *s, int stack);
void stand_close(struct stand *s);

#define STAND(s)                                                                                                       \
	CLEANUP(stand_close) struct stand s;                                                                           \
	stand_open(&s, _i)

int put_text(struct stand *s, const char *key, const char *text);
void assert_text(struct stand *s, const char *key, const char *text);
void assert_missing(struct stand *s, const char *key);

#define KEYS_MAX 12000

// What a list gave. For objects of one byte.
struct keys {
	char *keys[KEYS_MAX];
	size_t count;
	size_t stop_after; // after so many fn returns 77; 0: never
};

void keys_done(struct keys *k);
int keys_add(void *arg, const char *key, const struct ckpt_object *object);
// expected: the keys, with a space between.
void assert_list(struct stand *s, const char *prefix, const char *after, const char *expected);

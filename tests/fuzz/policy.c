// Hostile policies: what is taken has one canonical form, which is taken again as it is, and decides and keeps without a crash;
// what is refused says why, in one line. What a store's decisions may hold is tried with the same bytes. On a thread with as
// little stack as those have that serve a mount.

#include "tests/fuzz/replay.h"

#include "core/base/util.h"
#include "core/limits.h"
#include "core/policy/decided.h"
#include "core/policy/preserve.h"

#include <pthread.h>

#define STACK_BYTES (256 << 10) // as in fs/call.c

struct text {
	const uint8_t *data;
	size_t len;
};

// No program is run: what an input names may be there.
static void ask(const struct ckpt_policy *p)
{
	static const struct ckpt_policy_step steps[] = {
		{.number = 0, .committed_ns = INT64_MIN},
		{.number = INT64_MAX, .committed_ns = 1, .temporary = true},
		{.number = 7, .committed_ns = INT64_MAX, .pinned = true},
		{.number = 1000, .committed_ns = 2},
	};
	struct ckpt_verdict verdicts[ARRAY_LEN(steps)];

	for (size_t count = 0; count <= ARRAY_LEN(steps); count++)
		for (unsigned i = 0; i < 3; i++) {
			const struct ckpt_decide q = {.step = i == 0   ? 0
							      : i == 1 ? 1001
								       : INT64_MAX,
						      .steps = steps,
						      .count = count,
						      .now_ns = INT64_MAX,
						      .preempted_at = 1001};
			struct ckpt_decision d;
			CLEANUP_FREE char *why = NULL;

			fuzz_assert(!ckpt_decide(p, &q, &d, &why));
			fuzz_assert(d.save ? d.by != NULL : !d.permanent);
			fuzz_assert(!ckpt_preserve(p, steps, count, INT64_MAX, verdicts));
			fuzz_assert(!count || verdicts[count - 1].keep);
		}
}

static void try_decided(const struct text *in)
{
	struct ckpt_decided *d = malloc(2 * sizeof(*d));

	if (!d)
		return;
	fuzz_assert(!ckpt_decided_parse((const char *)in->data, in->len, 1000, &d[0]));
	fuzz_assert(d[0].count <= CKPT_DECIDED_MAX && ckpt_decided_clock(&d[0], "", 1000) <= 1000);
	CLEANUP_FREE char *text = ckpt_decided_text(&d[0]), *again = NULL;
	fuzz_assert(text && !ckpt_decided_parse(text, strlen(text), 1000, &d[1]));
	again = ckpt_decided_text(&d[1]);
	fuzz_assert(again && !strcmp(text, again));
	free(d);
}

static void *try_policy(void *arg)
{
	const struct text *in = arg;
	CLEANUP_FREE char *why = NULL, *text = NULL, *again = NULL;
	struct ckpt_policy p, same;
	int rc = ckpt_policy_parse((const char *)in->data, in->len, &p, &why);

	fuzz_assert(rc == 0 || rc == -EINVAL || rc == -EFBIG);
	fuzz_assert(rc ? why && *why : !why);
	for (const char *at = why; at && *at; at++)
		fuzz_assert((unsigned char)*at >= 0x20 && (unsigned char)*at < 0x7f);
	try_decided(in);
	if (rc)
		return NULL;
	text = ckpt_policy_text(&p);
	fuzz_assert(text && strlen(text) <= CKPT_POLICY_BYTES_MAX);
	fuzz_assert(!ckpt_policy_parse(text, strlen(text), &same, &why));
	again = ckpt_policy_text(&same);
	fuzz_assert(again && !strcmp(text, again));
	if (!ckpt_policy_has(&p.save, CKPT_POLICY_EXEC))
		ask(&p);
	ckpt_policy_done(&p);
	ckpt_policy_done(&same);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct text in = {data, len};
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (!pthread_create(&thread, &attr, try_policy, &in))
		pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	return 0;
}

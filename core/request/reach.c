#include "core/request/reach.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/request/hold.h"

#include <stdio.h>

#define AGAIN_NS INT64_C(20000000)

int ckpt_reach_ask(const char *directory, json_t *request, int seconds, json_t **ret_reply, char **ret_why)
{
	int rc = ckpt_ask_json(directory, request, seconds, ret_reply, ret_why);

	if (rc && rc != -ENOTCONN && !*ret_why &&
	    asprintf(ret_why, "the process that has it mounted does not answer: %s", strerror(-rc)) < 0)
		*ret_why = NULL;
	return rc;
}

// -EBUSY: another process has it, or it is mounted by now.
static int do_at_rest(const char *directory, struct ckpt_reach *r, char **ret_why)
{
	struct ckpt_store *s;
	int rc = ckpt_hold(directory, &s);

	r->read_only = rc == -EROFS;
	if (rc)
		return rc;
	rc = r->at_rest(s, r->arg, ret_why);
	if (rc && !*ret_why)
		*ret_why = strdup(strerror(-rc));
	ckpt_let_go(s);
	return rc;
}

bool ckpt_reach_is_end(int error)
{
	return error == -EPIPE || error == -EPROTO || error == -ECONNRESET || error == -EINTR;
}

int ckpt_reach(const char *directory, struct ckpt_reach *r, char **ret_why)
{
	int64_t end_ns = ckpt_sys.mono_ns() + r->patience_ns;
	bool again;
	int rc;

	*ret_why = NULL;
	for (;; ckpt_sys.sleep_ns(AGAIN_NS)) {
		rc = r->ask_mount(directory, r->arg, ret_why);
		again = ckpt_reach_is_end(rc);
		if (rc == -ENOTCONN) {
			rc = do_at_rest(directory, r, ret_why);
			again = rc == -EBUSY || rc == -ESTALE;
		}
		if (!again || ckpt_sys.mono_ns() >= end_ns)
			return rc;
		free(TAKE_PTR(*ret_why));
	}
}

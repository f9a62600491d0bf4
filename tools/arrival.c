#include "tools/arrival.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/arrival.h"
#include "core/step/ask.h"
#include "core/step/follow.h"
#include "core/step/holder.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/push.h"

#include <stdio.h>

#define POLL_NS INT64_C(100000000)

enum { NOT_YET = -1 }; // beside exit statuses

const json_t *ckpt_arrival_failure(const json_t *status, const char *session)
{
	const json_t *one;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(status, "uploading"), "failed"), i, one)
	{
		const char *failed = json_string_value(json_object_get(one, "session"));

		if (failed && !strcmp(failed, session))
			return one;
	}
	return NULL;
}

int ckpt_arrival_fail(const json_t *failure)
{
	return ckpt_fail(json_string_value(json_object_get(failure, "step")),
			 "`ckptfs verify` says which files are damaged; save the step again, or delete it",
			 "it cannot be uploaded: its files on this node cannot be read (%s)",
			 json_string_value(json_object_get(failure, "error")));
}

int ckpt_arrival_fail_dropped(const char *word)
{
	return ckpt_fail(word, "it is pushed once it is changed here again; `ckptfs remote show` lists such steps",
			 "it was taken out of the queue, and is on this machine alone");
}

// A step that the mount cannot push never arrives.
static int look_for_failure(const char *store, const char *session)
{
	CLEANUP_FREE char *reply = NULL;
	const json_t *failure;
	json_t *status;
	int rc = NOT_YET;

	if (ckpt_ask(store, "{\"verb\":\"status\"}", CKPT_SOCKET_TIMEOUT_S, &reply))
		return NOT_YET; // it is asked again
	status = json_loads(reply, 0, NULL);
	failure = ckpt_arrival_failure(status, session);
	if (failure)
		rc = ckpt_arrival_fail(failure);
	json_decref(status);
	return rc;
}

// Its mount pushes it; without one it was pushed here before.
static int look(struct ckpt_listing *l, const char *store, const char *word, struct ckpt_arrival *a)
{
	int rc = ckpt_follow_refresh(l->store);

	if (rc)
		return ckpt_fail_errno(store, NULL, rc);
	rc = ckpt_arrival_look(l->store, a);
	if (!rc || rc == -ECANCELED)
		return rc ? ckpt_arrival_fail_dropped(word) : 0;
	return ckpt_store_holder(store, NULL)
		       ? ckpt_fail(word, "`ckptfs wait --remote` tries again",
				   "not in the object store yet, and nobody has the store mounted any more")
		       : look_for_failure(store, a->session);
}

static void tell_name(const char *word, const struct ckpt_arrival *a)
{
	const char *leaf = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;

	if (*a->name && strcmp(a->name, leaf) && strstr(a->name, CKPT_NAME_CONFLICT))
		ckpt_note("%s is called %s: another node has saved a step of this name first", word, a->name);
}

int ckpt_arrival_await(const char *store, const char *word, const char *session, const json_t *reply)
{
	CLEANUP_FREE char *label = ckpt_text("pushing %s", word);
	struct ckpt_arrival a = {0};
	struct ckpt_listing l;
	int rc;

	if (reply ? !json_object_get(reply, "durability") : !ckpt_listing_written())
		return 0;
	rc = reply ? 0 : ckpt_push(store, INT64_MAX);
	if (!rc)
		rc = ckpt_listing_open(store, CKPT_STORE_READ, &l);
	if (rc)
		return rc;
	snprintf(a.session, sizeof(a.session), "%s", session);
	ckpt_progress_start(label, 0, 0);
	while ((rc = look(&l, store, word, &a)) == NOT_YET) {
		ckpt_sys.sleep_ns(POLL_NS);
		ckpt_progress_update(0);
	}
	ckpt_progress_stop();
	if (!rc)
		tell_name(word, &a);
	ckpt_listing_close(&l);
	return rc;
}

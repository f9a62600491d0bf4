#include "tools/remote_change.h"

#include "core/base/util.h"
#include "core/remote/detach.h"
#include "core/remote/place.h"
#include "core/remote/remote.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/push.h"
#include "tools/remote_place.h"
#include "tools/stop.h"

#include <stdio.h>

// --- add ----------------------------------------------------------------------------------------------------------------

static int fail_add(const char *path, const char *url, int rc, const char *why)
{
	CLEANUP_FREE char *copy = NULL;

	switch (rc) {
	case -EALREADY:
		copy = ckpt_text("`ckptfs remote show %s` says which", path);
		return ckpt_fail(path, copy, "has an object store already");
	case -EEXIST:
		copy = ckpt_text("take a prefix of its own; or mount the URL: what is there is shown then, and `ckptfs "
				 "copy %s %s` adds to it",
				 path, url);
		return ckpt_fail(url, copy, "has steps already");
	case -EREMCHG:
		copy = ckpt_text("give this store a prefix of its own, or copy its steps: `ckptfs copy %s %s`", path,
				 url);
		return ckpt_fail(url, copy, "is another store");
	case -ENOTEMPTY:
		return ckpt_fail(url, "a store starts below a prefix of its own", "has objects and is not a store");
	default:
		return ckpt_remote_fail(url, rc, why);
	}
}

static int add(const char *path, const struct ckpt_remote_at *at)
{
	char why[CKPT_OBJECTS_WHY_MAX];
	struct ckpt_listing l;
	int rc = ckpt_listing_open(path, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	rc = ckpt_remote_add(at, l.store, why);
	ckpt_listing_close(&l);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	return rc ? fail_add(path, at->url, rc, why) : 0;
}

int ckpt_remote_change_add(const char *path, const char *url)
{
	struct ckpt_remote_at at = {.url = url};
	int rc = ckpt_remote_at_options(&at);

	if (!rc && at.work_dir)
		rc = ckpt_usage("work_dir", "leave it out", "is the directory of the store itself");
	if (!rc)
		rc = add(path, &at);
	if (rc)
		return rc;
	if (!ckpt_output.json && !ckpt_output.quiet)
		printf("%s: %s is behind it from now on\n", path, url);
	fflush(stdout);
	return ckpt_push(path, INT64_MAX);
}

// --- remove -------------------------------------------------------------------------------------------------------------

struct removing {
	struct ckpt_listing l;
	struct ckpt_fetch_round fetch;
	int status;
};

static bool go_on(void *arg, uint64_t bytes __attribute__((unused)))
{
	const struct removing *r = arg;

	ckpt_progress_update(r->fetch.bytes);
	return !ckpt_stopped;
}

static const char *why_text(int error)
{
	return error == -ENOSPC ? "there is no room for it here" : strerror(-error);
}

// An older version that the object store has lost, too, keeps nobody from going.
static void lacks(void *arg, struct ckpt_step *step, const char *path, bool current, int error)
{
	struct removing *r = arg;
	CLEANUP_FREE char *name = step ? ckpt_listing_name(&r->l, step->folder_id, step->name) : NULL;
	CLEANUP_FREE char *hint = NULL;

	ckpt_progress_stop();
	if (!step) {
		r->status = ckpt_fail(path, "`ckptfs remote sync` fetches it; free some room, or look at the network",
				      "what another node has written is in the object store only");
	} else if (!current && (error == -ENOENT || error == -EBADMSG)) {
		ckpt_note("%s: an older version cannot be read any more, here and there", name);
	} else if (error == -ENOENT || error == -EBADMSG) {
		hint = ckpt_text("`ckptfs verify %s %s` says more; `ckptfs rm --now` removes it", r->l.store->path,
				 name);
		r->status = ckpt_fail(name, hint, "its files cannot be read, here and there");
	} else {
		hint = ckpt_text("`ckptfs warm %s %s` fetches its files; then try again", r->l.store->path, name);
		r->status = ckpt_fail(name, hint, "%s is in the object store only: %s",
				      current ? "something of it" : "an older version", why_text(error));
	}
}

static void tell_unread(struct removing *r)
{
	struct ckpt_remote_queue q;

	ckpt_remote_queue(*ckpt_remote_of(r->l.store), &q);
	if (q.error)
		ckpt_note("the object store does not answer: what other nodes have done since then is not here");
}

static int fetch(struct removing *r)
{
	int rc;

	r->fetch.go_on = go_on;
	r->fetch.arg = r;
	tell_unread(r);
	ckpt_progress_start("fetching from the object store", 0, 1);
	ckpt_stop_begin();
	rc = ckpt_detach_fetch(r->l.store, &r->fetch, lacks, r);
	ckpt_progress_stop();
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc && rc != -EINTR)
		r->status = ckpt_fail_errno(r->l.store->path, NULL, rc);
	return ckpt_stop_end(rc == -EINTR ? 1 : r->status);
}

// Opened once more, the store ends what its log says of the remote.
static int end(const char *path)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(path, CKPT_STORE_WRITE, &l);

	if (!rc)
		ckpt_listing_close(&l);
	return rc;
}

int ckpt_remote_change_remove(const char *path)
{
	struct removing r = {0};
	CLEANUP_FREE char *url = NULL;
	int rc = ckpt_listing_open(path, CKPT_STORE_WRITE, &r.l);

	if (rc)
		return rc;
	url = ckpt_text("%s", ckpt_remote_url(*ckpt_remote_of(r.l.store)));
	rc = fetch(&r);
	if (!rc) {
		// While the store is locked: a mount that waits for it must not use the remote again.
		rc = ckpt_remote_forget(r.l.store);
		if (rc)
			rc = ckpt_fail_errno(path, NULL, rc);
	}
	ckpt_listing_close(&r.l);
	if (!rc)
		rc = end(path);
	if (!rc && !ckpt_output.json && !ckpt_output.quiet)
		printf("%s: a local store, without %s, which is as it was\n", path, url);
	return rc;
}

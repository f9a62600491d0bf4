// libckptfs: metadata for a committed step. The mount of its store is asked, or else the store is opened for writing.
#include "core/ckptfs.h"

#include "core/ckptfs_look.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/request/reach.h"
#include "core/request/resolve.h"
#include "core/save/version.h"
#include "core/step/store.h"

#define PATIENCE_NS (INT64_C(60) * 1000000000) // with others who write the store

struct note {
	char session[sizeof(((struct ckpt_step *)NULL)->session)];
	const char *metadata;
};

static int ask_mount(const char *directory, void *arg, char **ret_why)
{
	const struct note *n = arg;
	json_t *reply;
	int rc;

	ckpt_json_begin();
	rc = ckpt_reach_ask(
		directory, json_pack("{s:s, s:s, s:s}", "verb", "note", "session", n->session, "metadata", n->metadata),
		CKPT_SOCKET_TIMEOUT_S, &reply, ret_why);
	if (!rc)
		json_decref(reply);
	return rc;
}

// -ENOENT, as -ESTALE would be asked again.
static int note_at_rest(struct ckpt_store *s, void *arg, char **ret_why __attribute__((unused)))
{
	const struct note *n = arg;
	struct ckpt_step *step = ckpt_step_of_session(s, n->session);
	int rc = step ? ckpt_version_note(step, n->metadata) : -ENOENT;

	ckpt_step_unref(step);
	return rc == -ESTALE ? -ENOENT : rc;
}

static int session_of(struct ckpt *ckpt, const char *name, char *ret_session)
{
	struct ckpt_step *step;
	struct ckpt_look l;
	const char *rest;
	int rc = ckpt_look_begin(ckpt, &l);

	if (rc)
		return rc;
	rc = ckpt_view_find(&l.view, name, &step, &rest);
	if (!rc) {
		rc = *rest ? -ENOENT : 0;
		strcpy(ret_session, step->session);
		ckpt_step_unref(step);
	}
	ckpt_look_end(&l);
	return rc;
}

int ckpt_step_note(struct ckpt *ckpt, const char *name, const char *metadata)
{
	CLEANUP_FREE char *canonical = NULL, *refused = NULL, *why = NULL;
	struct note n = {0};
	struct ckpt_reach reach = {ask_mount, note_at_rest, &n, PATIENCE_NS, false};
	int rc = ckpt_metadata_parse(metadata, strlen(metadata), &canonical, &refused);

	if (!rc && !canonical)
		rc = -EINVAL;
	if (!rc)
		rc = session_of(ckpt, name, n.session);
	n.metadata = canonical;
	if (!rc)
		rc = ckpt_reach(ckpt->directory, &reach, &why);
	// It was there: the mount removes it or has it open for changes.
	return rc == -ESTALE ? -EBUSY : rc;
}

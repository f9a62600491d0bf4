#include "core/remote/arrival.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/remote.h"
#include "core/state/plain.h"
#include "core/state/shared.h"

#include <stdio.h>

#define LOOK_NS INT64_C(20000000)

// All that leads to it is in the remote's log.
static bool has_folders(const struct ckpt_state *state, const char *id)
{
	while (*id) {
		const struct ckpt_plain *folder = ckpt_state_plain_folder(state, id);

		if (!folder)
			return false;
		id = folder->folder_id;
	}
	return true;
}

static bool is_there(const struct ckpt_state *state, const struct ckpt_state_step *step)
{
	return ckpt_state_is_attached(state) && step && !step->since && has_folders(state, step->is.folder_id);
}

static int look_for(void *session, const struct ckpt_state *state)
{
	return is_there(state, ckpt_state_step(state, session));
}

bool ckpt_remote_has(struct ckpt_store *s, const char *session)
{
	return ckpt_journal_look(s->journal, look_for, (void *)session);
}

// The step into which an edit that lost its name to another node's was put (core/save/reunite.h).
static const struct ckpt_state_step *find_reunited(const struct ckpt_state *state, const struct ckpt_state_step *step)
{
	const char *conflict = strstr(step->is.name, CKPT_NAME_CONFLICT);
	char name[CKPT_NAME_MAX + 1];

	if (!conflict)
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)(conflict - step->is.name), step->is.name);
	return ckpt_state_listed(state, step->is.folder_id, name);
}

// In the trash, where another node's edit has its place, with changes of this node that are in no log yet: they are put into that edit.
static bool waits_for_reunion(const struct ckpt_state_step *step)
{
	return step->since && step->shared && ckpt_state_has_changed_files(step);
}

// An edit is a step of its own, which has the name from then on.
static int look(void *arg, const struct ckpt_state *state)
{
	struct ckpt_arrival *a = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, a->session);

	if (step && ckpt_state_was_replaced(step)) {
		if (waits_for_reunion(step))
			return -EAGAIN;
		step = ckpt_state_listed(state, step->is.folder_id, step->is.name);
	} else if (step && step->deleted_by && !step->shared) {
		step = find_reunited(state, step);
	}
	if (!step || step->deleted_by || step->gone)
		return 0;
	memcpy(a->session, step->id, sizeof(a->session));
	memcpy(a->name, step->is.name, sizeof(a->name));
	return is_there(state, step) ? 0 : step->since && ckpt_state_is_dropped(step) ? -ECANCELED : -EAGAIN;
}

int ckpt_arrival_look(struct ckpt_store *s, struct ckpt_arrival *a)
{
	return ckpt_journal_look(s->journal, look, a);
}

// Why it cannot be pushed.
static int failure_of(struct ckpt_store *s, const char *session)
{
	CLEANUP(ckpt_failure_list_done) struct ckpt_failure_list list;
	int rc = ckpt_remote_failures(*ckpt_remote_of(s), &list);
	const struct ckpt_failure *failure = rc ? NULL : ckpt_failure_of(&list, session);

	return failure ? failure->error : 0;
}

int ckpt_arrival_wait(struct ckpt_store *s, struct ckpt_arrival *a, const struct ckpt_arrival_patience *patience)
{
	int64_t began_ns = ckpt_sys.mono_ns();
	int rc;

	while ((rc = ckpt_arrival_look(s, a)) == -EAGAIN) {
		int64_t since_ns = MAX(began_ns, ckpt_remote_progressed_ns(*ckpt_remote_of(s)));

		if (patience->abandoned && patience->abandoned(patience->arg))
			return -EINTR;
		if (ckpt_sys.mono_ns() - since_ns >= patience->timeout_ns)
			return -ETIMEDOUT;
		rc = failure_of(s, a->session);
		if (rc)
			return rc;
		ckpt_sys.sleep_ns(LOOK_NS);
	}
	return rc;
}

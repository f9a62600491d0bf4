#include "core/remote/failures.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/state/shared.h"

#define AGAIN_FIRST_NS (INT64_C(60) * 1000000000)
#define AGAIN_MOST_NS (INT64_C(3600) * 1000000000)
#define TELL_NS AGAIN_MOST_NS

void ckpt_failures_init(struct ckpt_failures *f)
{
	*f = (struct ckpt_failures){0};
	ckpt_lock_init(&f->lock, CKPT_LOCK_LEAF);
}

void ckpt_failures_done(struct ckpt_failures *f)
{
	free(f->list);
	ckpt_lock_done(&f->lock);
}

static struct ckpt_failure *find_locked(struct ckpt_failures *f, const char *session)
{
	for (size_t i = 0; i < f->count; i++)
		if (!strcmp(f->list[i].session, session))
			return &f->list[i];
	return NULL;
}

int ckpt_failures_add(struct ckpt_failures *f, const struct ckpt_failure *failure)
{
	int64_t now_ns = ckpt_sys.mono_ns();
	struct ckpt_failure *to;
	LOCK_SCOPE(&f->lock);
	bool tells;

	to = find_locked(f, failure->session);
	if (!to && ckpt_grow((void **)&f->list, &f->cap, f->count + 1, sizeof(*f->list)))
		return -ENOMEM;
	if (!to) {
		to = &f->list[f->count++];
		*to = *failure;
		to->until = UINT64_MAX;
		to->wait_ns = AGAIN_FIRST_NS / 2;
		to->told_ns = now_ns - TELL_NS;
	}
	tells = to->error != failure->error || now_ns - to->told_ns >= TELL_NS;
	if (tells)
		to->told_ns = now_ns;
	to->error = failure->error;
	to->number = failure->number;
	to->wait_ns = MIN(to->wait_ns * 2, AGAIN_MOST_NS);
	to->again_ns = now_ns + to->wait_ns;
	return tells;
}

// Those that are still so stay in the list.
static int look_for_changes(void *arg, const struct ckpt_state *state)
{
	struct ckpt_failure_list *list = arg;
	size_t kept = 0;

	for (size_t i = 0; i < list->count; i++) {
		const struct ckpt_state_step *step = ckpt_state_step(state, list->failures[i].session);

		if (step && step->since && step->latest == list->failures[i].number && !ckpt_state_is_dropped(step))
			list->failures[kept++] = list->failures[i];
	}
	list->count = kept;
	return 0;
}

void ckpt_failures_follow(struct ckpt_failures *f, struct ckpt_journal *journal)
{
	CLEANUP(ckpt_failure_list_done) struct ckpt_failure_list list;
	size_t kept = 0;

	if (ckpt_failures_list(f, &list) || !list.count)
		return; // without memory they are passed over once more
	(void)ckpt_journal_look(journal, look_for_changes, &list);
	LOCK_SCOPE(&f->lock);
	for (size_t i = 0; i < f->count; i++)
		if (ckpt_failure_of(&list, f->list[i].session))
			f->list[kept++] = f->list[i];
	f->count = kept;
}

void ckpt_failures_pushed(struct ckpt_failures *f, uint64_t place)
{
	LOCK_SCOPE(&f->lock);
	for (size_t i = 0; i < f->count; i++)
		if (f->list[i].place < place)
			f->list[i].until = MIN(f->list[i].until, place);
}

bool ckpt_failures_hold(struct ckpt_failures *f, uint64_t number)
{
	LOCK_SCOPE(&f->lock);
	for (size_t i = 0; i < f->count; i++)
		if (f->list[i].place <= number && number < f->list[i].until)
			return true;
	return false;
}

// --- A copy ---------------------------------------------------------------------------------------------------------------

int ckpt_failures_list(struct ckpt_failures *f, struct ckpt_failure_list *ret_list)
{
	LOCK_SCOPE(&f->lock);

	*ret_list = (struct ckpt_failure_list){.failures = ckpt_calloc(f->count + 1, sizeof(*f->list))};
	if (!ret_list->failures)
		return -ENOMEM;
	if (f->count)
		memcpy(ret_list->failures, f->list, f->count * sizeof(*f->list));
	ret_list->count = f->count;
	return 0;
}

void ckpt_failure_list_done(struct ckpt_failure_list *list)
{
	free(list->failures);
}

const struct ckpt_failure *ckpt_failure_of(const struct ckpt_failure_list *list, const char *session)
{
	for (size_t i = 0; i < list->count; i++)
		if (!strcmp(list->failures[i].session, session))
			return &list->failures[i];
	return NULL;
}

const struct ckpt_failure *ckpt_failure_holding(const struct ckpt_failure_list *list, uint64_t number)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->failures[i].place <= number && number < list->failures[i].until)
			return &list->failures[i];
	return NULL;
}

bool ckpt_failure_waits(const struct ckpt_failure_list *list, const char *session)
{
	const struct ckpt_failure *failure = ckpt_failure_of(list, session);

	return failure && ckpt_sys.mono_ns() < failure->again_ns;
}

#include "core/step/follow.h"

#include "core/base/util.h"
#include "core/step/store.h"
#include "core/step/successor.h"

struct said_list {
	struct ckpt_said *at; // by session
	size_t count;
};

static void list_done(struct said_list *l)
{
	free(l->at);
}

static int by_session(const void *a, const void *b)
{
	return strcmp(((const struct ckpt_said *)a)->is.session, ((const struct ckpt_said *)b)->is.session);
}

static const struct ckpt_said *find_said(const struct said_list *l, const struct ckpt_step *step)
{
	struct ckpt_said key;

	memcpy(key.is.session, step->session, sizeof(key.is.session));
	return l->count ? bsearch(&key, l->at, l->count, sizeof(key), by_session) : NULL;
}

// Names that were exchanged, or given on, are free only when all who had them have let go: so there is a second round, for those that
// found none in the first. A step has its version once, as it has memory for one more, and no more.
static void follow_known(struct ckpt_store *s, const struct said_list *l, struct ckpt_step *const *steps, size_t count,
			 bool *known)
{
	LOCK_SCOPE(&s->lock);

	for (int round = 0; round < 2; round++)
		for (size_t i = 0; i < count; i++) {
			const struct ckpt_said *said = find_said(l, steps[i]);
			bool *done = said ? &known[said - l->at] : NULL;

			if (!said) {
				ckpt_step_forget_locked(steps[i]);
				continue;
			}
			if (*done || (*done = ckpt_step_follow_locked(steps[i], said)))
				continue;
			*done = round;
			if (round)
				s->behind = true; // a save of ours has its name for now
			else
				ckpt_step_erase_locked(steps[i]);
		}
}

// A session that was taken for a left one and was another mount's, in the middle of its save: it is a step now.
static int drop_what_was_committed(struct ckpt_store *s, const struct said_list *l)
{
	struct ckpt_step **left;
	size_t count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &left, &count);

	if (rc)
		return rc;
	ckpt_lock_take(&s->lock);
	for (size_t i = 0; i < count; i++)
		if (find_said(l, left[i]))
			ckpt_step_forget_locked(left[i]);
	ckpt_lock_drop(&s->lock);
	ckpt_step_list_free(left, count);
	return 0;
}

static bool is_of_the_log(struct ckpt_step *step)
{
	return ckpt_step_has_manifest(ckpt_step_state(step));
}

// The table is looked at before the log: so a commit that ends just now is not taken for a step that is gone.
static int list_known(struct ckpt_store *s, struct ckpt_step ***ret_steps, size_t *ret_count)
{
	size_t count;
	int rc = ckpt_step_list_stored(s, ret_steps, &count);

	if (rc)
		return rc;
	*ret_count = 0;
	for (size_t i = 0; i < count; i++)
		if (is_of_the_log((*ret_steps)[i]))
			(*ret_steps)[(*ret_count)++] = (*ret_steps)[i];
		else
			ckpt_step_unref((*ret_steps)[i]);
	return 0;
}

// A name that a save of ours has is another's by now, as the log says: it is entered once that save has got another name.
static int enter(struct ckpt_store *s, const struct ckpt_said *said)
{
	int rc = ckpt_step_enter(s, said);

	if (rc != -EEXIST || !s->writable)
		return rc;
	s->behind = true;
	return 0;
}

static int follow(struct ckpt_store *s, struct ckpt_step *const *steps, size_t count)
{
	CLEANUP(list_done) struct said_list l = {0};
	CLEANUP_FREE bool *known = NULL;
	int rc = ckpt_journal_list(s->journal, &l.at, &l.count);

	if (!rc)
		known = ckpt_calloc(l.count + 1, sizeof(*known));
	if (rc || !known)
		return rc ? rc : -ENOMEM;
	s->behind = false;
	follow_known(s, &l, steps, count, known);
	for (size_t i = 0; i < l.count && !rc; i++)
		if (!known[i] && (!s->writable || l.at[i].pulled)) // a save of our own is entered by its commit
			rc = enter(s, &l.at[i]);
	if (!rc && s->writable && (rc = ckpt_successor_follow(s)) > 0)
		s->behind = true;
	return rc < 0 || s->writable ? MIN(rc, 0) : drop_what_was_committed(s, &l);
}

static int follow_all(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = list_known(s, &steps, &count);

	if (rc)
		return rc;
	rc = follow(s, steps, count);
	s->behind |= rc < 0;
	ckpt_step_list_free(steps, count);
	return rc;
}

int ckpt_follow(struct ckpt_store *s)
{
	int rc = s->calls.before_follow ? s->calls.before_follow(s->calls.follow_arg) : 0;

	if (rc)
		return rc;
	rc = follow_all(s);
	if (s->calls.after_follow)
		s->calls.after_follow(s->calls.follow_arg);
	return rc;
}

static int follow_news(struct ckpt_store *s, int news)
{
	s->behind |= news > 0;
	if (news >= 0 && s->behind)
		news = ckpt_follow(s);
	return news;
}

int ckpt_follow_settle(struct ckpt_store *s)
{
	return follow_news(s, ckpt_journal_settle(s->journal));
}

bool ckpt_follow_is_behind(struct ckpt_step *step)
{
	struct ckpt_said said;

	if (ckpt_step_said(step->store, step->session, &said))
		return false;
	LOCK_SCOPE(&step->lock);

	return said.last > MAX(step->version->is.version, step->deleted_by);
}

int ckpt_follow_step(struct ckpt_step *step)
{
	return ckpt_follow_is_behind(step) ? ckpt_follow(step->store) : 0;
}

int ckpt_follow_refresh(struct ckpt_store *s)
{
	if (s->writable)
		return 0;
	LOCK_SCOPE(&s->refresh_lock); // over the look: who comes second finds what the first has seen
	return follow_news(s, ckpt_journal_refresh(s->journal));
}

int ckpt_follow_value(struct ckpt_store *s, const char *key, char **ret_value, uint64_t *ret_seq)
{
	(void)ckpt_follow_refresh(s); // what cannot be read is not there yet
	return ckpt_journal_get(s->journal, key, ret_value, ret_seq);
}

bool ckpt_follow_newer(struct ckpt_step *step)
{
	uint32_t was, is;

	if (step->store->writable) // nobody else has made any
		return false;
	ckpt_lock_take(&step->lock);
	was = step->version->is.version;
	ckpt_lock_drop(&step->lock);
	if (ckpt_follow_refresh(step->store))
		return false;
	ckpt_lock_take(&step->lock);
	is = step->version->is.version;
	ckpt_lock_drop(&step->lock);
	return is != was;
}

#include "core/store/load.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/stage/draft.h"
#include "core/stage/stage.h"
#include "core/store/store.h"
#include "core/tier/cool.h"
#include "core/tier/dedupe.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

// --- Steps ------------------------------------------------------------------------------------------------------------

struct said_list {
	struct ckpt_said *at; // by session
	size_t count;
};

static void list_done(struct said_list *l)
{
	free(l->at);
}

// Only the store knows when a step was warmed before this process began.
static void find_stored(struct ckpt_store *s, struct ckpt_summary *sum)
{
	if (!strcmp(sum->event, CKPT_EVENT_WARM))
		sum->stored_ns = ckpt_journal_stored_ns(s->journal, sum->session, sum->version);
}

static void tell_salvaged(void *arg, const char *name)
{
	struct ckpt_store *s = arg;

	ckpt_errlog_add(s->errlog, name, 0, "look at it: `ckptfs info`",
			"the log had lost it, or its last version: it is as the copy of its record says");
}

static void tell_damaged(struct ckpt_store *s, uint64_t damaged)
{
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(damaged, key);
	ckpt_errlog_add(s->errlog, key, -EBADMSG, "run `ckptfs doctor --repair` on the store",
			"an entry of the log is damaged: what it said is lost%s",
			s->writable ? "" : ", and the store is shown without it");
}

static int repair(struct ckpt_store *s)
{
	struct ckpt_record_copies copies = ckpt_store_copies(s);
	int rc = ckpt_record_copies_salvage(&copies, tell_salvaged, s);

	return rc ? rc : ckpt_journal_snapshot(s->journal, true);
}

static int settle_copies(struct ckpt_store *s)
{
	struct ckpt_record_copies copies = ckpt_store_copies(s);
	unsigned lost;
	int rc = ckpt_record_copies_settle(&copies, &lost);

	if (lost)
		ckpt_errlog_add(s->errlog, "log", -EUCLEAN, "run `ckptfs doctor --repair` on the store",
				"the log has lost entries: the records of %u steps are there that it does not know",
				lost);
	return lost ? -EUCLEAN : rc;
}

static int open_journal(struct ckpt_store *s, bool repairs)
{
	enum ckpt_journal_mode mode = repairs       ? CKPT_JOURNAL_REPAIR
				      : s->writable ? CKPT_JOURNAL_WRITE
						    : CKPT_JOURNAL_READ;
	uint64_t damaged;
	int rc = ckpt_journal_open(s->objects, s->id, mode, &s->journal, &damaged);

	if (damaged)
		tell_damaged(s, damaged);
	if (!rc && repairs)
		rc = repair(s);
	if (!rc && s->writable)
		rc = settle_copies(s);
	return damaged && rc == -EBADMSG ? -EUCLEAN : rc;
}

int ckpt_load_steps(struct ckpt_store *s, bool repairs)
{
	CLEANUP(list_done) struct said_list l = {0};
	int rc = open_journal(s, repairs);

	if (!rc)
		rc = ckpt_journal_list(s->journal, &l.at, &l.count);
	for (size_t i = 0; i < l.count && !rc; i++) {
		find_stored(s, &l.at[i].is);
		rc = ckpt_step_enter(s, &l.at[i]);
	}
	return rc;
}

// --- What was appended since ------------------------------------------------------------------------------------------------

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

// Names that were exchanged, or given on, are free only when all who had them have let go: so there is a second round.
static void follow_known(struct ckpt_store *s, const struct said_list *l, struct ckpt_step *const *steps, size_t count,
			 bool *known)
{
	LOCK_SCOPE(&s->lock);

	for (int round = 0; round < 2; round++)
		for (size_t i = 0; i < count; i++) {
			const struct ckpt_said *said = find_said(l, steps[i]);

			if (!said) {
				ckpt_step_forget_locked(steps[i]);
				continue;
			}
			known[said - l->at] = true;
			if (!ckpt_step_follow_locked(steps[i], said) && !round)
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
	for (size_t i = 0; i < count; i++)
		if (find_said(l, left[i]))
			ckpt_stage_vanish(left[i]);
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

static int follow(struct ckpt_store *s, struct ckpt_step *const *steps, size_t count)
{
	CLEANUP(list_done) struct said_list l = {0};
	CLEANUP_FREE bool *known = NULL;
	int rc = ckpt_journal_list(s->journal, &l.at, &l.count);

	if (!rc)
		known = ckpt_calloc(l.count + 1, sizeof(*known));
	if (rc || !known)
		return rc ? rc : -ENOMEM;
	follow_known(s, &l, steps, count, known);
	for (size_t i = 0; i < l.count && !rc && !s->writable; i++)
		if (!known[i])
			rc = ckpt_step_enter(s, &l.at[i]);
	return rc || s->writable ? rc : drop_what_was_committed(s, &l);
}

int ckpt_load_follow(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = list_known(s, &steps, &count);

	if (rc)
		return rc;
	rc = follow(s, steps, count);
	ckpt_step_list_free(steps, count);
	return rc;
}

static int follow_news(struct ckpt_store *s, int news)
{
	s->behind |= news > 0;
	if (news >= 0 && s->behind)
		news = ckpt_load_follow(s);
	if (!news)
		s->behind = false;
	return news;
}

int ckpt_load_settle(struct ckpt_store *s)
{
	return follow_news(s, ckpt_journal_settle(s->journal));
}

int ckpt_load_refresh(struct ckpt_store *s)
{
	if (s->writable)
		return 0;
	LOCK_SCOPE(&s->refresh_lock); // over the look: who comes second finds what the first has seen
	return follow_news(s, ckpt_journal_refresh(s->journal));
}

bool ckpt_load_newer(struct ckpt_step *step)
{
	uint32_t was, is;

	if (step->store->writable) // nobody else has made any
		return false;
	ckpt_lock_take(&step->lock);
	was = step->summary.version;
	ckpt_lock_drop(&step->lock);
	if (ckpt_load_refresh(step->store))
		return false;
	ckpt_lock_take(&step->lock);
	is = step->summary.version;
	ckpt_lock_drop(&step->lock);
	return is != was;
}

// --- The index --------------------------------------------------------------------------------------------------------

int ckpt_load_index(struct ckpt_store *s, bool (*go_on)(void *arg), void *arg)
{
	int rc = ckpt_store_take_packs(s, false, go_on, arg);

	if (rc)
		return rc;
	rc = s->index ? ckpt_index_reset(s->index) : -ENOENT;
	if (!rc)
		ckpt_dedupe_look(s);
	ckpt_lock_drop(&s->packs_lock);
	return rc;
}

// --- Sessions ---------------------------------------------------------------------------------------------------------

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int load_session(struct ckpt_store *s, const char *name, char **named, size_t named_count)
{
	int rc;

	if (!ckpt_uuid_check(name) || (named_count && bsearch(&name, named, named_count, sizeof(*named), by_text)))
		return 0;
	rc = ckpt_draft_is_empty(s, name);
	if (rc > 0)
		return 0;
	if (rc != -ENOMEM)
		rc = ckpt_stage_load_left(s, name);
	return rc == -ENOMEM ? rc : 0;
}

int ckpt_load_sessions(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	CLEANUP_FREE char **named = NULL;
	size_t count;
	struct dirent *d;
	DIR *dir;
	int fd, rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED | 1u << CKPT_STEP_DELETED, &steps, &count);

	if (rc)
		return rc;
	named = calloc(count + 1, sizeof(*named));
	fd = ckpt_sys.open(s->sessions_fd, ".", O_RDONLY | O_DIRECTORY, 0);
	dir = fd < 0 ? NULL : fdopendir(fd);
	rc = !named ? -ENOMEM : fd < 0 ? fd : !dir ? -ENOMEM : 0;
	if (!rc) {
		for (size_t i = 0; i < count; i++)
			named[i] = steps[i]->session;
		qsort(named, count, sizeof(*named), by_text);
		while (!rc && !(rc = ckpt_sys.readdir(dir, &d)) && d)
			rc = load_session(s, d->d_name, named, count);
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	ckpt_step_list_free(steps, count);
	return rc;
}

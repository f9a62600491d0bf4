#include "core/save/makers.h"

#include "core/base/util.h"
#include "core/profile/profile.h"
#include "core/step/staging.h"
#include "core/step/store.h"

#include <stdio.h>

struct ckpt_makers {
	struct maker {
		struct ckpt_process *process;
		bool made_it;
		bool began_later; // it has made something in a later step of the folder
	} * at;
	size_t count, cap;
	bool any_ended;    // and is not kept any more
	bool any_unknown;  // from another pid namespace, or there was no descriptor for it
	bool copied;       // any was a program that copies trees
	bool copier_ended; // and has ended with 0
};

// How these end says how the copy ended. Others leave the copying to a process of another machine, or wait for nothing.
static const char *const whole_copiers[] = {"cp", "mv", "rsync", "tar", "rclone"};

static bool is_whole_copier(const struct ckpt_process *p)
{
	for (size_t i = 0; i < ARRAY_LEN(whole_copiers); i++)
		if (!strcmp(whole_copiers[i], ckpt_process_program(p)))
			return true;
	return false;
}

static bool is_copier(const struct ckpt_process *p)
{
	return ckpt_profile_is_copier(ckpt_process_program(p));
}

// --- Noting -------------------------------------------------------------------------------------------------------------

static struct maker *find_locked(struct ckpt_step *step, const struct ckpt_process *p)
{
	struct ckpt_makers *m = ckpt_staging_of(step)->makers;

	for (size_t i = m ? m->count : 0; i--;) // the last that came is the one that comes again
		if (m->at[i].process == p)
			return &m->at[i];
	return NULL;
}

static struct ckpt_makers *makers_locked(struct ckpt_step *step)
{
	struct ckpt_staging *staged = ckpt_staging_of(step);

	if (!staged->makers)
		staged->makers = calloc(1, sizeof(*staged->makers));
	return staged->makers;
}

// True: it is new here. p NULL: not known. Without memory it is as if it were not known.
static bool add_locked(struct ckpt_step *step, struct ckpt_process *p, bool made_it)
{
	struct ckpt_makers *m = makers_locked(step);
	struct maker *known = p ? find_locked(step, p) : NULL;

	if (known) {
		known->made_it |= made_it;
		return false;
	}
	if (!m)
		return false;
	if (!p || ckpt_grow((void **)&m->at, &m->cap, m->count + 1, sizeof(*m->at))) {
		m->any_unknown = true;
		return false;
	}
	m->at[m->count++] = (struct maker){.process = ckpt_process_ref(p), .made_it = made_it};
	m->copied |= is_copier(p);
	return true;
}

struct later {
	const struct ckpt_step *step;
	const struct ckpt_process *process;
};

static int mark_later(void *arg, struct ckpt_step *step)
{
	const struct later *l = arg;
	struct maker *m;

	if (step == l->step || ckpt_staging_of(step)->began_ns >= ckpt_staging_of(l->step)->began_ns)
		return 0;
	LOCK_SCOPE(&step->lock);
	m = find_locked(step, l->process);
	if (m)
		m->began_later = true;
	return 0;
}

static void tell_earlier(struct ckpt_step *step, const struct ckpt_process *p)
{
	struct later l = {step, p};
	LOCK_SCOPE(&step->store->lock);

	(void)ckpt_step_each_locked(step->store, step->folder_id, 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING,
				    mark_later, &l);
}

static bool is_staged_locked(const struct ckpt_step *step)
{
	return step->state == CKPT_STEP_STAGED || step->state == CKPT_STEP_COMMITTING;
}

pid_t ckpt_makers_note(struct ckpt_step *step, pid_t tid, bool made_it)
{
	struct ckpt_process *p;
	bool is_new;
	pid_t pid;

	if (!ckpt_step_is_unfinished(step))
		return 0;
	p = ckpt_process_of(tid);
	ckpt_lock_take(&step->lock);
	is_new = is_staged_locked(step) && add_locked(step, p, made_it);
	ckpt_lock_drop(&step->lock);
	if (is_new)
		tell_earlier(step, p);
	pid = ckpt_process_pid(p);
	ckpt_process_unref(p);
	return pid;
}

// --- Asking -------------------------------------------------------------------------------------------------------------

static void text_into(char *text, const struct ckpt_process *p, struct ckpt_process_status status)
{
	if (!*text)
		ckpt_process_text(p, status, text);
}

// sftp-server ends as its client tells it to, in the middle of a file, too.
static enum ckpt_process_state state_of(const struct maker *m, struct ckpt_process_status status)
{
	return status.state == CKPT_PROCESS_ENDED && is_copier(m->process) && !is_whole_copier(m->process)
		       ? CKPT_PROCESS_UNKNOWN
		       : status.state;
}

static void count(struct ckpt_makers_facts *f, const struct maker *m, struct ckpt_process_status status)
{
	switch (state_of(m, status)) {
	case CKPT_PROCESS_UNKNOWN:
		f->unknown++;
		text_into(f->unknown_text, m->process, status);
		break;
	case CKPT_PROCESS_LIVES:
		f->later += m->began_later;
		f->living += !m->began_later;
		if (!m->began_later)
			text_into(f->living_text, m->process, status);
		break;
	case CKPT_PROCESS_STOPPED:
		f->stopped++;
		text_into(f->stopped_text, m->process, status);
		break;
	case CKPT_PROCESS_ENDED:
		f->ended++;
		f->copier_made |= m->made_it && is_whole_copier(m->process);
		f->copier_ended |= is_copier(m->process);
		break;
	case CKPT_PROCESS_FAILED:
	case CKPT_PROCESS_KILLED:
		f->killed += status.state == CKPT_PROCESS_KILLED;
		f->failed++;
		text_into(f->failed_text, m->process, status);
	}
}

// Of a step that many processes make one file each, only those are kept that may still say something.
static void drop_ended_locked(struct ckpt_step *step, const struct maker *ended)
{
	struct maker *m = find_locked(step, ended->process);
	struct ckpt_makers *all = ckpt_staging_of(step)->makers;

	if (!m || m->made_it)
		return;
	all->any_ended = true;
	all->copier_ended |= is_copier(m->process);
	ckpt_process_unref(m->process); // not the last: the caller's
	*m = all->at[--all->count];
}

static struct maker *copy_locked(const struct ckpt_makers *m, size_t *ret_count)
{
	struct maker *copy = m && m->count ? calloc(m->count, sizeof(*copy)) : NULL;

	*ret_count = copy ? m->count : 0;
	for (size_t i = 0; i < *ret_count; i++) {
		copy[i] = m->at[i];
		ckpt_process_ref(copy[i].process);
	}
	return copy;
}

// Without memory they are not known.
static struct maker *begin(struct ckpt_step *step, size_t *ret_count, struct ckpt_makers_facts *f)
{
	LOCK_SCOPE(&step->lock);
	const struct ckpt_makers *m = ckpt_staging_of(step)->makers;
	struct maker *copy = copy_locked(m, ret_count);

	*f = (struct ckpt_makers_facts){0};
	if (!m)
		return NULL;
	f->any = m->count || m->any_ended || m->any_unknown;
	f->ended = m->any_ended;
	f->unseen = m->any_unknown || (m->count && !copy);
	f->unknown = f->unseen;
	f->copied = m->copied;
	f->copier_ended = m->copier_ended;
	if (f->unknown)
		ckpt_process_text(NULL, (struct ckpt_process_status){0}, f->unknown_text);
	return copy;
}

void ckpt_makers_ask(struct ckpt_step *step, struct ckpt_makers_facts *ret_facts)
{
	size_t count_of;
	CLEANUP_FREE struct maker *makers = begin(step, &count_of, ret_facts);

	for (size_t i = 0; i < count_of; i++) {
		struct ckpt_process_status status = ckpt_process_ask(makers[i].process);

		count(ret_facts, &makers[i], status);
		if (state_of(&makers[i], status) == CKPT_PROCESS_ENDED) {
			ckpt_lock_take(&step->lock);
			drop_ended_locked(step, &makers[i]);
			ckpt_lock_drop(&step->lock);
		}
		ckpt_process_unref(makers[i].process);
	}
}

void ckpt_makers_forget_ended(struct ckpt_step *step)
{
	const struct ckpt_staging *staged = ckpt_staging_of(step);
	size_t count_of;
	struct ckpt_makers_facts f;
	CLEANUP_FREE struct maker *makers = begin(step, &count_of, &f);

	for (size_t i = 0; i < count_of; i++) {
		enum ckpt_process_state state = ckpt_process_ask(makers[i].process).state;

		makers[i].made_it = false;
		ckpt_lock_take(&step->lock);
		if (state != CKPT_PROCESS_LIVES && state != CKPT_PROCESS_STOPPED) {
			struct maker *m = find_locked(step, makers[i].process);

			if (m)
				m->made_it = false;
			drop_ended_locked(step, &makers[i]);
		}
		ckpt_lock_drop(&step->lock);
		ckpt_process_unref(makers[i].process);
	}
	LOCK_SCOPE(&step->lock);
	if (staged->makers)
		staged->makers->any_ended = staged->makers->any_unknown = staged->makers->copied =
			staged->makers->copier_ended = false;
}

// --- With the step ------------------------------------------------------------------------------------------------------

void ckpt_makers_forget_locked(struct ckpt_step *step)
{
	struct ckpt_makers *m = TAKE_PTR(ckpt_staging_of(step)->makers);

	if (!m)
		return;
	for (size_t i = 0; i < m->count; i++)
		ckpt_process_unref(m->at[i].process);
	free(m->at);
	free(m);
}

void ckpt_makers_move_locked(struct ckpt_step *from, struct ckpt_step *to)
{
	const struct ckpt_makers *m = ckpt_staging_of(from)->makers;

	for (size_t i = 0; m && i < m->count; i++)
		(void)add_locked(to, m->at[i].process, false);
	if (m && m->any_unknown)
		(void)add_locked(to, NULL, false);
	if (m && ckpt_staging_of(to)->makers) {
		ckpt_staging_of(to)->makers->any_ended |= m->any_ended;
		ckpt_staging_of(to)->makers->copied |= m->copied;
	}
	ckpt_makers_forget_locked(from);
}

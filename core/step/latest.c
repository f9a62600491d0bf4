#include "core/step/latest.h"

#include "core/base/util.h"
#include "core/step/reopened.h"
#include "core/step/saved.h"
#include "core/step/store.h"

const char *const ckpt_latest_words[] = {
	[CKPT_LATEST_BY_COMMIT] = "commit",       [CKPT_LATEST_BY_STEP] = "step",
	[CKPT_LATEST_BY_TIMESTAMP] = "timestamp", [CKPT_LATEST_BY_MTIME] = "mtime",
	[CKPT_LATEST_BY_TRACKER] = "tracker",     NULL,
};

int ckpt_latest_by_word(const char *word, enum ckpt_latest_by *ret_by)
{
	for (unsigned i = 0; ckpt_latest_words[i]; i++)
		if (!strcmp(word, ckpt_latest_words[i])) {
			*ret_by = (enum ckpt_latest_by)i;
			return 0;
		}
	return -EINVAL;
}

struct candidate {
	bool numbered;
	int64_t value;  // what it is judged by
	int64_t number; // then by this, where the order has it so; else 0
	uint64_t sequence;
	int64_t committed_ns;
	const struct ckpt_step *step; // in the table, as long as store->lock is held
};

struct pass {
	enum ckpt_latest_by by;
	size_t back;
	bool link;
	// The newest so far; with back all that there are, to be sorted.
	struct candidate *at;
	size_t count, cap;
	uint64_t newest_sequence;
	bool framework_writes_it;
};

static int64_t value_of_locked(const struct ckpt_step *step, enum ckpt_latest_by by)
{
	const struct ckpt_summary *s = &step->version->is;
	int64_t ns;

	switch (by) {
	case CKPT_LATEST_BY_STEP:
		return s->number;
	case CKPT_LATEST_BY_TIMESTAMP:
		ns = ckpt_saved_ns_locked(step);
		return ns == CKPT_TIMESTAMP_NONE ? s->first_committed_ns : ns;
	case CKPT_LATEST_BY_MTIME:
		return s->dir_mtime_ns;
	default:
		return 0; // the order of commits decides among equals
	}
}

static int newest_first(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->numbered != y->numbered)
		return x->numbered ? -1 : 1;
	if (x->value != y->value)
		return x->value > y->value ? -1 : 1;
	if (x->number != y->number)
		return x->number > y->number ? -1 : 1;
	return (x->sequence < y->sequence) - (x->sequence > y->sequence);
}

// A step that is being changed through the link: that goes on leading to it, so that the next change is not one of another step.
static bool is_kept(const struct ckpt_step *step)
{
	return __atomic_load_n(&step->reopens, __ATOMIC_ACQUIRE) &&
	       __atomic_load_n(&ckpt_reopen_of(step)->through_latest, __ATOMIC_ACQUIRE);
}

static int look_at(void *arg, struct ckpt_step *step)
{
	struct pass *p = arg;
	struct candidate c = {.step = step};
	bool committed;

	p->framework_writes_it |= ckpt_name_has_own_latest(step->name);
	if (p->link && is_kept(step))
		step = step->base;
	ckpt_lock_take(&step->lock);
	committed = step->state == CKPT_STEP_COMMITTED;
	c.numbered = step->version->is.number >= 0;
	c.value = value_of_locked(step, p->by);
	c.number = p->by == CKPT_LATEST_BY_TIMESTAMP ? step->version->is.number : 0;
	c.sequence = step->born.sequence;
	c.committed_ns = step->version->is.committed_ns;
	ckpt_lock_drop(&step->lock);
	if (!committed)
		return 0;
	p->newest_sequence = MAX(p->newest_sequence, c.sequence);
	if (!p->back && p->count) {
		if (newest_first(&c, p->at) < 0)
			*p->at = c;
		return 0;
	}
	if (p->count >= p->cap && ckpt_grow((void **)&p->at, &p->cap, p->count + 1, sizeof(*p->at)))
		return -ENOMEM;
	p->at[p->count++] = c;
	return 0;
}

static int find(struct ckpt_store *s, const char *folder_id, enum ckpt_latest_by by, size_t back, bool link,
		struct ckpt_latest *ret_latest)
{
	unsigned states = 1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING | 1u << CKPT_STEP_COMMITTED;
	CLEANUP_FREE struct candidate *many = NULL;
	struct candidate one;
	struct pass p = {.by = by, .back = back, .link = link, .at = &one, .cap = 1};
	int rc;

	if (back) {
		p.at = NULL;
		p.cap = 0;
	}
	LOCK_SCOPE(&s->lock);
	rc = ckpt_step_each_locked(s, folder_id, states, look_at, &p);
	if (back)
		many = p.at;
	if (rc || back >= p.count)
		return rc ? rc : -ENOENT;
	if (back)
		qsort(p.at, p.count, sizeof(*p.at), newest_first);
	*ret_latest = (struct ckpt_latest){
		.committed_ns = p.at[back].committed_ns,
		.newest_sequence = p.newest_sequence,
		.framework_writes_it = p.framework_writes_it,
	};
	memcpy(ret_latest->folder_id, p.at[back].step->folder_id, sizeof(ret_latest->folder_id));
	memcpy(ret_latest->name, p.at[back].step->name, sizeof(ret_latest->name));
	return 0;
}

int ckpt_latest(struct ckpt_store *s, const char *folder_id, enum ckpt_latest_by by, size_t back,
		struct ckpt_latest *ret_latest)
{
	return find(s, folder_id, by, back, false, ret_latest);
}

int ckpt_latest_link(struct ckpt_store *s, const char *folder_id, enum ckpt_latest_by by,
		     struct ckpt_latest *ret_latest)
{
	return find(s, folder_id, by, 0, true, ret_latest);
}

// --- Its size -----------------------------------------------------------------------------------------------------------

struct newest {
	uint64_t sequence, bytes;
};

static int look_at_newest(void *arg, struct ckpt_step *step)
{
	struct newest *n = arg;
	LOCK_SCOPE(&step->lock);

	if (step->born.sequence >= n->sequence) {
		n->sequence = step->born.sequence;
		n->bytes = step->version->is.bytes;
	}
	return 0;
}

uint64_t ckpt_latest_bytes(struct ckpt_store *s)
{
	LOCK_SCOPE(&s->lock);
	struct newest n = {0};

	(void)ckpt_step_each_locked(s, NULL, 1u << CKPT_STEP_COMMITTED, look_at_newest, &n);
	return n.bytes;
}

#include "core/tier/cooler.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/garbage.h"
#include "core/record/event.h"
#include "core/step/store.h"
#include "core/tier/cool.h"

#define LET_BY_NS INT64_C(100000000) // until it looks whether the call that waited has begun
#define ROOM_FACTOR 2
#define ROOMY_SHARE 4 // of the disk

// --- Which steps --------------------------------------------------------------------------------------------------------

struct candidate {
	struct ckpt_step *step; // in the list's reference
	char folder_id[CKPT_FOLDER_ID_LEN + 1];
	uint64_t sequence, bytes;
	uint32_t version; // that was looked at
	bool wanted, packed;
	bool counts;      // as work
	int64_t after_ns; // monotonic
};

// All committed steps, of which the first `count` are to be cooled, the oldest first.
struct choice {
	struct ckpt_step **list;
	size_t list_count;
	struct candidate *steps;
	size_t count;
	int64_t next_ns; // when to look again, at the latest
};

// A file that came since is not: by a version of another kind.
static bool is_all_packed(const struct ckpt_summary *sum)
{
	return sum->packed && (!strcmp(sum->event, CKPT_EVENT_COOL) || !strcmp(sum->event, CKPT_EVENT_REPACK));
}

static void look_at(struct candidate *c, int64_t now_ns)
{
	struct ckpt_step *step = c->step;
	struct ckpt_cooling *cooling = ckpt_cooling_of(step);
	int64_t warm_ns = ckpt_warm_left_ns(step);
	struct ckpt_step_name name;

	ckpt_step_name(step, &name);
	memcpy(c->folder_id, name.folder_id, sizeof(c->folder_id));
	LOCK_SCOPE(&step->lock);
	const struct ckpt_summary *sum = &step->version->is;

	c->version = sum->version;
	c->sequence = sum->sequence;
	c->bytes = sum->bytes;
	c->packed = is_all_packed(sum);
	c->counts = !c->packed || ckpt_raws_of(step)->left;
	c->wanted = step->state == CKPT_STEP_COMMITTED && sum->sealed && sum->bytes && !sum->pinned;
	if (ckpt_raws_of(step)->cooled !=
	    sum->version) { // it is new, or was warmed: what was so before is nothing to go by
		ckpt_raws_of(step)->cooled = sum->version;
		cooling->cool_after_ns = now_ns;
	}
	c->after_ns = MAX(cooling->cool_after_ns, now_ns + warm_ns);
}

static int by_folder_and_age(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	int order = strcmp(x->folder_id, y->folder_id);

	return order ? order : (x->sequence < y->sequence) - (x->sequence > y->sequence); // the newest first
}

static int by_age(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void keep_wanted(struct choice *t, uint64_t hot, int64_t now_ns)
{
	uint64_t newer = 0;

	for (size_t i = 0; i < t->list_count; i++) {
		const struct candidate *c = &t->steps[i];

		newer = i && !strcmp(c->folder_id, c[-1].folder_id) ? newer + 1 : 0;
		if (newer < hot || !c->wanted)
			continue;
		if (c->after_ns <= now_ns)
			t->steps[t->count++] = *c; // behind all that is still to be looked at
		else
			t->next_ns = MIN(t->next_ns, c->after_ns);
	}
}

static struct choice choose(struct ckpt_store *s)
{
	int64_t now_ns = ckpt_sys.mono_ns();
	struct choice t = {.next_ns = now_ns + CKPT_JOB_LATER_NS};
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_COMMITTED, &t.list, &t.list_count);

	if (!rc && t.list_count)
		t.steps = ckpt_calloc(t.list_count, sizeof(*t.steps));
	if (rc || (t.list_count && !t.steps)) {
		t.next_ns = ckpt_job_again_ns(-EBUSY);
		return t;
	}
	for (size_t i = 0; i < t.list_count; i++) {
		t.steps[i].step = t.list[i];
		look_at(&t.steps[i], now_ns);
	}
	if (t.list_count)
		qsort(t.steps, t.list_count, sizeof(*t.steps), by_folder_and_age);
	keep_wanted(&t, s->settings.hot, now_ns);
	if (t.count)
		qsort(t.steps, t.count, sizeof(*t.steps), by_age);
	return t;
}

static void choice_done(struct choice *t)
{
	if (t->list)
		ckpt_step_list_free(t->list, t->list_count);
	free(t->steps);
}

// --- The job ----------------------------------------------------------------------------------------------------------

struct cooling {
	struct ckpt_store *store;
	struct ckpt_job *job;
};

static bool go_on(void *arg, uint64_t bytes)
{
	struct cooling *c = arg;

	return ckpt_job_go_on(c->job, bytes) && !ckpt_cool_is_wanted(c->store);
}

// Where steps come and go, the packs of those that went are garbage until the next gc, and raw files are gone at once: on a disk
// that fills up, more packs would come sooner than that garbage goes.
static bool has_room(struct ckpt_store *s, uint64_t bytes)
{
	uint64_t room, all;

	return !ckpt_sys.room(s->dirfd, &room, &all) && room / ROOM_FACTOR >= bytes &&
	       (room >= all / ROOMY_SHARE || !ckpt_garbage_packs(s) ||
		__atomic_load_n(&ckpt_garbage_of(s)->gc_in_vain, __ATOMIC_RELAXED));
}

// Nothing is left to do of the version that was looked at, or not now. Another one, our own or what somebody did meanwhile, is
// looked at again, and so is a step that was warmed meanwhile.
static void settle(const struct candidate *c, int64_t after_ns)
{
	struct ckpt_cooling *cooling = ckpt_cooling_of(c->step);
	LOCK_SCOPE(&c->step->lock);

	if (c->step->version->is.version == c->version && ckpt_raws_of(c->step)->cooled == c->version)
		cooling->cool_after_ns = after_ns;
}

static int cool(struct ckpt_store *s, struct ckpt_job *job, struct candidate *c)
{
	struct cooling now = {s, job};
	const struct ckpt_tier_how how = {
		.go_on = go_on, .arg = &now, .pack_bytes = s->settings.pack_bytes, .at_once = true, .keeps_warm = true};
	struct ckpt_tier_done done;
	int rc;

	if (ckpt_job_stops(job) || ckpt_cool_is_wanted(s))
		return -EINTR;
	look_at(c, ckpt_sys.mono_ns());
	if (!c->wanted)
		return 0; // since it was chosen
	rc = c->packed || has_room(s, c->bytes) ? ckpt_cool(c->step, &how, &done) : -ENOSPC;
	if (rc != -EINTR)
		settle(c, rc ? ckpt_job_again_ns(rc) : INT64_MAX);
	return rc;
}

static int64_t turn(void *store, struct ckpt_job *job)
{
	struct choice t = choose(store);
	int rc = 0;
	int64_t next_ns;

	for (size_t i = 0; i < t.count && rc != -EINTR; i++)
		rc = cool(store, job, &t.steps[i]);
	next_ns = rc == -EINTR ? ckpt_sys.mono_ns() + LET_BY_NS : t.count ? 0 : t.next_ns;
	choice_done(&t);
	return next_ns;
}

int ckpt_cooler_start(struct ckpt_store *s)
{
	return ckpt_job_new(s->jobs, &(struct ckpt_job_of){"cool", CKPT_JOB_GIVES_WAY, turn, s, false},
			    ckpt_cooler_of(s));
}

void ckpt_cooler_pending(struct ckpt_store *s, uint64_t *ret_steps, uint64_t *ret_bytes)
{
	struct choice t;

	*ret_steps = *ret_bytes = 0;
	if (!*ckpt_cooler_of(s))
		return;
	t = choose(s);
	for (size_t i = 0; i < t.count; i++) {
		*ret_steps += t.steps[i].counts;
		*ret_bytes += t.steps[i].counts ? t.steps[i].bytes : 0;
	}
	choice_done(&t);
}

struct ckpt_part ckpt_cooling_part = {.bytes = sizeof(struct ckpt_cooling)};

struct ckpt_part ckpt_cooler_part = {.bytes = sizeof(struct ckpt_job *)};

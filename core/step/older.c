#include "core/step/older.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/state/condemned.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/xattr.h>

#define HOUR_NS (INT64_C(3600) * 1000000000)
#define ONE_EDIT_NS (INT64_C(5) * 1000000000)
#define TEXT_MAX 48 // of the attribute

static const struct ckpt_older_limits NEVER = {INT64_MIN, INT64_MIN};

// --- Limits -------------------------------------------------------------------------------------------------------------

static int open_session(const struct ckpt_step *step)
{
	return ckpt_sys.open(step->store->sessions_fd, step->session, O_RDONLY | O_DIRECTORY, 0);
}

struct ckpt_older_limits ckpt_older_limits(struct ckpt_step *step, int64_t now_ns)
{
	LOCK_SCOPE(&step->lock);

	if (step->version->is.pinned)
		return NEVER;
	return (struct ckpt_older_limits){ckpt_time_between(step->store->settings.trash_ns, now_ns), now_ns};
}

struct ckpt_older_limits ckpt_older_limits_done(const struct ckpt_step *step)
{
	CLEANUP_FD int fd = open_session(step);
	struct ckpt_older_limits l = NEVER;
	char text[TEXT_MAX] = "";

	if (fd < 0 || fgetxattr(fd, CKPT_OLDER_XATTR, text, sizeof(text) - 1) <= 0 ||
	    sscanf(text, "%" SCNd64 " %" SCNd64, &l.replaced_ns, &l.thinned_ns) != 2)
		return NEVER;
	return l;
}

int ckpt_older_limits_keep(const struct ckpt_step *step, const struct ckpt_older_limits *l)
{
	CLEANUP_FD int fd = open_session(step);
	char text[TEXT_MAX];
	int len = snprintf(text, sizeof(text), "%" PRId64 " %" PRId64, l->replaced_ns, l->thinned_ns);

	return fd < 0 ? fd : ckpt_sys.fsetxattr(fd, CKPT_OLDER_XATTR, text, (size_t)len, 0);
}

bool ckpt_older_is_over(const struct ckpt_older *o, const struct ckpt_older_limits *l)
{
	return o->replaced_ns <= l->replaced_ns;
}

static int64_t hour(int64_t ns)
{
	return ns / HOUR_NS;
}

// Since when only the next state is kept, of those two; INT64_MAX: each is.
static int64_t thinned_ns(const struct ckpt_older *o)
{
	if (!o->edited || !o[1].edited)
		return INT64_MAX;
	if (o[1].made_ns - o->made_ns < ONE_EDIT_NS && o[1].node == o->node)
		return o[1].made_ns;
	return hour(o->made_ns) == hour(o[1].made_ns) ? o->made_ns + HOUR_NS : INT64_MAX;
}

bool ckpt_older_has_expired(const struct ckpt_older *list, size_t count, size_t i, const struct ckpt_older_limits *l)
{
	if (i + 1 >= count)
		return false;
	return ckpt_older_is_over(&list[i], l) || thinned_ns(&list[i]) < l->thinned_ns;
}

int64_t ckpt_older_expires_ns(const struct ckpt_older *list, size_t count, size_t i, struct ckpt_step *step)
{
	struct ckpt_older_limits l = ckpt_older_limits(step, 0);
	int64_t ns;

	if (i + 1 >= count || l.replaced_ns == INT64_MIN)
		return INT64_MAX;
	ns = ckpt_time_between(l.replaced_ns, list[i].replaced_ns);
	return MIN(ns, thinned_ns(&list[i]));
}

// --- The list -----------------------------------------------------------------------------------------------------------

struct gather {
	struct ckpt_older *at;
	size_t count, cap;
};

static int add(struct gather *g, const struct ckpt_state_version *v)
{
	int rc = ckpt_grow((void **)&g->at, &g->cap, g->count + 1, sizeof(*g->at));

	if (rc)
		return rc;
	if (g->count)
		g->at[g->count - 1].replaced_ns = v->committed_ns;
	g->at[g->count++] = (struct ckpt_older){.first = v->version,
						.made_ns = v->committed_ns,
						.replaced_ns = INT64_MAX,
						.node = v->by.node,
						.edited = v->files == CKPT_FILES_EDITED};
	return 0;
}

static int gather(void *arg, const struct ckpt_state_step *step)
{
	struct gather *g = arg;
	int rc = 0;

	for (size_t i = 0; i < step->count && !rc; i++) {
		const struct ckpt_state_version *v = &step->versions[i];

		if (!ckpt_state_same_files(v))
			rc = add(g, v);
		if (rc)
			break;
		g->at[g->count - 1].last = v->version;
		g->at[g->count - 1].unmerged |= v->unmerged;
		g->at[g->count - 1].repacked |= v->files == CKPT_FILES_REPACKED;
		if (!v->deleted)
			g->at[g->count - 1].says = v->version;
	}
	return rc;
}

static void judge(struct ckpt_step *step, struct ckpt_older *list, size_t count)
{
	struct ckpt_older_limits now = ckpt_older_limits(step, ckpt_sys.now_ns()), done;

	if (count < 2)
		return;
	done = ckpt_older_limits_done(step);
	for (size_t i = 0; i < count; i++) {
		list[i].over = ckpt_older_is_over(&list[i], &now) || ckpt_older_is_over(&list[i], &done);
		list[i].expired =
			ckpt_older_has_expired(list, count, i, &now) || ckpt_older_has_expired(list, count, i, &done);
	}
}

int ckpt_older_list(struct ckpt_step *step, struct ckpt_older **ret_list, size_t *ret_count)
{
	struct gather g = {0};
	int rc = ckpt_journal_step(step->store->journal, step->session, gather, &g);

	if (rc) {
		free(g.at);
		return rc;
	}
	judge(step, g.at, g.count);
	*ret_list = g.at;
	*ret_count = g.count;
	return 0;
}

// --- Opening ------------------------------------------------------------------------------------------------------------

static int open_state(struct ckpt_step *step, const struct ckpt_older *o, struct ckpt_version **ret_version)
{
	struct ckpt_record r;
	int rc = ckpt_step_record(step, o->says, &r);

	if (rc)
		return rc == -ENOENT ? -EBADMSG : rc;
	*ret_version = ckpt_version_new(&r.summary, NULL);
	ckpt_record_done(&r);
	return *ret_version ? 0 : -ENOMEM;
}

static int open_number(struct ckpt_step *step, uint32_t number, bool expired_too, struct ckpt_version **ret_version)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count, i = 0;
	int rc = ckpt_older_list(step, &list, &count);

	if (rc)
		return rc;
	while (i < count && list[i].last < number)
		i++;
	if (i == count || list[i].first > number)
		return -ENOENT;
	return list[i].expired && !expired_too ? -ESTALE : open_state(step, &list[i], ret_version);
}

int ckpt_older_open(struct ckpt_step *step, uint32_t number, struct ckpt_version **ret_version)
{
	return open_number(step, number, false, ret_version);
}

int ckpt_older_open_expired(struct ckpt_step *step, uint32_t number, struct ckpt_version **ret_version)
{
	return open_number(step, number, true, ret_version);
}

int ckpt_older_unsent(struct ckpt_step *step, uint32_t sent, struct ckpt_older *ret_state)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count;
	int rc = ckpt_older_list(step, &list, &count);

	for (size_t i = 0; i + 1 < count && !rc; i++)
		if (list[i].first > sent && list[i].says && !list[i].expired && !list[i].unmerged) {
			*ret_state = list[i];
			return 0;
		}
	return rc ? rc : -ENOENT;
}

// --- Packs ----------------------------------------------------------------------------------------------------------------

static int tell_packs(struct ckpt_step *step, uint32_t version, ckpt_older_fn *fn, void *arg)
{
	struct ckpt_manifest *m;
	struct ckpt_record r;
	int rc = ckpt_step_record(step, version, &r);
	bool gone;

	if (rc)
		return rc;
	gone = !r.manifest && ckpt_journal_manifest_condemned(step->store->journal, r.summary.manifest_sha256);
	rc = gone ? 0 : ckpt_step_read_manifest(step, &r.summary, &m);
	ckpt_record_done(&r);
	if (rc || gone) // the remote has removed it, as a version that was over: it is not to be had any more
		return rc;
	rc = fn(arg, m);
	ckpt_manifest_unref(m);
	return rc;
}

// An edit needs no packs but those of the files before it. So of edits that follow each other the first is enough, and one after each
// move of bytes.
int ckpt_older_each_packs(struct ckpt_step *step, ckpt_older_fn *fn, void *arg)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	bool told = false;
	size_t count = 0;
	int rc = ckpt_older_list(step, &list, &count);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	for (size_t i = 0; i + 1 < count && !rc; i++) {
		const struct ckpt_older *o = &list[i];

		if (o->over || (told && o->edited && !o->repacked))
			continue;
		rc = tell_packs(step, o->says, fn, arg);
		told = true;
	}
	return rc;
}

// --- Finding --------------------------------------------------------------------------------------------------------------

struct before {
	struct ckpt_step *step, *found;
	uint32_t first;
};

static int look_for_before(void *arg, struct ckpt_step *step)
{
	struct before *b = arg;

	LOCK_SCOPE(&step->lock);
	if (b->found || step->deleted_by != b->first || strcmp(step->name, b->step->name))
		return 0;
	b->found = ckpt_step_ref(step);
	return 0;
}

// The deleted step whose place the first version took; NULL: there is none, or it has expired.
static struct ckpt_step *step_before(struct ckpt_step *step, uint32_t first)
{
	struct before b = {.step = step, .first = first};
	LOCK_SCOPE(&step->store->lock);

	(void)ckpt_step_each_locked(step->store, step->folder_id, 1u << CKPT_STEP_DELETED, look_for_before, &b);
	return b.found;
}

// 1: the step before has it, of which it is *number then.
static int find_here(struct ckpt_step *step, int64_t *number, uint32_t *ret_first, struct ckpt_version **ret_version)
{
	CLEANUP_FREE struct ckpt_older *list = NULL;
	size_t count;
	int rc = ckpt_older_list(step, &list, &count);

	if (rc)
		return rc;
	*ret_first = list[0].first;
	if (*number > 0 && *number < list[0].first)
		return 1;
	if (*number > 0)
		return *number > UINT32_MAX ? -ENOENT : ckpt_older_open(step, (uint32_t)*number, ret_version);
	for (size_t i = count; i-- > 0;) {
		if (list[i].expired)
			continue;
		if (!*number)
			return open_state(step, &list[i], ret_version);
		++*number;
	}
	return 1;
}

int ckpt_older_find(struct ckpt_step *step, int64_t number, struct ckpt_step **ret_step,
		    struct ckpt_version **ret_version)
{
	struct ckpt_step *at = ckpt_step_ref(step), *before;
	uint32_t first = 0;
	int rc;

	while ((rc = find_here(at, &number, &first, ret_version)) == 1) {
		before = step_before(at, first);
		ckpt_step_unref(at);
		at = before;
		if (!at)
			return -ENOENT;
	}
	if (rc)
		ckpt_step_unref(at);
	else
		*ret_step = at;
	return rc;
}

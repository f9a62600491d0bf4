// Drafts that become live before their last close, because their writer goes on and readers are to see each write:
//   - a tracker that turns out to be a log: somebody's standard output, written in more than one burst, larger than 64 KiB, or
//     still open TRACKER_NS after its first write
//   - any tracker at its writer's fsync
//   - a file step that was synced at two moments SYNCED_NS apart and has changed between them: a memmap, a trace
//   - a file step that several processes have mapped
//   - HDF5 whose superblock says SWMR: its writer wants readers beside it
// The draft is then published as at a close, and its writers go on with the file that has the name.
//
// The watch looks for what tells itself by time; it runs only while there is a draft that wants it. It looks at arrays of which
// only the header was written, too: numpy's open_memmap closes such a file and opens it again at once. If nobody has opened it
// after HEADER_NS, the error log names it. It is left over when the process that closed it has ended.
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"
#include "core/profile/tracker.h"
#include "fs/client.h"
#include "fs/draft.h"
#include "fs/draft_table.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#define WATCH_NS INT64_C(250000000)
#define BURST_NS INT64_C(1000000000)       // what is written so long after the first write is another burst
#define TRACKER_NS INT64_C(5000000000)     // still open this long after its first write: a log
#define SYNCED_NS INT64_C(60000000000)     // between two syncs of a file that is written for long
#define HEADER_NS INT64_C(60000000000)     // an array that has only its header yet is waited for so long
#define INVITATION_NS INT64_C(30000000000) // a thread that was told to look again is waited for so long

// --- Signs ------------------------------------------------------------------------------------------------------------

static bool has_changed(const struct draft_seen *seen, const struct stat *st)
{
	return seen->size != st->st_size || seen->mtime.tv_sec != st->st_mtim.tv_sec ||
	       seen->mtime.tv_nsec != st->st_mtim.tv_nsec;
}

static void see(struct draft_seen *seen, const struct stat *st, int64_t now)
{
	*seen = (struct draft_seen){.at_ns = now, .size = st->st_size, .mtime = st->st_mtim};
}

// It has a writer that lives, as far as is known, and whose bytes are all there.
static bool is_written_locked(const struct draft *d)
{
	return d->opened && !d->killed && !d->lost && d->dir && !d->left;
}

// A tracker that grows, that is written again later, or that its writer keeps open.
static bool is_log_locked(struct draft *d, int64_t now)
{
	struct stat st;
	bool again;

	if (fstat(d->fd, &st))
		return false;
	again = d->written.at_ns && has_changed(&d->last_write, &st) && now - d->written.at_ns >= BURST_NS;
	if (st.st_size > 0 && !d->written.at_ns)
		see(&d->written, &st, now);
	see(&d->last_write, &st, now);
	return again || st.st_size > CKPT_TRACKER_BYTES_MAX ||
	       (d->written.at_ns && now - d->written.at_ns >= TRACKER_NS);
}

static bool may_be_swmr(const struct draft *d)
{
	return !d->tracker && ckpt_name_matches("*.h5", d->name);
}

bool draft_is_watched(const struct draft *d)
{
	return !d->left && (d->tracker || may_be_swmr(d) || d->header_ns);
}

static bool is_synced_again_locked(struct draft *d, const struct stat *st, int64_t now)
{
	if (!d->synced.at_ns)
		see(&d->synced, st, now);
	return now - d->synced.at_ns >= SYNCED_NS && has_changed(&d->synced, st);
}

// --- Publication ------------------------------------------------------------------------------------------------------

// With the claim, which it gives back. rc: what is known already to stand in the way.
static int go_live(struct ckpt_fs *fs, struct draft *d, int rc, const struct draft_publication *how)
{
	if (!rc)
		rc = draft_publish(fs, d, how);
	draft_tell_failure(fs, d, rc);
	draft_release_claim(fs->drafts, d);
	return rc;
}

int draft_synced(struct ckpt_fs *fs, struct handle *h, int rc, int disk)
{
	struct draft *d = h->draft;
	struct stat st;
	bool due;

	if (!d)
		return rc;
	due = !rc && !fstat(d->fd, &st);
	ckpt_lock_take(&fs->drafts->lock);
	if (draft_is_lost(disk))
		d->lost = disk; // the disk says so once, and this was it
	due = due && (d->tracker || is_synced_again_locked(d, &st, ckpt_sys.mono_ns())) &&
	      draft_claim_locked(fs->drafts, d, false);
	if (due)
		rc = d->killed ? -EIO : d->lost; // also what came while it waited for the claim
	ckpt_lock_drop(&fs->drafts->lock);
	return due ? go_live(fs, d, rc, &(struct draft_publication){.durable = true, .written_out = true}) : rc;
}

bool draft_is_output(struct ckpt_fs *fs, struct handle *h, pid_t tid)
{
	const struct draft *d = h->draft;
	char name[CKPT_NAME_MAX + 1];

	if (!d->tracker)
		return false;
	draft_name(fs, d, name);
	return !ckpt_tracker_is_known(name) && client_has_as_output(tid, h->node->number);
}

// Each writer has closed a descriptor of it, and has another: that is what a mapping holds. One process that does so may still be
// saving; where several do, each wants to see the others.
static bool is_shared_locked(const struct draft *d)
{
	bool several = false;

	for (const struct handle *h = d->writers; h; h = h->draft_next) {
		if (!h->flushed || !h->opener)
			return false;
		several |= h->opener != d->writers->opener;
	}
	return several && !d->joining;
}

static void make_live(struct ckpt_fs *fs, struct draft *d, bool (*still_locked)(const struct draft *d), bool check)
{
	struct drafts *t = fs->drafts;
	bool due;
	int rc;

	ckpt_lock_take(&t->lock);
	due = (!still_locked || still_locked(d)) && d->opened && draft_claim_locked(t, d, false);
	rc = d->killed ? -EIO : d->lost;
	check = check && d->replaces;
	ckpt_lock_drop(&t->lock);
	if (due)
		(void)go_live(fs, d, rc, &(struct draft_publication){.check = check});
}

void draft_output_is_live(struct ckpt_fs *fs, struct draft *d)
{
	make_live(fs, d, NULL, false);
}

void draft_shared_is_live(struct ckpt_fs *fs, struct draft *d)
{
	if (!d->tracker)
		make_live(fs, d, is_shared_locked, true);
}

// --- The watch --------------------------------------------------------------------------------------------------------

// Nobody came to open it.
static bool is_unwanted_locked(struct draft *d, int64_t now)
{
	for (struct invitation **slot = &d->invited; *slot;) {
		struct invitation *i = *slot;

		if (now - i->at_ns < INVITATION_NS) {
			slot = &i->next;
		} else {
			*slot = i->next;
			free(i);
		}
	}
	return !d->opened && !d->invited && !d->joining;
}

enum due { DUE_NOTHING, DUE_CANCEL, DUE_LIVE, DUE_LOOK, DUE_TELL, DUE_LEAVE };

// Its process may be about to open it again, unless it has ended.
static enum due header_due_locked(const struct draft *d, int64_t now)
{
	bool lives = d->closer && (!kill(d->closer, 0) || errno != ESRCH);

	if (d->writers || d->joining || d->invited || now - d->header_ns < HEADER_NS)
		return DUE_NOTHING;
	return !lives ? DUE_LEAVE : d->told ? DUE_NOTHING : DUE_TELL;
}

static enum due what_is_due_locked(struct draft *d, int64_t now)
{
	if (is_unwanted_locked(d, now))
		return DUE_CANCEL;
	if (d->publishing || !is_written_locked(d))
		return DUE_NOTHING;
	if (d->tracker)
		return is_log_locked(d, now) ? DUE_LIVE : DUE_NOTHING;
	if (d->header_ns)
		return header_due_locked(d, now);
	if (!may_be_swmr(d) || now - d->looked_ns < WATCH_NS)
		return DUE_NOTHING;
	d->looked_ns = now;
	return DUE_LOOK;
}

// The first for which something is due, with a reference; one that becomes live or is left over is claimed. *ret_more: there will be more to do.
static struct draft *next_due_locked(struct drafts *t, enum due *ret_due, bool *ret_more)
{
	int64_t now = ckpt_sys.mono_ns();

	*ret_more = false;
	for (struct draft *d = t->first; d; d = d->next) {
		*ret_due = what_is_due_locked(d, now);
		*ret_more |= draft_is_watched(d) || d->invited;
		if (*ret_due == DUE_NOTHING)
			continue;
		d->publishing |= *ret_due == DUE_LIVE || *ret_due == DUE_LEAVE;
		d->refs++;
		return d;
	}
	return NULL;
}

static void do_due(struct ckpt_fs *fs, struct draft *d, enum due due)
{
	int rc;

	if (due == DUE_CANCEL) {
		draft_cancel(fs, d);
	} else if (due == DUE_LOOK) {
		if (ckpt_format_is_swmr(d->fd))
			make_live(fs, d, is_written_locked, false);
	} else if (due == DUE_TELL) {
		draft_tell_failure(fs, d, -EINVAL);
	} else if (due == DUE_LEAVE) {
		draft_tell_failure(fs, d, -EINVAL);
		draft_leave(fs, d);
		draft_release_claim(fs->drafts, d);
	} else {
		rc = go_live(fs, d, 0, &(struct draft_publication){0});
		if (rc)
			draft_set_lost(fs, d, rc); // its close says so
	}
}

static void *watch(void *arg)
{
	struct ckpt_fs *fs = arg;
	struct drafts *t = fs->drafts;
	bool more = true;

	ckpt_lock_take(&t->lock);
	while (more && !t->stop) {
		enum due due;
		struct draft *d = next_due_locked(t, &due, &more);

		if (!d) {
			if (more)
				ckpt_lock_wait_ns(&t->changed, &t->lock, WATCH_NS);
			continue;
		}
		more = true;
		ckpt_lock_drop(&t->lock);
		do_due(fs, d, due);
		draft_unref(fs, d);
		ckpt_lock_take(&t->lock);
	}
	t->watching = false;
	pthread_cond_broadcast(&t->changed);
	ckpt_lock_drop(&t->lock);
	return NULL;
}

void drafts_watch(struct ckpt_fs *fs)
{
	struct drafts *t = fs->drafts;
	pthread_attr_t detached;
	pthread_t id;

	LOCK_SCOPE(&t->lock);
	if (t->watching || t->stop)
		return;
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&detached, 256 << 10);
	t->watching = !pthread_create(&id, &detached, watch, fs); // without it a log is published at its close
	pthread_attr_destroy(&detached);
}

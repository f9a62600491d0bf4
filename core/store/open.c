// Puts the modules of a store together: attaches their parts, and opens and closes all of them in order.
#include "core/store/open.h"

#include "core/base/log.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/chunk_cache.h"
#include "core/cold/closed.h"
#include "core/cold/dedupe.h"
#include "core/cold/file.h"
#include "core/cold/garbage.h"
#include "core/cold/pack_pins.h"
#include "core/cold/packing.h"
#include "core/cold/reading.h"
#include "core/index/indexer.h"
#include "core/objects/stack.h"
#include "core/policy/should_save.h"
#include "core/remote/collector.h"
#include "core/remote/evict.h"
#include "core/remote/fetch.h"
#include "core/remote/remote.h"
#include "core/remote/warmer.h"
#include "core/save/commit.h"
#include "core/save/convert.h"
#include "core/save/copy.h"
#include "core/save/draft.h"
#include "core/save/limit.h"
#include "core/save/looker.h"
#include "core/save/pin.h"
#include "core/save/reopen.h"
#include "core/save/share.h"
#include "core/save/stage.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/step/holder.h"
#include "core/step/removal.h"
#include "core/step/saved.h"
#include "core/step/shared_settings.h"
#include "core/step/store_folder.h"
#include "core/step/trash.h"
#include "core/store/examiner.h"
#include "core/store/expiry.h"
#include "core/store/load.h"
#include "core/store/room.h"
#include "core/tier/cool.h"
#include "core/tier/cooler.h"
#include "core/tier/sealer.h"
#include "core/view/step_arrays.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

// A part that frees what another one still needs comes behind that.
static struct ckpt_part *const step_parts[] = {
	&ckpt_amending_part,  &ckpt_staging_part,      &ckpt_attempts_part, &ckpt_copying_part,
	&ckpt_sharing_part,   &ckpt_reopen_part,       &ckpt_removing_part, &ckpt_changed_part,
	&ckpt_pinned_part,    &ckpt_trashed_part,      &ckpt_saved_part,    &ckpt_sealing_part,
	&ckpt_cooling_part,   &ckpt_raws_part,         &ckpt_unnamed_part,  &ckpt_evict_unreadable_part,
	&ckpt_examining_part, &ckpt_catalog_told_part,
};

static struct ckpt_part *const store_parts[] = {
	&ckpt_pack_pins_part, &ckpt_cool_turn_part,      &ckpt_looked_part,   &ckpt_garbage_part,
	&ckpt_sessions_part,  &ckpt_expiry_part,         &ckpt_trash_part,    &ckpt_room_part,
	&ckpt_sealer_part,    &ckpt_cooler_part,         &ckpt_looker_part,   &ckpt_limit_part,
	&ckpt_indexer_part,   &ckpt_chunk_cache_part,    &ckpt_drafts_part,   &ckpt_packed_files_part,
	&ckpt_commits_part,   &ckpt_synced_folders_part, &ckpt_remote_part,   &ckpt_collector_part,
	&ckpt_evict_part,     &ckpt_fetch_part,          &ckpt_readings_part, &ckpt_warmer_part,
	&ckpt_closed_part,    &ckpt_examiner_part,
};
static size_t store_bytes;

static void place_parts(void)
{
	store_bytes = ckpt_parts_place(store_parts, ARRAY_LEN(store_parts), sizeof(struct ckpt_store));
	ckpt_step_parts(&(struct ckpt_step_parts){step_parts, ARRAY_LEN(step_parts), ckpt_removal_hides});
}

// Each folder of ours is a directory of the store's own filesystem: no symlink, no mount on top.
static int folder_open(struct ckpt_store *s, const char *name, int *ret_fd)
{
	struct stat store, folder;
	int fd = ckpt_sys.open(s->dirfd, name, O_RDONLY | O_DIRECTORY, 0), rc;

	if (fd < 0)
		return fd == -ELOOP || fd == -ENOTDIR ? -EBADMSG : fd;
	rc = fstat(s->dirfd, &store) || fstat(fd, &folder) ? -errno : store.st_dev != folder.st_dev ? -EXDEV : 0;
	if (rc)
		ckpt_sys.close(fd);
	else
		*ret_fd = fd;
	return rc;
}

static void forgo_index(struct ckpt_store *s)
{
	ckpt_index_close(TAKE_PTR(s->index));
	ckpt_errlog_add(s->errlog, "index", -ENOSPC, "free room on the disk; the next mount builds the index",
			"the disk is full: the store is used without an index, which is slower");
}

static int index_open(struct ckpt_store *s)
{
	CLEANUP_FREE char *path = NULL;
	bool fresh; // it fills as manifests are put and packs are looked at
	int rc;

	if (asprintf(&path, "%s/index", s->settings.work_dir ? s->settings.work_dir : s->path) < 0)
		return -ENOMEM;
	rc = ckpt_index_open(path, s->id, !s->writable, &s->index, &fresh);
	// Something that is no directory took its place: nothing in it is needed.
	if (rc == -ENOTDIR && s->writable && !unlink(path))
		rc = ckpt_index_open(path, s->id, false, &s->index, &fresh);
	if (rc && !s->writable) {
		s->index = NULL; // the store says the same, slower
		return 0;
	}
	if (ckpt_is_full(rc)) { // who is to make room must get in
		forgo_index(s);
		return 0;
	}
	return rc == -EMEDIUMTYPE ? -EREMOTE : rc == -ENOENT ? -ENXIO : rc; // not of the store itself
}

// A value that is none keeps nobody from the store: it counts as not said.
static void tell_bad_setting(void *arg, const char *name)
{
	struct ckpt_store *s = arg;

	ckpt_errlog_add(s->errlog, "store.json", -EINVAL, "set it with `ckptfs config STORE KEY=VALUE`",
			"the value of %s is wrong and is ignored", name);
}

// Reopened steps that the last process did not complete.
static int tell_given_up(struct ckpt_store *s)
{
	struct ckpt_step **steps;
	size_t count;
	int rc = ckpt_step_list(s, NULL, 1u << CKPT_STEP_LEFT, &steps, &count);

	if (rc)
		return rc;
	for (size_t i = 0; i < count; i++)
		if (ckpt_staging_of(steps[i])->from_version)
			ckpt_reopen_tell(steps[i]);
	ckpt_step_list_free(steps, count);
	return 0;
}

static void identity_done(json_t **identity)
{
	json_decref(*identity);
}

static int store_open_parts(struct ckpt_store *s, bool repair)
{
	CLEANUP(identity_done) json_t *identity = NULL;
	char why[CKPT_OBJECTS_WHY_MAX] = "";
	int rc = ckpt_store_identity(s, &identity);

	s->multigrain = ckpt_has_multigrain_times(s->dirfd);
	if (!rc && s->writable && !(rc = ckpt_holder_take(s)))
		rc = ckpt_store_make_folders(s->dirfd);
	if (!rc)
		rc = folder_open(s, "sessions", &s->sessions_fd);
	if (!rc)
		rc = folder_open(s, "records", &s->records_fd);
	if (!rc)
		rc = folder_open(s, "tree", &s->tree_fd);
	if (!rc)
		rc = folder_open(s, "trash", &s->trash_fd);
	if (!rc)
		rc = ckpt_errlog_open(s->dirfd, s->writable ? s->jobs : NULL, &s->errlog);
	if (!rc)
		rc = ckpt_settings_load(&s->settings, json_object_get(identity, "settings"), tell_bad_setting, s);
	if (!rc)
		rc = ckpt_objects_open(&(struct ckpt_objects_at){.dirfd = s->dirfd, .writable = s->writable},
				       &s->objects);
	if (!rc)
		rc = ckpt_remote_open(s, identity, why);
	if (rc && *why)
		ckpt_log(CKPT_LOG_ERROR, "%s: %s", s->path, why);
	if (!rc)
		rc = ckpt_chunk_cache_new(s, CKPT_CHUNK_CACHE_BYTES, CKPT_CHUNK_CACHE_KEPT_NS, ckpt_chunk_cache_of(s));
	if (!rc && s->writable)
		rc = ckpt_limit_new(s, ckpt_limit_of(s));
	if (!rc)
		rc = index_open(s);
	if (!rc)
		rc = ckpt_load_steps(s, identity, repair);
	if (!rc && *ckpt_remote_of(s))
		rc = ckpt_shared_settings_load(s);
	// Those of a store that somebody else has for writing are his, and live for all we know.
	if (!rc && (s->writable || ckpt_store_holder(s->path, NULL)))
		rc = ckpt_load_sessions(s);
	if (!rc && s->writable)
		rc = tell_given_up(s);
	if (!rc && s->writable)
		rc = ckpt_convert_settle(s);
	if (!rc)
		rc = ckpt_stage_restart(s);
	if (!rc && s->writable && s->index)
		rc = ckpt_indexer_new(s->index, s->jobs, ckpt_indexer_of(s));
	if (!rc && s->writable)
		rc = ckpt_expiry_new(ckpt_expiry_of(s));
	if (!rc && s->writable) {
		struct ckpt_trash_looks looks = ckpt_expiry_looks(*ckpt_expiry_of(s));

		rc = ckpt_trash_open(s, &looks, ckpt_trash_of(s));
	}
	if (!rc && s->writable)
		ckpt_remote_ready(*ckpt_remote_of(s));
	return rc;
}

static void wake_behind(struct ckpt_store *s)
{
	ckpt_job_wake(__atomic_load_n(ckpt_sealer_of(s), __ATOMIC_ACQUIRE));
	ckpt_job_wake(__atomic_load_n(ckpt_cooler_of(s), __ATOMIC_ACQUIRE));
	ckpt_job_wake(__atomic_load_n(&ckpt_examiner_of(s)->job, __ATOMIC_ACQUIRE));
	ckpt_remote_wake(*ckpt_remote_of(s));
}

static void wake_looker(struct ckpt_store *s)
{
	ckpt_job_wake(__atomic_load_n(&ckpt_looker_of(s)->job, __ATOMIC_ACQUIRE));
}

int ckpt_store_open(const char *path, enum ckpt_store_mode mode, const struct ckpt_settings *settings,
		    struct ckpt_store **ret_store)
{
	static pthread_once_t placed = PTHREAD_ONCE_INIT;
	struct ckpt_store *s;
	int rc;

	pthread_once(&placed, place_parts);
	s = calloc(1, store_bytes);
	if (!s)
		return -ENOMEM;
	s->dirfd = s->sessions_fd = s->records_fd = s->tree_fd = s->trash_fd = s->lock_fd = -1;
	ckpt_lock_init(&s->refresh_lock, CKPT_LOCK_REFRESH);
	ckpt_lock_init(&s->acts_lock, CKPT_LOCK_ACTS);
	ckpt_lock_init(&s->lock, CKPT_LOCK_STORE);
	pthread_cond_init(&s->threads.ended, NULL);
	ckpt_parts_init(store_parts, ARRAY_LEN(store_parts), s);
	s->writable = mode != CKPT_STORE_READ;
	s->calls.wake_behind = wake_behind;
	s->calls.wake_looker = wake_looker;
	s->calls.was_temporary = ckpt_should_save_was_temporary;
	ckpt_boot_id(s->boot_id);
	s->steps = ckpt_step_table_new();
	s->path = realpath(path, NULL);
	rc = !s->path ? -errno : !s->steps ? -ENOMEM : ckpt_pack_pins_new(ckpt_pack_pins_of(s));
	if (!rc)
		rc = ckpt_jobs_new(&s->jobs);
	if (!rc && settings)
		rc = ckpt_settings_copy(&s->settings, settings);
	else
		ckpt_settings_init(&s->settings);
	if (!rc) {
		s->dirfd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = s->dirfd < 0 ? (errno == ENOTDIR ? -EMEDIUMTYPE : -errno)
				  : store_open_parts(s, mode == CKPT_STORE_REPAIR);
	}
	if (rc) {
		ckpt_store_close(s);
		return rc;
	}
	*ret_store = s;
	return 0;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		ckpt_sys.close(fd);
}

// A step that is not sealed is not cooled.
int ckpt_store_work_behind(struct ckpt_store *s)
{
	bool seals = s->writable && s->settings.seal, cools = seals && s->settings.hot != CKPT_HOT_ALL;
	struct ckpt_room *room = NULL;
	int rc = seals ? ckpt_sealer_start(s) : 0;

	if (!rc && cools)
		rc = ckpt_cooler_start(s);
	if (!rc && seals && s->settings.findings != CKPT_FINDINGS_OFF)
		rc = ckpt_examiner_start(s);
	if (!rc && s->writable)
		rc = ckpt_room_new(s, &room);
	__atomic_store_n(ckpt_room_of(s), room, __ATOMIC_RELEASE);
	if (!rc && s->writable)
		rc = ckpt_looker_start(s);
	if (!rc && s->writable && *ckpt_remote_of(s))
		rc = ckpt_fetch_start(s);
	if (!rc && s->writable)
		rc = ckpt_remote_start(*ckpt_remote_of(s));
	if (!rc && s->writable && *ckpt_remote_of(s))
		rc = ckpt_collector_new(s, &ckpt_collector_pace, ckpt_collector_of(s));
	if (!rc)
		rc = ckpt_limit_watch(*ckpt_limit_of(s));
	if (!rc && s->writable)
		rc = ckpt_evict_start(s);
	return rc || !s->writable || !*ckpt_remote_of(s) ? rc : ckpt_warmer_new(s, ckpt_warmer_of(s));
}

void ckpt_store_complete(struct ckpt_store *s, int64_t until_ns)
{
	ckpt_job_stop(ckpt_looker_of(s)->job);
	ckpt_looker_end(s, until_ns);
}

void ckpt_store_rest(struct ckpt_store *s)
{
	if (!s || !s->steps) // NULL: an open that failed before anything
		return;
	ckpt_reopen_wake_all(s); // nobody waits for the object store meanwhile
	ckpt_jobs_ending(s->jobs);
	ckpt_job_stop(ckpt_looker_of(s)->job);
	ckpt_collector_stop(*ckpt_collector_of(s));
	ckpt_warmer_stop(*ckpt_warmer_of(s));
	ckpt_job_stop(ckpt_evict_of(s)->job);
	ckpt_room_stop(*ckpt_room_of(s)); // it asks the remote, too
	ckpt_remote_stop(*ckpt_remote_of(s));
	ckpt_job_stop(ckpt_fetch_of(s)->job);
	ckpt_job_stop(*ckpt_sealer_of(s));
	ckpt_job_stop(*ckpt_cooler_of(s));
	ckpt_job_stop(ckpt_examiner_of(s)->job);
	ckpt_limit_stop(*ckpt_limit_of(s));
	ckpt_trash_stop(*ckpt_trash_of(s));
	LOCK_SCOPE(&s->lock);
	while (s->threads.running)
		ckpt_lock_wait(&s->threads.ended, &s->lock);
}

void ckpt_store_close(struct ckpt_store *s)
{
	if (!s)
		return;
	const int fds[] = {s->sessions_fd, s->records_fd, s->tree_fd, s->trash_fd, s->lock_fd, s->dirfd};

	ckpt_store_rest(s);
	ckpt_room_free(*ckpt_room_of(s));
	ckpt_trash_close(*ckpt_trash_of(s));
	ckpt_expiry_free(*ckpt_expiry_of(s));
	if (s->writable && s->journal) {
		ckpt_garbage_keep(s);
		(void)ckpt_journal_snapshot(s->journal, false);
	}
	ckpt_warmer_free(TAKE_PTR(*ckpt_warmer_of(s)));
	ckpt_limit_free(*ckpt_limit_of(s));
	ckpt_indexer_close(*ckpt_indexer_of(s));
	ckpt_chunk_cache_free(*ckpt_chunk_cache_of(s));
	ckpt_step_table_free(s->steps);
	ckpt_index_close(s->index);
	ckpt_collector_free(*ckpt_collector_of(s));
	ckpt_remote_close(*ckpt_remote_of(s));
	ckpt_journal_close(s->journal);
	ckpt_objects_close(s->objects);
	ckpt_errlog_close(s->errlog);
	ckpt_jobs_free(s->jobs);
	ckpt_holder_drop(s);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close_if_open(fds[i]);
	ckpt_settings_done(&s->settings);
	ckpt_pack_pins_free(*ckpt_pack_pins_of(s));
	ckpt_parts_done(store_parts, ARRAY_LEN(store_parts), s);
	free(s->path);
	pthread_cond_destroy(&s->threads.ended);
	ckpt_lock_done(&s->lock);
	ckpt_lock_done(&s->acts_lock);
	ckpt_lock_done(&s->refresh_lock);
	free(s);
}

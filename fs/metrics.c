#include "fs/metrics.h"

#include "core/base/util.h"
#include "core/index/indexer.h"
#include "core/save/commit.h"
#include "core/save/limit.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/trash.h"
#include "core/store/examiner.h"
#include "core/store/room.h"
#include "fs/abilities.h"
#include "fs/status.h"

#include <stdio.h>

#define NS_PER_S 1e9

struct counts {
	uint64_t steps, bytes; // committed
	uint64_t trash_steps, trash_bytes;
	uint64_t staged, committing, left;
	uint64_t staged_files, staged_bytes, open_writers; // of all three
};

static void count_step(struct counts *c, struct ckpt_step *step)
{
	struct ckpt_stage_usage u = {0};
	enum ckpt_step_state state;
	uint64_t bytes;

	ckpt_lock_take(&step->lock);
	state = step->state;
	bytes = step->version->is.bytes;
	ckpt_lock_drop(&step->lock);
	switch (state) {
	case CKPT_STEP_COMMITTED:
		c->steps++;
		c->bytes += bytes;
		return;
	case CKPT_STEP_DELETED:
		c->trash_steps++;
		c->trash_bytes += bytes;
		return;
	case CKPT_STEP_GONE:
		return;
	case CKPT_STEP_STAGED:
		c->staged++;
		break;
	case CKPT_STEP_COMMITTING:
		c->committing++;
		break;
	case CKPT_STEP_LEFT:
		c->left++;
		break;
	}
	(void)ckpt_stage_usage(step, &u); // gone meanwhile: nothing is what it has
	c->staged_files += u.files;
	c->staged_bytes += u.bytes;
	c->open_writers += u.open_writers;
}

static int count(struct ckpt_fs *fs, struct counts *ret_counts)
{
	struct ckpt_step **steps;
	size_t n;
	int rc = ckpt_step_list(fs->store, NULL, ~0u, &steps, &n);

	if (rc)
		return rc;
	for (size_t i = 0; i < n; i++)
		count_step(ret_counts, steps[i]);
	ckpt_step_list_free(steps, n);
	return 0;
}

// --- The text form ------------------------------------------------------------------------------------------------------

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(FILE *f, const char *name, const char *type, const char *help, uint64_t value)
{
	head(f, name, type, help);
	fprintf(f, "%s %llu\n", name, (unsigned long long)value);
}

static void real(FILE *f, const char *name, const char *type, const char *help, double value)
{
	head(f, name, type, help);
	fprintf(f, "%s %.6f\n", name, value);
}

static void label(FILE *f, const char *name, const char *value)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(value);

	fprintf(f, "%s=\"", name);
	for (const char *p = clean; p && *p; p++) {
		if (*p == '\\' || *p == '"')
			fputc('\\', f);
		if (*p == '\n')
			fputs("\\n", f);
		else
			fputc(*p, f);
	}
	fputc('"', f);
}

static void put_mount(FILE *f, struct ckpt_fs *fs)
{
	struct ckpt_mount_abilities can;

	ckpt_mount_abilities(&can);
	head(f, "ckptfs_build_info", "gauge", "The program that serves the mount; always 1.");
	fprintf(f, "ckptfs_build_info{version=\"%s\",format=\"%d\",", CKPT_VERSION, CKPT_STORE_FORMAT);
	label(f, "libfuse", can.libfuse);
	fputs("} 1\n", f);
	head(f, "ckptfs_mount_info", "gauge", "The mount and its store; always 1.");
	fputs("ckptfs_mount_info{", f);
	label(f, "mountpoint", fs->mountpoint);
	fputc(',', f);
	label(f, "store", fs->store->path);
	fprintf(f, ",id=\"%s\"} 1\n", fs->store->id);
	real(f, "ckptfs_start_time_seconds", "gauge", "When it was mounted, in seconds since 1970.",
	     (double)fs->started_ns / NS_PER_S);
	one(f, "ckptfs_passthrough", "gauge", "1: files are read and written by the kernel itself.", fs->passthrough);
	one(f, "ckptfs_io_uring", "gauge", "1: requests come by FUSE over io_uring.", fs->io_uring);
	one(f, "ckptfs_memory_bytes", "gauge", "Resident memory of the process.", status_memory_bytes());
	one(f, "ckptfs_known_inodes", "gauge", "Inodes that the kernel knows of.", node_count(fs));
}

static void put_steps(FILE *f, const struct counts *c)
{
	one(f, "ckptfs_steps", "gauge", "Committed steps.", c->steps);
	one(f, "ckptfs_step_bytes", "gauge", "Bytes of their files.", c->bytes);
	one(f, "ckptfs_trash_steps", "gauge", "Deleted steps that can be restored.", c->trash_steps);
	one(f, "ckptfs_trash_bytes", "gauge", "Bytes of their files.", c->trash_bytes);
	head(f, "ckptfs_sessions", "gauge", "Unfinished steps: staged, being committed, left over.");
	fprintf(f, "ckptfs_sessions{state=\"staged\"} %llu\n", (unsigned long long)c->staged);
	fprintf(f, "ckptfs_sessions{state=\"committing\"} %llu\n", (unsigned long long)c->committing);
	fprintf(f, "ckptfs_sessions{state=\"left\"} %llu\n", (unsigned long long)c->left);
	one(f, "ckptfs_session_files", "gauge", "Their files.", c->staged_files);
	one(f, "ckptfs_session_bytes", "gauge", "Bytes of their files.", c->staged_bytes);
	one(f, "ckptfs_open_writers", "gauge", "Handles open for writing in them.", c->open_writers);
}

static void put_work(FILE *f, struct ckpt_store *s)
{
	const struct ckpt_commits *ran = ckpt_commits_of(s);
	uint64_t commits, failed, bytes;
	struct ckpt_room_state room;
	double seconds, last_seconds;
	int64_t last_ns;

	ckpt_lock_take(&s->lock);
	commits = ran->commits;
	failed = ran->commits_failed;
	seconds = ran->commit_seconds;
	last_seconds = ran->last_commit.any ? ran->last_commit.seconds : 0;
	last_ns = ran->last_commit.any ? ran->last_commit.at_ns : 0;
	ckpt_lock_drop(&s->lock);
	one(f, "ckptfs_commits_total", "counter", "Commits that succeeded.", commits);
	one(f, "ckptfs_commits_failed_total", "counter", "Commits that failed.", failed);
	real(f, "ckptfs_commit_seconds_total", "counter", "Duration of the commits that succeeded.", seconds);
	real(f, "ckptfs_last_commit_seconds", "gauge", "Duration of the last commit; 0 before the first.",
	     last_seconds);
	real(f, "ckptfs_last_commit_timestamp_seconds", "gauge",
	     "Time of the last commit, in seconds since 1970; 0 before the first.", (double)last_ns / NS_PER_S);
	one(f, "ckptfs_errors_total", "counter", "Lines in .ckptfs/errors.", ckpt_errlog_failures(s->errlog));
	one(f, "ckptfs_findings_steps_total", "counter", "Steps whose arrays were looked at.",
	    __atomic_load_n(&ckpt_examiner_of(s)->looked, __ATOMIC_RELAXED));
	one(f, "ckptfs_findings_trouble_steps_total", "counter", "Of these, steps with trouble in their arrays.",
	    __atomic_load_n(&ckpt_examiner_of(s)->with_trouble, __ATOMIC_RELAXED));
	if (!ckpt_limit_measure(s, &bytes))
		one(f, "ckptfs_work_bytes", "gauge", "Disk space of unfinished work.", bytes);
	if (s->settings.work_limit != CKPT_LIMIT_NONE)
		one(f, "ckptfs_work_limit_bytes", "gauge", "What it may.", s->settings.work_limit);
	if (!ckpt_room_measure(s, &room)) {
		one(f, "ckptfs_free_bytes", "gauge", "Free bytes of the disk.", room.free_bytes);
		one(f, "ckptfs_reserve_bytes", "gauge", "Bytes that are kept free by removing trash.",
		    room.reserve_bytes);
		one(f, "ckptfs_trash_room_bytes", "gauge", "Disk space of deleted steps.", room.trash_bytes);
		one(f, "ckptfs_short_of_room", "gauge", "1: less than the reserve is free, and no trash is left.",
		    room.is_short);
	}
	one(f, "ckptfs_index_queue", "gauge", "Manifests that wait to be put into the index.",
	    ckpt_indexer_pending(*ckpt_indexer_of(s)));
	one(f, "ckptfs_removal_queue", "gauge", "Files that wait for removal in the background.",
	    ckpt_trash_pending(*ckpt_trash_of(s)));
}

char *metrics_text(struct ckpt_fs *fs)
{
	struct counts c = {0};
	char *text = NULL;
	size_t len;
	FILE *f = count(fs, &c) ? NULL : open_memstream(&text, &len);

	if (!f)
		return NULL;
	put_mount(f, fs);
	put_steps(f, &c);
	put_work(f, fs->store);
	if (fclose(f))
		free(TAKE_PTR(text));
	return text;
}

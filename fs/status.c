#include "fs/status.h"

#include "core/remote/remote.h"
#include "core/remote/warmer.h"
#include "core/base/clock.h"
#include "core/base/util.h"
#include "core/index/indexer.h"
#include "core/profile/profile.h"
#include "core/save/commit.h"
#include "core/save/limit.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/folders.h"
#include "core/step/trash.h"
#include "core/store/room.h"
#include "core/tier/cooler.h"
#include "core/tier/sealer.h"
#include "fs/decider.h"
#include "fs/hook.h"

#include <jansson.h>
#include <stdio.h>

static json_t *time_json(int64_t ns)
{
	char text[CKPT_TIME_LEN + 1];

	if (!ns)
		return json_null();
	ckpt_time_format(ns, text);
	return json_string(text);
}

static json_t *text_json(const char *text)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(text);

	return clean ? json_string(clean) : NULL;
}

// As `ls` calls it; null for a left session that does not say.
static json_t *name_json(const struct ckpt_folders *folders, struct ckpt_step *step)
{
	CLEANUP_FREE char *text = NULL;
	struct ckpt_step_name now;

	ckpt_step_name(step, &now);
	text = *now.name ? ckpt_folders_name(folders, now.folder_id, now.name) : NULL;
	return text ? text_json(text) : json_null();
}

// What will complete it.
static json_t *awaits_json(const struct ckpt_store *s, const char *name)
{
	const char *act = ckpt_profile_awaits(s->settings.profiles, name);

	return act ? json_string(act) : json_sprintf("%s in it, or `ckptfs commit`", s->settings.marker);
}

static json_t *session_json(const struct ckpt_folders *folders, struct ckpt_step *step)
{
	struct ckpt_step_name now;
	struct ckpt_stage_usage u = {0};
	bool left = ckpt_step_state(step) == CKPT_STEP_LEFT;

	(void)ckpt_stage_usage(step, &u); // gone meanwhile: nothing is what it has
	ckpt_step_name(step, &now);
	return json_pack("{s:o, s:s, s:o, s:o, s:I, s:I, s:i, s:s?, s:s, s:o}", "name", name_json(folders, step), "id",
			 step->session, "began_at", time_json(ckpt_staging_of(step)->began_ns), "changed_at",
			 time_json(u.changed_ns), "files", (json_int_t)u.files, "bytes", (json_int_t)u.bytes,
			 "open_writers", (int)u.open_writers, "profile", ckpt_profile_of_name(now.name), "state",
			 ckpt_stage_state_name(step), "awaits",
			 left ? json_null() : awaits_json(step->store, now.name));
}

static json_t *sessions(struct ckpt_fs *fs, const struct ckpt_folders *folders, unsigned states)
{
	struct ckpt_step **steps;
	json_t *list = json_array();
	size_t count;

	if (ckpt_step_list(fs->store, NULL, states, &steps, &count))
		return list;
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, session_json(folders, steps[i]));
	ckpt_step_list_free(steps, count);
	return list;
}

#define UNFINISHED (1u << CKPT_STEP_STAGED | 1u << CKPT_STEP_COMMITTING | 1u << CKPT_STEP_LEFT)

static json_t *names_of(struct ckpt_fs *fs, const struct ckpt_folders *folders, unsigned states)
{
	struct ckpt_step **steps;
	json_t *list = json_array();
	size_t count;

	if (ckpt_step_list(fs->store, NULL, states, &steps, &count))
		return list;
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, name_json(folders, steps[i]));
	ckpt_step_list_free(steps, count);
	return list;
}

// Its name as it was committed, or as it is now where the step is still there.
static json_t *name_of_commit(struct ckpt_fs *fs, const struct ckpt_folders *folders, const char *name, int64_t at_ns)
{
	struct ckpt_step **steps, *found = NULL;
	json_t *text;
	size_t count;

	if (ckpt_step_list(fs->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		return json_string(name);
	for (size_t i = 0; i < count && !found; i++) {
		ckpt_lock_take(&steps[i]->lock);
		if (steps[i]->version->is.committed_ns == at_ns && !strcmp(steps[i]->version->is.name, name))
			found = steps[i];
		ckpt_lock_drop(&steps[i]->lock);
	}
	text = found ? name_json(folders, found) : json_string(name);
	ckpt_step_list_free(steps, count);
	return text;
}

static json_t *last_commit(struct ckpt_fs *fs, const struct ckpt_folders *folders)
{
	char name[sizeof(ckpt_commits_of(fs->store)->last_commit.name)];
	double seconds;
	int64_t at_ns;
	bool any;

	ckpt_lock_take(&fs->store->lock);
	any = ckpt_commits_of(fs->store)->last_commit.any;
	memcpy(name, ckpt_commits_of(fs->store)->last_commit.name, sizeof(name));
	at_ns = ckpt_commits_of(fs->store)->last_commit.at_ns;
	seconds = ckpt_commits_of(fs->store)->last_commit.seconds;
	ckpt_lock_drop(&fs->store->lock);
	if (!any)
		return json_null();
	return json_pack("{s:o, s:o, s:f}", "step", name_of_commit(fs, folders, name, at_ns), "at", time_json(at_ns),
			 "seconds", seconds);
}

static json_t *last_error(struct ckpt_fs *fs)
{
	CLEANUP_FREE char *message = NULL;
	int64_t at;

	if (ckpt_errlog_last(fs->store->errlog, &at, &message) || !message)
		return json_null();
	return json_pack("{s:o, s:o}", "at", time_json(at), "message", text_json(message));
}

uint64_t status_memory_bytes(void)
{
	unsigned long long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f) {
		if (fscanf(f, "%llu %llu", &size, &resident) != 2)
			resident = 0;
		fclose(f);
	}
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static json_t *failed_uploads(struct ckpt_fs *fs, const struct ckpt_folders *folders)
{
	CLEANUP(ckpt_failure_list_done) struct ckpt_failure_list failed;
	json_t *list = json_array();

	(void)ckpt_remote_failures(*ckpt_remote_of(fs->store), &failed); // without memory there are none
	for (size_t i = 0; i < failed.count; i++) {
		struct ckpt_step *step = ckpt_step_of_session(fs->store, failed.failures[i].session);

		if (step)
			json_array_append_new(list,
					      json_pack("{s:o, s:s, s:s}", "step", name_json(folders, step), "session",
							step->session, "error", strerror(-failed.failures[i].error)));
		ckpt_step_unref(step);
	}
	return list;
}

static json_t *status(struct ckpt_fs *fs)
{
	struct ckpt_folders folders = {0};
	struct ckpt_remote_queue queue;
	int64_t preempted_at;
	uint64_t sealing_files, sealing_bytes, cooling_steps, cooling_bytes, work_bytes, work_limit;
	json_t *s;

	if (ckpt_folders_read(fs->store, &folders))
		return NULL;
	preempted_at = decider_preempted_at(fs->decider);
	ckpt_sealer_pending(fs->store, &sealing_files, &sealing_bytes);
	ckpt_cooler_pending(fs->store, &cooling_steps, &cooling_bytes);
	ckpt_remote_queue(*ckpt_remote_of(fs->store), &queue);
	work_limit = fs->store->settings.work_limit;
	s = json_pack("{s:o, s:s, s:s, s:o, s:b, s:s?, s:b, s:s, s:o, s:{s:I, s:I}, s:{s:I, s:I}, s:{s:I, s:I, s:I, "
		      "s:o, s:n, s:o}, "
		      "s:{s:I}, s:I, s:I, "
		      "s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:b, s:b, s:o}",
		      "store", text_json(fs->store->path), "id", fs->store->id, "version", CKPT_VERSION, "mountpoint",
		      text_json(fs->mountpoint), "passthrough", fs->passthrough, "passthrough_why",
		      fs->passthrough ? NULL : fs->passthrough_why, "io_uring", fs->io_uring, "durability",
		      fs->store->settings.durability == CKPT_DURABILITY_REMOTE ? "remote" : "local", "committing",
		      names_of(fs, &folders, 1u << CKPT_STEP_COMMITTING), "sealing", "files", (json_int_t)sealing_files,
		      "bytes", (json_int_t)sealing_bytes, "cooling", "steps", (json_int_t)cooling_steps, "bytes",
		      (json_int_t)cooling_bytes, "uploading", "steps", (json_int_t)queue.steps, "files",
		      (json_int_t)queue.files, "bytes", (json_int_t)queue.bytes, "failed", failed_uploads(fs, &folders),
		      "oldest_s", "unreachable_s",
		      queue.unreachable_ns ? json_real((double)queue.unreachable_ns / 1e9) : json_null(), "warming",
		      "files", (json_int_t)ckpt_warmer_pending(*ckpt_warmer_of(fs->store)), "indexing",
		      (json_int_t)ckpt_indexer_pending(*ckpt_indexer_of(fs->store)), "removing",
		      (json_int_t)ckpt_trash_pending(*ckpt_trash_of(fs->store)), "on_commit",
		      (json_int_t)hooks_pending(fs->hooks), "last_commit", last_commit(fs, &folders), "last_error",
		      last_error(fs), "memory_bytes", (json_int_t)status_memory_bytes(), "known_inodes",
		      (json_int_t)node_count(fs), "staged", sessions(fs, &folders, UNFINISHED), "work_bytes",
		      ckpt_limit_measure(fs->store, &work_bytes) ? json_null() : json_integer((json_int_t)work_bytes),
		      "work_limit", work_limit == CKPT_LIMIT_NONE ? json_null() : json_integer((json_int_t)work_limit),
		      "saving_in_progress", (int)ckpt_stage_is_saving(fs->store, NULL), "preempted", preempted_at >= 0,
		      "preempted_at", preempted_at > 0 ? json_integer(preempted_at) : json_null());
	if (s)
		json_object_set_new(s, "room", ckpt_room_json(fs->store, json_object_get(s, "staged")));
	ckpt_folders_done(&folders);
	return s;
}

char *status_json(struct ckpt_fs *fs)
{
	json_t *s = status(fs);
	char *text = s ? json_dumps(s, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL, *line = NULL;

	json_decref(s);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

static void line_of_session(FILE *f, const json_t *s)
{
	const json_t *name = json_object_get(s, json_is_string(json_object_get(s, "name")) ? "name" : "id");

	const char *awaits = json_string_value(json_object_get(s, "awaits"));

	fprintf(f,
		"  %s  %" JSON_INTEGER_FORMAT " files, %" JSON_INTEGER_FORMAT " bytes, %" JSON_INTEGER_FORMAT
		" open for writing, %s%s%s\n",
		json_string_value(name), json_integer_value(json_object_get(s, "files")),
		json_integer_value(json_object_get(s, "bytes")), json_integer_value(json_object_get(s, "open_writers")),
		json_string_value(json_object_get(s, "state")), awaits ? ", awaits " : "", awaits ? awaits : "");
}

char *status_text(struct ckpt_fs *fs)
{
	json_t *s = status(fs), *staged = json_object_get(s, "staged"), *session;
	const json_t *last = json_object_get(s, "last_commit"), *error = json_object_get(s, "last_error");
	char *text = NULL;
	size_t len, i;
	FILE *f = open_memstream(&text, &len);

	if (f) {
		fprintf(f, "store        %s\n", fs->store->path);
		fprintf(f, "passthrough  %s\n", fs->passthrough ? "yes" : fs->passthrough_why);
		fprintf(f, "io_uring     %s\n", fs->io_uring ? "yes" : "no");
		if (json_is_object(last))
			fprintf(f, "last commit  %s at %s, %.3f s\n", json_string_value(json_object_get(last, "step")),
				json_string_value(json_object_get(last, "at")),
				json_real_value(json_object_get(last, "seconds")));
		if (json_is_object(error))
			fprintf(f, "last error   %s\n", json_string_value(json_object_get(error, "message")));
		if (json_is_integer(json_object_get(s, "work_limit")))
			fprintf(f, "work         %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " bytes\n",
				json_integer_value(json_object_get(s, "work_bytes")),
				json_integer_value(json_object_get(s, "work_limit")));
		ckpt_room_print(f, json_object_get(s, "room"));
		fprintf(f, "unfinished   %zu\n", json_array_size(staged));
		json_array_foreach(staged, i, session) line_of_session(f, session);
		if (fclose(f)) {
			free(text);
			text = NULL;
		}
	}
	json_decref(s);
	return text;
}

char *status_sessions_json(struct ckpt_fs *fs)
{
	struct ckpt_folders folders = {0};
	json_t *reply;
	char *text;

	if (ckpt_folders_read(fs->store, &folders))
		return NULL;
	reply = json_pack("{s:b, s:o}", "ok", 1, "sessions", sessions(fs, &folders, UNFINISHED));
	text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
	ckpt_folders_done(&folders);
	json_decref(reply);
	return text;
}

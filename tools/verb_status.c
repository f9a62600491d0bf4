#include "core/remote/remote.h"
#include "core/save/limit.h"
#include "core/step/holder.h"
#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/policy/should_save.h"
#include "core/step/ask.h"
#include "core/step/errlog.h"
#include "core/step/mounts.h"
#include "core/store/room.h"
#include "tools/output.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <stdio.h>
#include <sys/stat.h>

// --- The document -------------------------------------------------------------------------------------------------------

static json_t *newest_commit(struct ckpt_listing *l)
{
	struct ckpt_step **steps, *newest = NULL;
	CLEANUP_FREE char *name = NULL;
	json_t *commit = json_null();
	size_t count;

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		if (!newest || steps[i]->born.sequence > newest->born.sequence)
			newest = steps[i];
	if (newest) {
		CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(newest);

		name = ckpt_listing_name(l, newest->folder_id, newest->name);
		commit = json_pack("{s:o, s:o, s:n}", "step", ckpt_json_text(name), "at",
				   ckpt_json_time(v->is.committed_ns), "seconds");
	}
	ckpt_step_list_free(steps, count);
	return ckpt_need(commit);
}

// The last line of the log, which begins with its time; the log itself only counts what was added since it was opened.
static json_t *newest_error(struct ckpt_listing *l)
{
	CLEANUP_FREE char *text = NULL;
	char *line, *end;
	int64_t at_ns;

	if (ckpt_errlog_text(l->store->errlog, &text) || !*text)
		return json_null();
	end = strrchr(text, '\n');
	if (end)
		*end = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	end = strchr(line, '\t');
	if (end)
		*end = '\0';
	if (ckpt_time_parse(line, false, &at_ns))
		at_ns = 0;
	if (end)
		*end = '\t';
	return ckpt_need(json_pack("{s:o, s:o}", "at", ckpt_json_time(at_ns), "message", ckpt_json_text(line)));
}

static json_t *limit_json(uint64_t limit)
{
	return limit == CKPT_LIMIT_NONE ? json_null() : ckpt_need(json_integer((json_int_t)limit));
}

static json_t *work_bytes(const struct ckpt_listing *l)
{
	uint64_t bytes;

	return ckpt_limit_measure(l->store, &bytes) ? json_null() : ckpt_need(json_integer((json_int_t)bytes));
}

// What a store says of itself when nobody serves it: nothing is under way then.
static int status_at_rest(const char *store, json_t **ret_status)
{
	struct ckpt_listing l;
	struct ckpt_remote_queue queue;
	json_t *staged = NULL;
	int64_t preempted_at;
	int rc = ckpt_listing_open(store, CKPT_STORE_READ, &l);

	if (rc)
		return rc;
	preempted_at = ckpt_should_save_preempted_at(l.store);
	ckpt_remote_queue(*ckpt_remote_of(l.store), &queue);
	rc = ckpt_rows_sessions(&l, &staged);
	if (!rc)
		*ret_status = ckpt_need(
			json_pack("{s:o, s:s, s:n, s:s, s:[], s:{s:i, s:i}, s:{s:i, s:i}, s:{s:I, s:I, s:I, s:[], s:n, "
				  "s:n}, s:{s:i}, s:i, "
				  "s:i, "
				  "s:i, "
				  "s:o, "
				  "s:o, "
				  "s:n, s:o, s:o, s:o, s:b, s:b, s:o}",
				  "store", ckpt_json_text(store), "version", CKPT_VERSION, "passthrough", "durability",
				  l.store->settings.durability == CKPT_DURABILITY_REMOTE ? "remote" : "local",
				  "committing", "sealing", "files", 0, "bytes", 0, "cooling", "steps", 0, "bytes", 0,
				  "uploading", "steps", (json_int_t)queue.steps, "files", (json_int_t)queue.files,
				  "bytes", (json_int_t)queue.bytes, "failed", "oldest_s", "unreachable_s", "warming",
				  "files", 0, "indexing", 0, "removing", 0, "on_commit", 0, "last_commit",
				  newest_commit(&l), "last_error", newest_error(&l), "memory_bytes", "staged", staged,
				  "work_bytes", work_bytes(&l), "work_limit", limit_json(l.store->settings.work_limit),
				  "saving_in_progress", 0, "preempted", preempted_at >= 0, "preempted_at",
				  preempted_at > 0 ? json_integer(preempted_at) : json_null()));
	if (!rc)
		json_object_set_new(*ret_status, "room", ckpt_room_json(l.store, staged));
	ckpt_listing_close(&l);
	return rc;
}

static int status_of(const char *store, json_t **ret_status)
{
	CLEANUP_FREE char *text = NULL;
	json_t *reply;
	int rc = ckpt_ask(store, "{\"verb\":\"status\"}", CKPT_SOCKET_TIMEOUT_S, &text);

	if (rc == -ENOENT)
		return status_at_rest(store, ret_status);
	if (rc)
		return ckpt_fail(store, "look at the mount's log",
				 "the process that has it mounted does not answer: %s", strerror(-rc));
	reply = json_loads(text, 0, NULL);
	if (!json_is_object(reply)) {
		json_decref(reply);
		return ckpt_fail(store, NULL, "the reply of the process that has it mounted is not understood");
	}
	json_object_del(reply, "ok");
	*ret_status = reply;
	return 0;
}

// --- For people -------------------------------------------------------------------------------------------------------

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static const char *local_time(const char *rfc3339, char text[CKPT_TIME_MAX])
{
	int64_t ns;

	return rfc3339 && !ckpt_time_parse(rfc3339, false, &ns) ? ckpt_time_local(ns, text) : "-";
}

// A mount whose process has gone.
static bool is_dead(const char *mountpoint)
{
	struct stat st;

	return stat(mountpoint, &st) && errno == ENOTCONN;
}

static void print_mounts(const char *store)
{
	struct ckpt_mounts mounts = {0};
	struct ckpt_holder h = {0};
	char since[CKPT_TIME_MAX];
	bool held = !ckpt_store_holder(store, &h), any = held;

	if (held && h.mountpoint)
		printf("mounted      %s by pid %d on %s since %s\n", h.mountpoint, h.pid, h.host,
		       ckpt_time_local(h.since_ns, since));
	else if (held)
		printf("in use       by pid %d on %s since %s\n", h.pid, h.host, ckpt_time_local(h.since_ns, since));
	ckpt_mounts_read(&mounts);
	for (size_t i = 0; i < mounts.count; i++)
		if (!strcmp(mounts.at[i].store, store) &&
		    !(held && h.mountpoint && !strcmp(h.mountpoint, mounts.at[i].mountpoint))) {
			printf("mounted      %s%s\n", mounts.at[i].mountpoint,
			       is_dead(mounts.at[i].mountpoint) ? " (dead: `ckptfs umount` removes it)"
			       : mounts.at[i].readonly          ? " (read-only)"
								: "");
			any = true;
		}
	if (!any)
		puts("mounted      no");
	ckpt_mounts_done(&mounts);
	ckpt_holder_done(&h);
}

// A line of the log: fields with tabs between them.
static void print_error(const char *line)
{
	CLEANUP_FREE char *copy = ckpt_text("%s", line ? line : "");
	const char *hint = "";

	for (char *tab = copy; (tab = strchr(tab, '\t'));) {
		bool last = !strchr(tab + 1, '\t');

		*tab = last ? '\0' : ' ';
		if (last)
			hint = tab + 1;
	}
	printf("last error   %s%s%s\n", copy, *hint ? "; " : "", hint);
}

// A step that is being saved, or that nobody has completed: how far it is, and what for it waits.
static void print_staged(const json_t *row)
{
	const char *name = json_is_string(row) ? json_string_value(row) : text_of(row, "name"), *began, *waits;
	uint64_t bytes = (uint64_t)json_integer_value(json_object_get(row, "bytes"));
	long long files = json_integer_value(json_object_get(row, "files")),
		  writers = json_integer_value(json_object_get(row, "open_writers"));
	char size[CKPT_SIZE_MAX], age[CKPT_DURATION_MAX];
	int64_t began_ns, age_ns = 0;

	printf("staged       %s (%s)", name ? name : "(unnamed)",
	       text_of(row, "state") ? text_of(row, "state") : "live");
	began = text_of(row, "began_at");
	if (began && !ckpt_time_parse(began, false, &began_ns)) {
		age_ns = MAX(ckpt_time_between(began_ns, ckpt_sys.now_ns()), 0);
		printf(" for %s", ckpt_duration_text(age_ns, age));
	}
	printf(": %lld file%s, %s", files, files == 1 ? "" : "s", ckpt_size_text(bytes, size));
	if (writers)
		printf(", %lld open for writing", writers);
	if (writers && age_ns > 0)
		printf(", %s/s", ckpt_size_text((uint64_t)((double)bytes / ((double)age_ns / 1e9)), size));
	waits = text_of(row, "awaits");
	puts(waits ? "" : "; not complete yet");
	if (waits)
		printf("             waits for %s\n", waits);
}

static void print_queue(const json_t *uploading)
{
	json_int_t steps = json_integer_value(json_object_get(uploading, "steps"));
	json_int_t files = json_integer_value(json_object_get(uploading, "files"));
	const json_t *unreachable = json_object_get(uploading, "unreachable_s"), *failure;
	char size[CKPT_SIZE_MAX], since[CKPT_DURATION_MAX];
	size_t i;

	if (steps)
		printf("uploading    %lld step%s, %s\n", (long long)steps, steps == 1 ? "" : "s",
		       ckpt_size_text((uint64_t)json_integer_value(json_object_get(uploading, "bytes")), size));
	if (files)
		printf("uploading    %lld plain file%s\n", (long long)files, files == 1 ? "" : "s");
	json_array_foreach(json_object_get(uploading, "failed"), i, failure)
		printf("             %s cannot be uploaded: %s\n", text_of(failure, "step"), text_of(failure, "error"));
	if (json_is_number(unreachable))
		printf("remote       does not answer for %s\n",
		       ckpt_duration_text((int64_t)(json_number_value(unreachable) * 1e9), since));
}

static void print_status(const char *store, const json_t *s)
{
	const json_t *passthrough = json_object_get(s, "passthrough"), *memory = json_object_get(s, "memory_bytes");
	const json_t *commit = json_object_get(s, "last_commit"), *error = json_object_get(s, "last_error");
	const json_t *sealing = json_object_get(s, "sealing"), *cooling = json_object_get(s, "cooling"),
		     *warming = json_object_get(s, "warming"), *row;
	const json_t *seconds = json_object_get(commit, "seconds");
	const json_t *limit = json_object_get(s, "work_limit");
	char size[CKPT_SIZE_MAX], most[CKPT_SIZE_MAX], at[CKPT_TIME_MAX], took[CKPT_DURATION_MAX];
	size_t i;

	printf("store        %s\n", store);
	print_mounts(store);
	if (json_is_boolean(passthrough))
		printf("passthrough  %s\n", json_is_true(passthrough) ? "yes" : "no: `ckptfs doctor` says why");
	json_array_foreach(json_object_get(s, "committing"), i, row)
		printf("committing   %s\n", json_is_string(row) ? json_string_value(row) : text_of(row, "name"));
	if (json_integer_value(json_object_get(sealing, "files")))
		printf("sealing      %lld files\n", json_integer_value(json_object_get(sealing, "files")));
	if (json_integer_value(json_object_get(cooling, "steps")))
		printf("cooling      %lld steps\n", json_integer_value(json_object_get(cooling, "steps")));
	if (json_integer_value(json_object_get(warming, "files")))
		printf("warming      %lld files\n", json_integer_value(json_object_get(warming, "files")));
	print_queue(json_object_get(s, "uploading"));
	if (json_is_object(commit))
		printf("last commit  %s at %s", text_of(commit, "step"), local_time(text_of(commit, "at"), at));
	if (json_is_number(seconds))
		printf(" in %s", ckpt_duration_text((int64_t)(json_number_value(seconds) * 1e9), took));
	if (json_is_object(commit))
		putchar('\n');
	if (json_is_object(error))
		print_error(text_of(error, "message"));
	if (json_is_integer(memory))
		printf("memory       %s\n", ckpt_size_text((uint64_t)json_integer_value(memory), size));
	if (json_is_integer(limit))
		printf("work         %s of %s (work_limit)\n",
		       ckpt_size_text((uint64_t)json_integer_value(json_object_get(s, "work_bytes")), size),
		       ckpt_size_text((uint64_t)json_integer_value(limit), most));
	ckpt_room_print(stdout, json_object_get(s, "room"));
	json_array_foreach(json_object_get(s, "staged"), i, row) print_staged(row);
}

static int show(const char *store)
{
	json_t *status = NULL;
	int rc = status_of(store, &status);

	if (rc)
		return rc;
	if (ckpt_output.json) {
		ckpt_output_json(status);
		return 0;
	}
	print_status(store, status);
	json_decref(status);
	return 0;
}

// --- The verb -----------------------------------------------------------------------------------------------------------

// Without a STORE to be found: the mounts of this machine. JSON is of one store, so there must be one then.
static int show_all(void)
{
	struct ckpt_mounts mounts;
	int rc = ckpt_mounts_read(&mounts), status = 0;

	if (rc)
		return ckpt_fail_errno("/proc/self/mountinfo", NULL, rc);
	if (mounts.count > 1 && ckpt_output.json)
		status = ckpt_usage("STORE", "name one of them", "there are %zu mounts here", mounts.count);
	else if (!mounts.count)
		status = ckpt_usage("STORE", "name it, or set CKPTFS_STORE, or go into a mount",
				    "none given, and nothing is mounted here");
	for (size_t i = 0; i < mounts.count && status != CKPT_EXIT_USAGE; i++) {
		if (i)
			putchar('\n');
		status |= show(mounts.at[i].store);
	}
	ckpt_mounts_done(&mounts);
	return status;
}

static bool in_a_mount(void)
{
	CLEANUP_FREE char *cwd = getcwd(NULL, 0);
	struct ckpt_mounts mounts;
	bool in = false;

	if (cwd && !ckpt_mounts_read(&mounts)) {
		in = ckpt_mounts_find(&mounts, cwd, NULL);
		ckpt_mounts_done(&mounts);
	}
	return in;
}

int ckpt_verb_status(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE]",
		.doc = "Shows where a store is mounted, the saves under way and what they wait for, the "
		       "last commit, the last error, and the room. Without STORE: all mounts.\v"
		       "Examples:\n"
		       "  ckptfs status /ckpt\n"
		       "  ckptfs status",
		.operands_max = 1,
	};
	const char *env = getenv("CKPTFS_STORE");
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	if (!words.count && !(env && *env) && !in_a_mount())
		return show_all();
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	rc = o.count ? ckpt_usage(o.steps[0], "usage: ckptfs status [STORE]", "not a store") : show(o.store);
	ckpt_operand_done(&o);
	return rc;
}

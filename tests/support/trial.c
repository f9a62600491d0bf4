#include "tests/support/trial.h"

#include "tests/support/trial_acts.h"

#include "core/index/indexer.h"
#include "core/record/event.h"
#include "core/save/change.h"
#include "core/save/reopen.h"
#include "core/save/stage.h"
#include "core/save/version.h"
#include "core/step/amending.h"
#include "core/step/follow.h"
#include "core/step/holder.h"
#include "core/step/removal.h"
#include "core/store/open.h"
#include "tests/support/staged.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/profile/format.h"
#include "core/profile/profile.h"
#include "core/record/metadata.h"
#include "core/save/amend.h"
#include "core/save/convert.h"
#include "core/save/delete.h"
#include "core/save/move.h"
#include "core/save/pin.h"
#include "core/save/remove.h"
#include "core/save/replace.h"
#include "core/save/share.h"
#include "core/step/attributes.h"
#include "core/step/folders.h"
#include "core/step/latest.h"
#include "core/step/reopened.h"
#include "core/step/torn.h"
#include "core/store/load.h"

#include <fcntl.h>
#include <stdio.h>

// --- Preparing ---------------------------------------------------------------------------------------------------------

void ckpt_trial_prepare_store(struct ckpt_trial *t, unsigned arg)
{
	(void)arg;
	ckpt_save_init(t->dir);
	t->s = ckpt_save_open(t->dir);
}

// A committed step of save.h.
void ckpt_trial_prepare_step(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_store(t, arg);
	t->step = ckpt_save_one(t->s, arg);
}

// One as a client has left it, and its staged files.
static void nothing_to_write_back(void *arg, uint64_t ino)
{
	(void)arg;
	(void)ino;
}

static void prepare_staged(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_store(t, arg);
	t->s->calls.write_back = nothing_to_write_back; // as in a mount
	ck_ok(ckpt_save_begin(t->s, arg, &t->step));
	ckpt_save_write(t->step, arg, &t->holder);
}

// A file that a killed writer left beside those that are whole.
static void prepare_torn(struct ckpt_trial *t, unsigned arg)
{
	int fd;

	prepare_staged(t, arg);
	fd = ckpt_staged_put(t->step, "torn", "half");
	ckpt_torn_mark(fd);
	close(fd);
}

static void prepare_two_staged(struct ckpt_trial *t, unsigned arg)
{
	prepare_staged(t, arg);
	t->other = ckpt_staged_begin(t->s, "whole");
}

static void prepare_folder(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_store(t, arg);
	ck_ok(ckpt_sys.mkdir(t->s->tree_fd, ckpt_save_steps[arg].folder, 0755));
}

static void prepare_late(struct ckpt_trial *t, unsigned arg)
{
	int fd;

	ckpt_trial_prepare_store(t, arg);
	t->step = ckpt_staged_begin(t->s, "1000");
	close(ckpt_staged_put(t->step, "whole", "whole"));
	fd = ckpt_staged_put(t->step, "late", "la");
	ckpt_staged_writer(t->step, &t->writer, fd);
	t->writer.late = true;
	t->fd = fd;
}

static void prepare_deleted(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_step(t, arg);
	ck_ok(ckpt_delete(t->step));
}

static void prepare_reopened(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_step(t, arg);
	t->other = t->step;
	ck_ok(ckpt_reopen(t->other, &t->step));
}

static void end_store(struct ckpt_trial *t)
{
	ckpt_step_unref(TAKE_PTR(t->step));
	ckpt_step_unref(TAKE_PTR(t->other));
	ckpt_store_close(TAKE_PTR(t->s));
}

static void prepare_left(struct ckpt_trial *t, unsigned arg)
{
	prepare_staged(t, arg);
	end_store(t);
	t->s = ckpt_save_open(t->dir);
	t->step = ckpt_save_set_aside(t->s);
}

// 0, -errno: acts write, too.
int ckpt_trial_write_file(int dirfd, const char *name, const char *text)
{
	int fd = ckpt_sys.open(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644), rc;

	if (fd < 0)
		return fd;
	rc = (int)ckpt_sys.pwrite(fd, text, strlen(text), 0);
	ckpt_sys.close(fd);
	return MIN(rc, 0);
}

static void prepare_plain_folder(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_store(t, arg);
	ck_ok(ckpt_sys.mkdir(t->s->tree_fd, "run", 0755));
	ck_ok(ckpt_sys.mkdir(t->s->tree_fd, "run/sub", 0755));
	ck_ok(ckpt_trial_write_file(t->s->tree_fd, "run/sub/file", "plain"));
}

// Somebody else's, in a folder that gives its group on.
static int begin_draft(struct ckpt_trial *t)
{
	const struct ckpt_draft_origin origin = {.path = "models/best.pt",
						 .name = "best.pt",
						 .folder_id = "",
						 .uid = 4711,
						 .gid = 4711,
						 .pid = getpid(),
						 .folder_fd = t->s->tree_fd};

	return ckpt_draft_begin(t->s, &origin, &t->draft);
}

static int write_draft(struct ckpt_trial *t)
{
	return ckpt_trial_write_file(t->draft.dirfd, t->draft.name, "new");
}

static void prepare_group(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_store(t, arg);
	ck_assert_int_eq(fchmod(t->s->tree_fd, 02755), 0);
}

static void prepare_draft(struct ckpt_trial *t, unsigned arg)
{
	prepare_group(t, arg);
	ck_ok(begin_draft(t));
	ck_ok(write_draft(t));
}

// All that an open may find, and the store closed.
static void prepare_much(struct ckpt_trial *t, unsigned arg)
{
	static const char snapshot[] = "snap/0000000000000001";
	struct ckpt_step *step;
	int fd;

	prepare_plain_folder(t, arg);
	ckpt_step_unref(ckpt_save_one(t->s, CKPT_SAVE_LARGE));
	step = ckpt_save_one(t->s, 4);
	ck_ok(ckpt_move(step, "", "7"));
	ckpt_step_unref(step);
	step = ckpt_save_one(t->s, 0);
	ck_ok(ckpt_commit_metadata(step, "{\"temporary\":true}"));
	t->other = ckpt_save_one(t->s, 3);
	ck_ok(ckpt_delete(t->other));
	ck_ok(begin_draft(t));
	ck_ok(write_draft(t));
	ckpt_draft_close(&t->draft);
	ck_ok(ckpt_stage_begin(t->s, "", "1.tmp", 0755, getuid(), getgid(), getpid(), &t->step));
	ckpt_step_unref(t->step);
	ck_ok(ckpt_reopen(step, &t->step));
	ckpt_step_unref(step);
	ck_ok(ckpt_convert_prepare(t->s, t->s->tree_fd, "", "run", &step));
	ck_ok(ckpt_convert(step, t->s->tree_fd));
	ckpt_step_unref(step);
	if (arg) { // a snapshot that cannot be read
		fd = ckpt_sys.open(t->s->dirfd, snapshot, O_WRONLY | O_CREAT | O_EXCL, 0600);
		ck_ok(fd);
		close(fd);
	}
	end_store(t);
}

static void prepare_much_open(struct ckpt_trial *t, unsigned arg)
{
	prepare_much(t, arg);
	t->s = ckpt_save_open(t->dir);
}

static void remove_index(struct ckpt_trial *t)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.4000s/index", t->dir);
	ckpt_temp_empty(path, true);
}

static void prepare_no_index(struct ckpt_trial *t, unsigned arg)
{
	prepare_much(t, arg);
	remove_index(t);
}

static void prepare_damaged_index(struct ckpt_trial *t, unsigned arg)
{
	char path[PATH_MAX], noise[8192];
	int fd;

	prepare_much(t, arg);
	snprintf(path, sizeof(path), "%.4000s/index/data.mdb", t->dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	memset(noise, 0x5a, sizeof(noise));
	ck_assert_int_eq(pwrite(fd, noise, sizeof(noise), 2048), sizeof(noise));
	close(fd);
}

static void prepare_nothing(struct ckpt_trial *t, unsigned arg)
{
	(void)arg;
	ckpt_temp_dir(t->dir);
	ckpt_settings_init(&t->settings);
	ck_ok(ckpt_setting_give(ckpt_setting_find("marker"), "DONE", &t->settings));
	ck_ok(ckpt_setting_give(ckpt_setting_find("steps_at"), "a/*:b/*", &t->settings));
}

static void prepare_closed(struct ckpt_trial *t, unsigned arg)
{
	prepare_nothing(t, arg);
	ck_ok(ckpt_store_init_with(t->dir, &t->settings, NULL));
}

static void prepare_reader(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_step(t, 0);
	ck_ok(ckpt_store_open(t->dir, CKPT_STORE_READ, NULL, &t->reader));
	ckpt_step_unref(ckpt_save_one(t->s, CKPT_SAVE_LARGE));
	ck_ok(ckpt_delete(t->step));
	(void)arg;
}

// Nothing of the step is in memory.
static void prepare_unread(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_step(t, CKPT_SAVE_LARGE);
	end_store(t);
	if (arg)
		remove_index(t);
	ck_ok(ckpt_store_open(t->dir, arg ? CKPT_STORE_READ : CKPT_STORE_WRITE, NULL, &t->s));
	t->step = ckpt_save_find(t->s, CKPT_SAVE_LARGE);
}

// --- Acts --------------------------------------------------------------------------------------------------------------

static int act_init(struct ckpt_trial *t)
{
	return ckpt_store_init_with(t->dir, &t->settings, NULL);
}

static int act_set(struct ckpt_trial *t)
{
	return ckpt_store_set(t->dir, ckpt_setting_find("marker"), "OTHER");
}

static int act_settings(struct ckpt_trial *t)
{
	struct ckpt_settings there;
	char *lines;
	int rc = ckpt_store_settings(t->dir, &there);

	if (rc)
		return rc;
	lines = ckpt_settings_lines(&there);
	ckpt_settings_done(&there);
	if (!lines)
		return -ENOMEM;
	snprintf(t->said, sizeof(t->said), "%s", lines);
	free(lines);
	return 0;
}

static int act_open(struct ckpt_trial *t)
{
	return ckpt_store_open(t->dir, CKPT_STORE_WRITE, t->settings.given ? &t->settings : NULL, &t->s);
}

static int act_open_to_read(struct ckpt_trial *t)
{
	return ckpt_store_open(t->dir, CKPT_STORE_READ, NULL, &t->s);
}

static int act_refresh(struct ckpt_trial *t)
{
	return ckpt_follow_refresh(t->reader);
}

static int act_announce(struct ckpt_trial *t)
{
	struct ckpt_holder h;
	int rc = ckpt_store_announce(t->s, "/mnt/store");

	if (!rc)
		rc = ckpt_store_holder(t->dir, &h);
	if (rc)
		return rc;
	rc = h.mountpoint ? 0 : -EIO; // somebody has it, and who could not be read
	snprintf(t->said, sizeof(t->said), "%s %d", h.mountpoint ? h.mountpoint : "", h.pid == getpid());
	ckpt_holder_done(&h);
	return rc;
}

static int act_begin(struct ckpt_trial *t)
{
	return ckpt_save_begin(t->s, t->arg, &t->step);
}

static int act_begin_from(struct ckpt_trial *t)
{
	return ckpt_stage_begin_from(t->s, "", "derived", t->step, true, &t->other);
}

static int act_rename_staged(struct ckpt_trial *t)
{
	return ckpt_stage_rename(t->step, "", "renamed");
}

static int act_graft(struct ckpt_trial *t)
{
	return ckpt_stage_graft(t->step, t->other, t->other->dirfd, "part");
}

static int act_abort(struct ckpt_trial *t)
{
	return ckpt_stage_abort(t->step, false);
}

static int act_resume(struct ckpt_trial *t)
{
	return ckpt_stage_resume(t->step);
}

// A save over a step.
static void prepare_over(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_step(t, arg);
	t->other = t->step;
	ck_ok(ckpt_replace_begin(t->s, t->other->folder_id, t->other->name, 0755, getuid(), getgid(), getpid(),
				 &t->step));
	close(ckpt_staged_put(t->step, "new.bin", "new"));
}

static int act_commit_over(struct ckpt_trial *t)
{
	const struct ckpt_commit how = {
		.folder_id = t->other->folder_id, .name = t->other->name, .event = "verb", .profile = "generic"};
	struct ckpt_step *replaced;
	int rc = ckpt_replace_commit(t->step, &how, &replaced);

	if (!rc)
		ckpt_step_unref(replaced);
	return rc;
}

static int act_commit(struct ckpt_trial *t)
{
	return ckpt_save_commit(t->step, t->arg);
}

static int act_commit_late(struct ckpt_trial *t)
{
	struct ckpt_commit how = ckpt_staged_plain;

	how.leaves_late = true;
	return ckpt_commit(t->step, &how);
}

// A second time by a client that brings other metadata: a new version.
static int act_metadata(struct ckpt_trial *t)
{
	return ckpt_save_metadata(t->step, t->arg);
}

// More than a record takes, together with what the step says already.
static void prepare_full(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_store(t, arg);
	t->text = malloc(CKPT_METADATA_BYTES_MAX + 1);
	sprintf(t->text, "{\"extras\":{\"pad\":\"%*s\"}}", (int)CKPT_METADATA_BYTES_MAX - 21, "");
	t->step = ckpt_staged_begin(t->s, "1000");
	close(ckpt_staged_put(t->step, "file", "text"));
	ck_ok(ckpt_staged_commit(t->step, 0, t->text));
	memcpy(t->text, "{\"extras\":{\"mat", 15);
}

static int act_say_too_much(struct ckpt_trial *t)
{
	return ckpt_commit_metadata(t->step, t->text);
}

// What was reopened and stands still (reopen.h).
static int act_commit_quiet(struct ckpt_trial *t)
{
	const struct ckpt_commit how = {.event = "quiet", .profile = "generic", .keeps_metadata = true};

	return ckpt_commit(t->step, &how);
}

static int act_pin(struct ckpt_trial *t)
{
	return ckpt_pin(t->step, t->arg);
}

static int act_delete(struct ckpt_trial *t)
{
	return ckpt_delete(t->step);
}

static int act_undelete(struct ckpt_trial *t)
{
	return ckpt_undelete(t->step);
}

static int act_expire(struct ckpt_trial *t)
{
	return ckpt_expire(t->step);
}

static int act_move(struct ckpt_trial *t)
{
	return t->arg ? ckpt_move_to(t->step, "run a/moved") : ckpt_move(t->step, "", "moved");
}

static int act_reopen(struct ckpt_trial *t)
{
	return ckpt_reopen(t->step, &t->other);
}

static int act_write_over(struct ckpt_trial *t)
{
	struct ckpt_share_copy copy = {0};
	int rc = ckpt_stage_enter(t->step, true);

	if (rc)
		return rc;
	rc = ckpt_share_copy_make(t->s, t->step->dirfd, "model.bin", false, false, &copy);
	if (!rc && copy.of)
		rc = ckpt_share_copy_place(t->s, &copy, t->step->dirfd, "model.bin");
	ckpt_stage_leave(t->step);
	return rc;
}

static int act_draft(struct ckpt_trial *t)
{
	int rc = begin_draft(t);

	if (rc)
		return rc;
	rc = write_draft(t);
	if (!rc)
		rc = ckpt_draft_publish(&t->draft, t->s->tree_fd, "best.pt");
	if (!rc)
		return ckpt_draft_published(&t->draft, t->s->tree_fd, true);
	ckpt_draft_drop(&t->draft);
	return rc;
}

static int act_leave_draft(struct ckpt_trial *t)
{
	return ckpt_draft_leave(&t->draft);
}

static int act_convert(struct ckpt_trial *t)
{
	struct ckpt_step *step = ckpt_step_find(t->s, "", "run"); // of an attempt that could not go back
	bool prepared = !step;
	int rc = prepared ? ckpt_convert_prepare(t->s, t->s->tree_fd, "", "run", &step) : 0;

	if (rc)
		return rc;
	rc = prepared ? ckpt_convert(step, t->s->tree_fd) : 0;
	if (!rc) {
		rc = ckpt_convert_sync(t->s, t->s->tree_fd);
		if (!rc)
			rc = ckpt_commit(step, &ckpt_staged_plain);
		if (rc)
			(void)ckpt_convert_back(step, t->s->tree_fd, "run");
	}
	ckpt_step_unref(step);
	return rc;
}

static int act_unstage(struct ckpt_trial *t)
{
	int rc = ckpt_unstage_begin(t->step, NULL);

	if (rc)
		return rc;
	ckpt_unstage_mark(t->step);
	rc = ckpt_unstage(t->step, t->s->tree_fd, "unstaged", RENAME_NOREPLACE);
	if (rc)
		ckpt_unstage_cancel(t->step);
	return rc;
}

static int act_list(struct ckpt_trial *t)
{
	struct ckpt_folders folders = {0};
	struct ckpt_latest latest;
	struct ckpt_step **steps;
	size_t count, deleted;
	int rc = ckpt_step_list(t->s, NULL, ~0u, &steps, &count);

	if (rc)
		return rc;
	ckpt_step_list_free(steps, count);
	rc = ckpt_deleted_list(t->s, &steps, &deleted);
	if (rc)
		return rc;
	ckpt_step_list_free(steps, deleted);
	rc = ckpt_latest(t->s, NULL, CKPT_LATEST_BY_COMMIT, 1, &latest);
	if (!rc)
		rc = ckpt_folders_read(t->s, &folders);
	if (!rc) {
		CLEANUP_FREE char *name = ckpt_folders_name(&folders, latest.folder_id, latest.name);

		snprintf(t->said, sizeof(t->said), "%zu %zu %s %zu", count, deleted, name ? name : "", folders.count);
		rc = name ? 0 : -ENOMEM;
	}
	ckpt_folders_done(&folders);
	return rc;
}

static int act_read(struct ckpt_trial *t)
{
	struct ckpt_manifest *m;
	struct ckpt_record r;
	int rc = ckpt_step_manifest(t->step, &m);

	if (rc)
		return rc;
	ckpt_manifest_unref(m);
	rc = ckpt_step_record(t->step, 1, &r);
	if (!rc)
		ckpt_record_done(&r);
	return rc;
}

static int act_usage(struct ckpt_trial *t)
{
	struct ckpt_stage_usage usage;
	int rc = ckpt_stage_usage(t->step, &usage);

	if (!rc)
		snprintf(t->said, sizeof(t->said), "%llu files", (unsigned long long)usage.files);
	return rc;
}

static int act_errors(struct ckpt_trial *t)
{
	char *text, *last;
	int64_t at_ns;
	int rc = ckpt_errlog_text(t->s->errlog, &text);

	if (rc)
		return rc;
	free(text);
	ckpt_errlog_add(t->s->errlog, "subject", -EIO, NULL, "what");
	(void)ckpt_errlog_last(t->s->errlog, &at_ns, &last); // may be NULL
	free(last);
	return 0;
}

static int act_index(struct ckpt_trial *t)
{
	static const uint8_t sha256[CKPT_SHA256_LEN];
	struct ckpt_index_stat stat;
	int rc = ckpt_index_reset(t->s->index);

	if (!rc)
		rc = ckpt_index_put_manifest(t->s->index, sha256, "manifest", 8);
	if (!rc)
		rc = ckpt_index_stat(t->s->index, &stat);
	if (!rc)
		snprintf(t->said, sizeof(t->said), "%llu", (unsigned long long)stat.manifests);
	return rc;
}

static void prepare_text(struct ckpt_trial *t, unsigned arg)
{
	static const char state[] = "{\"global_step\": 5, \"log_history\": [{\"loss\": NaN}]}";

	ckpt_trial_prepare_store(t, arg);
	ck_ok(ckpt_trial_write_file(t->s->tree_fd, "trainer_state.json", state));
	t->fd = ckpt_sys.open(t->s->tree_fd, "trainer_state.json", O_RDONLY, 0);
	ck_ok(t->fd);
}

static int act_completes(struct ckpt_trial *t)
{
	const struct ckpt_deed deed = {.act = CKPT_EVENT_CLOSE,
				       .name = "trainer_state.json",
				       .fd = t->fd,
				       .dir = "checkpoint-5",
				       .dirfd = t->s->tree_fd};
	struct ckpt_completion c;
	size_t row = 0;
	int rc = ckpt_profile_completes(~UINT64_C(0), &deed, &row, &c);

	if (!rc)
		snprintf(t->said, sizeof(t->said), "%s %s", c.profile, c.event);
	return rc;
}

static int act_parse(struct ckpt_trial *t)
{
	static const char text[] = "{\"metrics\": {\"loss\": 0.5}, \"temporary\": true}";
	char *json = NULL, *why = NULL;
	int rc = ckpt_metadata_parse(text, strlen(text), &json, &why);

	if (!rc)
		snprintf(t->said, sizeof(t->said), "%s", json);
	free(json);
	free(why);
	return rc;
}

static void prepare_safetensors(struct ckpt_trial *t, unsigned arg)
{
	static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
	uint64_t len = strlen(header);

	ckpt_trial_prepare_store(t, arg);
	t->fd = ckpt_sys.open(t->s->tree_fd, "a.safetensors", O_RDWR | O_CREAT | O_EXCL, 0644);
	ck_ok(t->fd);
	ck_ok(ckpt_sys.pwrite(t->fd, &len, sizeof(len), 0));
	ck_ok(ckpt_sys.pwrite(t->fd, header, len, sizeof(len)));
	ck_ok(ckpt_sys.pwrite(t->fd, "abcd", 4, (off_t)(sizeof(len) + len)));
}

static int act_check_format(struct ckpt_trial *t)
{
	return ckpt_format_check(t->fd, "a.safetensors");
}

const struct ckpt_trial_act ckpt_trial_acts[] = {
	{"init", prepare_nothing, act_init, 0, 0},
	{"set", prepare_closed, act_set, 0, 0},
	{"settings", prepare_closed, act_settings, 0, 0},
	{"open an empty store", prepare_closed, act_open, 0, 0},
	{"open", prepare_much, act_open, 0, CKPT_TRIAL_PARTS},
	{"open with a record that cannot be read", prepare_much, act_open, 1, CKPT_TRIAL_PARTS},
	{"open without an index", prepare_no_index, act_open, 0, CKPT_TRIAL_PARTS},
	{"open with a damaged index", prepare_damaged_index, act_open, 0, CKPT_TRIAL_PARTS},
	{"open to read", prepare_much, act_open_to_read, 0, CKPT_TRIAL_PARTS},
	{"refresh", prepare_reader, act_refresh, 0, CKPT_TRIAL_PARTS},
	{"announce", ckpt_trial_prepare_store, act_announce, 0, 0},
	{"begin", prepare_folder, act_begin, CKPT_SAVE_LARGE, 0},
	{"begin from", ckpt_trial_prepare_step, act_begin_from, 0, 0},
	{"rename staged", prepare_staged, act_rename_staged, 0, CKPT_TRIAL_LATER},
	{"graft", prepare_two_staged, act_graft, 0, CKPT_TRIAL_NO_MEMORY},
	{"abort", prepare_staged, act_abort, 0, 0},
	{"resume", prepare_left, act_resume, CKPT_SAVE_LARGE, 0},
	{"commit", prepare_staged, act_commit, 0, 0},
	{"commit many files", prepare_staged, act_commit, CKPT_SAVE_MANY, 0},
	{"commit a large manifest", prepare_staged, act_commit, CKPT_SAVE_LARGE, 0},
	{"commit a leftover", prepare_staged, act_commit, 3, 0},
	{"commit without late files", prepare_late, act_commit_late, 0, 0},
	{"commit without a torn file", prepare_torn, act_commit, 0, 0},
	{"commit reopened", prepare_reopened, act_commit, 0, 0},
	{"commit over", prepare_over, act_commit_over, 0, 0},
	{"commit what stands still", prepare_reopened, act_commit_quiet, 0, 0},
	{"metadata", ckpt_trial_prepare_step, act_metadata, 0, 0},
	{"metadata that is too much with what was there", prepare_full, act_say_too_much, 0, 0},
	{"pin", ckpt_trial_prepare_step, act_pin, true, 0},
	{"delete", ckpt_trial_prepare_step, act_delete, 0, 0},
	{"undelete", prepare_deleted, act_undelete, CKPT_SAVE_LARGE, 0},
	{"expire", prepare_deleted, act_expire, CKPT_SAVE_LARGE, CKPT_TRIAL_PARTS},
	{"move", ckpt_trial_prepare_step, act_move, 0, CKPT_TRIAL_LATER},
	{"move in a folder", ckpt_trial_prepare_step, act_move, CKPT_SAVE_LARGE, CKPT_TRIAL_LATER},
	{"reopen", ckpt_trial_prepare_step, act_reopen, 0,
	 CKPT_TRIAL_LATER}, // an orderly end commits it, if it has its thread
	{"write over", prepare_reopened, act_write_over, 0, 0},
	{"add", ckpt_trial_prepare_step, ckpt_trial_add, 0, 0},
	{"add to a large manifest", ckpt_trial_prepare_step, ckpt_trial_add, CKPT_SAVE_LARGE, 0},
	{"replace", ckpt_trial_prepare_step, ckpt_trial_replace, 0, 0},
	{"take out", ckpt_trial_prepare_step, ckpt_trial_take_out, 0, 0},
	{"remove an entry", ckpt_trial_prepare_step, ckpt_trial_remove_entry, 0, 0},
	{"change attributes", ckpt_trial_prepare_step, ckpt_trial_attributes, 0, 0},
	{"restore", ckpt_trial_prepare_amended, ckpt_trial_restore, 0, 0},
	{"compare with the neighbour", ckpt_trial_prepare_neighbour, ckpt_trial_compare, 0, 0},
	{"unstage", prepare_staged, act_unstage, 4, CKPT_TRIAL_NO_MEMORY},
	{"collect garbage", ckpt_trial_prepare_garbage, ckpt_trial_collect, 0, CKPT_TRIAL_PARTS},
	{"draft", prepare_group, act_draft, 0, 0},
	{"leave a draft", prepare_draft, act_leave_draft, 0, 0},
	{"convert", prepare_plain_folder, act_convert, 0, 0},
	{"list", prepare_much_open, act_list, 0, 0},
	{"read through the index", prepare_unread, act_read, false, 0},
	{"read", prepare_unread, act_read, true, 0},
	{"usage", prepare_staged, act_usage, CKPT_SAVE_MANY, 0},
	{"errors", ckpt_trial_prepare_step, act_errors, 0, 0},
	{"index", ckpt_trial_prepare_step, act_index, 0, 0},
	{"completion", prepare_text, act_completes, 0, 0},
	{"parse metadata", ckpt_trial_prepare_store, act_parse, 0, 0},
	{"format", prepare_safetensors, act_check_format, 0, 0},
};

const size_t ckpt_trial_act_count = ARRAY_LEN(ckpt_trial_acts);

void ckpt_trial_begin(struct ckpt_trial *t, const struct ckpt_trial_act *act)
{
	*t = (struct ckpt_trial){.arg = act->arg, .draft.dirfd = -1};
	act->prepare(t, act->arg);
	ckpt_trial_settle(t);
}

int ckpt_trial_do(struct ckpt_trial *t, const struct ckpt_trial_act *act)
{
	int rc = act->act(t);

	ckpt_trial_settle(t);
	return rc;
}

void ckpt_trial_settle(struct ckpt_trial *t)
{
	if (!t->s || !t->s->writable)
		return;
	ckpt_save_settle_all(t->s);
	while (ckpt_indexer_pending(*ckpt_indexer_of(t->s)))
		usleep(100);
}

void ckpt_trial_end(struct ckpt_trial *t)
{
	ckpt_save_release(&t->holder);
	ckpt_stage_writer_remove(&t->writer);
	if (t->fd > 0)
		close(t->fd);
	ckpt_draft_close(&t->draft);
	ckpt_settings_done(&t->settings);
	free(TAKE_PTR(t->text));
	ckpt_store_close(TAKE_PTR(t->reader));
	end_store(t);
}

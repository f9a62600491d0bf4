// Acts on steps that are committed: what is added to them and taken from them, restored, compared with, and collected.
#include "tests/support/trial_acts.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/gc/gc.h"
#include "core/save/amend.h"
#include "core/save/change.h"
#include "core/save/delete.h"
#include "core/save/neighbour.h"
#include "core/save/remove.h"
#include "core/save/restore.h"
#include "core/step/amending.h"
#include "core/step/attributes.h"
#include "core/step/removal.h"
#include "tests/support/packed.h"

#include <fcntl.h>
#include <stdio.h>

static int open_session(struct ckpt_trial *t)
{
	return ckpt_sys.open(t->s->sessions_fd, t->step->session, O_RDONLY | O_DIRECTORY, 0);
}

// As the mount does it: a close that failed takes the file away again.
int ckpt_trial_add(struct ckpt_trial *t)
{
	CLEANUP_FD int dirfd = open_session(t);
	char raw[CKPT_AMENDING_RAW_MAX];
	int rc = dirfd < 0 ? dirfd : ckpt_amending_check_free(t->step, "late");

	if (!rc)
		rc = ckpt_amending_raw_name(raw);
	if (!rc)
		rc = ckpt_trial_write_file(dirfd, raw, "amended");
	if (!rc)
		rc = ckpt_amending_begin(t->step, "late", raw);
	if (rc)
		return rc;
	rc = ckpt_amend_add(t->step, "late");
	if (rc)
		(void)ckpt_sys.unlink(dirfd, raw, 0);
	ckpt_amending_forget(t->step, "late");
	return rc;
}

int ckpt_trial_replace(struct ckpt_trial *t)
{
	CLEANUP_FD int dirfd = open_session(t);
	int rc = dirfd < 0 ? dirfd : ckpt_trial_write_file(dirfd, ".again-1", "amended");

	return rc ? rc : ckpt_amend_replace(t->step, "model.bin", ".again-1");
}

int ckpt_trial_take_out(struct ckpt_trial *t)
{
	return ckpt_amend_remove(t->step, "shards");
}

int ckpt_trial_remove_entry(struct ckpt_trial *t)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(t->step, &m);

	if (rc)
		return rc;
	rc = ckpt_remove_entry(t->step, m, 0, "model.bin", false, 0);
	ckpt_manifest_unref(m);
	rc = rc && rc != -ENOENT ? rc : ckpt_remove_publish(t->step);
	if (rc)
		ckpt_removal_forget(t->step); // as if its process had been killed
	return rc;
}

int ckpt_trial_attributes(struct ckpt_trial *t)
{
	const struct ckpt_attributes_new what = {.which = CKPT_ATTRIBUTE_MODE, .mode = 0600};
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	uint32_t index;
	int rc = ckpt_step_manifest(t->step, &m);

	if (rc)
		return rc;
	ck_ok(ckpt_manifest_lookup(m, "model.bin", &index));
	ckpt_manifest_entry(m, index, &e);
	rc = ckpt_change_attributes(t->step, m, &e, &what);
	if (!rc)
		rc = ckpt_change_xattr(t->step, m, &e, "user.note", "good", 4, 0);
	ckpt_manifest_unref(m);
	if (!rc || rc == -ESTALE) // it was a version at once, where there was no thread
		rc = ckpt_change_publish(t->step);
	if (rc)
		ckpt_attributes_forget(t->step); // as if the daemon had ended
	return rc;
}

// Its first version has another model and another folder.
void ckpt_trial_prepare_amended(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_step(t, arg);
	ck_ok(ckpt_trial_replace(t));
	ck_ok(ckpt_trial_take_out(t));
}

int ckpt_trial_restore(struct ckpt_trial *t)
{
	int rc = ckpt_restore_files(t->step, 1);

	return rc == -EALREADY ? 0 : rc; // a first attempt has done it
}

// A staged step that lacks a file of the one beside it, which was amended since.
void ckpt_trial_prepare_neighbour(struct ckpt_trial *t, unsigned arg)
{
	ckpt_trial_prepare_amended(t, arg);
	ck_ok(ckpt_trial_add(t));
	t->other = t->step;
	t->step = ckpt_staged_begin(t->s, "2000");
	ck_ok(ckpt_sys.mkdir(t->step->dirfd, "sub", 0755));
	ckpt_staged_put_array(t->step, "sub/a.npy", 'a', 8);
	ckpt_staged_put_array(t->step, "cut.npy", 'a', 4);
	ck_ok(ckpt_sys.symlink("sub", t->step->dirfd, "link"));
}

int ckpt_trial_compare(struct ckpt_trial *t)
{
	struct ckpt_survey survey = {.step = t->step, .leases = true};
	struct ckpt_lack lack;
	int rc = ckpt_survey_run(&survey);

	if (!rc)
		rc = ckpt_neighbour_compare(t->step, &survey, &lack);
	if (!rc) {
		snprintf(t->said, sizeof(t->said), "%zu files, %d %d %d, cut %.60s, lacks %.60s of %.60s",
			 survey.file_count, survey.has_arrays, survey.has_beginning, survey.has_old_times,
			 survey.cut ? survey.cut : "", lack.file ? lack.file : "", lack.neighbour);
		free(lack.file);
	}
	ckpt_survey_done(&survey);
	return rc;
}

// Steps that share a text in a pack, of which most is garbage when the first of them has gone.
void ckpt_trial_prepare_garbage(struct ckpt_trial *t, unsigned arg)
{
	static const char alone[] = "a text that is longer than the one that is shared, and of one step alone";
	struct ckpt_step *gone;

	ckpt_trial_prepare_store(t, arg);
	ckpt_step_unref(ckpt_staged_one(t->s, "raw", "file", "raw"));
	gone = ckpt_packed_together(t->s, "a", alone, "what two steps share", "and another text that nobody shares");
	t->step = ckpt_packed_together(t->s, "b", "what two steps share", "one of b");
	t->other = ckpt_packed_step(t->s, "c", "of c");
	ck_ok(ckpt_delete(gone));
	ck_ok(ckpt_expire(gone));
	ckpt_step_unref(gone);
	gone = ckpt_packed_step(t->s, "d", "a pack of its own");
	ck_ok(ckpt_delete(gone));
	ck_ok(ckpt_expire(gone));
	ckpt_step_unref(gone);
}

// Twice: a pack that cannot be read just now is left to the next collection.
int ckpt_trial_collect(struct ckpt_trial *t)
{
	const struct ckpt_gc_how how = {.force = true};
	struct ckpt_gc_done done;
	int rc = ckpt_gc(t->s, &how, &done);

	return rc ? rc : ckpt_gc(t->s, &how, &done);
}

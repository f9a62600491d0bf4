// copy: steps of one store into another, only those that are missing.
//
// Each step is saved at the destination as `save` does it (new_step.h), and is there whole or not at all. copy_plan.h says how a copy that
// was cut off goes on.
#include "tools/verb.h"

#include "core/base/sys.h"
#include "core/base/units.h"
#include "core/base/util.h"
#include "core/record/event.h"
#include "core/record/metadata.h"
#include "core/save/pin.h"
#include "core/save/stage.h"
#include "tools/act.h"
#include "tools/arrival.h"
#include "tools/copy_plan.h"
#include "tools/new_step.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/push.h"
#include "tools/remote_place.h"
#include "tools/step_files.h"
#include "tools/stop.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/xattr.h>

struct copy {
	char **lists; // of --steps
	size_t list_count;
	bool dry_run, force;
	const char *dst; // its path; NULL: it is not made yet
	struct ckpt_selection chosen;
	struct ckpt_copy_plan plan;
	// Figures: of what the destination has in the end, and of that what was missing.
	uint64_t steps, bytes, sent_bytes, copied, failed;
	bool ends; // for a reason that all other steps would meet, too: DST is full, or the object store does not take them
	// Of the step in hand.
	const struct ckpt_copy_row *row;
	struct ckpt_step_files files;
};

// --- One step -----------------------------------------------------------------------------------------------------------

// The events that come later than a step's first version.
static bool is_of_a_change(const char *event)
{
	static const char *const events[] = {CKPT_EVENT_AMEND,  CKPT_EVENT_COOL,    CKPT_EVENT_EDIT,
					     CKPT_EVENT_REPACK, CKPT_EVENT_RESTORE, CKPT_EVENT_SEAL};

	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (!strcmp(event, events[i]))
			return true;
	return false;
}

// The event that completed the step: of its first version that is still known.
static char *event_of(const struct ckpt_copy_row *row)
{
	for (uint32_t i = 1; i <= row->version->is.version; i++) {
		char *event = NULL;
		struct ckpt_record r;

		if (ckpt_step_record(row->step, i, &r))
			continue;
		if (*r.summary.event && !is_of_a_change(r.summary.event))
			event = ckpt_text("%s", r.summary.event);
		ckpt_record_done(&r);
		return event;
	}
	return NULL;
}

// A step that was made permanent, or temporary in its framework's own words, is so at the destination, whatever its marker said.
static char *metadata_of(const struct ckpt_record *r)
{
	json_t *metadata = r->metadata ? json_loads(r->metadata, JSON_REJECT_DUPLICATES, NULL) : NULL;
	CLEANUP_FREE char *text = NULL, *why = NULL;
	char *canonical;

	if (!metadata)
		metadata = ckpt_need(json_object());
	(void)json_object_del(metadata, "temporary");
	(void)json_object_del(metadata, "findings"); // the other store finds its own
	if (r->summary.temporary && json_object_set_new(metadata, "temporary", json_true()))
		ckpt_need(NULL);
	text = json_object_size(metadata) ? ckpt_need(json_dumps(metadata, JSON_COMPACT)) : ckpt_text("%s", "");
	json_decref(metadata);
	if (ckpt_metadata_parse(text, strlen(text), &canonical, &why))
		ckpt_need(NULL); // it was checked when the step was committed
	return canonical;
}

static int fill(void *arg, int dirfd)
{
	struct copy *c = arg;
	const struct ckpt_copy_row *row = c->row;
	CLEANUP_FREE char *label = ckpt_text("copying %s", row->name);
	int rc = 0;

	if (!row->resumes && flock(dirfd, LOCK_EX | LOCK_NB))
		rc = -errno;
	if (!rc)
		rc = ckpt_sys.fsetxattr(dirfd, CKPT_COPY_XATTR, row->mark, strlen(row->mark), 0);
	if (rc == -EOPNOTSUPP)
		rc = 0; // then it cannot be taken up again
	if (!rc) {
		ckpt_progress_start(label, row->version->is.bytes, 1);
		rc = ckpt_step_files_copy(&c->files, dirfd);
		ckpt_progress_stop();
	}
	c->sent_bytes += c->files.copied_bytes;
	if (!rc || ckpt_stopped)
		return rc;
	c->ends = ckpt_is_full(rc);
	CLEANUP_FREE char *what = ckpt_text("%s%s%s", row->name, c->files.blamed ? "/" : "", c->files.blamed ?: "");

	return ckpt_fail_errno(what, rc == -EIO ? "`ckptfs verify` of SRC says what is damaged" : NULL, rc);
}

// *ret_fd holds the lock of a session that is taken up again.
static int lock_unfinished(const struct copy *c, int *ret_fd)
{
	CLEANUP_FREE char *path = NULL;

	if (!c->row->resumes)
		return 0;
	path = ckpt_text("%s/sessions/%s", c->dst, c->row->resumes);
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd < 0)
		return ckpt_fail_errno(c->row->name, "start the copy again", -errno);
	return flock(*ret_fd, LOCK_EX | LOCK_NB)
		       ? ckpt_fail(c->row->name, "wait for its end", "another process is copying this step")
		       : 0;
}

static int abort_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_stage_abort(step, false);
}

// A power cut may have taken bytes of files that look whole.
static int drop_stale(const struct copy *c)
{
	static const struct ckpt_verb_act act = {
		.verb = "abort", .for_good = true, .sessions = true, .at_rest = abort_at_rest};

	return c->row->stale ? ckpt_act_on(c->dst, c->row->name, c->row->stale, &act) : 0;
}

static int make(struct copy *c, const struct ckpt_record *r)
{
	const struct ckpt_copy_row *row = c->row;
	CLEANUP_FREE char *metadata = metadata_of(r), *event = event_of(row);
	struct ckpt_new_step n = {
		.store = c->dst,
		.name = row->name,
		.force = row->what == CKPT_COPY_OTHER,
		.makes_folders = true,
		.metadata = metadata,
		.profile = *row->version->is.profile ? row->version->is.profile : NULL,
		.event = event,
		.pinned = row->version->is.pinned,
		.stays_when_stopped = true,
		.resumes = row->resumes,
		.left = row->left,
		.fill = fill,
		.arg = c,
	};
	CLEANUP_FD int lock = -1;
	int rc = drop_stale(c);

	if (!rc)
		rc = lock_unfinished(c, &lock);
	if (rc)
		return rc;
	ckpt_stop_begin();
	rc = ckpt_stop_end(ckpt_new_step_make(&n));
	if (!rc && ckpt_stopped) {
		rc = 128 + ckpt_stopped; // the others are not begun
	} else if (!rc) {
		rc = ckpt_arrival_await(c->dst, row->name, n.session, n.reply);
		c->ends = rc != 0;
	}
	json_decref(n.reply);
	return rc;
}

static int copy_version(struct copy *c)
{
	const struct ckpt_copy_row *row = c->row;
	struct ckpt_manifest *m = NULL;
	struct ckpt_record r;
	int rc = ckpt_step_record(row->step, row->version->is.version, &r);

	if (rc)
		return ckpt_fail_errno(row->name, "`ckptfs verify` of SRC says what is damaged", rc);
	rc = ckpt_step_read_manifest(row->step, &row->version->is, &m);
	if (rc) {
		rc = ckpt_fail_errno(row->name, "`ckptfs verify` of SRC says what is damaged", rc);
	} else {
		c->files = (struct ckpt_step_files){.step = row->step,
						    .m = m,
						    .resumes = row->resumes,
						    .stop = &ckpt_stopped,
						    .progress = ckpt_progress_update};
		rc = make(c, &r);
		free(c->files.blamed);
	}
	ckpt_manifest_unref(m);
	ckpt_record_done(&r);
	return rc;
}

static int pin_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_pin(step, true);
}

static void report(const struct copy *c)
{
	const struct ckpt_summary *s = &c->row->version->is;
	char size[CKPT_SIZE_MAX];

	if (ckpt_output.json || ckpt_output.quiet)
		return;
	printf("%s: %scopied%s, %" PRIu64 " file%s, %s\n", c->row->name, c->dry_run ? "would be " : "",
	       c->row->what == CKPT_COPY_OTHER ? " over the step of this name" : "", s->files, s->files == 1 ? "" : "s",
	       ckpt_size_text(s->bytes, size));
	fflush(stdout);
}

// It is there already.
static int pass_over(struct copy *c)
{
	static const struct ckpt_verb_act pin = {.verb = "pin", .at_rest = pin_at_rest};

	ckpt_note_verbose("%s: is there already", c->row->name);
	return c->row->pins && !c->dry_run ? ckpt_act_on(c->dst, c->row->name, c->row->there, &pin) : 0;
}

static int copy_missing(struct copy *c)
{
	int rc = 0;

	if (*c->row->name == '?' && *c->row->step->folder_id)
		return ckpt_fail(c->row->name, "`ckptfs mv` gives it another place",
				 "its folder does not exist any more");
	if (c->dry_run)
		c->sent_bytes += c->row->version->is.bytes;
	else
		rc = copy_version(c);
	if (!rc) {
		c->copied++;
		report(c);
	}
	return rc;
}

static int copy_one(struct copy *c, const struct ckpt_copy_row *row)
{
	int rc;

	c->row = row;
	if (row->what == CKPT_COPY_UNKNOWN)
		rc = 1; // told
	else if (row->what == CKPT_COPY_SAME)
		rc = pass_over(c);
	else if (row->what == CKPT_COPY_OTHER && !c->force)
		rc = ckpt_fail(row->name, "--force copies over it, and it goes to the trash",
			       "DST has a step of this name with other files");
	else
		rc = copy_missing(c);
	c->steps += !rc;
	c->bytes += rc ? 0 : row->version->is.bytes;
	c->failed += rc != 0;
	return rc;
}

static int copy_all(struct copy *c)
{
	int status = 0;

	for (size_t i = 0; i < c->plan.count; i++) {
		int rc = copy_one(c, &c->plan.rows[i]);

		status = MAX(status, rc);
		if (rc > 128)
			return rc;
		if (c->ends) {
			if (i + 1 < c->plan.count)
				ckpt_note("ends here: %zu more steps were not tried", c->plan.count - i - 1);
			return status;
		}
	}
	// Also of a copy before, which could not send it.
	return status || c->dry_run ? status : ckpt_push(c->dst, INT64_MAX);
}

// --- The stores ---------------------------------------------------------------------------------------------------------

static int check_options(const struct ckpt_operand *src, const char *dst)
{
	bool to_bucket = ckpt_is_remote_url(dst);
	struct ckpt_remote_at at = {0};
	int rc;

	if (!ckpt_verb_store_options())
		return 0;
	if (!src->in_bucket && !to_bucket)
		return ckpt_usage("-o", "leave it out", "is of a STORE that is a URL");
	rc = ckpt_remote_at_options(&at);
	if (!rc && src->in_bucket && to_bucket && at.work_dir)
		return ckpt_usage("work_dir", "mount one of them, or set CKPTFS_WORK_DIR",
				  "is of one STORE, and both are URLs");
	return rc;
}

static int choose(struct copy *c, const struct ckpt_listing *l, const struct ckpt_operand *src)
{
	int rc = 0;

	if (src->count && c->list_count)
		return ckpt_usage(src->steps[0], "name the store alone as SRC",
				  "is a place in a store, beside --steps");
	if (src->count)
		return ckpt_selection_add(l, src, src->steps[0], &c->chosen);
	if (!c->list_count)
		ckpt_selection_all(l, &c->chosen);
	for (size_t i = 0; i < c->list_count && !rc; i++)
		rc = ckpt_selection_add(l, src, c->lists[i], &c->chosen);
	return rc;
}

static int copy_to(struct copy *c, const struct ckpt_listing *l, const struct ckpt_operand *src, const char *word)
{
	struct ckpt_operand dst;
	int rc = ckpt_operand_target(word, !c->dry_run, &dst);

	if (rc)
		return rc;
	c->dst = dst.store;
	if (c->dst && !strcmp(c->dst, src->store))
		rc = ckpt_usage(word, "name two stores", "is SRC, too");
	if (!rc)
		rc = ckpt_copy_plan_make(l, &c->chosen, c->dst, &c->plan);
	if (!rc) {
		rc = copy_all(c);
		if (ckpt_output.json && rc < 128)
			ckpt_output_json(
				ckpt_need(json_pack("{s:I, s:I, s:I, s:I, s:I}", "steps", (json_int_t)c->steps, "bytes",
						    (json_int_t)c->bytes, "sent_bytes", (json_int_t)c->sent_bytes,
						    "copied", (json_int_t)c->copied, "failed", (json_int_t)c->failed)));
		else if (!rc && !c->copied)
			ckpt_note("nothing to do: all %" PRIu64 " steps are there", c->steps);
		ckpt_copy_plan_done(&c->plan);
	}
	ckpt_operand_done(&dst);
	return rc;
}

static int copy(struct copy *c, const struct ckpt_operand *src, const char *dst)
{
	struct ckpt_listing l;
	int rc = check_options(src, dst);

	if (!rc)
		rc = ckpt_listing_open(src->store, CKPT_STORE_READ, &l);
	if (rc)
		return rc;
	rc = choose(c, &l, src);
	if (!rc)
		rc = copy_to(c, &l, src, dst);
	ckpt_selection_done(&c->chosen);
	ckpt_listing_close(&l);
	return rc;
}

static int copy_option(int key, char *arg, void *input)
{
	struct copy *c = input;

	if (key == 'n') {
		c->dry_run = true;
	} else if (key == 'f') {
		c->force = true;
	} else {
		c->lists = ckpt_need(reallocarray(c->lists, c->list_count + 1, sizeof(*c->lists)));
		c->lists[c->list_count++] = arg;
	}
	return 0;
}

int ckpt_verb_copy(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"steps", 's', "LIST", 0,
		 "only these: names, latest, globs ('step_*'), ranges (100..500), folders; with ',' between; may be "
		 "repeated",
		 0},
		{"force", 'f', NULL, 0, "copy over steps with other files; those go to the trash in the same act", 0},
		{"dry-run", 'n', NULL, 0, "copy nothing; show what would be copied", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "SRC DST",
		.doc = "Copies steps from one store into another: from a directory, a mount or a bucket into any of "
		       "these. SRC and DST are each a STORE; a step or a folder of a mount may be SRC. DST is made if "
		       "it "
		       "is absent, or an empty directory. All committed steps are copied, but for "
		       "the trash, in the order of their commits. A step that DST has with the same files is passed "
		       "over. "
		       "One with other files is an error; the rest is copied. Each step appears at DST when "
		       "it is complete. A copy that was cut off goes on where it was when it is started again.\n\n"
		       "A step keeps its name, folder, files, metadata, profile and pin. Its commit is "
		       "new: committed_at is the time of the copy, and its versions begin at 1. Older versions, plain "
		       "files, settings and the policy are not copied. Options of -o are those of both stores, "
		       "where both are URLs.\v"
		       "Examples:\n"
		       "  ckptfs copy /data/run42 s3://bucket/run42\n"
		       "  ckptfs copy --steps latest s3://bucket/run42 /scratch/run42\n"
		       "  ckptfs copy --dry-run --steps 'step_*,100..500' /ckpt /backup/run42",
		.options = options,
		.option = copy_option,
		.operands_min = 2,
		.operands_max = 2,
	};
	struct ckpt_words words;
	struct ckpt_operand src;
	struct copy c = {0};
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &c, &words);
	rc = ckpt_operand_source(words.at[0], &src);
	if (!rc) {
		rc = copy(&c, &src, words.at[1]);
		ckpt_operand_done(&src);
	}
	free(c.lists);
	return rc;
}

// du: what the steps of a store are, and what they take on the disk.
#include "core/step/follow.h"
#include "tools/verb.h"

#include "core/base/util.h"
#include "core/cold/pack_use.h"
#include "core/cold/stored.h"
#include "core/remote/arrival.h"
#include "core/save/delete.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <fcntl.h>
#include <fts.h>
#include <search.h>
#include <stdio.h>
#include <sys/stat.h>

#define BLOCK 512 // of st_blocks, whatever the filesystem's is

struct du {
	struct ckpt_listing l;
	struct ckpt_operand o;
	uint64_t logical, raw, trash, staged, garbage;
	bool garbage_known;
	struct ckpt_stored packed; // of the steps; what it has seen is of the trash, too
	uint64_t files;            // looked at
	void *linked;              // inodes with several names that were counted; of tsearch(3)
	int status;
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

// True the first time.
static bool is_new(struct du *d, uint64_t ino)
{
	uint64_t *number = ckpt_need(malloc(sizeof(*number))), **found;

	*number = ino;
	found = ckpt_need(tsearch(number, &d->linked, by_number));
	if (*found == number)
		return true;
	free(number);
	return false;
}

static uint64_t allocated(struct du *d, uint64_t ino, uint64_t nlink, uint64_t blocks)
{
	ckpt_progress_update(++d->files);
	return nlink == 1 || is_new(d, ino) ? blocks * BLOCK : 0;
}

// --- Sessions -----------------------------------------------------------------------------------------------------------

// What the files of a session take: those of older versions are among them. Who writes or removes there goes on meanwhile.
// -errno when it cannot be read; of files that go while we look nothing is said.
static int add_session(struct du *d, const char *session, uint64_t *sum)
{
	CLEANUP_FREE char *top = ckpt_text("%s/sessions/%s", d->l.store->path, session);
	FTS *walk = fts_open((char *const[]){top, NULL}, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
	FTSENT *f;
	int rc = walk ? 0 : -errno;

	while (walk && (f = fts_read(walk))) {
		if (f->fts_info == FTS_F)
			*sum += allocated(d, f->fts_statp->st_ino, f->fts_statp->st_nlink,
					  (uint64_t)f->fts_statp->st_blocks);
		else if (f->fts_errno && f->fts_errno != ENOENT)
			rc = -f->fts_errno;
		else if (f->fts_errno && f->fts_level == FTS_ROOTLEVEL)
			rc = -ENOENT;
	}
	if (walk)
		fts_close(walk);
	return rc;
}

static int add_packed(struct du *d, struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(step, &m);

	if (rc)
		return rc;
	if (ckpt_stored_add(&d->packed, m))
		ckpt_need(NULL);
	ckpt_manifest_unref(m);
	return 0;
}

// Who has the store mounted has removed it for good while we looked.
static bool is_gone(const struct ckpt_step *step)
{
	struct ckpt_said said;

	return !ckpt_follow_refresh(step->store) && ckpt_step_said(step->store, step->session, &said) == -ENOENT;
}

static void add_step(struct du *d, struct ckpt_step *step, uint64_t *sum)
{
	CLEANUP_FREE char *name = ckpt_listing_name(&d->l, step->folder_id, step->name);
	int rc = add_session(d, step->session, sum);

	if (rc == -ENOENT && ckpt_remote_has(step->store, step->session))
		rc = 0; // no file of it is on this node
	if (!rc)
		rc = add_packed(d, step);
	if (rc && !is_gone(step))
		d->status = ckpt_fail(name, "`ckptfs verify` says what is damaged", "some of it cannot be read: %s",
				      strerror(-rc));
}

static void add_steps(struct du *d, struct ckpt_step *const *steps, size_t count, uint64_t *sum)
{
	for (size_t i = 0; i < count; i++)
		add_step(d, steps[i], sum);
}

static void add_staged(struct du *d)
{
	json_t *rows, *row;
	size_t i;
	int rc = ckpt_rows_sessions(&d->l, &rows);

	if (rc) {
		d->status = rc;
		return;
	}
	json_array_foreach(rows, i, row)
	{
		const char *session = json_string_value(json_object_get(row, "id"));

		if (session)
			(void)add_session(d, session, &d->staged); // gone meanwhile, or a step by now
	}
	json_decref(rows);
}

// --- The answer ---------------------------------------------------------------------------------------------------------

static uint64_t files_of(struct ckpt_step *const *steps, size_t count)
{
	uint64_t files = 0;

	for (size_t i = 0; i < count; i++) {
		CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(steps[i]);

		files += v->is.files;
	}
	return files;
}

// Of its chunks those that no other step has.
static void add_trash(struct du *d, struct ckpt_step *const *deleted, size_t count)
{
	struct ckpt_stored steps = d->packed;

	add_steps(d, deleted, count, &d->trash);
	d->trash += d->packed.out_bytes - steps.out_bytes;
	steps.seen = d->packed.seen;
	d->packed = steps;
}

static void whole_store(struct du *d)
{
	struct ckpt_step **steps, **deleted;
	size_t count, deleted_count;

	if (ckpt_step_list(d->l.store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count) ||
	    ckpt_deleted_list(d->l.store, &deleted, &deleted_count))
		ckpt_need(NULL);
	ckpt_progress_start("du", files_of(steps, count) + files_of(deleted, deleted_count), 0);
	for (size_t i = 0; i < count; i++)
		d->logical += ckpt_step_bytes(steps[i]);
	add_steps(d, steps, count, &d->raw);
	add_trash(d, deleted, deleted_count);
	add_staged(d);
	d->garbage_known = !ckpt_pack_use_garbage(d->l.store, &d->garbage);
	ckpt_progress_stop();
	ckpt_step_list_free(steps, count);
	ckpt_step_list_free(deleted, deleted_count);
}

static int find(struct du *d, const char *word, struct ckpt_step **ret_step)
{
	CLEANUP_FREE char *path = NULL;
	int rc = ckpt_listing_find(&d->l, &d->o, word, ret_step, &path);

	if (rc || !*path)
		return rc;
	ckpt_step_unref(*ret_step);
	return ckpt_usage(word, "`ckptfs ls -l` shows single files", "a file in a step, where a whole step is wanted");
}

// Each once, however often it is named.
static void named_steps(struct du *d)
{
	struct ckpt_step **steps = ckpt_need(calloc(d->o.count, sizeof(*steps)));
	size_t count = 0;

	for (size_t i = 0; i < d->o.count; i++) {
		struct ckpt_step *step;
		bool again = false;
		int rc = find(d, d->o.steps[i], &step);

		d->status = MAX(d->status, rc);
		if (rc)
			continue;
		for (size_t j = 0; j < count; j++)
			again |= steps[j] == step;
		if (again)
			ckpt_step_unref(step);
		else
			steps[count++] = step;
	}
	ckpt_progress_start("du", files_of(steps, count), 0);
	for (size_t i = 0; i < count; i++)
		d->logical += ckpt_step_bytes(steps[i]);
	add_steps(d, steps, count, &d->raw);
	ckpt_progress_stop();
	ckpt_step_list_free(steps, count);
}

// With what was saved by those codecs that are in use.
static json_t *codecs(const struct du *d)
{
	json_t *all = ckpt_need(json_object());

	for (unsigned i = 0; i < CKPT_STORED_CODECS; i++) {
		json_int_t in = (json_int_t)d->packed.codecs[i].in_bytes,
			   out = (json_int_t)d->packed.codecs[i].out_bytes;

		if (in && json_object_set_new(all, ckpt_codec_name((enum ckpt_codec_id)i),
					      json_pack("{s:I, s:I}", "in_bytes", in, "out_bytes", out)))
			ckpt_need(NULL);
	}
	return all;
}

static json_t *answer(const struct du *d)
{
	bool all = !d->o.count;
	json_int_t packed = (json_int_t)d->packed.out_bytes, raw = (json_int_t)d->raw;

	return ckpt_need(
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "logical_bytes", (json_int_t)d->logical,
			  "stored_bytes", raw + packed, "raw_bytes", raw, "packed_bytes", packed, "deduplicated_bytes",
			  (json_int_t)d->packed.again_bytes, "trash_bytes",
			  all ? json_integer((json_int_t)d->trash) : json_null(), "garbage_bytes",
			  d->garbage_known ? json_integer((json_int_t)d->garbage) : json_null(), "staged_bytes",
			  all ? json_integer((json_int_t)d->staged) : json_null(), "codecs", codecs(d)));
}

static void print_codecs(struct ckpt_table *t, json_t *all)
{
	const char *name;
	json_t *codec;

	json_object_foreach(all, name, codec)
	{
		json_int_t out = json_integer_value(json_object_get(codec, "out_bytes")),
			   in = json_integer_value(json_object_get(codec, "in_bytes"));
		CLEANUP_FREE char *what = ckpt_text("packed/%s", name), *bytes = ckpt_text("%lld", (long long)out);
		char size[CKPT_SIZE_MAX], before[CKPT_SIZE_MAX];
		CLEANUP_FREE char *meaning =
			ckpt_text("of that, by this codec; before it was %s", ckpt_size_text((uint64_t)in, before));

		ckpt_table_row(t, (const char *const[]){what, ckpt_size_text((uint64_t)out, size), bytes, meaning});
	}
}

static void print(const struct du *d)
{
	static const char *const meaning[][2] = {
		{"logical_bytes", "what the files of the steps hold"},
		{"stored_bytes", "what the disk has for them"},
		{"raw_bytes", "of that, files as they were written, those of older versions too"},
		{"packed_bytes", "of that, encoded chunks in packs"},
		{"deduplicated_bytes", "saved: chunks that were in packs already"},
		{"trash_bytes", "deleted steps that can be restored"},
		{"garbage_bytes", "in packs, what no step needs, until `ckptfs gc`"},
		{"staged_bytes", "steps that are not completed"},
	};
	json_t *row = answer(d);
	struct ckpt_table *t;

	if (ckpt_output.json) {
		ckpt_output_json(row);
		return;
	}
	t = ckpt_table_new();
	ckpt_table_column(t, "WHAT", CKPT_LEFT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "BYTES", CKPT_RIGHT);
	ckpt_table_column(t, "MEANING", CKPT_LEFT);
	for (size_t i = 0; i < ARRAY_LEN(meaning); i++) {
		const json_t *value = json_object_get(row, meaning[i][0]);
		CLEANUP_FREE char *what = ckpt_text("%.*s", (int)strcspn(meaning[i][0], "_"), meaning[i][0]);
		CLEANUP_FREE char *bytes = ckpt_text("%lld", (long long)json_integer_value(value));
		char size[CKPT_SIZE_MAX];

		if (!json_is_null(value))
			ckpt_table_row(t, (const char *const[]){
						  what, ckpt_size_text((uint64_t)json_integer_value(value), size),
						  bytes, meaning[i][1]});
	}
	print_codecs(t, json_object_get(row, "codecs"));
	ckpt_table_print(t);
	json_decref(row);
}

int ckpt_verb_du(int argc, char **argv)
{
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [STEP...]",
		.doc = "Shows the size of steps, and the room that they take on the disk: of all steps, or "
		       "of the named ones.\v"
		       "Examples:\n"
		       "  ckptfs du /data/run42\n"
		       "  ckptfs du --json /ckpt 1000 trash/900",
		.operands_max = UINT_MAX,
	};
	struct ckpt_words words;
	struct du d = {0};

	ckpt_verb_parse(&syntax, argc, argv, NULL, &words);
	d.status = ckpt_operand_take(&words, &d.o);
	if (d.status)
		return d.status;
	d.status = ckpt_listing_open(d.o.store, CKPT_STORE_READ, &d.l);
	if (!d.status) {
		if (d.o.count)
			named_steps(&d);
		else
			whole_store(&d);
		if (!d.status)
			print(&d);
		if (!d.status && !d.o.count && !d.garbage_known)
			ckpt_note("the amount of garbage in packs is not known, because something in the store cannot "
				  "be read: `ckptfs verify` names it");
		ckpt_listing_close(&d.l);
	}
	tdestroy(d.linked, free);
	ckpt_stored_done(&d.packed);
	ckpt_operand_done(&d.o);
	return d.status;
}

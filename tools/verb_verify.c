// verify: everything that the store has against everything that it says.
//
// The records are listed and read anew here, not through the table of steps, which leaves out what is damaged.
#include "core/step/follow.h"
#include "tools/verb.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/cold/dedupe.h"
#include "core/log/snapshot.h"
#include "core/state/jump.h"
#include "core/step/errlog.h"
#include "core/step/trash.h"
#include "tools/check.h"
#include "tools/check_packs.h"
#include "tools/check_version.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <inttypes.h>
#include <fcntl.h>
#include <stdio.h>

// A version, as the log says.
struct found {
	char session[CKPT_UUID_LEN + 1];
	char key[CKPT_STEP_KEY_MAX];
	char folder_id[CKPT_FOLDER_ID_LEN + 1], name[CKPT_NAME_MAX + 1];
	uint32_t version;
	bool is_last;
};

struct verify {
	struct ckpt_listing l;
	struct ckpt_packs *packs;
	bool read_data, repair_index;
	struct found *found;
	size_t count, cap;
	char **keys; // the steps asked for; NULL: all
	size_t key_count;
	struct ckpt_at_version *versions; // and the versions asked for
	size_t version_count;
	char *step;          // the name of the step in hand, for what is bad
	const char *object;  // an entry or snapshot that is in hand, or NULL
	const char *session; // of the step in hand, or NULL
	uint64_t steps, files, bytes, done, unsealed;
	json_t *bad;
};

// --- What is bad --------------------------------------------------------------------------------------------------------

// Beside a mount: the step has expired since the log was read, and its files and packs may have gone with it. The files
// go out of sight first, then the log says it, and then they are removed (delete.h).
static bool is_gone(const struct verify *v)
{
	char name[CKPT_TRASH_SESSION_NAME];
	struct ckpt_object info;
	struct ckpt_said said;

	if (v->object && ckpt_objects_head(v->l.store->objects, v->object, &info) == -ENOENT)
		return true;
	if (!v->session)
		return false;
	snprintf(name, sizeof(name), CKPT_TRASH_DROP "%s", v->session);
	if (!faccessat(v->l.store->trash_fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
		return true;
	return ckpt_follow_refresh(v->l.store) || ckpt_step_said(v->l.store, v->session, &said) == -ENOENT;
}

static void bad(void *arg, const char *path, const char *problem)
{
	struct verify *v = arg;
	CLEANUP_FREE char *what =
		ckpt_text("%s%s%s", v->step ? v->step : "", v->step && path ? "/" : "", path ? path : "");
	json_t *row;

	if (is_gone(v))
		return;
	row = json_pack("{s:o, s:o, s:o}", "step", ckpt_json_text(v->step), "path", ckpt_json_text(path), "problem",
			ckpt_json_text(problem));
	if (json_array_append_new(v->bad, ckpt_need(row)))
		ckpt_need(NULL);
	ckpt_fail(what, NULL, "%s", problem);
}

static void progress(void *arg, uint64_t done)
{
	struct verify *v = arg;

	v->done += done;
	ckpt_progress_update(v->done);
}

static void count_unsealed(void *arg)
{
	struct verify *v = arg;

	v->unsealed++;
}

// --- The log ------------------------------------------------------------------------------------------------------------

static int check_entry(void *arg, const char *key, const struct ckpt_object *info __attribute__((unused)))
{
	CLEANUP_FREE void *data = NULL;
	struct verify *v = arg;
	struct ckpt_log_entry entry;
	size_t len;
	int rc = ckpt_objects_get_all(v->l.store->objects, key, CKPT_LOG_ENTRY_BYTES_MAX, &data, &len, NULL);

	if (!rc)
		rc = ckpt_log_entry_decode(data, len, &entry);
	v->object = key;
	if (rc == -ENOTSUP)
		bad(v, key, "is an entry of a newer ckptfs");
	else if (rc || entry.seq != ckpt_log_number(key) || strcmp(entry.store_id, v->l.store->id))
		bad(v, key, rc && rc != -EBADMSG ? strerror(-rc) : "is no entry of this log, or is damaged");
	v->object = NULL;
	return 0;
}

static int read_copy(const struct ckpt_store *s, const char *key)
{
	struct ckpt_state *state = NULL;
	struct ckpt_log_position at;
	CLEANUP_FREE void *data = NULL;
	size_t len;
	int rc = ckpt_objects_get_all(s->objects, key, CKPT_REMOTE_SNAPSHOT_BYTES_MAX, &data, &len, NULL);

	if (!rc)
		rc = ckpt_jump_state(s->id, ckpt_snapshot_copy_number(key), data, len, &at, &state);
	ckpt_state_free(state);
	return rc;
}

static int read_snapshot(const struct ckpt_store *s, const char *key)
{
	CLEANUP_FREE void *state = NULL;
	struct ckpt_log_position at;
	size_t len;

	return ckpt_snapshot_read(s->objects, s->id, ckpt_log_number(key), &at, &state, &len);
}

static int check_snapshot(void *arg, const char *key, const struct ckpt_object *info __attribute__((unused)))
{
	struct verify *v = arg;
	int rc = ckpt_snapshot_copy_number(key) ? read_copy(v->l.store, key) : read_snapshot(v->l.store, key);

	v->object = key;
	if (rc)
		bad(v, key, rc == -EBADMSG ? "is no snapshot of this log, or is damaged" : strerror(-rc));
	v->object = NULL;
	return 0;
}

// One that is whole by itself and is not the next, or that is not there.
static void check_order(struct verify *v)
{
	uint64_t damaged = ckpt_journal_damaged(v->l.store->journal);
	size_t told = json_array_size(v->bad);
	char key[CKPT_LOG_KEY_MAX];

	ckpt_log_key(damaged, key);
	if (damaged && !told)
		bad(v, key, "is missing, or does not follow the entry before it");
}

static void check_log(struct verify *v)
{
	int rc = ckpt_objects_list(v->l.store->objects, "log/", NULL, check_entry, v);

	if (!rc)
		check_order(v);
	if (!rc)
		rc = ckpt_objects_list(v->l.store->objects, "snap/", NULL, check_snapshot, v);
	if (rc)
		bad(v, "log", strerror(-rc));
}

static int collect(void *arg, const struct ckpt_state_step *step)
{
	struct verify *v = arg;

	for (size_t i = 0; i < step->count; i++) {
		struct found *f;

		if (step->versions[i].deleted)
			continue;
		if (ckpt_grow((void **)&v->found, &v->cap, v->count + 1, sizeof(*v->found)))
			return -ENOMEM;
		f = &v->found[v->count++];
		*f = (struct found){.version = step->versions[i].version,
				    .is_last = step->versions[i].version == step->is.version};
		memcpy(f->session, step->id, sizeof(f->session));
		memcpy(f->folder_id, step->is.folder_id, sizeof(f->folder_id));
		memcpy(f->name, step->is.name, sizeof(f->name));
		(void)ckpt_name_key(f->folder_id, f->name, f->key);
	}
	return 0;
}

static int by_key_and_version(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	int order = strcmp(x->key, y->key);

	return order ? order : (x->version > y->version) - (x->version < y->version);
}

// --- Versions -----------------------------------------------------------------------------------------------------------

static int read_record(struct verify *v, const struct found *f, struct ckpt_record *ret_record)
{
	int rc = ckpt_journal_record(v->l.store->journal, f->session, f->version, ret_record);

	if (rc == -EBADMSG)
		bad(v, NULL, "its record is damaged");
	else if (rc == -ENOTSUP)
		bad(v, NULL, "its record is of a newer ckptfs");
	else if (rc)
		bad(v, NULL, strerror(-rc));
	return rc;
}

static void check_index_copy(struct verify *v, const struct ckpt_summary *s)
{
	struct ckpt_manifest *m;
	void *data;
	size_t len;

	if (!v->l.store->index || ckpt_index_manifest(v->l.store->index, s->manifest_sha256, &data, &len))
		return;
	if (ckpt_manifest_parse(data, len, &m)) {
		bad(v, NULL, "the index has its manifest wrong");
		return;
	}
	if (memcmp(ckpt_manifest_sha256(m), s->manifest_sha256, 32))
		bad(v, NULL, "the index has another manifest for it");
	ckpt_manifest_unref(m);
}

// The manifest that the record holds or names; the record's own memory is taken from.
static int read_manifest(struct verify *v, struct ckpt_record *r, struct ckpt_manifest **ret_manifest)
{
	const struct ckpt_summary *s = &r->summary;
	void *data = TAKE_PTR(r->manifest);
	size_t len = r->manifest_len;
	struct ckpt_manifest *m;
	int rc = 0;

	if (!data) {
		char key[2 + CKPT_SHA256_HEX_LEN + 1] = "m/";

		ckpt_hex(s->manifest_sha256, CKPT_SHA256_LEN, key + 2);
		rc = ckpt_objects_get_all(v->l.store->objects, key, CKPT_MANIFEST_BYTES_MAX, &data, &len, NULL);
	}
	if (!rc)
		rc = ckpt_manifest_parse(data, len, &m);
	if (rc) {
		bad(v, NULL,
		    rc == -ENOENT    ? "its manifest is missing"
		    : rc == -EBADMSG ? "its manifest is damaged"
		    : rc == -ENOTSUP ? "its manifest is of a newer ckptfs"
				     : strerror(-rc));
		return rc;
	}
	if (len != s->manifest_bytes || memcmp(ckpt_manifest_sha256(m), s->manifest_sha256, CKPT_SHA256_LEN)) {
		bad(v, NULL, "its manifest does not match the record");
		ckpt_manifest_unref(m);
		return -EBADMSG;
	}
	*ret_manifest = m;
	return 0;
}

static void check_totals(struct verify *v, const struct ckpt_manifest *m, const struct ckpt_summary *s)
{
	uint64_t files, bytes;
	struct ckpt_entry root;

	ckpt_manifest_totals(m, &files, &bytes);
	ckpt_manifest_entry(m, 0, &root);
	if (files != s->files || bytes != s->bytes)
		bad(v, NULL, "the files or bytes in its record do not match its manifest");
	if (root.mode != s->dir_mode)
		bad(v, NULL, "the mode of its directory in its record does not match its manifest");
}

// The last version of a step also answers for what lies in its directory; older ones have the same files.
static void check_version(struct verify *v, const struct found *f)
{
	const struct ckpt_check check = {.store = v->l.store,
					 .packs = v->packs,
					 .read_data = v->read_data,
					 .bad = bad,
					 .progress = progress,
					 .unsealed = count_unsealed,
					 .arg = v};
	struct ckpt_manifest *m = NULL;
	struct ckpt_record r;

	if (read_record(v, f, &r))
		return;
	if (!read_manifest(v, &r, &m)) {
		check_totals(v, m, &r.summary);
		check_index_copy(v, &r.summary);
		if (f->is_last) {
			v->steps++;
			v->files += r.summary.files;
			v->bytes += r.summary.bytes;
			ckpt_check_files(&check, m, &r.summary);
		}
		ckpt_manifest_unref(m);
	}
	ckpt_record_done(&r);
}

static bool wanted(const struct verify *v, const char *key)
{
	if (!v->keys)
		return true;
	for (size_t i = 0; i < v->key_count; i++)
		if (!strcmp(v->keys[i], key))
			return true;
	return false;
}

static void check_versions(struct verify *v)
{
	for (size_t i = 0; i < v->count; i++) {
		struct found *f = &v->found[i];

		if (!wanted(v, f->key))
			continue;
		v->step = ckpt_listing_name(&v->l, f->folder_id, f->name);
		v->session = f->session;
		check_version(v, f);
		v->session = NULL;
		free(TAKE_PTR(v->step));
	}
}

// --- Packs --------------------------------------------------------------------------------------------------------------

static void check_unnamed_packs(struct verify *v)
{
	int rc = ckpt_packs_each(v->packs, bad, v);

	if (rc)
		bad(v, "packs", strerror(-rc));
}

// --- The index ----------------------------------------------------------------------------------------------------------

static int see_pack(void *arg __attribute__((unused)), const struct ckpt_pack *pack __attribute__((unused)),
		    bool whole __attribute__((unused)))
{
	return 0;
}

// The index may lack manifests and packs; those that it has must be right.
static void check_index(struct verify *v)
{
	struct ckpt_store *s = v->l.store;
	CLEANUP_FREE char *path = ckpt_text("%s/index", s->path);
	struct ckpt_index *ix = NULL;
	bool fresh;
	int rc;

	if (s->index) {
		rc = ckpt_index_each_pack(s->index, see_pack, NULL);
	} else {
		rc = ckpt_index_open(path, s->id, true, &ix, &fresh);
		ckpt_index_close(ix);
	}
	if (rc && rc != -ENOENT)
		bad(v, "index", rc == -EBADMSG ? "is damaged; --repair-index rebuilds it" : strerror(-rc));
}

static int repair_index(const char *store)
{
	struct ckpt_listing l;
	int rc = ckpt_listing_open(store, CKPT_STORE_WRITE, &l);

	if (rc)
		return rc;
	rc = l.store->index ? ckpt_dedupe_rebuild(l.store, NULL, NULL) : -ENOSPC;
	ckpt_listing_close(&l);
	if (rc)
		return ckpt_fail(store,
				 rc == -EBADMSG ? "look at the disk (`dmesg`), then try again" : ckpt_errno_hint(rc),
				 "cannot rebuild the index: %s", strerror(-rc));
	ckpt_note("rebuilt the index");
	return 0;
}

// --- The verb -----------------------------------------------------------------------------------------------------------

static int choose_version(struct verify *v, const struct ckpt_operand *o, const char *word)
{
	int rc = ckpt_listing_version(&v->l, o, word, &v->versions[v->version_count]);

	if (rc)
		return rc;
	return *v->versions[v->version_count++].path ? ckpt_usage(word, "name the version alone", "a file in a step")
						     : 0;
}

// The keys of the steps asked for. A name may be that of one in the trash.
static int choose(struct verify *v, const struct ckpt_operand *o)
{
	if (!o->count)
		return 0;
	v->keys = ckpt_need(calloc(o->count, sizeof(*v->keys)));
	v->versions = ckpt_need(calloc(o->count, sizeof(*v->versions)));
	for (size_t w = 0; w < o->count; w++) {
		CLEANUP_FREE char *path = NULL;
		struct ckpt_step *step;
		char *key = NULL;

		if (ckpt_listing_is_version(&v->l, o, o->steps[w])) {
			int rc = choose_version(v, o, o->steps[w]);

			if (rc)
				return rc;
			continue;
		}
		for (size_t i = 0; i < v->count && !key; i++) {
			CLEANUP_FREE char *name = ckpt_listing_name(&v->l, v->found[i].folder_id, v->found[i].name);

			if (!strcmp(name, o->steps[w]))
				key = ckpt_text("%s", v->found[i].key);
		}
		if (!key) {
			int rc = ckpt_listing_find(&v->l, o, o->steps[w], &step, &path);

			if (rc)
				return rc;
			key = ckpt_text("%s", step->key);
			ckpt_step_unref(step);
			if (*path) {
				free(key);
				return ckpt_usage(o->steps[w], "name the step", "a file in a step");
			}
		}
		v->keys[v->key_count++] = key;
	}
	return 0;
}

static void check_older(struct verify *v, const struct ckpt_at_version *at)
{
	struct ckpt_check_version c = {.read_data = v->read_data, .bad = bad, .progress = progress, .arg = v};
	CLEANUP_FREE char *name = ckpt_listing_name(&v->l, at->version->is.folder_id, at->version->is.name);
	CLEANUP_FREE char *what = ckpt_text("%s@%u", name, at->version->is.version);
	struct ckpt_manifest *m;

	v->step = what;
	if (ckpt_step_read_manifest(at->step, &at->version->is, &m)) {
		bad(v, NULL, "its manifest is damaged or missing");
	} else {
		ckpt_check_version(at->step, m, &c);
		ckpt_manifest_unref(m);
	}
	v->step = NULL;
	v->steps++;
	v->files += c.files;
	v->bytes += c.bytes;
	v->unsealed += c.unsealed;
}

static uint64_t expected(const struct verify *v)
{
	struct ckpt_step **steps;
	size_t count;
	uint64_t sum = 0;

	if (ckpt_step_list(v->l.store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		if (wanted(v, steps[i]->key)) {
			CLEANUP_VERSION struct ckpt_version *is = ckpt_step_version(steps[i]);

			sum += v->read_data ? is->is.bytes : is->is.files;
		}
	ckpt_step_list_free(steps, count);
	for (size_t i = 0; i < v->version_count; i++)
		sum += v->read_data ? v->versions[i].version->is.bytes : v->versions[i].version->is.files;
	return sum;
}

static int report(struct verify *v)
{
	size_t count = json_array_size(v->bad);
	char size[CKPT_SIZE_MAX];

	if (ckpt_output.json) {
		ckpt_output_json(json_pack("{s:I, s:I, s:I, s:I, s:O}", "steps", (json_int_t)v->steps, "files",
					   (json_int_t)v->files, "bytes", (json_int_t)v->bytes, "unsealed",
					   (json_int_t)v->unsealed, "bad", v->bad));
		return count ? 1 : 0;
	}
	printf("%" PRIu64 " steps, %" PRIu64 " files, %s: ", v->steps, v->files, ckpt_size_text(v->bytes, size));
	if (count)
		printf("%zu problems\n", count);
	else
		puts("no damage");
	if (!ckpt_output.quiet && !v->read_data)
		puts("Names, sizes, modes and times were compared. --read-data also reads every byte, and "
		     "compares sealed files.");
	else if (!ckpt_output.quiet && v->unsealed)
		printf("Every byte was read. %" PRIu64
		       " files are not sealed, so that their bytes could not be compared.\n",
		       v->unsealed);
	else if (!ckpt_output.quiet)
		puts("Every byte was read, and compared with its SHA-256.");
	return count ? 1 : 0;
}

static int run(struct verify *v, const struct ckpt_operand *o)
{
	int rc = v->repair_index ? repair_index(o->store) : 0;

	if (!rc)
		rc = ckpt_listing_open(o->store, CKPT_STORE_READ, &v->l);
	if (rc)
		return rc;
	rc = ckpt_journal_each(v->l.store->journal, collect, v);
	if (rc)
		ckpt_need(NULL);
	if (v->count)
		qsort(v->found, v->count, sizeof(*v->found), by_key_and_version);
	rc = choose(v, o);
	if (rc)
		return rc;
	ckpt_progress_start("verify", expected(v), v->read_data);
	v->packs = ckpt_packs_new(v->l.store);
	if (!v->keys)
		check_log(v);
	check_versions(v);
	for (size_t i = 0; i < v->version_count; i++)
		check_older(v, &v->versions[i]);
	if (!v->keys) {
		check_unnamed_packs(v);
		check_index(v);
	}
	ckpt_progress_stop();
	return report(v);
}

static int on_option(int key, char *arg __attribute__((unused)), void *input)
{
	struct verify *v = input;

	if (key == 'd')
		v->read_data = true;
	else
		v->repair_index = true;
	return 0;
}

int ckpt_verb_verify(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"read-data", 'd', NULL, 0, "also read every byte, and compare sealed files with their SHA-256", 0},
		{"repair-index", 'i', NULL, 0, "rebuild the index first; the store must not be mounted", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [STEP...]",
		.doc = "Checks that all files of all steps are there and unchanged. Exit status 1: damage "
		       "was found.\vExamples:\n"
		       "  ckptfs verify /data/run42\n"
		       "  ckptfs verify --read-data /ckpt latest\n"
		       "  ckptfs verify --read-data /ckpt 1000@3",
		.options = options,
		.option = on_option,
		.operands_max = ~0u,
	};
	struct verify v = {0};
	struct ckpt_operand o;
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &o);
	if (rc)
		return rc;
	v.bad = ckpt_need(json_array());
	rc = run(&v, &o);
	json_decref(v.bad);
	for (size_t i = 0; i < v.key_count; i++)
		free(v.keys[i]);
	for (size_t i = 0; i < v.version_count; i++)
		ckpt_at_version_done(&v.versions[i]);
	free(v.versions);
	free(v.found);
	free(v.keys);
	ckpt_packs_free(v.packs);
	ckpt_listing_close(&v.l);
	ckpt_operand_done(&o);
	return rc;
}

// verify: everything that the store has against everything that it says.
//
// The records are listed and read anew here, not through the table of steps, which leaves out what is damaged.
#include "tools/verb.h"

#include "core/base/hash.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/store/errlog.h"
#include "core/store/load.h"
#include "core/store/trash.h"
#include "tools/check.h"
#include "tools/check_packs.h"
#include "tools/listing.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/units.h"

#include <inttypes.h>
#include <fcntl.h>
#include <stdio.h>

// A record as it lies in the store.
struct found {
	char *object; // "steps/KEY/VERSION"
	char key[CKPT_STEP_KEY_MAX];
	uint32_t version;
	bool decoded;
	struct ckpt_summary summary;
};

struct verify {
	struct ckpt_listing l;
	struct ckpt_packs *packs;
	bool read_data, repair_index;
	struct found *found;
	size_t count, cap;
	char **keys; // the steps asked for; NULL: all
	size_t key_count;
	char *step;          // the name of the step in hand, for what is bad
	const char *object;  // its record, or NULL
	const char *session; // once that was read
	uint64_t steps, files, bytes, done, unsealed;
	json_t *bad;
};

// --- What is bad --------------------------------------------------------------------------------------------------------

// Beside a mount: the version has expired since the records were listed, and its files and packs may have gone with it. The files
// go out of sight first, then the record, and then they are removed (delete.h).
static bool is_gone(const struct verify *v)
{
	char name[CKPT_TRASH_SESSION_NAME];
	struct ckpt_object info;

	snprintf(name, sizeof(name), CKPT_TRASH_DROP "%s", v->session ? v->session : "");
	if (v->session && !faccessat(v->l.store->trash_fd, name, F_OK, AT_SYMLINK_NOFOLLOW))
		return true;
	return v->object && ckpt_objects_head(v->l.store->objects, v->object, &info) == -ENOENT;
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

// --- The records --------------------------------------------------------------------------------------------------------

static int collect(void *arg, const char *object, const struct ckpt_object *info)
{
	struct verify *v = arg;
	struct found f = {0};

	(void)info;
	if (ckpt_grow((void **)&v->found, &v->cap, v->count + 1, sizeof(*v->found)))
		return -ENOMEM;
	(void)ckpt_name_of_record(object, f.key, &f.version); // else it has no key: what is there is no record
	f.object = strdup(object);
	if (!f.object)
		return -ENOMEM;
	v->found[v->count++] = f;
	return 0;
}

static int by_key_and_version(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	int order = strcmp(x->key, y->key);

	return order ? order : (x->version > y->version) - (x->version < y->version);
}

// The step's name out of its key, for records that cannot say it themselves.
static char *name_of_key(const struct verify *v, const char *key)
{
	CLEANUP_FREE char *copy = ckpt_text("%s", key);
	char *name = strstr(copy, "%2F"), *out;
	const char *folder = name ? copy : "";

	if (!strncmp(copy, "%%", 2))
		return ckpt_text("%s", key);
	if (name) {
		*name = '\0';
		name += 3;
	} else {
		name = copy;
	}
	out = name;
	for (const char *p = name; *p; out++) {
		unsigned byte;

		if (*p == '%' && sscanf(p, "%%%2x", &byte) == 1 && p[1] && p[2]) {
			*out = (char)byte;
			p += 3;
		} else {
			*out = *p++;
		}
	}
	*out = '\0';
	return ckpt_listing_name(&v->l, folder, name);
}

static int read_record(struct verify *v, const struct found *f, struct ckpt_record *ret_record)
{
	CLEANUP_FREE void *data = NULL;
	size_t len;
	int rc = ckpt_objects_get_all(v->l.store->objects, f->object, CKPT_RECORD_BYTES_MAX, &data, &len, NULL);

	if (!rc)
		rc = ckpt_record_decode(data, len, ret_record);
	if (rc == -EBADMSG)
		bad(v, NULL, "its record is damaged");
	else if (rc == -ENOTSUP)
		bad(v, NULL, "its record is of a newer ckptfs");
	else if (rc)
		bad(v, NULL, strerror(-rc));
	return rc;
}

static bool names_itself(struct verify *v, const struct found *f, const struct ckpt_record *r)
{
	char key[CKPT_STEP_KEY_MAX];

	if (strcmp(r->store_id, v->l.store->id)) {
		bad(v, NULL, "its record is of another store");
		return false;
	}
	if (ckpt_name_key(r->summary.folder_id, r->summary.name, key) || strcmp(key, f->key) ||
	    r->summary.version != f->version) {
		bad(v, NULL, "its record belongs to another step or version");
		return false;
	}
	return true;
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

// Whether this version is the last of its session: no other follows here, also not after a deletion (it came back), and it did
// not move away: then the one under the other name answers.
static bool is_last(struct verify *v, size_t i, const struct ckpt_summary *s)
{
	for (size_t next = i + 1; next < v->count && !strcmp(v->found[next].key, v->found[i].key); next++) {
		struct ckpt_record r;
		bool follows;

		if (read_record(v, &v->found[next], &r))
			return false;
		follows = !strcmp(r.summary.session, s->session) &&
			  (!r.summary.deleted || !strcmp(r.summary.event, "move"));
		ckpt_record_done(&r);
		if (follows)
			return false;
	}
	return true;
}

// One version. The last of a session also answers for what lies in its directory; older ones have the same files.
static void check_version(struct verify *v, size_t i)
{
	struct found *f = &v->found[i];
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
	f->decoded = names_itself(v, f, &r);
	f->summary = r.summary;
	if (f->decoded && !r.summary.deleted && !read_manifest(v, &r, &m)) {
		check_totals(v, m, &f->summary);
		check_index_copy(v, &f->summary);
		if (!ckpt_uuid_check(f->summary.session)) {
			bad(v, NULL, "its record names no session");
		} else if (is_last(v, i, &f->summary)) {
			v->steps++;
			v->files += f->summary.files;
			v->bytes += f->summary.bytes;
			v->session = f->summary.session;
			ckpt_check_files(&check, m, &f->summary);
			v->session = NULL;
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

static void check_records(struct verify *v)
{
	for (size_t i = 0; i < v->count; i++) {
		struct found *f = &v->found[i];
		if (!*f->key) {
			if (!v->keys)
				bad(v, f->object, "is not a record: a record is steps/KEY/VERSION");
			continue;
		}
		if (!wanted(v, f->key))
			continue;
		v->step = name_of_key(v, f->key);
		v->object = f->object;
		check_version(v, i);
		v->object = NULL;
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

static bool same_summary(const struct ckpt_summary *a, const struct ckpt_summary *b)
{
	CLEANUP_FREE void *x = NULL, *y = NULL;
	size_t x_len, y_len;

	return !ckpt_summary_encode(a, &x, &x_len) && !ckpt_summary_encode(b, &y, &y_len) && x_len == y_len &&
	       !memcmp(x, y, x_len);
}

static int check_indexed(void *arg, const char *key, const struct ckpt_summary *s)
{
	struct verify *v = arg;
	struct found *want = ckpt_need(calloc(1, sizeof(*want))), *f;

	snprintf(want->key, sizeof(want->key), "%s", key);
	want->version = s->version;
	f = v->count ? bsearch(want, v->found, v->count, sizeof(*v->found), by_key_and_version) : NULL;
	free(want);
	if (!f || !f->decoded || same_summary(&f->summary, s))
		return 0; // what the index has too much, or a record came in meanwhile, is set right at the next mount
	v->step = name_of_key(v, key);
	bad(v, NULL, "the index and its record differ");
	free(TAKE_PTR(v->step));
	return 0;
}

// The index is written behind and may lack what is new; what it has must be right.
static void check_index(struct verify *v)
{
	struct ckpt_store *s = v->l.store;
	CLEANUP_FREE char *path = ckpt_text("%s/index", s->path);
	struct ckpt_index *ix = NULL;
	bool fresh;
	int rc;

	if (s->index) {
		rc = ckpt_index_each(s->index, check_indexed, v);
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
	rc = l.store->index ? ckpt_index_reset(l.store->index) : -ENOSPC;
	if (!rc)
		rc = ckpt_load_steps(l.store, true);
	ckpt_listing_close(&l);
	if (rc)
		return ckpt_fail(store,
				 rc == -EBADMSG ? "look at the disk (`dmesg`), then try again" : ckpt_errno_hint(rc),
				 "cannot rebuild the index: %s", strerror(-rc));
	ckpt_note("rebuilt the index");
	return 0;
}

// --- The verb -----------------------------------------------------------------------------------------------------------

// The keys of the steps asked for. A name may be that of a step whose record is damaged, which no table has.
static int choose(struct verify *v, const struct ckpt_operand *o)
{
	if (!o->count)
		return 0;
	v->keys = ckpt_need(calloc(o->count, sizeof(*v->keys)));
	for (size_t w = 0; w < o->count; w++) {
		CLEANUP_FREE char *path = NULL;
		struct ckpt_step *step;
		char *key = NULL;

		for (size_t i = 0; i < v->count && !key; i++) {
			CLEANUP_FREE char *name = name_of_key(v, v->found[i].key);

			if (*v->found[i].key && !strcmp(name, o->steps[w]))
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

static uint64_t expected(const struct verify *v)
{
	struct ckpt_step **steps;
	size_t count;
	uint64_t sum = 0;

	if (ckpt_step_list(v->l.store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		if (wanted(v, steps[i]->key))
			sum += v->read_data ? steps[i]->summary.bytes : steps[i]->summary.files;
	ckpt_step_list_free(steps, count);
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
	rc = ckpt_objects_list(v->l.store->objects, "steps/", NULL, collect, v);
	if (rc)
		return ckpt_fail(o->store, ckpt_errno_hint(rc), "its records cannot be listed: %s", strerror(-rc));
	if (v->count)
		qsort(v->found, v->count, sizeof(*v->found), by_key_and_version);
	rc = choose(v, o);
	if (rc)
		return rc;
	ckpt_progress_start("verify", expected(v), v->read_data);
	v->packs = ckpt_packs_new(v->l.store);
	check_records(v);
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
		       "  ckptfs verify --read-data /ckpt latest",
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
	for (size_t i = 0; i < v.count; i++)
		free(v.found[i].object);
	for (size_t i = 0; i < v.key_count; i++)
		free(v.keys[i]);
	free(v.found);
	free(v.keys);
	ckpt_packs_free(v.packs);
	ckpt_listing_close(&v.l);
	ckpt_operand_done(&o);
	return rc;
}

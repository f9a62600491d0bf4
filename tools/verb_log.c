// log: what happened in a store, newest first, as far back as its log goes.
#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/find/timeline.h"
#include "tools/output.h"
#include "tools/rows.h"
#include "tools/units.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>

#define HOST_MAX 64
#define NODE_DIGITS 8 // of the id of another node, for people

struct log_verb {
	struct ckpt_timeline_want want;
	struct ckpt_operand o;
	struct ckpt_listing l;
	json_t *rows;
	char host[HOST_MAX + 1]; // of this machine, or ""
	bool others;             // a row is of another node
};

// --- Rows ---------------------------------------------------------------------------------------------------------------

static json_t *integer_or_null(bool is_known, uint64_t value)
{
	return is_known ? json_integer((json_int_t)value) : json_null();
}

static json_t *name_or_null(const struct log_verb *v, const char *folder_id, const char *name)
{
	CLEANUP_FREE char *path = *name ? ckpt_listing_name(&v->l, folder_id, name) : NULL;

	return ckpt_json_text(path);
}

// The user's name is that on this machine, as in `info`.
static json_t *row_by(struct log_verb *v, const struct ckpt_act_row *row)
{
	bool here = !strcmp(row->node, ckpt_journal_node(v->l.store->journal));
	bool known = row->actor.uid != CKPT_UID_UNKNOWN;
	struct passwd *user = known ? getpwuid(row->actor.uid) : NULL;

	v->others |= !here;
	return ckpt_need(json_pack(
		"{s:o, s:o, s:o, s:o, s:s}", "program", ckpt_json_text(*row->actor.comm ? row->actor.comm : NULL),
		"uid", integer_or_null(known, row->actor.uid), "user", ckpt_json_text(user ? user->pw_name : NULL),
		"host", ckpt_json_text(here && *v->host ? v->host : NULL), "node", row->node));
}

static int add_row(void *arg, const struct ckpt_act_row *row)
{
	struct log_verb *v = arg;
	json_t *made = ckpt_need(json_pack(
		"{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "seq", (json_int_t)row->seq, "at",
		ckpt_json_time(row->at_ns), "operation", row->word, "step", name_or_null(v, row->folder_id, row->name),
		"version", integer_or_null(row->version, row->version), "event",
		ckpt_json_text(*row->event ? row->event : NULL), "files", integer_or_null(row->has_size, row->files),
		"bytes", integer_or_null(row->has_size, row->bytes), "by", row_by(v, row)));

	if (*row->old_name && json_object_set_new(made, "from", name_or_null(v, row->old_folder_id, row->old_name)))
		ckpt_need(NULL);
	return json_array_append_new(v->rows, made) ? -ENOMEM : 0;
}

// --- The answer ---------------------------------------------------------------------------------------------------------

static const char *text_of(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

static const char *time_text(const json_t *row, char text[CKPT_TIME_MAX])
{
	const char *at = text_of(row, "at");
	int64_t ns;

	return at && !ckpt_time_parse(at, false, &ns) ? ckpt_time_local(ns, text) : NULL;
}

static const char *number_text(const json_t *row, const char *key, char text[24])
{
	const json_t *value = json_object_get(row, key);

	if (!json_is_integer(value))
		return NULL;
	snprintf(text, 24, "%lld", json_integer_value(value));
	return text;
}

static char *step_text(const json_t *row)
{
	const char *name = text_of(row, "step"), *from = text_of(row, "from");

	return from ? ckpt_text("%s -> %s", from, name) : ckpt_text("%s", name ? name : "-");
}

static void print_row(const struct log_verb *v, struct ckpt_table *t, const json_t *row)
{
	const json_t *by = json_object_get(row, "by"), *bytes = json_object_get(row, "bytes");
	char at[CKPT_TIME_MAX], version[24], files[24], size[CKPT_SIZE_MAX], uid[24], node[NODE_DIGITS + 1];
	const char *user = text_of(by, "user"), *host = text_of(by, "host");
	CLEANUP_FREE char *step = step_text(row);

	snprintf(node, sizeof(node), "%s", text_of(by, "node"));
	ckpt_table_row(t, (const char *[]){time_text(row, at), text_of(row, "operation"), step,
					   number_text(row, "version", version), number_text(row, "files", files),
					   json_is_integer(bytes)
						   ? ckpt_size_text((uint64_t)json_integer_value(bytes), size)
						   : NULL,
					   text_of(by, "program"), user ? user : number_text(by, "uid", uid),
					   v->others ? (host ? host : node) : NULL});
}

static void print_rows(const struct log_verb *v)
{
	struct ckpt_table *t = ckpt_table_new();
	json_t *row;
	size_t i;

	ckpt_table_column(t, "WHEN", CKPT_LEFT);
	ckpt_table_column(t, "ACT", CKPT_LEFT);
	ckpt_table_column(t, "STEP", CKPT_LEFT);
	ckpt_table_column(t, "VERSION", CKPT_RIGHT);
	ckpt_table_column(t, "FILES", CKPT_RIGHT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "PROGRAM", CKPT_LEFT);
	ckpt_table_column(t, "USER", CKPT_LEFT);
	if (v->others)
		ckpt_table_column(t, "NODE", CKPT_LEFT);
	json_array_foreach(v->rows, i, row) print_row(v, t, row);
	ckpt_table_print(t);
}

static void say_rows(struct log_verb *v)
{
	if (ckpt_output.json)
		ckpt_output_json(TAKE_PTR(v->rows));
	else
		print_rows(v);
}

static int say_end(const struct log_verb *v, const struct ckpt_timeline_end *end)
{
	CLEANUP_FREE char *hint = NULL;
	char text[CKPT_TIME_MAX];

	if (end->whole_from_ns != INT64_MIN)
		ckpt_note("the log is complete from %s on; older entries were trimmed, and acts are missing",
			  ckpt_time_local(end->whole_from_ns, text));
	if (!end->damaged)
		return 0;
	hint = ckpt_text("`ckptfs doctor %s` says more", v->o.store);
	return ckpt_fail(v->o.store, hint, "%" PRIu64 " entr%s of the log cannot be read, the first is log/%016" PRIx64,
			 end->damaged_count, end->damaged_count == 1 ? "y" : "ies", end->damaged);
}

// --- Which step -----------------------------------------------------------------------------------------------------------

struct named {
	struct ckpt_step *step; // or NULL
	char *path;
	struct ckpt_step_name is;
};

static void named_done(struct named *n)
{
	ckpt_step_unref(n->step);
	free(n->path);
}

// A name that no step has any more: acts are looked for that name it.
static void take_former(struct log_verb *v, const char *word, struct named *n)
{
	const char *slash = strrchr(word, '/');

	if (ckpt_listing_is_trash(word) ||
	    ckpt_folders_id(&v->l.folders, word, slash ? (size_t)(slash - word) : 0, n->is.folder_id))
		return;
	snprintf(n->is.name, sizeof(n->is.name), "%s", slash ? slash + 1 : word);
	v->want.folder_id = n->is.folder_id;
	v->want.name = n->is.name;
}

// Steps that had its name before it count their versions as one with it.
static void take_present(struct log_verb *v, const char *word, struct named *n)
{
	v->want.id = n->step->session;
	if (ckpt_listing_is_trash(word))
		return;
	ckpt_step_name(n->step, &n->is);
	v->want.folder_id = n->is.folder_id;
	v->want.name = n->is.name;
}

static int take_step(struct log_verb *v, struct named *n)
{
	const char *word = v->o.steps[0];

	n->step = ckpt_listing_look(&v->l, &v->o, word, &n->path);
	if (n->step && *n->path)
		return ckpt_usage(word, "name the step alone", "a file in a step, where a whole step is wanted");
	if (n->step)
		take_present(v, word, n);
	else
		take_former(v, word, n);
	return 0;
}

// Nothing was ever called so, as far as the log goes.
static int no_step(struct log_verb *v)
{
	CLEANUP_FREE char *path = NULL;
	struct ckpt_step *step;
	int rc = ckpt_listing_find(&v->l, &v->o, v->o.steps[0], &step, &path);

	if (!rc)
		ckpt_step_unref(step);
	return rc;
}

// --- The verb -----------------------------------------------------------------------------------------------------------

static int read_log(struct log_verb *v)
{
	CLEANUP(named_done) struct named n = {0};
	struct ckpt_store *s = v->l.store;
	struct ckpt_timeline_end end;
	int rc = v->o.count ? take_step(v, &n) : 0;

	if (rc)
		return rc;
	if (v->o.count && !n.step && !v->want.name)
		return no_step(v);
	rc = ckpt_timeline_read(s->objects, s->id, ckpt_journal_node(s->journal), &v->want, add_row, v, &end);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc)
		return ckpt_fail(v->o.store, ckpt_errno_hint(rc), "its log cannot be read: %s", strerror(-rc));
	if (v->o.count && !n.step && !json_array_size(v->rows))
		return no_step(v);
	say_rows(v);
	return say_end(v, &end);
}

static int take_count(const char *text, size_t *ret_count)
{
	unsigned long long value;

	if (!*text || strlen(text) > 18 || strspn(text, "0123456789") < strlen(text)) // too few digits to wrap
		return -EINVAL;
	value = strtoull(text, NULL, 10);
	*ret_count = (size_t)value;
	return value ? 0 : -EINVAL;
}

static int take_since(const char *text, int64_t *ret_ns)
{
	int64_t ns;

	if (ckpt_duration_parse(text, &ns))
		return ckpt_time_parse(text, true, ret_ns);
	*ret_ns = ckpt_time_between(ns, ckpt_sys.now_ns());
	return 0;
}

static int on_option(int key, char *arg, void *input)
{
	struct log_verb *v = input;

	if (key == 'a')
		v->want.details = true;
	else if (key == 'n')
		return take_count(arg, &v->want.most) ? ckpt_usage(arg, "as in -n 20", "is not a number of acts") : 0;
	else
		return take_since(arg, &v->want.since_ns)
			       ? ckpt_usage(arg, "as in 30m, 24h, 7d, 2026-11-28 or 2026-11-28T10:00",
					    "is neither a duration nor a time")
			       : 0;
	return 0;
}

static int run(struct log_verb *v)
{
	int rc = v->o.count > 1 ? ckpt_usage(v->o.steps[1], "usage: ckptfs log [STORE] [STEP]", "one operand too many")
				: ckpt_listing_open(v->o.store, CKPT_STORE_READ, &v->l);

	if (rc)
		return rc;
	if (gethostname(v->host, sizeof(v->host) - 1))
		*v->host = '\0';
	v->rows = ckpt_need(json_array());
	rc = read_log(v);
	json_decref(v->rows);
	ckpt_listing_close(&v->l);
	return rc;
}

int ckpt_verb_log(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"number", 'n', "N", 0, "only the newest N acts", 0},
		{"since", 's', "D", 0, "only acts of the last D (30m, 24h, 7d), or since the time D (local time)", 0},
		{"all", 'a', NULL, 0,
		 "also sealing and packing (seal, cool, repack), and changes of plain files that came by the remote",
		 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "[STORE] [STEP]",
		.doc = "Shows what happened in a store, newest first: which act, on which step, by which program and "
		       "user. With STEP: only what concerns this step, also under its former names. trash/NAME is a "
		       "deleted step; the name of a step that has expired or has another name now is found, too.\v"
		       "Acts are: commit, edit, restore, metadata (a step got other metadata), delete, undelete, "
		       "expire, rename, pin, unpin, promote, temporary, policy, setting, attach and detach (the store "
		       "got or "
		       "lost its remote), with --all seal, findings, cool and repack of a mount by itself, and "
		       "pull (many changes of other nodes came at once). Acts of other nodes are listed once they "
		       "have come to this one. What a mount does by itself is by the program ckptfs and the user of "
		       "the mount.\n\n"
		       "The log keeps the newest acts, and older ones only as long as a step needs them. A note on "
		       "stderr says from when on it is complete. Exit status 1: an entry is damaged; all others are "
		       "shown.\n\n"
		       "Examples:\n"
		       "  ckptfs log /ckpt -n 20\n"
		       "  ckptfs log --since 24h /data/run42\n"
		       "  ckptfs log --json /ckpt 1000",
		.options = options,
		.option = on_option,
		.operands_max = 2,
	};
	struct log_verb v = {.want = {.since_ns = INT64_MIN}};
	struct ckpt_words words;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &v, &words);
	rc = ckpt_operand_take(&words, &v.o);
	if (rc)
		return rc;
	rc = run(&v);
	ckpt_operand_done(&v.o);
	return rc;
}

// remote: the object store behind a store, and what waits to be pushed there; and giving a store one, or taking it away (remote_change.h).
#include "tools/verb.h"

#include "core/base/clock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/place.h"
#include "core/remote/queue.h"
#include "core/step/ask.h"
#include "core/step/holder.h"
#include "tools/act.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/push.h"
#include "tools/remote_change.h"
#include "tools/remote_place.h"
#include "tools/units.h"

#include <inttypes.h>
#include <stdio.h>

#define POLL_NS INT64_C(100000000)
#define PATIENCE_NS INT64_C(30000000000) // with a remote that does not answer
#define OPEN_NS INT64_C(15000000000)     // with a step that is open for change: an edit ends within 5 s
#define AGAIN_NS INT64_C(5000000000)     // between two attempts meanwhile

struct remote {
	bool yes;
	const char *url;    // of add
	int64_t timeout_ns; // -1: none
	struct ckpt_operand o;
};

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static json_int_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static int fail_local(const char *store)
{
	return ckpt_fail(store, "`ckptfs remote add` gives it one", "a local store has no object store");
}

// --- What there is ------------------------------------------------------------------------------------------------------

// -ENOENT: nobody has the store mounted.
static int ask_mount(const char *store, const char *request, json_t **ret_answer)
{
	CLEANUP_FREE char *reply = NULL;
	int rc = ckpt_ask(store, request, CKPT_SOCKET_TIMEOUT_S, &reply);

	if (rc == -ENOENT)
		return rc;
	if (rc)
		return ckpt_fail(store, ckpt_errno_hint(rc), "the process that has it mounted does not answer: %s",
				 strerror(-rc));
	rc = ckpt_answer_fail(store, reply);
	if (!rc)
		*ret_answer = ckpt_need(json_loads(reply, 0, NULL));
	return rc;
}

// Opened for writing it reads what others have appended, looks at the plain files, and tells how the remote has answered.
static int look_here(const char *store, json_t **ret_answer)
{
	CLEANUP_FREE char *text = NULL, *why = NULL, *hint = NULL;
	CLEANUP(ckpt_settings_done) struct ckpt_settings settings;
	struct ckpt_store *s = NULL;
	int rc;

	ckpt_settings_init(&settings);
	settings.keep_trash = true;
	rc = ckpt_store_holder(store, NULL) ? ckpt_store_open(store, CKPT_STORE_WRITE, &settings, &s) : -EBUSY;
	if (rc == -EBUSY || rc == -EROFS || rc == -EACCES) {
		ckpt_note("plain files and failures are not shown: the store cannot be opened for writing now");
		rc = ckpt_store_open(store, CKPT_STORE_READ, &settings, &s);
	}
	if (rc) {
		ckpt_listing_explain(store, rc, &why, &hint);
		return ckpt_fail(store, hint, "%s", why);
	}
	text = *ckpt_remote_of(s) ? ckpt_need(ckpt_queue_json(s)) : NULL;
	ckpt_store_close(s);
	if (!text)
		return fail_local(store);
	*ret_answer = ckpt_need(json_loads(text, 0, NULL));
	return 0;
}

static int look(const char *store, json_t **ret_answer)
{
	int rc = ask_mount(store, "{\"verb\":\"remote\"}", ret_answer);

	return rc == -ENOENT ? look_here(store, ret_answer) : rc;
}

// --- show ---------------------------------------------------------------------------------------------------------------

static void print_state(const json_t *r)
{
	const char *state = text_of(r, "state"), *since = text_of(r, "since"), *error = text_of(r, "cause");
	char at[CKPT_TIME_MAX];
	int64_t ns;

	if (since && !ckpt_time_parse(since, false, &ns))
		printf("state     %s since %s%s%s\n", state, ckpt_time_local(ns, at), error ? ": " : "",
		       error ? error : "");
	else
		printf("state     %s%s%s\n", state, error ? ": " : "", error ? error : "");
}

static void print_options(const json_t *options)
{
	const json_t *option;
	size_t i;

	printf("options   ");
	json_array_foreach(options, i, option) printf("%s%s", i ? "," : "", json_string_value(option));
	printf("%s\n", json_array_size(options) ? "" : "-");
}

static void add_rows(struct ckpt_table *t, const json_t *rows)
{
	char size[CKPT_SIZE_MAX], at[CKPT_TIME_MAX];
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *step = text_of(row, "step"), *since = text_of(row, "since"), *error = text_of(row, "error");
		const char *what = error ? error : text_of(row, "waits_for");
		int64_t ns;

		ckpt_table_row(t, (const char *[]){
					  text_of(row, "kind"), step ? step : text_of(row, "path"),
					  ckpt_size_text((uint64_t)number_of(row, "bytes"), size),
					  since && !ckpt_time_parse(since, false, &ns) ? ckpt_time_local(ns, at) : "-",
					  text_of(row, "state"), what ? what : "-"});
	}
}

static void print_remote(const json_t *r)
{
	const json_t *queue = json_object_get(r, "queue"), *dropped = json_object_get(r, "dropped");
	struct ckpt_table *t;
	char size[CKPT_SIZE_MAX];

	printf("url       %s\n", text_of(r, "url"));
	print_options(json_object_get(r, "options"));
	print_state(r);
	printf("position  entry %" JSON_INTEGER_FORMAT " of its log\n", number_of(r, "position"));
	printf("node      %s\n", text_of(r, "node"));
	printf("work_dir  %s\n", text_of(r, "work_dir"));
	printf("queue     %zu operations, %s\n", json_array_size(queue),
	       ckpt_size_text((uint64_t)number_of(r, "bytes"), size));
	if (!json_array_size(queue) && !json_array_size(dropped))
		return;
	t = ckpt_table_new();
	ckpt_table_column(t, "OPERATION", CKPT_LEFT);
	ckpt_table_column(t, "NAME", CKPT_LEFT);
	ckpt_table_column(t, "SIZE", CKPT_RIGHT);
	ckpt_table_column(t, "SINCE", CKPT_LEFT);
	ckpt_table_column(t, "STATE", CKPT_LEFT);
	ckpt_table_column(t, "WAITS FOR", CKPT_LEFT);
	add_rows(t, queue);
	add_rows(t, dropped);
	ckpt_table_print(t);
}

static int show(struct remote *a)
{
	json_t *r;
	int rc = look(a->o.store, &r);

	if (rc)
		return rc;
	json_object_del(r, "begun");
	json_object_del(r, "ended");
	if (ckpt_output.json)
		ckpt_output_json(json_incref(r));
	else
		print_remote(r);
	json_decref(r);
	return 0;
}

// --- sync ---------------------------------------------------------------------------------------------------------------

// Rows that cannot go now are no reason to wait.
static size_t count_going(const json_t *queue)
{
	const json_t *row;
	size_t i, count = 0;

	json_array_foreach(queue, i, row)
	{
		const char *state = text_of(row, "state");

		count += state && (!strcmp(state, "waiting") || !strcmp(state, "sending"));
	}
	return count;
}

// The plain tree is looked at within that turn, too: what is not in the queue yet is counted as one file.
static bool is_over(const json_t *r, json_int_t begun)
{
	const json_t *queue = json_object_get(r, "queue"), *row;
	json_int_t rows = 0;
	size_t i;

	json_array_foreach(queue, i, row) rows += !text_of(row, "step");
	return number_of(r, "ended") > begun && !count_going(queue) && number_of(r, "files") <= rows;
}

static int tell_failed(const json_t *r)
{
	const json_t *row;
	int status = 0;
	size_t i;

	json_array_foreach(json_object_get(r, "queue"), i, row) if (text_of(row, "error")) status =
		ckpt_fail(text_of(row, "step"),
			  "`ckptfs verify` says which files are damaged; save it again, delete it, or "
			  "`ckptfs remote drop` it",
			  "it cannot be uploaded: its files on this node cannot be read (%s)", text_of(row, "error"));
	return status;
}

// A step is held while it is open for change, and may be so for long: an edit ends some seconds after its last close.
static const json_t *open_row(const json_t *r)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(r, "queue"), i,
			   row) if (text_of(row, "step") && !strcmp(text_of(row, "state"), "held")) return row;
	return NULL;
}

static int tell_open(const json_t *r, const char *hint)
{
	const json_t *row;
	int status = 0;
	size_t i;

	json_array_foreach(json_object_get(r, "queue"), i,
			   row) if (text_of(row, "step") && !strcmp(text_of(row, "state"), "held")) status =
		ckpt_fail(text_of(row, "step"), hint,
			  "is open for change on this node: its changes are not in the object store");
	return status;
}

struct syncing {
	const char *store;
	int64_t open_ns; // since when nothing but steps that are open for change waits, and what is behind them; 0: not so
	int64_t began_ns, asked_ns, until_ns; // monotonic
	json_int_t begun;                     // turns of the mount before the first question; -1: not asked yet
};

enum { NOT_YET = -1 }; // beside exit statuses

static int judge(struct syncing *s, const json_t *r)
{
	CLEANUP_FREE char *hint = ckpt_text("`ckptfs remote show %s` shows what waits", s->store);
	int64_t now_ns = ckpt_sys.mono_ns();
	const char *error = text_of(r, "cause");

	if (s->begun < 0)
		s->begun = number_of(r, "begun");
	ckpt_progress_update((uint64_t)number_of(r, "bytes"));
	if (!is_over(r, s->begun) || !open_row(r))
		s->open_ns = 0;
	else if (!s->open_ns)
		s->open_ns = now_ns;
	if (is_over(r, s->begun) && (!s->open_ns || now_ns - s->open_ns >= OPEN_NS)) {
		int failed = tell_failed(r), open = tell_open(r, hint);

		return MAX(failed, open);
	}
	if (error && now_ns - s->began_ns >= PATIENCE_NS)
		return ckpt_fail(s->store, hint, "%s", error);
	return now_ns >= s->until_ns ? ckpt_fail(s->store, hint, "the time is over, and something still waits")
				     : NOT_YET;
}

// -ENOENT: nobody has it mounted, or not any more.
static int sync_mounted(struct syncing *s)
{
	int rc = NOT_YET;

	while (rc == NOT_YET) {
		bool wakes = s->begun < 0 || ckpt_sys.mono_ns() - s->asked_ns >= AGAIN_NS;
		json_t *r;

		if (s->begun >= 0)
			ckpt_sys.sleep_ns(POLL_NS);
		if (wakes)
			s->asked_ns = ckpt_sys.mono_ns();
		rc = ask_mount(s->store, wakes ? "{\"verb\":\"remote\",\"sync\":true}" : "{\"verb\":\"remote\"}", &r);
		if (rc)
			return rc;
		rc = judge(s, r);
		json_decref(r);
	}
	return rc;
}

static int sync_remote(struct remote *a)
{
	struct syncing s = {.store = a->o.store, .began_ns = ckpt_sys.mono_ns(), .begun = -1};
	int rc;

	s.until_ns = a->timeout_ns < 0 ? INT64_MAX : s.began_ns + a->timeout_ns;
	ckpt_progress_start("waiting for the object store", 0, 1);
	rc = sync_mounted(&s);
	ckpt_progress_stop();
	if (rc != -ENOENT)
		return rc;
	return ckpt_remote_is_at(a->o.store) ? ckpt_push_and_read(a->o.store, s.until_ns) : fail_local(a->o.store);
}

// --- drop ---------------------------------------------------------------------------------------------------------------

static int drop_at_rest(struct ckpt_step *step, const struct ckpt_verb_act *act __attribute__((unused)))
{
	return ckpt_queue_drop(step);
}

static int drop_one(struct remote *a, const char *word)
{
	static const struct ckpt_verb_act act = {.verb = "drop", .at_rest = drop_at_rest, .hint = ckpt_queue_drop_hint};
	CLEANUP_FREE char *session = NULL;
	int rc;

	if (ckpt_listing_is_trash(word))
		return ckpt_usage(word, "`ckptfs undelete` takes a deletion back",
				  "is in the trash: its deletion cannot be dropped");
	rc = ckpt_act_find(&a->o, word, &session, NULL, NULL);
	if (!rc)
		rc = ckpt_confirm(word, a->yes, "Keep %s out of the object store? It stays on this machine alone.",
				  word);
	if (!rc)
		rc = ckpt_act_on(a->o.store, word, session, &act);
	if (!rc && !ckpt_output.json && !ckpt_output.quiet)
		printf("%s: out of the queue, on this machine alone\n", word);
	return rc;
}

static int drop(struct remote *a)
{
	int status = 0;

	for (size_t i = 0; i < a->o.count; i++) {
		int rc = drop_one(a, a->o.steps[i]);

		status = MAX(status, rc);
	}
	return status;
}

// --- add and remove -----------------------------------------------------------------------------------------------------

static int add(struct remote *a)
{
	return ckpt_remote_change_add(a->o.store, a->url);
}

// A mount would go on as if it had one.
static int check_unmounted(const char *store)
{
	CLEANUP_FREE char *why = NULL, *hint = NULL;

	if (ckpt_store_holder(store, NULL))
		return 0;
	ckpt_listing_explain(store, -EBUSY, &why, &hint);
	return ckpt_fail(store, hint, "%s", why);
}

static int remove_remote(struct remote *a)
{
	int rc = ckpt_remote_is_at(a->o.store) ? check_unmounted(a->o.store) : fail_local(a->o.store);

	if (!rc)
		rc = ckpt_confirm(
			a->o.store, a->yes,
			"Take the object store away from %s? What was not pushed stays on this machine alone.",
			a->o.store);
	return rc ? rc : ckpt_remote_change_remove(a->o.store);
}

// --- The verb -----------------------------------------------------------------------------------------------------------

enum { KEY_TIMEOUT = 0x100 };

static const struct {
	const char *word, *usage;
	size_t least, most; // words behind STORE
	int (*run)(struct remote *a);
	bool times;   // it takes --timeout
	bool asks;    // it takes --yes
	bool has_url; // as its last word
} acts[] = {
	{"show", "usage: ckptfs remote show [STORE]", 0, 0, show, false, false, false},
	{"sync", "usage: ckptfs remote sync [STORE] [--timeout D]", 0, 0, sync_remote, true, false, false},
	{"drop", "usage: ckptfs remote drop [STORE] STEP...", 1, SIZE_MAX, drop, false, true, false},
	{"add", "usage: ckptfs remote add [-o OPTS] STORE URL", 0, 0, add, false, false, true},
	{"remove", "usage: ckptfs remote remove [STORE] [--yes]", 0, 0, remove_remote, false, true, false},
};

static int find_act(const char *word, size_t *ret_act)
{
	const char *words[ARRAY_LEN(acts) + 1] = {0}, *nearest;
	CLEANUP_FREE char *hint = NULL;

	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		words[i] = acts[i].word;
		if (!strcmp(word, words[i])) {
			*ret_act = i;
			return 0;
		}
	}
	nearest = ckpt_nearest(word, words);
	hint = nearest ? ckpt_text("did you mean %s?", nearest) : ckpt_text("show, sync, drop, add or remove");
	return ckpt_usage(word, hint, "unknown action");
}

static int on_option(int key, char *arg, void *input)
{
	struct remote *a = input;

	if (key == 'y') {
		a->yes = true;
		return 0;
	}
	return ckpt_duration_parse(arg, &a->timeout_ns)
		       ? ckpt_usage(arg, "--timeout wants a duration: 30s, 10m, 24h", "not understood")
		       : 0;
}

static int check(const struct remote *a, size_t act)
{
	if (a->o.count < acts[act].least || a->o.count > acts[act].most)
		return ckpt_usage("remote", acts[act].usage, "an operand %s",
				  a->o.count < acts[act].least ? "is missing" : "too many");
	if (a->timeout_ns >= 0 && !acts[act].times)
		return ckpt_usage("--timeout", acts[act].usage, "is of `remote sync`");
	if (a->yes && !acts[act].asks)
		return ckpt_usage("--yes", acts[act].usage, "this asks for nothing");
	return 0;
}

// A local STORE, and the URL that it is to have: -o is of that.
static int take_url(const struct ckpt_words *words, struct remote *a, const char *usage)
{
	const char *store;

	if (words->count != 2)
		return ckpt_usage("remote", usage, "an operand %s", words->count < 2 ? "is missing" : "too many");
	store = words->at[0];
	a->url = words->at[1];
	if (ckpt_is_remote_url(store))
		return ckpt_usage(store, usage, "is a URL: a local store gets one");
	if (!ckpt_is_remote_url(a->url))
		return ckpt_usage(a->url, "an object store is s3://BUCKET/PREFIX", "is no URL of an object store");
	return ckpt_operand_source(store, &a->o);
}

int ckpt_verb_remote(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"timeout", KEY_TIMEOUT, "DURATION", 0, "sync: give up after this, with exit status 1 (default: never)",
		 0},
		{"yes", 'y', NULL, 0, "drop, remove: do not ask; needed where stdin is no terminal", 0},
		{0},
	};
	static const struct ckpt_syntax syntax = {
		.operands = "show|sync|drop|add|remove [STORE] [STEP...|URL]",
		.doc = "Shows the object store behind a store, and what waits to be pushed there.\v"
		       "show lists the URL, its options, whether it answers, and the queue: each operation with "
		       "its size, since when it waits, for what, and why it has failed.\n"
		       "sync pushes all that waits and reads what other nodes have done, now, and returns when "
		       "both are done. Exit status 1: something cannot be pushed, or a step is open for change: it "
		       "says which.\n"
		       "drop takes what waits of a step out of the queue. The step stays as it is on this "
		       "machine, and is not in the object store. It is queued again once it is changed here. "
		       "Files that were written after it and may name it, such as a tracker, wait for the next "
		       "step. A deletion or a new name cannot be dropped: `ckptfs undelete` and `ckptfs mv` take "
		       "them back.\n"
		       "add puts a bucket behind a local store that is not mounted: all listed steps and plain files "
		       "are pushed, and STORE is the work directory of the URL on this machine. It can be interrupted "
		       "at any time: a mount, or sync, goes on. The bucket has nothing below the URL.\n"
		       "remove makes a local store of it again. What only the bucket has is fetched first. Nothing is "
		       "pushed, and the bucket is left as it is.\n"
		       "\n"
		       "Examples:\n"
		       "  ckptfs remote show /ckpt\n"
		       "  ckptfs remote sync --timeout 10m s3://my-bucket/run42\n"
		       "  ckptfs remote add -o region=eu-central-1 /data/run42 s3://my-bucket/run42",
		.options = options,
		.option = on_option,
		.operands_min = 1,
		.operands_max = UINT16_MAX,
	};
	struct remote a = {.timeout_ns = -1};
	struct ckpt_words words, rest;
	size_t act = 0;
	int rc;

	ckpt_verb_parse(&syntax, argc, argv, &a, &words);
	rc = find_act(words.at[0], &act);
	if (rc)
		return rc;
	rest = (struct ckpt_words){words.at + 1, words.count - 1};
	rc = acts[act].has_url ? take_url(&rest, &a, acts[act].usage) : ckpt_operand_take(&rest, &a.o);
	if (rc)
		return rc;
	rc = check(&a, act);
	if (!rc)
		rc = acts[act].run(&a);
	ckpt_operand_done(&a.o);
	return rc;
}

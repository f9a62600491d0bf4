#include "core/remote/queue.h"

#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/near.h"
#include "core/remote/tree.h"
#include "core/remote/tree_queue.h"
#include "core/state/difference.h"
#include "core/state/plain.h"
#include "core/step/folders.h"
#include "core/step/follow.h"

#include <stdio.h>

enum row_state { WAITS, SENDS, FAILED, HELD, DROPPED };

static const char *const state_words[] = {"waiting", "sending", "failed", "held", "dropped"};

// Of a step with session, of a plain file or folder without.
struct row {
	char session[CKPT_UUID_LEN + 1], folder_id[CKPT_FOLDER_ID_LEN + 1], name[CKPT_NAME_MAX + 1];
	char *path; // NULL: as folder_id and name say
	const char *kind;
	uint64_t place, bytes;
	int64_t since_ns; // 0: not known
	enum row_state state;
	bool stuck;   // of a step: none of its acts can be pushed before something else is done
	bool changes; // of a step: it is open for change, and waits for the end of that
	int error;
	char held_by[CKPT_UUID_LEN + 1]; // the session of a step
};

struct rows {
	struct row *at;
	size_t count, cap;
	struct ckpt_failure_list failed;
	bool no_memory;
	uint64_t position;
};

static struct row *add(struct rows *rows)
{
	if (ckpt_grow((void **)&rows->at, &rows->cap, rows->count + 1, sizeof(*rows->at))) {
		rows->no_memory = true;
		return NULL;
	}
	rows->at[rows->count] = (struct row){0};
	return &rows->at[rows->count++];
}

static void rows_done(struct rows *rows)
{
	for (size_t i = 0; i < rows->count; i++)
		free(rows->at[i].path);
	free(rows->at);
	ckpt_failure_list_done(&rows->failed);
}

// --- Steps --------------------------------------------------------------------------------------------------------------

static const char *word_of(enum ckpt_act_kind kind)
{
	switch (kind) {
	case CKPT_ACT_SAVE:
		return "save";
	case CKPT_ACT_AMEND:
	case CKPT_ACT_NOTE:
		return "edit";
	case CKPT_ACT_REPACK:
		return "repack";
	case CKPT_ACT_DELETE:
		return "delete";
	case CKPT_ACT_UNDELETE:
		return "undelete";
	case CKPT_ACT_EXPIRE:
		return "expire";
	case CKPT_ACT_RENAME:
		return "rename";
	default:
		return "flags";
	}
}

// Of acts that go together the one that says most: the first kind of the list.
static const char *kind_of(const struct ckpt_act *acts, size_t count)
{
	static const enum ckpt_act_kind kinds[] = {CKPT_ACT_SAVE,   CKPT_ACT_AMEND,  CKPT_ACT_NOTE,
						   CKPT_ACT_EXPIRE, CKPT_ACT_DELETE, CKPT_ACT_UNDELETE,
						   CKPT_ACT_RENAME, CKPT_ACT_REPACK};

	for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
		for (size_t i = 0; i < count; i++)
			if (acts[i].kind == kinds[k])
				return word_of(kinds[k]);
	return word_of(CKPT_ACT_FLAG);
}

// Another changed step goes first, or it was dropped.
static const char *kind_without_acts(const struct ckpt_state_step *c)
{
	if (!c->shared)
		return word_of(CKPT_ACT_SAVE);
	if (c->gone || c->deleted_by)
		return word_of(CKPT_ACT_DELETE);
	return word_of(ckpt_state_has_changed_files(c) ? CKPT_ACT_AMEND : CKPT_ACT_RENAME);
}

// The first version that the remote's log does not have. A new name is none.
static int64_t since_of(const struct ckpt_state_step *c)
{
	uint32_t known = c->shared ? ckpt_state_last(c->shared) : 0;

	for (size_t i = 0; !c->gone && i < c->count; i++)
		if (c->versions[i].version > known)
			return c->versions[i].committed_ns;
	return c->deleted_by ? c->deleted_ns : 0;
}

// In the trash here, and there or nowhere: nobody waits for it.
static bool is_trash(const struct ckpt_state_step *c)
{
	return (c->deleted_by || c->gone) && (!c->shared || c->shared->deleted_by);
}

static void add_step(struct rows *rows, const struct ckpt_state *state, const struct ckpt_state_step *c)
{
	bool dropped = ckpt_state_is_dropped(c);
	const struct ckpt_failure *failure = dropped ? NULL : ckpt_failure_of(&rows->failed, c->id);
	struct ckpt_act acts[CKPT_DIFFERENCE_MAX];
	size_t count = ckpt_state_difference(state, c, false, acts);
	struct row *row = is_trash(c) || (ckpt_state_is_left_out(state, c) && !dropped) ? NULL : add(rows);

	if (!row)
		return;
	memcpy(row->session, c->id, sizeof(row->session));
	memcpy(row->folder_id, c->is.folder_id, sizeof(row->folder_id));
	memcpy(row->name, c->is.name, sizeof(row->name));
	row->kind = count ? kind_of(acts, count) : kind_without_acts(c);
	row->place = ckpt_state_place(state, c);
	row->bytes = ckpt_state_has_changed_files(c) ? c->is.bytes : 0;
	row->since_ns = since_of(c);
	row->stuck = !count;
	row->state = dropped ? DROPPED : failure ? FAILED : WAITS;
	row->error = failure ? failure->error : 0;
}

// The policy, or a setting: as a file of no name here.
static void add_value(struct rows *rows, const struct ckpt_state *state)
{
	const char *text, *key = ckpt_state_changed_value(state, &text);
	struct row *row = key ? add(rows) : NULL;

	if (!row)
		return;
	row->kind = key;
	row->bytes = strlen(text);
	row->path = strdup(ckpt_value_is_setting(key) ? ".ckptfs/config" : ".ckptfs/policy.json");
	rows->no_memory |= !row->path;
}

static int look_at_steps(void *arg, const struct ckpt_state *state)
{
	struct rows *rows = arg;
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

	rows->position = ckpt_state_remote(state).seq;
	for (size_t i = 0; i < count; i++)
		add_step(rows, state, changed[i]);
	add_value(rows, state);
	return 0;
}

// --- Plain files --------------------------------------------------------------------------------------------------------

static const char *tree_word(enum ckpt_act_kind kind)
{
	switch (kind) {
	case CKPT_ACT_MKDIR:
		return "mkdir";
	case CKPT_ACT_FILE:
		return "write";
	case CKPT_ACT_REMOVE:
		return "remove";
	default:
		return "move";
	}
}

static void add_item(void *arg, const struct ckpt_tree_item *it)
{
	struct rows *rows = arg;
	struct row *row = add(rows);

	if (!row)
		return;
	memcpy(row->folder_id, it->folder_id, sizeof(row->folder_id));
	memcpy(row->name, it->name, sizeof(row->name));
	row->path = it->path ? strdup(it->path) : NULL;
	rows->no_memory |= it->path && !row->path;
	row->kind = tree_word(it->kind);
	row->place = it->number;
	if (it->kind == CKPT_ACT_FILE) {
		row->bytes = it->file.size;
		row->since_ns = it->file.mtime_ns;
	}
}

static int look_at_files(void *arg, const struct ckpt_state *state)
{
	struct rows *rows = arg;

	for (size_t i = 0; i < rows->count; i++) {
		struct row *row = &rows->at[i];
		const struct ckpt_state_step *held_by;
		const struct ckpt_failure *failure;

		if (*row->session)
			continue;
		if (!row->path)
			row->path = ckpt_state_plain_path(state, row->folder_id, row->name);
		rows->no_memory |= !row->path;
		failure = ckpt_failure_holding(&rows->failed, row->place);
		held_by = failure ? NULL : ckpt_state_held_by(state, row->place);
		if (!failure && !held_by)
			continue;
		row->state = HELD;
		memcpy(row->held_by, failure ? failure->session : held_by->id, sizeof(row->held_by));
	}
	return 0;
}

// --- As JSON ------------------------------------------------------------------------------------------------------------

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
	CLEANUP_FREE char *clean = text ? ckpt_name_clean(text) : NULL;

	return !text ? json_null() : clean ? json_string(clean) : NULL;
}

static json_t *name_json(const struct ckpt_folders *folders, const struct row *row)
{
	CLEANUP_FREE char *name = ckpt_folders_name(folders, row->folder_id, row->name);

	return name ? text_json(name) : NULL;
}

static const struct row *row_of(const struct rows *rows, const char *session)
{
	for (size_t i = 0; i < rows->count; i++)
		if (!strcmp(rows->at[i].session, session))
			return &rows->at[i];
	return NULL;
}

// Words for people; NULL: it is on its way.
static json_t *waits_for(const struct rows *rows, const struct ckpt_folders *folders, const struct row *row,
			 bool offline)
{
	const struct row *by = row->state == HELD ? row_of(rows, row->held_by) : NULL;
	CLEANUP_FREE char *name = by ? ckpt_folders_name(folders, by->folder_id, by->name) : NULL;
	CLEANUP_FREE char *clean = name ? ckpt_name_clean(name) : NULL;

	if (row->changes)
		return json_string("the end of a change: it is open here");
	if (by && by->changes)
		return json_sprintf("%s, which is open for change", clean ? clean : "a step");
	if (row->state == HELD)
		return clean ? json_sprintf("a step saved after %s, which it may name", clean)
			     : json_string("a step that is saved later");
	if (row->state == FAILED)
		return json_string("another attempt");
	if (offline)
		return json_string("the object store");
	return row->state == SENDS ? json_null() : json_string("what was done before");
}

static json_t *row_json(const struct rows *rows, const struct ckpt_folders *folders, const struct row *row,
			bool offline)
{
	bool is_step = *row->session;

	return json_pack("{s:s, s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:s?}", "kind", row->kind, "step",
			 is_step ? name_json(folders, row) : json_null(), "session",
			 is_step ? json_string(row->session) : json_null(), "path",
			 is_step ? json_null() : text_json(row->path), "bytes", (json_int_t)row->bytes, "since",
			 time_json(row->since_ns), "state", state_words[row->state], "waits_for",
			 row->state == DROPPED ? json_null() : waits_for(rows, folders, row, offline), "error",
			 row->error ? strerror(-row->error) : NULL);
}

// Its files are packed, or put together with those of others, when nobody changes them any more.
static void mark_open(struct ckpt_store *s, struct rows *rows)
{
	for (size_t i = 0; i < rows->count; i++) {
		struct row *row = &rows->at[i];
		struct ckpt_step *step =
			*row->session && row->state == WAITS ? ckpt_step_live_session(s, row->session) : NULL;

		row->changes = step && ckpt_step_is_reopened(step) &&
			       (row->stuck || ckpt_remote_is_put_off(*ckpt_remote_of(s), row->session));
		if (row->changes)
			row->state = HELD;
		ckpt_step_unref(step);
	}
}

static const struct row *first_open(const struct rows *rows)
{
	for (size_t i = 0; i < rows->count; i++)
		if (rows->at[i].changes)
			return &rows->at[i];
	return NULL;
}

// Plain files that were written after such a step go after it, and a step may wait for its name. The rows are in their order.
static void hold_behind_open(struct rows *rows)
{
	const struct row *open = first_open(rows);

	for (size_t i = 0; open && i < rows->count; i++) {
		struct row *row = &rows->at[i];

		if (row->state != WAITS || (*row->session ? !row->stuck : row->place < open->place))
			continue;
		row->state = HELD;
		memcpy(row->held_by, open->session, sizeof(row->held_by));
	}
}

// Plain files go before the step that was saved after them; folders have no place.
static int by_place(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	return (*x->session != '\0') < (*y->session != '\0')   ? 1
	       : (*x->session != '\0') > (*y->session != '\0') ? -1
							       : 0;
}

static json_t *rows_json(struct rows *rows, const struct ckpt_folders *folders, bool offline, json_t *dropped)
{
	json_t *list = json_array();
	bool sends = false;

	if (rows->count)
		qsort(rows->at, rows->count, sizeof(*rows->at), by_place);
	hold_behind_open(rows);
	for (size_t i = 0; i < rows->count; i++) {
		struct row *row = &rows->at[i];

		if (row->state == WAITS && !sends && !offline) {
			row->state = SENDS;
			sends = true;
		}
		json_array_append_new(row->state == DROPPED ? dropped : list, row_json(rows, folders, row, offline));
	}
	return list;
}

// A name and password in a URL are nobody's business.
static json_t *without_secret(const char *option)
{
	const char *scheme = strstr(option, "://"), *end = scheme ? scheme + 3 : NULL, *at;

	if (!end)
		return text_json(option);
	at = memrchr(end, '@', strcspn(end, "/"));
	return at ? json_sprintf("%.*s%s", (int)(end - option), option, at + 1) : text_json(option);
}

static json_t *options_json(struct ckpt_store *s)
{
	json_t *list = json_array(), *identity, *option;
	size_t i;

	if (ckpt_store_identity(s, &identity))
		return list;
	json_array_foreach(json_object_get(json_object_get(identity, "remote"), "options"), i,
			   option) if (json_is_string(option))
		json_array_append_new(list, without_secret(json_string_value(option)));
	json_decref(identity);
	return list;
}

static json_t *why_json(struct ckpt_store *s, int error)
{
	char why[CKPT_OBJECTS_WHY_MAX] = "";

	if (error == -EPROTO)
		return json_string("a store there would lose steps");
	if (error)
		ckpt_objects_why(ckpt_near_there(s->objects), why);
	return !error ? json_null() : text_json(*why ? why : strerror(-error));
}

static char *queue_json(struct ckpt_store *s, struct rows *rows, const struct ckpt_folders *folders)
{
	struct ckpt_remote *r = *ckpt_remote_of(s);
	struct ckpt_remote_turns turns = ckpt_remote_turns(r);
	struct ckpt_remote_queue q;
	json_t *queue, *dropped;
	bool offline;

	ckpt_remote_queue(r, &q);
	offline = q.error && q.error != -EPROTO;
	ckpt_json_begin();
	dropped = json_array();
	queue = rows_json(rows, folders, offline, dropped);
	return ckpt_json_dump(
		json_pack("{s:o, s:o, s:s, s:o, s:s, s:o, s:o, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "url",
			  without_secret(ckpt_remote_url(r)), "options", options_json(s), "node", ckpt_remote_node(r),
			  "work_dir", text_json(s->path), "state",
			  !s->writable ? "unknown"
			  : offline    ? "offline"
				       : "online",
			  "since", time_json(q.unreachable_ns ? ckpt_sys.now_ns() - q.unreachable_ns : 0), "cause",
			  why_json(s, q.error), "position", (json_int_t)rows->position, "complete", (int)s->writable,
			  "begun", (json_int_t)turns.begun, "ended", (json_int_t)turns.ended, "steps",
			  (json_int_t)q.steps, "files", (json_int_t)q.files, "bytes", (json_int_t)q.bytes, "queue",
			  queue, "dropped", dropped),
		JSON_COMPACT);
}

char *ckpt_queue_json(struct ckpt_store *s)
{
	CLEANUP(rows_done) struct rows rows = {0};
	struct ckpt_remote *r = *ckpt_remote_of(s);
	struct ckpt_folders folders = {0};
	char *text = NULL;
	int rc = ckpt_remote_failures(r, &rows.failed);

	if (!rc)
		rc = ckpt_folders_read(s, &folders);
	if (!rc) {
		(void)ckpt_journal_look(s->journal, look_at_steps, &rows);
		if (s->writable)
			ckpt_tree_each(ckpt_remote_tree(r), add_item, &rows);
		(void)ckpt_journal_look(s->journal, look_at_files, &rows);
		mark_open(s, &rows);
		text = rows.no_memory ? NULL : queue_json(s, &rows, &folders);
	}
	ckpt_folders_done(&folders);
	return text;
}

// --- Taking a step out ----------------------------------------------------------------------------------------------------

struct found {
	const char *session;
	struct ckpt_act act;
};

static int look_for(void *arg, const struct ckpt_state *state)
{
	struct found *f = arg;
	const struct ckpt_state_step *step = ckpt_state_step(state, f->session);

	if (!step || step->deleted_by)
		return -ESTALE;
	if (!step->since)
		return -ENODATA;
	if (ckpt_state_is_dropped(step))
		return -EALREADY;
	if (step->shared && (step->shared->deleted_by || strcmp(step->shared->is.name, step->is.name) ||
			     strcmp(step->shared->is.folder_id, step->is.folder_id)))
		return -EBUSY;
	memcpy(f->act.step, step->id, sizeof(f->act.step));
	f->act.version = ckpt_state_last(step);
	return 0;
}

int ckpt_queue_drop(struct ckpt_step *step)
{
	struct ckpt_store *s = step->store;
	struct found f = {.session = step->session, .act = {.kind = CKPT_ACT_DROP, .time_ns = ckpt_sys.now_ns()}};
	LOCK_SCOPE(&s->acts_lock);
	bool unknown;
	int rc = *ckpt_remote_of(s) ? ckpt_follow_settle(s) : -EOPNOTSUPP;

	if (!rc)
		rc = ckpt_journal_look(s->journal, look_for, &f);
	if (!rc)
		rc = ckpt_journal_append(s->journal, &f.act, false, &unknown);
	if (!rc)
		ckpt_store_wake_behind(s); // what waited for it goes on
	return rc;
}

const char *ckpt_queue_drop_hint(int error)
{
	switch (error) {
	case -ENODATA:
		return "nothing of it waits: the object store has it as it is here";
	case -EALREADY:
		return "it is not in the queue any more";
	case -EBUSY:
		return "it waits to be renamed or listed again there: `ckptfs mv` gives it its old name back, or wait";
	case -ESTALE:
		return "it has just changed: `ckptfs remote show` says what waits";
	case -EOPNOTSUPP:
		return "a local store has no queue";
	default:
		return NULL;
	}
}

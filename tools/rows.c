#include "tools/rows.h"

#include "core/base/clock.h"
#include "core/base/util.h"
#include "core/cold/stored.h"
#include "core/cold/stored_here.h"
#include "core/profile/profile.h"
#include "core/remote/arrival.h"
#include "core/remote/remote.h"
#include "core/save/delete.h"
#include "core/save/stage.h"
#include "core/step/ask.h"
#include "core/step/holder.h"
#include "core/step/older.h"
#include "core/step/mounts.h"
#include "core/tier/seal.h"
#include "tools/config.h"
#include "tools/output.h"

#include <pwd.h>
#include <stdio.h>

#define NS_PER_S INT64_C(1000000000)

static json_t *integer(uint64_t value)
{
	return ckpt_need(json_integer((json_int_t)value));
}

static void set(json_t *row, const char *key, json_t *value)
{
	if (json_object_set_new(row, key, ckpt_need(value)))
		ckpt_need(NULL);
}

static json_t *text_or_null(const char *text)
{
	return ckpt_json_text(*text ? text : NULL);
}

// NULL: it cannot be read.
static struct ckpt_manifest *manifest_of(struct ckpt_step *step)
{
	struct ckpt_manifest *m;

	return ckpt_step_manifest(step, &m) ? NULL : m;
}

// --- Steps ------------------------------------------------------------------------------------------------------------

// What was found in its arrays; null: nobody has looked yet, or there are none.
static void set_findings(json_t *row, const json_t *metadata)
{
	json_t *findings = json_object_get(metadata, "findings"), *healthy = json_object_get(findings, "healthy");

	set(row, "healthy", json_is_boolean(healthy) ? json_incref(healthy) : json_null());
	set(row, "findings", json_is_object(findings) ? json_incref(findings) : json_null());
}

// extras, metrics and findings out of the step's metadata; null when the record cannot be read.
static void set_metadata(json_t *row, struct ckpt_step *step, uint32_t version)
{
	static const char *const keys[] = {"extras", "metrics"};
	struct ckpt_record r;
	json_t *metadata;
	bool known = !ckpt_step_record(step, version, &r);

	metadata = known && r.metadata ? json_loads(r.metadata, JSON_REJECT_DUPLICATES, NULL) : NULL;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		json_t *value = json_object_get(metadata, keys[i]);

		set(row, keys[i], value ? json_incref(value) : known ? json_object() : json_null());
	}
	set_findings(row, metadata);
	json_decref(metadata);
	if (known)
		ckpt_record_done(&r);
}

// A step is hot where all of its files are raw on this node. stored_bytes is null when only the manifest could say it, and cannot be
// read.
static void set_place(json_t *row, struct ckpt_step *step, const struct ckpt_summary *s)
{
	struct ckpt_manifest *m = s->packed ? manifest_of(step) : NULL;
	uint64_t raw = s->packed ? 0 : s->bytes, packed = 0;

	if (m && ckpt_stored_version(step, m, &raw, &packed))
		ckpt_need(NULL);
	ckpt_manifest_unref(m);
	set(row, "stored_bytes", s->packed && !m ? json_null() : integer(raw + packed));
	set(row, "hot", json_boolean(raw == s->bytes));
}

json_t *ckpt_row_step(const struct ckpt_listing *l, struct ckpt_step *step, bool metadata)
{
	json_t *row = ckpt_need(json_object());
	struct ckpt_summary s;
	int64_t deleted_ns;
	char *name;

	ckpt_lock_take(&step->lock);
	s = step->version->is;
	deleted_ns = step->state == CKPT_STEP_DELETED ? step->deleted_ns : 0;
	ckpt_lock_drop(&step->lock);
	name = ckpt_listing_name(l, s.folder_id, s.name);
	set(row, "name", ckpt_json_text(name));
	free(name);
	set(row, "number", s.number < 0 ? json_null() : json_integer(s.number));
	set(row, "version", integer(s.version));
	set(row, "state", json_string(deleted_ns ? "trash" : "committed"));
	set(row, "files", integer(s.files));
	set(row, "bytes", integer(s.bytes));
	set(row, "committed_at", ckpt_json_time(s.committed_ns));
	set(row, "deleted_at", ckpt_json_time(deleted_ns));
	set(row, "expires_at",
	    deleted_ns ? ckpt_json_time(ckpt_time_between(-step->store->settings.trash_ns, deleted_ns)) : json_null());
	set(row, "temporary", json_boolean(s.temporary));
	set(row, "pinned", json_boolean(s.pinned));
	set(row, "durable", json_string(ckpt_remote_has(step->store, step->session) ? "remote" : "local"));
	set_place(row, step, &s);
	set(row, "sealed", json_boolean(s.sealed));
	if (metadata) {
		set_metadata(row, step, s.version);
	} else {
		set(row, "extras", json_null());
		set(row, "metrics", json_null());
		set_findings(row, NULL);
	}
	return row;
}

json_t *ckpt_row_deleted(const struct ckpt_listing *l, struct ckpt_step *const *steps, size_t i, bool metadata)
{
	json_t *row = ckpt_row_step(l, steps[i], metadata);
	char label[CKPT_NAME_MAX + 1];
	CLEANUP_FREE char *name = NULL;

	ckpt_deleted_label(steps, i, true, label, sizeof(label));
	name = ckpt_listing_name(l, steps[i]->folder_id, label);
	set(row, "name", ckpt_json_text(name));
	return row;
}

// The user's name is that on this machine, which need not be the one of the node.
static json_t *row_by(struct ckpt_step *step, uint32_t version)
{
	struct ckpt_journal_by by;
	struct passwd *user = NULL;
	bool known;

	if (ckpt_journal_by(step->store->journal, step->session, version, &by))
		return json_null();
	known = by.actor.uid != CKPT_UID_UNKNOWN;
	if (known)
		user = getpwuid(by.actor.uid);
	return ckpt_need(json_pack("{s:o, s:o, s:o, s:s}", "program", text_or_null(by.actor.comm), "uid",
				   known ? integer(by.actor.uid) : json_null(), "user",
				   ckpt_json_text(user ? user->pw_name : NULL), "node", by.node));
}

// state: "current"; "old", which can be opened until expires_at (null: as long as the step is there); "expired".
static json_t *row_version(struct ckpt_step *step, const struct ckpt_summary *s, const char *state, int64_t expires_ns)
{
	return ckpt_need(json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "version", integer(s->version),
				   "committed_at", ckpt_json_time(s->committed_ns), "files", integer(s->files), "bytes",
				   integer(s->bytes), "event", text_or_null(s->event), "state", state, "expires_at",
				   expires_ns && expires_ns != INT64_MAX ? ckpt_json_time(expires_ns) : json_null(),
				   "by", row_by(step, s->version)));
}

// The states of the files of a step that are its own, and the versions of the deleted steps whose place it took.
struct versions {
	struct ckpt_step *step;
	struct ckpt_older *list;
	size_t count, at;
};

static json_t *version_of_another(struct versions *v, const struct ckpt_summary *s)
{
	struct ckpt_version *older;
	struct ckpt_step *of;
	int64_t expires_ns;

	if (ckpt_older_find(v->step, s->version, &of, &older))
		return row_version(v->step, s, "expired", 0);
	ckpt_lock_take(&of->lock);
	expires_ns = ckpt_time_between(-of->store->settings.trash_ns, of->deleted_ns);
	ckpt_lock_drop(&of->lock);
	ckpt_step_unref(of);
	ckpt_version_unref(older);
	return row_version(v->step, s, "old", expires_ns);
}

static json_t *version_of(struct versions *v, const struct ckpt_summary *s)
{
	if (!v->count || s->version < v->list[0].first)
		return version_of_another(v, s);
	while (v->at + 1 < v->count && v->list[v->at].last < s->version)
		v->at++;
	if (v->at + 1 == v->count)
		return row_version(v->step, s, s->version == v->list[v->at].says ? "current" : "old", 0);
	if (v->list[v->at].expired)
		return row_version(v->step, s, "expired", 0);
	return row_version(v->step, s, "old", ckpt_older_expires_ns(v->list, v->count, v->at, v->step));
}

json_t *ckpt_row_step_full(const struct ckpt_listing *l, struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *is = ckpt_step_version(step);
	json_t *row = ckpt_row_step(l, step, true), *rows = ckpt_need(json_array());
	struct versions v = {.step = step};

	(void)ckpt_older_list(step, &v.list, &v.count);
	for (uint32_t i = 1; i <= is->is.version; i++) {
		struct ckpt_record r;

		if (ckpt_step_record(step, i, &r))
			continue;
		json_array_append_new(rows, version_of(&v, &r.summary));
		ckpt_record_done(&r);
	}
	free(v.list);
	set(row, "profile", text_or_null(is->is.profile));
	set(row, "event", text_or_null(is->is.event));
	set(row, "versions", rows);
	return row;
}

json_t *ckpt_row_version(const struct ckpt_listing *l, const struct ckpt_at_version *at)
{
	CLEANUP_FREE char *name = ckpt_listing_name(l, at->version->is.folder_id, at->version->is.name);
	struct versions v = {.step = at->named};
	json_t *row;

	(void)ckpt_older_list(at->named, &v.list, &v.count);
	row = version_of(&v, &at->version->is);
	free(v.list);
	set(row, "name", ckpt_json_text(name));
	set(row, "sealed", json_boolean(at->version->is.sealed));
	set_metadata(row, at->step, at->version->is.version);
	return row;
}

json_t *ckpt_row_staged(const json_t *session)
{
	json_t *row = ckpt_need(json_object()), *name = json_object_get(session, "name");
	const char *text = json_string_value(name), *slash = text ? strrchr(text, '/') : NULL;
	int64_t number = text ? ckpt_name_number(slash ? slash + 1 : text) : -1;

	set(row, "name", name ? json_incref(name) : json_null());
	set(row, "number", number < 0 ? json_null() : json_integer(number));
	set(row, "version", json_null());
	set(row, "state", json_string("staged"));
	set(row, "files", json_incref(json_object_get(session, "files")));
	set(row, "bytes", json_incref(json_object_get(session, "bytes")));
	set(row, "stored_bytes", json_incref(json_object_get(session, "bytes")));
	set(row, "committed_at", json_null());
	set(row, "deleted_at", json_null());
	set(row, "temporary", json_null());
	set(row, "pinned", json_false());
	set(row, "durable", json_null());
	set(row, "hot", json_true());
	set(row, "sealed", json_false());
	set(row, "extras", json_object());
	set(row, "metrics", json_object());
	set_findings(row, NULL);
	return row;
}

// --- Files ------------------------------------------------------------------------------------------------------------

// Known once it is sealed.
static json_t *sha256_of(const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	char hex[CKPT_SHA256_HEX_LEN + 1];
	uint8_t digest[CKPT_SHA256_LEN];

	if (!ckpt_seal_sha256(m, e, digest))
		return json_null();
	ckpt_hex(digest, sizeof(digest), hex);
	return json_string(hex);
}

json_t *ckpt_row_file(const struct ckpt_manifest *m, uint32_t index)
{
	static const char *const types[] = {
		[CKPT_ENTRY_FILE] = "file", [CKPT_ENTRY_DIR] = "dir", [CKPT_ENTRY_SYMLINK] = "symlink"};
	json_t *row = ckpt_need(json_object());
	char path[PATH_MAX];
	struct ckpt_entry e;

	ckpt_manifest_entry(m, index, &e);
	if (ckpt_manifest_path(m, index, path, sizeof(path)) < 0)
		snprintf(path, sizeof(path), "%s", e.name);
	set(row, "path", ckpt_json_text(path));
	set(row, "type", json_string(types[e.type]));
	set(row, "bytes", e.type == CKPT_ENTRY_DIR ? integer(0) : integer(e.bytes));
	set(row, "mode", integer(e.mode));
	set(row, "mtime", ckpt_json_time(e.mtime_s * NS_PER_S + e.mtime_ns));
	set(row, "sha256", sha256_of(m, &e));
	set(row, "array", json_null());
	set(row, "dtype", json_null());
	set(row, "shape", json_null());
	if (e.target)
		set(row, "target", ckpt_json_text(e.target));
	return row;
}

// --- The store --------------------------------------------------------------------------------------------------------

// The read-write mount is known from its holder, on whatever machine; read-only ones only if they are here.
static json_t *row_mounts(const char *store)
{
	json_t *rows = ckpt_need(json_array());
	struct ckpt_mounts mounts = {0};
	struct ckpt_holder h = {0};
	bool held = !ckpt_store_holder(store, &h) && h.mountpoint;

	if (held)
		json_array_append_new(rows, json_pack("{s:o, s:b, s:i, s:o, s:o}", "mountpoint",
						      ckpt_json_text(h.mountpoint), "readonly", 0, "pid", h.pid, "host",
						      ckpt_json_text(h.host), "since", ckpt_json_time(h.since_ns)));
	ckpt_mounts_read(&mounts);
	for (size_t i = 0; i < mounts.count; i++) {
		const struct ckpt_mounted *m = &mounts.at[i];

		if (strcmp(m->store, store) || (held && ckpt_holder_is_at(&h, m->mountpoint)))
			continue;
		json_array_append_new(rows, json_pack("{s:o, s:b, s:n, s:n, s:n}", "mountpoint",
						      ckpt_json_text(m->mountpoint), "readonly", (int)m->readonly,
						      "pid", "host", "since"));
	}
	ckpt_mounts_done(&mounts);
	ckpt_holder_done(&h);
	return rows;
}

// Of all steps: what is raw, and each chunk once.
struct totals {
	uint64_t bytes, raw;
	struct ckpt_stored packed;
};

static void add_totals(struct totals *t, struct ckpt_step *step)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	struct ckpt_manifest *m = v->is.packed ? manifest_of(step) : NULL;

	t->bytes += v->is.bytes;
	t->raw += m ? ckpt_stored_raw(step, m) : v->is.bytes;
	if (m && ckpt_stored_add(&t->packed, m))
		ckpt_need(NULL);
	ckpt_manifest_unref(m);
}

json_t *ckpt_row_store(const struct ckpt_listing *l)
{
	const struct ckpt_store *s = l->store;
	struct totals t = {0};
	struct ckpt_step **steps;
	size_t count;
	json_t *row;

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_COMMITTED, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		add_totals(&t, steps[i]);
	ckpt_step_list_free(steps, count);
	row = json_pack("{s:s, s:i, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", s->id, "format",
			CKPT_STORE_FORMAT, "backend", s->objects->ops->name, "url", ckpt_remote_url(*ckpt_remote_of(s)),
			"path", ckpt_json_text(s->path), "created_at", ckpt_json_time(s->created_ns), "steps",
			integer(count), "bytes", integer(t.bytes), "stored_bytes", integer(t.raw + t.packed.out_bytes),
			"settings", ckpt_config_values(&s->settings), "mounts", row_mounts(s->path));
	ckpt_stored_done(&t.packed);
	return ckpt_need(row);
}

// --- Sessions ---------------------------------------------------------------------------------------------------------

static json_t *row_unfinished(const struct ckpt_listing *l, struct ckpt_step *step)
{
	struct ckpt_stage_usage u = {0};
	bool known = !ckpt_stage_usage(step, &u);
	CLEANUP_FREE char *name = *step->name ? ckpt_listing_name(l, step->folder_id, step->name) : NULL;

	return ckpt_need(json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:i, s:s?, s:s, s:n}", "name", ckpt_json_text(name),
				   "id", step->session, "began_at", ckpt_json_time(ckpt_staging_of(step)->began_ns),
				   "changed_at", ckpt_json_time(known ? u.changed_ns : 0), "files",
				   known ? integer(u.files) : json_null(), "bytes",
				   known ? integer(u.bytes) : json_null(), "open_writers", 0, "profile",
				   ckpt_profile_of_name(step->name), "state", ckpt_stage_state_name(step), "awaits"));
}

static json_t *sessions_at_rest(const struct ckpt_listing *l)
{
	json_t *rows = ckpt_need(json_array());
	struct ckpt_step **steps;
	size_t count;

	if (ckpt_step_list(l->store, NULL, 1u << CKPT_STEP_LEFT, &steps, &count))
		ckpt_need(NULL);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows, row_unfinished(l, steps[i]));
	ckpt_step_list_free(steps, count);
	return rows;
}

int ckpt_rows_sessions(const struct ckpt_listing *l, json_t **ret_rows)
{
	CLEANUP_FREE char *text = NULL;
	json_t *reply, *rows;
	int rc = ckpt_ask(l->store->path, "{\"verb\":\"sessions\"}", CKPT_SOCKET_TIMEOUT_S, &text);

	if (rc == -ENOENT) {
		*ret_rows = sessions_at_rest(l);
		return 0;
	}
	if (rc)
		return ckpt_fail(l->store->path, "`ckptfs status` and the mount's log may say more",
				 "the process that has it mounted does not answer: %s", strerror(-rc));
	reply = json_loads(text, 0, NULL);
	rows = json_object_get(reply, "sessions");
	if (!json_is_array(rows)) {
		json_decref(reply);
		return ckpt_fail(l->store->path, NULL,
				 "the reply of the process that has it mounted is not understood");
	}
	*ret_rows = json_incref(rows);
	json_decref(reply);
	return 0;
}

#define COUNT_TIMEOUT_S 1 // nobody waits for a number that was not asked for

static size_t staged_in(const json_t *rows, const char *folder)
{
	size_t i, count = 0, len = strlen(folder);
	const json_t *row;

	while (len && folder[len - 1] == '/')
		len--;
	json_array_foreach(rows, i, row)
	{
		const char *name = json_string_value(json_object_get(row, "name"));
		bool is_in = !len || (name && !strncmp(name, folder, len) && name[len] == '/');

		count += is_in && strcmp(json_string_value(json_object_get(row, "state")) ?: "left", "left") != 0;
	}
	return count;
}

size_t ckpt_rows_staged_count(const struct ckpt_listing *l, const char *folder)
{
	CLEANUP_FREE char *text = NULL;
	json_t *reply, *rows;
	size_t count;
	int rc = ckpt_ask(l->store->path, "{\"verb\":\"sessions\"}", COUNT_TIMEOUT_S, &text);

	if (rc && rc != -ENOENT)
		return 0;
	reply = rc ? NULL : json_loads(text, 0, NULL);
	rows = rc ? sessions_at_rest(l) : json_incref(json_object_get(reply, "sessions"));
	count = staged_in(rows, folder);
	json_decref(rows);
	json_decref(reply);
	return count;
}

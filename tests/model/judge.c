#include "tests/model/judge.h"

#include "core/base/util.h"
#include "core/log/log.h"
#include "core/record/manifest.h"
#include "core/record/record.h"
#include "core/state/act.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { KEYS = 512 };
static char keys[KEYS][WIRE_KEY_MAX], labels[KEYS][8];
static unsigned key_count, by_node[128];
static char (*letter)(const char *node_id);

void judge_begin(char (*letter_of)(const char *node_id))
{
	key_count = 0;
	memset(by_node, 0, sizeof(by_node));
	letter = letter_of;
}

unsigned judge_object_of(const char *key, char node)
{
	for (unsigned i = 0; i < key_count; i++)
		if (!strcmp(keys[i], key))
			return i;
	if (key_count == KEYS)
		abort();
	snprintf(keys[key_count], sizeof(keys[0]), "%s", key);
	snprintf(labels[key_count], sizeof(labels[0]), "%c%u", node, by_node[(unsigned char)node & 127]++ % 1000);
	return key_count++;
}

unsigned judge_object(const char *key)
{
	return judge_object_of(key, '?');
}

const char *judge_object_label(const char *key)
{
	return labels[judge_object(key)];
}

__attribute__((format(printf, 2, 3))) static void wrong(struct judge *j, const char *format, ...)
{
	va_list args;

	if (*j->wrong)
		return;
	va_start(args, format);
	vsnprintf(j->wrong, sizeof(j->wrong), format, args);
	va_end(args);
}

__attribute__((format(printf, 2, 3))) static void said(struct judge *j, const char *format, ...)
{
	size_t len = strlen(j->said);
	va_list args;

	va_start(args, format);
	vsnprintf(j->said + len, sizeof(j->said) - len, format, args);
	va_end(args);
}

// --- Steps --------------------------------------------------------------------------------------------------------------

static struct judge_step *step_of(struct judge *j, const char *id)
{
	for (size_t i = 0; i < j->step_count; i++)
		if (!strcmp(j->steps[i].id, id))
			return &j->steps[i];
	return NULL;
}

const struct judge_step *judge_step(const struct judge *j, const char *id)
{
	return step_of((struct judge *)j, id);
}

const struct judge_step *judge_listed(const struct judge *j, const char *name)
{
	for (size_t i = 0; i < j->step_count; i++)
		if (j->steps[i].is == 'L' && !strcmp(j->steps[i].name, name))
			return &j->steps[i];
	return NULL;
}

bool judge_has_saved(const struct judge *j, const char *name)
{
	for (size_t i = 0; i < j->step_count; i++)
		if (!strcmp(j->steps[i].was, name) || !strcmp(j->steps[i].name, name))
			return true;
	return false;
}

static bool is_condemned(const struct judge *j, unsigned object)
{
	for (size_t i = 0; i < j->condemned_count; i++)
		if (j->condemned[i] == object)
			return true;
	return false;
}

static void need(struct judge *j, struct judge_step *s, const char *key, const struct bucket *b)
{
	unsigned object = judge_object(key);

	said(j, " %s", labels[object]);
	if (is_condemned(j, object))
		wrong(j, "P4: an entry names an object that was condemned before it");
	if (!bucket_find(b, key))
		wrong(j, "I1, P2: an entry names an object that is not there");
	for (size_t i = 0; i < s->object_count; i++)
		if (s->objects[i] == object)
			return;
	if (s->object_count == JUDGE_OBJECTS)
		abort();
	s->objects[s->object_count++] = (uint16_t)object;
}

// The files of a version, and what it needs.
static void take_manifest(struct judge *j, struct judge_step *s, struct ckpt_record *r, const struct bucket *b)
{
	struct ckpt_manifest *m;
	char key[WIRE_KEY_MAX] = "m/";
	void *data = r->manifest;
	size_t len = r->manifest_len;

	r->manifest = NULL;
	if (!data) {
		const struct bucket_object *o;

		ckpt_hex(r->summary.manifest_sha256, CKPT_SHA256_LEN, key + 2);
		need(j, s, key, b);
		o = bucket_find(b, key);
		if (!o)
			return;
		data = malloc(o->len);
		memcpy(data, o->data, len = o->len);
	}
	if (ckpt_manifest_parse(data, len, &m)) {
		wrong(j, "a manifest is damaged");
		return;
	}
	s->file_count = 0;
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++) {
		struct judge_file *f = &s->files[s->file_count];
		struct ckpt_entry e;

		ckpt_manifest_entry(m, i, &e);
		if (e.type != CKPT_ENTRY_FILE)
			continue;
		if (s->file_count++ == JUDGE_FILES)
			abort();
		ckpt_manifest_path(m, i, f->path, sizeof(f->path));
		f->bytes = e.bytes;
		said(j, " %s:%" PRIu64, f->path, f->bytes);
		if (s->ever_count < JUDGE_FILES)
			s->ever[s->ever_count++] = (uint16_t)f->bytes;
		if (e.bytes && e.content != CKPT_CONTENT_CHUNKS)
			wrong(j, "an entry names a file that is in no pack");
	}
	for (uint32_t i = 0; i < ckpt_manifest_pack_count(m); i++) {
		struct ckpt_pack pack;

		ckpt_manifest_pack(m, i, &pack);
		strcpy(key, "packs/");
		ckpt_hex(pack.id, CKPT_SHA256_LEN, key + strlen(key));
		need(j, s, key, b);
	}
	ckpt_manifest_unref(m);
}

static void save(struct judge *j, const struct ckpt_act *a, char node, struct ckpt_record *r, const struct bucket *b)
{
	const char *id = r->summary.session;
	bool again;
	const struct judge_step *there = judge_listed(j, r->summary.name);
	struct judge_step *replaced = *a->replaces ? step_of(j, a->replaces) : NULL, *s;

	if (step_of(j, id) && step_of(j, id)->is != 'X') // what has expired may be saved again by who has changed it
		wrong(j, "at most once: a step is saved twice in the log");
	if (there && there != replaced)
		wrong(j, "I5: two steps have the name %s", r->summary.name);
	if (*a->replaces && (!replaced || replaced != there))
		wrong(j, "a save replaces a step of another name");
	if (replaced) {
		replaced->is = 'T';
		replaced->replaced_by = node;
	}
	if (j->step_count == JUDGE_STEPS)
		abort();
	s = step_of(j, id);
	again = s;
	s = s ?: &j->steps[j->step_count++];
	*s = (struct judge_step){
		.again = again, .node = node, .is = 'L', .last = r->summary.version, .pinned = r->summary.pinned};
	memcpy(s->id, id, sizeof(s->id));
	snprintf(s->name, JUDGE_NAME, "%.79s", r->summary.name);
	snprintf(s->was, JUDGE_NAME, "%.79s", r->summary.name);
	take_manifest(j, s, r, b);
}

static void change(struct judge *j, const struct ckpt_act *a, char node, const struct bucket *b)
{
	struct judge_step *s = step_of(j, a->step);
	const struct judge_step *there;
	struct ckpt_record r;

	if (ckpt_act_has_record(a->kind)) {
		if (ckpt_record_decode(a->record, a->record_len, &r)) {
			wrong(j, "a record is damaged");
			return;
		}
		s = step_of(j, r.summary.session);
		said(j, " %s", r.summary.name);
		if (a->kind == CKPT_ACT_SAVE)
			save(j, a, node, &r, b);
		else if (!s || s->is == 'X' || r.summary.version <= s->last)
			wrong(j, "L4: a version of a step that is not there, or has a newer one");
		else {
			s->last = r.summary.version;
			s->pinned = r.summary.pinned;
			take_manifest(j, s, &r, b);
		}
		ckpt_record_done(&r);
		return;
	}
	if (!s || s->is == 'X') {
		wrong(j, "L4: an act on a step that is not there");
		return;
	}
	said(j, " %s", s->name);
	there = judge_listed(j, a->kind == CKPT_ACT_RENAME ? a->name : s->name);
	if (a->kind != CKPT_ACT_RENAME && a->kind != CKPT_ACT_EXPIRE) {
		if (a->version <= s->last)
			wrong(j, "L4: a version that is there already");
		s->last = a->version;
	}
	if (a->kind == CKPT_ACT_DELETE) {
		if (s->is != 'L' || s->pinned)
			wrong(j, "L4: a delete of what is pinned or deleted");
		s->is = 'T';
		s->deleted_by = node;
		s->deletions[node & 7]++;
	} else if (a->kind == CKPT_ACT_UNDELETE) {
		if (s->is != 'T' || there)
			wrong(j, "L4: an undelete of what is listed, or whose name is taken");
		s->is = 'L';
	} else if (a->kind == CKPT_ACT_EXPIRE) {
		if (s->is != 'T')
			wrong(j, "L4: an expiry of a step that is listed");
		s->is = 'X';
	} else if (a->kind == CKPT_ACT_RENAME) {
		if (s->is == 'L' && there && there != s)
			wrong(j, "I5: a rename to a name that is taken");
		said(j, ">%s", a->name);
		snprintf(s->name, JUDGE_NAME, "%.79s", a->name);
	} else if (a->kind == CKPT_ACT_FLAG) {
		s->pinned = a->flags & CKPT_FLAG_PINNED;
		said(j, " %s", s->pinned ? "pinned" : "free");
	}
}

// --- Plain files --------------------------------------------------------------------------------------------------------

static struct judge_plain *plain_of(struct judge *j, const char *folder_id, const char *name)
{
	for (size_t i = 0; i < j->plain_count; i++)
		if (!strcmp(j->plains[i].folder_id, folder_id) && !strcmp(j->plains[i].name, name))
			return &j->plains[i];
	return NULL;
}

const struct judge_plain *judge_plain(const struct judge *j, const char *folder_id, const char *name)
{
	return plain_of((struct judge *)j, folder_id, name);
}

static struct judge_plain *folder_of(struct judge *j, const char *id)
{
	for (size_t i = 0; i < j->plain_count; i++)
		if (*id && !strcmp(j->plains[i].id, id))
			return &j->plains[i];
	return NULL;
}

void judge_path(const struct judge *j, const struct judge_plain *p, char *ret, size_t cap)
{
	const struct judge_plain *folder = folder_of((struct judge *)j, p->folder_id);

	snprintf(ret, cap, "%s%s%s", folder ? folder->name : "", folder ? "/" : "", p->name);
}

static void put_file(struct judge *j, struct judge_plain *p, const struct ckpt_act *a)
{
	size_t len = MIN(a->content_len, sizeof(p->names) - 1);

	memcpy(p->names, a->content, len);
	p->names[len] = '\0';
	p->names[strcspn(p->names, ".")] = '\0';
	p->bytes = a->content_len;
	if (j->ever_count < JUDGE_EVER)
		j->ever[j->ever_count++] = (uint16_t)a->content_len;
	said(j, ":%zu %s", a->content_len, p->names);
	if (*p->names && !judge_has_saved(j, p->names))
		wrong(j, "B: a tracker is in the log before the step that it names");
}

static void change_tree(struct judge *j, const struct ckpt_act *a, char node, uint64_t version)
{
	struct judge_plain *p = plain_of(j, a->folder_id, a->name);

	said(j, " %s", a->name);
	if (a->kind == CKPT_ACT_MOVE || (a->kind == CKPT_ACT_MKDIR && folder_of(j, a->id))) {
		struct judge_plain *folder = folder_of(j, a->id);

		if (a->kind == CKPT_ACT_MKDIR || p || !folder || folder->version != a->before) {
			wrong(j, "T3: a folder is made or moved that its user had not seen so");
			return;
		}
		strcpy(folder->folder_id, a->folder_id);
		snprintf(folder->name, JUDGE_NAME, "%.79s", a->name);
		folder->version = version;
		return;
	}
	if ((p ? p->version : 0) != (a->kind == CKPT_ACT_MKDIR ? 0 : a->before)) {
		wrong(j, "T2, T3: a plain file is replaced or removed that its writer had not seen");
		return;
	}
	if (p && a->kind != CKPT_ACT_MKDIR && j->took_count < JUDGE_TOOK) {
		j->took[j->took_count].node = node;
		j->took[j->took_count].removes = a->kind == CKPT_ACT_REMOVE;
		j->took[j->took_count++].bytes = p->bytes;
	}
	if (a->kind == CKPT_ACT_REMOVE) {
		*p = j->plains[--j->plain_count];
		return;
	}
	if (!p) {
		if (j->plain_count == JUDGE_PLAINS)
			abort();
		p = &j->plains[j->plain_count++];
		*p = (struct judge_plain){0};
		strcpy(p->folder_id, a->folder_id);
		snprintf(p->name, JUDGE_NAME, "%.79s", a->name);
		strcpy(p->id, a->kind == CKPT_ACT_MKDIR ? a->id : "");
	}
	p->node = node;
	p->version = version;
	if (a->kind == CKPT_ACT_FILE)
		put_file(j, p, a);
}

// --- Objects ------------------------------------------------------------------------------------------------------------

bool judge_had_file(const struct judge *j, uint64_t bytes)
{
	for (size_t i = 0; i < j->ever_count; i++)
		if (j->ever[i] == bytes)
			return true;
	return false;
}

bool judge_is_needed(const struct judge *j, const char *key)
{
	for (size_t i = 0; i < j->step_count; i++)
		for (size_t k = 0; k < j->steps[i].object_count; k++)
			if (j->steps[i].is != 'X' && !strcmp(keys[j->steps[i].objects[k]], key))
				return true;
	return false;
}

static void condemn(struct judge *j, const struct ckpt_act *a)
{
	for (uint32_t i = 0; i < a->pack_count + a->manifest_count; i++) {
		char key[WIRE_KEY_MAX];

		strcpy(key, i < a->pack_count ? "packs/" : "m/");
		ckpt_hex(a->objects + (size_t)i * CKPT_SHA256_LEN, CKPT_SHA256_LEN, key + strlen(key));
		if (judge_is_needed(j, key))
			wrong(j, "G3: an object is condemned that a step needs");
		if (j->condemned_count == JUDGE_CONDEMNED)
			abort();
		j->condemned[j->condemned_count++] = (uint16_t)judge_object(key);
		said(j, " %s", judge_object_label(key));
	}
}

const char *judge_missing(const struct judge *j, const struct bucket *b, const struct judge_step **ret_step)
{
	for (size_t i = 0; i < j->step_count; i++)
		for (size_t k = 0; k < j->steps[i].object_count; k++)
			if (j->steps[i].is != 'X' && !bucket_find(b, keys[j->steps[i].objects[k]])) {
				*ret_step = &j->steps[i];
				return keys[j->steps[i].objects[k]];
			}
	return NULL;
}

// --- Entries ------------------------------------------------------------------------------------------------------------

static const char *const words[CKPT_ACT_KINDS] = {
	[CKPT_ACT_SAVE] = "save",         [CKPT_ACT_AMEND] = "amend",   [CKPT_ACT_REPACK] = "repack",
	[CKPT_ACT_RESTORE] = "restore",   [CKPT_ACT_NOTE] = "note",     [CKPT_ACT_DELETE] = "delete",
	[CKPT_ACT_UNDELETE] = "undelete", [CKPT_ACT_EXPIRE] = "expire", [CKPT_ACT_RENAME] = "rename",
	[CKPT_ACT_FLAG] = "flag",         [CKPT_ACT_SET] = "set",       [CKPT_ACT_MKDIR] = "mkdir",
	[CKPT_ACT_FILE] = "file",         [CKPT_ACT_REMOVE] = "remove", [CKPT_ACT_MOVE] = "move",
	[CKPT_ACT_CONDEMN] = "condemn",   [CKPT_ACT_HOLD] = "hold",
};

static void judge_operation(struct judge *j, const struct ckpt_operation *op, unsigned place, const struct bucket *b)
{
	char node = letter(op->node);
	struct ckpt_act a;

	if (ckpt_act_decode(op->kind, op->body, op->len, &a)) {
		wrong(j, "an act is damaged");
		return;
	}
	said(j, "%s%c %s", place ? "; " : "", node, words[a.kind]);
	if (a.kind == CKPT_ACT_CONDEMN)
		condemn(j, &a);
	else if (ckpt_act_is_on_tree(a.kind))
		change_tree(j, &a, node, j->seq << 16 | place);
	else if (!ckpt_act_is_on_objects(a.kind) && a.kind != CKPT_ACT_SET)
		change(j, &a, node, b);
}

int judge_read(struct judge *j, const struct bucket *b)
{
	const struct bucket_object *o;
	char key[CKPT_LOG_KEY_MAX];
	struct ckpt_log_entry entry;
	struct ckpt_operation op;
	size_t cursor = 0;

	ckpt_log_key(j->seq + 1, key);
	o = bucket_find(b, key);
	if (!o)
		return 0;
	j->seq++;
	*j->said = '\0';
	j->took_count = 0;
	if (ckpt_log_entry_decode(o->data, o->len, &entry) || entry.seq != j->seq)
		wrong(j, "an entry is damaged");
	else
		for (unsigned place = 0; ckpt_log_entry_next(&entry, &cursor, &op); place++)
			judge_operation(j, &op, place, b);
	return 1;
}

// Entries are found by two hash tables: all by their place, folders by their id, too. The list of all makes an array that needs no order.
//
// Invariants: each entry is in a folder that is there, or in the root; each folder is below the root; children is the number of entries
// whose folder_id is the folder's id.
#include "core/state/plain.h"

#include "core/base/util.h"
#include "core/state/table.h"

#include <stdio.h>

#define BUCKETS_FIRST 64

static struct ckpt_plain **place_slot(const struct ckpt_plains *t, const char *folder_id, const char *name)
{
	uint64_t hash = ckpt_checksum(name, strlen(name), ckpt_checksum(folder_id, strlen(folder_id), 0));

	return &t->of_place[hash & (t->bucket_count - 1)];
}

static struct ckpt_plain **id_slot(const struct ckpt_plains *t, const char *id)
{
	return &t->of_id[ckpt_checksum(id, strlen(id), 0) & (t->bucket_count - 1)];
}

static struct ckpt_plain *find(const struct ckpt_plains *t, const char *folder_id, const char *name)
{
	struct ckpt_plain *e = t->bucket_count ? *place_slot(t, folder_id, name) : NULL;

	while (e && (strcmp(e->name, name) || strcmp(e->folder_id, folder_id)))
		e = e->next_of_place;
	return e;
}

static struct ckpt_plain *find_folder(const struct ckpt_plains *t, const char *id)
{
	struct ckpt_plain *e = t->bucket_count && *id ? *id_slot(t, id) : NULL;

	while (e && strcmp(e->id, id))
		e = e->next_of_id;
	return e;
}

static bool is_there(const struct ckpt_plains *t, const char *folder_id)
{
	return !*folder_id || find_folder(t, folder_id);
}

static void chain(struct ckpt_plains *t, struct ckpt_plain *e)
{
	struct ckpt_plain **slot = place_slot(t, e->folder_id, e->name);

	e->next_of_place = *slot;
	*slot = e;
	if (!*e->id)
		return;
	slot = id_slot(t, e->id);
	e->next_of_id = *slot;
	*slot = e;
}

static void unchain(struct ckpt_plains *t, struct ckpt_plain *e)
{
	struct ckpt_plain **slot = place_slot(t, e->folder_id, e->name);

	while (*slot != e)
		slot = &(*slot)->next_of_place;
	*slot = e->next_of_place;
	if (!*e->id)
		return;
	slot = id_slot(t, e->id);
	while (*slot != e)
		slot = &(*slot)->next_of_id;
	*slot = e->next_of_id;
}

// Growth is an optimisation: without memory for it the chains get longer. Only the first buckets are needed.
static int grow(struct ckpt_plains *t)
{
	size_t is = t->bucket_count ? t->bucket_count * 4 : BUCKETS_FIRST;
	struct ckpt_plain **places = ckpt_calloc(is, sizeof(struct ckpt_plain *));
	struct ckpt_plain **ids = ckpt_calloc(is, sizeof(struct ckpt_plain *));

	if (!places || !ids) {
		free(places);
		free(ids);
		return t->bucket_count ? 0 : -ENOMEM;
	}
	free(t->of_place);
	free(t->of_id);
	t->of_place = places;
	t->of_id = ids;
	t->bucket_count = is;
	for (size_t i = 0; i < t->count; i++)
		chain(t, t->all[i]);
	return 0;
}

static void count_child(const struct ckpt_plains *t, const struct ckpt_plain *e, int more)
{
	struct ckpt_plain *folder = find_folder(t, e->folder_id);

	if (folder)
		folder->children += more;
}

struct ckpt_plain *ckpt_plain_new(const struct ckpt_plain *of, const char *name)
{
	size_t len = strlen(name) + 1;
	struct ckpt_plain *e = malloc(sizeof(*e) + len);

	if (!e)
		return NULL;
	*e = *of;
	e->name = memcpy(e + 1, name, len);
	return e;
}

int ckpt_plain_insert(struct ckpt_state *s, struct ckpt_plain *e)
{
	struct ckpt_plains *t = &s->plains;
	int rc = ckpt_grow((void **)&t->all, &t->cap, t->count + 1, sizeof(*t->all));

	if (!rc && t->count >= t->bucket_count)
		rc = grow(t);
	if (rc)
		return rc;
	e->index = t->count;
	t->all[t->count++] = e;
	chain(t, e);
	return 0;
}

int ckpt_plains_add_copy(struct ckpt_state *s, const struct ckpt_plain *of, uint32_t node)
{
	struct ckpt_plain *e = ckpt_plain_new(of, of->name);

	if (!e || ckpt_plain_insert(s, e)) {
		free(e);
		return -ENOMEM;
	}
	e->node = node;
	return 0;
}

void ckpt_plains_map_nodes(struct ckpt_state *s, const uint32_t *places)
{
	for (size_t i = 0; i < s->plains.count; i++)
		s->plains.all[i]->node = places[s->plains.all[i]->node];
}

static void take_out(struct ckpt_plains *t, struct ckpt_plain *e)
{
	struct ckpt_plain *last = t->all[--t->count];

	last->index = e->index;
	t->all[e->index] = last;
	unchain(t, e);
	count_child(t, e, -1);
	free(e);
}

// Each folder is walked over once: a walk ends at one that is known to be below the root.
static bool is_rooted(const struct ckpt_plains *t, struct ckpt_plain *e)
{
	size_t steps = 0;

	for (struct ckpt_plain *up = e; up && !up->rooted; up = find_folder(t, up->folder_id))
		if (steps++ > t->count)
			return false;
	for (struct ckpt_plain *up = e; up && !up->rooted; up = find_folder(t, up->folder_id))
		up->rooted = true;
	return true;
}

int ckpt_plains_check(struct ckpt_state *s)
{
	const struct ckpt_plains *t = &s->plains;

	for (size_t i = 0; i < t->count; i++) {
		if (!is_there(t, t->all[i]->folder_id))
			return -EBADMSG;
		count_child(t, t->all[i], 1);
	}
	for (size_t i = 0; i < t->count; i++)
		if (*t->all[i]->id && !is_rooted(t, t->all[i]))
			return -EBADMSG;
	return 0;
}

void ckpt_plains_done(struct ckpt_state *s)
{
	struct ckpt_plains *t = &s->plains;

	for (size_t i = 0; i < t->count; i++)
		free(t->all[i]);
	free(t->all);
	free(t->of_place);
	free(t->of_id);
	*t = (struct ckpt_plains){0};
}

char *ckpt_state_plain_path(const struct ckpt_state *state, const char *folder_id, const char *name)
{
	const struct ckpt_plain *folder;
	char *path = strdup(name), *longer;

	while (path && *folder_id && (folder = ckpt_state_plain_folder(state, folder_id))) {
		if (asprintf(&longer, "%s/%s", folder->name, path) < 0)
			longer = NULL;
		free(path);
		path = longer;
		folder_id = folder->folder_id;
	}
	return path;
}

// --- Acts ---------------------------------------------------------------------------------------------------------------

struct act {
	struct ckpt_state *s;
	const struct ckpt_act *a;
	const struct ckpt_span *at; // of the body
	uint32_t node;
};

static void set_content(const struct act *act, struct ckpt_plain *e)
{
	const struct ckpt_act *a = act->a;

	e->link = a->link;
	e->large = a->large;
	e->mode = a->mode;
	e->uid = a->uid;
	e->gid = a->gid;
	e->mtime_ns = a->time_ns;
	e->version = act->s->plains.version;
	e->node = act->node;
	e->size = a->content_len;
	e->content = (struct ckpt_span){0};
	if (a->kind != CKPT_ACT_FILE)
		return;
	if (a->large) {
		struct ckpt_plain_large large;

		ckpt_plain_large_decode(a->content, &large);
		e->size = large.bytes;
		memcpy(e->sha256, large.sha256, sizeof(e->sha256));
	} else {
		ckpt_sha256(a->content, a->content_len, e->sha256);
	}
	if (a->content_len)
		e->content = (struct ckpt_span){.seq = act->at->seq,
						.offset = act->at->offset + (uint32_t)a->content_at,
						.len = (uint32_t)a->content_len};
}

static int add(const struct act *act)
{
	struct ckpt_plain is = {0}, *e;

	memcpy(is.folder_id, act->a->folder_id, sizeof(is.folder_id));
	memcpy(is.id, act->a->id, sizeof(is.id));
	set_content(act, &is);
	e = ckpt_plain_new(&is, act->a->name);
	if (!e || ckpt_plain_insert(act->s, e)) {
		free(e);
		return -ENOMEM;
	}
	count_child(&act->s->plains, e, 1);
	return 0;
}

static int make_folder(const struct act *act)
{
	const struct ckpt_plains *t = &act->s->plains;
	const struct ckpt_act *a = act->a;

	if (find_folder(t, a->id) || !is_there(t, a->folder_id) || find(t, a->folder_id, a->name))
		return CKPT_STATE_VOID;
	return add(act);
}

static int put_file(const struct act *act)
{
	const struct ckpt_plains *t = &act->s->plains;
	const struct ckpt_act *a = act->a;
	struct ckpt_plain *there = find(t, a->folder_id, a->name);

	if (!is_there(t, a->folder_id) || (there && *there->id) || (there ? there->version : 0) != a->before)
		return CKPT_STATE_VOID;
	if (!there)
		return add(act);
	set_content(act, there);
	return 0;
}

// The table of steps is that of the remote while its acts are applied.
static bool has_steps(const struct ckpt_state *s, const char *folder_id)
{
	for (size_t i = 0; i < s->bucket_count; i++)
		for (const struct ckpt_state_step *step = s->of_id[i]; step; step = step->next_of_id)
			if (!step->deleted_by && !strcmp(step->is.folder_id, folder_id))
				return true;
	return false;
}

bool ckpt_state_plain_is_empty(const struct ckpt_state *s, const struct ckpt_plain *folder)
{
	return !folder->children && !has_steps(s, folder->id);
}

static int remove_entry(const struct act *act)
{
	struct ckpt_plains *t = &act->s->plains;
	struct ckpt_plain *e = find(t, act->a->folder_id, act->a->name);

	if (!e || e->version != act->a->before || (*e->id && (e->children || has_steps(act->s, e->id))))
		return CKPT_STATE_VOID;
	take_out(t, e);
	return 0;
}

// In the folder with that id, or below it.
static bool is_below(const struct ckpt_plains *t, const char *folder_id, const char *id)
{
	while (*folder_id && strcmp(folder_id, id) != 0)
		folder_id = find_folder(t, folder_id)->folder_id;
	return *folder_id;
}

static int move_folder(const struct act *act)
{
	struct ckpt_plains *t = &act->s->plains;
	const struct ckpt_act *a = act->a;
	struct ckpt_plain *e = find_folder(t, a->id), *moved;

	if (!e || e->version != a->before || !is_there(t, a->folder_id) || find(t, a->folder_id, a->name) ||
	    is_below(t, a->folder_id, a->id))
		return CKPT_STATE_VOID;
	moved = ckpt_plain_new(e, a->name);
	if (!moved)
		return -ENOMEM;
	memcpy(moved->folder_id, a->folder_id, sizeof(moved->folder_id));
	moved->version = act->s->plains.version;
	moved->node = act->node;
	unchain(t, e);
	count_child(t, e, -1);
	free(e);
	t->all[moved->index] = moved;
	chain(t, moved);
	count_child(t, moved, 1);
	return 0;
}

int ckpt_plain_act(struct ckpt_state *s, const struct ckpt_act *a, const struct ckpt_span *at, uint32_t node)
{
	const struct act act = {.s = s, .a = a, .at = at, .node = node};

	if (!s->plains.version)
		return CKPT_STATE_VOID;
	switch (a->kind) {
	case CKPT_ACT_MKDIR:
		return make_folder(&act);
	case CKPT_ACT_FILE:
		return put_file(&act);
	case CKPT_ACT_REMOVE:
		return remove_entry(&act);
	default: // MOVE
		return move_folder(&act);
	}
}

bool ckpt_plain_is_content(const struct ckpt_plain *e, const void *data)
{
	uint8_t sha256[CKPT_SHA256_LEN];

	if (e->large) {
		struct ckpt_plain_large large;

		ckpt_plain_large_decode(data, &large);
		return large.bytes == e->size && !memcmp(large.sha256, e->sha256, sizeof(large.sha256));
	}
	ckpt_sha256(data, e->content.len, sha256);
	return !memcmp(sha256, e->sha256, sizeof(sha256)) && (!e->link || ckpt_act_is_target(data, e->content.len));
}

// --- Looking ----------------------------------------------------------------------------------------------------------

const struct ckpt_plain *ckpt_state_plain(const struct ckpt_state *s, const char *folder_id, const char *name)
{
	return find(&s->plains, folder_id, name);
}

const struct ckpt_plain *ckpt_state_plain_folder(const struct ckpt_state *s, const char *id)
{
	return find_folder(&s->plains, id);
}

struct ckpt_plain *const *ckpt_state_plains(const struct ckpt_state *s, size_t *ret_count)
{
	*ret_count = s->plains.count;
	return s->plains.all;
}

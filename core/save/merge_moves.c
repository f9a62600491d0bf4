// Three trees of nodes, one for each manifest. Node i of a tree is entry i of its manifest; behind those come directories of the side that has
// moved something into them, and that the tree does not have. A move gives a node another parent and name. In the end each tree
// that was changed is written as a manifest.
#include "core/save/merge_moves.h"

#include "core/base/util.h"
#include "core/save/merge_change.h"

#include <limits.h>

#define NONE CKPT_MERGE_NONE
#define GIVE_UP 1 // nothing is followed
// The manifests of others decide how much work it is: a chain of moves into each other's places, and looks at all nodes for a name.
#define CHAIN_MAX 64
#define LOOKS_MAX (UINT64_C(1) << 30)

enum { OWN, OTHER, WAS, TREES };

struct node {
	const struct ckpt_manifest *m;
	uint32_t index; // in m
	uint32_t parent;
	const char *name;
	int more; // directories that came into it
	bool moved;
	bool gone; // with all that is below it
};

struct tree {
	struct ckpt_manifest *m;
	struct node *nodes;
	size_t count, cap;
	bool changed;
};

struct following {
	const struct ckpt_merge *how;
	struct tree trees[TREES];
	uint32_t *now[2]; // of each entry of `was`: the same one in own and in other
	uint32_t *was[2]; // of each entry of own and of other: the same one in `was`
	unsigned chain;   // moves that make way for each other now
	uint64_t looks;   // at nodes, so far
};

// --- The same entry -----------------------------------------------------------------------------------------------------

// A number that no hard link shares.
static uint32_t find_number(const struct ckpt_manifest *m, const struct ckpt_entry *of)
{
	struct ckpt_entry e;
	uint32_t index;

	if (ckpt_manifest_find_ino(m, of->ino, &index) ||
	    !index) // the step itself is itself, whatever a hostile manifest says
		return NONE;
	ckpt_manifest_entry(m, index, &e);
	return e.type == of->type && !e.conflict && (e.type == CKPT_ENTRY_DIR || e.nlink == 1) ? index : NONE;
}

static bool is_same_file(const struct following *f, const struct ckpt_manifest *m, uint32_t index,
			 const struct ckpt_entry *was)
{
	struct ckpt_entry e;

	ckpt_manifest_entry(m, index, &e);
	return was->type != CKPT_ENTRY_FILE || ckpt_merge_same_bytes(f->how, m, &e, was);
}

// Another file in its place has a new number: that is an edit of it.
static uint32_t find_in_place(const struct following *f, int side, const struct ckpt_entry *was)
{
	const struct ckpt_manifest *m = f->trees[side].m;
	uint32_t index = ckpt_merge_child(m, f->now[side][was->parent], was->name), before;
	struct ckpt_entry e;

	if (index == NONE)
		return NONE;
	ckpt_manifest_entry(m, index, &e);
	if (e.type != was->type)
		return NONE;
	return e.ino == was->ino || ckpt_manifest_find_ino(f->how->was, e.ino, &before) ? index : NONE;
}

static uint32_t find_same(const struct following *f, int side, uint32_t i)
{
	const struct ckpt_manifest *m = f->trees[side].m;
	struct ckpt_entry was;
	uint32_t index;

	ckpt_manifest_entry(f->how->was, i, &was);
	if (was.conflict || (was.type != CKPT_ENTRY_DIR && was.nlink > 1))
		return NONE;
	index = find_in_place(f, side, &was);
	if (index != NONE)
		return index;
	index = find_number(m, &was);
	return index != NONE && is_same_file(f, m, index, &was) ? index : NONE;
}

// Entries stand breadth-first: a directory comes before what is in it.
static int find_all(struct following *f, int side)
{
	uint32_t count = ckpt_manifest_count(f->how->was), others = ckpt_manifest_count(f->trees[side].m);

	f->now[side] = ckpt_calloc(count, sizeof(uint32_t));
	f->was[side] = ckpt_calloc(others, sizeof(uint32_t));
	if (!f->now[side] || !f->was[side])
		return -ENOMEM;
	for (uint32_t i = 0; i < others; i++)
		f->was[side][i] = NONE;
	f->was[side][0] = 0;
	for (uint32_t i = 1; i < count; i++) {
		uint32_t now = find_same(f, side, i);

		f->now[side][i] = now;
		if (now != NONE)
			f->was[side][now] = i;
	}
	return 0;
}

static bool has_moved(const struct following *f, int side, uint32_t i)
{
	uint32_t now = f->now[side][i];
	struct ckpt_entry e, was;

	if (now == NONE)
		return false;
	ckpt_manifest_entry(f->trees[side].m, now, &e);
	ckpt_manifest_entry(f->how->was, i, &was);
	return f->now[side][was.parent] != e.parent || strcmp(e.name, was.name) != 0;
}

// The directory of the other side that is this one, an entry of `side`.
static uint32_t other_dir(const struct following *f, int side, uint32_t index)
{
	struct ckpt_entry e;

	if (f->was[side][index] != NONE)
		return f->now[!side][f->was[side][index]];
	ckpt_manifest_entry(f->trees[side].m, index, &e);
	return ckpt_merge_child(f->trees[!side].m, other_dir(f, side, e.parent), e.name);
}

// The new file of `other` is in another place in own.
static uint32_t find_brought(const struct following *f, uint32_t i)
{
	struct ckpt_entry there, e;
	uint32_t index;

	ckpt_manifest_entry(f->how->other, f->now[OTHER][i], &there);
	if (!ckpt_manifest_find_ino(f->how->was, there.ino, &index))
		return NONE;
	index = find_number(f->how->own, &there);
	if (index == NONE)
		return NONE;
	ckpt_manifest_entry(f->how->own, index, &e);
	return e.bytes == there.bytes && e.mtime_s == there.mtime_s && e.mtime_ns == there.mtime_ns ? index : NONE;
}

static bool has_last_name(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return !strcmp(slash ? slash + 1 : path, name);
}

// The new file of own is in the place where `other` has moved it. Its raw file has the old name.
static uint32_t find_moved(const struct following *f, uint32_t i)
{
	struct ckpt_entry was, moved, e;
	uint32_t index;

	ckpt_manifest_entry(f->how->was, i, &was);
	ckpt_manifest_entry(f->how->other, f->now[OTHER][i], &moved);
	index = ckpt_merge_child(f->how->own, other_dir(f, OTHER, moved.parent), moved.name);
	if (index == NONE)
		return NONE;
	ckpt_manifest_entry(f->how->own, index, &e);
	return e.type == moved.type && e.raw_path && has_last_name(e.raw_path, was.name) ? index : NONE;
}

static void set_same(struct following *f, uint32_t i, uint32_t own)
{
	uint32_t was = f->was[OWN][own], before = f->now[OWN][i];

	if (was != NONE && f->now[OWN][was] == own)
		f->now[OWN][was] = NONE;
	if (before != NONE && f->was[OWN][before] == i)
		f->was[OWN][before] = NONE;
	f->now[OWN][i] = own;
	f->was[OWN][own] = i;
}

// The two sides may have been put together before, in own: then a file has the move of one side there and the change of the other.
static void find_put_together(struct following *f)
{
	for (uint32_t i = 1; i < ckpt_manifest_count(f->how->was); i++) {
		uint32_t own;

		if (f->now[OTHER][i] == NONE)
			continue;
		own = has_moved(f, OTHER, i) ? find_moved(f, i) : find_brought(f, i);
		if (own != NONE && own != f->now[OWN][i])
			set_same(f, i, own);
	}
}

// --- Trees --------------------------------------------------------------------------------------------------------------

static int add_node(struct tree *t, const struct node *node, uint32_t *ret)
{
	int rc = ckpt_grow((void **)&t->nodes, &t->cap, t->count + 1, sizeof(*t->nodes));

	if (rc)
		return rc;
	*ret = (uint32_t)t->count;
	t->nodes[t->count++] = *node;
	return 0;
}

static int plant(struct tree *t, struct ckpt_manifest *m)
{
	int rc = 0;

	t->m = m;
	for (uint32_t i = 0; i < ckpt_manifest_count(m) && !rc; i++) {
		struct ckpt_entry e;
		uint32_t at;

		ckpt_manifest_entry(m, i, &e);
		rc = add_node(t, &(struct node){.m = m, .index = i, .parent = e.parent, .name = e.name}, &at);
	}
	return rc;
}

static bool is_dir(const struct node *node)
{
	return ckpt_merge_is_dir(node->m, node->index);
}

static uint32_t find_child(const struct tree *t, uint32_t parent, const char *name)
{
	for (uint32_t i = 1; i < t->count; i++)
		if (t->nodes[i].parent == parent && !t->nodes[i].gone && !strcmp(t->nodes[i].name, name))
			return i;
	return NONE;
}

static void count_dir(struct tree *t, const struct node *node, int more)
{
	t->nodes[node->parent].more += is_dir(node) ? more : 0;
	t->changed = true;
}

static void drop_node(struct tree *t, uint32_t at)
{
	count_dir(t, &t->nodes[at], -1);
	t->nodes[at].gone = true;
}

static void move_node(struct tree *t, uint32_t at, uint32_t parent, const char *name)
{
	struct node *node = &t->nodes[at];

	count_dir(t, node, -1);
	node->parent = parent;
	node->name = name;
	node->moved = true;
	count_dir(t, node, 1);
}

// The directory of tree t that is the one of `side` at this index of its manifest; made where there is none.
static int find_dir(struct following *f, int side, uint32_t index, int t, uint32_t *ret)
{
	struct node node = {.m = f->trees[side].m, .index = index};
	uint32_t was = f->was[side][index];
	struct tree *tree = &f->trees[t];
	struct ckpt_entry e;
	int rc;

	*ret = !index ? 0 : was == NONE || t == WAS ? was : f->now[t][was];
	if (*ret != NONE)
		return 0;
	ckpt_manifest_entry(node.m, index, &e);
	rc = find_dir(f, side, e.parent, t, &node.parent);
	if (rc)
		return rc;
	*ret = find_child(tree, node.parent, e.name);
	if (*ret != NONE)
		return is_dir(&tree->nodes[*ret]) ? 0 : GIVE_UP;
	node.name = e.name;
	rc = add_node(tree, &node, ret);
	if (!rc)
		count_dir(tree, &node, 1);
	return rc;
}

// --- Moves --------------------------------------------------------------------------------------------------------------

static int follow(struct following *f, int side, uint32_t i);

// Both sides have moved it, and to one place.
static bool is_one_place(const struct following *f, uint32_t i)
{
	struct ckpt_entry own, other;

	ckpt_manifest_entry(f->trees[OWN].m, f->now[OWN][i], &own);
	ckpt_manifest_entry(f->trees[OTHER].m, f->now[OTHER][i], &other);
	return !strcmp(own.name, other.name) && other_dir(f, OTHER, other.parent) == own.parent;
}

// Entry `at` of `was` has the new place. The side has moved that, too, or has replaced it.
static int make_way(struct following *f, int side, uint32_t at)
{
	int t = !side;
	uint32_t there = f->now[t][at];

	if (f->trees[WAS].nodes[at].moved)
		return GIVE_UP;
	if (has_moved(f, side, at))
		return follow(f, side, at);
	if (there != NONE && ckpt_merge_differs_below(f->how, f->trees[t].m, there, at))
		return GIVE_UP;
	drop_node(&f->trees[WAS], at);
	if (there != NONE && !has_moved(f, t, at))
		drop_node(&f->trees[t], there);
	return 0;
}

// Entry i of `was` is moved as the side has moved it, there and in the other tree.
static int follow_one(struct following *f, int side, uint32_t i)
{
	int t = !side;
	uint32_t parent, place;
	struct ckpt_entry e;
	int rc;

	f->looks += f->trees[WAS].count + f->trees[t].count;
	if (f->looks > LOOKS_MAX)
		return GIVE_UP;
	if (f->now[t][i] != NONE && has_moved(f, t, i) && !is_one_place(f, i))
		return GIVE_UP;
	ckpt_manifest_entry(f->trees[side].m, f->now[side][i], &e);
	rc = find_dir(f, side, e.parent, WAS, &parent);
	if (rc)
		return rc;
	place = find_child(&f->trees[WAS], parent, e.name);
	move_node(&f->trees[WAS], i, parent, e.name);
	if (place != NONE && place < ckpt_manifest_count(f->how->was))
		rc = make_way(f, side, place);
	if (rc || f->now[t][i] == NONE || has_moved(f, t, i))
		return rc;
	rc = find_dir(f, side, e.parent, t, &parent);
	if (!rc)
		move_node(&f->trees[t], f->now[t][i], parent, e.name);
	return rc;
}

static int follow(struct following *f, int side, uint32_t i)
{
	int rc = ++f->chain > CHAIN_MAX ? GIVE_UP : follow_one(f, side, i);

	f->chain--;
	return rc;
}

// A move of what the other side has left as it was needs nothing.
static bool is_to_follow(const struct following *f, int side, uint32_t i)
{
	uint32_t other = f->now[!side][i];

	if (!has_moved(f, side, i) || f->trees[WAS].nodes[i].moved || other == NONE)
		return false;
	return has_moved(f, !side, i) ? is_one_place(f, i)
				      : ckpt_merge_differs_below(f->how, f->trees[!side].m, other, i);
}

static int follow_all(struct following *f, int side)
{
	int rc = 0;

	for (uint32_t i = 1; i < ckpt_manifest_count(f->how->was) && !rc; i++)
		if (is_to_follow(f, side, i))
			rc = follow(f, side, i);
	return rc;
}

// --- Manifests ----------------------------------------------------------------------------------------------------------

struct writing {
	const struct ckpt_merge *how;
	const struct tree *t;
	struct ckpt_manifest_writer *w;
	uint32_t *order; // nodes, those of one parent together, by name
	bool *sealed;    // by first hard link
};

static int by_place(const void *a, const void *b, void *arg)
{
	const struct tree *t = arg;
	const struct node *x = &t->nodes[*(const uint32_t *)a], *y = &t->nodes[*(const uint32_t *)b];

	return x->parent != y->parent ? (x->parent < y->parent ? -1 : 1) : strcmp(x->name, y->name);
}

// A raw file stays where it is. One that is empty says where that is, too.
static int keep_raw(const struct writing *g, const struct node *node, struct ckpt_entry *e, const char **ret_session,
		    char path[PATH_MAX])
{
	bool names = e->type == CKPT_ENTRY_FILE && e->content == CKPT_CONTENT_NONE && node->m == g->how->own;
	int len;

	*ret_session = names                             ? g->how->session
		       : e->content != CKPT_CONTENT_NONE ? ckpt_manifest_session(node->m, e->session)
							 : NULL;
	if (!*ret_session || e->raw_path)
		return 0;
	e->content = names ? CKPT_CONTENT_RAW : e->content;
	len = ckpt_manifest_path(node->m, node->index, path, PATH_MAX);
	e->raw_path = path;
	return MIN(len, 0);
}

static uint32_t count_dirs(const struct ckpt_manifest *m, const struct ckpt_entry *dir)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < dir->child_count; i++)
		count += ckpt_merge_is_dir(m, dir->child_first + i);
	return count;
}

static int write_entry(struct writing *g, const struct node *node, uint32_t parent, bool moves, uint32_t *ret_handle)
{
	uint32_t first = ckpt_manifest_first_link(node->m, node->index);
	const char *session = NULL, *name;
	char path[PATH_MAX];
	struct ckpt_entry e;
	struct ckpt_seal seal;
	const void *value;
	size_t len;
	int rc = 0;

	ckpt_manifest_entry(node->m, node->index, &e);
	if (e.type == CKPT_ENTRY_DIR && e.nlink > 1) // not every disk counts them
		e.nlink = (uint32_t)((int)e.nlink + node->more) - (node->m != g->t->m ? count_dirs(node->m, &e) : 0);
	e.name = node->name;
	if (moves)
		rc = keep_raw(g, node, &e, &session, path);
	else if (e.content != CKPT_CONTENT_NONE)
		session = ckpt_manifest_session(node->m, e.session);
	if (!rc && session)
		rc = ckpt_manifest_writer_session(g->w, session, &e.session);
	if (!rc)
		rc = ckpt_manifest_writer_add(g->w, parent, &e, ret_handle);
	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(node->m, &e, i, &name, &value, &len); i++)
		rc = ckpt_manifest_writer_xattr(g->w, *ret_handle, name, value, len);
	if (rc || e.type != CKPT_ENTRY_FILE || g->sealed[first] || !ckpt_manifest_seal(node->m, node->index, &seal))
		return rc;
	g->sealed[first] = true;
	return ckpt_manifest_writer_copy_seal(g->w, *ret_handle, node->m, &seal);
}

// The place in the order of the first node in this directory, or where it would be.
static size_t find_first(const struct writing *g, uint32_t dir)
{
	size_t low = 0, high = g->t->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (g->t->nodes[g->order[middle]].parent < dir)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int write_below(struct writing *g, uint32_t at, uint32_t parent, bool moves)
{
	const struct node *node = &g->t->nodes[at], *before = NULL;
	uint32_t handle;
	int rc = write_entry(g, node, parent, moves || node->moved, &handle);

	for (size_t i = find_first(g, at); !rc && i < g->t->count; i++) {
		const struct node *child = &g->t->nodes[g->order[i]];

		if (child->parent != at)
			break;
		if (child->gone || child == g->t->nodes)
			continue;
		if (before && !strcmp(before->name, child->name))
			return GIVE_UP;
		before = child;
		rc = write_below(g, g->order[i], handle, moves || node->moved);
	}
	return rc;
}

static bool is_in_itself(const struct tree *t, uint32_t at)
{
	size_t levels = 0;

	for (uint32_t i = at; i && !t->nodes[i].gone && levels <= t->count; i = t->nodes[i].parent)
		levels++;
	return levels > t->count;
}

static int finish(struct ckpt_manifest_writer *w, struct ckpt_manifest **ret)
{
	void *data;
	size_t len;
	int rc = ckpt_manifest_writer_finish(w, &data, &len);

	return rc ? rc : ckpt_manifest_parse(data, len, ret);
}

static int write_tree(const struct following *f, const struct tree *t, struct ckpt_manifest **ret)
{
	CLEANUP_FREE uint32_t *order = ckpt_calloc(t->count, sizeof(*order));
	CLEANUP_FREE bool *sealed = ckpt_calloc(ckpt_manifest_count(t->m), sizeof(*sealed));
	struct writing g = {.how = f->how, .t = t, .order = order, .sealed = sealed};
	int rc = order && sealed ? ckpt_manifest_writer_new(&g.w) : -ENOMEM;

	for (uint32_t i = 0; i < t->count && !rc; i++) {
		order[i] = i;
		if (t->nodes[i].moved && is_in_itself(t, i))
			rc = GIVE_UP;
	}
	if (!rc) {
		qsort_r(order, t->count, sizeof(*order), by_place, (void *)t);
		rc = write_below(&g, 0, 0, false);
	}
	if (!rc)
		rc = finish(g.w, ret);
	ckpt_manifest_writer_free(g.w);
	return rc;
}

// --- The whole ----------------------------------------------------------------------------------------------------------

static int write_trees(const struct following *f, struct ckpt_manifest *made[3])
{
	static const int order[] = {WAS, OWN, OTHER};
	int rc = 0;

	for (int i = 0; i < TREES && !rc; i++)
		if (f->trees[order[i]].changed)
			rc = write_tree(f, &f->trees[order[i]], &made[i]);
	for (int i = 0; rc && i < TREES; i++) {
		ckpt_manifest_unref(made[i]);
		made[i] = NULL;
	}
	return rc;
}

static int follow_both(struct following *f)
{
	int rc = plant(&f->trees[WAS], f->how->was);

	if (!rc)
		rc = plant(&f->trees[OWN], f->how->own);
	if (!rc)
		rc = plant(&f->trees[OTHER], f->how->other);
	for (int side = OWN; side <= OTHER && !rc; side++)
		rc = find_all(f, side);
	if (!rc)
		find_put_together(f);
	for (int side = OWN; side <= (f->how->keeps_places ? OWN : OTHER) && !rc; side++)
		rc = follow_all(f, side);
	return rc;
}

int ckpt_merge_follow_moves(struct ckpt_merge *how, struct ckpt_manifest *made[3])
{
	struct following f = {.how = how};
	int rc = follow_both(&f);

	if (!rc)
		rc = write_trees(&f, made);
	for (int i = 0; i < TREES; i++)
		free(f.trees[i].nodes);
	for (int side = OWN; side <= OTHER; side++) {
		free(f.now[side]);
		free(f.was[side]);
	}
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	how->was = made[0] ?: how->was;
	how->own = made[1] ?: how->own;
	how->other = made[2] ?: how->other;
	return 0;
}

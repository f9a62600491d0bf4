#include "core/save/merge.h"

#include "core/base/util.h"
#include "core/record/name.h"
#include "core/save/merge_change.h"
#include "core/save/merge_moves.h"

#include <limits.h>

#define NONE CKPT_MERGE_NONE

struct merging {
	const struct ckpt_merge *how;
	struct ckpt_manifest_writer *w;
	bool *sealed[2]; // by first hard link of `other` and of `own`: it has its seal in w
	bool *stays;     // by entry of `own`: it is in the result, under its number
	bool brings;
	uint32_t numbers; // of conflict copies, that were tried
};

// The entries at one path; NONE: there is none.
struct spot {
	uint32_t was, own, other;
};

// --- Choosing ----------------------------------------------------------------------------------------------------------

// Both sides have the same there by now, as where they were put together before.
static bool is_same_by_now(const struct ckpt_merge *how, const struct spot *s)
{
	struct ckpt_seal own_seal, other_seal;
	struct ckpt_entry a, b;

	if (s->own == NONE || s->other == NONE)
		return s->own == s->other;
	ckpt_manifest_entry(how->own, s->own, &a);
	ckpt_manifest_entry(how->other, s->other, &b);
	if (a.type != b.type || a.mode != b.mode || a.uid != b.uid || a.gid != b.gid || a.bytes != b.bytes ||
	    !ckpt_merge_same_xattrs(how->own, &a, how->other, &b))
		return false;
	if (a.type == CKPT_ENTRY_SYMLINK)
		return !strcmp(a.target, b.target);
	if (a.type == CKPT_ENTRY_DIR)
		return true;
	if (a.mtime_s != b.mtime_s || a.mtime_ns != b.mtime_ns)
		return false;
	if (ckpt_manifest_seal(how->own, s->own, &own_seal) && ckpt_manifest_seal(how->other, s->other, &other_seal))
		return !memcmp(own_seal.sha256, other_seal.sha256, sizeof(own_seal.sha256));
	return a.ino == b.ino;
}

// A directory that has the place of something else counts with all that is in it.
static bool has_changed(const struct ckpt_merge *how, const struct ckpt_manifest *m, uint32_t index, uint32_t was,
			bool whole)
{
	return whole ? ckpt_merge_differs_below(how, m, index, was) : ckpt_merge_differs(how, m, index, was);
}

static bool takes_other(const struct ckpt_merge *how, const struct spot *s)
{
	bool whole = s->own != NONE && s->other != NONE &&
		     ckpt_merge_is_dir(how->own, s->own) != ckpt_merge_is_dir(how->other, s->other);

	return has_changed(how, how->other, s->other, s->was, whole) && !is_same_by_now(how, s) &&
	       (!how->own_wins || !has_changed(how, how->own, s->own, s->was, whole));
}

// The names in a directory of one side or both, in their order.
struct names {
	const struct ckpt_merge *how;
	struct spot in;
	uint32_t own, own_end, other, other_end; // the next of each
};

static void take_range(const struct ckpt_manifest *m, uint32_t dir, uint32_t *ret_first, uint32_t *ret_end)
{
	struct ckpt_entry e;

	*ret_first = *ret_end = 0;
	if (!ckpt_merge_is_dir(m, dir))
		return;
	ckpt_manifest_entry(m, dir, &e);
	*ret_first = e.child_first;
	*ret_end = e.child_first + e.child_count;
}

static struct names names_in(const struct ckpt_merge *how, const struct spot *dir)
{
	struct names n = {.how = how, .in = *dir};

	take_range(how->own, dir->own, &n.own, &n.own_end);
	take_range(how->other, dir->other, &n.other, &n.other_end);
	return n;
}

static bool next_name(struct names *n, struct spot *ret)
{
	bool own = n->own < n->own_end, other = n->other < n->other_end;
	struct ckpt_entry a = {.name = ""}, b = {.name = ""};
	int order;

	if (!own && !other)
		return false;
	if (own)
		ckpt_manifest_entry(n->how->own, n->own, &a);
	if (other)
		ckpt_manifest_entry(n->how->other, n->other, &b);
	order = !own ? 1 : !other ? -1 : strcmp(a.name, b.name);
	ret->own = order <= 0 ? n->own++ : NONE;
	ret->other = order >= 0 ? n->other++ : NONE;
	ret->was = ckpt_merge_child(n->how->was, n->in.was, order <= 0 ? a.name : b.name);
	return true;
}

// The weaker side has something there that the stronger one has changed otherwise. Of directories each of what is in them is looked at by itself.
static bool is_conflict(const struct ckpt_merge *how, const struct spot *s)
{
	bool own_is_dir = ckpt_merge_is_dir(how->own, s->own), other_is_dir = ckpt_merge_is_dir(how->other, s->other);
	bool whole = s->own != NONE && s->other != NONE && own_is_dir != other_is_dir;

	if (!how->host || (own_is_dir && other_is_dir) || (own_is_dir && s->other == NONE) ||
	    (other_is_dir && s->own == NONE) || is_same_by_now(how, s))
		return false;
	return has_changed(how, how->own, s->own, s->was, whole) &&
	       has_changed(how, how->other, s->other, s->was, whole);
}

static uint32_t weaker(const struct ckpt_merge *how, const struct spot *s)
{
	return how->own_wins ? s->other : s->own;
}

// What is in the result of a place, and of which side; false: nothing. A directory that its side has removed is there for what the other
// side has put or changed in it.
static bool choose(const struct ckpt_merge *how, const struct spot *s, bool *ret_other)
{
	struct names n;
	struct spot child;
	bool other;

	*ret_other = takes_other(how, s);
	if ((*ret_other ? s->other : s->own) != NONE)
		return true;
	*ret_other = s->own == NONE;
	n = names_in(how, s);
	while (next_name(&n, &child))
		if (choose(how, &child, &other) || (is_conflict(how, &child) && weaker(how, &child) != NONE))
			return true;
	return false;
}

// --- Writing ------------------------------------------------------------------------------------------------------------

static int copy_xattrs(struct merging *g, const struct ckpt_manifest *m, const struct ckpt_entry *e, uint32_t handle)
{
	const void *value;
	const char *name;
	size_t len;
	int rc = 0;

	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(m, e, i, &name, &value, &len); i++)
		rc = ckpt_manifest_writer_xattr(g->w, handle, name, value, len);
	return rc;
}

// A conflict copy is no hard link of anything.
static int copy_seal(struct merging *g, const struct ckpt_manifest *m, uint32_t index, uint32_t handle, bool alone)
{
	uint32_t first = ckpt_manifest_first_link(m, index);
	bool *sealed = &g->sealed[m == g->how->own][first];
	struct ckpt_seal seal;

	if ((*sealed && !alone) || !ckpt_manifest_seal(m, index, &seal))
		return 0;
	*sealed |= !alone;
	return ckpt_manifest_writer_copy_seal(g->w, handle, m, &seal);
}

// alone: in a conflict copy.
static int add_entry(struct merging *g, uint32_t parent, bool other, struct ckpt_entry *e, bool alone,
		     uint32_t *ret_handle)
{
	const struct ckpt_manifest *m = other ? g->how->other : g->how->own;
	int rc = 0;

	if (e->content != CKPT_CONTENT_NONE && !other)
		rc = ckpt_manifest_writer_session(g->w, ckpt_manifest_session(m, e->session), &e->session);
	else if (e->content != CKPT_CONTENT_NONE)
		rc = ckpt_manifest_writer_session(g->w, g->how->session, &e->session);
	if (!rc)
		rc = ckpt_manifest_writer_add(g->w, parent, e, ret_handle);
	if (!rc)
		rc = copy_xattrs(g, m, e, *ret_handle);
	return rc || e->content == CKPT_CONTENT_NONE ? rc : copy_seal(g, m, e->index, *ret_handle, alone);
}

static bool is_dir_there(const struct ckpt_merge *how, const struct spot *s, bool other)
{
	return other ? ckpt_merge_is_dir(how->other, s->other) : ckpt_merge_is_dir(how->own, s->own);
}

static int count_dirs(const struct ckpt_merge *how, const struct spot *dir)
{
	struct names n = names_in(how, dir);
	struct spot s;
	int count = 0;
	bool other;

	while (next_name(&n, &s))
		if (choose(how, &s, &other))
			count += is_dir_there(how, &s, other);
	return count;
}

static int count_dirs_of(const struct ckpt_manifest *m, uint32_t dir)
{
	uint32_t i, end;
	int count = 0;

	for (take_range(m, dir, &i, &end); i < end; i++)
		count += ckpt_merge_is_dir(m, i);
	return count;
}

static int add_spot(struct merging *g, uint32_t parent, const struct spot *dir, const struct spot *s);

static int add_children(struct merging *g, uint32_t handle, const struct spot *dir)
{
	struct names n = names_in(g->how, dir);
	struct spot s;
	int rc = 0;

	while (!rc && next_name(&n, &s))
		rc = add_spot(g, handle, dir, &s);
	return rc;
}

// --- Conflict copies ----------------------------------------------------------------------------------------------------

static bool has_name(const struct ckpt_merge *how, const struct spot *dir, const char *name)
{
	return ckpt_merge_child(how->own, dir->own, name) != NONE ||
	       ckpt_merge_child(how->other, dir->other, name) != NONE;
}

static bool has_number(const struct ckpt_merge *how, uint64_t ino)
{
	uint32_t index;

	return !ckpt_manifest_find_ino(how->own, ino, &index) || !ckpt_manifest_find_ino(how->other, ino, &index) ||
	       !ckpt_manifest_find_ino(how->was, ino, &index);
}

// The entry keeps its own number where it stands, or the stronger side has that. So the copy gets one that only depends on what it is of.
static uint64_t number_of_copy(struct merging *g, const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	uint8_t from[16], sha256[CKPT_SHA256_LEN];
	uint64_t ino;

	ckpt_put64(from, e->ino);
	do {
		ckpt_put64(from + 8,
			   (uint64_t)e->index + ((uint64_t)(m == g->how->own) << 32) + ((uint64_t)g->numbers++ << 33));
		ckpt_sha256(from, sizeof(from), sha256);
		ino = ckpt_get64(sha256) & INT64_MAX;
	} while (!ino || has_number(g->how, ino));
	return ino;
}

// Its raw file stays where it is, under the name that the entry had.
static int take_bytes(struct merging *g, bool other, struct ckpt_entry *e, char path[PATH_MAX])
{
	int len;

	if (e->content == CKPT_CONTENT_NONE)
		return 0;
	if (other)
		return g->how->bring(g->how->arg, g->how->other, e);
	len = e->raw_path ? 0 : ckpt_manifest_path(g->how->own, e->index, path, PATH_MAX);
	if (len > 0)
		e->raw_path = path;
	return MIN(len, 0);
}

// name: NULL, its own, in a directory that is one.
static int add_copy(struct merging *g, uint32_t parent, bool other, uint32_t index, const char *name)
{
	const struct ckpt_manifest *m = other ? g->how->other : g->how->own;
	char path[PATH_MAX];
	struct ckpt_entry e;
	uint32_t handle;
	int rc;

	ckpt_manifest_entry(m, index, &e);
	e.ino = number_of_copy(g, m, &e);
	e.conflict = name;
	e.name = name ? name : e.name;
	if (e.type != CKPT_ENTRY_DIR)
		e.nlink = 1;
	rc = take_bytes(g, other, &e, path);
	if (!rc)
		rc = add_entry(g, parent, other, &e, true, &handle);
	for (uint32_t i = 0; e.type == CKPT_ENTRY_DIR && i < e.child_count && !rc; i++)
		rc = add_copy(g, handle, other, e.child_first + i, NULL);
	return rc;
}

static int tell_conflict(const struct merging *g, const struct spot *s, const char *copy)
{
	char path[PATH_MAX];
	int len = s->own != NONE ? ckpt_manifest_path(g->how->own, s->own, path, sizeof(path))
				 : ckpt_manifest_path(g->how->other, s->other, path, sizeof(path));

	return len < 0 ? len : g->how->conflict ? g->how->conflict(g->how->arg, path, copy) : 0;
}

// The two are put together again, and it is there since the first time.
static bool is_kept(const struct ckpt_merge *how, uint32_t own, uint32_t other)
{
	struct ckpt_seal own_seal, other_seal;
	struct ckpt_entry a, b;

	if (own == NONE || !how->own_wins)
		return false;
	ckpt_manifest_entry(how->own, own, &a);
	ckpt_manifest_entry(how->other, other, &b);
	if (!a.conflict || a.type != b.type)
		return false;
	if (a.type == CKPT_ENTRY_DIR)
		return true;
	if (a.bytes != b.bytes || a.mtime_s != b.mtime_s || a.mtime_ns != b.mtime_ns)
		return false;
	return !ckpt_manifest_seal(how->own, own, &own_seal) || !ckpt_manifest_seal(how->other, other, &other_seal) ||
	       !memcmp(own_seal.sha256, other_seal.sha256, sizeof(own_seal.sha256));
}

static int add_conflict(struct merging *g, uint32_t parent, const struct spot *dir, const struct spot *s)
{
	const struct ckpt_merge *how = g->how;
	uint32_t index = weaker(how, s);
	char name[CKPT_NAME_MAX + 1];
	struct ckpt_entry e;
	int rc;

	if (index == NONE)
		return tell_conflict(g, s, NULL);
	ckpt_manifest_entry(how->own_wins ? how->other : how->own, index, &e);
	ckpt_name_conflict(name, e.name, how->host, 1);
	for (unsigned n = 2; has_name(how, dir, name); n++) {
		if (is_kept(how, ckpt_merge_child(how->own, dir->own, name), index))
			return 0;
		ckpt_name_conflict(name, e.name, how->host, n);
	}
	g->brings = true;
	rc = add_copy(g, parent, how->own_wins, index, name);
	return rc ? rc : tell_conflict(g, s, name);
}

// --- Places -------------------------------------------------------------------------------------------------------------

// An entry of `own` that has the number in the result, too.
static uint32_t find_number(const struct merging *g, uint64_t ino)
{
	const struct ckpt_manifest *own = g->how->own;
	struct ckpt_entry e;
	uint32_t i;

	if (ckpt_manifest_find_ino(own, ino, &i))
		return NONE;
	for (; i < ckpt_manifest_count(own); i++) {
		ckpt_manifest_entry(own, i, &e);
		if (e.ino == ino && g->stays[i])
			return i;
		if (e.nlink < 2 || e.type == CKPT_ENTRY_DIR)
			break;
	}
	return NONE;
}

// Entries of one number are hard links: of one file, with one set of attributes.
static bool is_link(const struct merging *g, const struct ckpt_entry *e, uint32_t own)
{
	const struct spot s = {.was = NONE, .own = own, .other = e->index};

	return e->type != CKPT_ENTRY_DIR && is_same_by_now(g->how, &s);
}

// It becomes a hard link of that entry of `own`, and says where the bytes of that one are.
static int link_to(struct merging *g, uint32_t parent, struct ckpt_entry *e, uint32_t own)
{
	char path[PATH_MAX];
	struct ckpt_entry to;
	uint32_t handle;
	int rc;

	ckpt_manifest_entry(g->how->own, own, &to);
	rc = take_bytes(g, false, &to, path);
	if (rc)
		return rc;
	to.name = e->name;
	to.conflict = e->conflict;
	return add_entry(g, parent, false, &to, false, &handle);
}

// Another entry of `own` that has the number keeps it: `other` has moved this one, or linked it, or it is another file.
static int add_other(struct merging *g, uint32_t parent, struct ckpt_entry *e)
{
	uint32_t own = find_number(g, e->ino), handle;
	bool alone = own != NONE;
	int rc = 0;

	if (alone && is_link(g, e, own))
		return link_to(g, parent, e, own);
	if (alone) {
		e->ino = number_of_copy(g, g->how->other, e);
		e->nlink = 1;
	}
	if (e->content != CKPT_CONTENT_NONE)
		rc = g->how->bring(g->how->arg, g->how->other, e);
	return rc ? rc : add_entry(g, parent, true, e, alone, &handle);
}

static int add_dir(struct merging *g, uint32_t parent, bool other, struct ckpt_entry *e, const struct spot *s)
{
	int more = count_dirs(g->how, s) - count_dirs_of(other ? g->how->other : g->how->own, e->index);
	uint32_t handle;
	int rc;

	if (e->nlink > 1) // not every disk counts them
		e->nlink = (uint32_t)((int)e->nlink + more);
	if (other && find_number(g, e->ino) != NONE)
		e->ino = number_of_copy(g, g->how->other, e);
	rc = add_entry(g, parent, other, e, false, &handle);
	return rc ? rc : add_children(g, handle, s);
}

static int add_spot(struct merging *g, uint32_t parent, const struct spot *dir, const struct spot *s)
{
	struct ckpt_entry e;
	uint32_t handle;
	bool other;
	int rc = is_conflict(g->how, s) ? add_conflict(g, parent, dir, s) : 0;

	if (rc)
		return rc;
	if (!choose(g->how, s, &other)) {
		g->brings |= s->own != NONE;
		return 0;
	}
	g->brings |= other;
	ckpt_manifest_entry(other ? g->how->other : g->how->own, other ? s->other : s->own, &e);
	if (e.type == CKPT_ENTRY_DIR)
		return add_dir(g, parent, other, &e, s);
	return other ? add_other(g, parent, &e) : add_entry(g, parent, false, &e, false, &handle);
}

static void mark_what_stays(struct merging *g, const struct spot *dir)
{
	struct names n = names_in(g->how, dir);
	struct spot s;
	bool other;

	while (next_name(&n, &s)) {
		if (!choose(g->how, &s, &other))
			continue;
		if (!other)
			g->stays[s.own] = true;
		if (is_dir_there(g->how, &s, other))
			mark_what_stays(g, &s);
	}
}

// The top directory is that of `own`, whose number it keeps.
static void take_attributes(const struct ckpt_manifest *m, struct ckpt_entry *top)
{
	struct ckpt_entry e;

	ckpt_manifest_entry(m, 0, &e);
	top->mode = e.mode;
	top->uid = e.uid;
	top->gid = e.gid;
	top->xattrs = e.xattrs; // those of m
}

static int add_all(struct merging *g, int *ret_dirs)
{
	bool other;

	const struct spot top = {0, 0, 0};
	struct ckpt_entry e;
	uint32_t session, handle;
	int rc = ckpt_manifest_writer_session(g->w, g->how->session, &session); // in every manifest of the step

	mark_what_stays(g, &top);
	ckpt_manifest_entry(g->how->own, 0, &e);
	other = !g->how->keeps_places && takes_other(g->how, &top);
	g->brings |= other;
	if (other)
		take_attributes(g->how->other, &e);
	*ret_dirs = count_dirs(g->how, &top) - count_dirs_of(g->how->own, 0);
	if (e.nlink > 1)
		e.nlink = (uint32_t)((int)e.nlink + *ret_dirs);
	if (!rc)
		rc = ckpt_manifest_writer_add(g->w, 0, &e, &handle);
	if (!rc)
		rc = copy_xattrs(g, other ? g->how->other : g->how->own, &e, handle);
	return rc ? rc : add_children(g, handle, &top);
}

static int merge(const struct ckpt_merge *how, bool moved, struct ckpt_manifest_writer **ret_writer, int *ret_dirs)
{
	CLEANUP_FREE bool *other = calloc(ckpt_manifest_count(how->other), sizeof(*other));
	CLEANUP_FREE bool *own = calloc(ckpt_manifest_count(how->own), sizeof(*own));
	CLEANUP_FREE bool *stays = calloc(ckpt_manifest_count(how->own), sizeof(*stays));
	struct merging g = {.how = how, .sealed = {other, own}, .stays = stays, .brings = moved};
	int rc = other && own && stays ? ckpt_manifest_writer_new(&g.w) : -ENOMEM;

	if (!rc)
		rc = add_all(&g, ret_dirs);
	if (rc || !g.brings) {
		ckpt_manifest_writer_free(g.w);
		return rc ? rc : 1;
	}
	*ret_writer = g.w;
	return 0;
}

int ckpt_merge(const struct ckpt_merge *how, struct ckpt_manifest_writer **ret_writer, int *ret_dirs)
{
	struct ckpt_manifest *made[3] = {NULL};
	struct ckpt_merge after = *how;
	int rc = ckpt_merge_follow_moves(&after, made);

	if (!rc)
		rc = merge(&after, made[1], ret_writer, ret_dirs);
	if (!rc)
		*ret_dirs += count_dirs_of(after.own, 0) - count_dirs_of(how->own, 0);
	for (size_t i = 0; i < ARRAY_LEN(made); i++)
		ckpt_manifest_unref(made[i]);
	return rc;
}

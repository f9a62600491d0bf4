#include "fs/node.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/cold/file.h"
#include "core/step/amending.h"
#include "core/step/staging.h"
#include "core/step/store.h"
#include "fs/amend_file.h"
#include "fs/control_piece.h"
#include "fs/draft_table.h"
#include "fs/fs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

struct node_table {
	struct ckpt_lock lock;         // guards the hash, lookups and refs
	struct ckpt_rwlock names_lock; // guards what says so in node.h
	struct node **buckets;
	size_t bucket_count, count;
	uint64_t generations;
	struct node *root;
};

// --- The table --------------------------------------------------------------------------------------------------------

static size_t bucket_of(const struct node_table *t, uint64_t space, uint64_t number)
{
	return ((number ^ space * 31) * UINT64_C(0x9e3779b97f4a7c15) >> 17) & (t->bucket_count - 1);
}

static struct node *node_new(struct node_table *t, uint64_t space, uint64_t number, mode_t type)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->space = space;
	n->number = number;
	n->type = type;
	// Said here and not by who asked for it: two lookups at once get one node.
	n->kind = space == SPACE_CONTROL     ? NODE_CONTROL
		  : space == SPACE_CONFLICTS ? NODE_CONTROL
		  : space == SPACE_ARRAYS    ? NODE_CONTROL
		  : space == SPACE_ARRAY     ? NODE_CONTROL
		  : space == SPACE_VIEWS     ? NODE_CONTROL
		  : space == SPACE_VIEW      ? NODE_CONTROL
		  : space == SPACE_MARKER    ? NODE_MARKER
		  : space == SPACE_LATEST    ? NODE_LATEST
					     : NODE_FILES;
	n->control = space == SPACE_CONTROL     ? (int)MIN(number, CONTROL_ANSWER)
		     : space == SPACE_CONFLICTS ? CONTROL_COPY
		     : space == SPACE_ARRAYS    ? CONTROL_ARRAYS
		     : space == SPACE_ARRAY     ? CONTROL_ARRAY
		     : space == SPACE_VIEWS     ? CONTROL_VIEWS
		     : space == SPACE_VIEW      ? CONTROL_VIEW
						: 0;
	n->generation = ++t->generations;
	return n;
}

struct node_table *node_table_new(void)
{
	struct node_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->bucket_count = 1024;
	t->buckets = calloc(t->bucket_count, sizeof(*t->buckets));
	t->root = node_new(t, SPACE_LIVE, FUSE_ROOT_ID, S_IFDIR);
	if (!t->buckets || !t->root) {
		free(t->buckets);
		free(t->root);
		free(t);
		return NULL;
	}
	t->root->refs = 1;
	ckpt_lock_init(&t->lock, CKPT_LOCK_NODES);
	ckpt_rwlock_init(&t->names_lock, CKPT_LOCK_NAMES, PTHREAD_RWLOCK_PREFER_READER_NP);
	return t;
}

static void node_free(struct node *n)
{
	while (n->names) {
		struct node_name *name = n->names;

		n->names = name->next;
		free(name);
	}
	ckpt_step_unref(n->step);
	free(n->marker); // or the target, or what was opened
	if (n->use) {
		if (n->use->fd >= 0)
			ckpt_sys.close(n->use->fd);
		ckpt_file_close(n->use->packed);
		if (n->use->nameless >= 0)
			ckpt_sys.close(n->use->nameless);
		ckpt_lock_done(&n->use->lock);
		amend_free(n->use->amend);
		free(n->use);
	}
	free(n);
}

void node_table_free(struct node_table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->bucket_count; i++)
		while (t->buckets[i]) {
			struct node *n = t->buckets[i];

			t->buckets[i] = n->hash_next;
			node_free(n);
		}
	node_free(t->root);
	free(t->buckets);
	ckpt_rwlock_done(&t->names_lock);
	ckpt_lock_done(&t->lock);
	free(t);
}

struct node *node_root(struct ckpt_fs *fs)
{
	return fs->nodes->root;
}

bool node_is_file(const struct node *n, const struct statx *stx)
{
	uint64_t file = __atomic_load_n(&n->file, __ATOMIC_RELAXED);

	return S_ISDIR(n->type) ||
	       ((stx->stx_mode & S_IFMT) == n->type && ckpt_store_ino(stx) == (file ? file : n->number));
}

struct node *node_of(struct ckpt_fs *fs, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? fs->nodes->root : (struct node *)(uintptr_t)ino;
}

fuse_ino_t node_id(struct ckpt_fs *fs, const struct node *n)
{
	return n == fs->nodes->root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)n;
}

// What is in the trash may share files and numbers with what took its place.
uint64_t node_space(const struct ckpt_step *step)
{
	return !step || (__atomic_load_n(&ckpt_staging_of(step)->ours, __ATOMIC_RELAXED) &&
			 __atomic_load_n(&step->state, __ATOMIC_RELAXED) != CKPT_STEP_DELETED)
		       ? SPACE_LIVE
		       : step->incarnation;
}

static struct node *find_locked(struct node_table *t, uint64_t space, uint64_t number)
{
	struct node *n = t->buckets[bucket_of(t, space, number)];

	while (n && (n->number != number || n->space != space))
		n = n->hash_next;
	return n;
}

static void grow_locked(struct node_table *t)
{
	size_t old_count = t->bucket_count;
	struct node **old = t->buckets, **wider = calloc(old_count * 4, sizeof(*wider));

	if (!wider)
		return;
	t->buckets = wider;
	t->bucket_count = old_count * 4;
	for (size_t i = 0; i < old_count; i++)
		while (old[i]) {
			struct node *n = old[i], **slot = &wider[bucket_of(t, n->space, n->number)];

			old[i] = n->hash_next;
			n->hash_next = *slot;
			*slot = n;
		}
	free(old);
}

static void hash_insert_locked(struct node_table *t, struct node *n)
{
	struct node **slot;

	if (t->count >= t->bucket_count)
		grow_locked(t);
	slot = &t->buckets[bucket_of(t, n->space, n->number)];
	n->hash_next = *slot;
	*slot = n;
	t->count++;
}

static void hash_remove_locked(struct node_table *t, struct node *n)
{
	struct node **slot = &t->buckets[bucket_of(t, n->space, n->number)];

	while (*slot != n)
		slot = &(*slot)->hash_next;
	*slot = n->hash_next;
	t->count--;
}

// It keeps its handles, and is found no more.
static void hide_locked(struct node_table *t, struct node *n)
{
	hash_remove_locked(t, n);
	n->space = SPACE_OURS_MIN - 1 - n->generation;
	hash_insert_locked(t, n);
}

void node_retire(struct ckpt_fs *fs, uint64_t space, uint64_t number)
{
	LOCK_SCOPE(&fs->nodes->lock);
	struct node *n = find_locked(fs->nodes, space, number);

	if (n)
		hide_locked(fs->nodes, n);
}

// Finds or makes the node and counts one lookup on it.
static struct node *count_lookup(struct node_table *t, uint64_t space, uint64_t number, mode_t type)
{
	LOCK_SCOPE(&t->lock);
	struct node *n = find_locked(t, space, number);

	// A number that comes back with another type is another file.
	if (n && n->type != type) {
		hide_locked(t, n);
		n = NULL;
	}
	if (!n) {
		n = node_new(t, space, number, type);
		if (!n)
			return NULL;
		hash_insert_locked(t, n);
	}
	n->lookups++;
	return n;
}

int node_get_locked(struct ckpt_fs *fs, uint64_t space, uint64_t number, mode_t type, struct node *parent,
		    const char *name, struct ckpt_step *step, struct node **ret_node)
{
	struct node *n = count_lookup(fs->nodes, space, number, type);
	int rc = n ? name_add_locked(fs, n, parent, name) : -ENOMEM;

	if (rc) {
		if (n)
			node_forget(fs, n, 1);
		return rc;
	}
	if (step && n->step != step) {
		ckpt_step_unref(n->step);
		__atomic_store_n(&n->step, ckpt_step_ref(step), __ATOMIC_RELAXED);
	}
	*ret_node = n;
	return 0;
}

int node_get(struct ckpt_fs *fs, uint64_t space, uint64_t number, mode_t type, struct node *parent, const char *name,
	     struct ckpt_step *step, struct node **ret_node)
{
	int rc;

	names_write_lock(fs);
	rc = node_get_locked(fs, space, number, type, parent, name, step, ret_node);
	names_unlock(fs);
	return rc;
}

static bool node_has_name(const struct node *n, const struct node *parent, const char *name)
{
	for (struct node_name *x = n->names; x; x = x->next)
		if (x->parent == parent && !strcmp(x->text, name))
			return true;
	return false;
}

int node_get_twin(struct ckpt_fs *fs, struct node *n, const struct node *parent, const char *name,
		  struct node **ret_twin)
{
	struct node *twin;

	names_write_lock(fs);
	if (!node_has_name(n, parent, name)) { // its copy has it, and no twin could ever be led to that
		names_unlock(fs);
		return -ESTALE;
	}
	twin = count_lookup(fs->nodes, SPACE_TWIN, n->number, n->type);
	if (twin && twin->twin && twin->twin != n) { // of a file that had the number before
		node_forget(fs, twin, 1);
		node_retire(fs, SPACE_TWIN, n->number);
		twin = count_lookup(fs->nodes, SPACE_TWIN, n->number, n->type);
	}
	if (twin && !twin->twin) {
		node_ref(fs, n);
		__atomic_store_n(&twin->twin, n, __ATOMIC_RELEASE);
	}
	names_unlock(fs);
	*ret_twin = twin;
	return twin ? 0 : -ENOMEM;
}

static struct node *identify_twin(struct node_table *t, const struct node *n, uint64_t number)
{
	LOCK_SCOPE(&t->lock);
	struct node *twin = find_locked(t, SPACE_TWIN, n->number), *before = find_locked(t, SPACE_LIVE, number);

	if (!twin || twin->twin != n)
		return NULL;
	if (before)
		hide_locked(t, before); // n itself, or of a file that had the number before
	hash_remove_locked(t, twin);
	twin->space = SPACE_LIVE;
	if (!twin->shown)
		__atomic_store_n(&twin->shown, twin->number, __ATOMIC_RELAXED);
	twin->number = number;
	hash_insert_locked(t, twin);
	twin->refs++;
	return twin;
}

bool node_is_adopted(struct ckpt_fs *fs, const struct node *twin)
{
	LOCK_SCOPE(&fs->nodes->lock);

	return twin->space == SPACE_LIVE;
}

struct node *node_adopt_twin_locked(struct ckpt_fs *fs, struct node *n, uint64_t number, struct node *parent,
				    const char *name)
{
	struct node *twin = node_has_name(n, parent, name) ? identify_twin(fs->nodes, n, number) : NULL;

	if (!twin)
		return NULL;
	(void)name_add_locked(fs, twin, parent, name); // without memory it is looked up again
	name_drop_locked(fs, n, parent, name);
	return twin;
}

void node_end_twin(struct ckpt_fs *fs, struct node *twin)
{
	struct node *of;

	names_write_lock(fs);
	of = __atomic_exchange_n(&twin->twin, NULL, __ATOMIC_RELEASE);
	names_unlock(fs);
	node_unref(fs, of);
}

struct node *node_get_known(struct ckpt_fs *fs, uint64_t space, uint64_t number, mode_t type, const struct node *parent,
			    const char *name)
{
	LOCK_SCOPE(&fs->nodes->lock);
	struct node *n = find_locked(fs->nodes, space, number);

	if (!n || n->type != type || !node_has_name(n, parent, name))
		return NULL;
	n->lookups++;
	return n;
}

size_t node_count(struct ckpt_fs *fs)
{
	LOCK_SCOPE(&fs->nodes->lock);
	return fs->nodes->count;
}

struct node *node_find(struct ckpt_fs *fs, uint64_t space, uint64_t number)
{
	LOCK_SCOPE(&fs->nodes->lock);
	struct node *n = find_locked(fs->nodes, space, number);

	if (n)
		n->refs++;
	return n;
}

// By a lock and not by an exchange: of two first opens the later one, which changes nothing, would be a writer beside the other's
// reads to the thread sanitizer.
int node_use(struct node *n)
{
	static struct ckpt_lock making = CKPT_LOCK_INIT(CKPT_LOCK_LEAF);
	struct node_use *use;

	if (node_used(n))
		return 0;
	use = calloc(1, sizeof(*use));
	if (!use)
		return -ENOMEM;
	use->fd = use->nameless = -1;
	ckpt_lock_init(&use->lock, CKPT_LOCK_USE);
	LOCK_SCOPE(&making);
	if (node_used(n)) {
		ckpt_lock_done(&use->lock); // another came first
		free(use);
	} else {
		__atomic_store_n(&n->use, use, __ATOMIC_RELEASE);
	}
	return 0;
}

void node_ref(struct ckpt_fs *fs, struct node *n)
{
	LOCK_SCOPE(&fs->nodes->lock);
	n->refs++;
}

// Lets go of what one count of each kind held; the node and what only it referred to are freed, upwards.
static void let_go(struct ckpt_fs *fs, struct node *n, uint64_t lookups, int refs)
{
	struct node_table *t = fs->nodes;

	while (n) {
		struct node_name *names;
		struct node *twin;
		bool last;

		ckpt_lock_take(&t->lock);
		n->lookups -= MIN(lookups, n->lookups);
		n->refs -= refs;
		last = !n->lookups && n->refs <= 0 && n != t->root;
		if (last)
			hash_remove_locked(t, n);
		ckpt_lock_drop(&t->lock);
		if (!last)
			return;
		// All but the last parent by recursion: hard links are few, and the chain upwards is the loop.
		names = TAKE_PTR(n->names);
		twin = n->twin;
		node_free(n);
		n = twin; // which has no names
		while (names) {
			struct node_name *name = names;

			names = name->next;
			if (names)
				let_go(fs, name->parent, 0, 1);
			else
				n = name->parent;
			free(name);
		}
		lookups = 0;
		refs = 1;
	}
}

void node_unref(struct ckpt_fs *fs, struct node *n)
{
	if (n)
		let_go(fs, n, 0, 1);
}

void node_forget(struct ckpt_fs *fs, struct node *n, uint64_t lookups)
{
	let_go(fs, n, lookups, 0);
}

// --- Names ------------------------------------------------------------------------------------------------------------

void names_read_lock(struct ckpt_fs *fs)
{
	ckpt_rwlock_read(&fs->nodes->names_lock);
}

void names_write_lock(struct ckpt_fs *fs)
{
	ckpt_rwlock_write(&fs->nodes->names_lock);
}

void names_unlock(struct ckpt_fs *fs)
{
	ckpt_rwlock_drop(&fs->nodes->names_lock);
}

int name_add_locked(struct ckpt_fs *fs, struct node *n, struct node *parent, const char *name)
{
	struct node_name *x;

	if (node_has_name(n, parent, name))
		return 0;
	x = malloc(sizeof(*x) + strlen(name) + 1);
	if (!x)
		return -ENOMEM;
	strcpy(x->text, name);
	x->parent = parent;
	node_ref(fs, parent);
	x->next = n->names;
	n->names = x;
	__atomic_store_n(&n->beside, __atomic_load_n(&parent->beside, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	return 0;
}

void name_drop_locked(struct ckpt_fs *fs, struct node *n, const struct node *parent, const char *name)
{
	struct node_name **slot = &n->names;

	while (*slot) {
		struct node_name *x = *slot;

		if (x->parent == parent && !strcmp(x->text, name)) {
			*slot = x->next;
			node_unref(fs, x->parent);
			free(x);
			return;
		}
		slot = &x->next;
	}
}

int node_list_unbacked(struct ckpt_fs *fs, struct node ***ret_nodes, size_t *ret_count)
{
	struct node_table *t = fs->nodes;
	LOCK_SCOPE(&t->lock);
	struct node **nodes = NULL;
	size_t count = 0, cap = 0;
	int rc = 0;

	for (size_t i = 0; i < t->bucket_count && !rc; i++)
		for (struct node *n = t->buckets[i]; n && !rc; n = n->hash_next) {
			struct node_use *use = node_used(n);

			if (n->kind != NODE_FILES || !S_ISREG(n->type) || !use ||
			    !__atomic_load_n(&use->opens, __ATOMIC_RELAXED) ||
			    __atomic_load_n(&use->fd, __ATOMIC_RELAXED) >= 0)
				continue;
			rc = ckpt_grow((void **)&nodes, &cap, count + 1, sizeof(struct node *));
			if (!rc) {
				n->refs++;
				nodes[count++] = n;
			}
		}
	*ret_nodes = nodes; // what there is, when memory ends
	*ret_count = count;
	return rc;
}

static bool is_below(const struct node *n, const struct node *dir)
{
	while (n && n != dir)
		n = n->names ? n->names->parent : NULL;
	return n;
}

bool node_any_written_below(struct ckpt_fs *fs, const struct node *dir, node_name_fn *pass_over, void *arg)
{
	struct node_table *t = fs->nodes;
	bool any = false;

	names_read_lock(fs);
	ckpt_lock_take(&t->lock);
	for (size_t i = 0; i < t->bucket_count && !any; i++)
		for (struct node *n = t->buckets[i]; n && !any; n = n->hash_next) {
			struct node_use *use = node_used(n);

			any = use && n->kind == NODE_FILES && __atomic_load_n(&use->write_opens, __ATOMIC_RELAXED) &&
			      is_below(n, dir) && !(pass_over && n->names && pass_over(arg, n->names));
		}
	ckpt_lock_drop(&t->lock);
	names_unlock(fs);
	return any;
}

void node_keep_locked(struct node *n, int fd)
{
	if (fd < 0)
		return;
	if (n->names || node_use(n) || n->use->nameless >= 0)
		ckpt_sys.close(fd);
	else
		n->use->nameless = fd;
}

static int open_nameless(struct node *n, int flags)
{
	struct node_use *use = node_used(n);
	char path[32];
	int fd;

	if (!use || use->nameless < 0)
		return -ESTALE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", use->nameless);
	fd = open(path, (flags & ~O_NOFOLLOW) | O_CLOEXEC); // it is no symlink itself
	return fd < 0 ? -errno : fd;
}

// Those of a step that was loaded: from now on they are found as all live ones are, under the same numbers. One that another
// has taken loses its names instead, and is looked up again.
static void live_on_locked(struct ckpt_fs *fs, uint64_t space)
{
	struct node_table *t = fs->nodes;
	struct node *moved = NULL, *n;
	LOCK_SCOPE(&t->lock);

	for (size_t i = 0; i < t->bucket_count; i++)
		for (struct node **slot = &t->buckets[i]; (n = *slot);) {
			if (n->space != space || find_locked(t, SPACE_LIVE, n->number)) {
				slot = &n->hash_next;
				continue;
			}
			*slot = n->hash_next;
			t->count--;
			n->hash_next = moved;
			moved = n;
		}
	while ((n = moved)) {
		moved = n->hash_next;
		n->space = SPACE_LIVE;
		hash_insert_locked(t, n);
	}
}

static void renew_locked(struct ckpt_fs *fs, uint64_t space, uint64_t number, const struct ckpt_step *from,
			 struct ckpt_step *to)
{
	struct node *n = node_find(fs, space, number);

	if (n && n->step == from)
		ckpt_step_unref(__atomic_exchange_n(&n->step, ckpt_step_ref(to), __ATOMIC_RELAXED));
	node_unref(fs, n);
}

static void make_ours_locked(struct ckpt_fs *fs, struct ckpt_step *step)
{
	if (__atomic_load_n(&ckpt_staging_of(step)->ours, __ATOMIC_RELAXED))
		return;
	live_on_locked(fs, step->incarnation);
	__atomic_store_n(&ckpt_staging_of(step)->ours, true, __ATOMIC_RELAXED); // from now on
}

void node_renew(struct ckpt_fs *fs, struct ckpt_step *from, struct ckpt_step *to)
{
	struct ckpt_step *committed = to->base == from ? from : to;

	names_write_lock(fs);
	make_ours_locked(fs, from);
	make_ours_locked(fs, to);
	renew_locked(fs, SPACE_LIVE, committed->born.dir_ino, from, to);
	renew_locked(fs, committed->incarnation, committed->born.dir_ino, from, to);
	names_unlock(fs);
}

// --- Places -----------------------------------------------------------------------------------------------------------

int place_of_locked(struct ckpt_fs *fs, struct node *n, struct place *ret_place)
{
	char *at = ret_place->buf + sizeof(ret_place->buf) - 1;

	*at = '\0';
	ret_place->step = NULL;
	n = n->twin && !n->names ? n->twin : n;
	while (n != fs->nodes->root && !n->step) {
		size_t len;

		if (n->kind != NODE_FILES)
			return -EPERM;
		if (!n->names)
			return -ESTALE;
		len = strlen(n->names->text);
		if ((size_t)(at - ret_place->buf) < len + 1 + CKPT_NAME_MAX) // room for one more name is kept
			return -ENAMETOOLONG;
		if (*at)
			*--at = '/';
		at -= len;
		memcpy(at, n->names->text, len);
		n = n->names->parent;
	}
	ret_place->path = at;
	if (n->step)
		ret_place->step = ckpt_step_ref(n->step);
	return 0;
}

int place_of(struct ckpt_fs *fs, struct node *n, struct place *ret_place)
{
	int rc;

	names_read_lock(fs);
	rc = place_of_locked(fs, n, ret_place);
	names_unlock(fs);
	return rc;
}

bool node_has_place(struct ckpt_fs *fs, struct node *n)
{
	struct place p;
	int rc = place_of(fs, n, &p);

	place_done(&p);
	return rc != -ESTALE;
}

void place_done(struct place *p)
{
	ckpt_step_unref(p->step);
	p->step = NULL;
}

struct ckpt_step *node_step_locked(struct ckpt_fs *fs, struct node *n)
{
	if (n && n->twin && !n->names)
		n = n->twin;
	if (n && n->draft)
		n = NULL; // in the plain tree, though a left-over one has a name in its session, too
	while (n && n != fs->nodes->root && !n->step)
		n = n->names ? n->names->parent : NULL;
	return n ? n->step : NULL;
}

struct ckpt_step *node_step(struct ckpt_fs *fs, struct node *n)
{
	struct ckpt_step *step;

	names_read_lock(fs);
	step = node_step_locked(fs, n);
	if (step)
		ckpt_step_ref(step);
	names_unlock(fs);
	return step;
}

// In a committed step a file that was added, written again or renamed does not stand at its path. False: it does.
static bool raw_of(const struct place *p, char *ret_raw, size_t cap)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e = {0};
	uint32_t index;

	if (!*p->path || !ckpt_step_has_manifest(ckpt_step_state(p->step)))
		return false;
	if (ckpt_amending_raw_of(p->step, p->path, ret_raw, cap))
		return true;
	if (ckpt_step_manifest(p->step, &m))
		return false;
	if (!ckpt_manifest_lookup(m, p->path, &index))
		ckpt_manifest_entry(m, index, &e);
	if (e.raw_path)
		snprintf(ret_raw, cap, "%s", e.raw_path);
	ckpt_manifest_unref(m);
	return e.raw_path;
}

int place_open(struct ckpt_fs *fs, const struct place *p, int flags)
{
	char raw[PATH_MAX], inside[PATH_MAX + 40];
	const char *path = p->path;

	if (!p->step)
		return ckpt_sys.open(fs->store->tree_fd, *path ? path : ".", flags, 0);
	if (raw_of(p, raw, sizeof(raw)))
		path = raw;
	snprintf(inside, sizeof(inside), "%s%s%s", p->step->session, *path ? "/" : "", path);
	return ckpt_sys.open(fs->store->sessions_fd, inside, flags, 0);
}

// Names do not change while the path is in use, so it leads to this node's file and to no other.
int node_open(struct ckpt_fs *fs, struct node *n, int flags)
{
	struct place p;
	int fd;

	names_read_lock(fs);
	fd = n->draft ? 0 : place_of_locked(fs, n, &p);
	if (n->draft) {
		fd = draft_open_file(n->draft, flags);
	} else if (!fd) {
		fd = place_open(fs, &p, flags);
		place_done(&p);
	} else if (fd == -ESTALE) {
		fd = open_nameless(n, flags);
	}
	names_unlock(fs);
	return fd;
}

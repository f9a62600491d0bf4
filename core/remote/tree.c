#include "core/remote/tree.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/tree_plan.h"
#include "core/state/journal.h"
#include "core/state/plain.h"
#include "core/step/store_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define LOOK_NS INT64_C(1000000000) // between two looks, at least; and so many times as long as the last one took
#define LOOK_SHARE 20
#define FORCED_NS INT64_C(200000000)

struct ckpt_tree {
	struct ckpt_store *store;
	char node[CKPT_UUID_LEN + 1];
	struct ckpt_failures *failures;
	struct ckpt_tree_queue queue;
	bool touched; // atomic
	bool looks;   // a look at the disk is under way; atomic

	// Of one thread.
	struct ckpt_tree_seen_table seen;
	bool again, soon;
	int64_t look_ns, forced_ns; // the next look is not before, monotonic; nor one that a step waits for
	int told;                   // the error that was told last
	int64_t started_ns;
	struct ckpt_tree_pace pace;
};

int ckpt_tree_new(struct ckpt_store *s, const char *node, struct ckpt_failures *failures, struct ckpt_tree **ret_tree)
{
	struct ckpt_tree *t = ckpt_calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	t->store = s;
	t->failures = failures;
	t->started_ns = ckpt_sys.mono_ns();
	snprintf(t->node, sizeof(t->node), "%s", node);
	ckpt_tree_queue_init(&t->queue);
	rc = ckpt_tree_seen_load(&t->seen, s->dirfd);
	if (rc)
		ckpt_tree_free(t);
	else
		*ret_tree = t;
	return rc;
}

void ckpt_tree_free(struct ckpt_tree *t)
{
	if (!t)
		return;
	ckpt_tree_queue_done(&t->queue);
	ckpt_tree_seen_done(&t->seen);
	free(t);
}

void ckpt_tree_pace(struct ckpt_tree *t, const struct ckpt_tree_pace *pace)
{
	t->pace = *pace;
}

// --- Of requests --------------------------------------------------------------------------------------------------------

void ckpt_tree_touch(struct ckpt_tree *t)
{
	if (t)
		__atomic_store_n(&t->touched, true, __ATOMIC_RELAXED);
}

struct number_now {
	const char *node;
	uint64_t number;
};

static int take_number(void *arg, const struct ckpt_state *state)
{
	struct number_now *n = arg;

	n->number = ckpt_state_number(state, n->node);
	return 0;
}

static bool is_top(const struct ckpt_store *s, int dirfd)
{
	struct stat top, dir;

	return !fstat(s->tree_fd, &top) && !fstat(dirfd, &dir) && top.st_ino == dir.st_ino && top.st_dev == dir.st_dev;
}

// Of a large file, which is read when its turn comes. NULL: it is not known, and the next look finds the file.
static char *path_of(const struct ckpt_store *s, int dirfd, const char *name)
{
	char top[PATH_MAX], dir[PATH_MAX], link[64], *path;
	size_t len;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", s->tree_fd);
	n = readlink(link, top, sizeof(top) - 1);
	len = (size_t)MAX(n, 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
	n = readlink(link, dir, sizeof(dir) - 1);
	if (!len || n < (ssize_t)len || memcmp(dir, top, len) || (n > (ssize_t)len && dir[len] != '/'))
		return NULL;
	dir[n] = '\0';
	return asprintf(&path, "%s%s%s", n > (ssize_t)len ? dir + len + 1 : "", n > (ssize_t)len ? "/" : "", name) < 0
		       ? NULL
		       : path;
}

// A folder without an id gets one by the next look, which finds the file, too.
void ckpt_tree_take_name(struct ckpt_tree *t, int dirfd, const char *name)
{
	struct number_now n = {.node = t ? t->node : NULL};
	struct ckpt_tree_item it;
	char id[CKPT_FOLDER_ID_LEN + 1] = "";
	int rc;

	if (!t)
		return;
	ckpt_tree_touch(t);
	if (!is_top(t->store, dirfd) && ckpt_store_folder_id(t->store, dirfd, false, id))
		return;
	rc = ckpt_tree_take(dirfd, name, &it);
	if (rc == -ENOENT)
		ckpt_tree_queue_drop(&t->queue, CKPT_ACT_FILE, id, name);
	it.large = rc == 1 && it.file.size > CKPT_PLAIN_INLINE_MAX;
	if (rc && !it.large)
		return;
	it.path = path_of(t->store, dirfd, name);
	if (!it.path) {
		free(it.content);
		return;
	}
	memcpy(it.folder_id, id, sizeof(id));
	(void)ckpt_journal_look(t->store->journal, take_number, &n);
	it.number = n.number;
	(void)ckpt_tree_queue_add(&t->queue, &it); // without memory the next look takes it
}

size_t ckpt_tree_waits(struct ckpt_tree *t)
{
	bool touched, looks;

	if (!t)
		return 0;
	// In this order: a look begins before it takes the touch, and ends when all that it has found is in the queue, or it has touched again.
	touched = __atomic_load_n(&t->touched, __ATOMIC_ACQUIRE);
	looks = __atomic_load_n(&t->looks, __ATOMIC_ACQUIRE);
	touched = __atomic_load_n(&t->touched, __ATOMIC_ACQUIRE) || touched;
	return ckpt_tree_queue_count(&t->queue) + (touched || looks);
}

void ckpt_tree_each(struct ckpt_tree *t, ckpt_tree_fn *fn, void *arg)
{
	if (t)
		ckpt_tree_queue_each(&t->queue, fn, arg);
}

struct lacking {
	struct ckpt_tree *tree;
	ckpt_tree_path_fn *fn;
	void *arg;
};

// A content that this node has put was here, and what became of it is this node's doing.
static bool is_lacking(const struct lacking *l, const struct ckpt_state *state, const struct ckpt_plain *e)
{
	const struct ckpt_tree_seen *seen;

	if (*e->id || !strcmp(ckpt_state_node(state, e->node), l->tree->node))
		return false;
	seen = ckpt_tree_seen_find(&l->tree->seen, e->folder_id, e->name);
	return !seen || seen->version != e->version;
}

static int tell_lacking(void *arg, const struct ckpt_state *state)
{
	const struct lacking *l = arg;
	size_t count;
	struct ckpt_plain *const *all = ckpt_state_plains(state, &count);

	for (size_t i = 0; i < count; i++) {
		CLEANUP_FREE char *path = NULL;

		if (!is_lacking(l, state, all[i]))
			continue;
		path = ckpt_state_plain_path(state, all[i]->folder_id, all[i]->name);
		if (!path)
			return -ENOMEM;
		l->fn(l->arg, path);
	}
	return 0;
}

int ckpt_tree_lacks(struct ckpt_tree *t, ckpt_tree_path_fn *fn, void *arg)
{
	struct lacking l = {.tree = t, .fn = fn, .arg = arg};

	return ckpt_journal_look(t->store->journal, tell_lacking, &l);
}

// --- Of the remote's thread ---------------------------------------------------------------------------------------------

static void tell(struct ckpt_tree *t, int rc)
{
	if (rc && rc != t->told)
		ckpt_errlog_add(t->store->errlog, "remote", rc, "it is tried again; make room if the disk is full",
				"plain files that other nodes have changed are not all as those left them");
	t->told = rc;
}

static void reconcile(struct ckpt_tree *t)
{
	int64_t began_ns = ckpt_sys.mono_ns();
	struct ckpt_tree_plan p = {.store = t->store,
				   .node = t->node,
				   .seen = &t->seen,
				   .queue = &t->queue,
				   .again = &t->again,
				   .soon = &t->soon,
				   .pace = t->pace.go_on ? &t->pace : NULL,
				   .started_ns = t->started_ns};
	int rc, saved;

	__atomic_store_n(&t->looks, true, __ATOMIC_RELAXED);
	__atomic_store_n(&t->touched, false, __ATOMIC_RELEASE);
	t->again = t->soon = false;
	rc = ckpt_tree_reconcile(&p);
	saved = ckpt_tree_seen_save(&t->seen, t->store->dirfd);
	rc = rc ? rc : saved;
	t->again |= rc;
	if (t->soon)
		ckpt_tree_touch(t);
	__atomic_store_n(&t->looks, false, __ATOMIC_RELEASE);
	tell(t, rc);
	t->look_ns = ckpt_sys.mono_ns() + MAX(LOOK_NS, LOOK_SHARE * (ckpt_sys.mono_ns() - began_ns));
}

static struct ckpt_tree_sending sending(struct ckpt_tree *t, struct ckpt_log *log, uint64_t before)
{
	return (struct ckpt_tree_sending){.store = t->store,
					  .log = log,
					  .node = t->node,
					  .seen = &t->seen,
					  .before = before,
					  .failures = t->failures,
					  .pace = t->pace.go_on ? &t->pace : NULL,
					  .conflict = &t->touched};
}

void ckpt_tree_carry_out(struct ckpt_tree *t)
{
	struct ckpt_tree_sending s = sending(t, NULL, 0);

	ckpt_tree_queue_settle(&t->queue, &s);
	reconcile(t);
}

bool ckpt_tree_holds_deletions(struct ckpt_tree *t)
{
	return ckpt_tree_queue_holds_deletions(&t->queue);
}

static bool is_due(const struct ckpt_tree *t)
{
	return (t->again || __atomic_load_n(&t->touched, __ATOMIC_RELAXED)) && ckpt_sys.mono_ns() >= t->look_ns;
}

int ckpt_tree_push(struct ckpt_tree *t, struct ckpt_log *log, uint64_t before, bool now)
{
	struct ckpt_tree_sending s = sending(t, log, before);

	ckpt_tree_queue_settle(&t->queue, &s);
	if ((now && ckpt_sys.mono_ns() >= t->forced_ns) || is_due(t)) {
		reconcile(t);
		t->forced_ns = ckpt_sys.mono_ns() + FORCED_NS;
	}
	return ckpt_tree_queue_send(&t->queue, &s);
}

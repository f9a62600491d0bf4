#include "core/remote/tree_queue.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/remote/near.h"
#include "core/state/condemned.h"
#include "core/state/journal.h"
#include "core/state/plain.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define YOUNG_NS INT64_C(1000000000)
#define KEPT_MAX 256u                      // older contents of a file give way where more changes wait
#define VOID_NS (INT64_C(60) * 1000000000) // an act that was void is not sent again for so long
#define SENT_MAX 256u                      // of one entry
#define SENT_BYTES_MAX (192u << 10)        // the same, but for the first
#define AGAIN_NS (INT64_C(5) * 1000000000) // between two contents of one file, while no step waits behind it
#define AGAIN_LARGE_NS (INT64_C(60) * 1000000000)

void ckpt_tree_queue_init(struct ckpt_tree_queue *q)
{
	ckpt_lock_init(&q->lock, CKPT_LOCK_LEAF);
	q->first = NULL;
	q->last = &q->first;
	q->count = 0;
	q->held = 0;
	memset(q->tried, 0, sizeof(q->tried));
	q->tried_next = 0;
}

static void item_free(struct ckpt_tree_item *it)
{
	free(it->content);
	free(it->path);
	free(it);
}

void ckpt_tree_queue_done(struct ckpt_tree_queue *q)
{
	for (struct ckpt_tree_item *it; (it = q->first);) {
		q->first = it->next;
		item_free(it);
	}
	ckpt_lock_done(&q->lock);
}

// --- Adding -------------------------------------------------------------------------------------------------------------

static bool is_of(const struct ckpt_tree_item *it, const char *folder_id, const char *name)
{
	return !strcmp(it->folder_id, folder_id) && !strcmp(it->name, name);
}

static bool is_folder(const struct ckpt_tree_item *it)
{
	return it->kind == CKPT_ACT_MKDIR || it->kind == CKPT_ACT_MOVE;
}

static bool is_dead(const struct ckpt_tree_item *it)
{
	return __atomic_load_n(&it->dead, __ATOMIC_RELAXED);
}

// It counts no more. The one thread that looks at items without the lock frees it.
static void kill(struct ckpt_tree_queue *q, struct ckpt_tree_item *it)
{
	if (!__atomic_exchange_n(&it->dead, true, __ATOMIC_RELAXED))
		__atomic_sub_fetch(&q->count, 1, __ATOMIC_RELAXED);
}

static void insert_at(struct ckpt_tree_queue *q, struct ckpt_tree_item **at, struct ckpt_tree_item *it)
{
	it->next = *at;
	*at = it;
	if (!it->next)
		q->last = &it->next;
	__atomic_add_fetch(&q->count, 1, __ATOMIC_RELAXED);
}

// Behind other folders, whose ids it may need.
static struct ckpt_tree_item **place_of_folder(struct ckpt_tree_queue *q)
{
	struct ckpt_tree_item **at = &q->first;

	while (*at && is_folder(*at))
		at = &(*at)->next;
	return at;
}

int ckpt_tree_queue_add(struct ckpt_tree_queue *q, const struct ckpt_tree_item *item)
{
	struct ckpt_tree_item *it = malloc(sizeof(*it));

	if (!it) {
		free(item->content);
		free(item->path);
		return -ENOMEM;
	}
	*it = *item;
	if (it->content)
		ckpt_sha256(it->content, it->content_len, it->sha256);
	LOCK_SCOPE(&q->lock);
	for (struct ckpt_tree_item *old = q->first; old; old = old->next)
		if (!is_folder(it) && !is_folder(old) && !is_dead(old) && is_of(old, it->folder_id, it->name) &&
		    (old->number == it->number || __atomic_load_n(&q->count, __ATOMIC_RELAXED) > KEPT_MAX)) {
			if (old->number != it->number)
				q->held = MAX(q->held, it->number);
			kill(q, old);
		}
	insert_at(q, is_folder(it) ? place_of_folder(q) : q->last, it);
	return 0;
}

bool ckpt_tree_queue_has(struct ckpt_tree_queue *q, enum ckpt_act_kind kind, const char *folder_id, const char *name,
			 const struct ckpt_tree_file *file)
{
	LOCK_SCOPE(&q->lock);
	for (const struct ckpt_tree_item *it = q->first; it; it = it->next)
		if (!is_dead(it) && it->kind == kind && is_of(it, folder_id, name) &&
		    (!file || !memcmp(&it->file, file, sizeof(*file))))
			return true;
	return false;
}

// Under the lock: a newer content is there when the older one goes.
size_t ckpt_tree_queue_count(struct ckpt_tree_queue *q)
{
	LOCK_SCOPE(&q->lock);

	return __atomic_load_n(&q->count, __ATOMIC_RELAXED);
}

void ckpt_tree_queue_each(struct ckpt_tree_queue *q, void (*fn)(void *arg, const struct ckpt_tree_item *item),
			  void *arg)
{
	LOCK_SCOPE(&q->lock);
	for (const struct ckpt_tree_item *it = q->first; it; it = it->next)
		if (!is_dead(it))
			fn(arg, it);
}

void ckpt_tree_queue_drop(struct ckpt_tree_queue *q, enum ckpt_act_kind kind, const char *folder_id, const char *name)
{
	LOCK_SCOPE(&q->lock);
	for (struct ckpt_tree_item *it = q->first; it; it = it->next)
		if (it->kind == kind && is_of(it, folder_id, name))
			kill(q, it);
}

// Those that wait, in order, and dead ones that are in flight; the array is the caller's. They stay until the next call.
static int list(struct ckpt_tree_queue *q, struct ckpt_tree_item ***ret_items, size_t *ret_count)
{
	LOCK_SCOPE(&q->lock);
	size_t count = 0;

	for (struct ckpt_tree_item **at = &q->first; *at;)
		if (is_dead(*at) && !(*at)->in_flight) {
			struct ckpt_tree_item *it = *at;

			*at = it->next;
			item_free(it);
		} else {
			at = &(*at)->next;
			count++;
		}
	q->last = &q->first;
	*ret_count = 0;
	*ret_items = ckpt_calloc(count + 1, sizeof(struct ckpt_tree_item *));
	for (struct ckpt_tree_item *it = q->first; it; it = it->next) {
		q->last = &it->next;
		if (*ret_items)
			(*ret_items)[(*ret_count)++] = it;
	}
	return *ret_items ? 0 : -ENOMEM;
}

// --- Comparing ----------------------------------------------------------------------------------------------------------

enum verdict {
	SEND,
	LATER,
	SAID,     // the log says it already
	CONFLICT, // it is of what is not there any more
};

// The word of the remote's log on one item.
struct said {
	const struct ckpt_tree_item *it;
	const char *node;
	const struct ckpt_tree_seen *seen;
	enum verdict verdict;
	uint64_t version;
	bool lacks_folder;
};

static bool is_said(const struct ckpt_plain *there, const struct ckpt_tree_item *it)
{
	return there && it->content && !*there->id && there->link == it->link &&
	       there->size == (it->large ? it->file.size : it->content_len) && (it->link || there->mode == it->mode) &&
	       there->uid == it->uid && there->gid == it->gid && !memcmp(there->sha256, it->sha256, sizeof(it->sha256));
}

static void judge_file(struct said *s, const struct ckpt_state *state, const struct ckpt_plain *there)
{
	bool mine = there && !strcmp(ckpt_state_node(state, there->node), s->node);

	if (is_said(there, s->it))
		s->verdict = SAID;
	else if (there && (*there->id || (!mine && (!s->seen || s->seen->version != there->version))))
		s->verdict = CONFLICT;
	s->lacks_folder = *s->it->folder_id && !ckpt_state_plain_folder(state, s->it->folder_id);
}

// A folder goes when all in it has gone.
static void judge_remove(struct said *s, const struct ckpt_state *state, const struct ckpt_plain *there)
{
	if (!there)
		s->verdict = SAID;
	else if (there->version != s->it->before)
		s->verdict = CONFLICT;
	else if (*there->id && !ckpt_state_plain_is_empty(state, there))
		s->verdict = LATER;
}

static bool is_below_itself(const struct ckpt_state *state, const struct ckpt_tree_item *it)
{
	const struct ckpt_plain *above = ckpt_state_plain_folder(state, it->folder_id);

	while (above && strcmp(above->id, it->id))
		above = ckpt_state_plain_folder(state, above->folder_id);
	return above;
}

static void judge_folder(struct said *s, const struct ckpt_state *state)
{
	const struct ckpt_plain *there = ckpt_state_plain_folder(state, s->it->id);
	const struct ckpt_plain *in_its_place = ckpt_state_plain(state, s->it->folder_id, s->it->name);

	s->version = there ? there->version : 0;
	s->lacks_folder = *s->it->folder_id && !ckpt_state_plain_folder(state, s->it->folder_id);
	if (there && there == in_its_place)
		s->verdict = SAID;
	else if (is_below_itself(state, s->it))
		s->verdict = CONFLICT;
	else if (in_its_place || (s->it->kind == CKPT_ACT_MKDIR) == !!there ||
		 (there && there->version != s->it->before))
		s->verdict = CONFLICT;
}

static int judge_by(void *arg, const struct ckpt_state *state)
{
	struct said *s = arg;
	const struct ckpt_plain *there = ckpt_state_plain(state, s->it->folder_id, s->it->name);

	s->version = there ? there->version : 0;
	if (s->it->kind == CKPT_ACT_FILE)
		judge_file(s, state, there);
	else if (s->it->kind == CKPT_ACT_REMOVE)
		judge_remove(s, state, there);
	else
		judge_folder(s, state);
	return 0;
}

static bool is_young(const struct ckpt_tree_item *it)
{
	int64_t age_ns = ckpt_sys.now_ns() - it->file.ctime_ns;

	return age_ns >= 0 && age_ns < YOUNG_NS;
}

static struct said judge(const struct ckpt_tree_sending *to, const struct ckpt_tree_item *it)
{
	struct said s = {.it = it,
			 .node = to->node,
			 .seen = ckpt_tree_seen_find(to->seen, it->folder_id, it->name),
			 .verdict = SEND};

	(void)ckpt_journal_look(to->store->journal, judge_by, &s);
	if (s.verdict == SEND && it->kind == CKPT_ACT_FILE && to->before == UINT64_MAX && s.seen && s.seen->pushed_ns &&
	    ckpt_sys.mono_ns() - s.seen->pushed_ns < (it->large ? AGAIN_LARGE_NS : AGAIN_NS))
		s.verdict = LATER;
	if (s.verdict == SEND && it->kind == CKPT_ACT_FILE && to->before == UINT64_MAX && !s.seen && is_young(it))
		s.verdict = LATER; // it may be about to be renamed
	if (s.verdict == SEND && it->sent_ns && ckpt_sys.mono_ns() - it->sent_ns < VOID_NS)
		s.verdict = LATER; // it is in the log, and was void
	return s;
}

// A folder may have become a step, or be gone, since. A look at the disk finds what has only another name now.
static bool is_gone(const struct ckpt_tree_sending *to, const struct ckpt_tree_item *it)
{
	struct stat st;

	if (it->kind == CKPT_ACT_REMOVE || !it->path)
		return false;
	if (fstatat(to->store->tree_fd, it->path, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT || errno == ENOTDIR;
	return is_folder(it) != S_ISDIR(st.st_mode);
}

// A file that others have stays here, too: after a power cut its loss would look as if a user had changed it.
static bool is_on_disk(const struct ckpt_tree_sending *to, const struct ckpt_tree_item *it)
{
	CLEANUP_FREE char *folder = strdup(it->path ? it->path : "");
	CLEANUP_FD int fd = -1;
	CLEANUP_FD int dirfd = -1;
	char *slash = folder ? strrchr(folder, '/') : NULL;

	if (it->kind != CKPT_ACT_FILE)
		return true;
	if (!folder || !it->path)
		return false;
	if (slash)
		*slash = '\0';
	dirfd = ckpt_sys.open(to->store->tree_fd, slash ? folder : ".", O_RDONLY | O_DIRECTORY, 0);
	fd = it->link ? -1 : ckpt_sys.open(to->store->tree_fd, it->path, O_RDONLY | O_NONBLOCK, 0);
	return (dirfd < 0 || !ckpt_sys.fsync(dirfd)) &&
	       (fd < 0 || !ckpt_sys.fsync(fd)); // what has gone was removed since
}

// Before an item goes: so that those who wait for all do not find that nothing waits.
static void look_again(const struct ckpt_tree_sending *to)
{
	__atomic_store_n(to->conflict, true, __ATOMIC_RELAXED);
}

// Without memory the next look at the disk finds what agrees.
static void note_said(const struct ckpt_tree_sending *to, const struct ckpt_tree_item *it, uint64_t version)
{
	struct ckpt_tree_seen *seen;

	if (it->kind == CKPT_ACT_REMOVE) {
		ckpt_tree_seen_drop(to->seen, it->folder_id, it->name);
		return;
	}
	if (!is_on_disk(to, it)) {
		look_again(to);
		return;
	}
	if (it->kind == CKPT_ACT_MOVE && (seen = ckpt_tree_seen_folder(to->seen, it->id)))
		ckpt_tree_seen_drop(to->seen, seen->folder_id, seen->name);
	(void)ckpt_tree_seen_set(to->seen, it->folder_id, it->name, is_folder(it) ? it->id : NULL, version, &it->file);
	seen = ckpt_tree_seen_find(to->seen, it->folder_id, it->name);
	if (seen)
		seen->pushed_ns = ckpt_sys.mono_ns();
}

// A step was saved before this content, and deleted after it, without ever being pushed. The content may name it.
static int was_for_nothing(void *arg, const struct ckpt_state *state)
{
	const struct ckpt_tree_item *it = arg;
	size_t count;
	struct ckpt_state_step *const *changed = ckpt_state_changed(state, &count);

	for (size_t i = 0; i < count; i++)
		if (!changed[i]->shared && changed[i]->deleted_by && changed[i]->since <= it->number &&
		    changed[i]->latest > it->number)
			return 1;
	return 0;
}

static int look_for_hold(void *number, const struct ckpt_state *state)
{
	return ckpt_state_held_by(state, *(const uint64_t *)number) != NULL;
}

// Files that were written then may name a step that cannot be pushed, or was dropped.
static bool is_held(const struct ckpt_tree_sending *to, uint64_t number)
{
	return ckpt_failures_hold(to->failures, number) ||
	       ckpt_journal_look(to->store->journal, look_for_hold, &number);
}

// A content that names a step which may never come gives way to a later one. Until that is there, other nodes have a file that may name a
// step which was deleted meanwhile.
static bool gives_way(struct ckpt_tree_queue *q, const struct ckpt_tree_sending *to, struct ckpt_tree_item **items,
		      size_t count, size_t i)
{
	size_t later = i + 1;

	while (later < count &&
	       !(items[later]->kind == CKPT_ACT_FILE && is_of(items[later], items[i]->folder_id, items[i]->name)))
		later++;
	if (items[i]->kind != CKPT_ACT_FILE || later == count ||
	    (!is_held(to, items[i]->number) && !ckpt_journal_look(to->store->journal, was_for_nothing, items[i])))
		return false;
	if (is_held(to, items[later]->number))
		return true; // nobody knows how long that waits
	LOCK_SCOPE(&q->lock);
	q->held = MAX(q->held, items[later]->number);
	return true;
}

bool ckpt_tree_queue_try(struct ckpt_tree_queue *q, const char *folder_id, const char *name, uint64_t version)
{
	uint64_t path = ckpt_checksum(name, strlen(name), ckpt_checksum(folder_id, strlen(folder_id), version));
	int64_t now_ns = ckpt_sys.mono_ns();

	for (size_t i = 0; i < CKPT_TREE_TRIED; i++)
		if (q->tried[i].path == path && q->tried[i].at_ns && now_ns - q->tried[i].at_ns < AGAIN_LARGE_NS)
			return false;
	q->tried[q->tried_next].path = path;
	q->tried[q->tried_next].at_ns = now_ns;
	q->tried_next = (q->tried_next + 1) % CKPT_TREE_TRIED;
	return true;
}

bool ckpt_tree_queue_holds_deletions(struct ckpt_tree_queue *q)
{
	LOCK_SCOPE(&q->lock);
	for (const struct ckpt_tree_item *it = q->first; it; it = it->next)
		if (!is_dead(it) && it->kind == CKPT_ACT_FILE && it->number <= q->held)
			return true;
	return false;
}

// Folders come first.
static bool is_made(struct ckpt_tree_item *const *items, size_t count, const char *id)
{
	for (size_t i = 0; i < count && is_folder(items[i]); i++)
		if (items[i]->kind == CKPT_ACT_MKDIR && !is_dead(items[i]) && !strcmp(items[i]->id, id))
			return true;
	return false;
}

// Without its folder in the log, and without one that is to come, an item would wait for ever: the folder went before it was sent.
static void settle(struct ckpt_tree_queue *q, const struct ckpt_tree_sending *to, struct ckpt_tree_item **items,
		   size_t count, struct ckpt_tree_item *it)
{
	struct said s = judge(to, it);

	if (s.verdict != SAID && s.lacks_folder && !is_made(items, count, it->folder_id))
		s.verdict = CONFLICT;
	if (s.verdict == SAID)
		note_said(to, it, s.version);
	else if (s.verdict == CONFLICT)
		look_again(to);
	if (s.verdict == SAID || s.verdict == CONFLICT)
		kill(q, it);
}

// It was dropped in flight. If the log has it, it is seen: so the look finds its removal, and does not take it for another node's.
static void settle_dead(const struct ckpt_tree_sending *to, const struct ckpt_tree_item *it)
{
	struct said s = judge(to, it);

	if (s.verdict == SAID)
		note_said(to, it, s.version);
	look_again(to);
}

void ckpt_tree_queue_settle(struct ckpt_tree_queue *q, const struct ckpt_tree_sending *to)
{
	CLEANUP_FREE struct ckpt_tree_item **items = NULL;
	size_t count;

	if (list(q, &items, &count))
		return; // without memory it is done later
	for (size_t i = 0; i < count; i++) {
		if (is_dead(items[i]))
			settle_dead(to, items[i]);
		else if (gives_way(q, to, items, count, i))
			kill(q, items[i]);
		else
			settle(q, to, items, count, items[i]);
		items[i]->in_flight = false; // the log was read since it was sent
	}
}

// --- Sending ------------------------------------------------------------------------------------------------------------

struct batch {
	struct ckpt_operation ops[SENT_MAX];
	void *bodies[SENT_MAX];
	struct ckpt_tree_item *items[SENT_MAX];
	uint32_t count;
	size_t bytes;
};

static void batch_done(struct batch **b)
{
	for (uint32_t i = 0; *b && i < (*b)->count; i++)
		free((*b)->bodies[i]);
	free(*b);
}

// One entry has one content of a path, and says nothing of what it has just said.
static bool is_in(const struct batch *b, const struct ckpt_tree_item *it)
{
	for (uint32_t i = 0; i < b->count; i++)
		if (is_of(b->items[i], it->folder_id, it->name))
			return true;
	return false;
}

static bool makes_folder(const struct batch *b, const char *id)
{
	for (uint32_t i = 0; i < b->count; i++)
		if (b->items[i]->kind == CKPT_ACT_MKDIR && !strcmp(b->items[i]->id, id))
			return true;
	return false;
}

static int encode(struct batch *b, const struct ckpt_tree_sending *to, struct ckpt_tree_item *it, uint64_t version)
{
	struct ckpt_operation *op = &b->ops[b->count];
	struct ckpt_act a = {.kind = it->kind,
			     .mode = it->mode,
			     .uid = it->uid,
			     .gid = it->gid,
			     .link = it->link,
			     .large = it->large,
			     .before = it->kind == CKPT_ACT_MKDIR ? 0 : version,
			     .content = it->content,
			     .content_len = it->content_len};
	size_t len;
	int rc;

	if (it->kind == CKPT_ACT_FILE)
		a.time_ns = it->file.mtime_ns;
	memcpy(a.folder_id, it->folder_id, sizeof(a.folder_id));
	memcpy(a.name, it->name, sizeof(a.name));
	memcpy(a.id, it->id, sizeof(a.id));
	rc = ckpt_act_encode(&a, &b->bodies[b->count], &len);
	if (rc)
		return rc;
	*op = (struct ckpt_operation){.kind = (uint16_t)it->kind,
				      .required = true,
				      .body = b->bodies[b->count],
				      .len = len,
				      .actor = ckpt_actor_get()};
	memcpy(op->node, to->node, CKPT_UUID_LEN + 1);
	b->items[b->count++] = it;
	b->bytes += ckpt_log_entry_bytes(op);
	return ckpt_sys.random(op->nonce, sizeof(op->nonce));
}

struct was {
	const struct ckpt_tree_item *it;
	uint64_t version; // 0: it was no large one
	uint64_t at;      // the entry up to which the log was read
};

static int look_at_version(void *arg, const struct ckpt_state *state)
{
	struct was *w = arg;
	const struct ckpt_plain *there = ckpt_state_plain(state, w->it->folder_id, w->it->name);

	w->version = there && there->large ? there->version : 0;
	w->at = ckpt_state_remote(state).seq;
	return 0;
}

// The version before, whose chunks may be in it, too. -ENOENT.
static int read_large(const struct ckpt_tree_sending *to, struct ckpt_tree_item *it, struct ckpt_plain_large *ret)
{
	CLEANUP_FREE void *content = NULL;
	struct was w = {.it = it};
	size_t len;
	int rc;

	(void)ckpt_journal_look(to->store->journal, look_at_version, &w);
	it->put_at = w.at;
	rc = w.version ? ckpt_journal_plain(to->store->journal, it->folder_id, it->name, w.version, &content, &len)
		       : -ENOENT;
	if (!rc)
		ckpt_plain_large_decode(content, ret);
	return rc;
}

// Its bytes, before it is named. The item has its content then, which no other thread looks at. 1: it has changed since.
static int put_large(const struct ckpt_tree_sending *to, struct ckpt_tree_item *it)
{
	CLEANUP_FD int fd = ckpt_sys.open(to->store->tree_fd, it->path, O_RDONLY | O_NONBLOCK, 0);
	struct ckpt_plain_large large, before;
	uint8_t *content;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st))
		return 1;
	if (!ckpt_tree_file_is(&it->file, &st))
		return 1;
	content = malloc(CKPT_PLAIN_LARGE_BYTES);
	if (!content)
		return -ENOMEM;
	rc = ckpt_tree_large_put(ckpt_near_there(to->store->objects), fd, read_large(to, it, &before) ? NULL : &before,
				 to->pace, &large);
	if (rc) {
		free(content);
		return rc == -EAGAIN ? 1 : rc;
	}
	ckpt_plain_large_encode(&large, content);
	memcpy(it->sha256, large.sha256, sizeof(it->sha256));
	it->content_len = CKPT_PLAIN_LARGE_BYTES;
	it->content = content;
	return 0;
}

static int look_for_condemn(void *arg, const struct ckpt_state *state)
{
	const struct ckpt_tree_item *it = arg;

	return ckpt_state_last_condemn(state) > it->put_at;
}

// Its objects may be condemned by now: then it is put again under new names, at once. The version before is not, as long as it is that.
static bool forget_condemned(const struct ckpt_tree_sending *to, struct ckpt_tree_item *it)
{
	bool goes = it->large && it->content && ckpt_journal_look(to->store->journal, look_for_condemn, it);

	if (goes)
		free(TAKE_PTR(it->content));
	return goes;
}

// 1: no more of them fits.
static int add_to(struct ckpt_tree_queue *q, struct batch *b, const struct ckpt_tree_sending *to,
		  struct ckpt_tree_item *it)
{
	struct said s = judge(to, it);
	bool again;
	int rc = 0;

	if (is_dead(it) || s.verdict != SEND || is_in(b, it) || (s.lacks_folder && !makes_folder(b, it->folder_id)))
		return 0;
	if (b->count == SENT_MAX || (b->count && b->bytes + it->content_len + CKPT_NAME_MAX > SENT_BYTES_MAX))
		return 1;
	again = forget_condemned(to, it);
	if (is_gone(to, it))
		rc = 1;
	else if (it->large && !it->content)
		rc = again || ckpt_tree_queue_try(q, it->folder_id, it->name, 0) ? put_large(to, it) : 2;
	if (rc == 2)
		return 0;
	if (rc == 1) {
		look_again(to);
		kill(q, it);
		return 0;
	}
	return rc ? rc : encode(b, to, it, s.version);
}

static int collect(struct ckpt_tree_queue *q, const struct ckpt_tree_sending *to, struct batch *b)
{
	CLEANUP_FREE struct ckpt_tree_item **items = NULL;
	size_t count;
	int rc = list(q, &items, &count);

	for (size_t i = 0; i < count && !rc; i++)
		if (is_folder(items[i]) || (items[i]->number < to->before && !is_held(to, items[i]->number)))
			rc = add_to(q, b, to, items[i]);
	return MIN(rc, 0);
}

static void set_sent(struct batch *b, int64_t at_ns)
{
	for (uint32_t i = 0; i < b->count; i++) {
		b->items[i]->sent_ns = at_ns;
		b->items[i]->in_flight = true;
	}
}

// They may be sent again at once, those that the log has not got. Some may have left the queue while the log was read.
static void set_unsent(struct ckpt_tree_queue *q, int64_t at_ns)
{
	LOCK_SCOPE(&q->lock);
	for (struct ckpt_tree_item *it = q->first; it; it = it->next)
		if (it->sent_ns == at_ns)
			it->sent_ns = 0;
}

int ckpt_tree_queue_send(struct ckpt_tree_queue *q, const struct ckpt_tree_sending *to)
{
	CLEANUP(batch_done) struct batch *b = ckpt_calloc(1, sizeof(*b));
	int64_t now_ns = ckpt_sys.mono_ns();
	int rc = b ? 0 : -ENOMEM;

	if (!rc)
		rc = collect(q, to, b);
	if (rc || !b->count)
		return rc;
	set_sent(b, now_ns); // before it is appended: what is read then settles the queue, which frees items
	rc = ckpt_log_append(to->log, b->ops, b->count, false);
	if (rc)
		set_unsent(q, now_ns);
	return rc == -EEXIST || rc == -EAGAIN ? 1 : rc ? rc : 1;
}

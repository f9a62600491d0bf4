// A change is
//   PENDING   in no version yet
//   OVER      in a version, and kept for a second: whoever began to read by the manifest before goes on seeing it
// PENDING -> OVER by ckpt_attributes_put(), when the version is the step's; OVER -> PENDING by the next change of the same file. One
// thread for each step that has some (change.h) publishes them, and frees them when all are over.
//
// A change that is over applies to the one manifest that lacks it, so that a number which the disk gives to another file later finds none.
#include "core/step/attributes.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/limits.h"
#include "core/step/amending.h"
#include "core/step/store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define QUIET_NS INT64_C(1000000000)   // after the last change
#define LONGEST_NS INT64_C(5000000000) // after the first
#define READ_NS INT64_C(1000000000)    // so long whoever began to read the version before may still read it
#define NAP_NS INT64_C(20000000)
#define AGAIN_NS INT64_C(2000000000) // until the next try of a version that failed
#define RAW_TEXT_MAX 64              // bytes of CKPT_RAW_XATTR's value

struct xattr_change {
	struct xattr_change *next;
	bool removed;
	size_t len;
	char *value; // behind the name
	char name[];
};

struct change {
	struct change *next; // in its bucket
	uint64_t ino;
	struct ckpt_attributes_new now;
	struct xattr_change *xattrs;
	uint64_t seq; // of the last change of it
	bool over;
	uint8_t over_of[CKPT_SHA256_LEN]; // the manifest that lacks it
};

struct ckpt_attributes {
	struct change **buckets;
	size_t bucket_count, count, pending;
	uint64_t seq;
	int64_t first_ns, last_ns; // of those that are pending, monotonic
	int64_t over_ns;           // when the last became over
	int64_t again_ns;          // not before, as the last try failed
	bool watched, told;
};

// --- The table ----------------------------------------------------------------------------------------------------------

static struct change **slot_of(const struct ckpt_attributes *a, uint64_t ino)
{
	struct change **slot = &a->buckets[(ino * UINT64_C(0x9e3779b97f4a7c15) >> 32) % a->bucket_count];

	while (*slot && (*slot)->ino != ino)
		slot = &(*slot)->next;
	return slot;
}

// More buckets are a matter of speed alone.
static void grow(struct ckpt_attributes *a)
{
	size_t count = a->bucket_count, wider = count * 4;
	struct change **old = a->buckets, **buckets = a->count < count ? NULL : calloc(wider, sizeof(*buckets));

	if (!buckets)
		return;
	a->buckets = buckets;
	a->bucket_count = wider;
	for (size_t i = 0; i < count; i++)
		for (struct change *c; (c = old[i]);) {
			struct change **slot = slot_of(a, c->ino);

			old[i] = c->next;
			c->next = NULL;
			*slot = c;
		}
	free(old);
}

static struct ckpt_attributes *attributes_new(void)
{
	struct ckpt_attributes *a = calloc(1, sizeof(*a));

	if (a)
		a->buckets = calloc(a->bucket_count = 16, sizeof(struct change *));
	if (a && !a->buckets)
		free(TAKE_PTR(a));
	return a;
}

static void free_change(struct change *c)
{
	for (struct xattr_change *x; (x = c->xattrs);) {
		c->xattrs = x->next;
		free(x);
	}
	free(c);
}

void ckpt_attributes_forget_locked(struct ckpt_step *step)
{
	struct ckpt_attributes *a = ckpt_changed_of(step)->attributes;

	if (!a)
		return;
	for (size_t i = 0; i < a->bucket_count; i++)
		for (struct change *c; (c = a->buckets[i]);) {
			a->buckets[i] = c->next;
			free_change(c);
		}
	a->count = a->pending = 0;
	if (a->watched)
		return; // its thread frees the rest
	__atomic_store_n(&ckpt_changed_of(step)->attributes, NULL, __ATOMIC_RELEASE);
	free(a->buckets);
	free(a);
}

void ckpt_attributes_forget(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	ckpt_attributes_forget_locked(step);
}

static bool has_any(struct ckpt_step *step) // nearly never
{
	return __atomic_load_n(&ckpt_changed_of(step)->attributes, __ATOMIC_ACQUIRE);
}

bool ckpt_attributes_any(struct ckpt_step *step)
{
	if (!has_any(step))
		return false;
	LOCK_SCOPE(&step->lock);

	return ckpt_changed_of(step)->attributes && ckpt_changed_of(step)->attributes->pending;
}

// The step's own directory has its number in the summary.
static uint64_t key_of_locked(const struct ckpt_step *step, const struct ckpt_entry *e)
{
	return e->index ? e->ino : step->born.dir_ino;
}

static struct change *find_locked(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	struct change *c = ckpt_changed_of(step)->attributes
				   ? *slot_of(ckpt_changed_of(step)->attributes, key_of_locked(step, e))
				   : NULL;

	return c && c->over && memcmp(c->over_of, ckpt_manifest_sha256(m), CKPT_SHA256_LEN) ? NULL : c;
}

static int enter_locked(struct ckpt_step *step, uint64_t ino, struct change **ret_change)
{
	struct ckpt_attributes *a = ckpt_changed_of(step)->attributes;
	struct change **slot;

	if (!a && !(a = attributes_new()))
		return -ENOMEM;
	__atomic_store_n(&ckpt_changed_of(step)->attributes, a, __ATOMIC_RELEASE);
	slot = slot_of(a, ino);
	if (!*slot) {
		struct change *c = calloc(1, sizeof(*c));

		if (!c)
			return -ENOMEM;
		*c = (struct change){.ino = ino, .over = true};
		*slot = c;
		a->count++;
		grow(a);
		slot = slot_of(a, ino);
	}
	*ret_change = *slot;
	return 0;
}

static void changed_locked(struct ckpt_attributes *a, struct change *c)
{
	c->seq = ++a->seq;
	a->last_ns = ckpt_sys.mono_ns();
	if (!a->pending)
		a->first_ns = a->last_ns;
	a->pending += c->over;
	c->over = false;
}

// --- Reading ------------------------------------------------------------------------------------------------------------

static void apply(const struct change *c, struct ckpt_entry *e)
{
	const struct ckpt_attributes_new *n = &c->now;

	if (n->which & CKPT_ATTRIBUTE_MODE)
		e->mode = n->mode;
	if (n->which & CKPT_ATTRIBUTE_UID)
		e->uid = n->uid;
	if (n->which & CKPT_ATTRIBUTE_GID)
		e->gid = n->gid;
	if (n->which & CKPT_ATTRIBUTE_MTIME) {
		e->mtime_s = n->mtime_s;
		e->mtime_ns = n->mtime_ns;
	}
}

void ckpt_attributes_apply(struct ckpt_step *step, const struct ckpt_manifest *m, struct ckpt_entry *e)
{
	if (!has_any(step))
		return;
	LOCK_SCOPE(&step->lock);
	const struct change *c = find_locked(step, m, e);

	if (c)
		apply(c, e);
}

// A summary is that of the version that it comes with: what is over is in it.
void ckpt_attributes_apply_top_locked(struct ckpt_step *step, struct ckpt_summary *s)
{
	const struct change *c =
		ckpt_changed_of(step)->attributes ? *slot_of(ckpt_changed_of(step)->attributes, s->dir_ino) : NULL;
	struct ckpt_entry e = {.mode = s->dir_mode, .uid = s->dir_uid, .gid = s->dir_gid};

	if (!c || c->over)
		return;
	apply(c, &e);
	s->dir_mode = e.mode;
	s->dir_uid = e.uid;
	s->dir_gid = e.gid;
	if (c->now.which & CKPT_ATTRIBUTE_MTIME)
		s->dir_mtime_ns = e.mtime_s * INT64_C(1000000000) + e.mtime_ns;
}

static const struct xattr_change *find_xattr(const struct change *c, const char *name)
{
	const struct xattr_change *x = c ? c->xattrs : NULL;

	while (x && strcmp(x->name, name))
		x = x->next;
	return x;
}

typedef int xattr_fn(void *arg, const char *name, const void *value, size_t len);

static int each_xattr(const struct change *c, const struct ckpt_manifest *m, const struct ckpt_entry *e, xattr_fn *fn,
		      void *arg)
{
	const char *name;
	const void *value;
	size_t len;
	int rc = 0;

	for (uint32_t i = 0; !rc && ckpt_manifest_xattr(m, e, i, &name, &value, &len); i++)
		if (!find_xattr(c, name))
			rc = fn(arg, name, value, len);
	for (const struct xattr_change *x = c ? c->xattrs : NULL; x && !rc; x = x->next)
		if (!x->removed)
			rc = fn(arg, x->name, x->value, x->len);
	return rc;
}

struct size {
	size_t count, bytes;
};

static int add_size(void *arg, const char *name, const void *value __attribute__((unused)), size_t len)
{
	struct size *s = arg;

	s->count++;
	s->bytes += strlen(name) + 1 + len;
	return 0;
}

struct copying {
	struct ckpt_xattrs *to;
	char *heap;
};

static int add_copy(void *arg, const char *name, const void *value, size_t len)
{
	struct copying *c = arg;
	struct ckpt_xattr *x = &c->to->at[c->to->count++];

	*x = (struct ckpt_xattr){c->heap, c->heap + strlen(name) + 1, len};
	c->heap = stpcpy(c->heap, name) + 1;
	if (len)
		memcpy(c->heap, value, len);
	c->heap += len;
	return 0;
}

int ckpt_attributes_xattrs(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
			   struct ckpt_xattrs *ret_xattrs)
{
	struct copying copying = {.to = ret_xattrs};
	struct size size = {0};

	*ret_xattrs = (struct ckpt_xattrs){0};
	if (!has_any(step) && !e->xattrs)
		return 0;
	LOCK_SCOPE(&step->lock);
	const struct change *c = find_locked(step, m, e);

	(void)each_xattr(c, m, e, add_size, &size);
	if (!size.count)
		return 0;
	ret_xattrs->at = ckpt_calloc(1, size.count * sizeof(*ret_xattrs->at) + size.bytes);
	if (!ret_xattrs->at)
		return -ENOMEM;
	copying.heap = (char *)(ret_xattrs->at + size.count);
	return each_xattr(c, m, e, add_copy, &copying);
}

void ckpt_xattrs_done(struct ckpt_xattrs *x)
{
	free(x->at);
	*x = (struct ckpt_xattrs){0};
}

const struct ckpt_xattr *ckpt_xattrs_find(const struct ckpt_xattrs *x, const char *name)
{
	for (size_t i = 0; i < x->count; i++)
		if (!strcmp(x->at[i].name, name))
			return &x->at[i];
	return NULL;
}

// --- Changing -----------------------------------------------------------------------------------------------------------

static int may_change_locked(const struct ckpt_step *step, const struct ckpt_manifest *m)
{
	if (step->state != CKPT_STEP_COMMITTED)
		return -EROFS;
	if (ckpt_amending_of(step)->reopening || __atomic_load_n(&step->reopened, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	return memcmp(step->version->is.manifest_sha256, ckpt_manifest_sha256(m), CKPT_SHA256_LEN) ? -ESTALE : 0;
}

// Of what is set, what differs from what there is.
static unsigned differing(const struct ckpt_entry *e, const struct ckpt_attributes_new *what)
{
	unsigned which = 0;

	which |= e->mode != what->mode ? CKPT_ATTRIBUTE_MODE : 0;
	which |= e->uid != what->uid ? CKPT_ATTRIBUTE_UID : 0;
	which |= e->gid != what->gid ? CKPT_ATTRIBUTE_GID : 0;
	which |= e->mtime_s != what->mtime_s || e->mtime_ns != what->mtime_ns ? CKPT_ATTRIBUTE_MTIME : 0;
	return which & what->which;
}

static void take_over(struct ckpt_attributes_new *now, const struct ckpt_attributes_new *what, unsigned which)
{
	now->which |= which;
	if (which & CKPT_ATTRIBUTE_MODE)
		now->mode = what->mode;
	if (which & CKPT_ATTRIBUTE_UID)
		now->uid = what->uid;
	if (which & CKPT_ATTRIBUTE_GID)
		now->gid = what->gid;
	if (which & CKPT_ATTRIBUTE_MTIME) {
		now->mtime_s = what->mtime_s;
		now->mtime_ns = what->mtime_ns;
	}
}

// Under the lock a change was made: true: it needs somebody to publish it.
static bool wants_watch_locked(struct ckpt_step *step)
{
	bool wants = !ckpt_changed_of(step)->attributes->watched;

	ckpt_changed_of(step)->attributes->watched = true;
	return wants;
}

// A daemon without root must be able to read the raw file, whatever mode clients see.
static int make_readable(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	mode_t wants = e->type == CKPT_ENTRY_DIR ? 0700 : 0400;
	char path[CKPT_RAW_PATH_MAX];
	struct stat st;
	int n, rc = 0;

	if (geteuid() == 0 || e->type == CKPT_ENTRY_SYMLINK)
		return 0;
	if (e->type == CKPT_ENTRY_DIR) {
		n = snprintf(path, sizeof(path), "%s/", step->session);
		rc = ckpt_manifest_path(m, e->index, path + n, sizeof(path) - (size_t)n);
	} else {
		rc = e->content != CKPT_CONTENT_NONE ? ckpt_step_raw_path(step, m, e->index, path, sizeof(path)) : -EIO;
	}
	if (rc < 0 || fstatat(step->store->sessions_fd, path, &st, AT_SYMLINK_NOFOLLOW) ||
	    (st.st_mode & wants) == wants)
		return 0;
	return fchmodat(step->store->sessions_fd, path, (st.st_mode & 07777) | wants, 0) ? -errno : 0;
}

int ckpt_attributes_set(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			const struct ckpt_attributes_new *what, bool *ret_starts)
{
	struct ckpt_entry now = *e;
	struct change *c;
	unsigned which;
	int rc = what->which & CKPT_ATTRIBUTE_MODE ? make_readable(step, m, e) : 0;

	*ret_starts = false;
	if (rc)
		return rc;
	ckpt_lock_take(&step->lock);
	rc = may_change_locked(step, m);
	c = rc ? NULL : find_locked(step, m, e);
	if (c)
		apply(c, &now);
	which = differing(&now, what);
	if (!rc && which)
		rc = enter_locked(step, key_of_locked(step, e), &c);
	if (!rc && which) {
		take_over(&c->now, what, which);
		changed_locked(ckpt_changed_of(step)->attributes, c);
	}
	*ret_starts = !rc && which && wants_watch_locked(step);
	ckpt_lock_drop(&step->lock);
	return rc;
}

static struct xattr_change *xattr_new(const char *name, const void *value, size_t len)
{
	struct xattr_change *x = calloc(1, sizeof(*x) + strlen(name) + 1 + len);

	if (!x)
		return NULL;
	x->value = stpcpy(x->name, name) + 1;
	x->len = len;
	x->removed = !value;
	if (value && len)
		memcpy(x->value, value, len);
	return x;
}

static void put_xattr(struct change *c, struct xattr_change *x)
{
	struct xattr_change **slot = &c->xattrs, *before;

	while (*slot && strcmp((*slot)->name, x->name))
		slot = &(*slot)->next;
	before = *slot;
	x->next = before ? before->next : NULL;
	*slot = x;
	free(before);
}

static bool has_xattr(const struct change *c, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		      const char *name)
{
	const struct xattr_change *x = find_xattr(c, name);
	const char *have;
	const void *value;
	size_t len;

	for (uint32_t i = 0; !x && ckpt_manifest_xattr(m, e, i, &have, &value, &len); i++)
		if (!strcmp(have, name))
			return true;
	return x && !x->removed;
}

// The flags allow it, and the manifest has room for it and for CKPT_RAW_XATTR.
static int check_xattr(const struct change *c, const struct ckpt_manifest *m, const struct ckpt_entry *e,
		       const struct xattr_change *x, int flags)
{
	bool has = has_xattr(c, m, e, x->name);
	struct size size = {0};

	if (has ? !x->removed && (flags & XATTR_CREATE) : x->removed || (flags & XATTR_REPLACE))
		return has ? -EEXIST : -ENODATA;
	(void)each_xattr(c, m, e, add_size, &size);
	return x->removed || size.bytes + strlen(x->name) + x->len + strlen(CKPT_RAW_XATTR) + RAW_TEXT_MAX <=
				       CKPT_XATTR_BYTES_MAX
		       ? 0
		       : -ENOSPC;
}

int ckpt_attributes_set_xattr(struct ckpt_step *step, struct ckpt_manifest *m, const struct ckpt_entry *e,
			      const char *name, const void *value, size_t len, int flags, bool *ret_starts)
{
	struct xattr_change *x = xattr_new(name, value, len);
	struct change *c;
	int rc;

	*ret_starts = false;
	if (!x)
		return -ENOMEM;
	ckpt_lock_take(&step->lock);
	rc = may_change_locked(step, m);
	if (!rc)
		rc = check_xattr(find_locked(step, m, e), m, e, x, flags);
	if (!rc)
		rc = enter_locked(step, key_of_locked(step, e), &c);
	if (!rc) {
		put_xattr(c, TAKE_PTR(x));
		changed_locked(ckpt_changed_of(step)->attributes, c);
	}
	*ret_starts = !rc && wants_watch_locked(step);
	ckpt_lock_drop(&step->lock);
	free(x);
	return rc;
}

// --- Of an edit by another node ---------------------------------------------------------------------------------------

// The entry of the file, which has another number where it was written anew.
static int find_again(const struct ckpt_step *from, struct ckpt_manifest *m, uint64_t ino, struct ckpt_manifest *now,
		      struct ckpt_entry *ret)
{
	char path[PATH_MAX] = "";
	uint32_t index;
	int rc = ino == from->born.dir_ino ? 0 : ckpt_manifest_find_ino(m, ino, &index);

	if (!rc && ino != from->born.dir_ino)
		rc = MIN(ckpt_manifest_path(m, index, path, sizeof(path)), 0);
	if (!rc)
		rc = ckpt_manifest_lookup(now, path, &index);
	if (!rc)
		ckpt_manifest_entry(now, index, ret);
	return rc;
}

static int hand_on_locked(struct ckpt_step *to, const struct ckpt_entry *e, struct change *from)
{
	struct change *c;
	int rc = enter_locked(to, key_of_locked(to, e), &c);

	if (rc)
		return rc;
	take_over(&c->now, &from->now, from->now.which);
	for (struct xattr_change *x; (x = from->xattrs);) {
		from->xattrs = x->next;
		put_xattr(c, x);
	}
	changed_locked(ckpt_changed_of(to)->attributes, c);
	return 0;
}

static int hand_on_all_locked(struct ckpt_step *from, struct ckpt_manifest *m, struct ckpt_step *to,
			      struct ckpt_manifest *now)
{
	const struct ckpt_attributes *a = ckpt_changed_of(from)->attributes;
	int rc = 0;

	for (size_t i = 0; a && i < a->bucket_count; i++)
		for (struct change *c = a->buckets[i]; c && !rc; c = c->next) {
			struct ckpt_entry e;

			if (!c->over && !find_again(from, m, c->ino, now, &e))
				rc = hand_on_locked(to, &e, c);
		}
	if (!rc)
		ckpt_attributes_forget_locked(from);
	return rc;
}

int ckpt_attributes_hand_on(struct ckpt_step *from, struct ckpt_step *to, bool *ret_starts)
{
	struct ckpt_manifest *m = NULL, *now = NULL;
	int rc = ckpt_step_manifest(from, &m);

	*ret_starts = false;
	if (!rc)
		rc = ckpt_step_manifest(to, &now);
	if (!rc) {
		ckpt_lock_take_both(&from->lock, &to->lock);
		rc = hand_on_all_locked(from, m, to, now);
		*ret_starts = ckpt_changed_of(to)->attributes && wants_watch_locked(to);
		ckpt_lock_drop(&from->lock);
		ckpt_lock_drop(&to->lock);
	}
	ckpt_manifest_unref(m);
	ckpt_manifest_unref(now);
	return rc;
}

// --- In a version -------------------------------------------------------------------------------------------------------

bool ckpt_attributes_raw(const struct ckpt_manifest *m, const struct ckpt_entry *e, uint32_t *ret_mode,
			 struct timespec *ret_mtime)
{
	char text[RAW_TEXT_MAX + 1];
	long long mtime_s;
	const char *name;
	const void *value;
	size_t len;

	for (uint32_t i = 0; ckpt_manifest_xattr(m, e, i, &name, &value, &len); i++) {
		if (strcmp(name, CKPT_RAW_XATTR) || len > RAW_TEXT_MAX)
			continue;
		memcpy(text, value, len);
		text[len] = '\0';
		if (sscanf(text, "%o %lld.%ld", ret_mode, &mtime_s, &ret_mtime->tv_nsec) != 3)
			return false;
		ret_mtime->tv_sec = mtime_s;
		return true;
	}
	return false;
}

static bool has_change(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	if (!has_any(step))
		return false;
	LOCK_SCOPE(&step->lock);

	return find_locked(step, m, e);
}

bool ckpt_attributes_differ(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e)
{
	struct timespec mtime;
	uint32_t mode;

	return has_change(step, m, e) || ckpt_attributes_raw(m, e, &mode, &mtime);
}

// The raw file has the attributes that the entry had before their first change.
static int write_raw(const struct ckpt_manifest *m, uint32_t index, struct ckpt_manifest_writer *w, uint32_t handle)
{
	struct ckpt_entry was;
	struct timespec mtime;
	char text[RAW_TEXT_MAX];
	uint32_t mode;
	int n;

	ckpt_manifest_entry(m, index, &was);
	if (was.type == CKPT_ENTRY_SYMLINK || ckpt_attributes_raw(m, &was, &mode, &mtime))
		return 0;
	n = snprintf(text, sizeof(text), "%o %lld.%09u", was.mode, (long long)was.mtime_s, was.mtime_ns);
	return ckpt_manifest_writer_xattr(w, handle, CKPT_RAW_XATTR, text, (size_t)n);
}

int ckpt_attributes_write(struct ckpt_step *step, const struct ckpt_manifest *m, const struct ckpt_entry *e,
			  struct ckpt_manifest_writer *w, uint32_t handle)
{
	struct ckpt_xattrs x;
	int rc = ckpt_attributes_xattrs(step, m, e, &x);

	for (size_t i = 0; i < x.count && !rc; i++)
		rc = ckpt_manifest_writer_xattr(w, handle, x.at[i].name, x.at[i].value, x.at[i].len);
	ckpt_xattrs_done(&x);
	return !rc && has_change(step, m, e) ? write_raw(m, e->index, w, handle) : rc;
}

uint64_t ckpt_attributes_mark(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	return ckpt_changed_of(step)->attributes ? ckpt_changed_of(step)->attributes->seq : 0;
}

void ckpt_attributes_put(struct ckpt_step *step, uint64_t mark, const struct ckpt_manifest *was)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_attributes *a = ckpt_changed_of(step)->attributes;

	for (size_t i = 0; a && i < a->bucket_count; i++)
		for (struct change *c = a->buckets[i]; c; c = c->next) {
			if (c->over || c->seq > mark)
				continue;
			c->over = true;
			memcpy(c->over_of, ckpt_manifest_sha256(was), CKPT_SHA256_LEN);
			a->pending--;
		}
	if (!a)
		return;
	a->over_ns = ckpt_sys.mono_ns();
	a->first_ns = a->last_ns; // of those that came meanwhile
	a->told = false;
}

// --- For the watch ------------------------------------------------------------------------------------------------------

bool ckpt_attributes_are_due(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);
	const struct ckpt_attributes *a = ckpt_changed_of(step)->attributes;
	int64_t now = ckpt_sys.mono_ns();

	return a->pending && now >= a->again_ns && (now - a->last_ns >= QUIET_NS || now - a->first_ns >= LONGEST_NS);
}

void ckpt_attributes_failed(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	ckpt_changed_of(step)->attributes->again_ns = ckpt_sys.mono_ns() + AGAIN_NS;
}

bool ckpt_attributes_have_told(struct ckpt_step *step)
{
	const struct ckpt_changed *changed = ckpt_changed_of(step);
	LOCK_SCOPE(&step->lock);
	bool told = !changed->attributes || changed->attributes->told;

	if (changed->attributes)
		changed->attributes->told = true;
	return told;
}

bool ckpt_attributes_leave(struct ckpt_step *step, bool closing)
{
	LOCK_SCOPE(&step->lock);
	const struct ckpt_attributes *a = ckpt_changed_of(step)->attributes;

	if (!closing && (a->pending || (a->count && ckpt_sys.mono_ns() - a->over_ns < READ_NS)))
		return false;
	ckpt_changed_of(step)->attributes->watched = false;
	if (!a->pending)
		ckpt_attributes_forget_locked(step);
	return true;
}

void ckpt_attributes_unwatch(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	if (ckpt_changed_of(step)->attributes)
		ckpt_changed_of(step)->attributes->watched = false;
}

static void changed_done(void *step)
{
	ckpt_attributes_forget_locked(step);
}

struct ckpt_part ckpt_changed_part = {.bytes = sizeof(struct ckpt_changed), .done = changed_done};

#include "core/step/amending.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/base/uuid.h"
#include "core/step/follow.h"
#include "core/step/staging.h"
#include "core/step/store.h"

#include <limits.h>
#include <stdio.h>

struct ckpt_pending_file {
	struct ckpt_pending_file *next;
	uint64_t ino;    // expected: of the file
	const char *raw; // where in the session's directory; behind the path
	char path[];
};

// --- Pending files ------------------------------------------------------------------------------------------------------

static struct ckpt_pending_file **slot_locked(struct ckpt_step *step, const char *path)
{
	struct ckpt_pending_file **slot = &ckpt_amending_of(step)->pending_files;

	while (*slot && strcmp((*slot)->path, path))
		slot = &(*slot)->next;
	return slot;
}

static void wait_for_list_locked(struct ckpt_step *step)
{
	while (ckpt_amending_of(step)->pending_away)
		ckpt_lock_wait(&step->changed, &step->lock);
}

bool ckpt_amending_is_pending(struct ckpt_step *step, const char *path)
{
	if (!__atomic_load_n(&ckpt_amending_of(step)->had_pending, __ATOMIC_RELAXED)) // nearly always
		return false;
	LOCK_SCOPE(&step->lock);

	wait_for_list_locked(step);
	return *slot_locked(step, path);
}

bool ckpt_amending_raw_of(struct ckpt_step *step, const char *path, char *ret_raw, size_t cap)
{
	if (!__atomic_load_n(&ckpt_amending_of(step)->had_pending, __ATOMIC_RELAXED)) // nearly always
		return false;
	LOCK_SCOPE(&step->lock);
	const struct ckpt_pending_file *f;

	wait_for_list_locked(step);
	f = *slot_locked(step, path);
	return f && (size_t)snprintf(ret_raw, cap, "%s", f->raw) < cap;
}

static struct ckpt_pending_file *pending_new(const char *path, const char *raw)
{
	size_t len = strlen(path) + 1, raw_len = raw ? strlen(raw) + 1 : 0;
	struct ckpt_pending_file *f = calloc(1, sizeof(*f) + len + raw_len);

	if (!f)
		return NULL;
	memcpy(f->path, path, len);
	if (raw)
		memcpy(f->path + len, raw, raw_len);
	f->raw = raw ? f->path + len : f->path;
	return f;
}

int ckpt_amending_begin(struct ckpt_step *step, const char *path, const char *raw)
{
	struct ckpt_amending *amending = ckpt_amending_of(step);
	struct ckpt_pending_file *f = pending_new(path, raw);

	if (!f)
		return -ENOMEM;
	LOCK_SCOPE(&step->lock);
	if (step->state != CKPT_STEP_COMMITTED || amending->reopening || ckpt_step_is_reopened(step)) {
		free(f);
		return -EAGAIN;
	}
	f->next = amending->pending_files;
	__atomic_store_n(&amending->had_pending, true, __ATOMIC_RELAXED);
	__atomic_store_n(&amending->pending_files, f, __ATOMIC_RELAXED);
	return 0;
}

void ckpt_amending_forget(struct ckpt_step *step, const char *path)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_pending_file **slot, *f;

	wait_for_list_locked(step);
	slot = slot_locked(step, path);
	f = *slot;
	if (f)
		*slot = f->next;
	free(f);
}

int ckpt_amending_rename(struct ckpt_step *step, const char *path, const char *to, int (*change)(void *arg), void *arg)
{
	LOCK_SCOPE(&step->store->acts_lock);
	char raw[PATH_MAX];
	int rc = ckpt_amending_raw_of(step, path, raw, sizeof(raw)) ? 0 : -EAGAIN;

	if (!rc && to)
		rc = ckpt_amending_begin(step, to, raw);
	if (rc)
		return rc;
	rc = change(arg);
	if (!rc || to)
		ckpt_amending_forget(step, rc ? to : path);
	return rc;
}

static void free_list(struct ckpt_pending_file *list)
{
	while (list) {
		struct ckpt_pending_file *f = list;

		list = f->next;
		free(f);
	}
}

static void amending_done(void *step)
{
	free_list(ckpt_amending_of(step)->pending_files);
	free_list(ckpt_amending_of(step)->expected_files);
}

struct ckpt_part ckpt_amending_part = {.bytes = sizeof(struct ckpt_amending), .done = amending_done};

// --- Files that a commit leaves out -------------------------------------------------------------------------------------

int ckpt_amending_expect(struct ckpt_step *step, const char *path, uint64_t ino, int fd)
{
	struct ckpt_pending_file *f = pending_new(path, NULL);

	if (!f)
		return -ENOMEM;
	(void)ckpt_amending_mark(fd);
	f->ino = ino;
	LOCK_SCOPE(&step->lock);
	f->next = ckpt_amending_of(step)->expected_files;
	ckpt_amending_of(step)->expected_files = f;
	return 0;
}

void ckpt_amending_expect_none(struct ckpt_step *step)
{
	LOCK_SCOPE(&step->lock);

	free_list(TAKE_PTR(ckpt_amending_of(step)->expected_files));
}

static bool has_writer_locked(const struct ckpt_step *step, uint64_t ino)
{
	for (const struct ckpt_writer *w = ckpt_staging_of(step)->writers; w; w = w->next)
		if (w->ino == ino)
			return true;
	return false;
}

// A client that closed its file while the outcome of the commit was not known was told so, and will not close it again.
void ckpt_amending_expected_locked(struct ckpt_step *step)
{
	struct ckpt_amending *amending = ckpt_amending_of(step);
	struct ckpt_pending_file *f;

	while ((f = amending->expected_files)) {
		amending->expected_files = f->next;
		if (!has_writer_locked(step, f->ino)) {
			free(f);
			continue;
		}
		f->next = amending->pending_files;
		__atomic_store_n(&amending->had_pending, true, __ATOMIC_RELAXED);
		__atomic_store_n(&amending->pending_files, f, __ATOMIC_RELAXED);
	}
}

static bool is_in_version(struct ckpt_step *step, const char *path, int *ret_error)
{
	struct ckpt_manifest *m;
	uint32_t index;

	*ret_error = ckpt_step_manifest(step, &m);
	if (*ret_error)
		return false;
	bool there = !ckpt_manifest_lookup(m, path, &index);

	ckpt_manifest_unref(m);
	return there;
}

int ckpt_amending_raw_name(char ret_raw[CKPT_AMENDING_RAW_MAX])
{
	uint64_t salt;
	int rc = ckpt_sys.random(&salt, sizeof(salt));

	if (!rc)
		snprintf(ret_raw, CKPT_AMENDING_RAW_MAX, ".again-%016llx", (unsigned long long)salt);
	return rc;
}

int ckpt_amending_check_free(struct ckpt_step *step, const char *path)
{
	int rc = ckpt_amending_settle(step);

	if (!rc && (ckpt_amending_is_pending(step, path) || is_in_version(step, path, &rc)))
		rc = -EEXIST;
	return rc;
}

int ckpt_amending_mark(int fd)
{
	return ckpt_sys.fsetxattr(fd, CKPT_AMENDING_XATTR, "", 0, 0);
}

// Forgets the files that became part of the step without an answer.
static int forget_added(struct ckpt_step *step)
{
	struct ckpt_manifest *m;
	int rc = ckpt_step_manifest(step, &m);

	if (rc)
		return rc;
	ckpt_lock_take(&step->lock);
	for (struct ckpt_pending_file **slot = &ckpt_amending_of(step)->pending_files, *f; (f = *slot);) {
		uint32_t index;

		if (ckpt_manifest_lookup(m, f->path, &index)) {
			slot = &f->next;
			continue;
		}
		__atomic_store_n(slot, f->next, __ATOMIC_RELAXED);
		free(f);
	}
	ckpt_lock_drop(&step->lock);
	ckpt_manifest_unref(m);
	return 0;
}

int ckpt_amending_settle_locked(struct ckpt_step *step)
{
	int rc = 0;

	if (!__atomic_load_n(&ckpt_amending_of(step)->amend_unknown, __ATOMIC_RELAXED)) // nearly always
		return 0;
	if (ckpt_step_state(step) == CKPT_STEP_COMMITTED)
		rc = ckpt_follow_settle(step->store);
	if (!rc)
		rc = forget_added(step);
	if (!rc)
		__atomic_store_n(&ckpt_amending_of(step)->amend_unknown, false, __ATOMIC_RELAXED);
	return rc;
}

int ckpt_amending_settle(struct ckpt_step *step)
{
	if (!__atomic_load_n(&ckpt_amending_of(step)->amend_unknown, __ATOMIC_RELAXED)) // nearly always
		return 0;
	LOCK_SCOPE(&step->store->acts_lock);

	return ckpt_amending_settle_locked(step);
}

bool ckpt_amending_has_raw(struct ckpt_step *step, const char *path, const char *raw)
{
	struct ckpt_manifest *m;
	struct ckpt_entry e;
	uint32_t index;
	bool has = false;

	if (ckpt_step_manifest(step, &m))
		return false;
	if (!ckpt_manifest_lookup(m, path, &index)) {
		ckpt_manifest_entry(m, index, &e);
		has = e.raw_path && !strcmp(e.raw_path, raw);
	}
	ckpt_manifest_unref(m);
	return has;
}

// The files that are pending, in an array; the list does not change while the step is being reopened, but for its ends.
static struct ckpt_pending_file *take_list(struct ckpt_step *step, bool comes_back)
{
	LOCK_SCOPE(&step->lock);

	ckpt_amending_of(step)->pending_away = comes_back;
	return __atomic_exchange_n(&ckpt_amending_of(step)->pending_files, NULL, __ATOMIC_RELAXED);
}

static void give_list(struct ckpt_step *step, struct ckpt_pending_file *list)
{
	LOCK_SCOPE(&step->lock);
	struct ckpt_pending_file **last = &ckpt_amending_of(step)->pending_files;

	while (*last)
		last = &(*last)->next;
	__atomic_store_n(last, list, __ATOMIC_RELAXED);
	ckpt_amending_of(step)->pending_away = false;
	pthread_cond_broadcast(&step->changed);
}

// A rename or removal meanwhile would be in the wrong place, and a lookup that found none would say that there is no such
// file: the list is away for so long, and whoever asks for it waits.
int ckpt_amending_link(struct ckpt_step *step, int dirfd)
{
	char path[CKPT_UUID_LEN + 1 + PATH_MAX];
	struct ckpt_pending_file *list = take_list(step, true);
	int rc = 0;

	for (struct ckpt_pending_file *f = list; f && !rc; f = f->next) {
		snprintf(path, sizeof(path), "%s/%s", step->session, f->raw);
		rc = ckpt_sys.link(step->store->sessions_fd, path, dirfd, f->path);
	}
	give_list(step, list);
	return rc;
}

void ckpt_amending_unlink(struct ckpt_step *step)
{
	char path[CKPT_UUID_LEN + 1 + PATH_MAX];
	struct ckpt_pending_file *list = take_list(step, false), *next;

	for (; list; list = next) {
		next = list->next;
		snprintf(path, sizeof(path), "%s/%s", step->session, list->raw);
		ckpt_sys.unlink(step->store->sessions_fd, path, 0); // else it is nobody's
		free(list);
	}
}

static void append_locked(struct ckpt_step *step, struct ckpt_pending_file *f)
{
	struct ckpt_amending *amending = ckpt_amending_of(step);

	f->next = amending->pending_files;
	__atomic_store_n(&amending->had_pending, true, __ATOMIC_RELAXED);
	__atomic_store_n(&amending->pending_files, f, __ATOMIC_RELAXED);
}

int ckpt_amending_hand_on(struct ckpt_step *from, struct ckpt_step *to,
			  int (*move)(void *arg, const char *raw, char ret_raw[CKPT_AMENDING_RAW_MAX]), void *arg)
{
	struct ckpt_pending_file *list = take_list(from, true), *stays = NULL;
	int rc = 0;

	while (list) {
		struct ckpt_pending_file *f = list, *moved;
		char raw[CKPT_AMENDING_RAW_MAX];

		list = f->next;
		rc = rc ? rc : move(arg, f->raw, raw);
		moved = rc ? NULL : pending_new(f->path, raw);
		if (!moved) {
			rc = rc ? rc : -ENOMEM;
			f->next = stays;
			stays = f;
			continue;
		}
		free(f);
		ckpt_lock_take(&to->lock);
		append_locked(to, moved);
		ckpt_lock_drop(&to->lock);
	}
	give_list(from, stays);
	return rc;
}

bool ckpt_amending_any_below(struct ckpt_step *step, const char *path)
{
	size_t len = strlen(path);
	LOCK_SCOPE(&step->lock);

	wait_for_list_locked(step);
	for (const struct ckpt_pending_file *f = ckpt_amending_of(step)->pending_files; f; f = f->next)
		if (!strncmp(f->path, path, len) && f->path[len] == '/')
			return true;
	return false;
}

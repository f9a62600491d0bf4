#include "core/request/hold.h"

#include "core/base/util.h"
#include "core/step/store.h"
#include "core/store/open.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

void ckpt_hold_signals(sigset_t *ret_before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, ret_before);
}

void ckpt_let_signals_go(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

struct held {
	struct held *next;
	struct ckpt_store *store;
	pid_t pid; // what a child has from its parent is the parent's
	struct stat at;
	unsigned users;
};

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER; // over opening and closing, too
static struct held *held;

// Another thread may have had it, or this one: opening a store forks.
static void unlock_in_child(void)
{
	pthread_mutex_init(&held_lock, NULL);
}

static void held_begin(void)
{
	(void)pthread_atfork(NULL, NULL, unlock_in_child);
}

static int open_held(const char *directory, const struct stat *at, struct held **ret_held)
{
	struct held *h = calloc(1, sizeof(*h));
	struct ckpt_settings settings;
	int rc;

	if (!h)
		return -ENOMEM;
	ckpt_settings_init(&settings);
	settings.keep_trash = true;
	rc = ckpt_store_open(directory, CKPT_STORE_WRITE, &settings, &h->store);
	ckpt_settings_done(&settings);
	if (rc) {
		free(h);
		return rc;
	}
	h->pid = getpid();
	h->at = *at;
	h->next = held;
	held = *ret_held = h;
	return 0;
}

static int hold_locked(const char *directory, struct ckpt_store **ret_store)
{
	struct held *h = held;
	struct stat at;
	int rc = stat(directory, &at) ? -errno : 0;

	while (!rc && h && (h->pid != getpid() || h->at.st_dev != at.st_dev || h->at.st_ino != at.st_ino))
		h = h->next;
	if (!rc && !h)
		rc = open_held(directory, &at, &h);
	if (rc)
		return rc;
	h->users++;
	*ret_store = h->store;
	return 0;
}

int ckpt_hold(const char *directory, struct ckpt_store **ret_store)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	sigset_t before;
	int rc;

	pthread_once(&once, held_begin);
	ckpt_hold_signals(&before);
	pthread_mutex_lock(&held_lock);
	rc = hold_locked(directory, ret_store);
	pthread_mutex_unlock(&held_lock);
	ckpt_let_signals_go(&before);
	return rc;
}

static void let_go_locked(const struct ckpt_store *s)
{
	struct held **at = &held, *h;

	while ((*at)->store != s)
		at = &(*at)->next;
	h = *at;
	if (h->pid != getpid() || --h->users) // its threads are not in this process
		return;
	*at = h->next;
	ckpt_store_close(h->store);
	free(h);
}

void ckpt_let_go(struct ckpt_store *s)
{
	sigset_t before;

	if (!s)
		return;
	ckpt_hold_signals(&before);
	pthread_mutex_lock(&held_lock);
	let_go_locked(s);
	pthread_mutex_unlock(&held_lock);
	ckpt_let_signals_go(&before);
}

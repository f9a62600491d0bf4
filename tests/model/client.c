#include "tests/model/client.h"

#include "backends/backends.h"
#include "core/base/util.h"
#include "core/objects/stack.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static struct {
	sem_t comes;
	struct wire in, out;
} slots[SLOTS + 1];
static pthread_mutex_t others = PTHREAD_MUTEX_INITIALIZER; // over a request of SLOT_OTHERS
static pthread_mutex_t *lock;
static int socket_fd;
static _Thread_local unsigned slot = SLOT_OTHERS;
static _Thread_local bool at_once;

void client_begin(int fd)
{
	socket_fd = fd;
	for (unsigned i = 0; i <= SLOTS; i++)
		sem_init(&slots[i].comes, 0, 0);
}

void client_is_slot(unsigned is)
{
	slot = is;
}

void client_at_once(bool is)
{
	at_once = is;
}

void client_lock(pthread_mutex_t *mutex)
{
	lock = mutex;
}

void client_take(const struct wire *w)
{
	memcpy(&slots[w->slot].in, w, offsetof(struct wire, bytes) + w->len);
	slots[w->slot].in.bytes[w->len] = '\0';
	sem_post(&slots[w->slot].comes);
}

const struct wire *client_wait(unsigned of)
{
	while (sem_wait(&slots[of].comes) && errno == EINTR)
		;
	return &slots[of].in;
}

// Nobody else has it while the others wait: so it is the caller's.
static bool holds_lock(void)
{
	if (!lock)
		return false;
	if (pthread_mutex_trylock(lock))
		return true;
	pthread_mutex_unlock(lock);
	return false;
}

// The log alone changes under a reader of the bucket, and what a collection lists. All else is read at once.
static bool waits(unsigned kind, const char *key)
{
	bool is_log = !strncmp(key, "log/", 4), is_garbage = !strncmp(key, "packs/", 6) || !strncmp(key, "m/", 2);

	if (at_once || slot == SLOT_OTHERS || !strncmp(key, "probe/", 6) || holds_lock())
		return false;
	return kind == WIRE_PUT || kind == WIRE_REMOVE || kind == WIRE_SLEEP || (kind == WIRE_GET && is_log) ||
	       (kind == WIRE_LIST && is_garbage && slot == SLOT_COLLECT);
}

static const struct wire *ask(unsigned kind, const char *key, const void *data, size_t len)
{
	struct wire *w = &slots[slot].out;

	if (len > WIRE_BYTES_MAX)
		abort();
	w->kind = kind;
	w->slot = slot;
	w->at_once = !waits(kind, key);
	snprintf(w->key, sizeof(w->key), "%s", key);
	w->len = (uint32_t)len;
	if (len)
		memcpy(w->bytes, data, len);
	if (wire_send(socket_fd, w))
		_exit(3);
	return client_wait(slot);
}

// The answer of SLOT_OTHERS is read before another asks.
static void enter(void)
{
	if (slot == SLOT_OTHERS)
		pthread_mutex_lock(&others);
}

static int leave(int rc)
{
	if (slot == SLOT_OTHERS)
		pthread_mutex_unlock(&others);
	return rc;
}

bool client_sleep(void)
{
	if (slot == SLOT_OTHERS)
		return false;
	(void)ask(WIRE_SLEEP, "", NULL, 0);
	return true;
}

static void take_object(const struct wire *w, struct ckpt_object *ret)
{
	if (!ret)
		return;
	*ret = (struct ckpt_object){.bytes = w->object_bytes, .mtime_ns = w->object_mtime_ns};
	memcpy(ret->etag, w->object_etag, sizeof(w->object_etag));
}

static int client_get(struct ckpt_objects *o, const char *key, uint64_t offset, void *buf, size_t len, size_t *ret_len,
		      struct ckpt_object *ret_object)
{
	const struct wire *w;

	(void)o;
	enter();
	w = ask(WIRE_GET, key, NULL, 0);
	if (w->rc)
		return leave(w->rc);
	*ret_len = offset < w->len ? MIN(len, (size_t)(w->len - offset)) : 0;
	if (*ret_len)
		memcpy(buf, w->bytes + offset, *ret_len);
	take_object(w, ret_object);
	return leave(0);
}

static int client_head(struct ckpt_objects *o, const char *key, struct ckpt_object *ret_object)
{
	const struct wire *w;

	(void)o;
	enter();
	w = ask(WIRE_HEAD, key, NULL, 0);
	if (!w->rc)
		take_object(w, ret_object);
	return leave(w->rc);
}

static int client_put(struct ckpt_objects *o, const char *key, const void *data, size_t len, bool frees,
		      struct ckpt_object *ret_object)
{
	const struct wire *w;

	(void)o;
	(void)frees;
	enter();
	w = ask(WIRE_PUT, key, data, len);
	if (!w->rc)
		take_object(w, ret_object);
	return leave(w->rc);
}

static int client_remove(struct ckpt_objects *o, const char *key)
{
	(void)o;
	enter();
	return leave(ask(WIRE_REMOVE, key, NULL, 0)->rc);
}

static int client_list(struct ckpt_objects *o, const char *prefix, const char *after, ckpt_objects_list_fn *fn,
		       void *arg)
{
	CLEANUP_FREE struct wire_object *list = NULL;
	const struct wire *w;
	size_t count;
	int rc;

	(void)o;
	enter();
	w = ask(WIRE_LIST, prefix, NULL, 0);
	rc = w->rc;
	count = w->len / sizeof(*list);
	list = malloc(w->len + 1);
	memcpy(list, w->bytes, w->len);
	leave(0);
	for (size_t i = 0; i < count && !rc; i++) {
		struct ckpt_object object = {.bytes = list[i].bytes, .mtime_ns = list[i].mtime_ns};

		if (after && *after && strcmp(list[i].key, after) <= 0)
			continue;
		memcpy(object.etag, list[i].etag, sizeof(list[i].etag));
		rc = fn(arg, list[i].key, &object);
	}
	return rc;
}

static void client_close(struct ckpt_objects *o)
{
	free(o);
}

static const struct ckpt_objects_ops client_ops = {
	.name = "model",
	.get = client_get,
	.head = client_head,
	.put = client_put,
	.remove = client_remove,
	.list = client_list,
	.close = client_close,
};

static int open_client(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	struct ckpt_objects *o = malloc(sizeof(*o));

	(void)at;
	if (!o)
		return -ENOMEM;
	o->ops = &client_ops;
	*ret_objects = o;
	return 0;
}

static int open_directory(const struct ckpt_objects_at *at, struct ckpt_objects **ret_objects)
{
	return ckpt_local_open(at->dirfd, at->writable, ret_objects);
}

// In the place of those of backends/schemes.c.
const struct ckpt_scheme ckpt_schemes[] = {
	{"model", open_client},
	{"", open_directory},
	{0},
};

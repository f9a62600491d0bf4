// The socket "control.sock" in the store's directory, by which verbs reach the process that has it mounted. A thread takes
// connections, and each is served by a thread of its own: a commit that somebody waits for holds up no question.
#include "fs/listener.h"

#include "core/base/actor.h"
#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/ask.h"
#include "fs/fs.h"
#include "fs/verbs.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define REQUEST_BYTES_MAX (2 << 20) // a change of 10,000 files
#define CONNECTIONS_MAX 32

struct listener {
	struct ckpt_fs *fs;
	int fd, stop_fd;
	pthread_t thread;
	struct ckpt_lock lock;
	pthread_cond_t changed;
	// Guarded by lock.
	int connections[CONNECTIONS_MAX]; // -1: free
	unsigned count;
	bool stopping;
};

struct connection {
	struct listener *l;
	unsigned slot;
	int fd;
};

static bool peer_is_allowed(int fd, struct ucred *ret_peer)
{
	socklen_t len = sizeof(*ret_peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &len) &&
	       (ret_peer->uid == 0 || ret_peer->uid == geteuid());
}

static void serve(struct listener *l, int fd)
{
	CLEANUP_FREE char *request = NULL;
	CLEANUP_FREE char *reply = NULL;
	struct ckpt_actor_scope was;
	struct ucred peer;

	if (!peer_is_allowed(fd, &peer) || ckpt_socket_receive(fd, REQUEST_BYTES_MAX, NULL, &request))
		return;
	was = ckpt_actor_set_client(peer.uid, peer.pid);
	reply = verbs_answer(l->fs, request, fd);
	ckpt_actor_restore(&was);
	if (reply)
		(void)ckpt_socket_send(fd, reply, strlen(reply)); // the asker left
}

static void *connection_thread(void *arg)
{
	struct connection *c = arg;
	struct listener *l = c->l;

	serve(l, c->fd);
	ckpt_lock_take(&l->lock);
	close(c->fd);
	l->connections[c->slot] = -1;
	l->count--;
	pthread_cond_broadcast(&l->changed);
	ckpt_lock_drop(&l->lock);
	free(c);
	return NULL;
}

// Waits for a free place. False: it is not to be served any more.
static bool enter(struct listener *l, struct connection *c)
{
	LOCK_SCOPE(&l->lock);

	while (l->count == CONNECTIONS_MAX && !l->stopping)
		ckpt_lock_wait(&l->changed, &l->lock);
	if (l->stopping)
		return false;
	for (c->slot = 0; l->connections[c->slot] >= 0;)
		c->slot++;
	l->connections[c->slot] = c->fd;
	l->count++;
	return true;
}

static void accept_one(struct listener *l)
{
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
	struct connection *c = fd < 0 ? NULL : malloc(sizeof(*c));
	pthread_attr_t attr;
	pthread_t thread;
	bool started;

	if (!c) {
		if (fd >= 0)
			close(fd);
		return;
	}
	ckpt_socket_timeouts(fd, CKPT_SOCKET_TIMEOUT_S);
	*c = (struct connection){.l = l, .fd = fd};
	if (!enter(l, c)) {
		close(fd);
		free(c);
		return;
	}
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	started = !pthread_create(&thread, &attr, connection_thread, c);
	pthread_attr_destroy(&attr);
	if (!started)
		connection_thread(c);
}

static void *listener_thread(void *arg)
{
	struct listener *l = arg;
	struct pollfd wait[2] = {{.fd = l->fd, .events = POLLIN}, {.fd = l->stop_fd, .events = POLLIN}};

	while ((poll(wait, 2, -1) >= 0 || errno == EINTR) && !wait[1].revents)
		accept_one(l);
	return NULL;
}

static int socket_bind(struct ckpt_fs *fs, int fd)
{
	struct sockaddr_un address;

	ckpt_socket_address(fs->store->dirfd, &address);
	ckpt_sys.unlink(fs->store->dirfd, CKPT_SOCKET_FILE, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    fchmodat(fs->store->dirfd, CKPT_SOCKET_FILE, 0600, 0) || listen(fd, 16))
		return -errno;
	return 0;
}

static void listener_free(struct listener *l)
{
	if (l->fd >= 0)
		close(l->fd);
	if (l->stop_fd >= 0)
		close(l->stop_fd);
	pthread_cond_destroy(&l->changed);
	ckpt_lock_done(&l->lock);
	free(l);
}

int listener_start(struct ckpt_fs *fs, struct listener **ret_listener)
{
	struct listener *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->fs = fs;
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		l->connections[i] = -1;
	ckpt_lock_init(&l->lock, CKPT_LOCK_LEAF);
	pthread_cond_init(&l->changed, NULL);
	l->stop_fd = eventfd(0, EFD_CLOEXEC);
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = l->fd < 0 || l->stop_fd < 0 ? -errno : socket_bind(fs, l->fd);
	if (!rc && pthread_create(&l->thread, NULL, listener_thread, l))
		rc = -EAGAIN;
	if (rc) {
		listener_free(l);
		return rc;
	}
	*ret_listener = l;
	return 0;
}

void listener_stop(struct listener *l)
{
	if (!l)
		return;
	eventfd_write(l->stop_fd, 1);
	ckpt_lock_take(&l->lock);
	l->stopping = true;
	pthread_cond_broadcast(&l->changed);
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		if (l->connections[i] >= 0)
			shutdown(l->connections[i], SHUT_RD); // who is slow to ask does not hold up the end
	ckpt_lock_drop(&l->lock);
	pthread_join(l->thread, NULL);
	ckpt_lock_take(&l->lock);
	while (l->count)
		ckpt_lock_wait(&l->changed, &l->lock);
	ckpt_lock_drop(&l->lock);
	ckpt_sys.unlink(l->fs->store->dirfd, CKPT_SOCKET_FILE, 0);
	listener_free(l);
}

#include "fs/control.h"

#include "core/delete.h"
#include "core/errlog.h"
#include "core/stage.h"
#include "core/sys.h"
#include "core/util.h"
#include "fs/attr.h"
#include "fs/status.h"
#include "fs/verbs.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#define SOCKET_FILE "control.sock"
#define REQUEST_BYTES_MAX 65536
#define REPLY_BYTES_MAX (64 << 20)
#define SOCKET_TIMEOUT_S 30

static const struct {
	const char *name;
	mode_t type;
	enum control_piece in;
} pieces[CONTROL_PIECES] = {
	[CONTROL_DIR] = {CKPT_CONTROL_NAME, S_IFDIR, CONTROL_NONE},
	[CONTROL_STATUS] = {"status", S_IFREG, CONTROL_DIR},
	[CONTROL_STATUS_JSON] = {"status.json", S_IFREG, CONTROL_DIR},
	[CONTROL_ERRORS] = {"errors", S_IFREG, CONTROL_DIR},
	[CONTROL_STAGED] = {"staged", S_IFDIR, CONTROL_DIR},
	[CONTROL_TRASH] = {"trash", S_IFDIR, CONTROL_DIR},
};

// --- Nodes ------------------------------------------------------------------------------------------------------------

static int piece_node(struct ckpt_fs *fs, enum control_piece piece, struct node *parent, struct node **ret_node)
{
	return node_get(fs, SPACE_CONTROL, (uint64_t)piece, pieces[piece].type, parent, pieces[piece].name, NULL,
			ret_node);
}

int control_dir(struct ckpt_fs *fs, struct node **ret_node)
{
	return piece_node(fs, CONTROL_DIR, node_root(fs), ret_node);
}

// Left-over sessions may share a name; then all but the first carry the beginning of their id.
static void left_name(struct ckpt_step **steps, size_t i, char *buf, size_t cap)
{
	const char *name = *steps[i]->name ? steps[i]->name : steps[i]->session;
	bool first = i == 0 || strcmp(steps[i]->name, steps[i - 1]->name) || !*steps[i]->name;

	if (first)
		snprintf(buf, cap, "%s", name);
	else
		snprintf(buf, cap, "%.240s.%.8s", name, steps[i]->session);
}

static int by_name(const void *a, const void *b)
{
	const struct ckpt_step *x = *(struct ckpt_step *const *)a, *y = *(struct ckpt_step *const *)b;
	int order = strcmp(x->name, y->name);

	return order ? order : strcmp(x->session, y->session);
}

// In the order that gives them their names here. What is left over is never renamed.
static int list_left(struct ckpt_fs *fs, struct ckpt_step ***ret_steps, size_t *ret_count)
{
	int rc = ckpt_step_list(fs->store, NULL, 1u << CKPT_STEP_LEFT, ret_steps, ret_count);

	if (!rc && *ret_count)
		qsort(*ret_steps, *ret_count, sizeof(**ret_steps), by_name);
	return rc;
}

static int left_node(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	struct ckpt_step **steps;
	char have[CKPT_NAME_MAX + 1];
	struct statx stx;
	size_t count;
	int rc = list_left(fs, &steps, &count);

	if (rc)
		return rc;
	rc = -ENOENT;
	for (size_t i = 0; i < count && rc == -ENOENT; i++) {
		left_name(steps, i, have, sizeof(have));
		if (strcmp(have, name))
			continue;
		pthread_mutex_lock(&steps[i]->lock); // who drops it closes the descriptor
		rc = statx(steps[i]->dirfd, "", AT_EMPTY_PATH, CKPT_STATX_WANT, &stx) ? -ESTALE : 0;
		pthread_mutex_unlock(&steps[i]->lock);
		if (!rc)
			rc = node_get(fs, SPACE_LIVE, ckpt_store_ino(&stx), S_IFDIR, dir, name, steps[i], ret_node);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

static int deleted_node(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	struct ckpt_step **steps;
	char have[CKPT_NAME_MAX + 1];
	size_t count;
	int rc = ckpt_deleted_list(fs->store, &steps, &count);

	if (rc)
		return rc;
	rc = -ENOENT;
	for (size_t i = 0; i < count && rc == -ENOENT; i++) {
		ckpt_deleted_label(steps, i, have, sizeof(have));
		if (!strcmp(have, name))
			rc = node_get(fs, node_space(steps[i]), steps[i]->summary.dir_ino, S_IFDIR, dir, name, steps[i],
				      ret_node);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

int control_lookup(struct ckpt_fs *fs, struct node *dir, const char *name, struct node **ret_node)
{
	if (dir->control == CONTROL_STAGED)
		return left_node(fs, dir, name, ret_node);
	if (dir->control == CONTROL_TRASH)
		return deleted_node(fs, dir, name, ret_node);
	for (int i = 1; i < CONTROL_PIECES; i++)
		if ((int)pieces[i].in == dir->control && !strcmp(pieces[i].name, name))
			return piece_node(fs, (enum control_piece)i, dir, ret_node);
	return -ENOENT;
}

int control_attr(struct node *n, struct stat *ret_attr, double *ret_timeout)
{
	bool dir = S_ISDIR(n->type);
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*ret_attr = (struct stat){
		.st_ino = UINT64_MAX - n->number,
		.st_mode = n->type | (dir ? 0555 : 0444),
		.st_nlink = dir ? 2 : 1,
		.st_uid = geteuid(),
		.st_gid = getegid(),
		.st_blksize = 4096,
		.st_atim = now,
		.st_mtim = now,
		.st_ctim = now,
	};
	*ret_timeout = TIMEOUT_NONE;
	return 0;
}

int control_text(struct ckpt_fs *fs, struct node *n, char **ret_text, size_t *ret_len)
{
	char *text = NULL;

	switch ((enum control_piece)n->control) {
	case CONTROL_STATUS:
		text = status_text(fs);
		break;
	case CONTROL_STATUS_JSON:
		text = status_json(fs);
		break;
	case CONTROL_ERRORS:
		if (ckpt_errlog_text(fs->store->errlog, &text))
			text = NULL;
		break;
	default:
		return -EISDIR;
	}
	if (!text)
		return -ENOMEM;
	*ret_text = text;
	*ret_len = strlen(text);
	return 0;
}

int control_each(struct ckpt_fs *fs, struct node *dir, control_name_fn *fn, void *arg)
{
	bool staged = dir->control == CONTROL_STAGED;
	struct ckpt_step **steps;
	char name[CKPT_NAME_MAX + 1];
	size_t count;
	int rc = 0;

	if (!staged && dir->control != CONTROL_TRASH) {
		for (int i = 1; i < CONTROL_PIECES && !rc; i++)
			if ((int)pieces[i].in == dir->control)
				rc = fn(arg, pieces[i].name, pieces[i].type, UINT64_MAX - (uint64_t)i);
		return rc;
	}
	rc = staged ? list_left(fs, &steps, &count) : ckpt_deleted_list(fs->store, &steps, &count);
	if (rc)
		return rc;
	for (size_t i = 0; i < count && !rc; i++) {
		if (staged)
			left_name(steps, i, name, sizeof(name));
		else
			ckpt_deleted_label(steps, i, name, sizeof(name));
		rc = fn(arg, name, S_IFDIR, steps[i]->incarnation);
	}
	ckpt_step_list_free(steps, count);
	return rc;
}

// --- The socket -------------------------------------------------------------------------------------------------------

struct control_socket {
	struct ckpt_fs *fs;
	int fd, stop_fd;
	pthread_t thread;
	pthread_mutex_t lock;
	// Guarded by lock.
	int serving; // the connection, -1 none
	bool stopping;
};

// A socket's path may have 107 bytes, a store's many more: the way through the descriptor is short.
static void socket_address(int dirfd, struct sockaddr_un *ret_address)
{
	*ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%s", dirfd, SOCKET_FILE);
}

static bool peer_is_allowed(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && (peer.uid == 0 || peer.uid == geteuid());
}

static void set_timeouts(int fd)
{
	struct timeval limit = {.tv_sec = SOCKET_TIMEOUT_S};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int send_all(int fd, const char *text, size_t len)
{
	while (len) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n <= 0)
			return n < 0 && errno == EAGAIN ? -ETIMEDOUT : -EPIPE;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

// Up to the peer's end of sending; malloc'ed, NUL-terminated.
static int receive_all(int fd, size_t bytes_max, char **ret_text)
{
	CLEANUP_FREE char *text = NULL;
	size_t len = 0, cap = 0;

	for (;;) {
		ssize_t n;

		if (len >= bytes_max || ckpt_grow((void **)&text, &cap, len + 4096, 1))
			return -EFBIG;
		n = recv(fd, text + len, cap - len - 1, 0);
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	text[len] = '\0';
	*ret_text = TAKE_PTR(text);
	return 0;
}

static void serve_one(struct control_socket *s, int fd)
{
	CLEANUP_FREE char *request = NULL;
	CLEANUP_FREE char *reply = NULL;

	set_timeouts(fd);
	if (!peer_is_allowed(fd) || receive_all(fd, REQUEST_BYTES_MAX, &request))
		return;
	reply = verbs_answer(s->fs, request);
	if (reply)
		(void)send_all(fd, reply, strlen(reply)); // the asker left
}

// False: it is not to be served any more.
static bool serving_is(struct control_socket *s, int fd)
{
	LOCK_SCOPE(&s->lock);

	s->serving = fd;
	return !s->stopping;
}

static void *socket_thread(void *arg)
{
	struct control_socket *s = arg;
	struct pollfd wait[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};

	while (poll(wait, 2, -1) >= 0 || errno == EINTR) {
		int fd;

		if (wait[1].revents)
			break;
		fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			continue;
		if (serving_is(s, fd))
			serve_one(s, fd);
		serving_is(s, -1);
		close(fd);
	}
	return NULL;
}

static int socket_bind(struct ckpt_fs *fs, int fd)
{
	struct sockaddr_un address;

	socket_address(fs->store->dirfd, &address);
	ckpt_sys.unlink(fs->store->dirfd, SOCKET_FILE, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    fchmodat(fs->store->dirfd, SOCKET_FILE, 0600, 0) || listen(fd, 16))
		return -errno;
	return 0;
}

int control_socket_start(struct ckpt_fs *fs, struct control_socket **ret_socket)
{
	struct control_socket *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->fs = fs;
	s->serving = -1;
	pthread_mutex_init(&s->lock, NULL);
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = s->fd < 0 || s->stop_fd < 0 ? -errno : socket_bind(fs, s->fd);
	if (!rc && pthread_create(&s->thread, NULL, socket_thread, s))
		rc = -EAGAIN;
	if (rc) {
		if (s->fd >= 0)
			close(s->fd);
		if (s->stop_fd >= 0)
			close(s->stop_fd);
		free(s);
		return rc;
	}
	*ret_socket = s;
	return 0;
}

void control_socket_stop(struct control_socket *s)
{
	if (!s)
		return;
	eventfd_write(s->stop_fd, 1);
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	if (s->serving >= 0)
		shutdown(s->serving, SHUT_RDWR); // who is slow to ask does not hold up the end
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	ckpt_sys.unlink(s->fs->store->dirfd, SOCKET_FILE, 0);
	close(s->fd);
	close(s->stop_fd);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int ckpt_mount_ask(const char *store, const char *request, char **ret_reply)
{
	CLEANUP_FD int dirfd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;
	int rc;

	if (dirfd < 0 || fd < 0)
		return -errno;
	socket_address(dirfd, &address);
	set_timeouts(fd);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return errno == ECONNREFUSED ? -ENOENT : -errno;
	rc = send_all(fd, request, strlen(request));
	if (!rc && shutdown(fd, SHUT_WR))
		rc = -errno;
	if (!rc)
		rc = receive_all(fd, REPLY_BYTES_MAX, ret_reply);
	if (!rc && !**ret_reply) {
		free(TAKE_PTR(*ret_reply));
		rc = -EPROTO;
	}
	return rc;
}

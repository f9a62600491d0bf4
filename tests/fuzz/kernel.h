// What the fuzzer of requests is to a mount: its kernel. It sends requests to the real session of fs/ and checks every
// answer as the kernel would, and some more; and it keeps count of the nodes and handles that it was given.
//
// The kernel is trusted, so requests are only such as it sends: nodes and handles that it knows, files opened as files,
// offsets that add up. All else is the caller's.
#pragma once

#include "tests/fuzz/replay.h"

#include "core/base/lock.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "fs/call.h"
#include "fs/fs.h"
#include "fs/mount.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#define KERNEL_BYTES_MAX (1u << 20) // of a read, a write or a listing
#define KERNEL_NODES_MAX 64
#define KERNEL_HANDLES_MAX 16
#define KERNEL_ANSWER_NS INT64_C(30000000000)

struct known_node {
	uint64_t id, lookups;
	mode_t type;
	unsigned opens;
	uint64_t parent; // where it was found last
	char name[CKPT_NAME_MAX + 1];
};

struct known_handle {
	uint64_t fh;
	size_t node;
	uint32_t flags;
	bool dir;
};

static struct {
	struct ckpt_fs *fs;
	uint64_t unique;
	uid_t uid;
	struct known_node nodes[KERNEL_NODES_MAX]; // the root is the first
	size_t node_count;
	struct known_handle handles[KERNEL_HANDLES_MAX];
	size_t handle_count;
	bool traced;
	bool invited; // an open that was to be repeated was not: what waits for it keeps its node
	uint8_t request[KERNEL_BYTES_MAX + 4096];
	size_t len;
	// The answer to the request that is under way.
	struct ckpt_lock lock;
	pthread_cond_t came;
	uint64_t awaited; // 0: nobody waits for one
	bool answered;
	uint8_t answer[KERNEL_BYTES_MAX + 4096];
	size_t answer_len;
} kernel = {.lock = CKPT_LOCK_INIT(CKPT_LOCK_LEAF), .came = PTHREAD_COND_INITIALIZER};

// --- The device -------------------------------------------------------------------------------------------------------

static ssize_t kernel_read(int fd, void *buf, size_t len, void *userdata)
{
	(void)fd;
	(void)buf;
	(void)len;
	(void)userdata;
	abort(); // nobody reads: requests are handed in
}

static void kernel_take_answer(const struct fuse_out_header *h, const struct iovec *iov, int count)
{
	size_t at = 0;

	LOCK_SCOPE(&kernel.lock);
	fuzz_assert(h->unique == kernel.awaited && !kernel.answered); // one answer to each
	for (int i = 0; i < count; i++) {
		fuzz_assert(iov[i].iov_len <= sizeof(kernel.answer) - at);
		memcpy(kernel.answer + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	kernel.answer_len = at;
	kernel.answered = true;
	pthread_cond_signal(&kernel.came);
}

static ssize_t kernel_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fuse_out_header h;
	size_t len = 0;

	(void)fd;
	(void)userdata;
	for (int i = 0; i < count; i++)
		len += iov[i].iov_len;
	fuzz_assert(count >= 1 && iov[0].iov_len >= sizeof(h));
	memcpy(&h, iov[0].iov_base, sizeof(h));
	fuzz_assert(h.len == len);
	if (h.unique) {
		fuzz_assert(h.error <= 0 && h.error > -512 && (!h.error || len == sizeof(h)));
		kernel_take_answer(&h, iov, count);
	} else {
		fuzz_assert(h.error > 0 && h.error < FUSE_NOTIFY_CODE_MAX);
	}
	return (ssize_t)len;
}

static const struct fuse_custom_io kernel_io = {.writev = kernel_writev, .read = kernel_read};

// --- Requests ---------------------------------------------------------------------------------------------------------

static void kernel_begin(uint32_t opcode, uint64_t nodeid)
{
	struct fuse_in_header h = {.opcode = opcode,
				   .unique = kernel.unique += 2,
				   .nodeid = nodeid,
				   .uid = kernel.uid,
				   .gid = kernel.uid,
				   .pid = (uint32_t)getpid()};

	memcpy(kernel.request, &h, sizeof(h));
	kernel.len = sizeof(h);
}

static void kernel_add(const void *data, size_t len)
{
	fuzz_assert(len <= sizeof(kernel.request) - kernel.len);
	memcpy(kernel.request + kernel.len, data, len);
	kernel.len += len;
}

static void kernel_add_text(const char *text)
{
	kernel_add(text, strlen(text) + 1);
}

static void kernel_await(void)
{
	int64_t until_ns = ckpt_sys.mono_ns() + KERNEL_ANSWER_NS;

	LOCK_SCOPE(&kernel.lock);
	while (!kernel.answered) // or it hangs
		fuzz_assert(!ckpt_lock_wait_ns(&kernel.came, &kernel.lock, until_ns - ckpt_sys.mono_ns()));
	kernel.awaited = 0;
}

// With CKPT_FUZZ_TRACE in the environment each request is a line on stderr: for who has an input that failed.
static void kernel_trace(void)
{
	struct fuse_in_header in;
	size_t name = 0;

	if (!kernel.traced)
		return;
	memcpy(&in, kernel.request, sizeof(in));
	while (name < kernel.node_count && kernel.nodes[name].id != in.nodeid)
		name++;
	fprintf(stderr, "opcode %u of node %zu: ", in.opcode, name);
	for (size_t i = sizeof(in); i < MIN(kernel.len, (size_t)240); i++)
		if (kernel.request[i] > ' ' && kernel.request[i] < 0x7f)
			fputc(kernel.request[i], stderr);
	fputc('\n', stderr);
}

// Hands the request in, exactly as long as it is; with answered, waits for the answer. 0 or -errno, as it says.
static int kernel_send(bool answered)
{
	struct fuse_buf buf = {.size = kernel.len};
	struct fuse_out_header out;
	uint32_t len = (uint32_t)kernel.len;

	memcpy(kernel.request, &len, sizeof(len));
	kernel_trace();
	ckpt_lock_take(&kernel.lock);
	kernel.awaited = answered ? kernel.unique : 0;
	kernel.answered = false;
	ckpt_lock_drop(&kernel.lock);
	buf.mem = malloc(kernel.len);
	fuzz_assert(buf.mem);
	memcpy(buf.mem, kernel.request, kernel.len);
	fuse_session_process_buf(kernel.fs->se, &buf);
	free(buf.mem);
	if (!answered)
		return 0;
	kernel_await();
	memcpy(&out, kernel.answer, sizeof(out));
	if (kernel.traced)
		fprintf(stderr, "  %s\n", strerror(-out.error));
	return out.error;
}

static const void *kernel_body(size_t *ret_len)
{
	*ret_len = kernel.answer_len - sizeof(struct fuse_out_header);
	return kernel.answer + sizeof(struct fuse_out_header);
}

// The answer's body is one of these.
static void kernel_body_is(void *ret, size_t len)
{
	size_t there;
	const void *body = kernel_body(&there);

	fuzz_assert(there == len);
	memcpy(ret, body, len);
}

// --- What it knows ----------------------------------------------------------------------------------------------------

static void kernel_forget(size_t node, uint64_t lookups)
{
	struct known_node *n = &kernel.nodes[node];
	struct fuse_forget_in in = {.nlookup = lookups};

	fuzz_assert(lookups <= n->lookups);
	kernel_begin(FUSE_FORGET, n->id);
	kernel_add(&in, sizeof(in));
	(void)kernel_send(false);
	n->lookups -= lookups;
}

static void kernel_check_attr(const struct fuse_attr *a)
{
	mode_t type = a->mode & S_IFMT;

	fuzz_assert(type == S_IFREG || type == S_IFDIR || type == S_IFLNK);
	fuzz_assert(a->ino && a->size <= INT64_MAX && a->blksize);
	fuzz_assert(a->atimensec < 1000000000 && a->mtimensec < 1000000000 && a->ctimensec < 1000000000);
}

// An entry was given: one more lookup of its node. Its place; SIZE_MAX: there is no room, and it is forgotten.
static size_t kernel_learn(const struct fuse_entry_out *e)
{
	mode_t type = e->attr.mode & S_IFMT;
	size_t i, room = SIZE_MAX;

	kernel_check_attr(&e->attr);
	fuzz_assert(e->nodeid && e->nodeid != FUSE_ROOT_ID);
	fuzz_assert(e->entry_valid_nsec < 1000000000 && e->attr_valid_nsec < 1000000000);
	for (i = 1; i < kernel.node_count && (!kernel.nodes[i].lookups || kernel.nodes[i].id != e->nodeid); i++)
		if (!kernel.nodes[i].lookups && !kernel.nodes[i].opens)
			room = i;
	if (i < kernel.node_count) {
		fuzz_assert(kernel.nodes[i].type == type);
		kernel.nodes[i].lookups++;
		return i;
	}
	if (room == SIZE_MAX && kernel.node_count < KERNEL_NODES_MAX)
		room = kernel.node_count++;
	if (room == SIZE_MAX) {
		struct known_node kept = kernel.nodes[0];

		kernel.nodes[0] = (struct known_node){.id = e->nodeid, .lookups = 1, .type = type};
		kernel_forget(0, 1);
		kernel.nodes[0] = kept;
		return SIZE_MAX;
	}
	kernel.nodes[room] = (struct known_node){.id = e->nodeid, .lookups = 1, .type = type};
	return room;
}

static void kernel_found(size_t node, uint64_t parent, const char *name)
{
	if (node == SIZE_MAX)
		return;
	kernel.nodes[node].parent = parent;
	snprintf(kernel.nodes[node].name, sizeof(kernel.nodes[node].name), "%s", name);
}

static void kernel_opened(const struct fuse_open_out *out, size_t node, uint32_t flags, bool dir)
{
	fuzz_assert(out->fh && kernel.handle_count < KERNEL_HANDLES_MAX);
	kernel.handles[kernel.handle_count++] = (struct known_handle){out->fh, node, flags, dir};
	kernel.nodes[node].opens++;
}

static int kernel_flush(size_t handle)
{
	struct fuse_flush_in in = {.fh = kernel.handles[handle].fh, .lock_owner = 7};

	kernel_begin(FUSE_FLUSH, kernel.nodes[kernel.handles[handle].node].id);
	kernel_add(&in, sizeof(in));
	return kernel_send(true);
}

static void kernel_release(size_t handle)
{
	struct known_handle h = kernel.handles[handle];
	struct fuse_release_in in = {.fh = h.fh, .flags = h.flags, .lock_owner = 7};

	kernel_begin(h.dir ? FUSE_RELEASEDIR : FUSE_RELEASE, kernel.nodes[h.node].id);
	kernel_add(&in, sizeof(in));
	(void)kernel_send(true);
	kernel.nodes[h.node].opens--;
	kernel.handles[handle] = kernel.handles[--kernel.handle_count];
}

// --- A connection -----------------------------------------------------------------------------------------------------

static void kernel_init(void)
{
	uint64_t flags = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_DONT_MASK |
			 FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO |
			 FUSE_PARALLEL_DIROPS | FUSE_POSIX_ACL | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS |
			 FUSE_HANDLE_KILLPRIV | FUSE_HANDLE_KILLPRIV_V2 | FUSE_INIT_EXT | FUSE_HAS_EXPIRE_ONLY;
	struct fuse_init_in in = {.major = FUSE_KERNEL_VERSION,
				  .minor = FUSE_KERNEL_MINOR_VERSION,
				  .max_readahead = 1 << 20,
				  .flags = (uint32_t)flags,
				  .flags2 = (uint32_t)(flags >> 32)};
	struct fuse_init_out out;

	kernel_begin(FUSE_INIT, 0);
	kernel_add(&in, sizeof(in));
	fuzz_assert(!kernel_send(true));
	kernel_body_is(&out, sizeof(out));
	fuzz_assert(out.major == FUSE_KERNEL_VERSION && out.max_write == KERNEL_BYTES_MAX);
}

static void kernel_connect(const struct ckpt_mount *m)
{
	kernel.unique = 0;
	kernel.uid = getuid();
	kernel.node_count = 1;
	kernel.handle_count = 0;
	kernel.invited = false;
	kernel.traced = getenv("CKPT_FUZZ_TRACE");
	kernel.nodes[0] = (struct known_node){.id = FUSE_ROOT_ID, .type = S_IFDIR};
	fuzz_assert(!ckpt_mount_without_kernel(m, &kernel_io, open("/dev/null", O_RDWR | O_CLOEXEC), &kernel.fs));
	kernel_init();
}

// All is closed and forgotten: then the mount must have no node left.
static void kernel_disconnect(void)
{
	while (kernel.handle_count) {
		if (!kernel.handles[0].dir)
			(void)kernel_flush(0);
		kernel_release(0);
	}
	for (size_t i = 1; i < kernel.node_count; i++)
		if (kernel.nodes[i].lookups)
			kernel_forget(i, kernel.nodes[i].lookups);
	call_drain(INT64_MAX);
	fuzz_assert(kernel.invited || !node_count(kernel.fs));
	ckpt_mount_without_kernel_end(TAKE_PTR(kernel.fs));
}

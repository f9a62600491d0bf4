// Hostile requests. The input is a list of them, each a byte that chooses the operation and bytes that choose what it is
// about, out of what earlier answers have given: names, sizes, flags and contents are a client's to choose, and so are
// those here. They go to the real session of fs/ over a small store, without a mount (kernel.h).
//
// What must hold: each request has one answer, in time, of the size and form that the kernel takes; lookups add up, so that
// nothing is left when all is forgotten; and a step that no request has touched is as it was, for who opens the store
// afterwards.

#include "core/store/open.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/temp.h"

#include "core/base/sys.h"
#include "fs/log.h"

#define OPS_MAX 80

// --- Answers ----------------------------------------------------------------------------------------------------------

// Of the operations that give an entry.
static size_t send_for_entry(uint64_t parent, const char *name)
{
	struct fuse_entry_out e;
	size_t node;

	if (kernel_send(true))
		return SIZE_MAX;
	kernel_body_is(&e, sizeof(e));
	node = e.nodeid ? kernel_learn(&e) : SIZE_MAX;
	kernel_found(node, parent, name);
	return node;
}

static void send_for_attr(void)
{
	struct fuse_attr_out out;

	if (kernel_send(true))
		return;
	kernel_body_is(&out, sizeof(out));
	kernel_check_attr(&out.attr);
}

static void send_for_nothing(void)
{
	fuzz_assert(kernel_send(true) || kernel.answer_len == sizeof(struct fuse_out_header));
}

static void send_for_at_most(size_t len)
{
	fuzz_assert(kernel_send(true) || kernel.answer_len - sizeof(struct fuse_out_header) <= len);
}

static void send_for_count(size_t len)
{
	struct fuse_write_out out;

	if (kernel_send(true))
		return;
	kernel_body_is(&out, sizeof(out));
	fuzz_assert(out.size <= len);
}

// --- Names ------------------------------------------------------------------------------------------------------------

static size_t lookup(uint64_t parent, const char *name)
{
	kernel_begin(FUSE_LOOKUP, parent);
	kernel_add_text(name);
	return send_for_entry(parent, name);
}

static void op_fuzz_lookup(void)
{
	size_t dir = take_node(S_IFDIR);

	(void)lookup(node_at(dir), take_name());
}

// The kernel sends names that are too long in lookups only, which come before all else.
static void op_fuzz_lookup_long(void)
{
	char name[1024];
	size_t len = CKPT_NAME_MAX + 1 + take() * 3u;

	memset(name, 'x', sizeof(name));
	name[MIN(len, sizeof(name) - 1)] = '\0';
	fuzz_assert(lookup(node_at(take_node(S_IFDIR)), name) == SIZE_MAX);
}

static void op_fuzz_mkdir(void)
{
	struct fuse_mkdir_in in = {.mode = S_IFDIR | (0700 | take()), .umask = take()};
	const char *name;
	uint64_t parent;

	parent = node_at(take_node(S_IFDIR));
	name = take_name();
	kernel_begin(FUSE_MKDIR, parent);
	kernel_add(&in, sizeof(in));
	kernel_add_text(name);
	(void)send_for_entry(parent, name);
}

static void op_fuzz_mknod(void)
{
	static const uint32_t modes[] = {S_IFREG | 0644, S_IFIFO | 0600, S_IFCHR | 0600, S_IFSOCK, S_IFREG | 06777};
	struct fuse_mknod_in in = {.mode = take_one_of(modes), .rdev = take()};
	const char *name;
	uint64_t parent;

	parent = node_at(take_node(S_IFDIR));
	name = take_name();
	kernel_begin(FUSE_MKNOD, parent);
	kernel_add(&in, sizeof(in));
	kernel_add_text(name);
	(void)send_for_entry(parent, name);
}

static void op_fuzz_symlink(void)
{
	static const char *const targets[] = {"a", "../../../etc/passwd", "/", "latest", "\xff"};
	uint8_t which = take();
	char target[4096];
	uint64_t parent = node_at(take_node(S_IFDIR));
	const char *name = take_name();

	memset(target, 'l', sizeof(target));
	target[sizeof(target) - 1] = '\0';
	kernel_begin(FUSE_SYMLINK, parent);
	kernel_add_text(name);
	kernel_add_text(which == 255 ? target : targets[which % ARRAY_LEN(targets)]);
	(void)send_for_entry(parent, name);
}

static void op_fuzz_remove(void)
{
	bool file = take() & 1;

	kernel_begin(file ? FUSE_UNLINK : FUSE_RMDIR, node_at(take_node(S_IFDIR)));
	kernel_add_text(take_name());
	send_for_nothing();
}

static void op_fuzz_rename(void)
{
	static const uint32_t flags[] = {0, 0, 0, 1, 2, 4, 3, 0x80000000};
	struct fuse_rename2_in in = {.newdir = node_at(take_node(S_IFDIR)), .flags = take_one_of(flags)};

	kernel_begin(FUSE_RENAME2, node_at(take_node(S_IFDIR)));
	kernel_add(&in, sizeof(in));
	kernel_add_text(take_name());
	kernel_add_text(take_name());
	send_for_nothing();
}

static void op_fuzz_link(void)
{
	size_t node = take_node(S_IFREG);
	struct fuse_link_in in = {.oldnodeid = node_at(node)};
	const char *name;
	uint64_t parent;

	if (!node)
		return;
	parent = node_at(take_node(S_IFDIR));
	name = take_name();
	kernel_begin(FUSE_LINK, parent);
	kernel_add(&in, sizeof(in));
	kernel_add_text(name);
	(void)send_for_entry(parent, name);
}

static void op_fuzz_readlink(void)
{
	size_t node = take_node(S_IFLNK);

	if (!node)
		return;
	kernel_begin(FUSE_READLINK, node_at(node));
	send_for_at_most(4096);
}

static void op_fuzz_forget(void)
{
	size_t node = take_node(0);
	const struct known_node *n = &kernel.nodes[node];

	if (node && !n->opens)
		kernel_forget(node, take() & 1 ? 1 : n->lookups);
}

// --- Files ------------------------------------------------------------------------------------------------------------

static uint32_t take_flags(void)
{
	static const uint32_t modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
	static const uint32_t others[] = {0,        0,      0,         O_TRUNC,    O_TRUNC,           O_APPEND,
					  O_DIRECT, O_SYNC, O_NOATIME, O_NONBLOCK, O_TRUNC | O_APPEND};

	uint32_t flags = take_one_of(modes);

	flags |= take_one_of(others);
	return flags | O_LARGEFILE;
}

static void op_fuzz_create(void)
{
	struct fuse_create_in in = {.flags = take_flags() | O_CREAT | (take() & 3 ? 0 : O_EXCL),
				    .mode = S_IFREG | (0600 | take()),
				    .umask = 022};
	struct {
		struct fuse_entry_out e;
		struct fuse_open_out open;
	} out;
	const char *name;
	uint64_t parent;
	size_t node;

	if (kernel.handle_count == KERNEL_HANDLES_MAX)
		return;
	parent = node_at(take_node(S_IFDIR));
	name = take_name();
	kernel_begin(FUSE_CREATE, parent);
	kernel_add(&in, sizeof(in));
	kernel_add_text(name);
	if (kernel_send(true))
		return;
	kernel_body_is(&out, sizeof(out));
	node = kernel_learn(&out.e);
	kernel_found(node, parent, name);
	fuzz_assert(node != SIZE_MAX && kernel.nodes[node].type == S_IFREG);
	kernel_opened(&out.open, node, in.flags, false);
}

static int try_open(size_t node, uint32_t flags, bool dir)
{
	struct fuse_open_in in = {.flags = flags};
	struct fuse_open_out out;
	int rc;

	kernel_begin(dir ? FUSE_OPENDIR : FUSE_OPEN, node_at(node));
	kernel_add(&in, sizeof(in));
	rc = kernel_send(true);
	if (rc)
		return rc;
	kernel_body_is(&out, sizeof(out));
	kernel_opened(&out, node, flags, dir);
	return 0;
}

// ESTALE: the kernel looks the name up again and opens what is there now. Not if its thread is killed meanwhile.
static void open_node(size_t node, uint32_t flags, bool dir, bool killed)
{
	size_t now = SIZE_MAX, parent = 0;

	if (kernel.handle_count == KERNEL_HANDLES_MAX || try_open(node, flags, dir) != -ESTALE)
		return;
	while (parent < kernel.node_count &&
	       (kernel.nodes[parent].id != kernel.nodes[node].parent || (parent && !kernel.nodes[parent].lookups)))
		parent++;
	if (!killed && parent < kernel.node_count)
		now = lookup(node_at(parent), kernel.nodes[node].name);
	if (now == SIZE_MAX || kernel.nodes[now].type != (dir ? S_IFDIR : S_IFREG) || try_open(now, flags, dir))
		kernel.invited = true;
}

static void op_fuzz_open(void)
{
	size_t node = take_node(S_IFREG);
	uint32_t flags = take_flags();

	if (node)
		open_node(node, flags, false, flags & O_SYNC); // as good as any other to say so
}

static void op_fuzz_opendir(void)
{
	open_node(take_node(S_IFDIR), O_RDONLY | O_DIRECTORY, true, false);
}

static void op_fuzz_read(void)
{
	size_t handle = take_handle(READS);
	struct fuse_read_in in = {.size = take_len()};

	if (handle == SIZE_MAX)
		return;
	in.fh = kernel.handles[handle].fh;
	in.flags = kernel.handles[handle].flags;
	in.offset = take_offset(in.size);
	kernel_begin(FUSE_READ, node_at(kernel.handles[handle].node));
	kernel_add(&in, sizeof(in));
	send_for_at_most(in.size);
}

static void write_at(size_t handle, uint64_t offset, const void *data, size_t len, uint32_t flags)
{
	struct fuse_write_in in = {.fh = kernel.handles[handle].fh,
				   .offset = offset,
				   .size = (uint32_t)len,
				   .write_flags = flags,
				   .flags = kernel.handles[handle].flags};

	kernel_begin(FUSE_WRITE, node_at(kernel.handles[handle].node));
	kernel_add(&in, sizeof(in));
	kernel_add(data, len);
	send_for_count(len);
}

static void op_fuzz_write(void)
{
	static char pattern[KERNEL_BYTES_MAX];
	size_t handle = take_handle(WRITES), len;
	uint8_t how = take();
	uint32_t flags = how & 8 ? FUSE_WRITE_KILL_SUIDGID : how & 16 ? FUSE_WRITE_CACHE : 0;
	const char *text;

	if (handle == SIZE_MAX)
		return;
	if ((how & 7) < 4) {
		text = take_one_of(texts);
		write_at(handle, 0, text, strlen(text), flags);
	} else if ((how & 7) == 4) { // bytes of the input's
		len = MIN((size_t)take(), input_len);
		if (!len)
			return;
		write_at(handle, 0, input, len, flags);
		input += len;
		input_len -= len;
	} else {
		len = take_len();
		memset(pattern, 'p', len);
		write_at(handle, take_offset(len), pattern, len, flags);
	}
}

static void op_fuzz_flush(void)
{
	size_t handle = take_handle(ANY_FILE);

	if (handle != SIZE_MAX)
		(void)kernel_flush(handle);
}

static void op_fuzz_close(void)
{
	uint8_t how = take();
	size_t handle = take_handle(how & 1 ? DIRECTORY : ANY_FILE);

	if (handle == SIZE_MAX)
		return;
	if (!(how & 1) && (how & 6)) // a process that was killed is flushed too, but a request may be lost with it
		(void)kernel_flush(handle);
	kernel_release(handle);
}

static void op_fuzz_fsync(void)
{
	uint8_t how = take();
	size_t handle = take_handle(how & 1 ? DIRECTORY : ANY_FILE);
	struct fuse_fsync_in in = {.fsync_flags = how >> 1 & 1};

	if (handle == SIZE_MAX)
		return;
	in.fh = kernel.handles[handle].fh;
	kernel_begin(how & 1 ? FUSE_FSYNCDIR : FUSE_FSYNC, node_at(kernel.handles[handle].node));
	kernel_add(&in, sizeof(in));
	send_for_nothing();
}

static void op_fuzz_fallocate(void)
{
	size_t handle = take_handle(WRITES);
	struct fuse_fallocate_in in = {.length = take_len(), .mode = take()};

	if (handle == SIZE_MAX)
		return;
	in.fh = kernel.handles[handle].fh;
	in.offset = take_offset(in.length);
	kernel_begin(FUSE_FALLOCATE, node_at(kernel.handles[handle].node));
	kernel_add(&in, sizeof(in));
	send_for_nothing();
}

static void op_fuzz_copy(void)
{
	size_t from = take_handle(READS), to = take_handle(WRITES);
	struct fuse_copy_file_range_in in = {.len = take() ? take_len() : UINT32_MAX};

	if (from == SIZE_MAX || to == SIZE_MAX)
		return;
	in.fh_in = kernel.handles[from].fh;
	in.fh_out = kernel.handles[to].fh;
	in.nodeid_out = node_at(kernel.handles[to].node);
	in.off_in = take_offset(in.len);
	in.off_out = take_offset(in.len);
	kernel_begin(FUSE_COPY_FILE_RANGE, node_at(kernel.handles[from].node));
	kernel_add(&in, sizeof(in));
	send_for_count(in.len);
}

static void op_fuzz_lseek(void)
{
	size_t handle = take_handle(ANY_FILE);
	struct fuse_lseek_in in = {.whence = take() & 1 ? SEEK_DATA : SEEK_HOLE};

	if (handle == SIZE_MAX)
		return;
	in.fh = kernel.handles[handle].fh;
	in.offset = take_offset(0);
	kernel_begin(FUSE_LSEEK, node_at(kernel.handles[handle].node));
	kernel_add(&in, sizeof(in));
	send_for_at_most(sizeof(struct fuse_lseek_out));
}

// --- Directories ------------------------------------------------------------------------------------------------------

static void check_dirent(const struct fuse_dirent *d, const uint8_t *name, size_t room)
{
	fuzz_assert(d->ino && d->namelen && d->namelen <= MIN(room, (size_t)CKPT_NAME_MAX));
	fuzz_assert(!memchr(name, '/', d->namelen) && !memchr(name, 0, d->namelen));
}

// The names of a listing; those of the plus form are each looked up by it, but for `.` and `..`.
static void walk_listing(bool plus)
{
	size_t len, head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS - FUSE_NAME_OFFSET : 0;
	const uint8_t *at = kernel_body(&len);

	while (len) {
		struct fuse_entry_out e;
		struct fuse_dirent d;
		size_t size;

		fuzz_assert(len >= head + FUSE_NAME_OFFSET);
		memcpy(&d, at + head, FUSE_NAME_OFFSET);
		check_dirent(&d, at + head + FUSE_NAME_OFFSET, len - head - FUSE_NAME_OFFSET);
		size = FUSE_DIRENT_ALIGN(head + FUSE_NAME_OFFSET + d.namelen);
		fuzz_assert(size <= len);
		memcpy(&e, at, sizeof(e) * plus);
		if (plus && e.nodeid) {
			const char *name = (const char *)at + head + FUSE_NAME_OFFSET;
			bool dots = name[0] == '.' && (d.namelen == 1 || (d.namelen == 2 && name[1] == '.'));
			size_t node = dots ? SIZE_MAX : kernel_learn(&e);

			if (node != SIZE_MAX && d.namelen == strlen(KEPT) && !memcmp(name, KEPT, d.namelen))
				kernel_forget(node, 1); // nobody goes there
		}
		at += size;
		len -= size;
	}
}

static void op_fuzz_readdir(void)
{
	static const uint32_t sizes[] = {4096, 65536, 1, 24, 100, 200, 1 << 20};
	static const uint64_t offsets[] = {0, 0, 0, 1, 2, 3, 1000, UINT32_MAX, INT64_MAX};
	size_t handle = take_handle(DIRECTORY);
	struct fuse_read_in in = {.size = take_one_of(sizes), .offset = take_one_of(offsets)};
	bool plus = take() & 1;
	size_t len;

	if (handle == SIZE_MAX)
		return;
	in.fh = kernel.handles[handle].fh;
	kernel_begin(plus ? FUSE_READDIRPLUS : FUSE_READDIR, node_at(kernel.handles[handle].node));
	kernel_add(&in, sizeof(in));
	if (kernel_send(true))
		return;
	(void)kernel_body(&len);
	fuzz_assert(len <= in.size);
	walk_listing(plus);
}

// --- Attributes -------------------------------------------------------------------------------------------------------

static void op_fuzz_getattr(void)
{
	struct fuse_getattr_in in = {0};
	size_t node = take_node(0), handle = take_handle(ANY_FILE);

	if (take() & 1 && handle != SIZE_MAX) {
		node = kernel.handles[handle].node;
		in.getattr_flags = FUSE_GETATTR_FH;
		in.fh = kernel.handles[handle].fh;
	}
	kernel_begin(FUSE_GETATTR, node_at(node));
	kernel_add(&in, sizeof(in));
	send_for_attr();
}

static void op_fuzz_setattr(void)
{
	static const uint64_t sizes[] = {0, 0, 1, 4096, 100000, UINT64_C(1) << 40, INT64_MAX};
	struct fuse_setattr_in in = {.valid = take() | (uint32_t)(take() & 0x0f) << 8,
				     .mode = take() | (uint32_t)(take() & 0x0f) << 8,
				     .size = take_one_of(sizes),
				     .mtime = take() & 1 ? UINT64_MAX : take(),
				     .atime = take(),
				     .mtimensec = 999999999,
				     .uid = take() & 1 ? kernel.uid : 12345,
				     .gid = kernel.uid};
	size_t handle = take_handle(WRITES), node = take_node(0);
	mode_t type;

	in.valid &= ~(uint32_t)FATTR_FH;
	if (take() & 1 && handle != SIZE_MAX) {
		node = kernel.handles[handle].node;
		in.valid |= FATTR_FH;
		in.fh = kernel.handles[handle].fh;
	}
	type = kernel.nodes[node].type;
	if (type != S_IFREG)
		in.valid &= ~(uint32_t)FATTR_SIZE;
	if (type == S_IFLNK)
		in.valid &= ~(uint32_t)FATTR_MODE;
	in.mode |= type;
	kernel_begin(FUSE_SETATTR, node_at(node));
	kernel_add(&in, sizeof(in));
	send_for_attr();
}

static const char *take_xattr_name(void)
{
	static const char *const xattrs[] = {
		"user.a",
		"user.ckptfs.sha256",
		"user.ckptfs.shared",
		"user.ckptfs.added",
		"user.ckptfs.folder",
		"user.ckptfs.session",
		"user.ckptfs.stored_bytes",
		"user.ckptfs.",
		"user.",
		"security.capability",
		"system.posix_acl_access",
		"system.posix_acl_default",
		"trusted.overlay.opaque",
		"none",
		"user.\xff",
	};
	static char longest[256];
	uint8_t which = take();

	if (which < 250)
		return xattrs[which % ARRAY_LEN(xattrs)];
	memset(longest, 'u', sizeof(longest) - 1);
	memcpy(longest, "user.", 5);
	return longest;
}

static void op_fuzz_setxattr(void)
{
	static const char value[65536];
	static const uint32_t lens[] = {0, 1, 16, 255, 4096, 65536};
	struct {
		uint32_t size, flags;
	} in = {.size = take_one_of(lens), .flags = take() % 4};

	kernel_begin(FUSE_SETXATTR, node_at(take_node(0)));
	kernel_add(&in, sizeof(in)); // of the size that it has without FUSE_SETXATTR_EXT
	kernel_add_text(take_xattr_name());
	kernel_add(value, in.size);
	send_for_nothing();
}

static void op_fuzz_getxattr(void)
{
	static const uint32_t sizes[] = {0, 1, 16, 64, 4096, 65536};
	struct fuse_getxattr_in in = {.size = take_one_of(sizes)};
	bool lists = take() & 1;

	kernel_begin(lists ? FUSE_LISTXATTR : FUSE_GETXATTR, node_at(take_node(0)));
	kernel_add(&in, sizeof(in));
	if (!lists)
		kernel_add_text(take_xattr_name());
	send_for_at_most(in.size ? in.size : sizeof(struct fuse_getxattr_out));
}

static void op_fuzz_removexattr(void)
{
	kernel_begin(FUSE_REMOVEXATTR, node_at(take_node(0)));
	kernel_add_text(take_xattr_name());
	send_for_nothing();
}

static void op_fuzz_access(void)
{
	struct fuse_access_in in = {.mask = take() & 7};

	kernel_begin(FUSE_ACCESS, node_at(take_node(0)));
	kernel_add(&in, sizeof(in));
	send_for_nothing();
}

static void op_fuzz_statfs(void)
{
	kernel_begin(FUSE_STATFS, node_at(take_node(0)));
	send_for_at_most(sizeof(struct fuse_statfs_out));
}

// What is refused, or not known at all: with a body that is long enough for any.
static void op_fuzz_others(void)
{
	static const uint32_t opcodes[] = {FUSE_IOCTL,        FUSE_POLL,        FUSE_GETLK,  FUSE_SETLK,
					   FUSE_SETLKW,       FUSE_BMAP,        FUSE_SYNCFS, FUSE_TMPFILE,
					   FUSE_SETUPMAPPING, FUSE_TMPFILE + 1, 4095,        0};
	static const uint8_t body[512];
	size_t handle = take_handle(ANY_FILE);
	uint32_t opcode = take_one_of(opcodes);

	if (handle == SIZE_MAX)
		return;
	kernel_begin(opcode, node_at(kernel.handles[handle].node));
	kernel_add(&kernel.handles[handle].fh, sizeof(uint64_t));
	kernel_add(body, sizeof(body));
	send_for_at_most(0);
}

// --- Runs -------------------------------------------------------------------------------------------------------------

static void (*const ops[])(void) = {
	op_fuzz_lookup,   op_fuzz_create,    op_fuzz_write,  op_fuzz_close,   op_fuzz_mkdir,       op_fuzz_open,
	op_fuzz_read,     op_fuzz_rename,    op_fuzz_remove, op_fuzz_flush,   op_fuzz_opendir,     op_fuzz_readdir,
	op_fuzz_setattr,  op_fuzz_getattr,   op_fuzz_link,   op_fuzz_symlink, op_fuzz_readlink,    op_fuzz_setxattr,
	op_fuzz_getxattr, op_fuzz_fallocate, op_fuzz_copy,   op_fuzz_lseek,   op_fuzz_fsync,       op_fuzz_forget,
	op_fuzz_mknod,    op_fuzz_access,    op_fuzz_statfs, op_fuzz_others,  op_fuzz_removexattr, op_fuzz_lookup_long,
};

static char store_path[PATH_MAX];
static struct ckpt_mount mount_options = {.store = store_path, .mountpoint = "/nowhere", .no_passthrough = true};

static void must_be_made(size_t node)
{
	fuzz_assert(node != SIZE_MAX);
}

static void create_file(size_t dir, const char *name, const char *text)
{
	struct fuse_create_in in = {.flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0644};
	struct {
		struct fuse_entry_out e;
		struct fuse_open_out open;
	} out;

	kernel_begin(FUSE_CREATE, node_at(dir));
	kernel_add(&in, sizeof(in));
	kernel_add_text(name);
	fuzz_assert(!kernel_send(true));
	kernel_body_is(&out, sizeof(out));
	kernel_opened(&out.open, kernel_learn(&out.e), in.flags, false);
	if (*text)
		write_at(0, 0, text, strlen(text), 0);
	fuzz_assert(!kernel_flush(0));
	kernel_release(0);
}

// A step as a client makes one.
static void make_step(const char *name)
{
	struct fuse_mkdir_in in = {.mode = S_IFDIR | 0755};
	size_t dir;

	kernel_begin(FUSE_MKDIR, FUSE_ROOT_ID);
	kernel_add(&in, sizeof(in));
	kernel_add_text(name);
	dir = send_for_entry(FUSE_ROOT_ID, name);
	must_be_made(dir);
	create_file(dir, "model.bin", name);
	create_file(dir, "a", "");
	create_file(dir, ".finalize", "");
	for (size_t i = 1; i < kernel.node_count; i++)
		if (kernel.nodes[i].lookups)
			kernel_forget(i, kernel.nodes[i].lookups);
}

static void check_kept(void)
{
	struct ckpt_manifest *m;
	struct ckpt_store *s;
	struct ckpt_step *step;
	uint32_t index;
	char text[sizeof(KEPT) + 1] = "";
	int fd;

	fuzz_assert(!ckpt_store_open(store_path, CKPT_STORE_READ, NULL, &s));
	step = ckpt_step_find(s, "", KEPT);
	fuzz_assert(step && ckpt_step_state(step) == CKPT_STEP_COMMITTED && step->version->is.version == 1);
	fuzz_assert(!ckpt_step_manifest(step, &m) && ckpt_manifest_count(m) == 3);
	fuzz_assert(!ckpt_manifest_lookup(m, "model.bin", &index) && !ckpt_step_open_raw(step, m, index, &fd));
	fuzz_assert(read(fd, text, sizeof(text)) == (ssize_t)strlen(KEPT) && !strcmp(text, KEPT));
	close(fd);
	ckpt_manifest_unref(m);
	ckpt_step_unref(step);
	ckpt_store_close(s);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	fuzz_temp_init();
	snprintf(store_path, sizeof(store_path), "%.*s/store", PATH_MAX - 16, fuzz_temp);
	fuzz_assert(!log_open("/dev/null", "error"));
	umask(0);
	ckpt_settings_init(&mount_options.settings);
	// Nothing comes to wait for, since one request has its answer before the next.
	mount_options.settings.open_writers_ns = 1000000;
	mount_options.settings.seal = false; // a version more, sooner or later
	mount_options.settings.commit_quiet_ns = 20000000;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_assert(!ckpt_store_init(store_path));
	input = data;
	input_len = len;
	kernel_connect(&mount_options);
	make_step(KEPT);
	make_step("1000");
	for (int i = 0; i < OPS_MAX && input_len; i++)
		ops[take() % ARRAY_LEN(ops)]();
	kernel_disconnect();
	check_kept();
	ckpt_temp_empty(store_path, 1);
	return 0;
}

// The operations that libfuse calls, by the files that hold them. All answer their request exactly once.
#pragma once

#include "fs/fs.h"

// ops_lookup.c
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t lookups);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
// ops_name.c
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
// ops_remove.c
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
// ops_rename.c
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
	       unsigned flags);
// ops_file.c
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t offset, struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in, struct fuse_file_info *fi_in,
			fuse_ino_t ino_out, off_t off_out, struct fuse_file_info *fi_out, size_t len, int flags);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi);
// ops_dir.c
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi);
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
// ops_attr.c
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_access(fuse_req_t req, fuse_ino_t ino, int mask);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi);
void op_statfs(fuse_req_t req, fuse_ino_t ino);
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

// The attributes of a node, as the answer of a request.
void reply_attr(struct ckpt_fs *fs, fuse_req_t req, struct node *n);
// The child of this name, with one more lookup, its attributes and how long they hold: what LOOKUP, and everything that
// makes a name, answers. -ENOENT.
int lookup_child(struct ckpt_fs *fs, struct node *parent, const char *name, struct fuse_entry_param *ret_entry);
// What has a name in a live tree: under p, which is the place of parent, and open as dirfd.
struct live_child {
	struct statx stx;
	uint64_t number; // of its node in SPACE_LIVE
	bool shared;     // core/save/share.h
};
struct place;
int stat_live_child(struct node *parent, const struct place *p, int dirfd, const char *name,
		    struct live_child *ret_child);
// The same where the caller knows that no rename is under way in it: the kernel has locked it for him.
int look_at_child(struct ckpt_fs *fs, struct node *parent, int dirfd, const char *name, struct live_child *ret_child);
// O_PATH on what is about to lose this name, when that is its last one (node_keep_locked); -1: it is not, or cannot be had.
int open_last_name(int dirfd, const char *name, const struct live_child *child);
// For ops_name.c: the entry of a step, with one more lookup; what the kernel is told of a live file.
int lookup_step(struct ckpt_fs *fs, struct node *parent, const char *name, struct ckpt_step *step,
		struct fuse_entry_param *e);
void fill_live(struct ckpt_fs *fs, const struct node *n, const struct statx *stx, struct fuse_entry_param *ret_entry);
// As lookup_child, of what stands under the name in a live tree, on its disk.
int lookup_live(struct ckpt_fs *fs, struct node *parent, const char *name, struct fuse_entry_param *ret_entry);
// A file that was just made under this name in a live tree, and is open as fd: given to the client, then as lookup_child.
int adopt_created(struct ckpt_fs *fs, fuse_req_t req, struct node *parent, int dirfd, const char *name, int fd,
		  struct fuse_entry_param *ret_entry);
// The same of one that is the client's already.
int adopt_file(struct ckpt_fs *fs, struct node *parent, const char *name, int fd, struct fuse_entry_param *ret_entry);
// What was made under this name in an open directory is the client's.
int give_to_client(fuse_req_t req, int dirfd, const char *name);
// What a new name in this place must be: 0, or an errno of ckpt_name_check; -EPERM for names that are ours.
int check_new_name(struct ckpt_fs *fs, struct node *parent, struct ckpt_step *step, const char *name);
// Whether a directory of this name, made in the directory dir, begins a step; in a directory of a step: would, if that were a
// plain folder. 0, or why it cannot be said.
int names_step(struct ckpt_fs *fs, struct node *dir, const char *name, bool *ret_step);

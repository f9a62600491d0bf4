// Where verbs reach the mount: the socket in the store's directory, and threads that answer them (verbs.h) until stopped.
#pragma once

struct ckpt_fs;
struct listener;

int listener_start(struct ckpt_fs *fs, struct listener **ret_listener); // 0, -ENOMEM, -EAGAIN, or what the disk says
// Waits for those that are being answered. NULL is fine.
void listener_stop(struct listener *l);

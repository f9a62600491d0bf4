// Asking the process that has a store mounted: one JSON object each way, through the socket "control.sock" in the store's
// directory. That process alone may write to the store, so who would change something asks it.
//
// Threads: any. Blocks for as long as the answer takes: so many seconds at most (CKPT_SOCKET_PATIENT: while that process lives).
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define CKPT_SOCKET_PATIENT 0
#define CKPT_SOCKET_TIMEOUT_S 30 // for what is answered at once

// -ENOENT: nobody has the store mounted; -ETIMEDOUT; -EPROTO; -EACCES it is somebody else's. *ret_reply is malloc'ed JSON text.
int ckpt_ask(const char *store, const char *request, int seconds, char **ret_reply);
// The same, patiently, of what takes long: progress hears meanwhile how many more bytes are done, now and then, also that none are.
int ckpt_ask_at_length(const char *store, const char *request, void (*progress)(uint64_t bytes), char **ret_reply);
// The same of an object, which is taken (NULL: there was no memory for it), and an object. -ENOTCONN: nobody has the store mounted.
// What the mount refused is the error that it names, -EREMOTEIO where it names none; *ret_why is what it says to that (malloc'ed,
// else NULL; ret_why NULL: not wanted).
int ckpt_ask_json(const char *store, json_t *request, int seconds, json_t **ret_reply, char **ret_why);

// --- Both ends (fs/listener.c has the other) ----------------------------------------------------------------------------

#define CKPT_SOCKET_FILE "control.sock"

// Where it is, by way of the store's directory: a socket's path may have 107 bytes, a store's many more.
void ckpt_socket_address(int dirfd, struct sockaddr_un *ret_address);
void ckpt_socket_timeouts(int fd, int seconds);             // 0: none
int ckpt_socket_send(int fd, const char *text, size_t len); // 0, -ETIMEDOUT, -EPIPE
// Up to the peer's end of sending; malloc'ed, NUL-terminated. Lines before it that say how far it is, "+1048576", are told to
// progress (NULL: there are none). 0; -EFBIG, no memory is that too; -ETIMEDOUT ...
int ckpt_socket_receive(int fd, size_t bytes_max, void (*progress)(uint64_t bytes), char **ret_text);

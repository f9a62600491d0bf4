#include "core/base/actor.h"

#include "core/base/proc.h"
#include "core/base/utf8.h"
#include "core/base/util.h"

#include <unistd.h>

#define RAW_BYTES 64 // of /proc/PID/comm

static _Thread_local struct ckpt_actor_scope now;
static char process_comm[CKPT_COMM_BYTES + 1];

// Controls (C0, DEL, C1), and what breaks a line or turns its direction: U+2028 to U+202E, U+2066 to U+2069.
static bool is_printable(const uint8_t *p, size_t len)
{
	if (len == 1)
		return p[0] >= 0x20 && p[0] != 0x7f;
	if (len == 2)
		return p[0] != 0xc2 || p[1] >= 0xa0;
	if (len != 3 || p[0] != 0xe2)
		return true;
	return !(p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) && !(p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);
}

// Bytes of the printable character that text begins with; 0: it begins with none.
static size_t character(const char *text, size_t len)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t bytes = ckpt_utf8_sequence(p, len);

	return bytes && is_printable(p, bytes) ? bytes : 0;
}

bool ckpt_comm_check(const char comm[CKPT_COMM_BYTES + 1])
{
	size_t len = strnlen(comm, CKPT_COMM_BYTES + 1), bytes;

	for (size_t i = len; i <= CKPT_COMM_BYTES; i++)
		if (comm[i])
			return false;
	for (size_t i = 0; i < len; i += bytes) {
		bytes = character(comm + i, len - i);
		if (!bytes)
			return false;
	}
	return len <= CKPT_COMM_BYTES;
}

void ckpt_comm_clean(const char *text, char ret_comm[CKPT_COMM_BYTES + 1])
{
	size_t left = strnlen(text, CKPT_COMM_BYTES);
	char *out = ret_comm;

	memset(ret_comm, 0, CKPT_COMM_BYTES + 1);
	while (left) {
		size_t len = character(text, left);

		out = len ? mempcpy(out, text, len) : mempcpy(out, "?", 1);
		len = MAX(len, (size_t)1);
		text += len;
		left -= len;
	}
}

static void read_comm(pid_t tid, char ret_comm[CKPT_COMM_BYTES + 1])
{
	char raw[RAW_BYTES];

	if (ckpt_proc_comm(tid, raw, sizeof(raw)))
		ckpt_comm_clean(raw, ret_comm);
}

struct ckpt_actor ckpt_actor_get(void)
{
	struct ckpt_actor actor = now.actor;

	if (now.is_set) {
		if (now.tid)
			read_comm(now.tid, actor.comm);
		return actor;
	}
	actor.uid = geteuid();
	memcpy(actor.comm, process_comm, sizeof(actor.comm));
	if (!*actor.comm)
		read_comm(getpid(), actor.comm);
	return actor;
}

struct ckpt_actor_scope ckpt_actor_set(const struct ckpt_actor *actor)
{
	struct ckpt_actor_scope was = now;

	now = (struct ckpt_actor_scope){.is_set = true, .actor = *actor};
	return was;
}

struct ckpt_actor_scope ckpt_actor_set_client(uint32_t uid, pid_t tid)
{
	struct ckpt_actor_scope was = now;

	now = (struct ckpt_actor_scope){.is_set = true, .tid = tid, .actor = {.uid = uid}};
	return was;
}

void ckpt_actor_restore(const struct ckpt_actor_scope *was)
{
	now = *was;
}

void ckpt_actor_call_process(const char *comm)
{
	ckpt_comm_clean(comm, process_comm);
}

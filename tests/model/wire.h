// Messages between the program that explores and the nodes, each a process: a packet of a socket each.
//
// The explorer gives a node an ACT for one of its slots, a thread, or an answer for the request of one; and reads until that slot has ended
// the act or asks for something that is to wait. So one thread of all nodes runs at a time, and the explorer decides which.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Threads of a node. OTHERS: those that the store has itself, whose requests are answered at once.
enum { SLOT_TURN, SLOT_USER, SLOT_COLLECT, SLOTS, SLOT_OTHERS = SLOTS };

enum wire_kind {
	WIRE_ACT,    // text: what to do
	WIRE_DONE,   // rc; text: what it has made
	WIRE_ASK,    // text: what to tell; by the main thread of the node
	WIRE_TOLD,   // text
	WIRE_ANSWER, // rc, object, bytes
	// Requests to the bucket.
	WIRE_GET,
	WIRE_HEAD,
	WIRE_PUT,
	WIRE_REMOVE,
	WIRE_LIST, // key: a prefix
	WIRE_SLEEP,
};

#define WIRE_KEY_MAX 160
#define WIRE_BYTES_MAX (96u << 10)

struct wire {
	uint32_t kind, slot;
	int32_t rc;
	bool at_once; // the request does not wait
	char key[WIRE_KEY_MAX];
	uint64_t object_bytes;
	int64_t object_mtime_ns;
	char object_etag[24];
	uint32_t len;
	_Alignas(8) uint8_t bytes[WIRE_BYTES_MAX]; // and a NUL behind them, of a message that was received
};

// A listed object, as bytes of an ANSWER have them one behind the other.
struct wire_object {
	char key[WIRE_KEY_MAX];
	uint64_t bytes;
	int64_t mtime_ns;
	char etag[24];
};

int wire_send(int fd, const struct wire *w);
// 1; 0: the other end is closed; -ETIMEDOUT after so many ms; -errno.
int wire_receive(int fd, struct wire *w, int timeout_ms);
void wire_text(struct wire *w, const char *text);

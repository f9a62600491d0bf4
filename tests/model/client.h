// The bucket as a node sees it: each call is a request to the explorer (wire.h).
#pragma once

#include "core/objects/objects.h"
#include "tests/model/wire.h"

#include <pthread.h>

// In a node, before its store is opened.
void client_begin(int fd);
// The calling thread is this slot from now on.
void client_is_slot(unsigned slot);
// Requests of this thread are answered at once, until it is said again.
void client_at_once(bool at_once);
// While another thread may wait for this lock, its holder's requests are answered at once. NULL: there is none.
void client_lock(pthread_mutex_t *mutex);
// By the node's main thread: an answer or an act has come.
void client_take(const struct wire *w);
// By a slot's thread: waits for the next message to it.
const struct wire *client_wait(unsigned slot);
// Sleep of a slot: the explorer says when it ends. False: the calling thread is none.
bool client_sleep(void);

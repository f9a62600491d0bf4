// Nodes as processes, and what is said to them.
#include "tests/model/world_in.h"

#include "tests/model/node.h"
#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/log/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct wire message;

// --- Talking to nodes ---------------------------------------------------------------------------------------------------

void world_answer(struct node *n, const struct wire *request)
{
	static struct wire w;

	bucket_do(&world_bucket, request, &w);
	(void)wire_send(n->fd, &w);
	if (request->kind == WIRE_PUT || request->kind == WIRE_REMOVE)
		world_read_log();
}

void world_answer_error(struct node *n, const struct wire *request, int error)
{
	struct wire *w = &message;

	w->kind = WIRE_ANSWER;
	w->slot = request->slot;
	w->rc = error;
	w->len = 0;
	(void)wire_send(n->fd, w);
}

// It has ended by itself.
static void lose_node(struct node *n, const char *why)
{
	int status = 0;

	kill(n->pid, SIGKILL);
	waitpid(n->pid, &status, 0);
	close(n->fd);
	n->up = false;
	world_violate("node %c %s (%d)", n->letter, why, status);
}

static void end_act(struct node *n, struct slot *s, const struct wire *done)
{
	struct act *a = s->act_number < 0 ? NULL : &world_acts[s->act_number];
	int rc = done->rc;

	s->busy = false;
	if (!a) {
		if (rc && (n->slots[SLOT_TURN].act == s->act || n->slots[SLOT_USER].act == s->act) &&
		    strcmp(s->act, "turn") && strcmp(s->act, "offer"))
			world_violate("%c: %s: %s", n->letter, s->act, strerror(-rc));
		return;
	}
	a->unknown = false;
	a->done = !rc;
	sscanf((const char *)done->bytes, "%36s %36s", a->id, a->replaced);
	if (rc && rc != -ENOENT && rc != -EEXIST && rc != -ESTALE && rc != -EBUSY && rc != -EPERM)
		world_violate("%c: %s: %s", n->letter, a->text, strerror(-rc));
}

// Nothing can happen to an entry far behind the end.
static bool is_old(const struct wire *w)
{
	return w->kind == WIRE_GET && !strncmp(w->key, "log/", 4) && ckpt_log_number(w->key) + NEAR < world_now.seq;
}

// Until the slot waits for the explorer, or has ended its act.
void world_run(struct node *n, unsigned slot)
{
	for (;;) {
		int rc = wire_receive(n->fd, &message, HANGS_MS);

		if (rc <= 0) {
			lose_node(n, rc ? "hangs" : "has died");
			return;
		}
		if (message.kind == WIRE_PUT && strncmp(message.key, "log/", 4) && strncmp(message.key, "snap/", 5))
			(void)judge_object_of(message.key, n->letter);
		if (message.kind == WIRE_DONE) {
			end_act(n, &n->slots[message.slot], &message);
			if (message.slot == slot)
				return;
		} else if (message.at_once || is_old(&message)) {
			static struct wire request;

			memcpy(&request, &message, offsetof(struct wire, bytes) + message.len);
			world_answer(n, &request);
		} else {
			memcpy(&n->slots[message.slot].request, &message, offsetof(struct wire, bytes) + message.len);
			if (message.slot == slot)
				return;
		}
	}
}

void world_begin_act(struct node *n, unsigned slot, const char *words, int act_number)
{
	struct slot *s = &n->slots[slot];

	s->busy = true;
	s->act_number = act_number;
	snprintf(s->act, sizeof(s->act), "%s", words);
	message.kind = WIRE_ACT;
	message.slot = slot;
	wire_text(&message, words);
	(void)wire_send(n->fd, &message);
	world_run(n, slot);
}

void world_start(struct node *n)
{
	int fds[2];

	ck_ok(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds));
	for (unsigned i = 0; i < 2; i++) {
		int bytes = 2 * (int)sizeof(struct wire);

		setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	}
	n->pid = fork();
	ck_ok(n->pid);
	if (!n->pid) {
		for (unsigned i = 0; i < MODEL_NODES; i++)
			if (world_nodes[i].up)
				close(world_nodes[i].fd);
		close(fds[0]);
		node_run(fds[1], n->path, world_seed * 64 + n->runs * MODEL_NODES + (unsigned)(n->letter - 'A') + 1);
	}
	close(fds[1]);
	n->fd = fds[0];
	n->up = true;
	n->runs++;
	memset(n->slots, 0, sizeof(n->slots));
}

// Its requests may still be under way.
void world_crash(struct node *n)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *s = &n->slots[i];

		if (s->busy && s->act_number >= 0)
			world_acts[s->act_number].unknown = true;
		if (s->busy && (s->request.kind == WIRE_PUT || s->request.kind == WIRE_REMOVE) &&
		    world_late_count < LATE)
			world_late[world_late_count++] = s->request;
		s->busy = false;
	}
	kill(n->pid, SIGKILL);
	waitpid(n->pid, NULL, 0);
	close(n->fd);
	n->up = false;
}

const char *world_ask(struct node *n, const char *what)
{
	static char told[WIRE_BYTES_MAX];

	message.kind = WIRE_ASK;
	wire_text(&message, what);
	(void)wire_send(n->fd, &message);
	for (;;) {
		int rc = wire_receive(n->fd, &message, HANGS_MS);
		static struct wire request;

		if (rc <= 0) {
			lose_node(n, rc ? "hangs, asked for what it shows" : "has died");
			return "";
		}
		if (message.kind == WIRE_TOLD)
			break;
		memcpy(&request, &message, offsetof(struct wire, bytes) + message.len); // it reads what is in packs
		world_answer(n, &request);
	}
	memcpy(told, message.bytes, message.len + 1);
	return told;
}

// The inside of world.h, for world*.c only: all that one walk is.
#pragma once

#include "tests/model/world.h"

#include <limits.h>
#include <sys/types.h>

enum { ENTRIES = 256, LATE = 8, ACTS = 32, SEEN = 64, NEAR = 4, HANGS_MS = 60000, TURNS = 60 };

struct slot {
	bool busy;
	char act[64];
	int act_number;      // of a user: in acts
	struct wire request; // that waits
};

struct node {
	char letter, path[PATH_MAX + 8], id[CKPT_UUID_LEN + 1];
	pid_t pid;
	int fd;
	bool up, gone;
	unsigned runs, act, collections, snapshots, offers;
	struct slot slots[SLOTS];
	char told[WIRE_BYTES_MAX];
	uint64_t seen[SEEN]; // sizes of plain files that it has shown
	size_t seen_count;
};

// An act of a user.
struct act {
	char node, text[64], id[CKPT_UUID_LEN + 1], replaced[CKPT_UUID_LEN + 1];
	bool done, unknown, beside;
	uint64_t bytes;    // it has written
	uint64_t removed;  // the size of the plain file that it has removed
	size_t seen_count; // of the node, before
};

// Of what a node shows: a step.
struct line {
	char kind, id[CKPT_UUID_LEN + 1], name[JUDGE_NAME], is;
	unsigned last;
	int pinned;
};

extern const struct model_scenario *world_sc;
extern uint64_t world_seed;
extern struct node world_nodes[MODEL_NODES];
extern struct bucket world_bucket;
extern struct wire world_late[LATE]; // requests whose senders have given up
extern size_t world_late_count;
extern struct judge *world_history[ENTRIES + 1]; // behind each entry
extern struct judge world_now;
extern struct act world_acts[ACTS];
extern size_t world_act_count;

// world_check.c: the first violation is kept.
__attribute__((format(printf, 1, 2))) void world_violate(const char *format, ...);
void world_begin_checks(void);
void world_read_log(void);
void world_look(struct node *n); // asks it for what it shows, and checks that
uint64_t world_position(const struct node *n);
bool world_waits(const struct node *n); // it has something to push
bool world_lists(const struct node *n, const char *name);
bool world_is_busy(const struct node *n);
bool world_tells(const struct node *n, const char *kinds, const char *id);
unsigned world_count_deletions(char node, const char *id); // of a step, by its users
bool world_has_seen(const struct node *n, uint64_t bytes);
bool world_has_expired(char node, const char *id); // its user has let the step expire

// world_node.c: a node's process.
void world_start(struct node *n);
void world_crash(struct node *n); // its requests may still be under way
void world_begin_act(struct node *n, unsigned slot, const char *words, int act_number);
void world_answer(struct node *n, const struct wire *request);
void world_answer_error(struct node *n, const struct wire *request, int error);
void world_run(struct node *n, unsigned slot); // until the slot waits for the explorer, or has ended its act
const char *world_ask(struct node *n, const char *what);

// world_text.c
const char *world_request_label(const struct wire *w, char buf[96]);

// world.c
enum world_answer_kind { ANSWERS, LOSES, GIVES_UP, FAILS };
void world_resume(struct node *n, unsigned slot, enum world_answer_kind kind);
void world_land(unsigned i); // a late request is done
void world_answer_all(struct node *n, unsigned slot);
void world_do_whole(struct node *n, unsigned slot, const char *words, int act_number);
void world_exchange_all(void); // until nobody has anything to do

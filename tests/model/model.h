// The models of REMOTE.md replayed with the code itself: nodes, which are processes with real stores, beside one bucket. Each request of a node
// waits until the explorer says what becomes of it, so that all interleavings are tried: it is done now; it is done and its answer is lost; its sender
// gives up and it is done later, or never; its sender dies.
//
// Walks begin at a scenario's first state, and take at each state a choice that was not taken there before, if there is one. States are counted
// as the models count them: the log, the objects, requests that are under way, what each node shows and does.
//
// CKPT_MODEL_STATES=N   so many different states in all, 10,000 without, 1,000,000 with CKPT_TEST_LONG=1: the scenarios are varied then (vary.h)
// CKPT_MODEL_SECONDS=N  no walk begins after so long
// CKPT_MODEL_SEED=N     other choices
// CKPT_MODEL_REPLAY=... what a failure has printed: the same choices again, each told
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { MODEL_NODES = 2, MODEL_ACTS = 10, MODEL_SCRIPT = 16 };

// Acts are those of node.c, a file's size tells the acts apart. One that begins with "beside " is done to tree/ while the node is down.
//
// A script leads to a place that chance rarely finds, and all walks begin behind it. Each of its lines is the beginning of a choice as it is told
// ("A turns"); until that is there, requests of the same node are answered. "until A: put log" takes no choice, and behind "A rests" that node has
// nothing to do.
struct model_scenario {
	const char *name;
	const char *first[MODEL_ACTS];             // of A, before anything else; all nodes have read them
	const char *script[MODEL_SCRIPT];          // then
	const char *acts[MODEL_NODES][MODEL_ACTS]; // of A and of B, in their order
	unsigned collections[MODEL_NODES];         // that a node may begin
	unsigned snapshots[MODEL_NODES];           // of its own log
	unsigned offers[MODEL_NODES];              // of the remote's log, to others
	unsigned crashes;                          // of A
	unsigned lost;                             // answers, or requests that come late
	unsigned others;                           // entries that a third node puts at once, as A is down
	bool dies;                                 // A may be gone and never come back
	bool strict;                               // a tracker that is seen names a step that is listed
};

// The program: explores each for its part of the states. The exit status.
int model_main(const struct model_scenario *scenarios, size_t count, unsigned part);

// The event `quiet`: a staged step whose writer sends no other event is complete when nothing in it has changed for a while. This is
// the rule alone (CONTRACT.md 3.4): facts in, a verdict out.
//
// How long "a while" is, in units of the setting commit_quiet:
//    1  it has every file that the newest step beside it has, or its copier has ended with 0
//    6  no step stands beside it, and no framework uses its name
//   30  all others: it lacks a file of its neighbour, a framework claims it or uses its name, or nobody knows how a writer ended
//
// A directory that holds no array data and no file that only checkpoints have is no step. It becomes a plain folder after 30 units,
// or after one when all of its makers have ended. An empty one stays staged while a maker lives, or after one was interrupted.
//
// Threads: plain data. Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ckpt_quiet_facts {
	int64_t unit_ns;       // commit_quiet; 0: off
	int64_t plain_unit_ns; // the same of directories without array data, which never is off
	int64_t still_ns;      // nothing has changed for so long

	// Its files.
	bool has_files;
	bool has_arrays;    // some file is array data
	bool has_known;     // some file is one that only checkpoints have
	bool has_beginning; // some file may be array data once it is whole
	bool is_open;       // some file is open for writing, or somebody can still write it
	bool is_cut;        // some file is not whole by its own format

	// Its name and its place.
	bool is_declared;   // the owner of the store has said that it is a step (steps_at)
	bool is_claimed;    // by a framework that has an event of its own
	bool name_is_used;  // by a framework
	bool has_neighbour; // a committed step stands beside it
	bool lacks_file;    // that the neighbour has

	// Its writers. Each counts once.
	bool copier_ended; // a copier made its directory and has ended with 0, and so have all others
	unsigned living;   // and have not begun a later step beside it
	unsigned stopped;
	unsigned failed;  // killed, or ended with another status than 0
	unsigned unknown; // nobody knows how they ended, or whether
	bool any_lives;   // any that is known: stopped, or with a later step, too
	bool all_ended;   // all are known, and have ended in some way

	// Of a session that was interrupted before.
	bool was_interrupted;
	bool has_earlier_array; // a whole array file of the earlier attempt is left
	bool has_later_file;    // something was written since
	bool copied_since;      // by a copier that has ended with 0
};

enum ckpt_quiet_reason {
	CKPT_QUIET_TIME,      // it is not quiet for long enough
	CKPT_QUIET_NEVER,     // commit_quiet=off
	CKPT_QUIET_NO_ARRAYS, // no array data: nothing says that it is a step. after_ns: when it becomes a plain folder
	CKPT_QUIET_OPEN,      // is_open
	CKPT_QUIET_CUT,       // is_cut
	CKPT_QUIET_STOPPED,   // a writer is stopped
	CKPT_QUIET_LIVING,    // it is claimed, and a writer lives: the framework's event may still come
	CKPT_QUIET_UNKNOWN,   // it is claimed, and nobody knows how a writer ended
	CKPT_QUIET_INTERRUPTED, // a mixture of two attempts
};

struct ckpt_quiet_verdict {
	enum { CKPT_QUIET_WAIT, CKPT_QUIET_COMMIT, CKPT_QUIET_INTERRUPT, CKPT_QUIET_UNSTAGE } act;
	enum ckpt_quiet_reason reason; // of WAIT
	int64_t after_ns; // how long it must have been quiet for COMMIT or UNSTAGE; INT64_MAX: time alone does nothing
};

struct ckpt_quiet_verdict ckpt_quiet_decide(const struct ckpt_quiet_facts *f);

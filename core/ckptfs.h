// libckptfs: what a training program asks of a store of checkpoints, without a verb and without a mount of its own.
//
//	struct ckpt *c;
//	struct ckpt_choice *from;
//	struct ckpt_save *save;
//	int answer;
//	int rc = ckpt_open("/ckpt", CKPT_CREATE, &c);            // a store's directory, or where it is mounted
//
//	rc = ckpt_resolve(c, "run7", NULL, NULL, NULL, &from);   // what to load: from->mode, from->path
//	rc = ckpt_should_save(c, "run7", 2000, 0, NULL, NULL, &answer);  // CKPT_ANSWER_NO: by the store's policy it is not to be
//	rc = ckpt_begin(c, "run7/2000", 0, &save);               // write any files below ckpt_save_path(save), close them
//	rc = ckpt_save_commit(save, "{\"metrics\":{\"loss\":1.5}}"); // 0: it is listed, whole, and on disk
//	ckpt_save_free(save);
//	ckpt_close(c);
//
// It works the same whether the store is mounted on this machine or not: what changes a mounted store is asked of the
// process that has it mounted, as the command line does it. Compile with `pkg-config --cflags --libs ckptfs`, or
// CMake's find_package(ckptfs).
//
// Errors: 0, or -errno; results are given on success only. Why a commit failed is in the store's `errors` as well.
// Ownership: what is returned through ret_* is the caller's, and has a function that frees it, which takes NULL; what
// is reached through it goes with it. What is handed in is not kept.
// Threads: any number may use one struct ckpt at once, as it never changes; any other object one at a time. After
// fork() the child may go on with a struct ckpt; a struct ckpt_save stays with the parent.
// Blocking: every call that returns int may wait for the disk, and ckpt_save_commit(), ckpt_should_save() and
// ckpt_wait() for as long as they say. Each looks at the store anew, which costs time in proportion to its steps: some 30 ms for 1,000.
// The library does not print, exit, or change how signals are handled. While it opens, changes or closes a store that nobody
// has mounted, the calling thread takes no signals, but while it decides (ckpt_should_save); and for a moment there is a
// child process, which it waits for.
// ABI: a symbol's version, CKPTFS_1, stays; structs are made by the library and only ever grow at their ends. Two
// things belong to the process: it has allocators of its own set in jansson (over malloc), and is not unloaded by
// dlclose(3).
#ifndef CKPTFS_H
#define CKPTFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_PUBLIC __attribute__((visibility("default")))
#else
#define CKPT_PUBLIC
#endif

// "0.1.0": that of the library, which may be newer than this header.
CKPT_PUBLIC const char *ckpt_version(void);

// --- The store ----------------------------------------------------------------------------------------------------------

struct ckpt;

#define CKPT_CREATE 1u // an absent or empty directory becomes a store

// path: its directory, or a mount of it. -ENOENT: there is no store; -EINVAL: it leads to something inside of one, or a
// flag is unknown; -EACCES: it is somebody else's; -EMEDIUMTYPE: a directory that is none; -ENOTSUP: made by a newer
// version; -ENOTEMPTY.
CKPT_PUBLIC int ckpt_open(const char *path, unsigned flags, struct ckpt **ret_ckpt);
CKPT_PUBLIC void ckpt_close(struct ckpt *ckpt);
CKPT_PUBLIC const char *ckpt_directory(const struct ckpt *ckpt); // the store's own, absolute

// --- Steps --------------------------------------------------------------------------------------------------------------

// A committed step. Times are nanoseconds since 1970, UTC.
struct ckpt_info {
	const char *name;           // as `ckptfs ls` has it: "1000", "run7/1000"
	const char *path;           // of its directory, in a mount on this machine; NULL: it has none
	const char *metadata;       // JSON: {"extras":{...},"metrics":{...},"temporary":...}, "{}" when it has none
	int64_t number;             // -1: its name has none
	uint64_t version;           // from 1
	uint64_t files, bytes;      // as they look, not as they are stored
	int64_t committed_ns;       // this version
	int64_t first_committed_ns; // version 1
	uint64_t flags;             // CKPT_INFO_*: others may come
};
#define CKPT_INFO_TEMPORARY 1u
#define CKPT_INFO_PINNED 2u // not to be deleted
#define CKPT_INFO_SEALED 4u // the SHA-256 of each file is kept

CKPT_PUBLIC void ckpt_info_free(struct ckpt_info *info);

// All committed steps of a folder ("": those in the root; NULL: all of the store), in the order of their commits: of a
// step that was changed late, that is the last. A folder that is not there has none. Also such as a mount is just removing or writing anew.
struct ckpt_list;
CKPT_PUBLIC int ckpt_list(struct ckpt *ckpt, const char *folder, struct ckpt_list **ret_list);
CKPT_PUBLIC size_t ckpt_list_count(const struct ckpt_list *list);
CKPT_PUBLIC const struct ckpt_info *ckpt_list_at(const struct ckpt_list *list, size_t i); // NULL: there are not so many
CKPT_PUBLIC void ckpt_list_free(struct ckpt_list *list);

// The step of this name: "run7/1000", "latest", "run7/latest~2", of which none counts that a mount is removing or writing
// anew. -ENOENT.
CKPT_PUBLIC int ckpt_find(struct ckpt *ckpt, const char *name, struct ckpt_info **ret_info);

// The newest of a folder (NULL as "": the root), by "step", "commit", "timestamp", "mtime" or "tracker" (ckptfs-latest); NULL: by the store's
// setting latest_by, as in ckpt_find(). The root of a store whose steps are all in folders has the newest of all. None
// that a mount is removing or writing anew. -ENOENT; -EINVAL: no such order.
CKPT_PUBLIC int ckpt_find_latest(struct ckpt *ckpt, const char *folder, const char *by, struct ckpt_info **ret_info);

// --- What to load -------------------------------------------------------------------------------------------------------

enum ckpt_mode {
	CKPT_MODE_SCRATCH = 0,    // nothing: begin anew
	CKPT_MODE_RESUME = 1,     // the run's own newest step
	CKPT_MODE_FULL_STATE = 2, // what load_full_state_path leads to
	CKPT_MODE_PARAMETERS = 3, // what load_parameters_path leads to: its parameters alone
};

struct ckpt_choice {
	int mode;          // enum ckpt_mode
	const char *path;  // where it can be read; NULL: it is in a store that is not mounted here, or there is none
	const char *store; // the store's directory; NULL: it is in none
	const char *step;  // its name there; NULL: it is in none
};

// As `ckptfs resolve`: folder is that of the run, or one step (NULL, "": the root); by as above, NULL being "step"; paths may
// be NULL or "". That there is nothing to load is no error: CKPT_MODE_SCRATCH. -EINVAL: both paths are given, or no
// such order. Of a path: -ENOENT nothing is there, or what is not committed; -EBUSY it is being removed or changed, or
// has a name that frameworks give to what they still write; -EISDIR it is a folder of steps. -ENOTDIR: the run's folder
// is inside of a step. -EMLINK: it is the root, which has no steps, and several folders have.
CKPT_PUBLIC int ckpt_resolve(struct ckpt *ckpt, const char *folder, const char *by, const char *load_parameters_path,
			     const char *load_full_state_path, struct ckpt_choice **ret_choice);
CKPT_PUBLIC void ckpt_choice_free(struct ckpt_choice *choice);

// --- Whether to save ----------------------------------------------------------------------------------------------------

enum ckpt_answer {
	CKPT_ANSWER_NO = 0,
	CKPT_ANSWER_TEMPORARY = 1, // the next step that is committed takes its place: {"temporary":true} at its commit
	CKPT_ANSWER_PERMANENT = 2,
};

// What a function that decides is told.
struct ckpt_question {
	int64_t step;         // the one that is asked for
	int64_t latest;       // the highest committed step of the run, -1: there is none; temporary ones count
	int64_t committed_ns; // when the newest of them was; 0: there is none
	uint64_t count;       // of them
	int64_t now_ns;
	uint64_t flags; // CKPT_QUESTION_*: others may come
};
#define CKPT_QUESTION_SAVING 1u    // another step is being saved through the mount
#define CKPT_QUESTION_PREEMPTED 2u // `ckptfs preempt`: this step is the last that can be saved, or one of the last

// An enum ckpt_answer, or -errno.
typedef int ckpt_decide_fn(void *arg, const struct ckpt_question *question);

#define CKPT_FORCE 1u // permanent, whatever is decided else; of ckpt_begin(): over a step that is there

// Whether this step is to be saved: an enum ckpt_answer, by `decide`, or by the policy of the store (NULL). All who ask for the
// step get one answer, by the library, a verb or the mount, for ten minutes, or until it is committed or deleted, or the
// policy is another one: that of who came first. What is not after the run's latest step is not saved. `decide` is called
// at most once, by this thread, also where its answer comes too late to count; its failure is the result. folder is that
// of the run's steps; NULL: the root, or where that has none, the only one that has steps; one that is still to be made
// has none. -EMLINK: several have; -ENOTDIR: it is no folder; -EINVAL: a step below 0, or no such flag or answer; -EBADMSG: the policy is damaged;
// -EPERM: it runs a program, and others than this user could have set it; -ETIMEDOUT, -EIO ...: that program; -EBUSY: others
// have asked, or another process has saved into a store that is not mounted, for more than 70 seconds.
CKPT_PUBLIC int ckpt_should_save(struct ckpt *ckpt, const char *folder, int64_t step, unsigned flags,
				 ckpt_decide_fn *decide, void *arg, int *ret_answer);

// --- Saving a step ------------------------------------------------------------------------------------------------------

// A staged step: in no listing until it is committed. While it is open in a store that is not mounted, no other process can
// change that store, nor mount it, nor ask it ckpt_should_save().
struct ckpt_save;

// A new one of this name, whose folder exists; flags: 0, or CKPT_FORCE: a committed step may have the name, which is there until
// the commit, and then in the trash, in one act. -EEXIST: the name is taken; -ENOENT; -EBUSY: somebody else is
// changing the store; -ENOSPC ...
CKPT_PUBLIC int ckpt_begin(struct ckpt *ckpt, const char *name, unsigned flags, struct ckpt_save **ret_save);
// The directory to write its files into, absolute. They never move: descriptors and mappings stay good to read by.
CKPT_PUBLIC const char *ckpt_save_path(const struct ckpt_save *save);
// metadata: JSON as a marker may hold it, or NULL. 0: it is listed, and on disk with all its files, which need no fsync
// of their own; also where it has been committed already, by somebody else or by a call whose answer was lost. -EINVAL:
// the metadata is not of that form; -EFBIG: together with what the step has it is too much; -EBUSY: a file of it is open for writing, after 5 seconds, or
// somebody else changes a store that is not mounted, or the step that it is to replace; -EALREADY: it was committed or aborted by this save; -ESTALE: it is
// gone; -EIO, -EPIPE, -EPROTO, -ECONNRESET: whether it is committed is not known, calling again says it; -EREMOTEIO: the
// mount refused it and did not say why; -ENOSPC ... After a failure it may be tried again.
CKPT_PUBLIC int ckpt_save_commit(struct ckpt_save *save, const char *metadata);
// Its files are dropped. Errors as of ckpt_save_commit(); -ESTALE: somebody else has committed or aborted it.
CKPT_PUBLIC int ckpt_save_abort(struct ckpt_save *save);
// One that is neither committed nor aborted stays in `ckptfs sessions`, with all its files.
CKPT_PUBLIC void ckpt_save_free(struct ckpt_save *save);

// Metrics and extras for a committed step, whose name is as of ckpt_find(): a new version with the same files. metadata: JSON as a marker may
// hold it, of metrics and extras alone; names that it does not say stay. 0: it is on disk. -EINVAL: it is not of that form; -EFBIG: together with what the step has it is too much; -ENOENT: there is no
// such step; -EBUSY: it is being removed or changed, or somebody else changes a store that is not mounted; -ENOSPC ...
CKPT_PUBLIC int ckpt_step_note(struct ckpt *ckpt, const char *name, const char *metadata);

// --- Waiting ------------------------------------------------------------------------------------------------------------

#define CKPT_WAIT_SEALED 1u // not only committed, but sealed: a mount does it behind, `ckptfs seal` at once

// Until the step of this name is there, committed and on disk, whoever saves it. timeout_ns -1: for ever. -ETIMEDOUT.
CKPT_PUBLIC int ckpt_wait(struct ckpt *ckpt, const char *name, unsigned flags, int64_t timeout_ns);

// --- Arrays -------------------------------------------------------------------------------------------------------------

// The arrays of a step, whatever format its files have. Only headers are read, until elements are asked for. The store is open, for
// reading, as long as the set lives, and shows the step as it was when the set was made. Its threads may share a set.
struct ckpt_array_set;

struct ckpt_array_info {
	const char *tree;   // the file, or the directory, that says what the array is; ".": the step itself
	const char *name;   // its full name is TREE:NAME
	const char *dtype;  // as NumPy and ml_dtypes name it: "float32", "bfloat16"; NULL: not known
	const char *format; // "safetensors", "dcp" ...
	const char *why;    // its elements cannot be read, and why; NULL: they can
	const uint64_t *shape;
	unsigned ndim;
	unsigned width; // bytes of an element; 0: not known, or a byte has several
	uint64_t bytes; // of all elements
};

// step: as of ckpt_find(), or a path in it: the arrays of the files below. -ENOENT; -EIO, -EBADMSG ...: a file cannot be read.
CKPT_PUBLIC int ckpt_array_set_open(struct ckpt *ckpt, const char *step, struct ckpt_array_set **ret_set);
CKPT_PUBLIC void ckpt_array_set_free(struct ckpt_array_set *set);
CKPT_PUBLIC size_t ckpt_array_set_count(const struct ckpt_array_set *set);
CKPT_PUBLIC const struct ckpt_array_info *ckpt_array_set_at(const struct ckpt_array_set *set,
							    size_t i); // NULL: there are not so many
// By TREE:NAME, or by NAME where only one tree has it. -ENOENT; -EEXIST: several have.
CKPT_PUBLIC int ckpt_array_set_find(const struct ckpt_array_set *set, const char *name, size_t *ret_i);
// The elements of a box, or with NULL and NULL all, packed in C order and in the machine's byte order. Nothing is read but the parts of files
// that have them. -ERANGE: the box is not in the array; -ENOTSUP: why; -ENODATA: a part of them is in no file; -EBADMSG: bytes are
// damaged; -EFBIG: it would take more work than any sound file does; -EIO ...
CKPT_PUBLIC int ckpt_array_set_read(struct ckpt_array_set *set, size_t i, const uint64_t *start, const uint64_t *extent,
				    void *into);
// The raw file of this node that has all elements as ckpt_array_set_read() gives them, one behind the other, and the byte at which they begin. The
// descriptor is for reading, and the caller's to close; no other shares its flags. While it is open the bytes stay as they are, also when the step is
// packed or deleted. -ENOENT: they are packed or at a remote, in several pieces, encoded, or in the other byte order; -EIO ...
CKPT_PUBLIC int ckpt_array_set_open_raw(struct ckpt_array_set *set, size_t i, int *ret_fd, uint64_t *ret_offset);

// --- Formats of a program's own ------------------------------------------------------------------------------------------------

// A file of a step, while the arrays of a set are looked for. It lives as long as the call.
struct ckpt_format_file;

// Both are called by the thread that opens a set, for one file after the other, and may call ckpt_format_*() of that file.
struct ckpt_format_ops {
	// 1: the file is of this format; 0: it is not.
	int (*probe)(void *arg, struct ckpt_format_file *file);
	// Adds the arrays that the file has: 0. After -EINVAL, as of ckpt_format_refuse(), the file has none and other files stay; any other
	// -errno fails the opening.
	int (*read)(void *arg, struct ckpt_format_file *file);
	void *arg;
};

// From now on sets are opened with it. Verbs and mounts, which are other processes, do not know it; so sets read the files of a step, not its catalog.
// Registered formats are asked before ours, the one that came last first. It stays to the end of the process. name: [A-Za-z0-9._-]+, 63 bytes at most;
// version: from 1. -EINVAL; -EEXIST: this name has this version (ours have version 1); -ENOSPC: there are 64.
CKPT_PUBLIC int ckpt_format_register(const char *name, unsigned version, const struct ckpt_format_ops *ops);
// action: "read" or "write"; version 0: any. 0: there is one. -ENOENT: why (or NULL, 0) names the three, and lists what is registered.
CKPT_PUBLIC int ckpt_format_find(const char *action, const char *name, unsigned version, char *why, size_t why_bytes);

CKPT_PUBLIC const char *ckpt_format_path(const struct ckpt_format_file *file); // in the step
CKPT_PUBLIC uint64_t ckpt_format_bytes(const struct ckpt_format_file *file);
// All of these bytes. -ENODATA: it does not have them; -EIO ...
CKPT_PUBLIC int ckpt_format_read(struct ckpt_format_file *file, uint64_t offset, void *into, size_t len);

struct ckpt_format_array {
	const char *name;
	const char *tree;  // NULL: the path of the file
	const char *dtype; // as struct ckpt_array_info has it; NULL: not known
	const char *why;   // its elements cannot be read, and why; NULL: they can
	const uint64_t *shape;
	unsigned ndim; // at most 32
	int big_endian;
};

// A part of an array: a box of it in C order, or by strides.
struct ckpt_format_piece {
	const char *path;               // in the step, a file below the directory of this one; NULL: this file
	uint64_t offset;                // of its first element
	const uint64_t *start, *extent; // NULL and NULL: the whole array
	const uint64_t *strides;        // in elements; NULL: C order
};

// Strings and numbers are copied. -EINVAL: a name, dtype or shape that no array has.
CKPT_PUBLIC int ckpt_format_add(struct ckpt_format_file *file, const struct ckpt_format_array *array);
// Of the array that was added last. -EINVAL: it has no elements, or the box is not in it. One that lies outside of its file gives the array
// its `why`.
CKPT_PUBLIC int ckpt_format_add_piece(struct ckpt_format_file *file, const struct ckpt_format_piece *piece);
// The file breaks a rule, as `ckptfs check` would say it of other formats. Returns -EINVAL, or -ENOMEM.
CKPT_PUBLIC int ckpt_format_refuse(struct ckpt_format_file *file, const char *field, const char *reason);

// --- Loading by a template ----------------------------------------------------------------------------------------------

// The fate of an array whose shape is not the one that is wanted. The first that holds is taken.
enum ckpt_shapes {
	CKPT_SHAPES_STRICT = 0, // -ERANGE
	CKPT_SHAPES_RELAXED =
		1, // eFormer's strict_shapes=False: [0] of one dimension more, a reshape at equal size, else KEPT
	CKPT_SHAPES_PADDED = 2, // Megatron's allow_shape_mismatch: zeros at the end; one that is larger is -ERANGE
};

// The way an array was read, or would be.
enum ckpt_fitted {
	CKPT_FITTED_SAME = 0,
	CKPT_FITTED_FIRST = 1, // [0] of its first dimension
	CKPT_FITTED_RESHAPED = 2,
	CKPT_FITTED_PADDED = 3,
	CKPT_FITTED_KEPT = 4, // RELAXED, and neither name nor shape would do: `into` stays as it is
	CKPT_FITTED_ABSENT =
		5, // of ckpt_array_set_match() alone: the step lacks it, and `strict` says to go on without
};

// An array that a program wants: it fills this in, from zeros. In CKPTFS_1 it stays as it is.
struct ckpt_array_request {
	const char *name; // as of ckpt_array_set_find()
	const char
		*dtype; // as struct ckpt_array_info has it; floating types are cast into each other; NULL: the array's
	const uint64_t *shape; // of the whole array; NULL: the array's
	unsigned ndim;   // of shape, or without it of start, extent and strides: the array's own; else not looked at
	unsigned shapes; // enum ckpt_shapes
	const uint64_t *start; // the box of it that is read; NULL and NULL: all
	const uint64_t *extent;
	void *into; // the first element of the box; NULL: nothing is read, and the result says how it would be
	const int64_t *strides; // of `into`, in bytes, one for each dimension; NULL: packed in C order
	// With has_flat: elements [flat_start, flat_start + flat_count) of the box in C order, as Megatron's flattened_range; 0 elements are nothing to
	// read. `into` and strides have one dimension then. Without it these are 0.
	uint64_t flat_start, flat_count;
	unsigned has_flat; // 1: the range; 0: all of the box
};

// Reads them, `at_once` at the same time by threads that end with the call: at most 32, and 0 is the processors, at most 8.
// 1: by the caller's thread alone. Together they take some 160 MiB at most for arrays whose pieces are compressed, of which large ones wait for each
// other, and 2 MiB each for others. More batches bound
// the program's own memory: eFormer's chunk_size is so many requests for each call. While there are threads, the
// caller's takes no signals. No two requests may have memory in common. results[i]: an enum ckpt_fitted, or -errno, by which others are not
// stopped. The result is that of the first that failed, or 0: as of ckpt_array_set_read(), and -ENOENT, -EEXIST: of the
// name; -ERANGE: its shape, the box, or the flat range; -ENOTSUP: it cannot be read, or not as this dtype; -EINVAL: a request is not of
// that form, or has another rank than the array. PADDED: a box that has nothing of the array is -ERANGE.
CKPT_PUBLIC int ckpt_array_set_read_many(struct ckpt_array_set *set, const struct ckpt_array_request *requests,
					 size_t count, unsigned at_once, int *results);

// Strictness over names, as Megatron's StrictHandling. "Unexpected": requests that the step lacks; "missing": arrays of
// the step that nobody requests. *_UNEXPECTED do not look for missing ones.
enum ckpt_strict {
	CKPT_STRICT_ASSUME_OK_UNEXPECTED = 0, // by the rule for shapes: -ENOENT, or KEPT. No lists
	CKPT_STRICT_LOG_UNEXPECTED = 1,       // lists, and a message to log
	CKPT_STRICT_LOG_ALL = 2,
	CKPT_STRICT_RAISE_UNEXPECTED = 3, // lists and a message; refused with -ENOENT
	CKPT_STRICT_RAISE_ALL = 4,
	CKPT_STRICT_RETURN_UNEXPECTED = 5, // lists
	CKPT_STRICT_RETURN_ALL = 6,
	CKPT_STRICT_IGNORE_ALL = 7, // neither
};

struct ckpt_array_match {
	int refused; // 0: it can be loaded; else the -errno of names, before that of the first request that does not fit
	const char
		*message; // of names, then a line for each request that does not fit: 20, and how many more; NULL: none
	const char *const *missing;    // TREE:NAME where several trees have the name
	const char *const *unexpected; // in the order of the requests
	size_t missing_count, unexpected_count;
	const int *results; // one for each request, as of ckpt_array_set_read_many()
	size_t count;
};

// The step beside a template: names, shapes, dtypes and boxes; nothing is read. A refusal is in the result. -EINVAL: no such
// mode, or a request is not of its form.
CKPT_PUBLIC int ckpt_array_set_match(const struct ckpt_array_set *set, const struct ckpt_array_request *requests,
				     size_t count, unsigned strict, struct ckpt_array_match **ret_match);
CKPT_PUBLIC void ckpt_array_match_free(struct ckpt_array_match *match);

#ifdef __cplusplus
}
#endif

#endif

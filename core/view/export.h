// Arrays of a catalog as files of a format (core/array/write.h), elsewhere.
//
//	ckpt_export_choose() arrays of a catalog, for a caller that adds what it makes of them
//	ckpt_export_add()    arrays of the caller's own; else _plan() takes those of a catalog
//	ckpt_export_plan()   chooses and names them; which files there will be is known
//	ckpt_export_write()  writes the files
//	ckpt_export_done()
//
// Names: NAME, or TREE:NAME where several of the chosen arrays have the name. What is no array of numbers (objects of a program, elements that share a
// byte, dtypes that are not known) is left out, and told. An array that cannot be read as a whole is an error, as is one that an index promises
// and no file has, and a file that breaks a rule of its format: nobody knows its arrays.
//
// Ownership: the caller's; catalog and files live as long, also those of arrays that were added. Threads: one. Blocks as files and output do.
// Memory: a run of elements, what reading it takes (expr.h), names and headers.
#pragma once

#include "core/array/write_target.h"
#include "core/view/array_choice.h"
#include "core/view/array_list.h"

#define CKPT_EXPORT_WHY_MAX 512

struct ckpt_export_items;

struct ckpt_export {
	const struct ckpt_catalog *catalog; // its arrays are chosen, unless some were added
	const struct ckpt_catalog_files *files;
	const char *format;
	uint64_t shard_bytes;                   // 0: as the format has it
	enum ckpt_dtype dtype;                  // of floating arrays; NONE: their own
	const char *const *only, *const * not ; // patterns (array_glob.h) that end with NULL; NULL: none
	// Parts of the chosen arrays and other names for them: unroll, shard, renames and prefix (array_choice.h); NULL: none.
	const struct ckpt_choice_how *how;
	const bool *skip; // by array of the catalog: it is not chosen; NULL: none
	bool partial;     // files that break rules of their formats are left out, else they are an error
	bool shares; // where its disk can share blocks, arrays are put so that most are: files may be a block longer
	// Each may be NULL:
	const volatile int *stop; // not 0: end with -EINTR
	void (*progress)(uint64_t bytes);
	void (*left_out)(void *arg, const struct ckpt_catalog_array *a, const char *why);
	void *arg; // of left_out
	// Results of the plan.
	size_t array_count, file_count;
	uint64_t bytes; // of the files
	struct ckpt_export_items *items;
	char why[CKPT_EXPORT_WHY_MAX]; // after an error but -ENOMEM, -ENOENT and -EINTR: the array or the file, and the reason
};

// An array of the output, before the plan; a reference is taken. 0, -ENOMEM.
int ckpt_export_add(struct ckpt_export *e, const char *name, struct ckpt_expr *expr);
// The arrays that _plan() would take, by their names in the output; dtype is not looked at. Before the plan; adds to the list. The same errors.
int ckpt_export_list(struct ckpt_export *e, struct ckpt_array_list *ret_list);
// Of catalogs before the last one, which the plan takes: their arrays, as only, not and skip are now. Names are given by the plan. As _plan,
// but for -ENOENT.
int ckpt_export_choose(struct ckpt_export *e);
// -ENOENT: no array is chosen. -ENOTSUP: the format cannot have them. -EBADMSG: one cannot be read. -ENOMEM.
int ckpt_export_plan(struct ckpt_export *e);
// Once. What the output or the files say; -EBADMSG: an array cannot be read as a whole.
int ckpt_export_write(struct ckpt_export *e, const struct ckpt_write_target *target);
void ckpt_export_done(struct ckpt_export *e);
// only and not choose this array.
bool ckpt_export_wants(const struct ckpt_export *e, const struct ckpt_catalog_array *a);
// The format of the arrays that only and not choose, where all have one that is written here; else safetensors. Before the plan.
const char *ckpt_export_format_of(const struct ckpt_export *e);
// "bf16" or "bfloat16"; NONE: it is no floating type.
enum ckpt_dtype ckpt_export_dtype(const char *name);

// Arrays that a program or a shared object of the user's makes of others: both ends are streams in the form of a .safetensors file.
//
//	ckpt_convert_by_plan()   the input; its form is that of the stream, the format that was asked for is that of the output
//	ckpt_convert_by_write()  runs the program, checks what it wrote, and writes the files of the output
//	ckpt_convert_by_done()
//
// The output is kept in an unlinked file of the directory until it is whole and was checked: it takes room once more.
// Its header is checked as soon as it has arrived, and no more bytes are taken than it says.
//
// Threads: one. Blocks as the program does. Memory: a header of CKPT_ARRAY_HEADER_MAX, and what an export takes. Failures are said on stderr, once;
// calls return 0 or an exit status.
#pragma once

#include "tools/array_export.h"
#include "tools/filter.h"

struct ckpt_convert_by {
	const char *exec;   // a line for /bin/sh; or NULL:
	const char *plugin; // a shared object with ckpt_convert() (core/ckptfs_convert.h)
	int64_t timeout_ns; // 0: none
	// Of the module:
	struct ckpt_filter filter;
	struct ckpt_catalog_files files;
	struct ckpt_catalog *catalog; // of the output; NULL: its header has not arrived
	uint64_t bytes;               // of the output, as its header says
	uint64_t sent;                // of the input
	struct ckpt_array_export out;
};

// x has been read. Only its choice, its rules and --partial are of the input.
int ckpt_convert_by_plan(struct ckpt_convert_by *by, struct ckpt_array_export *x);
// Results are in by->out.of.
int ckpt_convert_by_write(struct ckpt_convert_by *by, struct ckpt_array_export *x, int dirfd);
void ckpt_convert_by_done(struct ckpt_convert_by *by); // {0} is fine

// The program that a plugin runs in: another process, so that the plugin harms no other. Its exit status.
int ckpt_convert_host(const char *plugin);

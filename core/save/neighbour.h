// The neighbour of a staged step: the newest committed step beside it. A complete step has the same files as its neighbour, so a
// file that is missing says that more is to come.
//
// Compared are, of the neighbour, each file with array data that it has now, and each other file that it had when it was completed. The
// step has such a file under the same name or, where the neighbour has no file of that name, under the name with the neighbour's
// number replaced by its own ("model_100.pt": "model_200.pt"). No file counts twice.
//
// Threads: any. Blocks on the disk: reads the neighbour's manifest and, where the two versions differ, the first bytes of a file.
#pragma once

#include "core/save/survey.h"

struct ckpt_lack {
	char neighbour[CKPT_NAME_MAX + 1]; // its name; "": there is none
	char *file;        // of the neighbour, which the step lacks; NULL: it has all. The caller frees it
	uint64_t sequence; // of the newest commit beside it: another one may be another neighbour
};

// That of now; 0: there is none. Nothing blocks.
uint64_t ckpt_neighbour_sequence(struct ckpt_step *step);

// 0; -ENOMEM; -EIO, -EBADMSG ...: the neighbour's manifest cannot be read.
int ckpt_neighbour_compare(struct ckpt_step *step, const struct ckpt_survey *survey, struct ckpt_lack *ret_lack);

// The path with each run of digits that is the number `from` replaced by `to`; as many digits as before where it has leading zeros.
// False: no run is; or it does not fit into PATH_MAX bytes.
bool ckpt_neighbour_rename(const char *path, int64_t from, int64_t to, char *ret_path);

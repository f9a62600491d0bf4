// For the files of the door: what an answer must be.
#pragma once

#include "core/objects/objects.h"

// Lets through what the contract knows; extra is the one errno that only this operation may answer.
int ckpt_objects_result_check(int r, int extra);
// How many bytes a get must give of an object of this size.
size_t ckpt_objects_get_expected(const struct ckpt_object *object, uint64_t offset, size_t len);
bool ckpt_object_valid(const struct ckpt_object *object);

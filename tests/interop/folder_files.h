// The files below a directory as those of a step, for catalogs.
#pragma once

#include "core/array/catalog.h"

// fd: of the directory, borrowed.
struct ckpt_catalog_files ckpt_folder_files(const int *fd);

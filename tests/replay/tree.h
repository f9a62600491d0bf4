// A file or tree as text, to be compared: a line for each entry, in the order of names, with its type, mode, size, the
// SHA-256 of its bytes or where it leads to.
#pragma once

#include <stdbool.h>

// malloc'ed; of a folder with all that is below it. The line of "." is left out: what a mount's top is like is not the
// trace's doing. NULL with errno: it cannot be read, or changed meanwhile.
char *tree_text(const char *path);
// The first line in which two differ, of each, malloc'ed; "-" where one has ended.
char *tree_difference(const char *is, const char *expected);
// Whether the folder that the path is in lists it. False also when the folder is not there.
bool tree_is_listed(const char *path);

#include "core/view/array_glob.h"

#include <stddef.h>
#include <string.h>

static bool parts(char c)
{
	return c == '.' || c == '/';
}

// A star that was passed: where to go on when what follows does not match.
struct star {
	const char *after; // in the pattern; NULL: there is none
	const char *at;    // in the name: what it matches ends here
};

// The last "**" may take any bytes, the last "*" none that part: each is tried with one byte more when the rest does not match.
static bool matches(const char *glob, const char *name)
{
	struct star one = {0}, two = {0};

	while (*name) {
		if (glob[0] == '*' && glob[1] == '*') {
			glob += 2;
			two = (struct star){glob, name};
			one = (struct star){0};
		} else if (*glob == '*') {
			one = (struct star){++glob, name};
		} else if (*glob && (*glob == '?' || *glob == *name || (*glob == '.' && *name == '/'))) {
			glob++;
			name++;
		} else if (one.after && !parts(*one.at)) {
			name = ++one.at;
			glob = one.after;
		} else if (two.after) {
			name = ++two.at;
			glob = two.after;
			one = (struct star){0};
		} else {
			return false;
		}
	}
	while (*glob == '*')
		glob++;
	return !*glob;
}

bool ckpt_array_glob(const char *glob, const char *tree, const char *name)
{
	const char *colon = strchr(glob, ':');
	char of_tree[4096];

	if (!colon)
		return matches(glob, name);
	if ((size_t)(colon - glob) >= sizeof(of_tree))
		return false;
	memcpy(of_tree, glob, (size_t)(colon - glob));
	of_tree[colon - glob] = '\0';
	return matches(of_tree, tree) && matches(colon + 1, name);
}

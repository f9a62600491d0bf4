#include "core/base/nearest.h"

#include "core/base/util.h"

// Edits (insert, delete, replace, swap of neighbours) from a to b.
static size_t distance(const char *a, const char *b)
{
	enum { LEN_MAX = 40 };
	size_t la = strnlen(a, LEN_MAX), lb = strnlen(b, LEN_MAX), d[LEN_MAX + 1][LEN_MAX + 1];

	for (size_t i = 0; i <= la; i++)
		d[i][0] = i;
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = j;
	for (size_t i = 1; i <= la; i++)
		for (size_t j = 1; j <= lb; j++) {
			size_t best = MIN(d[i - 1][j], d[i][j - 1]) + 1;

			best = MIN(best, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = MIN(best, d[i - 2][j - 2] + 1);
			d[i][j] = best;
		}
	return d[la][lb];
}

const char *ckpt_nearest(const char *word, const char *const *candidates)
{
	const char *nearest = NULL;
	size_t best = MIN(strlen(word) / 3 + 1, 4u);

	for (; *candidates; candidates++) {
		size_t edits = distance(word, *candidates);

		if (strlen(word) >= 3 && !strncmp(*candidates, word, strlen(word)))
			edits = 1;
		if (edits <= best && (!nearest || edits < best)) {
			nearest = *candidates;
			best = edits;
		}
	}
	return nearest;
}

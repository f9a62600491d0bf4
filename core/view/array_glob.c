#include "core/view/array_glob.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static bool parts(char c)
{
	return c == '.' || c == '/';
}

// A pattern is a row of tokens. A state is how many of them the bytes so far have matched; several are possible at once, and `on` says which,
// from `first` to `last`. So the time is never more than tokens times bytes, whatever both are.
enum { BYTE, ANY, STAR, STARS };

struct states {
	uint8_t kinds[CKPT_ARRAY_GLOB_MAX];
	char bytes[CKPT_ARRAY_GLOB_MAX];
	bool on[CKPT_ARRAY_GLOB_MAX + 1];
	size_t count, first, last;
};

static void take_tokens(struct states *s, const char *glob)
{
	for (s->count = 0; *glob; s->count++) {
		bool stars = glob[0] == '*' && glob[1] == '*';

		s->kinds[s->count] = stars ? STARS : *glob == '*' ? STAR : *glob == '?' ? ANY : BYTE;
		s->bytes[s->count] = *glob;
		s->on[s->count] = false;
		glob += stars ? 2 : 1;
	}
	s->on[s->count] = false;
}

// A star may match nothing.
static void pass_stars(struct states *s)
{
	for (size_t i = s->first; i <= s->last && i < s->count; i++)
		if (s->on[i] && s->kinds[i] >= STAR) {
			s->on[i + 1] = true;
			s->last = s->last > i ? s->last : i + 1;
		}
}

// From the last state down: the state behind one has been seen by then.
static bool take_byte(struct states *s, char c)
{
	size_t first = s->count + 1, last = 0;

	for (size_t i = s->last + 1; i-- > s->first;) {
		bool was = s->on[i], stays, goes_on;

		if (!was)
			continue;
		stays = i < s->count && (s->kinds[i] == STARS || (s->kinds[i] == STAR && !parts(c)));
		goes_on = i < s->count &&
			  (s->kinds[i] == ANY ||
			   (s->kinds[i] == BYTE && (s->bytes[i] == c || (s->bytes[i] == '.' && c == '/'))));
		s->on[i] = stays;
		if (goes_on)
			s->on[i + 1] = true;
		if (stays || goes_on) {
			first = stays ? i : i + 1;
			last = last > i + goes_on ? last : i + goes_on;
		}
	}
	s->first = first;
	s->last = last;
	return first <= s->count;
}

static bool matches(const char *glob, const char *name, uint64_t *work)
{
	struct states s;

	if (strlen(glob) > CKPT_ARRAY_GLOB_MAX)
		return false;
	take_tokens(&s, glob);
	s.on[0] = true;
	s.first = s.last = 0;
	*work += s.count;
	for (pass_stars(&s); *name; name++) {
		*work += s.last - s.first + 1;
		if (!take_byte(&s, *name))
			return false;
		pass_stars(&s);
	}
	return s.on[s.count];
}

bool ckpt_array_glob_counted(const char *glob, const char *tree, const char *name, uint64_t *work)
{
	const char *colon = strchr(glob, ':');
	char of_tree[CKPT_ARRAY_GLOB_MAX + 1];

	if (!colon)
		return matches(glob, name, work);
	if (colon - glob > CKPT_ARRAY_GLOB_MAX)
		return false;
	memcpy(of_tree, glob, (size_t)(colon - glob));
	of_tree[colon - glob] = '\0';
	return matches(of_tree, tree, work) && matches(colon + 1, name, work);
}

bool ckpt_array_glob(const char *glob, const char *tree, const char *name)
{
	uint64_t work = 0;

	return ckpt_array_glob_counted(glob, tree, name, &work);
}

#include "tests/replay/expect.h"

#include "tests/support/suite.h"

#include "core/base/util.h"

#include <fcntl.h>
#include <stdio.h>

// In the file: the path, NUL, '+' and the text or '-', NUL.
void expect_write(const char *file, const char *path, const char *text)
{
	CLEANUP_FD int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	CLEANUP_FREE char *both = NULL;
	int len = asprintf(&both, "%s%c%c%s", path, 0, text ? '+' : '-', text ? text : "");

	if (fd < 0 || len < 0 || write(fd, both, (size_t)len + 1) != len + 1) {
		perror(file);
		abort();
	}
}

static void add(struct expect *e, const char *path, const char *text)
{
	int i = expect_find(e, path);
	struct expected *x;

	if (i < 0) {
		ck_assert_uint_lt(e->count, EXPECT_MAX);
		i = (int)e->count++;
		snprintf(e->things[i].path, sizeof(e->things[i].path), "%s", path);
	}
	x = &e->things[i];
	ck_assert_uint_lt(x->count, EXPECT_STATES_MAX);
	x->states[x->count++] = *text == '+' ? strdup(text + 1) : NULL;
}

void expect_read(struct expect *e, const char *file)
{
	FILE *in = fopen(file, "re");
	CLEANUP_FREE char *path = NULL, *text = NULL;
	size_t path_cap = 0, text_cap = 0;

	*e = (struct expect){0};
	while (in && getdelim(&path, &path_cap, 0, in) > 0 && getdelim(&text, &text_cap, 0, in) > 0)
		add(e, path, text);
	if (in)
		fclose(in);
}

void expect_done(struct expect *e)
{
	for (size_t i = 0; i < e->count; i++)
		for (size_t k = 0; k < e->things[i].count; k++)
			free(e->things[i].states[k]);
	free(e->last);
	*e = (struct expect){0};
}

int expect_find(const struct expect *e, const char *path)
{
	for (size_t i = 0; i < e->count; i++)
		if (!strcmp(e->things[i].path, path))
			return (int)i;
	return -1;
}

bool expect_fits(const struct expected *x, const char *text)
{
	for (size_t i = 0; i < x->count; i++)
		if (x->states[i] && !strcmp(x->states[i], text))
			return true;
	return false;
}

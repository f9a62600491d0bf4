// Manifests of a few files and directories, and their merge, for suites that include this.
#pragma once

#include "tests/support/suite.h"

#include "core/base/util.h"
#include "core/save/merge.h"

#include <stdio.h>
#include <stdlib.h>

#define OURS "11111111-1111-4111-8111-111111111111"
#define THEIRS "22222222-2222-4222-8222-222222222222"

struct building {
	struct ckpt_manifest_writer *w;
	uint32_t session;
	struct {
		char path[64];
		uint32_t handle;
	} dirs[16];
	size_t dir_count;
};

static inline uint64_t number_of(const char *path, char text)
{
	uint64_t h = 77;

	for (; *path; path++)
		h = h * 131 + (unsigned char)*path;
	return h * 131 + (unsigned char)text;
}

static inline uint32_t add_dir(struct building *b, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .mode = 0755, .nlink = 2, .ino = number_of(path, '/')};
	char above[64];
	uint32_t parent;

	for (size_t i = 0; i < b->dir_count; i++)
		if (!strcmp(b->dirs[i].path, path))
			return b->dirs[i].handle;
	snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - path) : 0, path);
	parent = *path ? add_dir(b, above) : 0;
	e.name = slash ? slash + 1 : path;
	ck_ok(ckpt_manifest_writer_add(b->w, parent, &e, &b->dirs[b->dir_count].handle));
	strcpy(b->dirs[b->dir_count].path, path);
	return b->dirs[b->dir_count++].handle;
}

static inline void add_file(struct building *b, const char *path, char text, uint64_t ino)
{
	const char *slash = strrchr(path, '/');
	char above[64];
	uint32_t handle;
	struct ckpt_entry e = {.type = CKPT_ENTRY_FILE,
			       .content = CKPT_CONTENT_RAW,
			       .name = slash ? slash + 1 : path,
			       .mode = 0644,
			       .session = b->session,
			       .ino = ino,
			       .bytes = 1,
			       .mtime_s = text};

	snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - path) : 0, path);
	ck_ok(ckpt_manifest_writer_add(b->w, add_dir(b, above), &e, &handle));
}

static inline void begin(struct building *b, const char *session)
{
	*b = (struct building){0};
	ck_ok(ckpt_manifest_writer_new(&b->w));
	ck_ok(ckpt_manifest_writer_session(b->w, session, &b->session));
	add_dir(b, "");
}

static inline struct ckpt_manifest *finish(struct ckpt_manifest_writer *w)
{
	struct ckpt_manifest *m;
	void *data;
	size_t len;

	ck_ok(ckpt_manifest_writer_finish(w, &data, &len));
	ckpt_manifest_writer_free(w);
	ck_ok(ckpt_manifest_parse(data, len, &m));
	return m;
}

static unsigned brought, conflicts;
static const char *host; // NULL: without conflict copies

static inline int bring(void *arg __attribute__((unused)), struct ckpt_manifest *m __attribute__((unused)),
			struct ckpt_entry *e)
{
	brought++;
	e->raw_path = "raw";
	return 0;
}

static inline int conflict(void *arg __attribute__((unused)), const char *path, const char *copy)
{
	ck_assert(*path && (!copy || strstr(copy, ".conflict-h")));
	conflicts++;
	return 0;
}

static inline int merge(struct ckpt_manifest *was, struct ckpt_manifest *own, struct ckpt_manifest *other,
			bool own_wins, struct ckpt_manifest **ret, int *ret_dirs)
{
	const struct ckpt_merge how = {.was = was,
				       .own = own,
				       .other = other,
				       .own_wins = own_wins,
				       .session = OURS,
				       .host = host,
				       .conflict = conflict,
				       .bring = bring};
	struct ckpt_manifest_writer *w;
	int rc = ckpt_merge(&how, &w, ret_dirs);

	if (!rc)
		*ret = finish(w);
	return rc;
}

static inline char text_at(const struct ckpt_manifest *m, const char *path)
{
	struct ckpt_entry e;
	uint32_t index;

	if (ckpt_manifest_lookup(m, path, &index))
		return 0;
	ckpt_manifest_entry(m, index, &e);
	return e.type == CKPT_ENTRY_FILE ? (char)e.mtime_s : '/';
}

static inline uint64_t number_at(const struct ckpt_manifest *m, const char *path)
{
	struct ckpt_entry e;
	uint32_t index;

	ck_ok(ckpt_manifest_lookup(m, path, &index));
	ckpt_manifest_entry(m, index, &e);
	return e.ino;
}

static inline void unref_all(struct ckpt_manifest *was, struct ckpt_manifest *own, struct ckpt_manifest *other,
			     struct ckpt_manifest *is)
{
	ckpt_manifest_unref(was);
	ckpt_manifest_unref(own);
	ckpt_manifest_unref(other);
	ckpt_manifest_unref(is);
}

// A tree from "path text number" lines; a path that ends in a slash is a directory, whose number follows it.
struct line {
	const char *path;
	char text;
	uint64_t number;
};

static inline void add_line(struct building *b, const struct line *l)
{
	struct ckpt_entry e = {.type = CKPT_ENTRY_DIR, .mode = 0755, .nlink = 2, .ino = l->number};
	const char *slash;
	char above[64];

	if (l->text != '/') {
		add_file(b, l->path, l->text, l->number);
		return;
	}
	slash = strrchr(l->path, '/');
	e.name = slash ? slash + 1 : l->path;
	snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - l->path) : 0, l->path);
	ck_ok(ckpt_manifest_writer_add(b->w, add_dir(b, above), &e, &b->dirs[b->dir_count].handle));
	strcpy(b->dirs[b->dir_count++].path, l->path);
}

static inline struct ckpt_manifest *tree_of(const char *session, const struct line *lines)
{
	struct building b;

	begin(&b, session);
	for (; lines->path; lines++)
		add_line(&b, lines);
	return finish(b.w);
}

#define LINES(...)                                                                                                     \
	(const struct line[])                                                                                          \
	{                                                                                                              \
		__VA_ARGS__,                                                                                           \
		{                                                                                                      \
			NULL, 0, 0                                                                                     \
		}                                                                                                      \
	}

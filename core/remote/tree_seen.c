#include "core/remote/tree_seen.h"

#include "core/base/json.h"
#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/step/store_file.h"

#include <fcntl.h>
#include <stdio.h>

#define FILE_NAME CKPT_TREE_SEEN_FILE
#define FILE_BYTES_MAX (UINT64_C(1) << 30)

static size_t place_of(const struct ckpt_tree_seen_table *t, const char *folder_id, const char *name, bool *ret_there)
{
	size_t low = 0, high = t->count;

	*ret_there = false;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(t->at[mid].folder_id, folder_id);

		order = order ? order : strcmp(t->at[mid].name, name);
		if (!order)
			*ret_there = true;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct ckpt_tree_seen *ckpt_tree_seen_find(const struct ckpt_tree_seen_table *t, const char *folder_id,
					   const char *name)
{
	bool there;
	size_t i = place_of(t, folder_id, name, &there);

	return there ? &t->at[i] : NULL;
}

struct ckpt_tree_seen *ckpt_tree_seen_folder(const struct ckpt_tree_seen_table *t, const char *id)
{
	for (size_t i = 0; i < t->count; i++)
		if (!strcmp(t->at[i].id, id))
			return &t->at[i];
	return NULL;
}

static int insert(struct ckpt_tree_seen_table *t, size_t i, const char *folder_id, const char *name)
{
	int rc = ckpt_grow((void **)&t->at, &t->cap, t->count + 1, sizeof(*t->at));
	char *copy = rc ? NULL : strdup(name);

	if (!copy)
		return -ENOMEM;
	memmove(&t->at[i + 1], &t->at[i], (t->count - i) * sizeof(*t->at));
	t->at[i] = (struct ckpt_tree_seen){.name = copy};
	snprintf(t->at[i].folder_id, sizeof(t->at[i].folder_id), "%s", folder_id);
	t->count++;
	return 0;
}

int ckpt_tree_seen_set(struct ckpt_tree_seen_table *t, const char *folder_id, const char *name, const char *id,
		       uint64_t version, const struct ckpt_tree_file *file)
{
	bool there;
	size_t i = place_of(t, folder_id, name, &there);
	int rc = there ? 0 : insert(t, i, folder_id, name);

	if (rc)
		return rc;
	snprintf(t->at[i].id, sizeof(t->at[i].id), "%s", id ? id : "");
	t->at[i].version = version;
	t->at[i].file = file ? *file : (struct ckpt_tree_file){0};
	t->changed = true;
	return 0;
}

void ckpt_tree_seen_drop(struct ckpt_tree_seen_table *t, const char *folder_id, const char *name)
{
	bool there;
	size_t i = place_of(t, folder_id, name, &there);

	if (!there)
		return;
	free(t->at[i].name);
	memmove(&t->at[i], &t->at[i + 1], (--t->count - i) * sizeof(*t->at));
	t->changed = true;
}

void ckpt_tree_seen_done(struct ckpt_tree_seen_table *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->at[i].name);
	free(t->at);
	*t = (struct ckpt_tree_seen_table){0};
}

// --- On disk ------------------------------------------------------------------------------------------------------------

static json_t *to_json(const struct ckpt_tree_seen *e)
{
	return json_pack("[s, s, s, I, I, I, I, I]", e->folder_id, e->name, e->id, (json_int_t)e->version,
			 (json_int_t)e->file.ino, (json_int_t)e->file.size, (json_int_t)e->file.mtime_ns,
			 (json_int_t)e->file.ctime_ns);
}

static int take(struct ckpt_tree_seen_table *t, json_t *entry)
{
	const char *folder_id, *name, *id;
	json_int_t version, ino, size, mtime_ns, ctime_ns;
	struct ckpt_tree_file file;

	if (json_unpack(entry, "[s, s, s, I, I, I, I, I !]", &folder_id, &name, &id, &version, &ino, &size, &mtime_ns,
			&ctime_ns) ||
	    ckpt_name_check(name, strlen(name)) || !ckpt_name_is_folder_id(folder_id) || !ckpt_name_is_folder_id(id))
		return 0;
	file = (struct ckpt_tree_file){
		.ino = (uint64_t)ino, .size = (uint64_t)size, .mtime_ns = mtime_ns, .ctime_ns = ctime_ns};
	return ckpt_tree_seen_set(t, folder_id, name, *id ? id : NULL, (uint64_t)version, &file);
}

static int read_text(int dirfd, char **ret_text, size_t *ret_len)
{
	CLEANUP_FD int fd = ckpt_sys.open(dirfd, FILE_NAME, O_RDONLY | O_NONBLOCK, 0);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > FILE_BYTES_MAX)
		return -ENOENT;
	*ret_text = malloc((size_t)st.st_size + 1);
	if (!*ret_text)
		return -ENOMEM;
	n = ckpt_sys.pread(fd, *ret_text, (size_t)st.st_size, 0);
	*ret_len = n < 0 ? 0 : (size_t)n;
	return 0;
}

int ckpt_tree_seen_load(struct ckpt_tree_seen_table *t, int dirfd)
{
	CLEANUP_FREE char *text = NULL;
	json_t *all = NULL, *entry;
	size_t len, i;
	int rc;

	*t = (struct ckpt_tree_seen_table){0};
	rc = read_text(dirfd, &text, &len);
	if (!rc)
		rc = ckpt_json_load(text, len, 0, NULL, &all);
	if (rc)
		return rc == -ENOMEM ? rc : 0;
	json_array_foreach(all, i, entry)
	{
		rc = take(t, entry);
		if (rc)
			break;
	}
	json_decref(all);
	t->changed = false;
	return rc;
}

int ckpt_tree_seen_save(struct ckpt_tree_seen_table *t, int dirfd)
{
	CLEANUP_FREE char *text = NULL;
	json_t *all;
	bool ok;
	int rc;

	if (!t->changed)
		return 0;
	all = json_array();
	ok = all;
	for (size_t i = 0; ok && i < t->count; i++)
		ok = !json_array_append_new(all, to_json(&t->at[i]));
	if (!ok) {
		json_decref(all);
		return -ENOMEM;
	}
	text = ckpt_json_dump(all, JSON_COMPACT);
	rc = text ? ckpt_store_file_write(dirfd, FILE_NAME, text) : -ENOMEM;
	t->changed = rc;
	return rc;
}

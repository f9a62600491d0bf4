#include "core/save/merge_change.h"

#include "core/base/util.h"
#include "core/record/name.h"

bool ckpt_merge_is_dir(const struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_entry e;

	if (index == CKPT_MERGE_NONE)
		return false;
	ckpt_manifest_entry(m, index, &e);
	return e.type == CKPT_ENTRY_DIR;
}

static bool next_clients_xattr(const struct ckpt_manifest *m, const struct ckpt_entry *e, uint32_t *i,
			       const char **ret_name, const void **ret_value, size_t *ret_len)
{
	while (ckpt_manifest_xattr(m, e, (*i)++, ret_name, ret_value, ret_len))
		if (strncmp(*ret_name, CKPT_OWN_XATTRS, strlen(CKPT_OWN_XATTRS)) != 0)
			return true;
	return false;
}

// Both have them in one order.
bool ckpt_merge_same_xattrs(const struct ckpt_manifest *a, const struct ckpt_entry *x, const struct ckpt_manifest *b,
			    const struct ckpt_entry *y)
{
	const void *value, *other_value;
	const char *name, *other_name;
	size_t len, other_len;
	uint32_t i = 0, k = 0;

	for (;;) {
		bool more = next_clients_xattr(a, x, &i, &name, &value, &len);

		if (next_clients_xattr(b, y, &k, &other_name, &other_value, &other_len) != more)
			return false;
		if (!more)
			return true;
		if (strcmp(name, other_name) != 0 || len != other_len || memcmp(value, other_value, len) != 0)
			return false;
	}
}

// The seals say so where both sides have one. Else it is the same file, which nobody has written since.
bool ckpt_merge_same_bytes(const struct ckpt_merge *how, const struct ckpt_manifest *m, const struct ckpt_entry *e,
			   const struct ckpt_entry *was)
{
	struct ckpt_seal seal, was_seal;

	if (e->bytes != was->bytes || e->mtime_s != was->mtime_s || e->mtime_ns != was->mtime_ns)
		return false;
	if (ckpt_manifest_seal(m, e->index, &seal) && ckpt_manifest_seal(how->was, was->index, &was_seal))
		return !memcmp(seal.sha256, was_seal.sha256, sizeof(seal.sha256));
	return e->ino == was->ino ||
	       (how->number_before && how->number_before(how->arg, m == how->own, e->ino) == was->ino);
}

bool ckpt_merge_differs(const struct ckpt_merge *how, const struct ckpt_manifest *m, uint32_t index, uint32_t was_index)
{
	struct ckpt_entry e, was;

	if (index == CKPT_MERGE_NONE || was_index == CKPT_MERGE_NONE)
		return index != was_index;
	ckpt_manifest_entry(m, index, &e);
	ckpt_manifest_entry(how->was, was_index, &was);
	if (e.type != was.type || e.mode != was.mode || e.uid != was.uid || e.gid != was.gid ||
	    !ckpt_merge_same_xattrs(m, &e, how->was, &was))
		return true;
	switch (e.type) {
	case CKPT_ENTRY_DIR:
		return false;
	case CKPT_ENTRY_SYMLINK:
		return strcmp(e.target, was.target) != 0;
	default:
		return !ckpt_merge_same_bytes(how, m, &e, &was);
	}
}

uint32_t ckpt_merge_child(const struct ckpt_manifest *m, uint32_t dir, const char *name)
{
	uint32_t index;

	return ckpt_merge_is_dir(m, dir) && !ckpt_manifest_child(m, dir, name, &index) ? index : CKPT_MERGE_NONE;
}

// It, or something below it.
bool ckpt_merge_differs_below(const struct ckpt_merge *how, const struct ckpt_manifest *m, uint32_t index, uint32_t was)
{
	struct ckpt_entry dir, e;

	if (ckpt_merge_differs(how, m, index, was))
		return true;
	if (!ckpt_merge_is_dir(m, index))
		return false;
	ckpt_manifest_entry(m, index, &dir);
	for (uint32_t i = 0; i < dir.child_count; i++) {
		ckpt_manifest_entry(m, dir.child_first + i, &e);
		if (ckpt_merge_differs_below(how, m, e.index, ckpt_merge_child(how->was, was, e.name)))
			return true;
	}
	ckpt_manifest_entry(how->was, was, &dir);
	for (uint32_t i = 0; i < dir.child_count; i++) {
		ckpt_manifest_entry(how->was, dir.child_first + i, &e);
		if (ckpt_merge_child(m, index, e.name) == CKPT_MERGE_NONE)
			return true;
	}
	return false;
}

// HDF5: a dataset is an array, called like its path in the file, without the first slash. The superblock stands at 0, 512, 1024 and so on,
// behind bytes of the user; addresses count from it.
//
// A group is walked once, whatever links lead to it: so cycles end. A link that is not followed is listed with its reason.
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"
#include "core/limits.h"

#define SIGNATURE "\x89HDF\r\n\x1a\n"
#define SIGNATURE_BYTES 8
#define USER_BYTES_MIN 512u
#define USER_BYTES_MAX (UINT64_C(1) << 30)
#define DEPTH_MAX 64u // of groups

// --- Addresses --------------------------------------------------------------------------------------------------------

static size_t slot_of(const struct ckpt_hdf5_seen *s, uint64_t address)
{
	size_t at = (size_t)(address * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (s->cap - 1);

	while (s->slots[at] && s->slots[at] != address + 1)
		at = (at + 1) & (s->cap - 1);
	return at;
}

static int grow(struct ckpt_hdf5_seen *s)
{
	struct ckpt_hdf5_seen before = *s;

	s->cap = s->cap ? s->cap * 2 : 64;
	s->slots = ckpt_calloc(s->cap, sizeof(*s->slots));
	if (!s->slots) {
		*s = before;
		return -ENOMEM;
	}
	for (size_t i = 0; i < before.cap; i++)
		if (before.slots[i])
			s->slots[slot_of(s, before.slots[i] - 1)] = before.slots[i];
	free(before.slots);
	return 0;
}

int ckpt_hdf5_see(struct ckpt_hdf5_seen *seen, uint64_t address, bool *ret_before)
{
	int rc = 2 * (seen->count + 1) > seen->cap ? grow(seen) : 0;
	size_t at;

	if (rc)
		return rc;
	at = slot_of(seen, address);
	*ret_before = seen->slots[at];
	seen->count += !*ret_before;
	seen->slots[at] = address + 1;
	return 0;
}

// --- Groups -----------------------------------------------------------------------------------------------------------

struct walk {
	struct ckpt_hdf5 *h;
	struct ckpt_hdf5_seen groups;
	char *name; // the path to here, with a slash behind each group
	size_t name_len, name_cap;
	unsigned depth;
};

static int list(struct walk *w, const char *why)
{
	const struct ckpt_catalog_entry entry = {
		.name = w->name,
		.name_len = w->name_len,
		.format = "hdf5",
		.why = why,
	};

	return ckpt_catalog_add(w->h->reading, &entry);
}

static int take_link(void *arg, const struct ckpt_hdf5_link *link);

static int walk_group(struct walk *w, const struct ckpt_hdf5_object *o)
{
	size_t len = w->name_len;
	void *name = w->name;
	int rc = ckpt_grow(&name, &w->name_cap, len + 1, 1);

	w->name = name;
	if (rc)
		return rc;
	if (len)
		w->name[w->name_len++] = '/';
	w->depth++;
	rc = ckpt_hdf5_each_link(w->h, o, take_link, w);
	w->depth--;
	w->name_len = len;
	return rc;
}

static int take_group(struct walk *w, uint64_t address, const struct ckpt_hdf5_object *o)
{
	bool before;
	int rc = ckpt_hdf5_see(&w->groups, address, &before);

	if (rc)
		return rc;
	if (before)
		return list(w, "it is a second link to a group, which is listed once");
	return w->depth >= DEPTH_MAX ? list(w, "it lies in too many groups") : walk_group(w, o);
}

static int take_object(struct walk *w, uint64_t address)
{
	struct ckpt_hdf5_object o = {0};
	int rc = ckpt_hdf5_object_read(w->h, address, &o);

	if (!rc && ckpt_hdf5_is_dataset(&o))
		rc = ckpt_hdf5_add_dataset(w->h, &o, w->name, w->name_len);
	else if (!rc && ckpt_hdf5_is_group(&o))
		rc = take_group(w, address, &o);
	ckpt_hdf5_object_done(&o);
	return rc;
}

static int take_link(void *arg, const struct ckpt_hdf5_link *link)
{
	struct walk *w = arg;
	size_t len = w->name_len;
	void *name = w->name;
	int rc;

	if (len + link->name_len > CKPT_ARRAY_NAME_MAX)
		return ckpt_catalog_refuse(w->h->reading, "name", "the path of an object is too long");
	rc = ckpt_grow(&name, &w->name_cap, len + link->name_len + 1, 1);
	w->name = name;
	if (rc)
		return rc;
	memcpy(w->name + len, link->name, link->name_len);
	w->name_len += link->name_len;
	rc = link->why ? list(w, link->why) : take_object(w, link->address);
	w->name_len = len;
	return rc;
}

// --- The superblock ---------------------------------------------------------------------------------------------------

static bool is_size(unsigned bytes)
{
	return bytes == 2 || bytes == 4 || bytes == 8;
}

// The base address that it has is not looked at: libraries count from the superblock, too, where that says another one.
static int read_superblock(struct ckpt_hdf5 *h, uint64_t *ret_root)
{
	uint8_t front[16], rest[96];
	struct ckpt_hdf5_bytes b = {.at = rest};
	unsigned version, at;
	int rc = ckpt_hdf5_read(h, 0, front, sizeof(front));

	if (rc)
		return rc;
	version = front[SIGNATURE_BYTES];
	if (version > 3)
		return ckpt_catalog_refuse(h->reading, "superblock", "its version %u is not known", version);
	h->offset_bytes = front[version < 2 ? 13 : 9];
	h->length_bytes = front[version < 2 ? 14 : 10];
	if (!is_size(h->offset_bytes) || !is_size(h->length_bytes))
		return ckpt_catalog_refuse(h->reading, "superblock", "its addresses or lengths have an unusual size");
	at = version == 0 ? 24 : version == 1 ? 28 : 12;
	b.left = (version < 2 ? 6 : 4) * h->offset_bytes;
	rc = ckpt_hdf5_read(h, at, rest, b.left);
	if (!rc && version >= 2)
		rc = ckpt_hdf5_check(h, "superblock", 0, at + b.left);
	if (rc)
		return rc;
	// In front of the root's address, version 0 and 1: base, free space, end, driver, offset of a name; else base, extension, end.
	ckpt_hdf5_skip(&b, (version < 2 ? 5 : 3) * h->offset_bytes);
	*ret_root = ckpt_hdf5_take_address(h, &b);
	return *ret_root == CKPT_HDF5_NONE ? ckpt_hdf5_refuse(h, "superblock") : 0;
}

static int read_file(struct ckpt_hdf5 *h)
{
	struct walk w = {.h = h};
	uint64_t root;
	int rc = read_superblock(h, &root);

	if (!rc)
		rc = take_object(&w, root);
	free(w.groups.slots);
	free(w.name);
	return rc;
}

// Addresses begin there. *ret_found: it is somewhere.
static int find_superblock(struct ckpt_hdf5 *h, bool *ret_found)
{
	int rc = 0;

	*ret_found = false;
	for (uint64_t at = 0; at <= USER_BYTES_MAX && at + SIGNATURE_BYTES <= h->bytes && !rc;
	     at = at ? 2 * at : USER_BYTES_MIN) {
		uint8_t front[SIGNATURE_BYTES];

		rc = ckpt_source_read(&h->reading->source, h->begin + at, front, sizeof(front));
		*ret_found = !rc && !memcmp(front, SIGNATURE, SIGNATURE_BYTES);
		if (!*ret_found)
			continue;
		h->begin += at;
		h->bytes -= at;
		break;
	}
	return rc;
}

int ckpt_catalog_read_hdf5(struct ckpt_catalog_reading *r, uint64_t offset, uint64_t bytes)
{
	struct ckpt_hdf5 *h = ckpt_calloc(1, sizeof(*h));
	bool found;
	int rc;

	if (!h)
		return -ENOMEM;
	h->reading = r;
	h->begin = offset;
	h->bytes = bytes;
	rc = find_superblock(h, &found);
	if (!rc && found)
		rc = read_file(h);
	else if (!rc && bytes)
		rc = ckpt_catalog_refuse(r, "superblock", "its signature is missing");
	free(h->summed.slots);
	free(h);
	return rc;
}

// --- Files ------------------------------------------------------------------------------------------------------------

static bool is_hdf5(const struct ckpt_catalog_reading *r)
{
	const char *dot = strrchr(r->base, '.');

	return (r->head_len >= SIGNATURE_BYTES && !memcmp(r->head, SIGNATURE, SIGNATURE_BYTES)) ||
	       (dot && (!strcmp(dot, ".h5") || !strcmp(dot, ".hdf5")));
}

static int read_hdf5(struct ckpt_catalog_reading *r)
{
	return ckpt_catalog_read_hdf5(r, 0, r->source.bytes);
}

const struct ckpt_catalog_format ckpt_catalog_hdf5 = {"hdf5", is_hdf5, read_hdf5};

// torch.save() without a zip, as before torch 1.6 (torch/serialization.py: _legacy_save): pickles behind each other.
//
//	a magic number, a version, a dictionary about the system, the saved object, the list of the keys of its storages
//
// Then, in the order of the keys, the bytes of each storage behind its number of elements (u64). How wide these are stands in the object.
//
// Before torch 0.2 it was a tar archive of the members sys_info, pickle, storages and tensors (legacy_load() there). One is listed as a
// file that is not read.
#include "core/array/catalog_torch.h"

#include "core/base/util.h"
#include "core/limits.h"

#define MAGIC_BYTES 13             // that it begins with, behind the head of a pickle
#define SMALL_BYTES_MAX (1u << 20) // of a pickle beside that of the object: both are in memory
#define KEY_MAX 255                // bytes of the key of a storage

// The magic number begins here in the first pickle; from protocol 4 on it is in a frame.
static size_t magic_at(const struct ckpt_catalog_reading *r)
{
	return r->head[2] == 0x95 ? 11 : 2;
}

static bool is_legacy(const struct ckpt_catalog_reading *r)
{
	static const uint8_t magic[MAGIC_BYTES] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
						   0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

	return r->head_len >= 11 + MAGIC_BYTES && r->head[0] == 0x80 && r->head[1] >= 2 && r->head[1] <= 5 &&
	       !memcmp(r->head + magic_at(r), magic, MAGIC_BYTES);
}

static int take_pickle(struct ckpt_torch *r, const char *field, uint64_t max, uint64_t *at,
		       struct ckpt_pickle **ret_pickle)
{
	struct ckpt_pickle_fault fault;
	uint64_t end = *at + MIN(r->source->bytes - *at, max);
	int rc = ckpt_pickle_read(r->source, *at, end, ret_pickle, at, &fault);

	return rc != -EINVAL ? rc
			     : ckpt_catalog_refuse(r->catalog, field, "byte %llu of the file: %s",
						   (unsigned long long)fault.at, fault.what);
}

static int take_system(struct ckpt_torch *r, uint64_t *at)
{
	struct ckpt_pickle *p = NULL;
	ckpt_value value;
	int64_t little = 1;
	int rc = take_pickle(r, "version", SMALL_BYTES_MAX, at, &p);

	ckpt_pickle_free(TAKE_PTR(p));
	if (!rc)
		rc = take_pickle(r, "system", SMALL_BYTES_MAX, at, &p);
	if (!rc && ckpt_value_get(p, ckpt_pickle_root(p), "little_endian", &value))
		(void)ckpt_value_int(p, value, &little);
	r->big_endian = !little;
	ckpt_pickle_free(p);
	return rc;
}

static void drop_doubles(struct ckpt_torch *r)
{
	size_t kept = 0;

	if (r->count)
		qsort(r->storages, r->count, sizeof(*r->storages), ckpt_torch_by_key);
	for (size_t i = 0; i < r->count; i++)
		if (!i || ckpt_torch_by_key(&r->storages[kept - 1], &r->storages[i]))
			r->storages[kept++] = r->storages[i];
	r->count = kept;
}

// One storage may be named a million times: room for more is only made where at least half of those that are here differ.
static int add_storage(struct ckpt_torch *r, const struct ckpt_torch_storage *s)
{
	int rc = 0;

	if (r->count == r->cap) {
		drop_doubles(r);
		if (r->count >= r->cap / 2) {
			if (ckpt_pickle_bytes(r->pickle) + (2 * r->cap + 1) * sizeof(*s) > CKPT_PICKLE_BYTES_MAX)
				return ckpt_catalog_refuse(r->catalog, "object", "its storages take too much memory");
			rc = ckpt_grow((void **)&r->storages, &r->cap, r->cap + 1, sizeof(*s));
		}
	}
	if (!rc)
		r->storages[r->count++] = *s;
	return rc;
}

// Those that the object names; their place is not known yet.
static int list_storages(struct ckpt_torch *r)
{
	const struct ckpt_pickle *p = r->pickle;
	size_t len;
	int rc = 0;

	for (ckpt_value v = 0; v < ckpt_pickle_count(p) && !rc; v++) {
		ckpt_value id = ckpt_value_id(p, v);
		const char *class = ckpt_value_global(p, ckpt_value_at(p, id, 1), &len);
		struct ckpt_torch_storage s = {.offset = r->source->bytes, .member = {.stored = true}};

		s.key = ckpt_value_text(p, ckpt_value_at(p, id, 2), &s.key_len);
		s.width = class ? ckpt_torch_storage_width(class, len) : 0;
		if (ckpt_value_kind(p, v) == CKPT_VALUE_PERSISTENT && s.key && s.key_len <= KEY_MAX && s.width)
			rc = add_storage(r, &s);
	}
	drop_doubles(r);
	return rc;
}

static int place_storages(struct ckpt_torch *r, const struct ckpt_pickle *keys, uint64_t at)
{
	for (ckpt_item item = ckpt_value_first(keys, ckpt_pickle_root(keys)); item; item = ckpt_item_next(keys, item)) {
		struct ckpt_torch_storage want = {0}, *s;
		uint8_t numel[8];
		int rc;

		want.key = ckpt_value_text(keys, ckpt_item_value(keys, item), &want.key_len);
		s = want.key && r->count ? bsearch(&want, r->storages, r->count, sizeof(want), ckpt_torch_by_key)
					 : NULL;
		if (!s)
			return ckpt_catalog_refuse(r->catalog, "keys",
						   "a storage is none of those that the object has");
		rc = ckpt_source_read(r->source, at, numel, sizeof(numel));
		if (rc && rc != -EINVAL && rc != -ENODATA)
			return rc;
		if (rc || __builtin_mul_overflow(ckpt_get64(numel), (uint64_t)s->width, &s->member.bytes) ||
		    s->member.bytes > r->source->bytes - at - sizeof(numel))
			return ckpt_catalog_refuse(r->catalog, "storages", "%.*s lies outside of the file",
						   (int)MIN(s->key_len, (size_t)64), s->key);
		s->offset = at + sizeof(numel);
		at = s->offset + s->member.bytes;
	}
	return 0;
}

// --- The tar archive --------------------------------------------------------------------------------------------------

#define TAR_BLOCK 512u
#define TAR_HEADERS_MAX 8 // that are looked at: two files, each with attributes in front

enum { TAR_BYTES = 124, TAR_BYTES_LEN = 12, TAR_KIND = 156, TAR_MAGIC = 257 };

// Python writes attributes in front of a file whose time has a fraction.
static bool begins_as_tar(const struct ckpt_catalog_reading *r)
{
	static const char file[] = "sys_info", attributes[] = "././@PaxHeader";

	return r->head_len == CKPT_CATALOG_HEAD &&
	       (!memcmp(r->head, file, sizeof(file)) || !memcmp(r->head, attributes, sizeof(attributes)));
}

static uint64_t octal(const uint8_t *digits, size_t len)
{
	uint64_t number = 0;

	for (size_t i = 0; i < len && digits[i] >= '0' && digits[i] <= '7'; i++)
		number = number << 3 | (digits[i] - '0');
	return number;
}

// Its first two files are those that torch began with.
static int is_torch_tar(const struct ckpt_source *source, bool *ret_is)
{
	static const char *const names[] = {"sys_info", "pickle"};
	uint8_t block[TAR_BLOCK];
	uint64_t at = 0;
	size_t files = 0;

	*ret_is = false;
	for (int i = 0; i < TAR_HEADERS_MAX && files < ARRAY_LEN(names); i++) {
		int rc = ckpt_source_read(source, at, block, sizeof(block));
		bool is_file;

		if (rc)
			return rc == -EINVAL ? 0 : rc;
		is_file = block[TAR_KIND] == '0' || !block[TAR_KIND];
		if (memcmp(block + TAR_MAGIC, "ustar", 5) ||
		    (is_file && memcmp(block, names[files], strlen(names[files]) + 1)))
			return 0;
		files += is_file;
		at += TAR_BLOCK + (octal(block + TAR_BYTES, TAR_BYTES_LEN) + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
	}
	*ret_is = files == ARRAY_LEN(names);
	return 0;
}

static int read_tar(struct ckpt_catalog_reading *r)
{
	const struct ckpt_catalog_entry entry = {
		.name = "",
		.format = "torch",
		.why = "it is a tar archive, as torch before 0.2 wrote it: load it with torch and save it again",
	};
	bool is;
	int rc = is_torch_tar(&r->source, &is);

	return rc || !is ? rc : ckpt_catalog_add(r, &entry);
}

// --- Files ------------------------------------------------------------------------------------------------------------

static bool is_either(const struct ckpt_catalog_reading *r)
{
	return is_legacy(r) || begins_as_tar(r);
}

static int read_legacy(struct ckpt_catalog_reading *catalog)
{
	struct ckpt_torch r = {.catalog = catalog, .source = &catalog->source, .field = "object"};
	struct ckpt_pickle *keys = NULL;
	uint64_t at = magic_at(catalog) + MAGIC_BYTES;
	int rc;

	if (!is_legacy(catalog))
		return read_tar(catalog);
	rc = take_system(&r, &at);
	if (!rc)
		rc = take_pickle(&r, "object", UINT64_MAX, &at, &r.pickle);
	if (!rc)
		rc = list_storages(&r);
	if (!rc)
		rc = take_pickle(&r, "keys", SMALL_BYTES_MAX, &at, &keys);
	if (!rc)
		rc = place_storages(&r, keys, at);
	ckpt_pickle_free(keys);
	if (!rc)
		rc = ckpt_torch_walk(&r);
	ckpt_torch_done(&r);
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_torch_legacy = {"torch", is_either, read_legacy};

// Attributes that are text: h5py and Keras have the dtype in one where HDF5 has no type for it. The text lies in the message, or in the
// global heap.
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"

enum { STRING = 3, VARIABLE = 9 };

#define IS_TEXT 1 // of VARIABLE: it is a string
#define IS_SHARED 1

// An object of a collection of the global heap.
static int read_heap(struct ckpt_hdf5 *h, uint64_t address, uint64_t index, char *buf, size_t bytes, bool *ret_found)
{
	uint8_t front[16];
	struct ckpt_hdf5_bytes b = {front, 4 + h->length_bytes, false};
	uint64_t at = address + 8 + h->length_bytes, end;
	int rc = ckpt_hdf5_read_block(h, address, "GCOL", front, b.left);

	if (rc)
		return rc;
	ckpt_hdf5_take(&b, 4);
	end = ckpt_hdf5_take_length(h, &b);
	end = address + MIN(end, h->bytes);
	while (at < end && end - at >= 8 + h->length_bytes) {
		uint64_t number, len;

		b = (struct ckpt_hdf5_bytes){front, 8 + h->length_bytes, false};
		rc = ckpt_hdf5_read(h, at, front, b.left);
		if (rc)
			return rc;
		number = ckpt_hdf5_take(&b, 2);
		ckpt_hdf5_take(&b, 6);
		len = ckpt_hdf5_take_length(h, &b);
		at += 8 + h->length_bytes;
		if (number == index && len >= bytes) {
			*ret_found = true;
			return ckpt_hdf5_read(h, at, buf, bytes);
		}
		if (!number || number == index || len > end - at)
			return 0;
		at += (len + 7) & ~UINT64_C(7);
	}
	return 0;
}

static bool take_part(struct ckpt_hdf5_bytes *b, uint64_t bytes, bool padded, struct ckpt_hdf5_bytes *ret_part)
{
	const uint8_t *at = ckpt_hdf5_skip(b, padded ? (bytes + 7) & ~UINT64_C(7) : bytes);

	*ret_part = (struct ckpt_hdf5_bytes){at, at ? (size_t)bytes : 0, !at};
	return at;
}

static int is_text(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *type, struct ckpt_hdf5_bytes *data, const char *text,
		   bool *ret_is)
{
	uint64_t class = ckpt_hdf5_take(type, 1) & 15, kind = ckpt_hdf5_take(type, 1) & 15, bytes = strlen(text), len,
		 address, index;
	char buf[32];
	bool found = false;
	int rc;

	ckpt_hdf5_take(type, 2);
	len = ckpt_hdf5_take(type, 4);
	if (type->broken || bytes > sizeof(buf))
		return 0;
	if (class == STRING) {
		const uint8_t *at = ckpt_hdf5_skip(data, len);

		*ret_is = at && len >= bytes && !memcmp(at, text, bytes) && (len == bytes || !at[bytes]);
		return 0;
	}
	len = ckpt_hdf5_take(data, 4);
	address = ckpt_hdf5_take_address(h, data);
	index = ckpt_hdf5_take(data, 4);
	if (class != VARIABLE || kind != IS_TEXT || data->broken || len != bytes)
		return 0;
	rc = read_heap(h, address, index, buf, bytes, &found);
	*ret_is = !rc && found && !memcmp(buf, text, bytes);
	return rc;
}

static int look_at(struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *b, const char *name, const char *text, bool *ret_is)
{
	uint64_t version = ckpt_hdf5_take(b, 1), flags = ckpt_hdf5_take(b, 1), name_len = ckpt_hdf5_take(b, 2),
		 type_len = ckpt_hdf5_take(b, 2), space_len = ckpt_hdf5_take(b, 2);
	struct ckpt_hdf5_bytes called, type, space;

	if (version == 3)
		ckpt_hdf5_take(b, 1);
	if (!take_part(b, name_len, version == 1, &called) || !take_part(b, type_len, version == 1, &type) ||
	    !take_part(b, space_len, version == 1, &space))
		return 0;
	if ((version > 1 && flags & IS_SHARED) || name_len != strlen(name) + 1 ||
	    memcmp(called.at, name, (size_t)name_len))
		return 0;
	return is_text(h, &type, b, text, ret_is);
}

int ckpt_hdf5_has_attribute(struct ckpt_hdf5 *h, const struct ckpt_hdf5_object *o, const char *name, const char *text,
			    bool *ret_has)
{
	struct ckpt_hdf5_bytes body;
	int rc = 0;

	*ret_has = false;
	for (size_t i = 0; i < o->count && !rc && !*ret_has; i++) {
		const struct ckpt_hdf5_message *m = &o->messages[i];

		if (m->type != CKPT_HDF5_ATTRIBUTE || m->is_shared)
			continue;
		rc = ckpt_hdf5_body(h, m, &body);
		if (!rc)
			rc = look_at(h, &body, name, text, ret_has);
	}
	return rc;
}

// A zip is one of torch.save() if it has TOP/data.pkl (catalog_torch.c), one of numpy.savez() if it has *.npy, one of Keras if it has
// *.weights.h5: a .keras, whose arrays are called as in that HDF5. Others are of no format here.
#include "core/array/catalog_hdf5.h"
#include "core/array/catalog_npy.h"

#include "core/array/zip.h"
#include "core/base/util.h"

struct members {
	struct ckpt_catalog_reading *reading;
	bool has_pickle, has_npy, has_weights;
};

static bool ends_in(const struct ckpt_zip_member *m, const char *end)
{
	size_t len = strlen(end);

	return m->name_len >= len && !memcmp(m->name + m->name_len - len, end, len);
}

static int look_at(void *arg, const struct ckpt_zip_member *m)
{
	struct members *members = arg;

	members->has_pickle |= ends_in(m, "/data.pkl");
	members->has_npy |= ends_in(m, ".npy");
	members->has_weights |= ends_in(m, ".weights.h5");
	return 0;
}

// A member that cannot be read breaks nothing else.
static int add_member(void *arg, const struct ckpt_zip_member *m)
{
	struct members *members = arg;
	struct ckpt_catalog_reading *r = members->reading;
	struct ckpt_catalog_entry entry = {.name = m->name, .name_len = m->name_len - 4, .format = "npz"};
	const char *broken;
	uint64_t data;
	int rc;

	if (!ends_in(m, ".npy"))
		return 0;
	if (!m->stored && !m->deflated) {
		entry.why = "its member of the zip is encrypted, or compressed by another method than deflate";
		return ckpt_catalog_add(r, &entry);
	}
	rc = ckpt_zip_data(&r->source, m, &data);
	if (!rc && m->bytes > r->source.bytes - MIN(data, r->source.bytes))
		rc = -EINVAL;
	if (rc)
		return rc;
	rc = m->stored ? ckpt_catalog_add_npy(r, &entry, data, m->bytes, &broken)
		       : ckpt_catalog_add_npy_deflated(r, &entry, data, m->bytes, m->unpacked, &broken);
	if (rc != -EINVAL || !broken)
		return rc;
	entry.why = broken;
	return ckpt_catalog_add(r, &entry);
}

// HDF5 is read from any place of it: a member that is compressed is none.
static int add_weights(void *arg, const struct ckpt_zip_member *m)
{
	struct members *members = arg;
	struct ckpt_catalog_reading *r = members->reading;
	const struct ckpt_catalog_entry entry = {
		.name = m->name,
		.name_len = m->name_len,
		.format = "hdf5",
		.why = "its member of the zip is compressed or encrypted: arrays in it are not listed",
	};
	uint64_t data;
	int rc;

	if (!ends_in(m, ".weights.h5"))
		return 0;
	if (!m->stored)
		return ckpt_catalog_add(r, &entry);
	rc = ckpt_zip_data(&r->source, m, &data);
	if (!rc && m->bytes > r->source.bytes - MIN(data, r->source.bytes))
		rc = -EINVAL;
	return rc ? rc : ckpt_catalog_read_hdf5(r, data, m->bytes);
}

static bool is_zip(const struct ckpt_catalog_reading *r)
{
	return r->head_len >= 4 && (!memcmp(r->head, "PK\3\4", 4) || !memcmp(r->head, "PK\5\6", 4));
}

static int read_zip(struct ckpt_catalog_reading *r)
{
	struct members members = {.reading = r};
	struct ckpt_zip zip;
	int rc = ckpt_zip_find(&r->source, &zip);

	if (!rc)
		rc = ckpt_zip_each(&r->source, &zip, look_at, &members);
	if (rc == -EINVAL)
		return ckpt_catalog_refuse(r, "central directory", "it is missing, or breaks a rule of zip files");
	if (rc)
		return rc;
	if (members.has_pickle)
		return ckpt_catalog_read_torch(r, &zip);
	if (members.has_weights)
		return ckpt_zip_each(&r->source, &zip, add_weights, &members);
	rc = members.has_npy ? ckpt_zip_each(&r->source, &zip, add_member, &members) : 0;
	return rc;
}

const struct ckpt_catalog_format ckpt_catalog_zip = {"zip", is_zip, read_zip};

// HDF5 is not read: its library would have to run on hostile bytes in this process. The file is listed with that reason.
#include "core/array/catalog_format.h"

#include <string.h>

static bool is_hdf5(const struct ckpt_catalog_reading *r)
{
	return r->head_len >= 8 && !memcmp(r->head, "\x89HDF\r\n\x1a\n", 8);
}

static int read_hdf5(struct ckpt_catalog_reading *r)
{
	return ckpt_catalog_refuse(r, "format", "HDF5 is not read: no array of it is listed");
}

const struct ckpt_catalog_format ckpt_catalog_hdf5 = {"hdf5", is_hdf5, read_hdf5};

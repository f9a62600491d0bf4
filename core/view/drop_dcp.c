// .metadata of torch.distributed.checkpoint (core/array/catalog_dcp.c has its form): names are keys of state_dict_metadata, planner_data and
// mcore_data, and fqn of the keys of storage_data. Megatron's remove_sharded_tensors() leaves out the same.
#include "core/view/drop.h"

#include "core/array/pickle_edit.h"
#include "core/base/sys.h"
#include "core/base/util.h"

#define ATTRIBUTES_MAX 64 // of an object

struct dropping {
	const struct ckpt_drop *how;
	const struct ckpt_pickle *p;
	uint8_t *cut;
};

static ckpt_value attribute(const struct ckpt_pickle *p, ckpt_value object, const char *name)
{
	ckpt_value state = ckpt_value_state(p, object), value = 0;

	return ckpt_value_count(p, state) <= 2 * ATTRIBUTES_MAX && ckpt_value_get(p, state, name, &value) ? value : 0;
}

static void cut_keys(struct dropping *d, const char *field, bool by_fqn)
{
	const struct ckpt_pickle *p = d->p;
	ckpt_value dict = attribute(p, ckpt_pickle_root(p), field);

	if (ckpt_value_kind(p, dict) != CKPT_VALUE_DICT)
		return;
	for (ckpt_item at = ckpt_value_first(p, dict); at; at = ckpt_item_next(p, ckpt_item_next(p, at))) {
		ckpt_value key = ckpt_item_value(p, at);
		size_t len;
		const char *name = ckpt_value_text(p, by_fqn ? attribute(p, key, "fqn") : key, &len);

		if (name && strlen(name) == len && d->how->drops(d->how->arg, name))
			d->cut[at / 8] |= (uint8_t)(1u << at % 8);
	}
}

static int compare(const struct ckpt_pickle *was, const uint8_t *cut, struct ckpt_buffer *out)
{
	struct ckpt_source edited = ckpt_pickle_edited(out);
	struct ckpt_pickle_fault fault;
	struct ckpt_pickle *now;
	bool same = false;
	int rc = ckpt_pickle_read(&edited, 0, edited.bytes, &now, NULL, &fault);

	if (rc)
		return rc;
	rc = ckpt_pickle_compare(was, cut, now, &same);
	ckpt_pickle_free(now);
	return rc || same ? rc : -EINVAL;
}

int ckpt_drop_dcp(const struct ckpt_drop *how, const struct ckpt_source *from, int to)
{
	struct ckpt_pickle_fault fault;
	struct ckpt_buffer out = {0};
	struct ckpt_pickle *p = NULL;
	struct dropping d = {.how = how};
	int rc = ckpt_pickle_read_places(from, 0, from->bytes, &p, &fault);

	if (!rc) {
		d.p = p;
		d.cut = ckpt_calloc(ckpt_pickle_items(p) / 8 + 1, 1);
		rc = d.cut ? 0 : -ENOMEM;
	}
	if (!rc) {
		cut_keys(&d, "state_dict_metadata", false);
		cut_keys(&d, "planner_data", false);
		cut_keys(&d, "mcore_data", false);
		cut_keys(&d, "storage_data", true);
		rc = ckpt_pickle_edit(from, 0, from->bytes, p, d.cut, &out);
	}
	if (!rc)
		rc = compare(p, d.cut, &out);
	if (!rc) {
		ssize_t n = ckpt_sys.pwrite(to, out.at, out.len, 0);

		rc = n < 0 ? (int)n : 0;
	}
	ckpt_buffer_done(&out);
	ckpt_pickle_free(p);
	free(d.cut);
	return rc == -EINVAL ? -EBADMSG : rc;
}

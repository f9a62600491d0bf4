// The files of DeepSpeed's ZeRO (deepspeed/runtime/engine.py: _common_checkpoint_state(); runtime/zero/stage_1_and_2.py, stage3.py and
// runtime/bf16_optimizer.py: state_dict()):
//
//	mp_rank_MM_model_states.pt                               of stages 1 and 2
//	zero_pp_rank_D_mp_rank_MM_model_states.pt                of stage 3, one for each rank
//	[bf16_|fp16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt   one for each rank
//
// The model states of rank 0 have, beside tensors, the order of the parameters in the optimizer's flat groups:
//
//	param_shapes          a list with a dictionary {NAME: shape} for each group
//	frozen_param_shapes   {NAME: shape}, or None
//	shared_params         {NAME: OTHER}: NAME has the elements of OTHER, or None
//	buffer_names          a list, or None
//	dp_world_size         how many ranks there are
//
// and the optimizer's states of a rank have partition_count: a number, or a list of one for each group.
#include "core/array/catalog_zero.h"

#include "core/base/util.h"
#include "core/limits.h"

#define NUMBER_DIGITS_MAX 7 // of a rank

struct taking {
	const struct ckpt_pickle *pickle;
	struct ckpt_catalog *catalog;
};

// --- Names ------------------------------------------------------------------------------------------------------------

static bool skip(const char **at, const char *text)
{
	size_t len = strlen(text);

	if (strncmp(*at, text, len))
		return false;
	*at += len;
	return true;
}

static bool take_rank(const char **at, uint32_t *ret_rank)
{
	uint32_t rank = 0;
	int digits = 0;

	for (; **at >= '0' && **at <= '9'; (*at)++)
		if (++digits <= NUMBER_DIGITS_MAX)
			rank = rank * 10 + (uint32_t)(**at - '0');
	*ret_rank = rank;
	return digits && digits <= NUMBER_DIGITS_MAX;
}

// False: it is none of these files.
static bool parse(const char *base, struct zero_file *f)
{
	const char *at = base;
	bool has_type = skip(&at, "bf16_") || skip(&at, "fp16_");

	f->is_of_rank = skip(&at, "zero_pp_rank_");
	if (f->is_of_rank && (!take_rank(&at, &f->dp) || !skip(&at, "_")))
		return false;
	if (!skip(&at, "mp_rank_") || !take_rank(&at, &f->mp))
		return false;
	f->is_model = !strcmp(at, "_model_states.pt");
	return f->is_model ? !has_type : f->is_of_rank && !strcmp(at, "_optim_states.pt");
}

// --- What the pickles say ---------------------------------------------------------------------------------------------

// -EINVAL: it is not what DeepSpeed writes.
static int add_param(struct taking *t, ckpt_value name, struct zero_param *param, const uint64_t *shape)
{
	struct ckpt_catalog *c = t->catalog;
	size_t len;
	const char *text = ckpt_value_text(t->pickle, name, &len);
	int rc = text && len <= CKPT_ARRAY_NAME_MAX && !memchr(text, '\0', len)
			 ? ckpt_catalog_add_bytes(c, text, len, &param->name)
			 : -EINVAL;

	param->shape = (uint32_t)c->number_count;
	if (!rc)
		rc = ckpt_catalog_add_numbers(c, shape, param->ndim);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->zero_params, &c->zero_param_cap, c->zero_param_count + 1, sizeof(*param));
	if (!rc)
		c->zero_params[c->zero_param_count++] = *param;
	return rc;
}

static int take_shapes(struct taking *t, ckpt_value shapes, enum zero_kind kind, uint32_t group)
{
	const struct ckpt_pickle *p = t->pickle;
	uint64_t shape[CKPT_ARRAY_DIMS_MAX];
	int rc = 0;

	if (ckpt_value_kind(p, shapes) != CKPT_VALUE_DICT)
		return -EINVAL;
	for (ckpt_item at = ckpt_value_first(p, shapes), value; at && !rc; at = ckpt_item_next(p, value)) {
		struct zero_param param = {.kind = (uint8_t)kind, .group = group};
		unsigned ndim;

		value = ckpt_item_next(p, at);
		if (!ckpt_value_sizes(p, ckpt_item_value(p, value), shape, &ndim))
			return -EINVAL;
		param.ndim = (uint8_t)ndim;
		rc = add_param(t, ckpt_item_value(p, at), &param, shape);
	}
	return rc;
}

static int take_groups(struct taking *t, ckpt_value groups)
{
	const struct ckpt_pickle *p = t->pickle;
	uint32_t group = 0;
	int rc = 0;

	for (ckpt_item at = ckpt_value_first(p, groups); at && !rc; at = ckpt_item_next(p, at))
		rc = take_shapes(t, ckpt_item_value(p, at), ZERO_TRAINED, group++);
	return rc;
}

static int take_shared(struct taking *t, ckpt_value shared)
{
	const struct ckpt_pickle *p = t->pickle;
	int rc = 0;

	if (ckpt_value_kind(p, shared) != CKPT_VALUE_DICT)
		return 0;
	for (ckpt_item at = ckpt_value_first(p, shared), value; at && !rc; at = ckpt_item_next(p, value)) {
		struct zero_param param = {.kind = ZERO_SHARED};
		size_t len;
		const char *other;

		value = ckpt_item_next(p, at);
		other = ckpt_value_text(p, ckpt_item_value(p, value), &len);
		rc = other && len <= CKPT_ARRAY_NAME_MAX ? ckpt_catalog_add_bytes(t->catalog, other, len, &param.other)
							 : -EINVAL;
		if (!rc)
			rc = add_param(t, ckpt_item_value(p, at), &param, NULL);
	}
	return rc;
}

static int take_buffers(struct taking *t, ckpt_value names)
{
	const struct ckpt_pickle *p = t->pickle;
	int rc = 0;

	if (ckpt_value_kind(p, names) != CKPT_VALUE_LIST)
		return 0;
	for (ckpt_item at = ckpt_value_first(p, names); at && !rc; at = ckpt_item_next(p, at))
		rc = add_param(t, ckpt_item_value(p, at), &(struct zero_param){.kind = ZERO_BUFFER}, NULL);
	return rc;
}

static uint32_t number_of(const struct ckpt_pickle *p, ckpt_value v)
{
	int64_t n;

	return ckpt_value_int(p, v, &n) && n > 0 && n <= INT32_MAX ? (uint32_t)n : 0;
}

// 1: it has no parameters of ZeRO.
static int take_model(struct taking *t, struct zero_file *f)
{
	const struct ckpt_pickle *p = t->pickle;
	ckpt_value root = ckpt_pickle_root(p), value = 0;
	int rc;

	if (!ckpt_value_get(p, root, "param_shapes", &value) || ckpt_value_kind(p, value) == CKPT_VALUE_NONE)
		return 1;
	if (f->dp)
		return 0; // its parameters are those of rank 0
	f->world = ckpt_value_get(p, root, "dp_world_size", &value) ? number_of(p, value) : 0;
	(void)ckpt_value_get(p, root, "param_shapes", &value);
	// Before 0.4.1 there was one group, without a list.
	rc = ckpt_value_kind(p, value) == CKPT_VALUE_DICT ? take_shapes(t, value, ZERO_TRAINED, 0)
							  : take_groups(t, value);
	if (!rc && ckpt_value_get(p, root, "frozen_param_shapes", &value) &&
	    ckpt_value_kind(p, value) != CKPT_VALUE_NONE)
		rc = take_shapes(t, value, ZERO_FROZEN, 0);
	if (!rc && ckpt_value_get(p, root, "buffer_names", &value))
		rc = take_buffers(t, value);
	if (!rc && ckpt_value_get(p, root, "shared_params", &value))
		rc = take_shared(t, value);
	return rc;
}

// 1: it has no states of ZeRO.
static int take_optimizer(struct taking *t, struct zero_file *f)
{
	const struct ckpt_pickle *p = t->pickle;
	ckpt_value states = 0, count = 0;

	if (!ckpt_value_get(p, ckpt_pickle_root(p), "optimizer_state_dict", &states))
		return 1;
	if (!ckpt_value_get(p, states, "partition_count", &count))
		return 0;
	f->world = number_of(p, count);
	for (ckpt_item at = ckpt_value_first(p, count); at; at = ckpt_item_next(p, at))
		f->world = MAX(f->world, number_of(p, ckpt_item_value(p, at)));
	return 0;
}

int ckpt_zero_take(struct ckpt_torch *r, size_t first_row)
{
	struct ckpt_catalog *c = r->catalog->catalog;
	struct zero_file f = {.row = (uint32_t)first_row,
			      .rows = (uint32_t)(c->count - first_row),
			      .param = (uint32_t)c->zero_param_count};
	struct taking t = {r->pickle, c};
	size_t text_len = c->text_len, number_count = c->number_count;
	int rc;

	if (!parse(r->catalog->base, &f))
		return 0;
	rc = f.is_model ? take_model(&t, &f) : take_optimizer(&t, &f);
	f.rest = (uint32_t)(c->zero_param_count - f.param);
	if (!rc)
		rc = ckpt_catalog_add_text(c, r->catalog->path, &f.path);
	if (!rc)
		rc = ckpt_catalog_room(c, &c->zero_files, &c->zero_file_cap, c->zero_file_count + 1, sizeof(f));
	if (!rc) {
		c->zero_files[c->zero_file_count++] = f;
		return 0;
	}
	c->text_len = text_len;
	c->number_count = number_count;
	c->zero_param_count = f.param;
	if (rc == -EFBIG)
		return ckpt_catalog_tell(r->catalog, "param_shapes", "they are too many for the catalog");
	return rc != -EINVAL ? MIN(rc, 0)
			     : ckpt_catalog_tell(r->catalog, "param_shapes", "they are not what DeepSpeed writes");
}

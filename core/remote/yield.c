#include "core/remote/yield.h"

#include "core/base/util.h"
#include "core/save/stage.h"
#include "core/state/state.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

struct name {
	struct ckpt_step_name is;
	const char *session;
};

static int is_others(void *arg, const struct ckpt_state *state)
{
	const struct name *n = arg;
	const struct ckpt_state_step *there = ckpt_state_listed(state, n->is.folder_id, n->is.name);

	return there && strcmp(there->id, n->session);
}

static bool yields(struct ckpt_step *step)
{
	struct name n = {.session = step->session};

	if (!ckpt_stage_is_interrupted(step))
		return false;
	ckpt_step_name(step, &n.is);
	return ckpt_journal_look(step->store->journal, is_others, &n) > 0 && !ckpt_stage_yield(step);
}

bool ckpt_yield_names(struct ckpt_store *s, struct ckpt_yielded *ret_yielded)
{
	struct ckpt_step **steps;
	size_t count, kept = 0;

	if (ckpt_step_list(s, NULL, 1u << CKPT_STEP_STAGED, &steps, &count))
		return false;
	for (size_t i = 0; i < count; i++)
		if (yields(steps[i]))
			steps[kept++] = steps[i];
		else
			ckpt_step_unref(steps[i]);
	*ret_yielded = (struct ckpt_yielded){.steps = steps, .count = kept};
	return kept;
}

void ckpt_yield_tell(struct ckpt_yielded *y)
{
	for (size_t i = 0; i < y->count; i++) {
		struct ckpt_store *s = y->steps[i]->store;

		if (s->calls.gone)
			s->calls.gone(s->calls.gone_arg, y->steps[i]);
		ckpt_errlog_add(s->errlog, y->steps[i]->name, -EEXIST,
				"`ckptfs sessions` shows it, `ckptfs abort` drops it",
				"another node has saved a step of this name: the unfinished save of this node is in "
				".ckptfs/staged");
	}
	ckpt_step_list_free(y->steps, y->count);
	*y = (struct ckpt_yielded){0};
}

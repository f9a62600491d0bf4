#include "core/remote/push_value.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/state/journal.h"

struct waiting {
	char key[CKPT_VALUE_KEY_MAX + 1];
	char *text; // malloc'ed
};

// 1: one waits; 0; -ENOMEM.
static int look(void *arg, const struct ckpt_state *state)
{
	struct waiting *w = arg;
	const char *text, *key = ckpt_state_changed_value(state, &text);

	if (!key)
		return 0;
	strcpy(w->key, key);
	w->text = strdup(text);
	return w->text ? 1 : -ENOMEM;
}

int ckpt_push_value(struct ckpt_store *s, struct ckpt_log *log, const char *node)
{
	struct ckpt_operation op = {.kind = CKPT_ACT_SET, .required = true, .actor = ckpt_actor_get()};
	struct ckpt_act a = {.kind = CKPT_ACT_SET, .before = CKPT_ACT_ANY, .time_ns = ckpt_sys.now_ns()};
	CLEANUP_FREE void *body = NULL;
	struct waiting w = {.text = NULL};
	int rc = ckpt_journal_look(s->journal, look, &w);

	if (rc <= 0)
		return rc;
	memcpy(a.key, w.key, sizeof(a.key));
	a.value = w.text;
	a.value_len = strlen(w.text);
	rc = ckpt_act_encode(&a, &body, &op.len);
	op.body = body;
	memcpy(op.node, node, CKPT_UUID_LEN + 1);
	if (!rc)
		rc = ckpt_sys.random(op.nonce, sizeof(op.nonce));
	if (!rc)
		rc = ckpt_log_append(log, &op, 1, false);
	free(w.text);
	return !rc || rc == -EEXIST || rc == -EAGAIN ? 1 : rc;
}

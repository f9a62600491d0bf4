#include "core/state/values.h"

#include "core/base/util.h"

#include <errno.h>

#define JUMPED (UINT64_C(1) << 62) // of a value that a JUMP has brought: its number and this are no SEQ
#define VOID 1                     // as CKPT_STATE_VOID

bool ckpt_value_is_setting(const char *key)
{
	return !strncmp(key, CKPT_VALUE_SETTING, strlen(CKPT_VALUE_SETTING)) && key[strlen(CKPT_VALUE_SETTING)];
}

bool ckpt_value_is_shared(const char *key)
{
	return !strcmp(key, CKPT_VALUE_POLICY) || ckpt_value_is_setting(key);
}

// The place of the key, or where it would be.
static size_t place_of(const struct ckpt_value_list *v, const char *key, bool *ret_found)
{
	size_t i = 0;

	while (i < v->count && strcmp(v->at[i].key, key) < 0)
		i++;
	*ret_found = i < v->count && !strcmp(v->at[i].key, key);
	return i;
}

const struct ckpt_state_value *ckpt_value_find(const struct ckpt_value_list *v, const char *key)
{
	bool found;
	size_t i = place_of(v, key, &found);

	return found ? &v->at[i] : NULL;
}

static void unset(struct ckpt_value_list *v, size_t i)
{
	free(v->at[i].text);
	memmove(&v->at[i], &v->at[i + 1], (--v->count - i) * sizeof(*v->at));
}

int ckpt_value_put(struct ckpt_value_list *v, const struct ckpt_state_value *of, size_t len)
{
	bool found;
	size_t i = place_of(v, of->key, &found);
	char *text = len ? strndup(of->text, len) : NULL;
	int rc = len && !text ? -ENOMEM : 0;

	if (!rc && len && !found)
		rc = ckpt_grow((void **)&v->at, &v->cap, v->count + 1, sizeof(*v->at));
	if (rc) {
		free(text);
		return rc;
	}
	if (found)
		unset(v, i);
	if (!len)
		return 0;
	memmove(&v->at[i + 1], &v->at[i], (v->count++ - i) * sizeof(*v->at));
	v->at[i] = *of;
	v->at[i].text = text;
	return 0;
}

static void list_done(struct ckpt_value_list *v)
{
	while (v->count)
		unset(v, v->count - 1);
	free(v->at);
}

void ckpt_values_done(struct ckpt_values *v)
{
	list_done(&v->is);
	list_done(&v->there);
}

// --- Of the remote ------------------------------------------------------------------------------------------------------

static const char *text_of(const struct ckpt_state_value *v)
{
	return v ? v->text : "";
}

static bool is_changed(const struct ckpt_values *s, const char *key)
{
	return strcmp(text_of(ckpt_value_find(&s->is, key)), text_of(ckpt_value_find(&s->there, key))) != 0;
}

static size_t settings_of(const struct ckpt_value_list *v)
{
	size_t count = 0;

	for (size_t i = 0; i < v->count; i++)
		count += ckpt_value_is_setting(v->at[i].key);
	return count;
}

// Any node may name new settings: without limits one of them could fill the memory of all.
static bool takes(const struct ckpt_values *s, const char *key, size_t len)
{
	if (!ckpt_value_is_setting(key) || !len)
		return true;
	return len <= CKPT_VALUE_SETTING_BYTES_MAX &&
	       (ckpt_value_find(&s->there, key) || settings_of(&s->there) < CKPT_VALUE_SETTINGS_MAX);
}

const char *ckpt_values_changed(const struct ckpt_values *s, const char **ret_text)
{
	for (size_t i = 0; i < s->is.count; i++) {
		const struct ckpt_state_value *v = &s->is.at[i];

		if (!ckpt_value_is_shared(v->key) || !is_changed(s, v->key) || !takes(s, v->key, strlen(v->text)))
			continue;
		*ret_text = v->text;
		return v->key;
	}
	for (size_t i = 0; i < s->there.count; i++)
		if (!ckpt_value_find(&s->is, s->there.at[i].key)) {
			*ret_text = "";
			return s->there.at[i].key;
		}
	return NULL;
}

// there: as the remote's log has it, with its SEQ there; seq: of the node's log. What is shown comes first: after a failure it is done again.
static int take(struct ckpt_values *s, const struct ckpt_state_value *there, size_t len, uint64_t seq)
{
	const struct ckpt_state_value *is = ckpt_value_find(&s->is, there->key);
	struct ckpt_state_value shown = *there;
	int rc = 0;

	shown.seq = seq;
	shown.pulled = true;
	if (!is_changed(s, there->key) && !(strlen(text_of(is)) == len && !memcmp(text_of(is), there->text, len)))
		rc = ckpt_value_put(&s->is, &shown, len);
	return rc ? rc : ckpt_value_put(&s->there, there, len);
}

static struct ckpt_state_value value_of(const struct ckpt_act *a, uint64_t seq)
{
	struct ckpt_state_value v = {.seq = seq, .text = (char *)a->value};

	memcpy(v.key, a->key, sizeof(v.key));
	return v;
}

int ckpt_values_act(struct ckpt_values *s, const struct ckpt_act *a, uint64_t seq, uint64_t remote_seq)
{
	const struct ckpt_state_value *is = ckpt_value_find(&s->is, a->key);
	struct ckpt_state_value v = value_of(a, remote_seq ? remote_seq : seq);

	if (remote_seq)
		return ckpt_value_is_shared(a->key) && a->before == CKPT_ACT_ANY && takes(s, a->key, a->value_len)
			       ? take(s, &v, a->value_len, seq)
			       : VOID;
	if (a->before != CKPT_ACT_ANY && a->before != (is ? is->seq : 0))
		return VOID;
	return ckpt_value_put(&s->is, &v, a->value_len);
}

void ckpt_values_detach(struct ckpt_values *s)
{
	list_done(&s->there);
	s->there = (struct ckpt_value_list){0};
	for (size_t i = 0; i < s->is.count; i++)
		s->is.at[i].pulled = false;
}

// Those that are gone leave first, so that there is room for new ones.
int ckpt_values_jump(struct ckpt_values *s, const struct ckpt_value_list *there, uint64_t number)
{
	int rc = 0;

	for (size_t i = s->there.count; i-- > 0 && !rc;) {
		struct ckpt_state_value none = {.text = ""};

		memcpy(none.key, s->there.at[i].key, sizeof(none.key));
		if (!ckpt_value_find(there, none.key))
			rc = take(s, &none, 0, number | JUMPED);
	}
	for (size_t i = 0; i < there->count && !rc; i++) {
		const struct ckpt_state_value *v = &there->at[i];

		if (ckpt_value_is_shared(v->key) && takes(s, v->key, strlen(v->text)))
			rc = take(s, v, strlen(v->text), number | JUMPED);
	}
	return rc;
}

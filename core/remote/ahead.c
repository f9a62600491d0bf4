#include "core/remote/ahead.h"

#include "core/base/many.h"
#include "core/base/util.h"

#include <assert.h>
#include <stdatomic.h>

struct ahead {
	struct ckpt_objects *objects;
	uint64_t first;
	size_t count;
	struct ckpt_ahead_entry *entries;
	_Atomic size_t end; // the log ends before this one, as far as is known
};

static void note_end(struct ahead *a, size_t i)
{
	size_t end = atomic_load(&a->end);

	while (i < end && !atomic_compare_exchange_weak(&a->end, &end, i))
		;
}

static void get_entry(void *arg, size_t i)
{
	struct ahead *a = arg;
	struct ckpt_ahead_entry *e = &a->entries[i];
	char key[CKPT_LOG_KEY_MAX];

	if (i >= atomic_load(&a->end))
		return;
	ckpt_log_key(a->first + i, key);
	if (ckpt_objects_get_all(a->objects, key, CKPT_LOG_ENTRY_BYTES_MAX, &e->data, &e->len, NULL)) {
		e->data = NULL;
		note_end(a, i);
	}
}

static bool is_next(const struct ckpt_ahead_entry *e, const struct ckpt_log_position *at)
{
	struct ckpt_log_entry entry;

	return !ckpt_log_entry_decode(e->data, e->len, &entry) && entry.seq == at->seq + 1 &&
	       !memcmp(entry.before, at->sha256, CKPT_SHA256_LEN);
}

size_t ckpt_ahead_read(struct ckpt_objects *objects, struct ckpt_log_position *at, size_t count,
		       struct ckpt_ahead_entry ret_entries[CKPT_AHEAD_MAX])
{
	struct ahead a = {
		.objects = objects, .first = at->seq + 1, .count = count, .entries = ret_entries, .end = count};
	const struct ckpt_many many = {.count = count, .at_once = CKPT_AHEAD_THREADS, .call = get_entry, .arg = &a};
	size_t good = 0;

	assert(count <= CKPT_AHEAD_MAX);
	memset(ret_entries, 0, count * sizeof(*ret_entries));
	(void)ckpt_many_run(&many);
	while (good < atomic_load(&a.end) && is_next(&ret_entries[good], at)) {
		at->seq++;
		ckpt_sha256(ret_entries[good].data, ret_entries[good].len, at->sha256);
		good++;
	}
	for (size_t i = good; i < count; i++)
		free(TAKE_PTR(ret_entries[i].data));
	return good;
}

void ckpt_ahead_free(struct ckpt_ahead_entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(TAKE_PTR(entries[i].data));
}

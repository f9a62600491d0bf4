#include "core/cold/earlier.h"

#include "core/base/util.h"
#include "core/codec/codec.h"
#include "core/cold/chunk.h"
#include "core/limits.h"

#include <limits.h>

#define NONE UINT32_MAX

struct ckpt_earlier {
	struct ckpt_manifest *m; // a reference
	uint32_t *rows;          // in it, by row of the other manifest; NONE
	uint32_t count;
};

// --- Chunks -------------------------------------------------------------------------------------------------------------

static bool may_be_base(const struct ckpt_chunk *chunk)
{
	return chunk->pack && !chunk->base_count && chunk->bytes >= CKPT_CHUNK_ARRAY_MIN &&
	       chunk->bytes <= CKPT_BASED_BYTES_MAX;
}

// Chunk by chunk: of a file that begins with another header the arrays are the same chunks.
static bool match_chunks(struct ckpt_earlier *e, const struct ckpt_manifest *m, const struct ckpt_seal *seal,
			 const struct ckpt_seal *was)
{
	bool any = false;

	for (uint32_t i = 0; i < seal->count && seal->count == was->count; i++) {
		struct ckpt_chunk chunk, base;

		ckpt_manifest_chunk(m, seal->first + i, &chunk);
		ckpt_manifest_chunk(e->m, was->first + i, &base);
		if (chunk.bytes != base.bytes || !may_be_base(&base))
			continue;
		e->rows[seal->first + i] = was->first + i;
		any = true;
	}
	return any;
}

static bool match_file(struct ckpt_earlier *e, const struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_seal seal, was;
	struct ckpt_entry entry;
	char path[PATH_MAX];
	uint32_t found;

	ckpt_manifest_entry(m, index, &entry);
	if (entry.content != CKPT_CONTENT_RAW || !ckpt_manifest_seal(m, index, &seal) ||
	    ckpt_manifest_path(m, index, path, sizeof(path)) < 0 || ckpt_manifest_lookup(e->m, path, &found))
		return false;
	return ckpt_manifest_seal(e->m, found, &was) && match_chunks(e, m, &seal, &was);
}

// False: none of its files is told so.
static bool match(struct ckpt_earlier *e, const struct ckpt_manifest *m)
{
	bool any = false;

	for (uint32_t i = 0; i < e->count; i++)
		e->rows[i] = NONE;
	for (uint32_t i = 0; i < ckpt_manifest_count(m); i++)
		any |= match_file(e, m, i);
	return any;
}

// --- Steps --------------------------------------------------------------------------------------------------------------

static bool is_a_difference(const struct ckpt_manifest *m)
{
	for (uint32_t i = 0; i < ckpt_manifest_chunk_count(m); i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, i, &chunk);
		if (chunk.pack && chunk.how.codec == CKPT_CODEC_DELTA)
			return true;
	}
	return false;
}

// False: it is not, and e->m is NULL; what cannot be read is not.
static bool try_step(struct ckpt_earlier *e, struct ckpt_step *step, const struct ckpt_manifest *m)
{
	if (ckpt_step_manifest(step, &e->m))
		return false;
	if (!is_a_difference(e->m) && match(e, m))
		return true;
	ckpt_manifest_unref(TAKE_PTR(e->m));
	return false;
}

struct packed {
	struct ckpt_step *step; // in the list's reference
	uint64_t sequence;
};

static int newest_first(const void *a, const void *b)
{
	const struct packed *x = a, *y = b;

	return (x->sequence < y->sequence) - (x->sequence > y->sequence);
}

static uint64_t sequence_of(struct ckpt_step *step, bool *ret_packed)
{
	LOCK_SCOPE(&step->lock);

	*ret_packed = step->version->is.packed;
	return step->born.sequence;
}

static int try_steps(struct ckpt_earlier *e, struct ckpt_step *step, const struct ckpt_manifest *m, uint64_t most,
		     struct ckpt_step **list, size_t count)
{
	CLEANUP_FREE struct packed *found = ckpt_calloc(count + 1, sizeof(*found));
	uint64_t own, sequence;
	size_t n = 0;
	bool packed;

	if (!found)
		return -ENOMEM;
	own = sequence_of(step, &packed);
	for (size_t i = 0; i < count; i++) {
		sequence = sequence_of(list[i], &packed);
		if (packed && sequence < own)
			found[n++] = (struct packed){list[i], sequence};
	}
	qsort(found, n, sizeof(*found), newest_first);
	for (size_t i = 0; i < n && i < most && !e->m; i++)
		(void)try_step(e, found[i].step, m);
	return 0;
}

static bool has_raw(const struct ckpt_manifest *m)
{
	struct ckpt_entry e = {0};

	for (uint32_t i = 0; i < ckpt_manifest_count(m) && e.content != CKPT_CONTENT_RAW; i++)
		ckpt_manifest_entry(m, i, &e);
	return e.content == CKPT_CONTENT_RAW;
}

int ckpt_earlier_find(struct ckpt_step *step, const struct ckpt_manifest *m, uint64_t most,
		      struct ckpt_earlier **ret_earlier)
{
	struct ckpt_earlier *e;
	struct ckpt_step **list;
	struct ckpt_step_name name;
	size_t count;
	int rc;

	*ret_earlier = NULL;
	if (!most || !has_raw(m))
		return 0;
	ckpt_step_name(step, &name);
	rc = ckpt_step_list(step->store, name.folder_id, 1u << CKPT_STEP_COMMITTED, &list, &count);
	if (rc)
		return rc;
	e = ckpt_calloc(1, sizeof(*e));
	if (e) {
		e->count = ckpt_manifest_chunk_count(m);
		e->rows = ckpt_calloc((size_t)e->count + 1, sizeof(*e->rows));
	}
	rc = e && e->rows ? try_steps(e, step, m, most, list, count) : -ENOMEM;
	ckpt_step_list_free(list, count);
	if (!rc && e->m)
		*ret_earlier = TAKE_PTR(e);
	ckpt_earlier_free(e);
	return rc;
}

void ckpt_earlier_free(struct ckpt_earlier *e)
{
	if (!e)
		return;
	ckpt_manifest_unref(e->m);
	free(e->rows);
	free(e);
}

bool ckpt_earlier_chunk(const struct ckpt_earlier *e, uint32_t row, struct ckpt_chunk *ret_chunk,
			const struct ckpt_manifest **ret_manifest)
{
	if (!e || e->rows[row] == NONE)
		return false;
	ckpt_manifest_chunk(e->m, e->rows[row], ret_chunk);
	*ret_manifest = e->m;
	return true;
}

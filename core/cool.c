#include "core/cool.h"

#include "core/amend.h"
#include "core/codec.h"
#include "core/dedupe.h"
#include "core/edit.h"
#include "core/errlog.h"
#include "core/pack.h"
#include "core/seal.h"
#include "core/store.h"
#include "core/sys.h"
#include "core/util.h"

#include <limits.h>

// What a step's chunks are and where they are put is collected in a table by their ids, without a lock that clients want; a
// version that says so is put under that of all acts. The raw files go after it (cool_sweep.c).
//
// Invariants:
//  1. A chunk is in the table once its bytes were read back from what will be, or is, its pack, and are those of its id.
//  2. A raw file goes only when a version is durable by which all of its chunks are in packs that are durable.
//  3. With packs_lock held from the first look at a pack to that version, no pack that is used goes meanwhile.
//  4. A pack that was put for another step is used once it is known to be durable: that act may have failed before it was.

#define BAD_FILES_MAX 8 // that are told one by one; with more it is not the files
#define IN_THE_MAKING UINT32_MAX

struct place {
	struct ckpt_chunk chunk; // pack: row + 1 in packs, or IN_THE_MAKING
	bool used;
};

struct cooling {
	struct ckpt_step *step;
	const struct ckpt_tier_how *how;
	struct ckpt_tier_done *done;
	struct ckpt_manifest *m;
	struct ckpt_codec *codec;
	struct ckpt_pack_writer *writer;
	uint8_t *plain, *stored, *back; // of buf_bytes each
	uint32_t buf_bytes;
	// By id, open addressing; a power of two of them, at most half full.
	struct place *places;
	size_t place_count, place_cap;
	uint8_t (*making)[CKPT_SHA256_LEN]; // ids of the chunks in the pack in the making
	size_t making_count, making_cap;
	struct ckpt_pack *packs;
	size_t pack_count, pack_cap;
	unsigned bad_count;
	bool any; // file that is put into packs by the version that is being made
};

// --- The table ----------------------------------------------------------------------------------------------------------

static struct place *place_at(const struct cooling *c, const uint8_t *id)
{
	size_t at;

	memcpy(&at, id, sizeof(at));
	for (at &= c->place_cap - 1; c->places[at].used; at = (at + 1) & (c->place_cap - 1))
		if (!memcmp(c->places[at].chunk.id, id, CKPT_SHA256_LEN))
			break;
	return &c->places[at];
}

static const struct ckpt_chunk *find(const struct cooling *c, const uint8_t *id)
{
	const struct place *p = c->place_cap ? place_at(c, id) : NULL;

	return p && p->used ? &p->chunk : NULL;
}

static int grow_places(struct cooling *c)
{
	struct cooling grown = {.place_cap = MAX(c->place_cap * 2, (size_t)256)};

	grown.places = ckpt_calloc(grown.place_cap, sizeof(*grown.places));
	if (!grown.places)
		return -ENOMEM;
	for (size_t i = 0; i < c->place_cap; i++)
		if (c->places[i].used)
			*place_at(&grown, c->places[i].chunk.id) = c->places[i];
	free(c->places);
	c->places = grown.places;
	c->place_cap = grown.place_cap;
	return 0;
}

static int add_place(struct cooling *c, const struct ckpt_chunk *chunk)
{
	int rc = c->place_count * 2 < c->place_cap ? 0 : grow_places(c);

	if (rc)
		return rc;
	*place_at(c, chunk->id) = (struct place){.chunk = *chunk, .used = true};
	c->place_count++;
	return 0;
}

// --- Packs --------------------------------------------------------------------------------------------------------------

// Its row + 1; 0: it has none. Most often it is one of the last.
static uint32_t row_of(const struct cooling *c, const struct ckpt_pack *pack)
{
	size_t i = c->pack_count;

	while (i && memcmp(c->packs[i - 1].id, pack->id, sizeof(pack->id)))
		i--;
	return (uint32_t)i;
}

static int add_pack(struct cooling *c, const struct ckpt_pack *pack)
{
	int rc = ckpt_grow((void **)&c->packs, &c->pack_cap, c->pack_count + 1, sizeof(*c->packs));

	if (!rc)
		c->packs[c->pack_count++] = *pack;
	return rc;
}

// Without memory for its chunks others do not learn of them.
static void tell_others(const struct cooling *c, const struct ckpt_pack *pack)
{
	CLEANUP_FREE struct ckpt_chunk *chunks = ckpt_calloc(c->making_count, sizeof(*chunks));

	for (size_t i = 0; i < c->making_count && chunks; i++)
		chunks[i] = place_at(c, c->making[i])->chunk;
	ckpt_dedupe_add(c->step->store, pack, chunks, c->making_count);
}

static int put_pack(struct cooling *c)
{
	struct ckpt_pack pack;
	int rc;

	if (!ckpt_pack_writer_bytes(c->writer))
		return 0;
	rc = ckpt_pack_writer_put(c->writer, c->step->store->backend, &pack);
	if (!rc)
		rc = add_pack(c, &pack);
	if (rc)
		return rc;
	c->done->stored_bytes += pack.bytes;
	tell_others(c, &pack);
	for (; c->making_count; c->making_count--)
		place_at(c, c->making[c->making_count - 1])->chunk.pack = (uint32_t)c->pack_count;
	return 0;
}

static int need_room(struct cooling *c, uint32_t bytes)
{
	if (bytes <= c->buf_bytes)
		return 0;
	c->buf_bytes = 0;
	free(c->plain);
	free(c->stored);
	free(c->back);
	c->plain = malloc(bytes);
	c->stored = malloc(bytes);
	c->back = malloc(bytes);
	if (!c->plain || !c->stored || !c->back)
		return -ENOMEM;
	c->buf_bytes = bytes;
	return 0;
}

// Encoded, decoded again and compared, and into the pack in the making.
static int pack_chunk(struct cooling *c, struct ckpt_chunk *chunk)
{
	int rc = ckpt_codec_encode(c->codec, c->plain, chunk->bytes, 0, c->stored, &chunk->how);

	if (!rc)
		rc = ckpt_codec_decode(c->codec, &chunk->how, c->stored, c->back, chunk->bytes);
	if (!rc && memcmp(c->plain, c->back, chunk->bytes))
		rc = -EBADMSG;
	if (rc)
		return rc == -EBADMSG ? -EIO : rc;
	rc = ckpt_pack_writer_add(c->writer, chunk, c->stored);
	if (rc == -EFBIG) {
		rc = put_pack(c);
		if (!rc)
			rc = ckpt_pack_writer_add(c->writer, chunk, c->stored);
	}
	chunk->pack = IN_THE_MAKING;
	if (!rc)
		rc = ckpt_grow((void **)&c->making, &c->making_cap, c->making_count + 1, sizeof(*c->making));
	if (!rc)
		rc = add_place(c, chunk);
	if (!rc)
		memcpy(c->making[c->making_count++], chunk->id, CKPT_SHA256_LEN);
	if (!rc && ckpt_pack_writer_bytes(c->writer) >= c->how->pack_bytes)
		rc = put_pack(c);
	return rc;
}

// What was read back from a pack is there. 1, -errno.
static int use_packed(struct cooling *c, const struct ckpt_chunk *chunk, const struct ckpt_pack *pack)
{
	struct ckpt_chunk used = *chunk;
	int rc = row_of(c, pack) ? 0 : add_pack(c, pack);

	used.pack = row_of(c, pack);
	if (!rc)
		rc = add_place(c, &used);
	return rc ? rc : 1;
}

// It was packed before, and the file warmed since. 1: it is still there.
static int keep_packed(struct cooling *c, const struct ckpt_chunk *chunk)
{
	struct ckpt_pack pack;
	int rc;

	ckpt_manifest_pack(c->m, chunk->pack - 1, &pack);
	rc = ckpt_pack_read(c->step->store->backend, &pack, chunk, c->codec, c->back);
	if (rc == -EBADMSG || rc == -ENOENT || rc == -ENOTSUP || rc == -EIO)
		return 0; // the raw file has its bytes
	return rc ? rc : use_packed(c, chunk, &pack);
}

// Another step has put it there. 1: and it is there.
static int share_packed(struct cooling *c, const struct ckpt_chunk *chunk)
{
	struct ckpt_store *s = c->step->store;
	struct ckpt_chunk found;
	struct ckpt_pack pack;

	if (!ckpt_dedupe_find(s, chunk, c->codec, c->back, &found, &pack))
		return 0;
	if (!row_of(c, &pack) && !ckpt_dedupe_is_durable(s, &pack))
		return 0;
	c->done->deduplicated_bytes += chunk->bytes;
	return use_packed(c, &found, &pack);
}

// --- Files --------------------------------------------------------------------------------------------------------------

static int cool_chunk(struct cooling *c, int fd, uint64_t at, uint32_t row)
{
	uint8_t id[CKPT_SHA256_LEN];
	struct ckpt_chunk chunk;
	ssize_t n;
	int rc;

	ckpt_manifest_chunk(c->m, row, &chunk);
	if (find(c, chunk.id)) {
		c->done->deduplicated_bytes += chunk.bytes;
		return 0;
	}
	rc = need_room(c, chunk.bytes);
	if (!rc && chunk.pack)
		rc = keep_packed(c, &chunk);
	if (!rc)
		rc = share_packed(c, &chunk);
	if (rc)
		return MIN(rc, 0);
	n = ckpt_sys.pread(fd, c->plain, chunk.bytes, (off_t)at);
	if (n < 0)
		return n == -EIO ? -EBADMSG : (int)n;
	if ((size_t)n == chunk.bytes)
		ckpt_sha256(c->plain, chunk.bytes, id);
	if ((size_t)n != chunk.bytes || memcmp(id, chunk.id, sizeof(id)))
		return -EBADMSG;
	return pack_chunk(c, &chunk);
}

static void complain(struct cooling *c, uint32_t index)
{
	char path[PATH_MAX] = "a file";

	if (ckpt_step_state(c->step) != CKPT_STEP_COMMITTED)
		return; // it was removed meanwhile, with its files
	ckpt_manifest_path(c->m, index, path, sizeof(path));
	ckpt_errlog_add(c->step->store->errlog, c->step->name, -EIO,
			"run `ckptfs verify --read-data` on the store; the file may have to come from another copy",
			"%s cannot be read, or its bytes are not those that were sealed: it was not cooled", path);
}

static int cool_file(struct cooling *c, uint32_t index, const struct ckpt_seal *seal)
{
	CLEANUP_FD int fd = -1;
	uint64_t at = 0;
	int rc = ckpt_step_open_raw(c->step, c->m, index, &fd);

	if (rc == -EIO)
		rc = -EBADMSG;
	for (uint32_t i = 0; i < seal->count && !rc; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(c->m, seal->first + i, &chunk);
		rc = cool_chunk(c, fd, at, seal->first + i);
		at += chunk.bytes;
		if (!rc && c->how->go_on && !c->how->go_on(c->how->arg, chunk.bytes))
			rc = -EINTR;
	}
	if (rc != -EBADMSG)
		return rc;
	complain(c, index);
	return ++c->bad_count < BAD_FILES_MAX ? 0 : -EIO;
}

static int cool_files(struct cooling *c)
{
	uint32_t count = ckpt_manifest_count(c->m);
	int rc = 0, put_rc;

	for (uint32_t i = 0; i < count && !rc; i++) {
		struct ckpt_entry e;
		struct ckpt_seal seal;

		ckpt_manifest_entry(c->m, i, &e);
		if (e.content == CKPT_CONTENT_RAW && e.bytes && ckpt_manifest_first_link(c->m, i) == i)
			rc = ckpt_manifest_seal(c->m, i, &seal) ? cool_file(c, i, &seal) : -ENODATA;
	}
	if (rc && rc != -EINTR)
		return rc;
	put_rc = put_pack(c); // also what was packed by an end: it is found there another time
	return rc ? rc : put_rc;
}

// --- The version --------------------------------------------------------------------------------------------------------

static bool is_all_placed(const struct cooling *c, const struct ckpt_manifest *m, uint32_t index)
{
	struct ckpt_seal seal;

	if (!ckpt_manifest_seal(m, index, &seal))
		return false;
	for (uint32_t i = 0; i < seal.count; i++) {
		struct ckpt_chunk chunk;

		ckpt_manifest_chunk(m, seal.first + i, &chunk);
		if (!find(c, chunk.id))
			return false;
	}
	return true;
}

// What is cold already stays so. A file that came meanwhile is not sealed, or has chunks that are not in the table, or has all of
// them there: then that is what its bytes are.
static void place(void *arg, const struct ckpt_manifest *m, struct ckpt_entry *e)
{
	struct cooling *c = arg;

	if (e->content != CKPT_CONTENT_RAW || !e->bytes || !is_all_placed(c, m, e->index))
		return;
	e->content = CKPT_CONTENT_CHUNKS;
	c->any = true;
}

static void locate(void *arg, struct ckpt_chunk *chunk, struct ckpt_pack *pack)
{
	const struct cooling *c = arg;
	const struct ckpt_chunk *found = find(c, chunk->id);

	if (!found)
		return;
	*chunk = *found;
	*pack = c->packs[found->pack - 1];
}

static void count(struct cooling *c, const struct ckpt_edit *d)
{
	for (uint32_t i = 0; i < ckpt_manifest_count(d->next); i++) {
		struct ckpt_entry was, is;

		ckpt_manifest_entry(d->m, i, &was);
		ckpt_manifest_entry(d->next, i, &is);
		if (was.content == is.content || ckpt_manifest_first_link(d->next, i) != i)
			continue;
		c->done->files++;
		c->done->bytes += is.bytes;
	}
}

static int try_put(struct cooling *c, bool *adopted)
{
	struct ckpt_edit d = {.step = c->step,
			      .event = CKPT_EVENT_COOL,
			      .same_files = true,
			      .place = place,
			      .locate = locate,
			      .arg = c};
	int rc = ckpt_edit_begin(&d, adopted);

	c->any = false;
	if (!rc)
		rc = ckpt_edit_copy(&d, 0);
	if (!rc && c->any) {
		ckpt_cool_raws_left(c->step); // also when its outcome is unknown
		rc = ckpt_edit_put(&d);
	}
	if (!rc && c->any)
		count(c, &d);
	ckpt_edit_done(&d);
	return rc;
}

static int put(struct cooling *c)
{
	LOCK_SCOPE(&c->step->store->acts_lock);
	bool adopted = false;
	int rc = -EAGAIN;

	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -EAGAIN; i++)
		rc = try_put(c, &adopted);
	return rc == -EAGAIN ? -EIO : rc;
}

// --- The act ------------------------------------------------------------------------------------------------------------

static bool is_quiet(int rc)
{
	return !rc || rc == -EINTR || rc == -ESTALE || rc == -EBUSY || rc == -ENODATA;
}

static void cooling_done(struct cooling *c)
{
	ckpt_pack_writer_free(c->writer);
	ckpt_codec_free(c->codec);
	ckpt_manifest_unref(c->m);
	free(c->plain);
	free(c->stored);
	free(c->back);
	free(c->places);
	free(c->making);
	free(c->packs);
}

static int cool(struct cooling *c)
{
	int rc = ckpt_step_state(c->step) == CKPT_STEP_COMMITTED ? ckpt_step_manifest(c->step, &c->m) : -ESTALE;

	ckpt_dedupe_look(c->step->store);
	if (!rc)
		rc = ckpt_codec_new(&c->codec);
	if (!rc)
		rc = ckpt_pack_writer_new(&c->writer);
	if (!rc)
		rc = cool_files(c);
	return rc ? rc : put(c);
}

static bool is_waited_for(void *arg)
{
	const struct ckpt_tier_how *how = arg;

	return !how->go_on || how->go_on(how->arg, 0);
}

int ckpt_cool(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done)
{
	struct cooling c = {.step = step, .how = how, .done = ret_done};
	int rc = ckpt_store_take_packs(step->store, how->at_once, is_waited_for, (void *)(uintptr_t)how);

	*ret_done = (struct ckpt_tier_done){0};
	if (rc)
		return rc;
	rc = cool(&c);
	ckpt_lock_drop(&step->store->packs_lock);
	if (!rc)
		ckpt_cool_sweep(step);
	if (!is_quiet(rc) && !c.bad_count)
		ckpt_errlog_add(step->store->errlog, step->name, rc, "nothing is lost: `ckptfs cool` does it again",
				"its files could not be packed");
	if (!rc && c.bad_count)
		rc = -EIO;
	cooling_done(&c);
	return rc;
}

// Who adds a file between the two has it sealed, too.
int ckpt_cool_sealed(struct ckpt_step *step, const struct ckpt_tier_how *how, struct ckpt_tier_done *ret_done)
{
	const struct ckpt_seal_how seal = {.go_on = how->go_on, .arg = how->arg};
	int rc = -ENODATA;

	*ret_done = (struct ckpt_tier_done){0};
	for (int i = 0; i < CKPT_EDIT_TRIES && rc == -ENODATA; i++) {
		rc = ckpt_seal(step, &seal);
		if (!rc)
			rc = ckpt_cool(step, how, ret_done);
	}
	return rc == -ENODATA ? -EBUSY : rc;
}

const char *ckpt_tier_hint(int error)
{
	return error == -EBUSY    ? "it is being changed or removed: do it again later"
	       : error == -ESTALE ? "it is gone, or was replaced: `ckptfs ls --all` says what there is"
	       : error == -EINTR  ? "the mount is ending"
	       : error == -EIO    ? "`ckptfs verify --read-data` says which file; .ckptfs/errors in the mount says more"
				  : NULL;
}

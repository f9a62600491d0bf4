#include "tools/check_packs.h"

#include "core/base/util.h"
#include "core/cold/chunk_reader.h"
#include "core/cold/pack.h"
#include "tools/output.h"

#define ROWS_MAX ((size_t)(32 << 20) / sizeof(struct ckpt_chunk)) // of tables in memory

// What was found is kept, and the table as long as there is room.
struct known {
	struct ckpt_pack pack;
	int result, bytes_result;
	bool bytes_read;
	struct ckpt_chunk *chunks; // NULL: not in memory; in the order of their places
	size_t count;
	uint64_t used; // when, by p->clock
};

struct ckpt_packs {
	struct ckpt_store *store;
	struct ckpt_codec *codec;
	struct known *known; // sorted by id
	size_t count, cap, rows;
	uint64_t clock;
	uint8_t *plain;
	uint32_t plain_bytes;
};

struct ckpt_packs *ckpt_packs_new(struct ckpt_store *s)
{
	struct ckpt_packs *p = ckpt_need(calloc(1, sizeof(*p)));

	p->store = s;
	if (ckpt_codec_new(&p->codec))
		ckpt_need(NULL);
	return p;
}

static void drop_table(struct ckpt_packs *p, struct known *k)
{
	p->rows -= k->count;
	k->count = 0;
	free(TAKE_PTR(k->chunks));
}

void ckpt_packs_free(struct ckpt_packs *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++)
		free(p->known[i].chunks);
	ckpt_codec_free(p->codec);
	free(p->known);
	free(p->plain);
	free(p);
}

const char *ckpt_packs_why(int error)
{
	return error == -ENOENT        ? "is missing"
	       : error == -EBADMSG     ? "is damaged"
	       : error == -ENOTSUP     ? "is of a newer ckptfs"
	       : error == -ENOMSG      ? "has other bytes there"
	       : error == -EMEDIUMTYPE ? "is another pack, by its header"
				       : strerror(-error);
}

// --- Tables -------------------------------------------------------------------------------------------------------------

static void make_room(struct ckpt_packs *p)
{
	while (p->rows > ROWS_MAX) {
		struct known *oldest = NULL;

		for (size_t i = 0; i < p->count; i++)
			if (p->known[i].chunks && (!oldest || p->known[i].used < oldest->used))
				oldest = &p->known[i];
		drop_table(p, oldest);
	}
}

static void load(struct ckpt_packs *p, struct known *k)
{
	struct ckpt_pack pack = k->pack;

	make_room(p);
	k->result = ckpt_pack_table(p->store->objects, &pack, &k->chunks, &k->count);
	if (k->result == -ENOMEM)
		ckpt_need(NULL);
	if (k->result)
		k->count = 0;
	p->rows += k->count;
}

// By name, then by what manifests say of it: they should all say the same.
static int compare(const struct ckpt_pack *a, const struct ckpt_pack *b)
{
	int order = memcmp(a->id, b->id, sizeof(a->id));

	if (!order)
		order = (a->bytes > b->bytes) - (a->bytes < b->bytes);
	return order ? order : memcmp(a->digest, b->digest, sizeof(a->digest));
}

// The first that is not before this one.
static size_t place_of(const struct ckpt_packs *p, const struct ckpt_pack *pack)
{
	size_t low = 0, high = p->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare(&p->known[middle].pack, pack) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_at(const struct ckpt_packs *p, size_t at, const struct ckpt_pack *pack)
{
	return at < p->count && !compare(&p->known[at].pack, pack);
}

static struct known *find(struct ckpt_packs *p, const struct ckpt_pack *pack)
{
	size_t at = place_of(p, pack);

	if (!is_at(p, at, pack)) {
		if (ckpt_grow((void **)&p->known, &p->cap, p->count + 1, sizeof(*p->known)))
			ckpt_need(NULL);
		memmove(p->known + at + 1, p->known + at, (p->count - at) * sizeof(*p->known));
		p->known[at] = (struct known){.pack = *pack};
		p->count++;
		load(p, &p->known[at]);
	}
	p->known[at].used = ++p->clock;
	return &p->known[at];
}

int ckpt_packs_pack(struct ckpt_packs *p, const struct ckpt_pack *pack)
{
	return find(p, pack)->result;
}

int ckpt_packs_bytes(struct ckpt_packs *p, const struct ckpt_pack *pack)
{
	struct known *k = find(p, pack);
	struct ckpt_chunk bad;

	if (k->result || k->bytes_read)
		return k->result ? k->result : k->bytes_result;
	k->bytes_result = ckpt_pack_check(p->store->objects, pack, &bad);
	k->bytes_read = true;
	if (k->bytes_result == -ENOMEM)
		ckpt_need(NULL);
	return k->bytes_result;
}

static int by_offset(const void *a, const void *b)
{
	const struct ckpt_chunk *x = a, *y = b;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

int ckpt_packs_chunk(struct ckpt_packs *p, const struct ckpt_pack *pack, const struct ckpt_chunk *chunk)
{
	struct known *k = find(p, pack);
	const struct ckpt_chunk *is;

	if (!k->result && !k->chunks)
		load(p, k);
	if (k->result)
		return k->result;
	is = bsearch(chunk, k->chunks, k->count, sizeof(*k->chunks), by_offset);
	return is && !memcmp(is->id, chunk->id, sizeof(is->id)) && is->bytes == chunk->bytes &&
			       is->how.codec == chunk->how.codec && is->how.width == chunk->how.width &&
			       is->how.bytes == chunk->how.bytes
		       ? 0
		       : -ENOMSG;
}

// --- Bytes --------------------------------------------------------------------------------------------------------------

int ckpt_packs_read(struct ckpt_packs *p, const struct ckpt_manifest *m, const struct ckpt_chunk *chunk,
		    const uint8_t **ret_plain)
{
	int rc;

	if (p->plain_bytes < chunk->bytes) {
		free(p->plain);
		p->plain = ckpt_need(malloc(chunk->bytes));
		p->plain_bytes = chunk->bytes;
	}
	rc = ckpt_chunk_read(p->store->objects, m, chunk, p->codec, p->plain);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (!rc)
		*ret_plain = p->plain;
	return rc;
}

// --- What nothing names -------------------------------------------------------------------------------------------------

struct found {
	char *object;
	uint64_t bytes;
};

struct list {
	struct found *at;
	size_t count, cap;
};

static int collect(void *arg, const char *object, const struct ckpt_object *info)
{
	struct list *l = arg;

	if (ckpt_grow((void **)&l->at, &l->cap, l->count + 1, sizeof(*l->at)))
		return -ENOMEM;
	l->at[l->count] = (struct found){strdup(object), info->bytes};
	return l->at[l->count++].object ? 0 : -ENOMEM;
}

// The rest that a manifest says of it.
static bool is_named(const struct ckpt_packs *p, const struct ckpt_pack *pack)
{
	struct ckpt_pack first = {0};
	size_t at;

	memcpy(first.id, pack->id, sizeof(first.id));
	at = place_of(p, &first);
	return at < p->count && !memcmp(p->known[at].pack.id, pack->id, CKPT_SHA256_LEN);
}

// One that is gone by now was not needed.
static void look_at(struct ckpt_packs *p, const struct found *f,
		    void (*bad)(void *arg, const char *object, const char *problem), void *arg)
{
	struct ckpt_pack pack = {.bytes = f->bytes};
	int rc;

	if (!ckpt_pack_of_key(f->object, pack.id)) {
		bad(arg, f->object, "is not a pack: a pack is packs/NAME, 64 hex digits");
		return;
	}
	if (is_named(p, &pack))
		return;
	rc = ckpt_packs_pack(p, &pack);
	if (rc && rc != -ENOENT) {
		CLEANUP_FREE char *problem = ckpt_text("%s; no step needs it", ckpt_packs_why(rc));

		bad(arg, f->object, problem);
	}
}

int ckpt_packs_each(struct ckpt_packs *p, void (*bad)(void *arg, const char *object, const char *problem), void *arg)
{
	struct list l = {0};
	int rc = ckpt_objects_list(p->store->objects, "packs/", NULL, collect, &l);

	for (size_t i = 0; i < l.count; i++) {
		if (!rc)
			look_at(p, &l.at[i], bad, arg);
		free(l.at[i].object);
	}
	free(l.at);
	return rc;
}

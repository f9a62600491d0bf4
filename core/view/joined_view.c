#include "core/view/joined_view.h"

#include "core/array/write.h"
#include "core/base/lock.h"
#include "core/base/util.h"
#include "core/view/elements.h"

#include <stdio.h>

struct place {
	uint64_t offset, bytes; // in the file
	size_t item;            // of the choice
};

struct ckpt_joined_plan {
	const struct ckpt_array_choice *choice;
	uint8_t *header;
	size_t header_len;
	struct place *places; // of arrays with elements, in the order of the file
	size_t count;
	uint64_t bytes;
	bool decoded;
};

// --- The plan ---------------------------------------------------------------------------------------------------------------

// The writer's input, as long as the layout lives.
struct arrays {
	struct ckpt_write_array *at;
	uint64_t *shapes;
};

static void arrays_done(struct arrays *a)
{
	free(a->at);
	free(a->shapes);
}

static int make_arrays(const struct ckpt_array_choice *k, struct arrays *a)
{
	size_t count = ckpt_array_choice_count(k), dims = 0;
	struct ckpt_array_chosen chosen;
	uint64_t *shape;

	for (size_t i = 0; i < count; i++) {
		ckpt_array_choice_get(k, i, &chosen);
		dims += chosen.ndim;
	}
	a->at = ckpt_calloc(count + 1, sizeof(*a->at));
	a->shapes = shape = ckpt_calloc(dims + 1, sizeof(*shape));
	if (!a->at || !shape)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		ckpt_array_choice_get(k, i, &chosen);
		memcpy(shape, chosen.shape, chosen.ndim * sizeof(*shape));
		a->at[i] = (struct ckpt_write_array){chosen.name, chosen.name, chosen.dtype, chosen.ndim, shape};
		shape += chosen.ndim;
	}
	return 0;
}

// The header is the text in front of the arrays.
static int take_part(void *arg, uint64_t offset, const void *text, size_t array, uint64_t bytes)
{
	struct ckpt_joined_plan *p = arg;

	if (text) {
		uint8_t *grown = realloc(p->header, p->header_len + (size_t)bytes);

		if (!grown)
			return -ENOMEM;
		memcpy(grown + p->header_len, text, (size_t)bytes);
		p->header = grown;
		p->header_len += (size_t)bytes;
	} else if (bytes) {
		p->places[p->count++] = (struct place){offset, bytes, array};
	}
	p->bytes = offset + bytes;
	return 0;
}

static bool is_decoded(const struct ckpt_catalog *c, size_t array)
{
	struct ckpt_catalog_array a;

	ckpt_catalog_get(c, array, &a);
	for (size_t i = 0; i < a.pieces; i++) {
		struct ckpt_piece p;

		ckpt_catalog_piece(c, array, i, &p);
		if (p.codecs[0] != CKPT_PIECE_RAW)
			return true;
	}
	return false;
}

static int lay_out(struct ckpt_joined_plan *p, struct ckpt_view_why *why)
{
	CLEANUP(arrays_done) struct arrays arrays = {0};
	size_t count = ckpt_array_choice_count(p->choice);
	struct ckpt_write_plan plan = {.count = count};
	char text[CKPT_WRITE_WHY_MAX] = "";
	struct ckpt_layout *l;
	int rc = make_arrays(p->choice, &arrays);

	plan.arrays = arrays.at;
	if (!rc)
		rc = ckpt_layout_new("safetensors", &plan, text, &l);
	if (rc) {
		ckpt_view_wrong(why, "there is no " CKPT_JOINED_NAME ": %s", text);
		snprintf(why->hint, sizeof(why->hint), "leave that array out with not=, or take its .npy file");
		return rc;
	}
	p->places = ckpt_calloc(count + 1, sizeof(*p->places));
	rc = p->places ? ckpt_layout_each(l, take_part, p) : -ENOMEM;
	ckpt_layout_free(l);
	return rc;
}

int ckpt_joined_plan_new(const struct ckpt_array_choice *k, struct ckpt_joined_plan **ret_plan,
			 struct ckpt_view_why *ret_why)
{
	struct ckpt_joined_plan *p = ckpt_calloc(1, sizeof(*p));
	struct ckpt_array_chosen chosen;
	int rc;

	*ret_why = (struct ckpt_view_why){0};
	if (!p)
		return -ENOMEM;
	p->choice = k;
	rc = lay_out(p, ret_why);
	for (size_t i = 0; i < ckpt_array_choice_count(k) && !rc && !p->decoded; i++) {
		ckpt_array_choice_get(k, i, &chosen);
		p->decoded = is_decoded(ckpt_array_choice_catalog(k), chosen.array);
	}
	if (rc)
		ckpt_joined_plan_free(p);
	else
		*ret_plan = p;
	return rc;
}

void ckpt_joined_plan_free(struct ckpt_joined_plan *p)
{
	if (!p)
		return;
	free(p->header);
	free(p->places);
	free(p);
}

size_t ckpt_joined_plan_memory(const struct ckpt_joined_plan *p)
{
	return sizeof(*p) + p->header_len + ckpt_array_choice_count(p->choice) * sizeof(*p->places);
}

uint64_t ckpt_joined_plan_bytes(const struct ckpt_joined_plan *p)
{
	return p->bytes;
}

// --- Views ------------------------------------------------------------------------------------------------------------------

struct ckpt_joined_view {
	const struct ckpt_joined_plan *p;
	const struct ckpt_catalog_files *files;
	size_t held; // atomic: as of the last read
	struct ckpt_lock lock;
	// Guarded by lock: the open ones, that which was used last first.
	struct opened {
		size_t place;
		struct ckpt_elements *elements;
	} open[CKPT_JOINED_OPEN_MAX];
	size_t open_count;
};

int ckpt_joined_view_open(const struct ckpt_joined_plan *p, const struct ckpt_catalog_files *files,
			  struct ckpt_joined_view **ret_view)
{
	struct ckpt_joined_view *v = ckpt_calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->p = p;
	v->files = files;
	ckpt_lock_init(&v->lock, CKPT_LOCK_VIEW);
	*ret_view = v;
	return 0;
}

// All but the first ones.
static void close_others_locked(struct ckpt_joined_view *v, size_t keep)
{
	while (v->open_count > keep)
		ckpt_elements_close(v->open[--v->open_count].elements);
}

static size_t held_locked(const struct ckpt_joined_view *v)
{
	size_t held = 0;

	for (size_t i = 0; i < v->open_count; i++)
		held += ckpt_elements_held(v->open[i].elements);
	return held;
}

void ckpt_joined_view_close(struct ckpt_joined_view *v)
{
	if (!v)
		return;
	close_others_locked(v, 0);
	ckpt_lock_done(&v->lock);
	free(v);
}

static int get_locked(struct ckpt_joined_view *v, size_t place, struct ckpt_elements **ret_elements)
{
	struct opened found = {place, NULL};
	size_t i = 0;

	while (i < v->open_count && v->open[i].place != place)
		i++;
	if (i < v->open_count) {
		found = v->open[i];
	} else {
		int rc = ckpt_elements_open_chosen(v->p->choice, v->p->places[place].item, v->files, &found.elements);

		if (rc)
			return rc;
		close_others_locked(v, CKPT_JOINED_OPEN_MAX - 1);
		i = v->open_count++;
	}
	memmove(v->open + 1, v->open, i * sizeof(*v->open));
	v->open[0] = found;
	*ret_elements = found.elements;
	return 0;
}

// The array that has this byte, which is behind the header.
static size_t find_place(const struct ckpt_joined_plan *p, uint64_t offset)
{
	size_t low = 0, high = p->count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		*(p->places[middle].offset <= offset ? &low : &high) = middle;
	}
	return low;
}

static int read_arrays_locked(struct ckpt_joined_view *v, uint8_t *buf, size_t len, uint64_t offset)
{
	for (size_t at = find_place(v->p, offset); len; at++) {
		const struct place *place = &v->p->places[at];
		size_t part = (size_t)MIN((uint64_t)len, place->offset + place->bytes - offset);
		struct ckpt_elements *elements;
		int rc = get_locked(v, at, &elements);

		if (!rc)
			rc = ckpt_elements_read(elements, offset - place->offset, buf, part);
		if (held_locked(v) > CKPT_JOINED_HELD_MAX)
			close_others_locked(v, 1);
		if (rc)
			return rc;
		buf += part;
		len -= part;
		offset += part;
	}
	return 0;
}

ssize_t ckpt_joined_view_read(struct ckpt_joined_view *v, void *buf, size_t len, uint64_t offset)
{
	const struct ckpt_joined_plan *p = v->p;
	size_t head;
	int rc = 0;

	if (offset >= p->bytes)
		return 0;
	len = (size_t)MIN((uint64_t)len, p->bytes - offset);
	head = offset < p->header_len ? MIN(len, p->header_len - (size_t)offset) : 0;
	memcpy(buf, p->header + MIN(offset, p->header_len), head);
	if (len > head) {
		LOCK_SCOPE(&v->lock);
		rc = read_arrays_locked(v, (uint8_t *)buf + head, len - head, offset + head);
		__atomic_store_n(&v->held, held_locked(v), __ATOMIC_RELAXED);
	}
	return rc ? rc : (ssize_t)len;
}

bool ckpt_joined_view_is_decoded(const struct ckpt_joined_view *v)
{
	return v->p->decoded;
}

size_t ckpt_joined_view_held(const struct ckpt_joined_view *v)
{
	return __atomic_load_n(&v->held, __ATOMIC_RELAXED);
}

void ckpt_joined_view_rest(struct ckpt_joined_view *v)
{
	LOCK_SCOPE(&v->lock);

	close_others_locked(v, 0);
	__atomic_store_n(&v->held, 0, __ATOMIC_RELAXED);
}

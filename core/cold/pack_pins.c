#include "core/cold/pack_pins.h"

#include "core/base/lock.h"
#include "core/base/util.h"

#include <assert.h>

// A pack in the table is pinned (count), was pinned during a collection that still runs (count 0), or is condemned:
//
//            | pin       | unpin                | condemn     | end of the last collection | end of the removal
//   absent   | pinned    |                      | condemned   |                            |
//   pinned   | pinned    | pinned, kept, absent | refused     | pinned                     |
//   kept     | pinned    |                      | refused     | absent                     |
//   condemned| refused   |                      | (once)      | condemned                  | absent, or it stays

#define BUCKETS_MIN 64

struct pin {
	struct pin *next;
	uint8_t name[CKPT_SHA256_LEN];
	unsigned count, ever; // pins now, and since it is in the table
	bool condemned;
	bool is_removed; // by the collection that condemned it, right now
	bool may_go;     // a removal of it has failed, and may still happen
};

struct ckpt_pack_pins {
	struct ckpt_lock lock;
	struct pin **buckets; // by name; a power of two of them
	size_t bucket_count, count;
	unsigned collections; // that run
};

int ckpt_pack_pins_new(struct ckpt_pack_pins **ret_pins)
{
	struct ckpt_pack_pins *p = ckpt_calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->bucket_count = BUCKETS_MIN;
	p->buckets = ckpt_calloc(p->bucket_count, sizeof(*p->buckets));
	if (!p->buckets) {
		free(p);
		return -ENOMEM;
	}
	ckpt_lock_init(&p->lock, CKPT_LOCK_LEAF);
	*ret_pins = p;
	return 0;
}

void ckpt_pack_pins_free(struct ckpt_pack_pins *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->bucket_count; i++) {
		for (struct pin *pin = p->buckets[i], *next; pin; pin = next) {
			next = pin->next;
			free(pin);
		}
	}
	free(p->buckets);
	ckpt_lock_done(&p->lock);
	free(p);
}

// --- The table, with the lock held ----------------------------------------------------------------------------------------

// Names are random.
static struct pin **bucket_of(const struct ckpt_pack_pins *p, const uint8_t *name)
{
	size_t at;

	memcpy(&at, name, sizeof(at));
	return &p->buckets[at & (p->bucket_count - 1)];
}

// The place of its pointer, or that where it would be.
static struct pin **place_of(const struct ckpt_pack_pins *p, const uint8_t *name)
{
	struct pin **place = bucket_of(p, name);

	while (*place && memcmp((*place)->name, name, CKPT_SHA256_LEN))
		place = &(*place)->next;
	return place;
}

// Without memory it is slower, and right.
static void grow(struct ckpt_pack_pins *p)
{
	struct ckpt_pack_pins grown = {.bucket_count = p->bucket_count * 2};

	grown.buckets = ckpt_calloc(grown.bucket_count, sizeof(*grown.buckets));
	if (!grown.buckets)
		return;
	for (size_t i = 0; i < p->bucket_count; i++) {
		for (struct pin *pin = p->buckets[i], *next; pin; pin = next) {
			struct pin **bucket = bucket_of(&grown, pin->name);

			next = pin->next;
			pin->next = *bucket;
			*bucket = pin;
		}
	}
	free(p->buckets);
	p->buckets = grown.buckets;
	p->bucket_count = grown.bucket_count;
}

static struct pin *add(struct ckpt_pack_pins *p, const uint8_t *name)
{
	struct pin *pin = ckpt_calloc(1, sizeof(*pin)), **bucket;

	if (!pin)
		return NULL;
	if (p->count >= p->bucket_count)
		grow(p);
	memcpy(pin->name, name, sizeof(pin->name));
	bucket = bucket_of(p, name);
	pin->next = *bucket;
	*bucket = pin;
	p->count++;
	return pin;
}

static void drop(struct ckpt_pack_pins *p, struct pin **place)
{
	struct pin *pin = *place;

	*place = pin->next;
	free(pin);
	p->count--;
}

// --- Acts -----------------------------------------------------------------------------------------------------------------

int ckpt_pack_pin(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&p->lock);
	struct pin *pin = *place_of(p, name);

	if (pin && pin->condemned)
		return -ESTALE;
	if (!pin)
		pin = add(p, name);
	if (!pin)
		return -ENOMEM;
	pin->count++;
	pin->ever++;
	return 0;
}

void ckpt_pack_unpin(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&p->lock);
	struct pin **place = place_of(p, name);

	assert(*place && (*place)->count);
	if (!--(*place)->count && !p->collections)
		drop(p, place);
}

// --- Collections ----------------------------------------------------------------------------------------------------------

void ckpt_pack_pins_begin(struct ckpt_pack_pins *p)
{
	LOCK_SCOPE(&p->lock);

	p->collections++;
}

void ckpt_pack_pins_end(struct ckpt_pack_pins *p)
{
	LOCK_SCOPE(&p->lock);

	if (--p->collections)
		return;
	for (size_t i = 0; i < p->bucket_count; i++) {
		for (struct pin **place = &p->buckets[i]; *place;) {
			if ((*place)->count || (*place)->condemned)
				place = &(*place)->next;
			else
				drop(p, place);
		}
	}
}

bool ckpt_pack_is_pinned(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&p->lock);
	const struct pin *pin = *place_of(p, name);

	return pin && !pin->condemned;
}

int ckpt_pack_condemn(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&p->lock);
	struct pin *pin = *place_of(p, name);

	if (pin && (!pin->condemned || pin->is_removed))
		return pin->condemned ? -EALREADY : -EBUSY;
	if (!pin)
		pin = add(p, name);
	if (!pin)
		return -ENOMEM;
	pin->condemned = pin->is_removed = true;
	return 0;
}

bool ckpt_pack_condemn_own(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&p->lock);
	struct pin *pin = *place_of(p, name);

	assert(pin && pin->count);
	if (pin->ever > 1)
		return false;
	pin->count = 0;
	pin->condemned = pin->is_removed = true;
	return true;
}

void ckpt_pack_condemned_end(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN], bool stays)
{
	LOCK_SCOPE(&p->lock);
	struct pin **place = place_of(p, name);

	assert(*place && (*place)->is_removed);
	if (!stays) {
		drop(p, place);
		return;
	}
	(*place)->is_removed = false;
	(*place)->may_go = true;
}

void ckpt_pack_spare(struct ckpt_pack_pins *p, const uint8_t name[CKPT_SHA256_LEN])
{
	LOCK_SCOPE(&p->lock);
	struct pin **place = place_of(p, name);

	assert(*place && (*place)->is_removed);
	if ((*place)->may_go)
		(*place)->is_removed = false;
	else
		drop(p, place);
}

struct ckpt_part ckpt_pack_pins_part = {.bytes = sizeof(struct ckpt_pack_pins *)};

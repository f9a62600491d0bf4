// Parts: structs that modules attach to an object of a module below them, in one allocation with it. The object does not know them.
//
// A module declares its part with CKPT_PART in its header and defines it once; whoever puts the program together places all of them, before
// the first object is made. What a part owns goes with its object.
// Ownership: as the object's. Threads: placing is one thread's; the guards of a part's members are those that its header names.
#pragma once

#include <stddef.h>

struct ckpt_part {
	size_t bytes;
	void (*init)(void *object); // NULL: it begins as zeros
	void (*done)(void *object); // nobody else has it any more; NULL: there is nothing to free
	size_t offset;              // from the object; ckpt_parts_place() sets it
};

// Declares the part `name`, a struct `type` in each struct `host`, and name_of(), which finds it.
#define CKPT_PART(host, type, name)                                                                                    \
	extern struct ckpt_part name##_part;                                                                           \
	static inline type *name##_of(const host *object)                                                              \
	{                                                                                                              \
		return (type *)((char *)object + name##_part.offset);                                                  \
	}

// Places the parts of an object that has so many bytes itself. The bytes of it with all of them.
size_t ckpt_parts_place(struct ckpt_part *const *parts, size_t count, size_t bytes);
void ckpt_parts_init(struct ckpt_part *const *parts, size_t count, void *object); // whose bytes are zeros
void ckpt_parts_done(struct ckpt_part *const *parts, size_t count, void *object);

// A shared object for `ckptfs convert --plugin`: arrays of a step come in, those of a new step go out.
//
//	#include <ckptfs_convert.h>
//
//	int ckpt_convert(struct ckpt_convert *c)
//	{
//		for (size_t i = 0; i < c->count; i++)
//			c->add(c, &c->arrays[i]);            // the arrays of the output: all, before the first byte
//		for (size_t i = 0; i < c->count; i++)
//			...                                  // c->read(c, buf, n), change them, c->write(c, buf, n)
//		return 0;
//	}
//
//	cc -shared -fPIC -o mine.so mine.c && ckptfs convert /ckpt 1000 1000-mine --plugin ./mine.so
//
// Both directions are streams: the elements of the arrays, one array after the other in their order, packed in C order and in the machine's order
// of bytes (little-endian). An array may be of any size; nothing of it is held but what the plugin holds.
//
// It runs in a process of its own, as the user who called the verb; its stdout goes to stderr. When it fails, crashes or writes too little, the verb
// says so and makes nothing. Threads: the functions are called by one at a time. Blocking: read and write wait for the verb.
// Errors: 0 or -errno. What ckpt_convert() answers is the end of it: 0, or the conversion has failed.
#ifndef CKPTFS_CONVERT_H
#define CKPTFS_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_convert_array {
	const char *name;
	const char *dtype; // as NumPy and ml_dtypes name it: "float32", "bfloat16"
	const uint64_t *shape;
	unsigned ndim;
	uint64_t bytes; // of all elements; of add() it is not looked at
};

// It only ever grows at its end.
struct ckpt_convert {
	size_t count;
	const struct ckpt_convert_array *arrays; // those that come in
	// The next bytes of them. -ENODATA: there are not so many.
	int (*read)(struct ckpt_convert *c, void *into, size_t len);
	// One more array of the output; all is copied. -EINVAL: no such dtype, a name that is not UTF-8, or a shape that no file could hold;
	// -EBUSY: bytes have been written.
	int (*add)(struct ckpt_convert *c, const struct ckpt_convert_array *array);
	// The next bytes of the output. -ENOSPC: more than its arrays have.
	int (*write)(struct ckpt_convert *c, const void *bytes, size_t len);
};

int ckpt_convert(struct ckpt_convert *c);

#ifdef __cplusplus
}
#endif

#endif

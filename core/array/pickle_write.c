#include "core/array/pickle_write.h"

#include "core/base/util.h"

void ckpt_pickle_write_begin(struct ckpt_pickle_writer *p)
{
	*p = (struct ckpt_pickle_writer){0};
	ckpt_buffer_add(&p->out, "\x80\x02", 2);
}

void ckpt_pickle_write_end(struct ckpt_pickle_writer *p)
{
	ckpt_buffer_add(&p->out, ".", 1);
}

void ckpt_pickle_write_ops(struct ckpt_pickle_writer *p, const char *ops)
{
	ckpt_buffer_text(&p->out, ops);
}

void ckpt_pickle_write_text(struct ckpt_pickle_writer *p, const char *text)
{
	size_t len = strlen(text);

	ckpt_buffer_add(&p->out, "X", 1);
	ckpt_buffer_number(&p->out, len, 4);
	ckpt_buffer_add(&p->out, text, len);
}

void ckpt_pickle_write_number(struct ckpt_pickle_writer *p, uint64_t number)
{
	if (number <= UINT8_MAX) {
		ckpt_buffer_add(&p->out, "K", 1);
		ckpt_buffer_number(&p->out, number, 1);
	} else if (number <= UINT16_MAX) {
		ckpt_buffer_add(&p->out, "M", 1);
		ckpt_buffer_number(&p->out, number, 2);
	} else if (number <= INT32_MAX) {
		ckpt_buffer_add(&p->out, "J", 1);
		ckpt_buffer_number(&p->out, number, 4);
	} else {
		unsigned bytes = 5;

		// The highest bit is the sign. No size is so large that eight bytes are too few.
		while (bytes < 8 && number >> (8 * bytes - 1))
			bytes++;
		ckpt_buffer_add(&p->out, (char[]){'\x8a', (char)bytes}, 2);
		ckpt_buffer_number(&p->out, number, bytes);
	}
}

void ckpt_pickle_write_global(struct ckpt_pickle_writer *p, const char *name)
{
	unsigned i = 0;

	while (i < p->global_count && strcmp(p->globals[i], name))
		i++;
	if (i < p->global_count) {
		ckpt_buffer_add(&p->out, (char[]){'h', (char)i}, 2);
		return;
	}
	ckpt_buffer_add(&p->out, "c", 1);
	ckpt_buffer_text(&p->out, name);
	if (i < CKPT_PICKLE_GLOBALS_MAX) {
		p->globals[p->global_count++] = name;
		ckpt_buffer_add(&p->out, (char[]){'q', (char)i}, 2);
	}
}

void ckpt_pickle_write_sizes(struct ckpt_pickle_writer *p, const uint64_t *sizes, unsigned count)
{
	if (!count) {
		ckpt_buffer_add(&p->out, ")", 1);
		return;
	}
	ckpt_buffer_add(&p->out, "(", 1);
	for (unsigned i = 0; i < count; i++)
		ckpt_pickle_write_number(p, sizes[i]);
	ckpt_buffer_add(&p->out, "t", 1);
}

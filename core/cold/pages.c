#include "core/cold/pages.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PAGES ((size_t)2 << 20)

size_t ckpt_pages_room(uint32_t bytes)
{
	return bytes < PAGES ? bytes : (bytes + PAGES - 1) / PAGES * PAGES;
}

static uint8_t *map_pages(size_t room)
{
	uint8_t *all = mmap(NULL, room + PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	if (all == MAP_FAILED)
		return NULL;
	before = (PAGES - (uintptr_t)all % PAGES) % PAGES;
	if (before)
		(void)munmap(all, before);
	(void)munmap(all + before + room, PAGES - before);
	(void)madvise(all + before, room, MADV_HUGEPAGE);
	return all + before;
}

uint8_t *ckpt_pages_new(size_t room)
{
	return room < PAGES ? malloc(room) : map_pages(room);
}

void ckpt_pages_free(uint8_t *data, size_t room)
{
	if (room < PAGES)
		free(data);
	else
		(void)munmap(data, room);
}

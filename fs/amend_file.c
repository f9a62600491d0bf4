#include "fs/amend_file.h"

#include <stdlib.h>

bool amend_is_on(const struct node *n)
{
	return amend_of(n);
}

// It stays where it is until the node goes: somebody may be looking at it.
void amend_end(struct node *n)
{
	struct amend_file *f = amend_of(n);

	if (!f)
		return;
	__atomic_store_n(&f->on, f->begins > 0, __ATOMIC_RELEASE);
	__atomic_store_n(&f->published, false, __ATOMIC_RELEASE);
	f->changed = false;
	f->closed = 0;
	*f->again = '\0';
}

void amend_free(struct amend_file *f)
{
	if (f)
		ckpt_lock_done(&f->publishing);
	free(f);
}

bool amend_is_changing(const struct node *n)
{
	struct amend_file *f = amend_of(n);

	return f && !is_published(f);
}

bool amend_writes_copy(const struct node *n)
{
	const struct amend_file *f = amend_of(n);

	return f && *f->again;
}

bool amend_is_ending(const struct node *n)
{
	const struct amend_file *f = amend_of(n);

	return f && !f->handles && !f->begins && !is_published(f);
}

bool amend_is_published(const struct node *n)
{
	struct amend_file *f = amend_of(n);

	return f && is_published(f);
}

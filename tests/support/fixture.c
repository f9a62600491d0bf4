#include "tests/support/fixture.h"

#include "core/store/open.h"
#include "tests/support/fixture_step.h"

char dir[PATH_MAX];
struct ckpt_store *s;
struct ckpt_step *step;

void ckpt_fixture_open(void)
{
	ckpt_save_init(dir);
	s = ckpt_save_open(dir);
}

void ckpt_fixture_reopen(void)
{
	ckpt_store_close(s);
	s = ckpt_save_open(dir);
}

void ckpt_fixture_close(void)
{
	ckpt_store_close(s);
}

void ckpt_fixture_step_open(const char *name)
{
	ckpt_fixture_open();
	step = ckpt_staged_begin(s, name);
}

void ckpt_fixture_step_close(void)
{
	ckpt_step_unref(step);
	ckpt_fixture_close();
}

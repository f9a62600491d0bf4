// The store of a test: a new one before it, open for writing, and closed after it.
//
//	tcase_add_checked_fixture(tcase, ckpt_fixture_open, ckpt_fixture_close);
//
// A setup or a teardown with more to do calls these. The two names have no prefix, since nearly each line of a test has one.
#pragma once

#include "tests/support/save.h"
#include "tests/support/staged.h"

extern char dir[PATH_MAX];
extern struct ckpt_store *s;

void ckpt_fixture_open(void);
void ckpt_fixture_reopen(void); // the store is closed, and opened as by another process
void ckpt_fixture_close(void);

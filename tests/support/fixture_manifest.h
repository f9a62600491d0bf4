// The bytes of a manifest, for a test to change and to try: a new one before it, freed after it.
//
//	tcase_add_checked_fixture(tcase, ckpt_fixture_manifest_open, ckpt_fixture_manifest_close);
//
// A test with another manifest takes what its writer makes. As in fixture.h, what nearly each line of a test has is without a prefix.
#pragma once

#include "tests/support/formats.h"
#include "tests/support/suite.h"

#include "core/record/container.h"
#include "core/record/manifest_layout.h"

extern uint8_t *data;
extern size_t len;

void ckpt_fixture_manifest_open(void);                           // ckpt_sample_manifest(); once more: anew
void ckpt_fixture_manifest_take(struct ckpt_manifest_writer *w); // which is freed
void ckpt_fixture_manifest_close(void);

struct ckpt_manifest *parse(void);
int try_it(void); // the damaged bytes with a right digest: as ckpt_try_manifest()

// Where the bytes are now; a test may have changed them already.
struct ckpt_section section(uint32_t type);
uint8_t *rows(uint32_t type);
uint8_t *entry(uint32_t i);

struct lie {
	size_t at; // in the section
	uint32_t value;
};

// With each of these words alone the manifest is refused. Each has one value that is right.
void check_lies(uint32_t type, const struct lie *lies, size_t count);

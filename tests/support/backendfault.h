// The ways in which a loop over a backend's operations lets one fail: it is not done, or its answer is lost; it alone, or all
// from it on. A loop copies one and sets .at = 1, 2, 3 ... until none fires (ckpt_fault_new() in core/objects/objects.h).
#pragma once

#include "backends/backends.h"
#include "core/base/util.h"

static const struct ckpt_fault ckpt_objectsfault_ways[] = {
	{.error = -EIO},
	{.error = -EIO, .half = true},
	{.error = -EIO, .sticky = true},
	{.error = -EIO, .half = true, .sticky = true},
	{.error = -ENOSPC},
	{.error = -ENOSPC, .sticky = true},
};
#define CKPT_BACKENDFAULT_WAYS ((int)ARRAY_LEN(ckpt_objectsfault_ways))

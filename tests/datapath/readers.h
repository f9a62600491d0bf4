// 16 processes read a committed step, small files and large ones, in all ways, while others save: every byte they get is
// right.
#pragma once

#include "tests/support/world.h"

void readers_run(enum world_io io, unsigned seconds);

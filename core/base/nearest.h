// The word that somebody most likely meant.
// Threads: any. Nothing blocks.
#pragma once

// The candidate that is nearest to word, or NULL when none is near. candidates end with NULL.
const char *ckpt_nearest(const char *word, const char *const *candidates);

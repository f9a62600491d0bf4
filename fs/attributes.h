// chmod, chown, utimes, setxattr and removexattr of what a committed step has (core/step/attributes.h): for call.edits. Others see it at
// once; it is a version a second later. -EROFS: the mount or the store allows no changes. They answer, and do not block.
#pragma once

#include "fs/call.h"

int attributes_set(struct call *c); // setattr; of a size that is another: CALL_REOPENS
int attributes_set_xattr(struct call *c);

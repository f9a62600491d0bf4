// Garbage collection on a remote: packs and manifests that nobody needs any more are removed from the bucket (REMOTE.md section 7).
//
// Any node may do it at any time, several at once, beside nodes that push. Nobody waits for it. A collection
//
//   1. lists packs/ and m/; candidates are those older than the grace time, by the store's clock;
//   2. reads what the log says up to some entry, and from that what is needed: by versions that are listed, in the trash, or kept for
//      `ckptfs restore`, and by the delay longer than that; by plain files; by a HOLD;
//   3. appends a CONDEMN behind that entry which names the candidates that nobody needs. Where another entry is there by then: 2 again;
//   4. removes objects that a CONDEMN has named, once that is older than the delay. Who reads of an older version has so long to end;
//   5. puts elsewhere what listed steps need of half-dead packs, if it is told to. Once this is pushed a later collection finds that nobody needs
//      those packs (collect_repack.h).
//
// Nobody loses anything: an entry behind the CONDEMN is by somebody who has read it, and names no condemned object (push.c). One before it
// was read in 2. An object that is needed is never removed, whatever a CONDEMN says. A collection that ends anywhere leaves nothing
// behind but what the next one finds: condemned objects that are still listed, by step 4.
//
// Several objects are removed at the same time, where each answer takes long. One that cannot be removed keeps no other; each is named.
//
// Nothing is condemned where a record, a manifest or a content cannot be read: it may need anything. More than half of all bytes are
// condemned only by force, but for objects that entries of the log have named: their versions have gone by acts.
//
// Uploads in parts that nobody ended are given up after CKPT_COLLECT_UPLOADS_NS, where the node has the right to list them.
//
// Threads: any, several at once; the removal has some of its own. Blocks on the network and on the node's disk.
#pragma once

#include "core/remote/collect_how.h"
#include "core/step/store.h"

// 0; -EREMOTE: the store has no remote; -EROFS: it is open for reading. Nothing was condemned or removed: -EBADMSG, -ENOTSUP, -EIO ... what may
// need objects cannot be read; -EPERM more than half of all bytes would go at once; -EACCES the remote's objects may not be removed. Some may have been: -EINTR go_on said
// no; errors of the objects and of the log: -ETIMEDOUT, -EAGAIN, ... What was not done the next collection does.
int ckpt_collect(struct ckpt_store *s, const struct ckpt_collect_how *how, struct ckpt_collect_done *ret_done);
const char *ckpt_collect_hint(int error); // what to do about it, or NULL
// {"live", "young", "condemned", "deleted", "waiting": {"objects", "bytes"}, "waiting_seconds", "uploads", "half_dead", "repacked"}; malloc'ed; NULL: no memory.
char *ckpt_collect_json(const struct ckpt_collect_done *done);

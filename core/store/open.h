// Opening and closing a store: of all its modules, in order.
//
// Threads: one opens, and one closes when no other uses the store any more. Blocks on the disk.
#pragma once

#include "core/step/store.h"

enum ckpt_store_mode {
	CKPT_STORE_READ,  // beside a mount or alone; never writes, not even the index
	CKPT_STORE_WRITE, // alone: -EBUSY when a mount or a writing verb has it (ckpt_store_holder says who)
	CKPT_STORE_REPAIR, // the same; where entries of its log are damaged, it goes on without what they said from then on
};

// -ENOENT no such directory; -EMEDIUMTYPE not a store; -ENOTSUP a newer format or an unknown required feature; -EBUSY
// held, at once by a mount that lives, else after two seconds (that of a process that was killed is waited for, holder.h); -EBADMSG identity damaged; -EUCLEAN its log is (CKPT_STORE_REPAIR); -EPROTONOSUPPORT it was made before stores had a log; -EREMOTE the index would not be
// on a local disk; -ENXIO work_dir does not exist; -EACCES, -EROFS, -EIO. What was given of the settings wins over what the
// store says; settings may be NULL.
int ckpt_store_open(const char *path, enum ckpt_store_mode mode, const struct ckpt_settings *settings,
		    struct ckpt_store **ret_store);
void ckpt_store_close(struct ckpt_store *s); // NULL is fine; waits for the index to catch up
// At an orderly end, when no client has anything open: commits what quiet would commit if it had the time (looker.h), and begins no
// commit after until_ns, monotonic. Blocks on the disk.
void ckpt_store_complete(struct ckpt_store *s, int64_t until_ns);
// Before its end: no thread of the store calls write_back, renew or gone any more. Waits for running commits. NULL is fine.
void ckpt_store_rest(struct ckpt_store *s);
// For a mount: what is committed is sealed and cooled behind from now on, and what is not is measured and completed when it is quiet,
// where the settings say so.
// 0, -ENOMEM, -EAGAIN.
int ckpt_store_work_behind(struct ckpt_store *s);

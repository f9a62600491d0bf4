// What came of a garbage collection, for people and programs.
#include "core/gc/gc.h"

#include "core/base/json.h"

#include <errno.h>

const char *ckpt_gc_hint(int error)
{
	switch (error) {
	case -EPERM:
		return "look at `ckptfs ls --all`: if all steps are there that should be, --force does it";
	case -EBADMSG:
	case -EIO:
		return "nothing may be removed before that can be read: run `ckptfs verify` on the store";
	case -ENOTSUP:
		return "mount it with a newer ckptfs";
	default:
		return NULL;
	}
}

const char *ckpt_gc_kept_text(enum ckpt_gc_kept kept)
{
	static const char *const texts[CKPT_GC_KEPT] = {
		[CKPT_GC_YOUNG] = "younger than the grace time",
		[CKPT_GC_OPEN] = "open files are read from it",
		[CKPT_GC_MOST] = "more than half of all would go at once",
		[CKPT_GC_FAILED] = "could not be removed",
		[CKPT_GC_NO_ROOM] = "needed in part, and there is no room to repack them",
		[CKPT_GC_DAMAGED] = "needed in part, and that cannot be read",
	};

	return texts[kept];
}

char *ckpt_gc_json(const struct ckpt_gc_done *done)
{
	json_t *kept;
	int rc = 0;

	ckpt_json_begin();
	kept = json_array();
	for (int i = 0; i < CKPT_GC_KEPT && !rc; i++)
		if (done->kept[i].objects)
			rc = json_array_append_new(kept, json_pack("{s:s, s:I, s:I}", "why",
								   ckpt_gc_kept_text((enum ckpt_gc_kept)i), "objects",
								   (json_int_t)done->kept[i].objects, "bytes",
								   (json_int_t)done->kept[i].bytes));
	if (rc) {
		json_decref(kept);
		return NULL;
	}
	return ckpt_json_dump(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "live_bytes",
					(json_int_t)done->live_bytes, "garbage_bytes", (json_int_t)done->garbage_bytes,
					"deleted_bytes", (json_int_t)done->deleted_bytes, "deleted_objects",
					(json_int_t)done->deleted_objects, "repacked_bytes",
					(json_int_t)done->repacked_bytes, "repacked_objects",
					(json_int_t)done->repacked_objects, "kept", kept),
			      JSON_COMPACT);
}

// An attempt tells how far it is, and why it failed: one message for each cause, with what to do about it.
#include "core/save/attempt.h"

#include "core/base/sys.h"
#include "core/save/stage.h"
#include "core/step/errlog.h"
#include "core/step/store.h"

void ckpt_attempt_progress(struct attempt *a)
{
	__atomic_store_n(&ckpt_staging_of(a->step)->progress_ns, ckpt_sys.mono_ns(), __ATOMIC_RELAXED);
}

void ckpt_attempt_complain(struct attempt *a, int error, const char *hint, const char *what, const char *path)
{
	ckpt_errlog_add(a->step->store->errlog, a->name, error, hint, "commit failed: %s%s%s", what, path ? ": " : "",
			path ? path : "");
}

void ckpt_attempt_complain_of_scan(struct attempt *a, int error)
{
	const char *path = a->scan.blamed;

	switch (error) {
	case -EBUSY:
		ckpt_attempt_complain(
			a, error,
			"a shared mapping or a leaked descriptor can still change it; end it and complete the step "
			"again",
			"somebody can still write a file", path);
		break;
	case -EIO:
		ckpt_attempt_complain(a, error, "write the file anew, then complete the step again",
				      "a write of a file was lost before", path);
		break;
	case -EINVAL:
	case -EILSEQ:
	case -ENAMETOOLONG:
		ckpt_attempt_complain(a, error, "rename it, then complete the step again",
				      "a name that a step cannot have", path);
		break;
	case -ESTALE:
		ckpt_attempt_complain(a, error, "`ckptfs abort` it, then derive it again",
				      "the step that a file shares its chunks with is gone, or was changed", path);
		break;
	case -E2BIG:
		if (a->scan.blamed_xattrs)
			ckpt_attempt_complain(a, error, "remove some, then complete the step again",
					      "more than 64 KiB of extended attributes", path);
		else
			ckpt_attempt_complain(a, error, "fewer than 1,048,576 files, at most 64 levels deep",
					      "too many files or too deep", path);
		break;
	default:
		ckpt_attempt_complain(a, error, "nothing is lost: mend the cause, then complete the step again",
				      "the files could not be read", path);
	}
}

void ckpt_attempt_complain_of_publish(struct attempt *a, int error)
{
	if (a->unknown)
		ckpt_attempt_complain(a, error, "look at the disk; completing the step again gives the final answer",
				      "outcome unknown: the record may be there, the disk did not confirm it", NULL);
	else if (error == -EEXIST)
		ckpt_attempt_complain(a, error, "choose another name, or remove that step first",
				      "there is a step of this name", NULL);
	else
		ckpt_attempt_complain(a, error, "nothing is lost: mend the cause, then complete the step again",
				      "the record could not be written", NULL);
}

void ckpt_attempt_complain_of_name(struct attempt *a, int error)
{
	if (error == -EBUSY)
		ckpt_attempt_complain(a, error, "complete it under that name again, which gives the final answer",
				      "the outcome of its commit under another name is unknown", NULL);
	else if (error == -EEXIST)
		ckpt_attempt_complain(a, error, "choose another name, or remove that step first",
				      "there is a step of this name", NULL);
	else
		ckpt_attempt_complain(a, error, "nothing is lost: mend the cause, then complete the step again",
				      "its name could not be kept for it", NULL);
}

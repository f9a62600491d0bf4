#include "fs/verbs_answer.h"

#include "core/base/json.h"
#include "core/base/util.h"
#include "core/record/name.h"
#include "core/step/errlog.h"

#include <string.h>

char *answer_refusal(int error, const char *text, const char *hint)
{
	CLEANUP_FREE char *clean = ckpt_name_clean(text); // it may have a path in it
	json_t *reply = json_pack("{s:s, s:i, s:s?}", "error", clean ? clean : "", "errno", error, "hint", hint);
	char *dump = json_dumps(reply, JSON_COMPACT);

	json_decref(reply);
	return dump;
}

char *answer_failure(int rc, const char *hint)
{
	return answer_refusal(-rc, strerror(-rc), hint ? hint : ckpt_errno_hint(rc));
}

char *answer_done(void)
{
	return strdup("{\"ok\":true}");
}

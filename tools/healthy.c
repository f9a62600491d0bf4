#include "tools/healthy.h"

#include "core/base/util.h"
#include "core/record/metadata.h"
#include "core/step/store.h"
#include "core/store/examiner.h"
#include "core/view/examine.h"
#include "tools/output.h"

#include <stdio.h>

int ckpt_healthy_by_metadata(struct ckpt_step *step, bool *ret_healthy)
{
	CLEANUP_VERSION struct ckpt_version *v = ckpt_step_version(step);
	CLEANUP_FREE char *findings = NULL;
	struct ckpt_record record;
	json_t *said;
	int rc = ckpt_step_record(step, v->is.version, &record);

	if (rc)
		return rc;
	rc = ckpt_metadata_findings(record.metadata, &findings);
	ckpt_record_done(&record);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc)
		return rc;
	said = json_loads(findings, 0, NULL);
	*ret_healthy = !json_is_false(json_object_get(said, "healthy"));
	json_decref(said);
	return 0;
}

static int look(struct ckpt_step *step, bool *ret_healthy)
{
	struct ckpt_examine how = {.step = step};
	struct ckpt_examined found;
	int rc = ckpt_step_manifest(step, &how.m);

	if (rc)
		return rc;
	how.elements = ckpt_examiner_is_here(step, how.m);
	rc = ckpt_examine(&how, &found);
	if (!rc) {
		*ret_healthy = !found.troubles;
		ckpt_examined_done(&found);
		if (!how.elements)
			ckpt_note("%s: only the headers of its arrays were looked at, as not all of its bytes are on "
				  "this "
				  "node: `ckptfs check --read-data` reads them",
				  step->name);
	}
	ckpt_manifest_unref(how.m);
	return rc;
}

static bool skips(void *arg, struct ckpt_step *step)
{
	bool healthy = true;
	int rc = ckpt_healthy_by_metadata(step, &healthy);

	(void)arg;
	if (rc == -ENODATA)
		rc = look(step, &healthy);
	if (rc == -ENOMEM)
		ckpt_need(NULL);
	if (rc)
		ckpt_note("%s: its arrays could not be looked at, so that nothing is known against it: %s", step->name,
			  strerror(-rc));
	if (!healthy)
		ckpt_note("%s is passed over, as there is trouble in its arrays: `ckptfs check --read-data`",
			  step->name);
	return !healthy;
}

void ckpt_healthy_only(struct ckpt_view *v)
{
	v->skips = skips;
}

// Which profile claims a step.
#include "core/profile/profile.h"

#include "core/base/sys.h"
#include "core/base/util.h"
#include "core/record/name.h"

#include <dirent.h>
#include <fcntl.h>

// Files and folders in the top directory of a checkpoint that nobody but its framework writes.
static const struct {
	const char *file, *profile;
} claims[] = {
	{"mp_rank_*", "deepspeed"},
	{"zero_pp_rank_*", "deepspeed"},
	{"*zero_pp_rank_*", "deepspeed"},
	{"random_states_*", "accelerate"},
	{"ocdbt.process_*", "orbax"},
	{"_CHECKPOINT_METADATA", "orbax"},
	{".snapshot_metadata", "torchsnapshot"},
	{"tensorstore_index.json", "eformer"},
	{"*.distcp", "dcp"},
};

static bool is_on(uint64_t mask, const char *profile)
{
	uint64_t bits;

	return !ckpt_profiles_parse(profile, &bits) && (mask & bits);
}

void ckpt_profile_see(struct ckpt_claims *seen, const char *name)
{
	seen->arguments |= !strcmp(name, "training_args.bin");
	seen->progress |= !strcmp(name, "optimizer.pt") || !strcmp(name, "scheduler.pt") ||
			  ckpt_name_matches("global_step#", name);
	for (size_t i = 0; i < ARRAY_LEN(claims); i++)
		if (ckpt_name_matches(claims[i].file, name))
			seen->rows |= 1u << i;
}

const char *ckpt_profile_claims(uint64_t mask, const struct ckpt_claims *seen)
{
	if (seen->arguments && seen->progress && is_on(mask, "hf-trainer"))
		return "hf-trainer";
	for (size_t i = 0; i < ARRAY_LEN(claims); i++)
		if ((seen->rows >> i & 1) && is_on(mask, claims[i].profile))
			return claims[i].profile;
	return NULL;
}

int ckpt_profile_claims_dir(uint64_t mask, int dirfd, const char **ret_profile)
{
	int fd = ckpt_sys.open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0), rc;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct ckpt_claims seen = {0};
	struct dirent *e;

	if (!dir) {
		rc = fd < 0 ? fd : -errno;
		if (fd >= 0)
			ckpt_sys.close(fd);
		return rc;
	}
	while (!(rc = ckpt_sys.readdir(dir, &e)) && e)
		ckpt_profile_see(&seen, e->d_name);
	closedir(dir);
	*ret_profile = ckpt_profile_claims(mask, &seen);
	return rc;
}

// Hostile files whose close, rename or removal may complete a step: markers with JSON, trackers with a name, pickles. The
// first four bytes choose the act, the file's name and its directory's; the rest is what the file holds.

#include "core/record/event.h"
#include "tests/fuzz/replay.h"

#include "core/base/util.h"
#include "core/profile/profile.h"
#include "core/record/name.h"

#include <fcntl.h>
#include <sys/mman.h>

static const char *const names[] = {
	"metadata.json",
	"trainer_state.json",
	"random_states_0.pkl",
	".snapshot_metadata",
	".metadata",
	"latest",
	"latest_checkpointed_iteration.txt",
	"latest_train_state.pt",
	"_CHECKPOINT_METADATA",
	"commit_success.txt",
	"checkpoint",
	"checkpoint_5",
	"checkpoint_metadata.json",
	"scheduler.bin",
	"model_index.json",
	"rng_state_0.pth",
	"pytorch_model.bin",
	"a.safetensors",
};
static const char *const froms[] = {NULL, ".metadata.tmp", "checkpoint_tmp", "metadata.json.tmp"};
static const char *const dirs[] = {NULL,      "iter_0000100", "checkpoint-500",     "run-5",   "5",
				   "epoch_1", "global_step7", "tmp-checkpoint-500", "weights", "step_8"};

static int is_known(int rc)
{
	return rc == 0 || rc == -ENOENT || rc == -EINVAL || rc == -EIO;
}

static void ask(const struct ckpt_deed *deed)
{
	struct ckpt_completion c;
	uint64_t all;
	size_t row = 0;
	int rc;

	fuzz_assert(!ckpt_profiles_parse("auto", &all));
	do {
		size_t before = row;

		rc = ckpt_profile_completes(all, deed, &row, &c);
		fuzz_assert(is_known(rc) && (rc == -ENOENT || row > before));
		if (rc)
			continue;
		fuzz_assert(c.profile && c.event[0] && memchr(c.event, 0, sizeof(c.event)));
		fuzz_assert(memchr(c.beside, 0, sizeof(c.beside)));
		fuzz_assert(deed->dir || !ckpt_name_check(c.beside, strlen(c.beside)));
		(void)ckpt_profile_knows(&c, deed->dirfd);
	} while (!rc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static int fd = -1, dirfd = -1;

	if (fd < 0) {
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		dirfd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0 || dirfd < 0 || len < 4 || ftruncate(fd, 0) || pwrite(fd, data + 4, len - 4, 0) != (ssize_t)len - 4)
		return 0;
	ask(&(struct ckpt_deed){
		.act = CKPT_EVENT_CLOSE + data[0] % 3,
		.name = names[data[1] % ARRAY_LEN(names)],
		.from = data[0] % 3 == 1 ? froms[data[3] % ARRAY_LEN(froms)] : NULL,
		.fd = fd,
		.dir = dirs[data[2] % ARRAY_LEN(dirs)],
		.dirfd = dirfd,
	});
	return 0;
}

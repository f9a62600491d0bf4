// Frameworks that end with a file of their own, too.
#include "tests/replay/traces.h"

void torchsnapshot(int rank)
{
	make_dirs(path("step_100/%d/model", rank));
	put_file(path("step_100/%d/model/weight", rank), 400 * KIB);
	put_file(path("step_100/%d/model/bias", rank), 3 * KIB);
	together();
	midpoint();
	if (rank == 0) {
		hidden("step_100");
		put_file("step_100/.snapshot_metadata", 4 * KIB);
		complete("step_100");
	}
}

void bytecheckpoint(int rank)
{
	static const char *const parts[] = {"model", "optimizer", "extra_state"};
	static const char *const step = "b/global_step_100";

	for (int i = 0; i < 3; i++) {
		make_dirs(path("%s/%s", step, parts[i]));
		put_synced(path("%s/%s/__%d_0.distcp", step, parts[i], rank), 150 * KIB);
	}
	together();
	if (rank == 0) {
		for (int i = 0; i < 3; i++)
			put_synced(path("%s/%s/.metadata", step, parts[i]), 2 * KIB);
		midpoint();
		hidden(step);
		put_text("b/latest_checkpointed_iteration.txt", "100");
		complete(step);
	}
}

static void put_pickle(const char *name, size_t bytes)
{
	int fd = open_file(name, O_WRONLY | O_CREAT | O_TRUNC);

	write_raw(fd, "\x80\2", 2);
	write_bytes(fd, bytes);
	write_raw(fd, ".", 1);
	close_file(fd);
}

void accelerate(int rank)
{
	static const char *const step = "checkpoints/checkpoint_0";

	make_dirs(step);
	together();
	if (rank == 0) {
		put_safetensors(step, "model.safetensors", 500 * KIB);
		put_pickle(path("%s/optimizer.bin", step), 300 * KIB);
		put_pickle(path("%s/scheduler.bin", step), KIB);
		midpoint();
		hidden(step);
		put_pickle(path("%s/random_states_0.pkl", step), 14 * KIB);
		complete_soon(step); // its process may write more for 2 s
	}
	together();
	if (rank == 1) { // the others' come when they come
		put_pickle(path("%s/random_states_1.pkl", step), 14 * KIB);
		complete(step);
	}
}

// What PyTorch's users write, and the Trainer: T4, T5, T6, T8.
#include "tests/replay/traces.h"

// --- torch.distributed.checkpoint -------------------------------------------------------------------------------------

// Whole archives one after the other, each at a multiple of 64 bytes.
static void put_shard(const char *step, int rank, int n)
{
	int fd = open_file(path("%s/__%d_%d.distcp", step, rank, n), O_WRONLY | O_CREAT | O_TRUNC);

	for (int i = 0; i < 3; i++)
		write_bytes(fd, 100 * KIB + 64 * (size_t)i);
	sync_file(fd);
	close_file(fd);
}

// The last of it is written by close, after the fsync.
static void put_metadata(const char *step)
{
	const char *tmp = path("%s/.metadata.tmp", step), *metadata = path("%s/.metadata", step);
	int fd = open_file(tmp, O_WRONLY | O_CREAT | O_TRUNC);

	write_bytes(fd, 24 * KIB);
	sync_file(fd);
	write_bytes(fd, 8 * KIB);
	close_file(fd);
	if (is_there(metadata))
		remove_file(metadata);
	rename_over(tmp, metadata);
}

void t4_dcp(int rank)
{
	static const char *const step = "run/step-100";

	make_dirs(step);
	put_shard(step, rank, 0);
	put_shard(step, rank, 1);
	together();
	if (rank == 0) {
		midpoint();
		hidden(step);
		put_metadata(step);
		complete(step);

		// Once more with one rank less: what the other has written before stays, and belongs to it.
		changing(step);
		make_dirs(step);
		put_shard(step, 0, 0);
		put_shard(step, 0, 1);
		put_metadata(step);
		complete(step);
	}
	together();
	list_dir(step);
}

// --- Megatron ---------------------------------------------------------------------------------------------------------

static void put_iteration(const char *step, int rank, const char *sharded_backend)
{
	make_dirs(step);
	put_shard(step, rank, 0);
	together();
	if (rank == 0) {
		put_file(path("%s/common.pt", step), 5 * KIB);
		put_metadata(step);
		hidden(step);
		put_text(path("%s/metadata.json", step), sharded_backend);
		complete(step);
	}
}

static const char *const sharded_backend = "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1}";

void t5_before(void)
{
	make_dirs("save/iter_0000090");
	put_shard("save/iter_0000090", 0, 0);
	put_metadata("save/iter_0000090");
	put_text("save/iter_0000090/metadata.json", sharded_backend);
	complete("save/iter_0000090");
	put_text("save/latest_checkpointed_iteration.txt", "90");
}

void t5_megatron(int rank)
{
	static const char *const step = "save/iter_0000100";

	if (rank == 0) {
		make_dirs(step);
		list_dir(step); // a warning, where it is not empty
		fork_children();
	}
	together();
	put_shard(step, rank, 1);
	midpoint();
	put_iteration(step, rank, sharded_backend);
	if (rank == 0) {
		list_dir(step);
		put_text(path("%s/integrity.json", step), "{\"algorithm\": \"sha256\", \"files\": {}}");
		complete(step);
		put_text("save/latest_checkpointed_iteration.txt", "100");
		make_dir(path("%s/tokenizer", step));
		complete(step);
		put_file(path("%s/tokenizer/tokenizer.json", step), 20 * KIB);
		complete(step);
		put_file(path("%s/tokenizer/special_tokens_map.json", step), 500);
		complete(step);

		// Another look at what is sharded: metadata anew, two files less. Each is an edit, durable within a second.
		changing(step);
		rename_over(path("%s/.metadata", step), path("%s/.metadata.bck", step));
		edited(step);
		put_synced(path("%s/.metadata.tmp", step), 10 * KIB);
		edited(step);
		rename_over(path("%s/.metadata.tmp", step), path("%s/.metadata", step));
		edited(step);
		remove_file(path("%s/__0_1.distcp", step));
		edited(step);
		remove_file(path("%s/__1_1.distcp", step));
		edited(step);
		remove_file(path("%s/.metadata.bck", step));
		edited(step);

		changing("save/iter_0000090");
		remove_tree("save/iter_0000090");
		gone("save/iter_0000090");
	}
	together();
}

// --- DeepSpeed --------------------------------------------------------------------------------------------------------

// O_DIRECT as far as it goes; the rest by another open. Nothing truncates it.
static void put_direct(const char *name, size_t blocks, size_t tail)
{
	int fd = open_direct(name, O_CREAT | O_WRONLY);

	write_bytes(fd, blocks * 4 * KIB);
	close_file(fd);
	fd = open_file(name, O_WRONLY | O_CREAT | O_APPEND);
	write_bytes(fd, tail);
	sync_file(fd);
	close_file(fd);
}

void t6_deepspeed(int rank)
{
	static const char *const step = "out/global_step100";

	if (rank == 0)
		make_dirs(step);
	together();
	if (rank == 0)
		put_file(path("%s/mp_rank_00_model_states.pt", step), 500 * KIB);
	remove_if_there(path("%s/bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt", step, rank));
	put_direct(path("%s/bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt", step, rank), 100, 777);
	ask_room(step);
	together();
	if (rank == 0) {
		int fd;

		midpoint();
		fd = open_file("out/zero_to_fp32.py", O_WRONLY | O_CREAT | O_TRUNC);
		write_bytes(fd, 20 * KIB);
		set_mode(fd, 0744);
		close_file(fd);
		hidden(step);
		put_text("out/latest", "global_step100");
		complete(step);
	}
	together();
	list_dir(step);
}

// --- HF Trainer -------------------------------------------------------------------------------------------------------

static void put_trainer(const char *step, size_t bytes)
{
	put_safetensors(step, "model-00001-of-00002.safetensors", bytes);
	put_safetensors(step, "model-00002-of-00002.safetensors", bytes / 2);
	put_text(path("%s/model.safetensors.index.json", step), "{\"metadata\": {}, \"weight_map\": {}}");
	put_text(path("%s/config.json", step), "{\"model_type\": \"gpt2\"}");
	put_file(path("%s/training_args.bin", step), 5 * KIB);
	put_file(path("%s/optimizer.pt", step), bytes);
	put_file(path("%s/scheduler.pt", step), KIB);
	put_file(path("%s/rng_state_0.pth", step), 15 * KIB);
	hidden(step);
	put_text(path("%s/trainer_state.json", step), "{\"global_step\": 1, \"log_history\": []}");
	complete(step);
}

void t8_before(void)
{
	make_dirs("out/checkpoint-100");
	put_trainer("out/checkpoint-100", 100 * KIB);
}

void t8_hf(int rank)
{
	static const char *const step = "out/checkpoint-500";

	make_dirs(step);
	together();
	midpoint();
	if (rank == 0)
		put_trainer(step, 700 * KIB);
	together();
	if (rank == 1) {
		put_file(path("%s/rng_state_1.pth", step), 15 * KIB);
		complete(step);
	}
	together();
	if (rank == 0) {
		list_dir("out");
		is_older("out/checkpoint-100", step);
		changing("out/checkpoint-100");
		remove_tree("out/checkpoint-100");
		gone("out/checkpoint-100");
	}
}

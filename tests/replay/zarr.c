// Arrays that are folders of chunks: T13, T15.
#include "tests/replay/traces.h"

// --- eFormer ----------------------------------------------------------------------------------------------------------

static void put_leaf(const char *model, const char *leaf, size_t bytes)
{
	const char *folder = path("%s/%s", model, leaf);

	make_dirs(folder);
	put_locked(folder, ".zarray", 200);
	put_locked(folder, "0.0", bytes);
}

// Read, changed, written: it is one document for all prefixes.
static void change_index(const char *step, const char *prefixes)
{
	const char *index = path("%s/tensorstore_index.json", step);
	int fd;

	if (is_there(index)) {
		struct kept old = keep_open(index);

		still_same(&old);
		let_kept_go(&old);
	}
	fd = open_file(index, O_WRONLY | O_CREAT | O_TRUNC);
	write_text(fd, "{\"format\":\"tensorstore\",\"version\":\"1.1\",\"prefixes\":{%s}}", prefixes);
	close_file(fd);
}

static void put_arrays(const char *step)
{
	make_dirs(step);
	put_leaf(path("%s/model", step), "layer0/w", 400 * KIB);
	put_leaf(path("%s/model", step), "layer0/b", KIB);
	change_index(step, "\"model\":[]");
	put_file(path("%s/model_structure.json", step), 300);
	put_leaf(path("%s/tx", step), "mu/w", 400 * KIB);
	change_index(step, "\"model\":[],\"tx\":[]");
	put_file(path("%s/checkpoint_metadata.json", step), 300);
}

void t13_before(void)
{
	put_arrays("e/run-50");
	put_text("e/run-50/metadata.json", "{\"step\":50,\"timestamp\":\"t\",\"is_temporary\":true}");
	complete("e/run-50");
}

void t13_eformer(int rank)
{
	(void)rank;
	put_arrays("e/run-100");
	midpoint();
	put_text("e/run-100/metadata.json", "{\"step\":-1,\"timestamp\":\"t\",\"is_temporary\":true}");
	hidden("e/run-100");
	put_text("e/run-100/metadata.json", "{\"step\":100,\"timestamp\":\"t\",\"is_temporary\":true}");
	complete("e/run-100");
	changing("e/run-50");
	remove_tree("e/run-50");
	gone("e/run-50");
}

// --- zarr 2 -----------------------------------------------------------------------------------------------------------

static const char *const key = "step_100/optimizer.state.w";

// Of one flattened array each rank has a part of every chunk.
static void change_chunk(const char *chunk, int rank)
{
	const char *partial = path("%s/%s.%08x.partial", key, chunk, 0xfeed + rank);
	int lock = open_file(path("%s.sync/%s", key, chunk), O_RDWR | O_CREAT), fd;
	struct kept old = {0};

	posix_lock(lock);
	if (is_there(path("%s/%s", key, chunk))) {
		old = keep_open(path("%s/%s", key, chunk));
		still_same(&old);
		let_kept_go(&old);
	}
	put_file(partial, 256 * KIB);
	rename_over(partial, path("%s/%s", key, chunk));
	// And once in place.
	fd = open_file(path("%s/%s", key, chunk), O_RDWR);
	write_at(fd, 64 * KIB, 64 * KIB);
	close_file(fd);
	posix_unlock(lock);
	close_file(lock);
}

void t15_zarr(int rank)
{
	if (rank == 0) {
		make_dirs(key);
		put_file(path("%s/.zarray", key), 250);
		make_dirs(path("%s.sync", key));
	}
	together();
	// Who comes last has each chunk, so that there is one outcome; between them both have the same file open and locked.
	for (int i = 0; i < 2; i++) {
		if (rank == i) {
			change_chunk("0.0", rank);
			change_chunk("0.1", rank);
		} else {
			int fd = open_file(path("%s.sync/0.0", key), O_RDWR | O_CREAT);

			posix_lock(fd);
			posix_unlock(fd);
			close_file(fd);
		}
		together();
		if (i == 0)
			midpoint();
	}
	if (rank == 0) {
		int marker = open_file("step_100/.finalize", O_WRONLY | O_CREAT | O_TRUNC);

		write_text(marker, "{\"world_size\": 2}");
		fork_children();
		hidden("step_100");
		close_file(marker);
		remove_if_there("step_100/.finalize"); // a plain filesystem keeps it
		complete("step_100");
	}
}

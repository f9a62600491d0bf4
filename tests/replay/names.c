// What is done to names around steps: T12, T14, T16.
#include "tests/replay/traces.h"

#include <unistd.h>

// --- NeMo -------------------------------------------------------------------------------------------------------------

void t12_nemo(int rank)
{
	static const char *const step = "nemo/epoch=1-step=100";

	if (rank == 0) {
		usleep(30000); // /proc says when a process began in ticks of 10 ms; a real one imports for seconds
		make_dirs("nemo");
		put_text(path("%s-unfinished", step), "");
		make_dirs(path("%s/weights", step));
	}
	together();
	put_synced(path("%s/weights/__%d_0.distcp", step, rank), 500 * KIB);
	if (rank == 0) {
		put_file(path("%s/weights/common.pt", step), 10 * KIB);
		put_text(path("%s/weights/metadata.json", step), "{\"sharded_backend\": \"torch_dist\"}");
	}
	together();
	midpoint();
	if (rank == 0) {
		hidden(step);
		remove_file(path("%s-unfinished", step));
		complete(step);
		remove_if_there("nemo/epoch=1-step=100-last");
		make_symlink("epoch=1-step=50", "nemo/epoch=1-step=100-last");
		remove_if_there("nemo/epoch=1-step=100-last.new");
		make_symlink("epoch=1-step=100", "nemo/epoch=1-step=100-last.new");
		rename_over("nemo/epoch=1-step=100-last.new", "nemo/epoch=1-step=100-last");
		list_dir("nemo/epoch=1-step=100-last/weights");
	}
}

// --- Multi-tier checkpointing -----------------------------------------------------------------------------------------

void t14_mtc(int rank)
{
	static const char *const offer = "job-s100-n0-g0.restore";

	if (rank == 0) {
		put_text("t", "job-name: job\nframework: orbax\n");
		rename_over("t", "replicator.yaml");
		complete("replicator.yaml");
		make_dirs("local/peer");
		put_file("local/peer/shard", 400 * KIB);
		midpoint();
	}
	together();
	if (rank == 1) { // the replicator, which takes what it was given
		changing("replicator.yaml");
		remove_file("replicator.yaml");
		gone("replicator.yaml");
		remove_if_there(offer);
		make_symlink("local/peer", offer);
	}
	together();
	if (rank == 0) {
		rename_over(offer, "100");
		complete("100");
		list_dir("100");
	}
}

// --- Readers ----------------------------------------------------------------------------------------------------------

static void save(const char *step)
{
	make_dirs(path("%s/params", step));
	put_file(path("%s/params/w", step), 700 * KIB);
	put_file(path("%s/params/b", step), 30 * KIB);
	put_text(path("%s/.finalize", step), "");
	remove_if_there(path("%s/.finalize", step)); // a plain filesystem keeps it
	complete(step);
}

void t16_before(void)
{
	make_dirs("r");
	save("r/80");
	save("r/90");
}

void t16_readers(int rank)
{
	struct kept open = {0}, mapped = {0};

	if (rank == 1) {
		open = keep_open("r/80/params/w");
		mapped = keep_mapped("r/90/params/w");
	}
	together();
	if (rank == 0) {
		changing("r/80");
		remove_tree("r/80");
		gone("r/80");
		save("r/100");
		midpoint();
		changing("r/90");
		rename_over("r/90", "r/trash-90"); // to be deleted later
		gone("r/90");
		complete("r/trash-90");
	}
	together();
	if (rank == 1) {
		still_same(&open);
		still_same(&mapped);
	}
	together();
	if (rank == 0) {
		changing("r/trash-90");
		remove_tree("r/trash-90");
		gone("r/trash-90");
		save("r/110");
	}
	together();
	if (rank == 1) {
		still_same(&open);
		still_same(&mapped);
		let_kept_go(&open);
		let_kept_go(&mapped);
	}
}

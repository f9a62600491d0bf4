// Orbax: T1 to T3.
#include "tests/replay/traces.h"

#include <errno.h>

static const char *const tmp = "r/100.orbax-checkpoint-tmp";

void put_locked(const char *folder, const char *name, size_t bytes)
{
	const char *lock = path("%s/%s.__lock", folder, name);
	int fd = open_file(lock, O_CREAT | O_WRONLY), again;

	ofd_lock(fd);
	again = open_file(lock, O_CREAT | O_WRONLY); // nobody has renamed it meanwhile
	same_file(fd, again);
	close_file(again);
	write_vector(fd, bytes);
	sync_file(fd);
	rename_over(lock, path("%s/%s", folder, name));
	sync_dir(folder);
	ofd_unlock(fd);
	close_file(fd);
}

// A data file has its name from the start.
static void put_data(const char *folder, const char *name, size_t bytes)
{
	int fd = open_file(path("%s/%s", folder, name), O_CREAT | O_TRUNC | O_RDWR);

	write_vector(fd, bytes);
	sync_file(fd);
	sync_dir(folder);
	close_file(fd);
}

static void put_process(const char *state, int rank)
{
	const char *folder = path("%s/ocdbt.process_%d", state, rank);

	make_dirs(path("%s/d", folder));
	put_data(path("%s/d", folder), path("%032x", 0xabc0 + rank), 600 * KIB);
	put_locked(folder, "manifest.ocdbt", 4 * KIB);
	make_dirs(path("%s/array_metadatas", state));
	put_file(path("%s/array_metadatas/process_%d", state, rank), 300);
}

// The children's trees become one.
static void merge(const char *state, int ranks)
{
	list_dir(state);
	for (int i = 0; i < ranks; i++) {
		list_dir(path("%s/ocdbt.process_%d", state, i));
		list_dir(path("%s/ocdbt.process_%d/d", state, i));
	}
	make_dirs(path("%s/d", state));
	put_data(path("%s/d", state), "0123456789abcdef0123456789abcdef", 8 * KIB);
	put_locked(state, "manifest.ocdbt", 2 * KIB);
}

static void begin(int rank)
{
	if (rank == 0) {
		make_dirs("r");
		if (is_there(tmp))
			remove_tree(tmp);
		make_dir(tmp);
		put_text(path("%s/_CHECKPOINT_METADATA", tmp), "{\"init_timestamp_nsecs\": 1}");
		put_text(path("%s/orbax.checkpoint", tmp), "");
		make_dir(path("%s/state", tmp));
	}
	together();
	put_process(path("%s/state", tmp), rank);
	together();
}

static void finish(int rank)
{
	if (rank == 0) {
		merge(path("%s/state", tmp), 2);
		put_text(path("%s/_CHECKPOINT_METADATA", tmp),
			 "{\"init_timestamp_nsecs\": 1, \"commit_timestamp_nsecs\": 2}");
		put_text(path("%s/commit_success.txt", tmp), "");
		hidden(tmp);
		missing("r/100");
		rename_over(tmp, "r/100");
		complete("r/100");
	}
	together();
	list_dir("r/100");
	list_dir(path("r/100/state/ocdbt.process_%d", rank));
}

void t1_orbax(int rank)
{
	begin(rank);
	midpoint();
	finish(rank);
}

void t2_orbax_stale(int rank)
{
	killed_after(begin, rank);
	together();
	hidden(tmp);
	missing("r/100");
	midpoint();
	begin(rank);
	finish(rank);
}

// --- Partial saving ---------------------------------------------------------------------------------------------------

static const char *const session = "r/5.partial_save";

// One save is a whole tree under a temporary name of its own, moved into the session.
static void save_part(const char *pending)
{
	const char *part = "r/5.partial_save.orbax-checkpoint-tmp", *state = path("%s/state", part);

	make_dirs("r");
	if (is_there(part))
		remove_tree(part);
	make_dir(part);
	make_dir(state);
	put_process(state, 0);
	merge(state, 1);
	put_file(path("%s/_METADATA", state), 500);
	put_text(path("%s/_CHECKPOINT_METADATA", part), "{\"init_timestamp_nsecs\": 1}");
	put_text(path("%s/commit_success.txt", part), "");
	make_dirs(session);
	rename_over(part, path("%s/%s", session, pending));
	hidden(session);
}

// Files of both parts that have one name are merged; here the later one's stands for that.
static void take_over(const char *pending, const char *uuid)
{
	const char *from = path("%s/%s", session, pending), *state = path("%s/state", session);

	list_dir(from);
	make_dirs(path("%s/array_metadatas", state));
	rename_over(path("%s/state/ocdbt.process_0", from), path("%s/ocdbt.process_0%s", state, uuid));
	rename_over(path("%s/state/array_metadatas/process_0", from), path("%s/array_metadatas/process_0", state));
	rename_over(path("%s/state/_METADATA", from), path("%s/_METADATA", state));
	remove_tree(from);
}

static void finalize(void)
{
	list_dir(session);
	put_text(path("%s/_CHECKPOINT_METADATA", session), "{\"commit_timestamp_nsecs\": 2}");
	put_text(path("%s/commit_success.txt", session), "");
	rename_over(session, "r/5");
}

void t3_orbax_partial(int rank)
{
	static const char *const parts[] = {"5.partial_save.pending_1001_aa", "5.partial_save.pending_1002_bb"};

	(void)rank;
	if (is_there(session))
		remove_tree(session);
	save_part(parts[0]);
	midpoint();
	save_part(parts[1]);
	missing("r/5");
	take_over(parts[0], "aa");
	take_over(parts[1], "bb");
	put_data(path("%s/state", session), "manifest.ocdbt", 2 * KIB);
	finalize();
	complete("r/5");

	// Finalized twice; and a session for a step that is there already.
	cannot_rename(session, "r/5", ENOENT);
	make_dir(session);
	put_file(path("%s/_METADATA", session), 100);
	cannot_rename(session, "r/5", ENOTEMPTY);
	hidden(session);
	remove_tree(session);
}

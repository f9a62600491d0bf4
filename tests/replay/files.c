// Checkpoints that are one file: T7, T9, T10, T11.
#include "tests/replay/traces.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// --- safetensors ------------------------------------------------------------------------------------------------------

void put_safetensors(const char *folder, const char *name, size_t bytes)
{
	const char *tmp = path("%s/.tmpAbC123", folder);
	char header[120];
	uint64_t len;
	int fd;

	// A multiple of 8 bytes, spaces at the end.
	snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", bytes,
		 bytes);
	len = (strlen(header) + 7) / 8 * 8;
	memset(header + strlen(header), ' ', sizeof(header) - strlen(header));
	remove_if_there(tmp); // its name is drawn anew each time; here it stays the same
	fd = open_mode(tmp, O_CREAT | O_EXCL | O_RDWR, 0600);
	set_size(fd, (int64_t)(sizeof(len) + len + bytes));
	write_raw(fd, &len, sizeof(len));
	write_raw(fd, header, (size_t)len);
	write_bytes(fd, bytes);
	set_mode(fd, 0644);
	rename_over(tmp, path("%s/%s", folder, name));
	close_file(fd);
}

void t7_before(void)
{
	put_safetensors(".", "model.safetensors", 3 * MIB);
	complete("model.safetensors");
}

void t7_safetensors(int rank)
{
	struct kept old = {0};

	if (rank == 1)
		old = keep_mapped("model.safetensors");
	together();
	midpoint();
	if (rank == 0) {
		put_safetensors(".", "model.safetensors", 2 * MIB);
		complete("model.safetensors");
	}
	together();
	if (rank == 1) {
		still_same(&old);
		let_kept_go(&old);
	}
}

// --- zip --------------------------------------------------------------------------------------------------------------

// As Python's zipfile writes it: the size of a member is known only behind it, so its header is written twice.
static void put_zip(const char *name, size_t bytes)
{
	static const char member[] = "arrays/0/w.npy.member..."; // such that the header has the 55 bytes that were seen
	char header[55] = "PK\3\4", entry[46 + 25] = "PK\1\2", end[22] = "PK\5\6";
	uint32_t at, size = (uint32_t)bytes;
	int fd = open_file(name, O_RDWR | O_CREAT | O_TRUNC);

	header[26] = 25;
	memcpy(header + 30, member, 25);
	write_raw(fd, header, sizeof(header));
	write_bytes(fd, bytes);
	memcpy(header + 18, &size, sizeof(size));
	memcpy(header + 22, &size, sizeof(size));
	seek_to(fd, 0, SEEK_SET);
	write_raw(fd, header, sizeof(header));
	seek_to(fd, 0, SEEK_END);
	midpoint();
	at = (uint32_t)(sizeof(header) + bytes);
	entry[28] = 25;
	memcpy(entry + 46, member, 25);
	write_raw(fd, entry, sizeof(entry));
	end[8] = end[10] = 1;
	size = sizeof(entry);
	memcpy(end + 12, &size, sizeof(size));
	memcpy(end + 16, &at, sizeof(at));
	write_raw(fd, end, sizeof(end));
	close_file(fd);
}

void t9_before(void)
{
	put_zip("weights.npz", MIB);
	complete("weights.npz");
}

void t9_npz(int rank)
{
	(void)rank;
	put_zip("model.keras", MIB);
	complete("model.keras");
	put_zip("weights.npz", 2 * MIB);
	complete("weights.npz");
}

// --- HDF5 -------------------------------------------------------------------------------------------------------------

static void put_hdf5(const char *name, int64_t bytes)
{
	unsigned char superblock[48] = "\x89HDF\r\n\x1a\n\2\10\10";
	int fd = open_file(name, O_RDWR | O_CREAT | O_TRUNC);

	lock_exclusive(fd);
	write_at(fd, 96 * KIB, 300 * KIB);
	write_at(fd, 2 * KIB, 40 * KIB);
	write_at(fd, bytes - 64 * KIB, 64 * KIB);
	midpoint();
	write_at(fd, 400 * KIB, 100 * KIB);
	set_size(fd, bytes);
	for (int i = 0; i < 8; i++)
		superblock[28 + i] = (unsigned char)((uint64_t)bytes >> 8 * i); // where the file ends
	seek_to(fd, 0, SEEK_SET);
	write_raw(fd, superblock, sizeof(superblock));
	unlock(fd);
	close_file(fd);
}

void t10_before(void)
{
	put_hdf5("model.h5", MIB);
	complete("model.h5");
}

void t10_hdf5(int rank)
{
	(void)rank;
	put_hdf5("model.h5", 2 * MIB);
	complete("model.h5");
	put_hdf5("model.weights.h5", MIB);
	complete("model.weights.h5");
}

// --- numpy ------------------------------------------------------------------------------------------------------------

// From 16 MiB on it asks for the room first.
#define ARRAY_BYTES (16 * MIB)

static void put_npy(const char *name, int64_t bytes)
{
	static const char magic[10] = "\x93NUMPY\1\0\x76"; // 118 bytes follow
	char header[128];
	int fd = open_file(name, O_RDWR | O_CREAT | O_TRUNC), len;

	memset(header, ' ', sizeof(header));
	memcpy(header, magic, sizeof(magic));
	len = snprintf(header + sizeof(magic), sizeof(header) - sizeof(magic),
		       "{'descr': '|u1', 'fortran_order': False, 'shape': (%lld,), }", (long long)bytes);
	header[sizeof(magic) + (size_t)len] = ' ';
	header[sizeof(header) - 1] = '\n';
	write_raw(fd, header, sizeof(header));
	reserve(fd, sizeof(header), bytes);
	midpoint();
	write_bytes(fd, (size_t)bytes);
	close_file(fd);
}

void t11_before(void)
{
	put_npy("embeddings.npy", 100 * KIB);
	complete("embeddings.npy");
}

void t11_numpy(int rank)
{
	(void)rank;
	put_npy("embeddings.npy", ARRAY_BYTES);
	complete("embeddings.npy");
}

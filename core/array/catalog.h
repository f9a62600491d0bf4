// A catalog: the arrays of a checkpoint, whatever format its files have, and where the bytes of each lie. It is made from
// headers; the bytes of arrays are never read.
//
//	ckpt_catalog_new(), then ckpt_catalog_read() for each file of the step, ckpt_catalog_end(), and the questions below;
//	ckpt_catalog_free()
//
// These formats are known. Their readers are in catalog_*.c. Each row has the source of its rules:
//
//	npy          NumPy's numpy/lib/format.py, versions 1 to 3
//	npz          the same inside of a zip (PKWARE's APPNOTE.TXT), stored members and deflated ones
//	safetensors  Hugging Face's safetensors/README.md and src/tensor.rs
//	torch        torch/serialization.py, torch/_utils.py: torch.save() as a zip, and the form without one (before torch
//	             1.6)
//	deepspeed    deepspeed/utils/zero_to_fp32.py, runtime/zero: the files of ZeRO 1, 2 and 3 in a folder. They are read as torch; the end of the
//	             catalog makes whole arrays of the ranks' parts: NAME, NAME.exp_avg, NAME.exp_avg_sq, in the tree of the folder
//	gguf         ggml's docs/gguf.md and ggml.h, versions 2 and 3
//	dcp          torch/distributed/checkpoint: metadata.py, filesystem.py. The file is .metadata. Megatron's torch_dist, too, with the flat
//	             shards that it had to 2025 (megatron/core/dist_checkpointing/strategies/resharding.py)
//	zarr2        zarr-specs: docs/v2/v2.0.rst. The file is .zarray
//	zarr3        zarr-specs: docs/v3/core, docs/v3/codecs. The file is zarr.json
//	ocdbt        TensorStore's kvstore/ocdbt, "Storage format": arrays of zarr in a tree of keys. The file is manifest.ocdbt
//	index        Hugging Face's *.safetensors.index.json and *.bin.index.json: the files that it names become one tree, called like it
//	             without ".index.json"; names that it has and the files lack, and the other way round, are its faults
//	msgpack      flax/serialization.py: *.msgpack, checkpoint_N, and `checkpoint` of Orbax
//	orbax        orbax-checkpoint's _METADATA: names that the tree promises; missing and extra ones are its faults
//	eformer      tensorstore_index.json and *_structure.json of eFormer: the same, and which leaves are no arrays
//	hdf5         HDF5 File Format Specification, version 3.0: *.h5, Keras's *.weights.h5, and .keras, a zip with such a member
//	descriptor   arrays.json, for programs that write raw bytes: catalog_descriptor.c has its form
//
// HDF5 is read by a reader of our own, within limits: libhdf5 would run on hostile bytes in this process, and its use of memory and time
// was not shown to be bounded. Not read, and listed with the reason: strings, records and other elements that are no numbers; filters
// other than deflate, shuffle, fletcher32 and zstd; datasets that may grow along several axes, in files of libver='latest'; virtual
// datasets; named datatypes. Links into other files and soft links are not followed.
//
// Every byte is from outside. A file that breaks a rule of its format adds nothing but a fault: the file, the field and the
// reason. An array that cannot be read (an unknown codec, a view of another kind) is listed with the reason, and breaks no
// other. Names may repeat between trees, never within one: the second array of a name has that as its reason.
//
// Ownership: a catalog is the caller's; strings, shapes and pieces that it answers live until the next read or the end.
// Threads: one while it is made; any once it is ended. Blocks as the sources do.
// Memory: CKPT_CATALOG_BYTES_MAX for a catalog, and CKPT_PICKLE_BYTES_MAX beside it while a pickle is read.
#pragma once

#include "core/array/array.h"

#define CKPT_PIECE_CODECS_MAX 4
#define CKPT_ARRAY_DIGEST_LEN 32

// The files of a step. Paths have no leading slash; "" is the step itself.
struct ckpt_catalog_files {
	// The file's source, which lives until close(). -ENOENT; -errno. May block.
	int (*open)(void *arg, const char *path, struct ckpt_source *ret_source);
	void (*close)(void *arg, struct ckpt_source *source);
	// Calls fn with the path and the bytes of each file below a directory, in any order; ends with what it answers unless 0.
	// -ENOENT; -errno. May block.
	int (*each)(void *arg, const char *dir, int (*fn)(void *fn_arg, const char *path, uint64_t bytes),
		    void *fn_arg);
	void *arg;
	// A descriptor of a file of the disk that has these bytes, for reading, which the caller closes. Nobody writes to it. -ENOENT: no file
	// has them as they are; -errno. NULL: none ever has.
	int (*raw)(void *arg, const char *path, int *ret_fd);
};

// The codecs of the bytes of a piece. They are decoded in the order in which a piece has them. Stored catalogs have these numbers (FORMAT.md): a
// new one comes last.
enum ckpt_piece_codec {
	CKPT_PIECE_RAW,    // behind the last one
	CKPT_PIECE_CRC32C, // the last 4 bytes are a checksum of the others
	CKPT_PIECE_ZSTD,
	CKPT_PIECE_GZIP,
	CKPT_PIECE_ZLIB,
	CKPT_PIECE_BLOSC,
	CKPT_PIECE_DEFLATE,
	CKPT_PIECE_FLETCHER32, // HDF5's, as CRC32C
	CKPT_PIECE_SHUFFLE2,   // HDF5's, of elements of so many bytes
	CKPT_PIECE_SHUFFLE4,
	CKPT_PIECE_SHUFFLE8,
	CKPT_PIECE_SHUFFLE16,
	CKPT_PIECE_TORCH, // a torch.save() of the box; ckpt_piece_resolve() says where in it
	CKPT_PIECE_LZF,   // h5py's
	CKPT_PIECE_CODECS,
};
const char *ckpt_piece_codec_name(enum ckpt_piece_codec codec); // "raw", "zstd" ...
unsigned ckpt_piece_shuffle_width(enum ckpt_piece_codec codec); // bytes of an element; 0: it is no SHUFFLE

// A part of an array: elements of a box [start, start + extent). Element i of the box, i counted from start, is element
// first + sum(i * strides) of what the bytes are decoded to.
struct ckpt_piece {
	const char *file; // its path in the step
	uint64_t offset, bytes;
	uint8_t codecs[CKPT_PIECE_CODECS_MAX]; // RAW is behind the last one
	const uint64_t *start, *extent;        // ndim numbers each
	const uint64_t *strides;               // ndim numbers, in elements
	uint64_t first;
	// Its bytes, where no range of the file has them as they are; offset is 0 then. NULL: they are in the file.
	const uint8_t *data;
};
// Both have as many bytes, which stand for the same elements of an array of so many dimensions in the same form: equal bytes are equal elements.
bool ckpt_piece_is_alike(const struct ckpt_piece *a, const struct ckpt_piece *b, unsigned ndim);

struct ckpt_catalog_array {
	const char *tree, *name; // the array is TREE:NAME
	const char *format;
	const char *why; // it cannot be read as elements; NULL: it can. Pieces may be there: blocks of a quantised type
	enum ckpt_dtype dtype;
	bool big_endian;
	unsigned ndim;
	const uint64_t *shape;
	const uint8_t
		*fill; // one element, in native order: where no piece is; NULL: the pieces are to be the whole array
	size_t pieces;
	const uint8_t
		*digest; // of its elements (array_digest.h), CKPT_ARRAY_DIGEST_LEN bytes; NULL: nobody has read them
};

// Why an array cannot be read: bytes of it are missing, where other reasons say that nobody here reads such an array.
bool ckpt_catalog_is_missing(const struct ckpt_catalog_array *a);
// No array, and none was promised: learning rates of torch.distributed.checkpoint, for example.
bool ckpt_catalog_is_object(const struct ckpt_catalog_array *a);

struct ckpt_catalog_fault {
	const char *file, *field, *reason;
};

struct ckpt_catalog;

int ckpt_catalog_new(struct ckpt_catalog **ret_catalog); // 0, -ENOMEM
void ckpt_catalog_free(struct ckpt_catalog *c);          // NULL is fine

// Reading, ending and what is found in it (findings.h) end with -EINTR once go_on says false. It is asked now and then, from the thread that does
// so, and may wait. The struct is the caller's, and lives as long as the catalog.
struct ckpt_catalog_stop {
	bool (*go_on)(void *arg);
	void *arg;
	size_t turns; // of loops, since it was asked; 0 at first
};
void ckpt_catalog_stop_by(struct ckpt_catalog *c, struct ckpt_catalog_stop *stop);
// 0, -EINTR; cheap, for each turn of a loop, or as many at once.
int ckpt_catalog_goes_on(const struct ckpt_catalog *c, size_t turns);

// Adds the arrays of the file at path, if its format is one of those above; one that belongs to another file's format (a chunk)
// adds nothing. 0, also for a file that breaks rules; -ENOMEM, -EINTR; what the sources say. After an error the catalog is as before.
// A file that no format knows is broken if its name is one of arrays, and it is empty, or is a pointer of Git LFS.
int ckpt_catalog_read(struct ckpt_catalog *c, const struct ckpt_catalog_files *files, const char *path);
bool ckpt_catalog_is_named_like_arrays(const char *path); // x.safetensors, x.npz, x.pt and so on
// After the last file: joins trees, and parts of arrays that lie in several files; compares them with what indices say; finds names that
// repeat. 0, -ENOMEM, -EINTR.
int ckpt_catalog_end(struct ckpt_catalog *c);

// The digest of an array, once the catalog has ended; those that were answered before do not live on. 0; -ENOMEM; -EFBIG: there is no room.
int ckpt_catalog_set_digest(struct ckpt_catalog *c, size_t i, const uint8_t digest[CKPT_ARRAY_DIGEST_LEN]);
void ckpt_catalog_forget_digests(struct ckpt_catalog *c);

size_t ckpt_catalog_bytes(const struct ckpt_catalog *c); // of memory
size_t ckpt_catalog_count(const struct ckpt_catalog *c);
void ckpt_catalog_get(const struct ckpt_catalog *c, size_t i, struct ckpt_catalog_array *ret_array);
// Piece k of array i.
void ckpt_catalog_piece(const struct ckpt_catalog *c, size_t i, size_t k, struct ckpt_piece *ret_piece);
// The place of the elements of a TORCH piece: reads headers of the piece, which becomes one without that codec. file is the source of
// piece->file; strides is for piece->strides. Other pieces stay as they are. 0; -EINVAL: it holds no such box; -ENOMEM; what the
// source says.
int ckpt_piece_resolve(const struct ckpt_source *file, const struct ckpt_catalog_array *array, struct ckpt_piece *piece,
		       uint64_t strides[CKPT_ARRAY_DIMS_MAX], bool *ret_big_endian);
size_t ckpt_catalog_faults(const struct ckpt_catalog *c);
void ckpt_catalog_fault(const struct ckpt_catalog *c, size_t i, struct ckpt_catalog_fault *ret_fault);

// Every limit on a size that comes from outside, in one place.
#pragma once

#define CKPT_NAME_MAX 255                           // bytes in one path component
#define CKPT_DEPTH_MAX 64                           // directory levels below a step
#define CKPT_KEY_NAME_MAX 200                       // a longer percent-encoded step name is keyed by its hash
#define CKPT_STEP_FILES_MAX (1u << 20)              // entries of one manifest
#define CKPT_CHUNK_BYTES_MAX (64u << 20)            // a piece of a file that has a hash of its own
#define CKPT_BASED_BYTES_MAX (4u << 20)             // a chunk that is decoded beside others
#define CKPT_BASE_PIECES_MAX 2u                     // those that are its base, one behind the other
#define CKPT_BASE_DEPTH_MAX 2u                      // a base may have a base, which has none
#define CKPT_PACK_BYTES_MAX (UINT64_C(1) << 30)     // of an object of chunks
#define CKPT_MANIFEST_BYTES_MAX (512u << 20)        // encoded manifest
#define CKPT_RECORD_BYTES_MAX (256u << 10)          // commit record, an embedded manifest included
#define CKPT_LOG_ENTRY_BYTES_MAX (256u << 10)       // of the log, operations included
#define CKPT_SNAPSHOT_BYTES_MAX (1u << 30)          // what a log says, behind one entry
#define CKPT_REMOTE_SNAPSHOT_BYTES_MAX (256u << 20) // of a remote's log, records included
#define CKPT_MANIFEST_EMBED_MAX (64u << 10)         // a larger manifest is an object of its own, m/<sha256>
#define CKPT_METADATA_BYTES_MAX (64u << 10)         // marker JSON
#define CKPT_METADATA_DEPTH_MAX 32
#define CKPT_META_XATTRS_MAX 64                  // of a staged step, user.ckptfs.meta.*
#define CKPT_META_VALUE_MAX (4u << 10)           // bytes in one of them
#define CKPT_META_BYTES_MAX (32u << 10)          // in all of them, with their names
#define CKPT_XATTR_BYTES_MAX (64u << 10)         // names and values of one file's extended attributes
#define CKPT_OBJECT_KEY_MAX 600                  // bytes in the key of a stored object
#define CKPT_VALUE_BYTES_MAX (64u << 10)         // of what the log says under a key; three fit into an entry
#define CKPT_VALUE_KEY_MAX 31                    // bytes in that key
#define CKPT_PLAIN_INLINE_MAX (64u << 10)        // of a plain file in the log of a remote; three fit into an entry
#define CKPT_PLAIN_TARGET_MAX 4095               // bytes in the target of a plain symlink
#define CKPT_TRASH_SWEEP_MAX 65536               // names in trash/ that one start removes
#define CKPT_SAFETENSORS_HEADER_MAX (100u << 20) // as the reference reads
#define CKPT_SAFETENSORS_PARSED_MAX (4u << 20)   // of it; to parse it takes some 25 times as much memory
#define CKPT_NPY_HEADER_MAX (64u << 10)
#define CKPT_PICKLE_WALK_MAX                                                                                           \
	((uint64_t)256 << 20)              // of a pickle, without what is skipped: then its end is not looked for
#define CKPT_PICKLE_BYTES_MAX (144u << 20) // of memory, for the graph of one and what reads it
#define CKPT_PICKLE_MEMO_MAX (8u << 20)    // the numbers of its memos
#define CKPT_ARRAYS_MAX (1u << 20)         // in one file
#define CKPT_GGUF_HEADER_MAX ((uint64_t)256 << 20) // of a header, without strings that are skipped
#define CKPT_CATALOG_BYTES_MAX (96u << 20)         // of memory, for the catalog of one version
#define CKPT_CATALOG_STORED_MAX (8u << 20)         // of one that a manifest keeps; larger ones are not kept
#define CKPT_CATALOG_PLAIN_MAX (96u << 20)         // of it, decompressed
#define CKPT_CATALOG_WORK_MAX (1u << 30)   // bytes that are looked at for one file of it, beside the file itself
#define CKPT_LISTING_BYTES_MAX (32u << 20) // of memory, for the names of the files beside it
#define CKPT_CATALOG_JSON_MAX (8u << 20)   // of a file; to parse it takes some 16 times as much memory
#define CKPT_OCDBT_BYTES_MAX (64u << 20)   // of memory, for the keys of a database
#define CKPT_OCDBT_NODE_MAX (40u << 20)    // of a node or a manifest, both as stored and as decoded
#define CKPT_ARRAY_NAME_MAX 65535          // bytes
#define CKPT_ARRAY_HEADER_MAX (16u << 20)  // of safetensors; no model comes near
#define CKPT_ARRAY_PIECE_MAX (1u << 20)    // of it, that is parsed at once
#define CKPT_ARRAY_DEPTH_MAX 8             // of its JSON
#define CKPT_ARRAY_NPY_HEADER_MAX 10000    // as NumPy reads
#define CKPT_ZIP_DIRECTORY_MAX (16u << 20)
#define CKPT_TRACKER_BYTES_MAX (64u << 10) // a plain file up to this size is never seen in part (DESIGN.md section 1)
#define CKPT_ERRORS_LINES_MAX 1000         // kept in .ckptfs/errors
#define CKPT_POLICY_BYTES_MAX (64u << 10)  // policy.json, as it comes and in its canonical form
#define CKPT_POLICY_DEPTH_MAX 16           // nodes above each other
#define CKPT_POLICY_NODES_MAX 256
#define CKPT_POLICY_STEPS_MAX 4096   // ranges in one list of steps, and rows of step_intervals
#define CKPT_POLICY_WORDS_MAX 64     // of a command
#define CKPT_POLICY_EXEC_SECS_MAX 60 // how long it may take to decide

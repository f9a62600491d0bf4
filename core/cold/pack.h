// Packs: encoded chunks, one behind the other, in an object packs/NAME of the store, with a table of them at its end, so that it
// can be read without anything else. FORMAT.md section 7 has every byte.
//
// The name is random: it is known before the first chunk is, and it belongs to one attempt to put these bytes. Bytes that are encoded
// again are put under another name, so that no name ever stands for two contents. The header repeats the name. The digest of the pack
// is the last thing of it that is known; its tail and the manifests have it.
//
// Of a chunk with a base a pack says that it has one, and not which: manifests do (chunk_reader.h).
//
// Calling sequence, writer: ckpt_pack_writer_new(); _add() for each chunk until _bytes() says that there are enough; _put(),
// after which it is empty and goes on with the next pack; _free(). Reader: ckpt_pack_read() for a chunk that is known to be there,
// ckpt_pack_table() for what a pack itself says.
// Ownership: a writer keeps the pack in the making in memory, and copies what it is given. Threads: a writer is one thread's;
// readers any. Blocks on the store: _put, _read, _table. Errors: those of objects.h, -EBADMSG: not what it should be, and from the
// calls that read the table -EMEDIUMTYPE: by its header it is another pack, which stands under the name of this one.
#pragma once

#include "core/codec/codec.h"
#include "core/objects/objects.h"
#include "core/record/manifest.h"

#define CKPT_PACK_KEY_MAX (sizeof("packs/") + CKPT_SHA256_HEX_LEN)

struct ckpt_pack_writer;

int ckpt_pack_writer_new(struct ckpt_pack_writer **ret_writer); // 0, -ENOMEM, or that of random(2)
void ckpt_pack_writer_free(struct ckpt_pack_writer *w);         // NULL is fine
// Takes an encoded chunk: reads id, bytes and how of it, and sets its offset. plain: the bytes of which the id is said to be; NULL: that is
// known. They are hashed beside what is stored; of a chunk that is stored as it is, what stands in the pack then. stored and plain may be the same.
// 0, -ENOMEM, -EFBIG: put this pack first; -EBADMSG the id is another, and nothing was added.
int ckpt_pack_writer_add(struct ckpt_pack_writer *w, struct ckpt_chunk *chunk, const void *stored, const void *plain);
const uint8_t *ckpt_pack_writer_name(const struct ckpt_pack_writer *w); // of the pack in the making
uint64_t ckpt_pack_writer_bytes(const struct ckpt_pack_writer *w);      // as it would be put now; 0: no chunk is in it
// ret_sha256: of the whole object, its digest included; or NULL. -EIO the outcome is unknown, and nothing names it: garbage at most.
int ckpt_pack_writer_put(struct ckpt_pack_writer *w, struct ckpt_objects *b, struct ckpt_pack *ret_pack,
			 uint8_t *ret_sha256);

void ckpt_pack_key(const uint8_t id[CKPT_SHA256_LEN], char ret_key[CKPT_PACK_KEY_MAX]);
bool ckpt_pack_of_key(const char *key, uint8_t ret_id[CKPT_SHA256_LEN]); // false: it is no pack's
// The plain bytes of a chunk, checked against its id, into plain, which has room for chunk->bytes. Only bytes that are the right
// ones are ever left there with 0 as the answer. base: of one that takes one, as many plain bytes as ckpt_codec_base_bytes() says,
// else NULL (chunk_reader.h finds it). -EBADMSG damaged, or the wrong base; -ENOENT the pack is not there.
int ckpt_pack_read(struct ckpt_objects *b, const struct ckpt_pack *pack, const struct ckpt_chunk *chunk,
		   struct ckpt_codec *codec, const void *base, void *plain);
// The same of what was read of the pack. stored may be plain where the codec is none.
int ckpt_pack_decode(const struct ckpt_chunk *chunk, struct ckpt_codec *codec, const void *stored, const void *base,
		     void *plain);
// The bytes of a chunk as they are stored, unchecked, into stored, which has room for chunk->how.bytes.
int ckpt_pack_read_stored(struct ckpt_objects *b, const struct ckpt_pack *pack, const struct ckpt_chunk *chunk,
			  void *stored);
// What its chunks take of it, as its tail says.
int ckpt_pack_chunk_bytes(struct ckpt_objects *b, const struct ckpt_pack *pack, uint64_t *ret_bytes);
// All chunks of a pack in the order in which they stand there, malloc'ed, each with pack 0. bytes: its length, as the store or a
// manifest says. digest: as a manifest says; all zero: it is not known, and is set.
int ckpt_pack_table(struct ckpt_objects *b, struct ckpt_pack *pack, struct ckpt_chunk **ret_chunks, size_t *ret_count);
// Every byte of it, also those that no decoder needs, and the digest of all. -EBADMSG: *ret_bad is a chunk whose stored bytes are not those that were put,
// or, all zero, the rest is not.
int ckpt_pack_check(struct ckpt_objects *b, const struct ckpt_pack *pack, struct ckpt_chunk *ret_bad);

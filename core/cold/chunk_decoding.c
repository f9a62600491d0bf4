// Codecs of the cache of chunks, and a bound for all that is decoded at once: invariant 3 of chunk_cache.c.
#include "core/cold/chunk_cache_parts.h"

#include "core/base/util.h"
#include "core/record/manifest.h"

#define CODECS_MAX 16                   // decode at once
#define CODEC_BYTES (UINT64_C(6) << 20) // of one, with room for what is stored of a chunk

void ckpt_decoding_drop_codec_locked(struct ckpt_chunk_cache *cache)
{
	struct ckpt_cache_codec *codec = cache->codecs;

	cache->codecs = codec->next;
	cache->codec_count--;
	ckpt_codec_free(codec->codec);
	free(codec);
}

static struct ckpt_cache_codec *codec_new(void)
{
	struct ckpt_cache_codec *c = ckpt_calloc(1, sizeof(*c));

	if (c && ckpt_codec_new(&c->codec)) {
		free(c);
		return NULL;
	}
	return c;
}

// Decoding takes this beside a codec: what it is decoded beside, which may be decoded beside others itself, and what is stored of
// one that is unusually large.
uint64_t ckpt_decoding_work(const struct ckpt_manifest *m, const struct ckpt_chunk *chunk)
{
	uint64_t own = ckpt_codec_base_bytes(chunk->how.codec, chunk->bytes), most = 0;

	for (uint32_t i = 0; i < chunk->base_count; i++) {
		struct ckpt_chunk base;

		ckpt_manifest_base(m, chunk->base - 1 + i, &base);
		most = MAX(most, ckpt_decoding_work(m, &base));
	}
	return own + most + (chunk->how.bytes > CKPT_CHUNK_BYTES ? chunk->how.bytes : 0);
}

// spare: what is left for others.
static bool may_decode_locked(struct ckpt_chunk_cache *cache, uint64_t work, uint64_t spare)
{
	size_t codecs = cache->codec_count + !cache->codecs;

	return codecs <= CODECS_MAX &&
	       (!cache->decoding || codecs * CODEC_BYTES + cache->work_bytes + work + spare <= cache->work_max);
}

// One that is free, or may be made: then it is NULL. Who has one waits for nothing else.
static struct ckpt_cache_codec *wait_for_codec(struct ckpt_chunk_cache *cache, uint64_t work, uint64_t spare)
{
	LOCK_SCOPE(&cache->lock);
	struct ckpt_cache_codec *c;

	while (!may_decode_locked(cache, work, spare)) {
		if (cache->codecs && cache->codecs->next)
			ckpt_decoding_drop_codec_locked(cache);
		else
			ckpt_lock_wait(&cache->changed, &cache->lock);
	}
	c = cache->codecs;
	if (c)
		cache->codecs = c->next;
	else
		cache->codec_count++;
	cache->decoding++;
	cache->work_bytes += work;
	return c;
}

void ckpt_decoding_end(struct ckpt_chunk_cache *cache, struct ckpt_cache_codec *c, uint64_t work)
{
	LOCK_SCOPE(&cache->lock);

	cache->decoding--;
	cache->work_bytes -= work;
	if (c) {
		c->next = cache->codecs;
		cache->codecs = c;
	} else {
		cache->codec_count--;
	}
	pthread_cond_broadcast(&cache->changed);
}

struct ckpt_cache_codec *ckpt_decoding_begin(struct ckpt_chunk_cache *cache, uint64_t work, uint64_t spare)
{
	struct ckpt_cache_codec *c = wait_for_codec(cache, work, spare);

	if (c)
		return c;
	c = codec_new();
	if (!c)
		ckpt_decoding_end(cache, NULL, work);
	return c;
}

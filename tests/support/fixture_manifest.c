#include "tests/support/fixture_manifest.h"

#include "core/base/util.h"

uint8_t *data;
size_t len;

void ckpt_fixture_manifest_open(void)
{
	void *made;

	ckpt_sample_manifest(&made, &len);
	free(data);
	data = made;
}

void ckpt_fixture_manifest_take(struct ckpt_manifest_writer *w)
{
	void *made;

	ck_ok(ckpt_manifest_writer_finish(w, &made, &len));
	ckpt_manifest_writer_free(w);
	free(data);
	data = made;
}

void ckpt_fixture_manifest_close(void)
{
	free(TAKE_PTR(data));
}

struct ckpt_manifest *parse(void)
{
	struct ckpt_manifest *m;
	void *copy = malloc(len);

	memcpy(copy, data, len);
	ck_ok(ckpt_manifest_parse(copy, len, &m));
	return m;
}

int try_it(void)
{
	ckpt_sample_reseal(data, len);
	return ckpt_try_manifest(data, len);
}

struct ckpt_section section(uint32_t type)
{
	struct ckpt_container c;
	struct ckpt_section s;

	ckpt_sample_reseal(data, len);
	ck_ok(ckpt_container_parse(&ckpt_manifest_kind, data, len, &c));
	ck_ok(ckpt_container_find(&c, type, &s));
	return s;
}

uint8_t *rows(uint32_t type)
{
	return data + ((const uint8_t *)section(type).data - data);
}

uint8_t *entry(uint32_t i)
{
	return rows(CKPT_SECTION_ENTRIES) + (size_t)i * ENTRY_BYTES;
}

void check_lies(uint32_t type, const struct lie *lies, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint8_t *word = rows(type) + lies[i].at;
		uint32_t was = ckpt_get32(word);

		ck_assert_uint_ne(was, lies[i].value);
		ckpt_put32(word, lies[i].value);
		ck_assert_msg(try_it() == -EBADMSG, "%u at %zu, lie %zu", lies[i].value, lies[i].at, i);
		ckpt_put32(word, was);
		ck_ok(try_it());
	}
}

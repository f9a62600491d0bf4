// Bytes by their address, through a few pages that are kept: headers are small, and many lie beside each other. Object headers of
// version 1 and 2, each with its continuations.
#include "core/array/catalog_hdf5.h"

#include "core/base/util.h"

// --- Bytes ------------------------------------------------------------------------------------------------------------

int ckpt_hdf5_refuse(struct ckpt_hdf5 *h, const char *field)
{
	return ckpt_catalog_refuse(h->reading, field, "it breaks a rule of HDF5");
}

static int load_page(struct ckpt_hdf5 *h, uint64_t number, const struct ckpt_hdf5_page **ret_page)
{
	struct ckpt_hdf5_page *page = &h->pages[number % CKPT_HDF5_PAGES];
	uint64_t at = number * CKPT_HDF5_PAGE;
	size_t len = (size_t)MIN((uint64_t)CKPT_HDF5_PAGE, h->bytes - at);
	int rc;

	*ret_page = page;
	if (page->number == number + 1)
		return 0;
	page->number = 0;
	rc = ckpt_catalog_spend(h->reading, len);
	if (!rc)
		rc = ckpt_source_read(&h->reading->source, h->begin + at, page->bytes, len);
	if (!rc)
		page->number = number + 1;
	return rc;
}

int ckpt_hdf5_read(struct ckpt_hdf5 *h, uint64_t at, void *buf, size_t len)
{
	const struct ckpt_hdf5_page *page;
	uint8_t *to = buf;
	int rc;

	if (at > h->bytes || len > h->bytes - at)
		return ckpt_catalog_refuse(h->reading, "address", "a part of its metadata lies outside of the file");
	rc = ckpt_catalog_spend(h->reading, len + CKPT_HDF5_READ_COST);
	while (len && !rc) {
		size_t in = (size_t)(at % CKPT_HDF5_PAGE), n = MIN(len, CKPT_HDF5_PAGE - in);

		rc = load_page(h, at / CKPT_HDF5_PAGE, &page);
		if (rc)
			break;
		memcpy(to, page->bytes + in, n);
		to += n;
		at += n;
		len -= n;
	}
	return rc;
}

int ckpt_hdf5_read_block(struct ckpt_hdf5 *h, uint64_t at, const char *signature, void *buf, size_t len)
{
	uint8_t begin[4];
	int rc = ckpt_hdf5_read(h, at, begin, sizeof(begin));

	if (!rc && memcmp(begin, signature, sizeof(begin)))
		return ckpt_catalog_refuse(h->reading, signature, "its signature is missing");
	return rc ? rc : ckpt_hdf5_read(h, at + sizeof(begin), buf, len);
}

const uint8_t *ckpt_hdf5_skip(struct ckpt_hdf5_bytes *b, uint64_t bytes)
{
	const uint8_t *at = b->at;

	if (b->broken || bytes > b->left) {
		b->broken = true;
		b->left = 0;
		return NULL;
	}
	b->at += bytes;
	b->left -= (size_t)bytes;
	return at;
}

uint64_t ckpt_hdf5_take(struct ckpt_hdf5_bytes *b, unsigned bytes)
{
	const uint8_t *at = bytes <= 8 ? ckpt_hdf5_skip(b, bytes) : NULL;
	uint64_t number = 0;

	if (!at)
		b->broken = true;
	else
		memcpy(&number, at, bytes);
	return number;
}

uint64_t ckpt_hdf5_take_address(const struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *b)
{
	uint64_t address = ckpt_hdf5_take(b, h->offset_bytes);

	return !b->broken && address == UINT64_MAX >> (64 - 8 * h->offset_bytes) ? CKPT_HDF5_NONE : address;
}

uint64_t ckpt_hdf5_take_length(const struct ckpt_hdf5 *h, struct ckpt_hdf5_bytes *b)
{
	return ckpt_hdf5_take(b, h->length_bytes);
}

// --- Messages ---------------------------------------------------------------------------------------------------------

static bool is_kept(uint64_t type)
{
	switch (type) {
	case CKPT_HDF5_DATASPACE:
	case CKPT_HDF5_LINK_INFO:
	case CKPT_HDF5_DATATYPE:
	case CKPT_HDF5_FILL_OLD:
	case CKPT_HDF5_FILL:
	case CKPT_HDF5_LINK:
	case CKPT_HDF5_EXTERNAL:
	case CKPT_HDF5_LAYOUT:
	case CKPT_HDF5_GROUP_INFO:
	case CKPT_HDF5_FILTERS:
	case CKPT_HDF5_ATTRIBUTE:
	case CKPT_HDF5_SYMBOL_TABLE:
		return true;
	default:
		return false;
	}
}

static int add_block(struct ckpt_hdf5 *h, uint64_t at, uint64_t bytes)
{
	for (size_t i = 0; i < h->block_count; i++)
		if (h->blocks[i].at == at)
			return ckpt_catalog_refuse(h->reading, "continuation",
						   "an object header goes on in a part that it has already");
	if (h->block_count == CKPT_HDF5_BLOCKS_MAX)
		return ckpt_catalog_refuse(h->reading, "continuation", "an object header has more than %u parts",
					   CKPT_HDF5_BLOCKS_MAX);
	h->blocks[h->block_count++] = (struct ckpt_hdf5_block){at, bytes};
	return 0;
}

static int continue_header(struct ckpt_hdf5 *h, const struct ckpt_hdf5_message *m)
{
	struct ckpt_hdf5_bytes body;
	uint64_t at, bytes;
	int rc = ckpt_hdf5_body(h, m, &body);

	if (rc)
		return rc;
	at = ckpt_hdf5_take_address(h, &body);
	bytes = ckpt_hdf5_take_length(h, &body);
	return body.broken ? ckpt_hdf5_refuse(h, "continuation") : add_block(h, at, bytes);
}

static int take_message(struct ckpt_hdf5 *h, struct ckpt_hdf5_object *o, const struct ckpt_hdf5_message *m)
{
	void *messages = o->messages;
	int rc;

	if (m->type == CKPT_HDF5_CONTINUATION)
		return continue_header(h, m);
	if (!is_kept(m->type))
		return 0;
	if (o->count == CKPT_HDF5_MESSAGES_MAX)
		return m->type == CKPT_HDF5_ATTRIBUTE
			       ? 0
			       : ckpt_catalog_refuse(h->reading, "object header", "it has too many messages");
	rc = ckpt_grow(&messages, &o->cap, o->count + 1, sizeof(*o->messages));
	o->messages = messages;
	if (!rc)
		o->messages[o->count++] = *m;
	return rc;
}

struct header {
	unsigned version;
	unsigned message_bytes; // of what stands in front of a message
	uint64_t left;          // version 1: messages
};

// A part of a header; what is too short for a message is a gap.
static int read_messages(struct ckpt_hdf5 *h, struct ckpt_hdf5_object *o, struct header *header, uint64_t at,
			 uint64_t bytes)
{
	uint8_t front[8];
	int rc = 0;

	if (at > h->bytes || bytes > h->bytes - at)
		return ckpt_catalog_refuse(h->reading, "object header", "a part of it lies outside of the file");
	while (bytes >= header->message_bytes && header->left && !rc) {
		struct ckpt_hdf5_bytes b = {front, header->message_bytes, false};
		struct ckpt_hdf5_message m;
		uint64_t type, flags;

		rc = ckpt_hdf5_read(h, at, front, header->message_bytes);
		if (rc)
			break;
		type = ckpt_hdf5_take(&b, header->version == 1 ? 2 : 1);
		m.bytes = (uint16_t)ckpt_hdf5_take(&b, 2);
		flags = ckpt_hdf5_take(&b, 1);
		m.type = (uint8_t)MIN(type, UINT64_C(255));
		m.is_shared = flags & 2;
		m.at = at += header->message_bytes;
		bytes -= header->message_bytes;
		if (m.bytes > bytes)
			return ckpt_hdf5_refuse(h, "object header");
		at += m.bytes;
		bytes -= m.bytes;
		header->left -= header->version == 1;
		rc = take_message(h, o, &m);
	}
	return rc;
}

static int begin_version1(struct ckpt_hdf5 *h, uint64_t address, struct header *header)
{
	uint8_t front[16];
	int rc = ckpt_hdf5_read(h, address, front, sizeof(front));

	if (rc)
		return rc;
	if (front[0] != 1 || !memcmp(front + 1, "HDR", 3)) // that of version 2 with a wrong letter is none of version 1
		return ckpt_catalog_refuse(h->reading, "object header", "it has no version that is known");
	*header = (struct header){.version = 1, .message_bytes = 8, .left = ckpt_get16(front + 2)};
	return add_block(h, address + sizeof(front), ckpt_get32(front + 8));
}

#define HAS_ORDER 4
#define HAS_PHASES 16
#define HAS_TIMES 32

static int begin_version2(struct ckpt_hdf5 *h, uint64_t address, struct header *header)
{
	uint8_t front[6], size[8];
	struct ckpt_hdf5_bytes b = {size, sizeof(size), false};
	unsigned bytes;
	int rc = ckpt_hdf5_read(h, address, front, sizeof(front));

	if (rc)
		return rc;
	if (front[4] != 2)
		return ckpt_catalog_refuse(h->reading, "object header", "it has no version that is known");
	address += sizeof(front) + (front[5] & HAS_TIMES ? 16 : 0) + (front[5] & HAS_PHASES ? 4 : 0);
	bytes = 1u << (front[5] & 3);
	*header = (struct header){.version = 2, .message_bytes = front[5] & HAS_ORDER ? 6 : 4, .left = 1};
	rc = ckpt_hdf5_read(h, address, size, bytes);
	return rc ? rc : add_block(h, address + bytes, ckpt_hdf5_take(&b, bytes));
}

int ckpt_hdf5_object_read(struct ckpt_hdf5 *h, uint64_t address, struct ckpt_hdf5_object *ret_object)
{
	struct header header = {0};
	uint8_t signature[4];
	int rc = ckpt_hdf5_read(h, address, signature, sizeof(signature));

	h->block_count = 0;
	if (rc)
		return rc;
	rc = memcmp(signature, "OHDR", 4) ? begin_version1(h, address, &header) : begin_version2(h, address, &header);
	for (size_t i = 0; i < h->block_count && !rc; i++) {
		struct ckpt_hdf5_block block = h->blocks[i];

		if (i && header.version == 2) { // behind its signature, in front of its checksum
			rc = ckpt_hdf5_read_block(h, block.at, "OCHK", signature, 0);
			if (!rc && block.bytes < 8)
				rc = ckpt_hdf5_refuse(h, "continuation");
			if (!rc)
				rc = ckpt_hdf5_check(h, "OCHK", block.at, block.bytes - 4);
			block.at += 4;
			block.bytes -= 8;
		} else if (header.version == 2) {
			rc = ckpt_hdf5_check(h, "OHDR", address, block.at + block.bytes - address);
		}
		if (!rc)
			rc = read_messages(h, ret_object, &header, block.at, block.bytes);
	}
	return rc;
}

void ckpt_hdf5_object_done(struct ckpt_hdf5_object *o)
{
	free(o->messages);
	*o = (struct ckpt_hdf5_object){0};
}

const struct ckpt_hdf5_message *ckpt_hdf5_find(const struct ckpt_hdf5_object *o, enum ckpt_hdf5_message_type type)
{
	for (size_t i = 0; i < o->count; i++)
		if (o->messages[i].type == type)
			return &o->messages[i];
	return NULL;
}

int ckpt_hdf5_body(struct ckpt_hdf5 *h, const struct ckpt_hdf5_message *m, struct ckpt_hdf5_bytes *ret_bytes)
{
	*ret_bytes = (struct ckpt_hdf5_bytes){h->body, m->bytes, false};
	return ckpt_hdf5_read(h, m->at, h->body, m->bytes);
}

#include "frame.h"

#include <errno.h>
#include <string.h>

/* Appends bytes to a frame. */
static void append(struct gsh_frame *f, const void *bytes, size_t length) {
	if (!length || f->length + length > GSHARE_FRAME_MAX) return; /* the frames that the hook sends always fit */
	memcpy(f->bytes + f->length, bytes, length);
	f->length += length;
}

void gsh_frame_begin(struct gsh_frame *f, uint16_t type, const void *fixed, size_t length) {
	struct gshare_header h = {GSHARE_WIRE_MAGIC, GSHARE_WIRE_MAJOR, GSHARE_WIRE_MINOR, type, 0, 0, 0, 0};
	f->length = 0;
	append(f, &h, sizeof h);
	append(f, fixed, length);
}

void gsh_frame_tlv(struct gsh_frame *f, uint16_t type, const void *value, size_t length) {
	struct gshare_tlv t = {type, (uint16_t)length};
	if (f->length + sizeof t + length > GSHARE_FRAME_MAX) return;
	append(f, &t, sizeof t);
	append(f, value, length);
}

void gsh_frame_end(struct gsh_frame *f, uint64_t sequence, uint64_t generation) {
	struct gshare_header h;
	memcpy(&h, f->bytes, sizeof h);
	h.length = (uint32_t)(f->length - sizeof h);
	h.sequence = sequence;
	h.generation = generation;
	memcpy(f->bytes, &h, sizeof h);
}

const struct gshare_header *gsh_frame_check(const void *bytes, size_t length) {
	const struct gshare_header *h = bytes;
	if (length < sizeof *h || length > GSHARE_FRAME_MAX) return NULL;
	bool valid = h->magic == GSHARE_WIRE_MAGIC && h->major == GSHARE_WIRE_MAJOR && h->length == length - sizeof *h;
	return valid ? h : NULL;
}

/* Stores a vGPU of a WELCOME; false if the TLV is invalid. Unknown ones are ignored unless critical. */
static bool parse_tlv(struct gsh_welcome *w, uint32_t *seen, const struct gshare_tlv *t, const unsigned char *value) {
	if (t->type != GSHARE_TLV_VGPU) return !(t->type & GSHARE_TLV_CRITICAL);
	if (t->length != sizeof w->vgpu[0] || *seen >= w->vgpus) return false;
	memcpy(&w->vgpu[*seen], value, t->length);
	w->vgpu[*seen].uuid[GSHARE_UUID_SIZE - 1] = 0;
	++*seen;
	return true;
}

bool gsh_welcome_parse(const void *bytes, size_t length, struct gsh_welcome *w) {
	const struct gshare_header *h = gsh_frame_check(bytes, length);
	const unsigned char *at = (const unsigned char *)bytes + sizeof *h, *end = (const unsigned char *)bytes + length;
	struct gshare_welcome fixed;
	uint32_t seen = 0;
	if (!h || h->type != GSHARE_WELCOME || h->length < sizeof fixed) return false;
	memcpy(&fixed, at, sizeof fixed);
	at += sizeof fixed;
	*w = (struct gsh_welcome){fixed.session, h->generation, fixed.mode, fixed.vgpus, {{{0}, 0, 0, 0}}};
	if (w->vgpus == 0 || w->vgpus > GSHARE_VGPU_MAX || w->mode > GSHARE_MODE_MEMORY) return false;
	while (end - at >= (ptrdiff_t)sizeof(struct gshare_tlv)) {
		struct gshare_tlv t;
		memcpy(&t, at, sizeof t);
		at += sizeof t;
		if (t.length > end - at || !parse_tlv(w, &seen, &t, at)) return false;
		at += t.length;
	}
	return at == end && seen == w->vgpus;
}

int gsh_error_parse(const void *bytes, size_t length) {
	const struct gshare_header *h = gsh_frame_check(bytes, length);
	struct gshare_error error;
	if (!h || h->type != GSHARE_ERROR || h->length < sizeof error) return 0;
	memcpy(&error, h + 1, sizeof error);
	return error.code > 0 && error.code < 4096 ? (int)error.code : EPROTO;
}

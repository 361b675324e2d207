/* Frames as bytes: building and checking them, no sockets. */
#ifndef GSHARE_FRAME_H
#define GSHARE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/gshare_wire.h"

struct gsh_frame {
	size_t length; /* of all */
	unsigned char bytes[GSHARE_FRAME_MAX];
};

void gsh_frame_begin(struct gsh_frame *f, uint16_t type, const void *fixed, size_t length);
void gsh_frame_tlv(struct gsh_frame *f, uint16_t type, const void *value, size_t length);
void gsh_frame_end(struct gsh_frame *f, uint64_t sequence, uint64_t generation);

/* The header, if these bytes are one whole frame of our major version; else NULL. */
const struct gshare_header *gsh_frame_check(const void *bytes, size_t length);

/* What a WELCOME says. */
struct gsh_welcome {
	uint64_t session, generation;
	uint32_t mode, vgpus;
	struct gshare_vgpu vgpu[GSHARE_VGPU_MAX];
};
bool gsh_welcome_parse(const void *bytes, size_t length, struct gsh_welcome *w);

#endif

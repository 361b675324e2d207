/* Frames as bytes: building and checking them. No sockets, no state. */
#ifndef GSHARE_FRAME_H
#define GSHARE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/gshare_wire.h"

/* A frame that is being built. */
struct gsh_frame {
	size_t length; /* of header and body so far */
	unsigned char bytes[GSHARE_FRAME_MAX];
};

/* Begins a frame with the fixed part of its body. */
void gsh_frame_begin(struct gsh_frame *f, uint16_t type, const void *fixed, size_t length);

/* Appends a type-length-value field to a frame. It is left out if it does not fit. */
void gsh_frame_tlv(struct gsh_frame *f, uint16_t type, const void *value, size_t length);

/* Writes the header of a frame that is complete. */
void gsh_frame_end(struct gsh_frame *f, uint64_t sequence, uint64_t generation);

/* Returns the header if the bytes are one whole frame of this major version, else NULL. */
const struct gshare_header *gsh_frame_check(const void *bytes, size_t length);

/* Returns the errno of an ERROR frame, or 0 if the bytes are not one. */
int gsh_error_parse(const void *bytes, size_t length);

/* The contents of a WELCOME frame, by which the server opens a session. */
struct gsh_welcome {
	uint64_t session, generation;
	uint32_t mode, vgpus;
	struct gshare_vgpu vgpu[GSHARE_VGPU_MAX];
};

/* Parses a WELCOME frame. Returns false if anything in it is invalid. */
bool gsh_welcome_parse(const void *bytes, size_t length, struct gsh_welcome *w);

#endif

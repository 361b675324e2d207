/*
 * Takes a frame apart into the structures of gshare_wire.h and writes it anew from them, without a byte copied as a whole.
 * Exit status 1: the frame is not one.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "gshare_wire.h"

static unsigned char in[GSHARE_FRAME_MAX + 1], out[GSHARE_FRAME_MAX + 1];
static size_t size, at, written;

static bool get(void *to, size_t n) {
	if (size - at < n) return false;
	memcpy(to, in + at, n);
	at += n;
	return true;
}

static void put(const void *from, size_t n) {
	memcpy(out + written, from, n);
	written += n;
}

static bool text(uint16_t length) {
	char value[GSHARE_FRAME_MAX];
	if (!get(value, length)) return false;
	put(value, length);
	return true;
}

#define MOVE(type)                        \
	do {                                  \
		struct type value;                \
		if (!get(&value, sizeof value)) return false; \
		put(&value, sizeof value);        \
	} while (0)

static int vgpus;

static bool tlv(void) {
	struct gshare_tlv head;
	if (!get(&head, sizeof head)) return false;
	put(&head, sizeof head);
	switch (head.type) {
	case GSHARE_TLV_SESSION: {
		uint64_t session;
		if (head.length != sizeof session || !get(&session, sizeof session)) return false;
		put(&session, sizeof session);
		return true;
	}
	case GSHARE_TLV_DEVICE:
	case GSHARE_TLV_TEXT:
		return text(head.length);
	case GSHARE_TLV_VGPU:
		if (head.length != sizeof(struct gshare_vgpu)) return false;
		vgpus++;
		MOVE(gshare_vgpu);
		return true;
	}
	return false;
}

static uint32_t promised; /* vGPUs */

static bool fixed(uint16_t type) {
	switch (type) {
	case GSHARE_HELLO:
		MOVE(gshare_hello);
		return true;
	case GSHARE_WELCOME: {
		struct gshare_welcome w;
		if (!get(&w, sizeof w)) return false;
		promised = w.vgpus;
		put(&w, sizeof w);
		return true;
	}
	case GSHARE_NEED:
		MOVE(gshare_need);
		return true;
	case GSHARE_BYE:
		return true;
	case GSHARE_SNAPSHOT:
		MOVE(gshare_snapshot);
		return true;
	case GSHARE_ERROR:
		MOVE(gshare_error);
		return true;
	}
	return false;
}

static bool recode(void) {
	struct gshare_header h;
	if (!get(&h, sizeof h) || h.magic != GSHARE_WIRE_MAGIC || h.major != GSHARE_WIRE_MAJOR) return false;
	if (h.length != size - sizeof h) return false;
	put(&h, sizeof h);
	if (!fixed(h.type)) return false;
	while (at < size)
		if (!tlv()) return false;
	return h.type != GSHARE_WELCOME || promised == (uint32_t)vgpus;
}

int main(int argc, char **argv) {
	FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
	if (!file) return 2;
	size = fread(in, 1, sizeof in, file);
	fclose(file);
	if (size > GSHARE_FRAME_MAX || !recode()) return 1;
	return fwrite(out, 1, written, stdout) == written ? 0 : 2;
}

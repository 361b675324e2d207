/* A WELCOME frame: what is taken from it lies in it and is within bounds, and it is read alike twice. */
#include "../../src/frame.h"
#include "fuzz.h"

static void fields_hold(const struct gsh_welcome *w) {
	PROMISE(w->vgpus >= 1 && w->vgpus <= GSHARE_VGPU_MAX && w->mode <= GSHARE_MODE_MEMORY);
	for (uint32_t i = 0; i < w->vgpus; i++) PROMISE(memchr(w->vgpu[i].uuid, 0, GSHARE_UUID_SIZE));
}

/* The header made right, so that inputs reach what is behind it. */
static size_t with_header(unsigned char *frame, const uint8_t *data, size_t size) {
	struct gshare_header h = {GSHARE_WIRE_MAGIC, GSHARE_WIRE_MAJOR, 0, GSHARE_WELCOME, 0, (uint32_t)size, 1, 1};
	memcpy(frame, &h, sizeof h);
	memcpy(frame + sizeof h, data, size);
	return sizeof h + size;
}

static void read_frame(const unsigned char *frame, size_t size) {
	struct gsh_welcome w, again;
	bool good = gsh_welcome_parse(frame, size, &w);
	PROMISE(good == gsh_welcome_parse(frame, size, &again));
	if (!good) return;
	fields_hold(&w);
	PROMISE(!memcmp(w.vgpu, again.vgpu, w.vgpus * sizeof w.vgpu[0]));
	PROMISE(!gsh_welcome_parse(frame, size - 1, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size > GSHARE_FRAME_MAX) return 0;
	unsigned char *frame = malloc(sizeof(struct gshare_header) + size); /* of the exact size, so that a read beyond it is seen */
	memcpy(frame, data, size);
	read_frame(frame, size);
	read_frame(frame, with_header(frame, data, size));
	free(frame);
	return 0;
}

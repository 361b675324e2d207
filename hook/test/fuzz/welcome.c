/* Fuzzes the parsing of a WELCOME: all fields are within bounds, and a second parse returns the same. */
#include "../../src/frame.h"
#include "fuzz.h"

static void check_fields(const struct gsh_welcome *w) {
	REQUIRE(w->vgpus >= 1 && w->vgpus <= GSHARE_VGPU_MAX && w->mode <= GSHARE_MODE_MEMORY);
	for (uint32_t i = 0; i < w->vgpus; i++) REQUIRE(memchr(w->vgpu[i].uuid, 0, GSHARE_UUID_SIZE));
}

/* Puts a valid header in front, so that inputs reach the parser of the body. */
static size_t with_header(unsigned char *frame, const uint8_t *data, size_t size) {
	struct gshare_header h = {GSHARE_WIRE_MAGIC, GSHARE_WIRE_MAJOR, 0, GSHARE_WELCOME, 0, (uint32_t)size, 1, 1};
	memcpy(frame, &h, sizeof h);
	memcpy(frame + sizeof h, data, size);
	return sizeof h + size;
}

static void parse_twice(const unsigned char *frame, size_t size) {
	struct gsh_welcome w, again;
	bool valid = gsh_welcome_parse(frame, size, &w);
	REQUIRE(valid == gsh_welcome_parse(frame, size, &again));
	if (!valid) return;
	check_fields(&w);
	REQUIRE(!memcmp(w.vgpu, again.vgpu, w.vgpus * sizeof w.vgpu[0]));
	REQUIRE(!gsh_welcome_parse(frame, size - 1, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	if (size > GSHARE_FRAME_MAX) return 0;
	unsigned char *frame = malloc(sizeof(struct gshare_header) + size); /* of the exact size, so that the sanitizer detects a read beyond it */
	memcpy(frame, data, size);
	parse_twice(frame, size);
	parse_twice(frame, with_header(frame, data, size));
	free(frame);
	return 0;
}

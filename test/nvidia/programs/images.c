/* Prints, for each file, the size in bytes of the variables that the hook finds in it. */
#include <stdio.h>
#include <stdlib.h>

#include "../../../hook/src/image.h"

void gsh_log(const char *format, ...) { puts(format); }

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) {
		char *image = calloc(1, 1 << 20);
		FILE *from = fopen(argv[i], "r");
		if (!from || !image || !fread(image, 1, (1 << 20) - 1, from)) return 1;
		printf("%llu\n", (unsigned long long)gsh_image_bytes(image, 9));
		fclose(from);
		free(image);
	}
	return 0;
}

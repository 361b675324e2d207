/* Open files of the hook. The application may close their descriptors, as daemons close all that they find, and then reuse the numbers. */
#ifndef GSHARE_FILE_H
#define GSHARE_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* An open file and what identifies it while it is open. */
struct gsh_file {
	int fd; /* -1: none */
	uint64_t device, inode;
};

/* Returns the file to which a descriptor refers now. Its fd is -1 if the descriptor is not open. */
struct gsh_file gsh_file_of(int fd);

/* Reports whether the descriptor still refers to the file. Checked before each use: otherwise the descriptor is the application's. */
bool gsh_file_valid(const struct gsh_file *f);

/* Closes the file if the descriptor still refers to it, and forgets it. */
void gsh_file_close(struct gsh_file *f);

#endif

/* A log for people, in the file that GSHARE_LOG names; without it nothing is written. Never on the fast path. */
#ifndef GSHARE_LOG_H
#define GSHARE_LOG_H

/* Opens the file. Called once, at the start. */
void gsh_log_open(void);

/* Appends one line, with the process ID in front. Any thread. */
void gsh_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Appends one line, and writes it to standard error as well if that is a terminal or a pipe: the descriptor may be any file of an application that
 * has closed its own. For what ends the application's use of CUDA.
 */
void gsh_log_loudly(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

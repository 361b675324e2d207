/* Lines for people, into the file that GSHARE_LOG names; nowhere without it. Never on the fast path. */
#ifndef GSHARE_LOG_H
#define GSHARE_LOG_H

void gsh_log_open(void);
void gsh_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

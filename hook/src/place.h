#ifndef GSHARE_PLACE_H
#define GSHARE_PLACE_H

#include "account.h"

/* The UUID of a device as text; false if the driver does not say. */
bool gsh_device_uuid(CUdevice d, char text[GSHARE_UUID_SIZE]);

/* The calling thread's context changed, or is not to be trusted: ask again. */
void gsh_place_forget(void);

#endif

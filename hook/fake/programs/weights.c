/*
 * weights SOCKET DIGEST TEXT: loads weights, which are the text, from a model store by libgshare_store.so, after it has stored them if they are
 * not there. DIGEST is their SHA-256 in hexadecimal digits. Prints "stored" or "read" and what it has mapped, or an error.
 */
#include "../../store/gshare_store.h"
#include "../fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);

/* Exits with the text of an error, if there is one. */
static void must(int error, const char *what)
{
	if (!error)
		return;
	printf("%s: %s\n", what, gshare_store_error(error));
	exit(1);
}

/* Stores a text. */
static void store_text(int store, const unsigned char *digest, const char *text)
{
	struct gshare_weights w;
	unsigned long long at;
	must(gshare_store_put(store, digest, "text", strlen(text), &w), "put");
	must(gshare_store_map(&w, 1, &at), "map for writing");
	close(w.file);
	must(cuMemcpyHtoD_v2(at, text, strlen(text)) ? GSHARE_STORE_CUDA + 1 : 0, "copy");
	must(gshare_store_unmap(at, w.size), "unmap");
	must(gshare_store_commit(store, digest, "text"), "commit");
}

int main(int n, char **a)
{
	CUcontext context;
	struct gshare_weights w;
	unsigned char digest[32];
	unsigned long long at;
	char text[256] = "";
	if (n != 4 || strlen(a[2]) != 64)
		return 2;
	for (int i = 0; i < 32; i++)
		if (sscanf(a[2] + 2 * i, "%2hhx", &digest[i]) != 1)
			return 2;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
		return 2;
	int store = gshare_store_open(a[1]);
	must(store < 0 ? store : 0, "open");
	int status = gshare_store_get(store, digest, "text", &w), stored = status == GSHARE_STORE_ABSENT;
	if (stored) {
		store_text(store, digest, a[3]);
		status = gshare_store_get(store, digest, "text", &w);
	}
	must(status, "get");
	must(gshare_store_map(&w, 0, &at), "map");
	close(w.file);
	if (w.bytes >= sizeof text || cuMemcpyDtoH_v2(text, at, w.bytes) || !cuMemcpyHtoD_v2(at, "changed", 7))
		return 3;
	printf("%s %s\n", stored ? "stored" : "read", text);
	must(gshare_store_unmap(at, w.size), "unmap");
	gshare_store_close(store);
	return 0;
}

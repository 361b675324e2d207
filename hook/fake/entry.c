/* Lookup of functions, call counts, and injected errors. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

extern struct symbol __start_fake_symbols[], __stop_fake_symbols[];

/* CUdriverProcAddressQueryResult. */
enum { FOUND = 0, SYMBOL_NOT_FOUND = 1, VERSION_NOT_SUFFICIENT = 2 };
#define LEGACY_STREAM 1
#define PER_THREAD_STREAM 2

/* Returns the function of the newest ABI up to a version, its per-thread variant if that is asked for and exists; or NULL. */
static struct symbol *choose(const char *base, int version, uint64_t flags, int *status)
{
	struct symbol *best = NULL;
	*status = SYMBOL_NOT_FOUND;
	for (struct symbol *s = __start_fake_symbols; s < __stop_fake_symbols; s++) {
		if (strcmp(s->base, base) != 0 || (s->per_thread && !(flags & PER_THREAD_STREAM)))
			continue;
		if (*status == SYMBOL_NOT_FOUND)
			*status = VERSION_NOT_SUFFICIENT;
		if (s->version > version)
			continue;
		*status = FOUND;
		if (!best || s->per_thread > best->per_thread ||
		    (s->per_thread == best->per_thread && s->version > best->version))
			best = s;
	}
	return best;
}

/* The two versions of cuGetProcAddress. */
static CUresult look_up(const char *base, void **function, int version, uint64_t flags, int *status)
{
	int driver;
	if (!base || !function || flags & ~(uint64_t)(LEGACY_STREAM | PER_THREAD_STREAM))
		return CUDA_ERROR_INVALID_VALUE;
	extern CUresult cuDriverGetVersion(int *);
	if (cuDriverGetVersion(&driver) != CUDA_SUCCESS || version > driver)
		return CUDA_ERROR_INVALID_VALUE;
	struct symbol *s = choose(base, version, flags, status);
	*function = s ? s->address : NULL;
	return CUDA_SUCCESS;
}

/* Version 1 has no status, so a missing function is an error. */
FN(cuGetProcAddress, , 11030, const char *base, void **function, int version, uint64_t flags)
{
	int status;
	COUNT(cuGetProcAddress);
	CUresult result = look_up(base, function, version, flags, &status);
	return result || *function ? result : CUDA_ERROR_NOT_FOUND;
}

FN(cuGetProcAddress, _v2, 12000, const char *base, void **function, int version, uint64_t flags, int *status)
{
	int unused;
	COUNT(cuGetProcAddress_v2);
	return look_up(base, function, version, flags, status ? status : &unused);
}

/* Weak: a further source of the build may have tables. */
EXPORT __attribute__((weak)) CUresult cuGetExportTable(const void **table, const void *id);
FN(cuGetExportTable, , 3000, const void **table, const void *id)
{
	ENTER(cuGetExportTable);
	(void)id;
	if (table)
		*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

/* Returns the function with an exported name, or NULL. */
static struct symbol *named(const char *name, size_t length)
{
	for (struct symbol *s = __start_fake_symbols; s < __stop_fake_symbols; s++)
		if (strlen(s->name) == length && memcmp(s->name, name, length) == 0)
			return s;
	return NULL;
}

static void (*at_return)(void);

void fakecuda_at_return(void (*call)(void)) { __atomic_store_n(&at_return, call, __ATOMIC_RELAXED); }

void fake_returning(const int *unused)
{
	(void)unused;
	void (*call)(void) = __atomic_load_n(&at_return, __ATOMIC_RELAXED);
	if (!call)
		return;
	fakecuda_at_return(NULL);
	call();
}

void fake_unlock(pthread_mutex_t **lock) { pthread_mutex_unlock(*lock); }

/* Lets `count` calls fail with `code`, beginning with the nth from now. Returns 0 if there is no such function. */
int fakecuda_fail(const char *name, unsigned long nth, unsigned long count, CUresult code)
{
	struct symbol *s = named(name, strlen(name));
	if (!s)
		return 0;
	s->failure = code;
	s->fail_from = s->calls + nth;
	s->fail_upto = s->fail_from + count;
	return 1;
}

unsigned long fakecuda_calls(const char *name)
{
	struct symbol *s = named(name, strlen(name));
	return s ? __atomic_load_n(&s->calls, __ATOMIC_RELAXED) : 0;
}

uint64_t fakecuda_used(CUdevice device) { return fake_used(device); }

/* Parses FAKE_CUDA_FAIL=name:nth[:code[:count]],... when the library is loaded. */
__attribute__((constructor)) static void parse_failures(void)
{
	const char *at = getenv("FAKE_CUDA_FAIL");
	while (at && *at) {
		const char *colon = strchr(at, ':');
		if (!colon)
			return;
		struct symbol *s = named(at, (size_t)(colon - at));
		char *end;
		unsigned long nth = strtoul(colon + 1, &end, 10);
		long code = *end == ':' ? strtol(end + 1, &end, 10) : CUDA_ERROR_OUT_OF_MEMORY;
		unsigned long count = *end == ':' ? strtoul(end + 1, &end, 10) : 1;
		if (s) {
			s->failure = (CUresult)code;
			s->fail_from = nth;
			s->fail_upto = nth + count;
		}
		at = *end == ',' ? end + 1 : NULL;
	}
}

/* Which function a program gets, by every way to look it up. Not linked to the driver; runs under the hook. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "../src/libc.h"
#include "../src/symbols.h"
#include "check.h"

#if defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#else
#define FIRST "GLIBC_2.2.5"
#endif

static void *cuda, *nvml;
static void *(*real_dlsym)(void *, const char *);

/* All wrapped functions of symbols.def. */
static const struct {
	const char *name, *base;
} listed[] = {
#define CU(kind, by, name, base, ...) {#name, base},
#define CUP(kind, by, name, twin, base, ...) {#name, base}, {#name "_" #twin, base},
#define NVML(kind, name, ...) {#name, NULL},
#define USE(...)
#include "../src/symbols.def"
};
#define LISTED (sizeof listed / sizeof listed[0])

/* The file and the name that an address belongs to. */
static const char *file_of(void *p) {
	Dl_info i;
	return p && dladdr(p, &i) ? i.dli_fname : "";
}
static const char *name_of(void *p) {
	Dl_info i;
	return p && dladdr(p, &i) && i.dli_sname && i.dli_saddr == p ? i.dli_sname : "";
}
/* Report whether an address is in the hook, and whether a name is in symbols.def. */
static int ours(void *p) { return strstr(file_of(p), "libgshare") != NULL; }
static int wrapped(const char *name) {
	for (size_t i = 0; i < LISTED; i++)
		if (!strcmp(listed[i].name, name)) return 1;
	return 0;
}

/* Every listed function that the driver has is found as its own wrapper; no other is found. */
TEST(dlsym_by_handle) {
	int covered = 0;
	for (size_t i = 0; i < LISTED; i++) {
		void *library = listed[i].base ? cuda : nvml;
		void *there = real_dlsym(library, listed[i].name), *got = dlsym(library, listed[i].name);
		if (!there) {
			CHECK(!got);
			continue;
		}
		covered++;
		CHECK(ours(got) && !strcmp(name_of(got), listed[i].name));
	}
	printf("  %d of %d listed functions are in this driver\n", covered, (int)LISTED);
	CHECK(covered > 70);
	CHECK(dlsym(cuda, "cuDriverGetVersion") == real_dlsym(cuda, "cuDriverGetVersion")); /* not wrapped */
}

TEST(dlsym_everywhere) {
	CHECK(ours(dlsym(RTLD_DEFAULT, "cuInit")));
	for (int i = 0; i < 3; i++) CHECK(ours(dlsym(RTLD_NEXT, "cuInit")));
	CHECK(!dlsym(RTLD_DEFAULT, "cuNoSuchThing") && dlerror());
	CHECK(!dlsym(cuda, "cuLaunchKernel_v9") && dlerror());
}

TEST(dlsym_of_dlsym) {
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	CHECK(ours(dlsym(libc, "dlsym")) && ours(dlsym(libc, "dlvsym")));
	CHECK(ours(dlsym(RTLD_DEFAULT, "dlsym")));
	CHECK(ours(dlvsym(libc, "dlsym", "GLIBC_2.34")));
	CHECK(ours(dlvsym(RTLD_DEFAULT, "dlsym", FIRST)) && ours(dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.34")));
	CHECK(!dlvsym(cuda, "cuInit", "NO_SUCH_VERSION"));
	CHECK(dlsym(libc, "malloc") == real_dlsym(libc, "malloc"));
	CHECK(!dlsym(libc, "") && !dlvsym(libc, "", "X"));
}

/* A library with a name that begins like the driver's, and with a driver's name of its own. */
TEST(other_libraries) {
	void *other = dlopen(getenv("OTHER"), RTLD_LAZY);
	CHECK(other != NULL);
	int (*create)(void) = (int (*)(void))dlsym(other, "cudnnCreate");
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(other, "cuInit");
	CHECK(create && create() == 4711);
	CHECK(init && init(0) == 4712);
}

typedef CUresult (*ask4_fn)(const char *, void **, int, unsigned long long);
typedef CUresult (*ask5_fn)(const char *, void **, int, unsigned long long, int *);

/* For every name, version and flag: the wrapper of exactly the function that the driver returns, or that function. */
TEST(get_proc_address) {
	static const int versions[] = {2000, 3020, 4000, 7000, 9000, 10000, 10010, 11000, 11030, 11040, 11060, 12000, 12050, 12090, 13000, 13030};
	ask4_fn real4 = (ask4_fn)real_dlsym(cuda, "cuGetProcAddress"), ask4 = (ask4_fn)dlsym(cuda, "cuGetProcAddress");
	ask5_fn real5 = (ask5_fn)real_dlsym(cuda, "cuGetProcAddress_v2"), ask5 = (ask5_fn)dlsym(cuda, "cuGetProcAddress_v2");
	int answers = 0;
	CHECK(ours((void *)ask4) && ours((void *)ask5));
	for (size_t i = 0; i < LISTED; i++)
		for (size_t v = 0; listed[i].base && v < sizeof versions / sizeof versions[0]; v++)
			for (int flags = 0; flags <= 2; flags++) {
				void *want = NULL, *got4 = NULL, *got5 = NULL;
				int status = -1, want_status = -1;
				CUresult r = real5(listed[i].base, &want, versions[v], flags, &want_status);
				CHECK_EQUAL(ask5(listed[i].base, &got5, versions[v], flags, &status), r);
				CHECK_EQUAL(status, want_status);
				CHECK_EQUAL(ask5(listed[i].base, &got5, versions[v], flags, NULL), r);
				if (r || !want) continue;
				answers++;
				CHECK(wrapped(name_of(want)) ? ours(got5) && !strcmp(name_of(got5), name_of(want)) : got5 == want);
				real4(listed[i].base, &want, versions[v], flags);
				ask4(listed[i].base, &got4, versions[v], flags);
				CHECK(!strcmp(name_of(got4), name_of(want)));
			}
	CHECK(answers > 1000);
}

TEST(get_proc_address_oddities) {
	ask5_fn ask = (ask5_fn)dlsym(cuda, "cuGetProcAddress_v2");
	void *plain = NULL, *twin = NULL, *self = NULL, *none = (void *)1;
	int status;
	ask("cuLaunchKernel", &plain, 12000, 0, &status);
	ask("cuLaunchKernel", &twin, 12000, 2, &status);
	CHECK(ours(plain) && ours(twin) && plain != twin);
	ask("cuGetProcAddress", &self, 12000, 0, &status);
	CHECK(ours(self));
	ask("cuGetProcAddress", &self, 11030, 0, &status);
	CHECK(ours(self));
	ask("cuNoSuchThing", &none, 12000, 0, &status);
	CHECK(!none);
	ask(NULL, &none, 12000, 0, &status);
	ask("cuInit", NULL, 12000, 0, &status);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(dlsym_by_handle),  T(dlsym_everywhere), T(dlsym_of_dlsym),
						  T(other_libraries),  T(get_proc_address), T(get_proc_address_oddities),
						  {0}};
	if (dlsym(RTLD_DEFAULT, "cuInit")) return printf("cuInit was found before the driver was loaded\n"), 1;
	cuda = dlopen("libcuda.so.1", RTLD_LAZY);
	nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
	real_dlsym = (void *(*)(void *, const char *))gsh_libc_symbol("dlsym");
	if (!cuda || !nvml || !real_dlsym) return printf("%s\n", dlerror()), 1;
	return check_run(tests, argc, argv);
}

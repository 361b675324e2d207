/* A library that is not the driver, with a name that begins like the driver's and one that is the same. */
__attribute__((visibility("default"))) int cudnnCreate(void);
__attribute__((visibility("default"))) int cuInit(unsigned flags);
int cudnnCreate(void) { return 4711; }
int cuInit(unsigned flags) { return 4712 + (int)flags; }

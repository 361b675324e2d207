// Variables that are more than 32 bits can count, with and without an initial value.
__device__ char large[5ull << 30];
__device__ int small[4] = {1, 2, 3, 4};
extern "C" __global__ void touch(int i) { large[i] = (char)small[i & 3]; }

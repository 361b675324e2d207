// Variables whose sizes need more than 32 bits, with and without initial values.
__device__ char large[5ull << 30];
__device__ int small[4] = {1, 2, 3, 4};
extern "C" __global__ void touch(int i) { large[i] = (char)small[i & 3]; }

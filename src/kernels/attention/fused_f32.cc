#define QKV_REAL float
#define QKV_KERNELS fused_kernels_f32
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fused_f32.cc"
#include "kernels/attention/fused_targets.inc"

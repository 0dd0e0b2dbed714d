#define QKV_REAL double
#define QKV_KERNELS fused_kernels_f64
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fused_f64.cc"
#include "kernels/attention/fused_targets.inc"

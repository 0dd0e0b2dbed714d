#define QKV_REAL double
#define QKV_KERNELS panel_kernels_f64
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_f64.cc"
#include "kernels/linear/panel_targets.inc"

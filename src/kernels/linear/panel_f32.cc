#define QKV_REAL float
#define QKV_KERNELS panel_kernels_f32
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear/panel_f32.cc"
#include "kernels/linear/panel_targets.inc"

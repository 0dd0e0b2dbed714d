#pragma once

#include "qkv/export.h"

namespace qkv {

// How many threads a call may use. By default as many as the process may run on (affinity and
// OMP_NUM_THREADS count). Results never depend on it.
QKV_API int num_threads() noexcept;

// Sets the number for calls from every thread of the process; 0 goes back to the default.
// Refuses a negative number.
QKV_API void set_num_threads(int threads);

}  // namespace qkv

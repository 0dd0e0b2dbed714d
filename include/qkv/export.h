#pragma once

// QKV_API marks what the library exports; everything else in it is hidden.
//   QKV_STATIC    the library is static (set for consumers by CMake and pkg-config): nothing to
//   mark QKV_BUILDING  the library itself is being compiled (only Windows tells export from import)
#if defined(QKV_STATIC)
#define QKV_API
#elif defined(_WIN32)
#if defined(QKV_BUILDING)
#define QKV_API __declspec(dllexport)
#else
#define QKV_API __declspec(dllimport)
#endif
#else
#define QKV_API __attribute__((visibility("default")))
#endif

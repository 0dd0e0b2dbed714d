#pragma once

namespace qkv {

// Asks for a line of the cache that will be written to, so that no other core has it then. The
// compiler's own builtin asks to read on x86, unless it is told that the CPU has this instruction;
// every 64-bit one takes it, if only as one that does nothing.
inline void prefetch_to_write(const void* at) {
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, 1, 3);
#endif
}

}  // namespace qkv

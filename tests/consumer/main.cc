// A program that somebody else writes: it includes installed headers, links libqkv and prints the
// version. The three projects in this folder build it in the three ways that a user has.
#include <cstdio>
#include <cstring>

#include "qkv/version.h"

int main() {
  if (std::strcmp(qkv::version(), QKV_VERSION_STRING) != 0) {
    std::fprintf(stderr, "headers are %s, library is %s\n", QKV_VERSION_STRING, qkv::version());
    return 1;
  }
  std::printf("qkv %s\n", qkv::version());
  return 0;
}

#pragma once

namespace qkv::io {

// Temporary files that exist right now, kept so that a signal handler can remove them: a process
// that is interrupted while it writes should leave nothing behind. The library installs no
// handler; a program that does calls remove_temporaries() in it.
class TemporaryRecord {
 public:
  // To be made before the file is created. Where there is no room (long paths, very many files at
  // once) the file is simply not recorded.
  explicit TemporaryRecord(const char* path) noexcept;
  ~TemporaryRecord();
  TemporaryRecord(const TemporaryRecord&) = delete;
  TemporaryRecord& operator=(const TemporaryRecord&) = delete;

 private:
  int slot_;  // -1: none
};

// Unlinks every recorded file. Async-signal-safe.
void remove_temporaries() noexcept;

}  // namespace qkv::io

#pragma once

// What the readers and writers share to say no.

#include <string>
#include <string_view>

namespace qkv::io {

// Throws an Error of kind value: the content of a file, or what was to be written, is not right.
[[noreturn]] void refuse(std::string_view where, std::string_view subject,
                         std::string_view expected, std::string_view found);

// Throws what the system's error number means: an Error of kind io, or std::bad_alloc for ENOMEM.
[[noreturn]] void fail(std::string_view where, std::string_view subject, std::string_view expected,
                       int error_number);

// Text from a file, made fit for a message: in quotes, control and non-ASCII bytes escaped (it may
// end on a terminal), and cut where it gets long.
std::string in_quotes(std::string_view text);

bool is_utf8(std::string_view text) noexcept;

}  // namespace qkv::io

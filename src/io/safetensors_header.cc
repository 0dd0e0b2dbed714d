#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "io/report.h"

namespace qkv::io {
namespace {

using Json = nlohmann::json;

constexpr std::array<SafetensorsType, 22> kTypes = {{
    {"F32", 32, DType::f32},
    {"F64", 64, DType::f64},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"I32", 32, DType::i32},
    {"I64", 64, DType::i64},
    {"U8", 8, DType::u8},
    {"BOOL", 8, DType::boolean},
    {"I8", 8, std::nullopt},
    {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},
    {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},
    {"C64", 64, std::nullopt},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
}};

// The header as a state machine over the events of the parser, which keeps its own stack on the
// heap: nothing recurses, and the depth is what the states below allow. Each event is either
// welcome in the current state or refused on the spot.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view where) : where_(where) {}

  SafetensorsHeader take() { return std::move(header_); }

  // --- events, by the names that nlohmann-json gives them ---

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a boolean"); }
  bool number_integer(std::int64_t value) { unexpected(fmt::format("{}", value)); }  // negative
  bool number_float(double, const std::string& text) { unexpected(in_quotes(text)); }
  bool binary(Json::binary_t&) { unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (state_ != State::shape && state_ != State::offsets) unexpected(fmt::format("{}", value));
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      refuse(where_, subject(), "numbers below 2^63", fmt::format("{}", value));
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    const std::size_t most = state_ == State::shape ? kMaxRank : 2;
    if (numbers_.size() > most) {
      refuse(where_, subject(),
             state_ == State::shape ? fmt::format("at most {} dimensions", most) : "two numbers",
             "more");
    }
    return true;
  }

  bool string(std::string& value) {
    if (state_ == State::metadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (state_ != State::entry || key_ != "dtype") unexpected(in_quotes(value));
    entry().type = find_safetensors_type(value);
    if (entry().type == nullptr) {
      refuse(where_, subject(), "a dtype of the safetensors format", in_quotes(value));
    }
    return true;
  }

  bool key(std::string& value) {
    if (!keys_of(state_).insert(value).second) {
      refuse(where_, state_ == State::entry ? in_quotes(entry().name) : "header", "each key once",
             fmt::format("{} twice", in_quotes(value)));
    }
    key_ = std::move(value);
    return true;
  }

  bool start_object(std::size_t) {
    if (state_ == State::start) {
      state_ = State::root;
    } else if (state_ == State::root && key_ == "__metadata__") {
      state_ = State::metadata;
      inner_keys_.clear();
    } else if (state_ == State::root) {
      state_ = State::entry;
      inner_keys_.clear();
      header_.entries.emplace_back().name = key_;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::entry) {
      for (const char* wanted : {"dtype", "shape", "data_offsets"}) {
        if (!inner_keys_.contains(wanted)) {
          refuse(where_, in_quotes(entry().name), fmt::format("the key {}", wanted), "none");
        }
      }
    }
    state_ = state_ == State::root ? State::done : State::root;
    return true;
  }

  bool start_array(std::size_t) {
    numbers_.clear();
    if (state_ == State::entry && key_ == "shape") {
      state_ = State::shape;
    } else if (state_ == State::entry && key_ == "data_offsets") {
      state_ = State::offsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() {
    if (state_ == State::shape) {
      entry().shape = Dims(numbers_);
    } else {
      if (numbers_.size() != 2) {
        refuse(where_, subject(), "two numbers", fmt::format("{}", numbers_.size()));
      }
      entry().begin = numbers_[0];
      entry().end = numbers_[1];
    }
    state_ = State::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: …": the number is noise.
    const std::string_view text = error.what();
    const std::size_t begin = text.find("] ");
    refuse(where_, "header", "JSON in UTF-8",
           fmt::format("at byte {}: {}", position,
                       in_quotes(begin == text.npos ? text : text.substr(begin + 2))));
  }

 private:
  // shape and offsets are inside an entry.
  enum class State { start, root, metadata, entry, shape, offsets, done };

  SafetensorsEntry& entry() { return header_.entries.back(); }

  std::unordered_set<std::string>& keys_of(State state) {
    return state == State::root ? root_keys_ : inner_keys_;
  }

  std::string subject() const {
    if (state_ == State::start) return "header";
    if (state_ == State::root) return in_quotes(key_);
    const std::string name =
        state_ == State::metadata ? "__metadata__" : in_quotes(header_.entries.back().name);
    return fmt::format("{}, {}", name, in_quotes(key_));
  }

  [[noreturn]] void unexpected(std::string_view found) const {
    refuse(where_, subject(), expected(), found);
  }

  std::string_view expected() const {
    if (state_ == State::start || state_ == State::root) return "an object";
    if (state_ == State::metadata) return "a string";
    if (state_ == State::shape || state_ == State::offsets) return "integers of 0 or more";
    if (key_ == "dtype") return "a string";
    if (key_ == "shape" || key_ == "data_offsets") return "an array of integers";
    return "the keys dtype, shape and data_offsets alone";
  }

  std::string_view where_;
  SafetensorsHeader header_;
  State state_ = State::start;
  std::string key_;
  std::unordered_set<std::string> root_keys_, inner_keys_;
  std::vector<std::int64_t> numbers_;
};

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) noexcept {
  const auto at =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.name == name; });
  return at == kTypes.end() ? nullptr : &*at;
}

const SafetensorsType& safetensors_type(DType dtype) noexcept {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [&](const auto& t) { return t.dtype == dtype; });
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::string_view where) {
  // The format wants the brace first; the parser alone would skip a byte order mark.
  if (!text.starts_with('{')) refuse(where, "header", "'{' first", in_quotes(text.substr(0, 8)));
  // A NUL would be the end to the parser, whatever follows.
  if (text.find('\0') != text.npos) refuse(where, "header", "JSON in UTF-8", "a NUL in it");
  HeaderReader reader(where);
  Json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace qkv::io

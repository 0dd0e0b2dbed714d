#pragma once

// Which part of attention a name means: W_q, W^Q, "Trọng số chú ý", 점수, attn_scores_2.

#include <optional>
#include <string>
#include <string_view>

namespace qkv::check {

enum class Role : unsigned char {
  none,
  input,  // X
  w_query,
  w_key,
  w_value,
  w_output,
  b_query,
  b_key,
  b_value,
  query,
  key,
  value,
  qkv,     // the fused projection
  scores,  // scaled or not: authors call both so
  weights,
  output,  // Z
};

// The symbol of a role in formulas: "X", "Wq", "scores".
std::string_view symbol_of(Role role) noexcept;

struct Name {
  Role role = Role::none;
  std::optional<int> index{};  // of a row: Z[0], q_1, attn_scores_2; -1: of some row, q_love
};

// A name that stands before an equals sign, on its own: one-letter names count.
Name role_of_name(std::string_view name);

// What a line of prose or a heading above a matrix announces.
Role role_in_prose(std::string_view line);

// A name without its typography: W_{q}, W^Q and `Wq` are all "wq".
std::string plain_name(std::string_view name);

}  // namespace qkv::check

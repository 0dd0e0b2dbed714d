#pragma once

#include <string>

#include "cli/command.h"
#include "qkv/tensor.h"

namespace qkv::cli {

// How a file's axes are attention's [B, H, T, D]:
//
//   layout  4-D           3-D        2-D
//   bhtd    [B, H, T, D]  [H, T, D]  [T, D]
//   bthd    [B, T, H, D]  [T, H, D]  [T, D]
//   bhdt    [B, H, D, T]  [H, D, T]  [D, T]
class Layout {
 public:
  Layout(const std::string& name, int rank) : name_(name), rank_(rank) {}

  // The same elements as [B, H, T, D]; the view has the layout's rank.
  template <typename View>
  View to_bhtd(View view) const {
    if (rank_ == 2) view = name_ == "bthd" ? view.unflatten(0, {view.dim(0), 1}) : lead(view);
    if (rank_ <= 3) view = lead(view);
    if (name_ == "bthd") return view.permute({0, 2, 1, 3});
    if (name_ == "bhdt") return view.permute({0, 1, 3, 2});
    return view;
  }

  // The file's shape of a [B, H, T, D].
  Dims from_bhtd(const Dims& shape) const;

 private:
  template <typename View>
  static View lead(const View& view) {
    return view.unflatten(0, {1, view.dim(0)});
  }

  std::string name_;
  int rank_;
};

inline Dims Layout::from_bhtd(const Dims& s) const {
  const Dims all = name_ == "bthd"   ? Dims{s[0], s[2], s[1], s[3]}
                   : name_ == "bhdt" ? Dims{s[0], s[1], s[3], s[2]}
                                     : s;
  if (rank_ == 4) return all;
  if (rank_ == 3) return {all[1], all[2], all[3]};
  return name_ == "bhdt" ? Dims{s[3], s[2]} : Dims{s[2], s[3]};
}

}  // namespace qkv::cli

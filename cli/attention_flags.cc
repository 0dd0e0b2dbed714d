#include "cli/attention_flags.h"

#include <fmt/format.h>

#include "cli/tensor_argument.h"

namespace qkv::cli {
namespace {

Causal causal_named(const std::string& name) {
  if (name == "true") return Causal::aligned;
  if (name == "top_left") return Causal::top_left;
  if (name == "bottom_right") return Causal::bottom_right;
  return Causal::none;
}

SimdTarget target_named(const std::string& name) {
  std::string known = "automatic";
  if (name == known) return SimdTarget::automatic;
  for (const SimdTarget target : simd_targets()) {
    if (name_of(target) == name) return target;
    known += fmt::format(", {}", name_of(target));
  }
  throw UsageError(fmt::format("--target: expected one of {}, found '{}'", known, name));
}

}  // namespace

void AttentionFlags::add_to(Command& command) {
  const char* group = "Attention";
  const auto add = [&](const char* name, auto& target, const char* help, const char* type) {
    return command.option(name, target, help).group(group).type_name(type);
  };
  add("--mask", mask_, "bool, true may attend; broadcast against [B, Hq, Tq, Tk]", "FILE");
  add("--bias", bias_, "added to the scores; broadcast likewise, -inf hides", "FILE");
  command
      .option("--causal", causal_,
              "keys after a query's position are hidden; true needs Tq = Tk or an --offset")
      .group(group)
      .one_of({"none", "true", "top_left", "bottom_right"});
  add("--offset", offset_, "position of the first query: a number, or one per batch entry",
      "INTS|FILE");
  add("--window", window_, "keys from LEFT before to RIGHT after a query's position; -1: no bound",
      "LEFT RIGHT")
      .words(2);
  add("--prefix", prefix_, "keys before it are seen by all queries; per batch entry", "INTS|FILE");
  add("--scale", scale_, "of Q·K^T; 1/sqrt(D) unless given", "NUMBER");
  add("--softcap", softcap_, "S becomes softcap·tanh(S/softcap)", "NUMBER");
  add("--alibi", alibi_, "slopes, per head", "NUMBERS|FILE");
  add("--key-lengths", key_lengths_, "later keys do not exist; per batch entry", "INTS|FILE");
  add("--query-starts", query_starts_, "a packed batch: where sequences begin, and the total",
      "INTS|FILE");
  add("--key-starts", key_starts_, "the same for keys", "INTS|FILE");
  add("--sinks", sinks_, "per head: adds exp(sink) to the denominator", "NUMBERS|FILE");
  command.option("--kernel", kernel_, "decode: for few queries; reference: plain loops")
      .group(group)
      .one_of({"automatic", "fused", "decode", "reference"});
  add("--target", target_, "vector instructions of the fused kernel; `qkv info` lists them",
      "NAME");
  add("--threads", threads_, "0: as many as the process may use", "INT").between(0, 4096);
}

std::vector<std::string> AttentionFlags::files() const {
  return {mask_, bias_, offset_, prefix_, alibi_, sinks_, key_lengths_, query_starts_, key_starts_};
}

AttentionFlags::Options AttentionFlags::load() const {
  Options loaded;
  AttentionOptions& options = loaded.options;
  const auto keep = [&](TensorView& view, FileTensor tensor) {
    view = tensor.view;
    loaded.owners.push_back(std::move(tensor));
  };
  const auto numbers = [&](const char* flag, const std::string& argument, TensorView& view,
                           bool integers) {
    if (!argument.empty()) keep(view, load_numbers(flag, argument, integers));
  };
  if (!mask_.empty()) keep(options.mask, load_tensor("--mask", mask_));
  if (!bias_.empty()) keep(options.bias, load_tensor("--bias", bias_));
  options.causal = causal_named(causal_);
  options.offset = as_integer(offset_);
  if (!options.offset) numbers("--offset", offset_, options.offsets, true);
  if (!window_.empty()) options.window = {window_[0], window_[1]};
  options.scale = scale_;
  options.softcap = softcap_;
  numbers("--prefix", prefix_, options.prefix, true);
  numbers("--alibi", alibi_, options.alibi, false);
  numbers("--key-lengths", key_lengths_, options.key_lengths, true);
  numbers("--query-starts", query_starts_, options.query_starts, true);
  numbers("--key-starts", key_starts_, options.key_starts, true);
  numbers("--sinks", sinks_, options.sinks, false);
  options.threads = threads_;
  if (kernel_ == "reference") options.kernel = AttentionKernel::reference;
  if (kernel_ == "fused") options.kernel = AttentionKernel::fused;
  if (kernel_ == "decode") options.kernel = AttentionKernel::decode;
  options.target = target_named(target_);
  return loaded;
}

}  // namespace qkv::cli

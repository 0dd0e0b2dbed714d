#include "qkv/plan.h"

#include <fmt/format.h>

#include "blocks/prepared/attention_core.h"
#include "ops/linear.h"

namespace qkv {
namespace {

// What PreparedLinear says, on one line.
std::string one_line(std::string text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "; ";
    } else if (c != ' ' || line.empty() || line.back() != ' ') {
      line += c;
    }
  }
  while (!line.empty() && (line.back() == ' ' || line.back() == ';')) line.pop_back();
  return line;
}

}  // namespace

void describe_product(BlockPlan& plan, std::string name, const PreparedLinear& linear,
                      std::int64_t rows, std::string_view and_then, bool channels) {
  const std::int64_t flops = 2 * rows * linear.in() * linear.out();
  // With sequences dealt out to threads, each does its products alone.
  const std::int64_t alone = plan.together > 0 ? plan.threads : 1;
  std::int64_t bytes =
      alone * linear_workspace(linear, rows, DType::f32, channels, alone > 1 ? 1 : plan.threads);
  // Of images, too, in some steps; the calling thread then has memory for all of them in others.
  if (channels) bytes += (plan.threads - 1) * linear_workspace(linear, rows, DType::f32, true, 1);
  if (bytes > plan.product_workspace) {
    plan.workspace += bytes - plan.product_workspace;
    plan.product_workspace = bytes;
  }
  plan.steps.push_back(
      {std::move(name), one_line(linear.describe(rows)) + std::string(and_then), flops});
  plan.flops += flops;
}

void describe_attention(BlockPlan& plan, std::string name, const AttentionShape& shape,
                        const AttentionOptions& options, bool by_heads) {
  const AttentionPlan attention = plan_attention(shape, options);
  // What the kernel works in is memory of the threads that run it.
  AttentionOptions part = options;
  AttentionShape few = shape;
  if (plan.together > 0) {
    part = options_of(options, 0, plan.together);
    part.threads = 1;
    few.B = plan.together;
  } else if (by_heads) {
    part = options_of_head(options, 0, 0);
    few.B = few.Hq = few.Hkv = 1;
  }
  const bool alone = plan.together > 0 || by_heads;
  const std::int64_t bytes = plan_attention(few, part).workspace * (alone ? plan.threads : 1);
  if (bytes > plan.kernel_workspace) {
    plan.workspace += bytes - plan.kernel_workspace;
    plan.kernel_workspace = bytes;
  }
  std::string how = fmt::format("{}, {}, {} heads of {}, {} queries × {} keys",
                                attention.kernel == AttentionKernel::fused ? "fused" : "reference",
                                name_of(attention.target), shape.Hq, shape.D, shape.Tq, shape.Tk);
  plan.steps.push_back({std::move(name), std::move(how), attention.flops});
  plan.flops += attention.flops;
}

void BlockProfile::add(std::string_view name, double seconds) {
  for (Step& step : steps) {
    if (step.name == name) {
      step.seconds += seconds;
      return;
    }
  }
  steps.push_back({std::string(name), seconds});
}

std::string to_string(const BlockPlan& plan) {
  std::string text;
  for (const BlockPlan::Step& step : plan.steps) {
    text += fmt::format("{:<16} {:>9.4g} MFLOP  {}\n", step.name,
                        static_cast<double>(step.flops) / 1e6, step.how);
  }
  text += plan.together > 0
              ? fmt::format("split            {} sequences at a time on each of {} threads\n",
                            plan.together, plan.threads)
              : fmt::format("split            all at once, on {} threads\n", plan.threads);
  text += fmt::format("work             {:.4g} GFLOP\n", static_cast<double>(plan.flops) / 1e9);
  text += fmt::format("memory           {:.4g} MB of weights, {:.4g} MB to work in\n",
                      static_cast<double>(plan.weights) / 1e6,
                      static_cast<double>(plan.workspace) / 1e6);
  return text;
}

}  // namespace qkv

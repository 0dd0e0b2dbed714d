#include <fmt/format.h>

#include <memory>

#include "cli/attention_flags.h"
#include "cli/block_flags.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/summary.h"
#include "cli/tensor_argument.h"
#include "cli/timing.h"
#include "models/block_file.h"
#include "models/prepared_block.h"

namespace qkv::cli {
namespace {

struct RunArguments {
  BlockFlags block;
  std::string input, memory, output;
  AttentionFlags flags;
  TimingFlags timing;
  bool json = false;
};

// The block's result in `out`; returns how long a call took. Plan and profile go to context.err.
double compute(const RunArguments& args, const BlockWeights& weights, const TensorView& x,
               const TensorView& memory, const MutableTensorView& out, BlockOptions& options,
               Context& context) {
  const Progress progress(context, args.block.name());
  if (!args.timing.prepared()) {
    const Stopwatch watch;
    block_forward(weights, x, memory, out, options);
    return watch.milliseconds();
  }
  const PreparedBlock block(weights, memory.has_value(), args.timing.prepare_options());
  BlockProfile profile;
  if (args.timing.profile()) options.profile = &profile;
  const Timing timing = repeat_calls(args.timing.repeat(), options.profile,
                                     [&] { block.forward(x, memory, out, options); });
  if (args.timing.plan()) {
    const auto shape = memory.has_value() ? std::optional(memory.shape()) : std::nullopt;
    context.err << to_string(block.plan(x.shape(), shape, options));
  }
  if (args.timing.profile()) context.err << to_string(profile, args.timing.repeat());
  return timing.median;
}

Status run(const RunArguments& args, Context& context) {
  std::vector<std::string> inputs = args.flags.files();
  inputs.insert(inputs.end(), {args.block.file(), args.input, args.memory});
  refuse_inputs_as_outputs({args.output}, inputs);
  const Loaded<BlockWeights> block = args.block.load();
  const BlockInput x = load_block_input("--input", args.input, block.weights);
  const BlockInput memory =
      args.memory.empty() ? BlockInput{} : load_block_input("--memory", args.memory, block.weights);
  const AttentionFlags::Options attention = args.flags.load();
  BlockOptions options;
  options.attention = attention.options;
  options.threads = attention.options.threads;

  const OutputFile file("--output", args.output, x.view.dtype());
  Tensor out(x.view.dtype(), block_output_shape(block.weights, x.view.shape()));
  const double milliseconds =
      compute(args, block.weights, x.view, memory.view, out, options, context);
  const TensorView result = x.has_batch ? out.view() : out.view().select(0, 0);
  file.save("output", result);
  Summary summary(file, result, milliseconds);
  summary.add("block", args.block.name());
  if (!block.prefix.empty()) summary.add("place", block.prefix);
  summary.add("heads", block_heads(block.weights));
  summary.print(args.json, context);
  return Status::ok;
}

}  // namespace

void add_run_command(Command& app, Context& context) {
  auto args = std::make_shared<RunArguments>();
  Command command = app.add_command("run", "an attention block with weights from a checkpoint");
  args->block.add_to(command);
  command.option("--input", args->input, "tokens [B, T, width], or images [B, C, H, W]")
      .required()
      .type_name("FILE");
  command.option("--memory", args->memory, "transformer: what the tokens attend to, [B, Tk, …]")
      .type_name("FILE");
  command.option("--output", args->output, "the block's result, of the input's dtype and rank")
      .required()
      .type_name("FILE");
  command.flag("--json", args->json, "a summary for machines");
  args->flags.add_to(command);
  args->timing.add_to(command);
  command.footer(
      examples({"qkv run --block gpt --weights model.safetensors --heads 12 \\",
                "    --weights-prefix h.0.attn --input x.npy --output y.npy",
                "qkv run --block vit --weights vit.safetensors --heads 12 \\",
                "    --weights-prefix blocks.0.attn --input x.npy --output y.npy",
                "qkv run --block c2psa --weights yolo11n.safetensors --input p5.npy --output y.npy",
                "qkv run --block transformer --weights mha.safetensors --heads 8 \\",
                "    --input x.npy --memory m.npy --output y.npy",
                "qkv run --block c2psa --weights yolo11n.safetensors --input p5.npy \\",
                "    --output y.npy --repeat 100 --profile"}) +
      "\n" + std::string(kTensorHelp) +
      "\nAn input without a batch, [T, width] or [C, H, W], is fine; the output then has none.\n"
      "Names of PyTorch, timm, Hugging Face, Ultralytics and GPT-2 are known. Where a file has\n"
      "several such blocks, --weights-prefix says which; an error lists them.\n");
  command.action([args, &context] { context.status = run(*args, context); });
}

}  // namespace qkv::cli

#include "qkv/attention.h"

#include <fmt/format.h>

#include <memory>
#include <set>

#include "base/json.h"
#include "cli/attention_flags.h"
#include "cli/command.h"
#include "cli/layout.h"
#include "cli/progress.h"
#include "cli/summary.h"
#include "cli/tensor_argument.h"
#include "qkv/plan.h"

namespace qkv::cli {
namespace {

struct AttentionArguments {
  std::string query, key, value, output, weights_output, lse_output, rows, layout = "bhtd";
  AttentionFlags flags;
  std::vector<std::int64_t> shape;
  std::string dtype = "f32";
  bool plan = false;
  bool json = false;
};

// The inputs in their files' layout and rank.
struct Inputs {
  FileTensor query, key, value;
  int rank = 4;
};

Inputs load_inputs(const AttentionArguments& args) {
  Inputs in{load_tensor("--query", args.query), load_tensor("--key", args.key),
            load_tensor("--value", args.value)};
  in.rank = in.query.view.rank();
  if (in.rank < 2 || in.rank > 4) {
    throw UsageError(fmt::format("--query: expected 2, 3 or 4 dimensions, found shape {}",
                                 to_string(in.query.view.shape())));
  }
  for (const auto& [flag, tensor] :
       {std::pair("--key", &in.key), std::pair("--value", &in.value)}) {
    if (tensor->view.rank() != in.rank) {
      throw UsageError(fmt::format("{}: expected {} dimensions, as --query has, found shape {}",
                                   flag, in.rank, to_string(tensor->view.shape())));
    }
  }
  return in;
}

// "0,0,5;0,1,5", or a file: rows (batch, head, query), [n, 3].
FileTensor load_rows(const std::string& argument) {
  std::string flat = argument;
  std::replace(flat.begin(), flat.end(), ';', ',');
  FileTensor rows = load_numbers("--rows", flat == argument ? argument : flat, true);
  if (rows.view.rank() == 1 && rows.view.dim(0) % 3 == 0 && rows.view.dim(0) > 0) {
    rows.view = rows.view.unflatten(0, {rows.view.dim(0) / 3, 3});
  }
  return rows;
}

// Stages are kept in the type that they are computed in.
DType stage_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

void refuse_equal_outputs(const AttentionArguments& args) {
  std::set<std::string> paths;
  for (const std::string& path : {args.output, args.weights_output, args.lse_output}) {
    if (!path.empty() && !paths.insert(path).second) {
      throw UsageError(fmt::format("expected a file for each result, found '{}' twice", path));
    }
  }
}

void refuse_overwriting(const AttentionArguments& args) {
  std::vector<std::string> inputs = args.flags.files();
  inputs.insert(inputs.end(), {args.query, args.key, args.value, args.rows});
  refuse_inputs_as_outputs({args.output, args.weights_output, args.lse_output}, inputs);
}

// One more result, besides the output: its file, if it was asked for, and its elements.
struct Stage {
  std::optional<OutputFile> file;
  Tensor tensor;
};

Stage make_stage(const char* flag, const std::string& path, DType dtype, const Dims& shape) {
  if (path.empty()) return {};
  return {OutputFile(flag, path, dtype), Tensor(dtype, shape)};
}

void print_plan_json(const AttentionPlan& plan, std::ostream& out) {
  const AttentionShape& s = plan.shape;
  JsonWriter json(2);
  json.object([&] {
    json.key("shape").object([&] {
      for (const auto& [name, extent] :
           {std::pair("B", s.B), std::pair("Hq", s.Hq), std::pair("Hkv", s.Hkv),
            std::pair("Tq", s.Tq), std::pair("Tk", s.Tk), std::pair("D", s.D),
            std::pair("Dv", s.Dv)}) {
        json.member(name, extent);
      }
    });
    json.member("dtype", name_of(s.dtype));
    json.member("kernel", name_of(plan.kernel));
    json.member("target", name_of(plan.target));
    json.member("threads", plan.threads);
    json.member("accumulate", name_of(plan.accumulate));
    json.member("lanes", plan.lanes);
    json.member("tile_vectors", plan.tile_vectors);
    json.member("tile_rows", plan.tile_rows);
    json.member("key_block", plan.key_block);
    json.member("unit_queries", plan.unit_queries);
    json.member("units", plan.units);
    json.member("visible", plan.visible);
    json.member("flops", plan.flops);
    json.member("bytes", plan.bytes);
    json.member("workspace", plan.workspace);
    json.key("notes").list(plan.notes);
  });
  out << json.text() << '\n';
}

// The shape that --shape names, or that the files have.
AttentionShape planned_shape(const AttentionArguments& args) {
  if (args.shape.empty()) {
    const Inputs in = load_inputs(args);
    const Layout layout(args.layout, in.rank);
    const TensorView query = layout.to_bhtd(in.query.view), key = layout.to_bhtd(in.key.view);
    const TensorView value = layout.to_bhtd(in.value.view);
    return {query.dim(0), query.dim(1), key.dim(1),   query.dim(2),
            key.dim(2),   query.dim(3), value.dim(3), query.dtype()};
  }
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    if (args.dtype != name_of(dtype)) continue;
    const auto& s = args.shape;
    return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], dtype};
  }
  throw UsageError(fmt::format("--dtype: expected f32, f64, f16 or bf16, found '{}'", args.dtype));
}

Status plan(const AttentionArguments& args, Context& context) {
  const AttentionFlags::Options loaded = args.flags.load();
  const AttentionPlan planned = plan_attention(planned_shape(args), loaded.options);
  if (args.json) {
    print_plan_json(planned, context.out);
  } else {
    context.out << to_string(planned);
  }
  return Status::ok;
}

// Files that may be left out when only a plan is wanted.
void require_files(const AttentionArguments& args) {
  if (args.plan && !args.shape.empty()) return;
  if (!args.shape.empty()) throw UsageError("--shape: expected --plan beside it, found none");
  for (const auto& [flag, path] :
       {std::pair("--query", &args.query), std::pair("--key", &args.key),
        std::pair("--value", &args.value), std::pair("--output", &args.output)}) {
    if (path->empty() && !(args.plan && path == &args.output)) {
      throw UsageError(fmt::format("{} is required", flag));
    }
  }
}

Status attention(const AttentionArguments& args, Context& context) {
  require_files(args);
  if (args.plan) return plan(args, context);
  refuse_equal_outputs(args);
  refuse_overwriting(args);
  if (!args.rows.empty() && args.weights_output.empty()) {
    throw UsageError("--rows: expected --weights-output beside it, found none");
  }
  const Inputs in = load_inputs(args);
  const Layout layout(args.layout, in.rank), plain("bhtd", in.rank);
  const TensorView query = layout.to_bhtd(in.query.view), key = layout.to_bhtd(in.key.view);
  const TensorView value = layout.to_bhtd(in.value.view);
  const AttentionFlags::Options loaded = args.flags.load();
  const std::int64_t B = query.dim(0), H = query.dim(1), Tq = query.dim(2), Tk = key.dim(2);
  const DType dtype = query.dtype(), wide = stage_dtype(dtype);

  const OutputFile file("--output", args.output, dtype);
  Tensor out(dtype, layout.from_bhtd({B, H, Tq, value.dim(3)}));
  const FileTensor rows = args.rows.empty() ? FileTensor{} : load_rows(args.rows);
  const bool some = rows.view.has_value();
  Stage weights = make_stage("--weights-output", args.weights_output, wide,
                             some ? Dims{rows.view.dim(0), Tk} : plain.from_bhtd({B, H, Tq, Tk}));
  Stage lse = make_stage("--lse-output", args.lse_output, wide, Dims{B, H, Tq});
  AttentionStages stages;
  stages.rows = rows.view;
  if (weights.file) {
    const MutableTensorView view = weights.tensor.view();
    stages.weights = some ? view : plain.to_bhtd(view);
  }
  if (lse.file) stages.lse = lse.tensor.view();

  const Stopwatch watch;
  {
    const Progress progress(context, "attention");
    attention_forward(query, key, value, layout.to_bhtd(out.view()), loaded.options, stages);
  }
  const double milliseconds = watch.milliseconds();
  if (weights.file) weights.file->save("weights", weights.tensor);
  if (lse.file) {
    TensorView view = lse.tensor.view();
    for (int rank = in.rank; rank < 4; ++rank) view = view.select(0, 0);
    lse.file->save("lse", view);
  }
  file.save("output", out);
  Summary summary(file, out, milliseconds);
  summary.print(args.json, context);
  return Status::ok;
}

}  // namespace

void add_attention_command(Command& app, Context& context) {
  auto args = std::make_shared<AttentionArguments>();
  Command command =
      app.add_command("attention", "softmax(scale·Q·K^T)·V of tensors in files, with masks");
  const auto file = [&](const char* flag, std::string& target, const char* help) {
    return command.option(flag, target, help).type_name("FILE");
  };
  file("--query", args->query, "[B, Hq, Tq, D]");
  file("--key", args->key, "[B, Hkv, Tk, D]; Hkv divides Hq");
  file("--value", args->value, "[B, Hkv, Tk, Dv]");
  file("--output", args->output, "[B, Hq, Tq, Dv], of the query's dtype and rank");
  file("--weights-output", args->weights_output, "the softmax, [B, Hq, Tq, Tk] or of --rows");
  command.option("--rows", args->rows, "which rows of the softmax: 0,0,5;0,1,5 or [n, 3]")
      .type_name("ROWS|FILE");
  file("--lse-output", args->lse_output, "log of the sum of exp(scores), [B, Hq, Tq]");
  command.option("--layout", args->layout, "order of the axes, of inputs and output")
      .one_of({"bhtd", "bthd", "bhdt"});
  command.flag("--plan", args->plan, "say how it would be computed, and compute nothing");
  command.option("--shape", args->shape, "for --plan, instead of files: B,Hq,Hkv,Tq,Tk,D,Dv")
      .words(7)
      .delimiter(',')
      .type_name("INTS");
  command.option("--dtype", args->dtype, "of --shape: f32, f64, f16, bf16").type_name("NAME");
  command.flag("--json", args->json, "a summary for machines");
  args->flags.add_to(command);
  command.footer(
      examples({"qkv attention --query q.npy --key k.npy --value v.npy --output o.npy",
                "qkv attention --query x.npz:q --key x.npz:k --value x.npz:v --output o.npy \\",
                "    --causal bottom_right --window 128 0 --key-lengths 100,87",
                "qkv attention --query q.npy --key k.npy --value v.npy --output o.npy \\",
                "    --weights-output p.npy --rows '0,0,5;0,1,5' --lse-output lse.npy",
                "qkv attention --plan --shape 1,32,8,2048,2048,128,128 --causal true"}) +
      "\n" + std::string(kTensorHelp) +
      "\nWithout a batch tensors are [H, T, D], without heads [T, D]; results likewise.\n");
  command.action([args, &context] { context.status = attention(*args, context); });
}

}  // namespace qkv::cli

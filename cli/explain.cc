// qkv explain: a worked example, a block on the user's own weights, or bare attention on the user's
// own matrices, step by step.

#include "explain/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <variant>

#include "cli/attention_flags.h"
#include "cli/block_flags.h"
#include "cli/command.h"
#include "cli/language.h"
#include "cli/layout.h"
#include "cli/model_argument.h"
#include "cli/suggest.h"
#include "cli/tensor_argument.h"
#include "cli/text.h"
#include "explain/explain.h"
#include "explain/writers/writer.h"
#include "models/block_file.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

struct ExplainArguments {
  std::string example, prompt, input, memory, query, key, value, layout = "bhtd";
  BlockFlags block;
  AttentionFlags attention;
  std::string format = "text", language, color = "auto", rows, cols;
  std::vector<std::string> expand, token_words;
  std::vector<std::string> tokens;  // their fields, as they are shown
  std::vector<std::string> given;   // the flags of this command line
  std::optional<std::int64_t> batch, head, layer, cached;
  bool full = false, hints = false;
  int digits = 4;

  bool is_example() const {
    const auto& names = example_names();
    return std::find(names.begin(), names.end(), example) != names.end();
  }
  bool has(std::string_view flag) const {
    return std::find(given.begin(), given.end(), flag) != given.end();
  }
  bool has_tensors() const { return !query.empty() || !key.empty() || !value.empty(); }
};

Explanation explain_block(const ExplainArguments& args) {
  if (args.input.empty()) throw UsageError("--block needs --input FILE");
  const Loaded<BlockWeights> loaded = args.block.load();
  const BlockInput x = load_block_input("--input", args.input, loaded.weights);
  const BlockInput memory = args.memory.empty()
                                ? BlockInput{}
                                : load_block_input("--memory", args.memory, loaded.weights);
  if (!args.memory.empty() && !std::holds_alternative<TransformerWeights>(loaded.weights)) {
    throw UsageError("--memory is for --block transformer: only it has cross-attention");
  }
  const AttentionFlags::Options attention = args.attention.load();
  BlockOptions options;
  options.attention = attention.options;
  options.threads = attention.options.threads;
  return std::visit(
      [&](const auto& weights) {
        using W = std::decay_t<decltype(weights)>;
        if constexpr (std::is_same_v<W, TransformerWeights>) {
          return explain_transformer(weights, x.view, memory.view, options, args.tokens);
        } else if constexpr (std::is_same_v<W, VitWeights>) {
          return explain_vit(weights, x.view, options, args.tokens);
        } else if constexpr (std::is_same_v<W, GptWeights>) {
          return explain_gpt(weights, x.view, options, args.tokens);
        } else if constexpr (std::is_same_v<W, DetectorWeights>) {
          return explain_detector(weights, x.view, options);
        } else if constexpr (std::is_same_v<W, PsaBlockWeights>) {
          return explain_psa_block(weights, x.view, options);
        } else {
          return explain_c2psa(weights, x.view, options);
        }
      },
      loaded.weights);
}

Explanation explain_matrices(const ExplainArguments& args) {
  if (args.query.empty() || args.key.empty() || args.value.empty()) {
    throw UsageError("--query, --key and --value go together");
  }
  const auto load = [&](std::string_view flag, const std::string& argument) {
    FileTensor tensor = load_tensor(flag, argument);
    const int rank = tensor.view.rank();
    if (rank < 2 || rank > 4) {
      throw Error(ErrorKind::value, "explain", flag, "2, 3 or 4 dimensions (see --layout)",
                  to_string(tensor.view.shape()));
    }
    tensor.view = Layout(args.layout, rank).to_bhtd(tensor.view);
    return tensor;
  };
  const FileTensor q = load("--query", args.query), k = load("--key", args.key);
  const FileTensor v = load("--value", args.value);
  return explain_attention(q.view, k.view, v.view, args.attention.load().options, args.tokens);
}

// The first flag of the command line that is neither one of `source` nor about how to show it.
std::optional<std::string> first_besides(const ExplainArguments& args,
                                         std::initializer_list<std::string_view> source) {
  static constexpr std::string_view kShow[] = {"--format", "--lang",   "--batch", "--head",
                                               "--rows",   "--cols",   "--full",  "--hints",
                                               "--expand", "--digits", "--color"};
  const auto among = [](const auto& names, const std::string& flag) {
    return std::find(std::begin(names), std::end(names), flag) != std::end(names);
  };
  for (const std::string& flag : args.given) {
    if (!among(kShow, flag) && !among(source, flag)) return flag;
  }
  return std::nullopt;
}

// A folder: the attention of one layer of a whole model.
Explanation explain_model(const ExplainArguments& args, Context& context) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(args.example, ignored)) {
    throw UsageError(fmt::format("EXAMPLE: '{}' is no example ({}) and no folder of a model{}",
                                 printable(args.example), fmt::join(example_names(), ", "),
                                 did_you_mean(args.example, example_names())));
  }
  if (const auto other =
          first_besides(args, {"--prompt", "--tokens", "--layer", "--cached", "--threads"})) {
    throw UsageError(
        fmt::format("{}: a model takes --prompt or --tokens, --layer, --cached and --threads "
                    "alone, and how to show it",
                    *other));
  }
  const Prompt given(args.has("--prompt") ? std::optional(args.prompt) : std::nullopt,
                     args.token_words);
  const GptModel model = load_model(args.example, context);
  const std::vector<std::int32_t> tokens = given.tokens(model);
  return explain_decoder(
      model.decoder(), model.weights(), tokens,
      {args.layer.value_or(0), args.cached.value_or(0), args.attention.threads()},
      token_labels(model, tokens));
}

// Names for tokens that are not there would be left out in silence, or put to the wrong ones.
void check_tokens(const ExplainArguments& args, const Explanation& explanation) {
  const Step* pairs = explanation.find("scores");
  if (args.tokens.empty() || pairs == nullptr) return;
  const auto count = static_cast<std::int64_t>(args.tokens.size());
  const std::int64_t queries = pairs->value->dim(2), keys = pairs->value->dim(3);
  if (count == queries || count == keys) return;
  throw UsageError(fmt::format(
      "--tokens: expected {} names, found {}",
      queries == keys ? fmt::format("{}", queries) : fmt::format("{} or {}", queries, keys),
      count));
}

// What belongs to an input of one's own says nothing about an example.
void check_example_alone(const ExplainArguments& args) {
  const auto other = first_besides(args, {"--threads"});
  if (!other) return;
  throw UsageError(fmt::format(
      "{}: example '{}' has its own input: weights, inputs, tokens and options of attention go "
      "with --block, or with --query, --key and --value",
      *other, args.example));
}

Explanation make_explanation(const ExplainArguments& args, Context& context) {
  const int sources = !args.example.empty() + args.block.given() + args.has_tensors();
  if (sources != 1) {
    throw UsageError(fmt::format(
        "give one of: an EXAMPLE ({}), a model's folder, --block with --weights and --input, or "
        "--query, --key and --value",
        fmt::join(example_names(), ", ")));
  }
  if (!args.example.empty() && !args.is_example()) return explain_model(args, context);
  if (args.has("--prompt") || args.layer || args.cached) {
    throw UsageError("--prompt, --layer and --cached go with a model's folder");
  }
  if (!args.example.empty()) {
    check_example_alone(args);
    return explain_example(args.example);
  }
  Explanation explanation = args.block.given() ? explain_block(args) : explain_matrices(args);
  check_tokens(args, explanation);
  return explanation;
}

WriteOptions write_options(const ExplainArguments& args, const Explanation& explanation,
                           const Context& context) {
  WriteOptions options;
  options.language = language_for(args.language);
  options.selection.batch = args.batch;
  options.selection.head = args.head;
  if (!args.rows.empty()) options.selection.rows = parse_range(args.rows, "--rows");
  if (!args.cols.empty()) options.selection.cols = parse_range(args.cols, "--cols");
  options.selection.full = args.full;
  options.digits = args.digits;
  options.color = args.color == "always" || (args.color == "auto" && context.color);
  for (const std::string& entry : args.expand) {
    options.expanded.push_back(parse_entry(entry, explanation, options.selection));
  }
  return options;
}

// Three lines for someone who has just seen their first example.
void print_hints(const ExplainArguments& args, Language language, Context& context) {
  const std::string example = args.example.empty() ? "pixels" : args.example;
  const std::pair<std::string, std::string_view> hints[] = {
      {fmt::format("qkv explain {} --lang vi|ko|zh", example), "writer.next.language"},
      {fmt::format("qkv explain {} --expand 'weights[2,1]'", example), "writer.next.expand"},
      {"qkv explain --query q.npy --key k.npy --value v.npy", "writer.next.own"}};
  context.out << '\n' << message(language, "writer.next") << '\n';
  for (const auto& [command, key] : hints) {
    context.out << fmt::format("  build/{:<52} {}\n", command, message(language, key));
  }
}

void explain(const ExplainArguments& args, Context& context) {
  const Explanation explanation = make_explanation(args, context);
  const WriteOptions options = write_options(args, explanation, context);
  if (args.format == "markdown") {
    context.out << write_markdown(explanation, options);
  } else if (args.format == "json") {
    context.out << write_json(explanation, options);
  } else if (args.format == "csv") {
    context.out << write_csv(explanation, options);
  } else {
    context.out << write_text(explanation, options);
  }
  if (args.hints) print_hints(args, options.language, context);
}

void add_source_options(Command& command, ExplainArguments& args) {
  command
      .option(
          "EXAMPLE", args.example,
          fmt::format("a worked example ({}), or a GPT's folder", fmt::join(example_names(), ", ")))
      .suggests(example_names());
  command.option("--prompt", args.prompt, "a GPT's folder: the text that it reads");
  command.option("--layer", args.layer, "a GPT's folder: which layer, from 0 (the default) on");
  command.option("--cached", args.cached,
                 "a GPT's folder: so many tokens went before, and come from the cache");
  args.block.add_to(command, false);
  command.option("--input", args.input, "the block's input: [B, T, width] or [B, C, H, W]")
      .type_name("FILE");
  command.option("--memory", args.memory, "transformer: what cross-attention reads")
      .type_name("FILE");
  for (const auto& [flag, target] :
       {std::pair{"--query", &args.query}, std::pair{"--key", &args.key},
        std::pair{"--value", &args.value}}) {
    command.option(flag, *target, "bare attention on your own matrices: [T, D] to [B, H, T, D]")
        .type_name("FILE");
  }
  command.option("--layout", args.layout, "order of the axes of --query, --key and --value")
      .one_of({"bhtd", "bthd", "bhdt"})
      .show_default();
  command.option("--tokens", args.token_words,
                 "names of the tokens, for rows and columns; of a GPT, ids");
  args.attention.add_to(command);
}

void add_display_options(Command& command, ExplainArguments& args) {
  command.option("--format", args.format, "how to write it")
      .one_of({"text", "markdown", "json", "csv"})
      .show_default();
  command.option("--lang", args.language, "language of the words (default: the environment's)")
      .one_of({"en", "vi", "ko", "zh"});
  command.option("--batch", args.batch, "show this batch entry");
  command.option("--head", args.head, "show this head");
  command.option("--rows", args.rows, "show these rows: 3, 2:5, :5, 2: or all");
  command.option("--cols", args.cols, "show these columns");
  command.flag("--hints", args.hints, "").group("");  // for `make run`; not listed
  command.flag("--full", args.full, "show everything, however large");
  command.option("--expand", args.expand,
                 "write an entry out as its sum of products: query[0,1] (row, column as printed)");
  command.option("--digits", args.digits, "digits behind the point, 0 to 17")
      .between(0, 17)
      .show_default();
  command.option("--color", args.color, "colour and heat maps")
      .one_of({"auto", "always", "never"})
      .show_default();
}

}  // namespace

void add_explain_command(Command& app, Context& context) {
  auto args = std::make_shared<ExplainArguments>();
  Command command = app.add_command("explain", "shows attention step by step, with every number");
  add_source_options(command, *args);
  add_display_options(command, *args);
  command.footer(
      examples({
          "qkv explain pixels",
          "qkv explain journey --lang vi",
          "qkv explain transformer --batch 3 --head 2 --rows 0:4 --cols 0:6",
          "qkv explain pixels --expand 'query[0,1]' --expand 'weights[2,3]'",
          "qkv explain --block vit --weights w.safetensors --input x.npy --heads 12 --format json",
          "qkv explain --query q.npy --key k.npy --value v.npy --causal top_left",
          "qkv explain gpt2/ --prompt 'Your journey starts' --layer 3 --head 2",
          "qkv explain gpt2/ --prompt 'Your journey starts' --layer 3 --cached 2",
      }) +
      "\n" + std::string(kTensorHelp));
  command.action([args, command, &context] {
    args->given = command.given_flags();
    args->tokens = token_fields(args->token_words);
    for (std::string& name : args->tokens) name = printable(name);
    explain(*args, context);
  });
}

}  // namespace qkv::cli

// qkv generate: a GPT continues a text, token by token.

#include "qkv/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/progress.h"
#include "cli/summary.h"

namespace qkv::cli {
namespace {

struct GenerateArguments {
  std::string model, prompt, cache = "f32";
  std::vector<std::string> tokens, stop;
  bool has_prompt = false;  // it may be empty
  double temperature = 1, top_p = 1;
  std::int64_t top_k = 0, seed = 0, max_tokens = 128;
  int threads = 0;
  bool json = false;
};

std::atomic<bool> interrupted = false;
extern "C" void note_interrupt(int) { interrupted = true; }

// While it lives, the first Ctrl-C is only noted, and a second one ends the program. Where SIGINT
// is ignored (nohup), it stays so.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = false;
    struct sigaction action = {};
    action.sa_handler = note_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  }
  ~InterruptGuard() { ::sigaction(SIGINT, &before_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ = {};
};

// What came out, for the last line.
struct Outcome {
  std::int64_t prompt = 0, generated = 0;
  double prefill_ms = 0, decode_ms = 0;
  std::string end;

  double tokens_per_second() const {
    // The first token comes with the prompt: a step is what lies between two of them.
    return generated > 1 && decode_ms > 0 ? 1000.0 * static_cast<double>(generated - 1) / decode_ms
                                          : 0;
  }
};

void print_token(const GeneratedToken& token, bool json, bool text, bool first, Context& context) {
  if (json) {
    context.out << fmt::format("{{\"token\": {}, \"text\": {}}}\n", token.id,
                               text ? json_string(token.text) : "null");
  } else if (text) {
    context.out << token.text;
  } else {
    context.out << fmt::format("{}{}", first ? "" : " ", token.id);
  }
  context.out.flush();
}

std::string size_in_words(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return size < 1e5 ? fmt::format("{:.1f} kB", size / 1e3) : fmt::format("{:.1f} MB", size / 1e6);
}

void print_outcome(const Outcome& outcome, const DecoderSession& session, const std::string& cache,
                   bool json, Context& context) {
  const std::int64_t bytes = session.bytes_per_token() * session.length();
  const double speed = outcome.tokens_per_second();
  if (json) {
    context.out << fmt::format(
        "{{\"end\": {}, \"prompt_tokens\": {}, \"tokens\": {}, \"prefill_seconds\": {:.6f}, "
        "\"decode_seconds\": {:.6f}, \"tokens_per_second\": {}, \"cache_bytes\": {}}}\n",
        json_string(outcome.end), outcome.prompt, outcome.generated, outcome.prefill_ms / 1000,
        outcome.decode_ms / 1000, speed > 0 ? fmt::format("{:.3f}", speed) : "null", bytes);
  }
  context.err << fmt::format(
      "qkv: {} {} of prompt in {:.2f} s, {} generated{}; cache {} ({} of {} tokens, {}); {}\n",
      outcome.prompt, outcome.prompt == 1 ? "token" : "tokens", outcome.prefill_ms / 1000,
      outcome.generated, speed > 0 ? fmt::format(": {:.1f} tokens/s", speed) : "",
      size_in_words(bytes), session.length(), session.capacity(), cache, outcome.end);
}

// Generates until it is over, someone interrupts or nobody reads any more.
void stream(Generator& generator, const GenerateArguments& args, bool text, Outcome& outcome,
            Context& context) {
  const InterruptGuard guard;
  const Stopwatch watch;
  double first_ms = 0;
  while (!interrupted && context.out) {
    const auto token = generator.next();
    if (!token) break;
    if (++outcome.generated == 1) first_ms = watch.milliseconds();
    print_token(*token, args.json, text, outcome.generated == 1, context);
    outcome.decode_ms = watch.milliseconds() - first_ms;
  }
  outcome.end = interrupted                               ? "interrupted"
                : generator.end() != GenerateEnd::not_yet ? std::string(name_of(generator.end()))
                                                          : "the output could not be written";
  const std::string rest = generator.rest();
  if (args.json) {
    if (!rest.empty()) context.out << fmt::format("{{\"text\": {}}}\n", json_string(rest));
  } else {
    context.out << rest << '\n';
  }
  context.out.flush();
}

KVStorage storage_of(const std::string& name) {
  for (const KVStorage each : {KVStorage::f32, KVStorage::f16, KVStorage::bf16, KVStorage::int8}) {
    if (name_of(each) == name) return each;
  }
  throw UsageError(fmt::format("--cache: unknown storage {}", name));
}

void generate(const GenerateArguments& args, Context& context) {
  GenerateOptions options;
  options.sampler = {args.temperature, args.top_k, args.top_p,
                     static_cast<std::uint64_t>(args.seed)};
  options.max_tokens = args.max_tokens;
  options.stop = args.stop;
  if (args.max_tokens < 0) throw UsageError("--max-tokens: expected 0 or more");
  (void)Sampler(options.sampler);  // refused before a large model is loaded

  const Prompt given(args.has_prompt ? std::optional(args.prompt) : std::nullopt, args.tokens);
  const GptModel model = load_model(args.model, context);
  const std::vector<std::int32_t> prompt = given.tokens(model);
  Outcome outcome;
  outcome.prompt = static_cast<std::int64_t>(prompt.size());
  DecoderSessionOptions session_options;
  // The last token is given out, but needs no place of its own.
  session_options.capacity =
      outcome.prompt + std::clamp<std::int64_t>(args.max_tokens, 1, model.decoder().context());
  session_options.capacity = std::min(session_options.capacity, model.decoder().context());
  session_options.storage = storage_of(args.cache);
  session_options.threads = args.threads;
  DecoderSession session(model.decoder(), session_options);
  const Stopwatch watch;
  std::unique_ptr<Generator> generator;
  {
    const Progress progress(context, "reading the prompt");
    generator = std::make_unique<Generator>(model, session, prompt, options);
  }
  outcome.prefill_ms = watch.milliseconds();
  stream(*generator, args, model.tokenizer().has_value(), outcome, context);
  print_outcome(outcome, session, args.cache, args.json, context);
  if (interrupted) {  // all is said: now end as the shell expects it
    context.out.flush();
    ::raise(SIGINT);
  }
}

}  // namespace

void add_generate_command(Command& app, Context& context) {
  auto args = std::make_shared<GenerateArguments>();
  Command command = app.add_command("generate", "a GPT continues a text, token by token");
  command.option("MODEL", args->model, "a folder with config.json and model.safetensors")
      .required()
      .type_name("FILE");
  command.option("--prompt", args->prompt, "the text to begin with");
  command.option("--tokens", args->tokens, "the same as ids: 0,2,1");
  command.option("--max-tokens", args->max_tokens, "how many at most").show_default();
  command
      .option("--temperature", args->temperature,
              "1: as likely as the model says; 0: always the most likely token")
      .show_default();
  command.option("--top-k", args->top_k, "choose among the k most likely tokens; 0: all")
      .show_default();
  command.option("--top-p", args->top_p, "choose among the likeliest whose shares reach p together")
      .show_default();
  command.option("--seed", args->seed, "of what is chosen: the same seed, the same text")
      .show_default();
  command.option("--stop", args->stop, "a text that ends it; may be given again").one_a_flag();
  command.option("--cache", args->cache, "how keys and values are kept")
      .one_of({"f32", "f16", "bf16", "int8"})
      .show_default();
  command.option("--threads", args->threads, "how many threads; 0: all").between(0, 4096);
  command.flag("--json", args->json, "an object a line: each token as it comes, then the summary");
  command.footer(
      examples({"qkv generate gpt2/ --prompt 'Once upon a time'",
                "qkv generate gpt2/ --prompt 'Q: 2+2?' --temperature 0 --stop Q:",
                "qkv generate llama/ --prompt Xin --top-k 40 --top-p 0.9 --seed 7",
                "qkv generate nano-gpt-sort/ --tokens 2,0,1,2,1,0 --max-tokens 6"}) +
      "\nThe folder is one of Hugging Face's (GPT-2's and Llama's families) or of minGPT's "
      "names:\nconfig.json, model.safetensors or its parts with an index, and "
      "tokenizer.json, or vocab.json\nand merges.txt; without a tokenizer, tokens are "
      "ids. Tokens per second and the cache's\nsize come on stderr.\n");
  command.action([args, command, &context] {
    args->has_prompt = command.given("--prompt");
    generate(*args, context);
  });
}

}  // namespace qkv::cli

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/json.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/summary.h"
#include "cli/text.h"
#include "cli/timing.h"
#include "io/image/image.h"
#include "models/vision.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

struct ClassifyArguments {
  std::string model;
  std::vector<std::string> images;
  int top = 5, threads = 0;
  std::optional<std::int64_t> heads;
  bool json = false;
  TimingFlags timing;
};

struct Guess {
  std::int64_t index;
  std::string label;
  double score, share;
};

// softmax of one row of scores, the largest `top` of it first.
std::vector<Guess> best_of(const TensorView& scores, const std::vector<std::string>& labels,
                           int top) {
  const std::int64_t n = scores.dim(0);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return scores.at({a}) > scores.at({b}); });
  const double largest = n > 0 ? scores.at({order[0]}) : 0;
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(scores.at({i}) - largest);
  std::vector<Guess> best;
  for (std::size_t i = 0; i < order.size() && i < static_cast<std::size_t>(top); ++i) {
    const std::int64_t c = order[i];
    const bool named = static_cast<std::size_t>(c) < labels.size();
    best.push_back({c, named ? labels[static_cast<std::size_t>(c)] : fmt::format("class {}", c),
                    scores.at({c}), std::exp(scores.at({c}) - largest) / sum});
  }
  return best;
}

// All images as one batch [B, 3, H, W].
Tensor load_images(const ClassifyArguments& args, const io::ImageProcessing& processing,
                   const Dims& wanted) {
  Tensor pixels(DType::f32,
                {static_cast<std::int64_t>(args.images.size()), wanted[0], wanted[1], wanted[2]});
  for (std::size_t i = 0; i < args.images.size(); ++i) {
    const Tensor one = io::process_image(io::read_image(args.images[i]), processing);
    if (!(one.shape() == wanted)) {
      throw Error(ErrorKind::value, args.images[i], "image",
                  fmt::format("pixels {}, as the model takes them", to_string(wanted)),
                  to_string(one.shape()));
    }
    copy(one.view(), pixels.view().select(0, static_cast<std::int64_t>(i)));
  }
  return pixels;
}

void print_text(const ClassifyArguments& args, const Tensor& scores,
                const std::vector<std::string>& labels, Context& context) {
  for (std::size_t i = 0; i < args.images.size(); ++i) {
    if (args.images.size() > 1) context.out << printable(args.images[i]) << '\n';
    const TensorView row = scores.view().select(0, static_cast<std::int64_t>(i));
    for (const Guess& guess : best_of(row, labels, args.top)) {
      context.out << fmt::format("{:>7.2f}%  {}\n", 100 * guess.share, printable(guess.label));
    }
  }
}

void print_json(const ClassifyArguments& args, const Tensor& scores,
                const std::vector<std::string>& labels, double milliseconds, Context& context) {
  JsonWriter writer(2);
  writer.object([&] {
    writer.member("model", args.model);
    writer.key("images").array([&] {
      for (std::size_t i = 0; i < args.images.size(); ++i) {
        writer.object([&] {
          writer.member("file", args.images[i]);
          writer.key("classes").array([&] {
            const TensorView row = scores.view().select(0, static_cast<std::int64_t>(i));
            for (const Guess& guess : best_of(row, labels, args.top)) {
              writer.object([&] {
                writer.member("index", guess.index);
                writer.member("label", guess.label);
                writer.member("score", guess.score);
                writer.member("probability", guess.share);
              });
            }
          });
        });
      }
    });
    writer.member("milliseconds", milliseconds);
  });
  context.out << writer.text() << '\n';
}

Status classify(const ClassifyArguments& args, Context& context) {
  const VisionModel model = load_vision(args.model, args.heads);
  if (!model.weights.head.weight.has_value()) {
    throw Error(ErrorKind::value, args.model, "head", "a classifier", "none in model.safetensors");
  }
  const PreparedVision vision(model.weights, args.timing.prepare_options());
  const Tensor pixels = load_images(args, model.processing, vision.image());
  Tensor scores(DType::f32, {pixels.dim(0), vision.classes()});
  BlockProfile profile;
  VisionOptions options{args.threads, args.timing.profile() ? &profile : nullptr};
  Timing timing;
  {
    const Progress progress(context, "classify");
    timing = repeat_calls(args.timing.repeat(), options.profile,
                          [&] { vision.forward(pixels, scores, options); });
  }
  if (args.timing.plan()) context.err << to_string(vision.plan(pixels.dim(0), options));
  if (args.timing.profile()) context.err << to_string(profile, args.timing.repeat());
  if (args.json) {
    print_json(args, scores, model.labels, timing.median, context);
  } else {
    print_text(args, scores, model.labels, context);
    if (args.timing.repeat() > 1) {
      context.err << fmt::format("{:.2f} ms a call (median of {}, best {:.2f})\n", timing.median,
                                 args.timing.repeat(), timing.best);
    }
  }
  return Status::ok;
}

}  // namespace

void add_classify_command(Command& app, Context& context) {
  auto args = std::make_shared<ClassifyArguments>();
  Command command = app.add_command("classify", "what a vision transformer sees in photographs");
  command.option("MODEL", args->model, "folder with config.json and model.safetensors")
      .required()
      .type_name("FOLDER");
  command.option("IMAGE", args->images, ".png or .jpg, one or several")
      .required()
      .type_name("FILE");
  command.option("--top", args->top, "classes to name").between(1, 1000000).show_default();
  command.option("--heads", args->heads, "timm: heads, where config.json does not say");
  command.option("--threads", args->threads, "0: all").between(0, 4096).show_default();
  command.flag("--json", args->json, "for machines");
  args->timing.add_to(command);
  command.footer(examples({"qkv classify vit-base-patch16-224 cat.png",
                           "qkv classify vit-base-patch16-224 *.jpg --top 3 --json",
                           "qkv classify vit-base-patch16-224 cat.png --repeat 20 --profile"}) +
                 "\nModels are Hugging Face's ViTForImageClassification and timm's "
                 "VisionTransformer. Photographs are\nresized and normalised as "
                 "preprocessor_config.json (timm: config.json) says.\n");
  command.action([args, &context] { context.status = classify(*args, context); });
}

}  // namespace qkv::cli

// tokenizer.json, or vocab.json and merges.txt, into the parts of a tokenizer. What is not known is
// refused by its name: a tokenizer that is nearly right gives text that is nearly right.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "io/input_file.h"
#include "io/json_tree.h"
#include "io/report.h"
#include "io/tokenizer/parts.h"
#include "io/tokenizer/unicode.h"
#include "qkv/tokenizer.h"

namespace qkv {
namespace {

using io::in_quotes;
using io::JsonPlace;
using io::TokenId;
using Parts = Tokenizer::Parts;

constexpr std::size_t kLongestToken = 4096;  // bytes of an added token: bounds each look-up
constexpr std::int64_t kIdsPerToken = 4;     // ids may have holes, but not so many
constexpr std::int64_t kFreeIds = 1 << 16;

// --- the vocabulary ---------------------------------------------------------------------------

void add_token(Parts& parts, const JsonPlace& place, std::int64_t id, std::string_view name) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= parts.names.size()) {
    parts.names.resize(at + 1);
    parts.bytes.resize(at + 1);
    for (auto* flags : {&parts.present, &parts.of_model, &parts.special, &parts.one_byte}) {
      flags->resize(at + 1);
    }
  }
  if (parts.present[at] != 0 && parts.names[at] != name) {
    place.refuse(fmt::format("an id of its own for {}", in_quotes(name)),
                 fmt::format("{}, which is {}", id, in_quotes(parts.names[at])));
  }
  parts.names[at] = name;
  parts.present[at] = 1;
}

void read_vocabulary(Parts& parts, const JsonPlace& vocab) {
  const io::JsonObject& entries = vocab.object();
  if (entries.empty()) vocab.refuse("tokens", "none");
  const std::int64_t most = kIdsPerToken * static_cast<std::int64_t>(entries.size()) + kFreeIds - 1;
  for (const auto& [name, value] : entries) {
    const auto* id = std::get_if<std::int64_t>(&value.is);
    if (id == nullptr || *id < 0 || *id > most) {
      vocab.refuse(fmt::format("an id in [0, {}] for {}", most, in_quotes(name)),
                   id == nullptr ? "no integer" : fmt::format("{}", *id));
    }
    add_token(parts, vocab, *id, name);
    parts.of_model[static_cast<std::size_t>(*id)] = 1;
  }
}

// After the last token was added: names do not move any more.
void index_vocabulary(Parts& parts) {
  for (std::size_t id = 0; id < parts.names.size(); ++id) {
    if (parts.present[id] == 0) continue;
    const std::string& name = parts.names[id];
    const auto [at, fresh] = parts.ids.emplace(name, static_cast<TokenId>(id));
    if (!fresh) {
      io::refuse(parts.where, "vocabulary", fmt::format("one id for {}", in_quotes(name)),
                 fmt::format("{} and {}", at->second, id));
    }
    // Of an added token that is found in normalised text: that text.
    const std::string& shown = parts.bytes[id].empty() ? name : parts.bytes[id];
    parts.one_byte[id] = !parts.byte_level && io::byte_of_name(shown) >= 0 ? 1 : 0;
    parts.bytes[id] =
        parts.byte_level ? io::bytes_of_byte_level(shown) : io::bytes_of_byte_fallback(shown);
  }
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    if (parts.byte_level) {
      io::append_utf8(name, io::char_of_byte(static_cast<unsigned char>(byte)));
    } else {
      name = fmt::format("<0x{:02X}>", byte);
    }
    parts.byte_ids[byte] = parts.model_id(name);
  }
}

// --- merges -----------------------------------------------------------------------------------

class MergeReader {
 public:
  MergeReader(Parts& parts, std::size_t count) : parts_(parts) {
    parts.merges = io::MergeTable(count);
  }

  // `refuse(expected, found)` says where it stands.
  template <typename Refuse>
  void add(std::string_view left, std::string_view right, Refuse&& refuse) {
    const auto id = [&](std::string_view name) {
      const TokenId at = parts_.model_id(name);
      if (at < 0) refuse("tokens of the vocabulary", in_quotes(name));
      return at;
    };
    joined_.assign(left).append(right);
    const TokenId result = id(joined_);
    parts_.merges.insert(id(left), id(right), {rank_++, result});
  }

  template <typename Refuse>
  void add_line(std::string_view line, Refuse&& refuse) {
    const std::size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      refuse("two tokens and a space between them", in_quotes(line));
    }
    add(line.substr(0, space), line.substr(space + 1), refuse);
  }

 private:
  Parts& parts_;
  std::uint32_t rank_ = 0;
  std::string joined_;
};

void read_merges(Parts& parts, const JsonPlace& merges) {
  const io::JsonArray& all = merges.array();
  MergeReader reader(parts, all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto refuse = [&](std::string_view expected, std::string_view found) {
      merges.item(i).refuse(expected, found);
    };
    if (const auto* line = std::get_if<std::string>(&all[i].is)) {
      reader.add_line(*line, refuse);
    } else {
      const JsonPlace pair = merges.item(i);
      if (pair.array().size() != 2) pair.refuse("two tokens");
      reader.add(pair.item(0).string(), pair.item(1).string(), refuse);
    }
  }
}

void read_merges(Parts& parts, std::string_view text, std::string_view where) {
  MergeReader reader(parts,
                     static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    reader.add_line(line, [&](std::string_view expected, std::string_view found) {
      io::refuse(where, fmt::format("line {}", number), expected, found);
    });
  }
}

// --- the parts of tokenizer.json --------------------------------------------------------------

std::string_view type_of(const JsonPlace& part) { return part.at("type").string(); }

// Members of a "Sequence", or the part itself.
std::vector<JsonPlace> flattened(const JsonPlace& part, std::string_view members) {
  if (part.is_null()) return {};
  if (type_of(part) != "Sequence") return {part};
  std::vector<JsonPlace> all;
  const JsonPlace list = part.at(members);
  for (std::size_t i = 0; i < list.array().size(); ++i) all.push_back(list.item(i));
  return all;
}

bool flag(const JsonPlace& part, std::string_view name, bool otherwise) {
  const JsonPlace value = part.get(name);
  return value.is_null() ? otherwise : value.boolean();
}

// The older Llamas': ▁ in front, and ▁ for each space.
void read_normalizer(Parts& parts, const JsonPlace& normalizer) {
  const std::vector<JsonPlace> all = flattened(normalizer, "normalizers");
  if (all.empty()) return;
  bool prepends = false, replaces = false;
  for (const JsonPlace& part : all) {
    if (type_of(part) == "Prepend" && part.at("prepend").string() == io::kMark && !replaces) {
      prepends = true;
    } else if (type_of(part) == "Replace" && part.at("pattern").get("String").is_null() == false &&
               part.at("pattern").at("String").string() == " " &&
               part.at("content").string() == io::kMark) {
      replaces = true;
    } else {
      part.get("type").refuse("none, or Llama's: Prepend ▁, then Replace of spaces by ▁");
    }
  }
  if (!prepends || !replaces) {
    normalizer.refuse("none, or Llama's: Prepend ▁, then Replace of spaces by ▁");
  }
  parts.prefix = io::Prefix::mark;
}

void read_metaspace(Parts& parts, const JsonPlace& part) {
  if (part.at("replacement").string() != io::kMark) part.at("replacement").refuse("▁");
  const JsonPlace scheme = part.get("prepend_scheme");
  const std::string_view name = scheme.is_null()
                                    ? (flag(part, "add_prefix_space", true) ? "always" : "never")
                                    : scheme.string();
  if (parts.prefix != io::Prefix::none) part.get("type").refuse("no normalizer before it");
  if (name == "always") {
    parts.prefix = io::Prefix::mark_always;
  } else if (name == "first") {
    parts.prefix = io::Prefix::mark_first;
  } else {
    scheme.refuse("always or first");
  }
  parts.split_at_marks = flag(part, "split", true);
}

void read_byte_level(Parts& parts, const JsonPlace& part) {
  if (flag(part, "add_prefix_space", true)) {
    // It would go in front of each word, not of the text.
    if (parts.words != io::PreTokenizer::none) {
      part.get("add_prefix_space").refuse("false after a Split");
    }
    parts.prefix = io::Prefix::space;
  }
  if (flag(part, "use_regex", true)) {
    if (parts.words != io::PreTokenizer::none) part.get("use_regex").refuse("false after a Split");
    parts.words = io::PreTokenizer::gpt2;
  }
}

void read_split(Parts& parts, const JsonPlace& part) {
  const JsonPlace regex = part.at("pattern").get("Regex");
  for (const io::PreTokenizer known : {io::PreTokenizer::gpt2, io::PreTokenizer::llama3}) {
    if (!regex.is_null() && regex.string() == io::pattern_of(known)) parts.words = known;
  }
  if (parts.words == io::PreTokenizer::none) regex.refuse("the pattern of GPT-2 or of Llama 3");
  const JsonPlace behavior = part.at("behavior");
  const bool invert = flag(part, "invert", false);
  if (!(behavior.string() == "Isolated" && !invert) &&
      !(behavior.string() == "Removed" && invert)) {
    behavior.refuse("Isolated");
  }
}

void read_pre_tokenizer(Parts& parts, const JsonPlace& pre_tokenizer) {
  bool byte_level = false;
  for (const JsonPlace& part : flattened(pre_tokenizer, "pretokenizers")) {
    const std::string_view type = type_of(part);
    if (byte_level) part.get("type").refuse("nothing after ByteLevel");
    if (type == "ByteLevel") {
      read_byte_level(parts, part);
      byte_level = true;
    } else if (type == "Split" && parts.words == io::PreTokenizer::none) {
      read_split(parts, part);
    } else if (type == "Metaspace") {
      read_metaspace(parts, part);
    } else {
      part.get("type").refuse("ByteLevel, a Split before it, or Metaspace");
    }
  }
  parts.byte_level = byte_level;
  if (!byte_level && parts.words != io::PreTokenizer::none) {
    pre_tokenizer.refuse("ByteLevel after the Split");
  }
}

void read_model(Parts& parts, const JsonPlace& model) {
  const JsonPlace type = model.get("type");
  if (!type.is_null() && type.string() != "BPE") type.refuse("BPE");
  if (!parts.byte_level && !flag(model, "byte_fallback", false)) {
    model.get("byte_fallback").refuse("true, where there is no ByteLevel pre-tokenizer");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonPlace affix = model.get(name);
    if (!affix.is_null() && !affix.string().empty()) affix.refuse("none");
  }
  const JsonPlace dropout = model.get("dropout");
  if (!dropout.is_null() && dropout.number() != 0) dropout.refuse("none: encoding is no lottery");
  parts.ignore_merges = flag(model, "ignore_merges", false);
  parts.fuse_unknown = flag(model, "fuse_unk", false);
  read_vocabulary(parts, model.at("vocab"));
}

void read_unknown(Parts& parts, const JsonPlace& model) {
  const JsonPlace unknown = model.get("unk_token");
  if (unknown.is_null()) return;
  const auto id = parts.ids.find(unknown.string());
  if (id == parts.ids.end()) unknown.refuse("a token of the vocabulary");
  parts.unknown = id->second;
}

void read_added_tokens(Parts& parts, const JsonPlace& added) {
  if (added.is_null()) return;
  const std::size_t count = added.array().size();
  const auto most = static_cast<std::int64_t>(parts.names.size() + kIdsPerToken * count) + kFreeIds;
  for (std::size_t i = 0; i < count; ++i) {
    const JsonPlace token = added.item(i);
    const std::string_view content = token.at("content").string();
    if (content.empty() || content.size() > kLongestToken) {
      token.get("content").refuse(fmt::format("1 to {} bytes", kLongestToken),
                                  fmt::format("{}", content.size()));
    }
    if (flag(token, "single_word", false)) token.get("single_word").refuse("false");
    const std::int64_t id = token.at("id").integer(0, most);
    add_token(parts, token, id, content);
    const bool special = flag(token, "special", false);
    parts.special[static_cast<std::size_t>(id)] = special ? 1 : 0;
    const bool normal = flag(token, "normalized", !special);
    const std::string found = normal ? io::normalized(parts, content) : std::string(content);
    parts.bytes[static_cast<std::size_t>(id)] = found;
    (normal ? parts.normalized : parts.raw)
        .insert({static_cast<TokenId>(id), found, flag(token, "lstrip", false),
                 flag(token, "rstrip", false)});
  }
}

// A template "single": special tokens around the text.
void read_template(Parts& parts, const JsonPlace& processor) {
  const JsonPlace single = processor.at("single");
  bool seen = false;
  for (std::size_t i = 0; i < single.array().size(); ++i) {
    const JsonPlace piece = single.item(i);
    if (piece.has("Sequence")) {
      if (seen) piece.refuse("the text once");
      seen = true;
      continue;
    }
    const std::string_view name = piece.at("SpecialToken").at("id").string();
    const JsonPlace ids = processor.at("special_tokens").at(name).at("ids");
    for (std::size_t k = 0; k < ids.array().size(); ++k) {
      const auto id = static_cast<TokenId>(
          ids.item(k).integer(0, static_cast<std::int64_t>(parts.names.size()) - 1));
      (seen ? parts.after : parts.before).push_back(id);
    }
  }
  if (!seen) single.refuse("the text among its pieces", "none");
}

void read_post_processor(Parts& parts, const JsonPlace& post_processor) {
  for (const JsonPlace& part : flattened(post_processor, "processors")) {
    const std::string_view type = type_of(part);
    if (type == "TemplateProcessing") {
      read_template(parts, part);
    } else if (type != "ByteLevel") {  // which only trims offsets
      part.get("type").refuse("TemplateProcessing or ByteLevel");
    }
  }
}

// Replace ▁ by a space, ByteFallback, Fuse, and maybe Strip: another order, or one less, gives
// another text.
void read_fallback_decoder(Parts& parts, const JsonPlace& decoder) {
  constexpr std::string_view chain[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
  const std::vector<JsonPlace> all = flattened(decoder, "decoders");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i >= std::size(chain)) all[i].refuse("nothing after Strip");
    if (type_of(all[i]) != chain[i]) all[i].get("type").refuse(chain[i]);
  }
  if (all.size() < 3) decoder.refuse("Replace, ByteFallback, Fuse, and maybe Strip");
  if (all[0].at("pattern").at("String").string() != io::kMark ||
      all[0].at("content").string() != " ") {
    all[0].refuse("Replace of ▁ by a space");
  }
  if (all.size() < 4) return;
  if (all[3].at("content").string() != " " || all[3].at("stop").integer(0, 99) != 0) {
    all[3].refuse("Strip of spaces at the start");
  }
  parts.strip_first_space = all[3].at("start").integer(0, 1) == 1;
}

// What is decoded follows from the vocabulary; only the first space is the decoder's to say.
void read_decoder(Parts& parts, const JsonPlace& decoder) {
  if (decoder.is_null()) return;
  if (!parts.byte_level) return read_fallback_decoder(parts, decoder);
  for (const JsonPlace& part : flattened(decoder, "decoders")) {
    if (type_of(part) != "ByteLevel") part.get("type").refuse("ByteLevel, as the pre-tokenizer");
  }
}

std::string read_text(const std::filesystem::path& path) {
  const auto file = io::InputFile::open(path, FileAccess::copy);
  return std::string(io::as_text(file->bytes()));
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view where) {
  const io::JsonValue tree = io::parse_json(text, where);
  const JsonPlace root(tree, where);
  auto parts = std::make_shared<Parts>();
  parts->where = where;
  // What kind of tokenizer it is comes first: a stranger is refused by its name.
  const JsonPlace model = root.at("model"), type = model.get("type");
  if (!type.is_null() && type.string() != "BPE") type.refuse("BPE");
  read_normalizer(*parts, root.get("normalizer"));
  read_pre_tokenizer(*parts, root.get("pre_tokenizer"));
  if (parts->byte_level && parts->prefix == io::Prefix::mark) {
    root.get("normalizer").refuse("none before ByteLevel");
  }
  read_model(*parts, model);
  read_added_tokens(*parts, root.get("added_tokens"));
  index_vocabulary(*parts);
  read_unknown(*parts, model);
  read_merges(*parts, model.at("merges"));
  read_post_processor(*parts, root.get("post_processor"));
  read_decoder(*parts, root.get("decoder"));
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_vocab_and_merges(std::string_view vocab_json, std::string_view merges,
                                           std::string_view where) {
  const io::JsonValue tree = io::parse_json(vocab_json, where);
  auto parts = std::make_shared<Parts>();
  parts->where = where;
  parts->words = io::PreTokenizer::gpt2;
  read_vocabulary(*parts, JsonPlace(tree, where));
  index_vocabulary(*parts);
  read_merges(*parts, merges, where);
  constexpr std::string_view end = "<|endoftext|>";
  if (const auto id = parts->ids.find(end); id != parts->ids.end()) {
    parts->special[static_cast<std::size_t>(id->second)] = 1;
    parts->raw.insert({id->second, std::string(end)});
  }
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::open(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return from_json(read_text(path), path.string());
  const fs::path json = path / "tokenizer.json";
  if (fs::exists(json, ignored)) return from_json(read_text(json), json.string());
  if (fs::exists(path / "tokenizer.model", ignored) && !fs::exists(path / "vocab.json", ignored)) {
    io::refuse(path.string(), "tokenizer", "tokenizer.json, or vocab.json and merges.txt",
               "tokenizer.model (SentencePiece)");
  }
  const std::string vocab = read_text(path / "vocab.json");
  return from_vocab_and_merges(vocab, read_text(path / "merges.txt"), path.string());
}

bool Tokenizer::is_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "vocab.json", "tokenizer.model"}) {
    if (std::filesystem::exists(folder / name, ignored)) return true;
  }
  return false;
}

}  // namespace qkv

// A KV cache as a file of named tensors:
//
//   config      i64 [11]     the numbers of KVCacheConfig in its order, and the next sequence's id
//   sequences   i64 [n, 3]   id, first, length
//   table       i64 [...]    the pages of each sequence, one after the other
//   used        i64 [m]      tokens of each page
//   page.<i>.key, page.<i>.value                 [layers, Hkv, used, D or Dv], as they are stored
//   page.<i>.key_scale, page.<i>.value_scale     [layers, Hkv, used], int8 alone
//   checksums   i64 [...]    CRC-32 of the elements of each of the others, in this order

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "base/crc32.h"
#include "kernels/cache/store.h"
#include "ops/kv_state.h"
#include "qkv/error.h"
#include "qkv/kv_cache.h"
#include "qkv/safetensors.h"

namespace qkv {
namespace {

constexpr std::string_view kFormat = "qkv-kv-cache-1";

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view subject,
                         std::string_view expected, std::string_view found) {
  throw Error(ErrorKind::value, path.string(), subject, expected, found);
}

std::uint32_t checksum(const TensorView& view) {
  const Tensor dense = view.is_dense() ? Tensor() : Tensor::copy_of(view);
  const TensorView all = view.is_dense() ? view : dense.view();
  return crc32({static_cast<const std::byte*>(all.data()),
                static_cast<std::size_t>(all.size()) * size_of(all.dtype())});
}

DType stored_dtype(KVStorage storage) {
  switch (storage) {
    case KVStorage::f16: return DType::f16;
    case KVStorage::bf16: return DType::bf16;
    case KVStorage::int8: return DType::u8;
    default: return DType::f32;
  }
}

// The views of the first `used` tokens of a page, with the names that follow "page.<i>.".
struct PageView {
  std::string_view name;
  MutableTensorView view;
};

std::vector<PageView> page_views(const KVState& state, PageIndex page, std::int64_t used) {
  const KVCacheConfig& c = state.config;
  const std::int64_t P = state.pages.page_tokens();
  const KVStrip strip = state.pages.strip(page, 0, 0);
  const DType dtype = stored_dtype(c.storage);
  const auto rows = [&](void* data, std::int64_t width) {
    return MutableTensorView(data, dtype, {c.layers, c.heads, used, width},
                             {c.heads * P * width, P * width, width, 1});
  };
  std::vector<PageView> views = {{"key", rows(strip.key, c.D)}, {"value", rows(strip.value, c.Dv)}};
  if (c.storage == KVStorage::int8) {
    const Dims shape{c.layers, c.heads, used}, strides{c.heads * P, P, 1};
    views.push_back({"key_scale", {strip.key_scale, DType::f32, shape, strides}});
    views.push_back({"value_scale", {strip.value_scale, DType::f32, shape, strides}});
  }
  return views;
}

// Tokens that a sequence has in its n-th page.
std::int64_t used_of(const KVState& state, const KVSequence& sequence, std::int64_t n) {
  const std::int64_t P = state.pages.page_tokens();
  return std::min(P, state.ring() ? sequence.length : sequence.length - n * P);
}

constexpr std::size_t kConfigNumbers = 11;

std::array<std::int64_t, kConfigNumbers> numbers_of(const KVState& state) {
  const KVCacheConfig& c = state.config;
  return {c.layers,
          c.heads,
          c.D,
          c.Dv,
          static_cast<std::int64_t>(c.kind),
          static_cast<std::int64_t>(c.storage),
          c.capacity,
          c.sequences,
          c.page_tokens,
          c.window,
          state.next};
}

// Reads a file, every tensor of which has the right checksum.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path), file_(path) {
    const auto& metadata = file_.metadata();
    const auto format = metadata.find("format");
    if (format == metadata.end() || format->second != kFormat) {
      refuse(path_, "format", kFormat, format == metadata.end() ? "none" : format->second);
    }
    const std::vector<std::int64_t> sums = integers("checksums");
    std::size_t n = 0;
    for (const std::string& name : ordered_names()) {
      if (n >= sums.size() || sums[n++] != checksum(file_.tensor(name))) {
        refuse(path_, name, "the elements that its checksum was made of", "others");
      }
    }
    if (n != sums.size()) {
      refuse(path_, "checksums", fmt::format("{} numbers", n), fmt::format("{}", sums.size()));
    }
  }

  KVCache read() {
    const std::vector<std::int64_t> config = integers("config");
    if (config.size() != kConfigNumbers || config[4] < 0 || config[4] > 2 || config[5] < 0 ||
        config[5] > 3 || config[10] < 0 || config[10] > std::int64_t{1} << 62) {
      refuse(path_, "config", fmt::format("the {} numbers of a cache", kConfigNumbers), "others");
    }
    KVCacheConfig c;
    c.layers = config[0];
    c.heads = config[1];
    c.D = config[2];
    c.Dv = config[3];
    c.kind = static_cast<KVCacheKind>(config[4]);
    c.storage = static_cast<KVStorage>(config[5]);
    c.capacity = config[6];
    c.sequences = config[7];
    c.page_tokens = config[8];
    c.window = config[9];
    auto state = std::make_shared<KVState>(check_kv_config(c));
    state->next = config[10];
    const std::vector<PageIndex> pages = read_pages(*state);
    read_sequences(*state, pages);
    return KVAccess::make(std::move(state));
  }

 private:
  std::vector<std::int64_t> integers(std::string_view name) const {
    const TensorView view = file_.tensor(name);
    if (view.dtype() != DType::i64) refuse(path_, name, "dtype i64", name_of(view.dtype()));
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(view.size()));
    if (!numbers.empty()) std::memcpy(numbers.data(), view.data(), numbers.size() * 8);
    return numbers;
  }

  // All but the checksums, in the order of them.
  std::vector<std::string> ordered_names() const {
    std::vector<std::string> names = {"config", "sequences", "table", "used"};
    for (std::size_t i = 0; i < integers("used").size(); ++i) {
      for (const std::string_view part : {"key", "value", "key_scale", "value_scale"}) {
        const std::string name = fmt::format("page.{}.{}", i, part);
        if (file_.contains(name)) names.push_back(name);
      }
    }
    if (names.size() + 1 != file_.names().size()) {
      refuse(path_, "names", "those of a cache", "others, or more");
    }
    return names;
  }

  std::vector<PageIndex> read_pages(KVState& state) {
    used_ = integers("used");
    if (static_cast<std::int64_t>(used_.size()) > state.pages.count()) {
      refuse(path_, "used", fmt::format("at most {} pages", state.pages.count()),
             fmt::format("{}", used_.size()));
    }
    std::vector<PageIndex> pages;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (used_[i] < 1 || used_[i] > state.pages.page_tokens()) {
        refuse(path_, fmt::format("used[{}]", i),
               fmt::format("1 to {} tokens", state.pages.page_tokens()),
               fmt::format("{}", used_[i]));
      }
      pages.push_back(state.pages.take());
      for (const auto& [part, view] : page_views(state, pages.back(), used_[i])) {
        const std::string name = fmt::format("page.{}.{}", i, part);
        const TensorView source = file_.tensor(name);
        if (!(source.shape() == view.shape()) || source.dtype() != view.dtype()) {
          refuse(path_, name, fmt::format("{} {}", name_of(view.dtype()), to_string(view.shape())),
                 fmt::format("{} {}", name_of(source.dtype()), to_string(source.shape())));
        }
        copy(source, view);
      }
    }
    return pages;
  }

  void read_sequences(KVState& state, const std::vector<PageIndex>& pages) {
    const std::vector<std::int64_t> rows = integers("sequences"), table = integers("table");
    const KVCacheConfig& c = state.config;
    const auto bad = [&](std::string_view what) {
      refuse(path_, "sequences", "ids, positions and pages that fit the config", what);
    };
    if (rows.size() % 3 != 0) bad("a row that is not whole");
    if (c.kind != KVCacheKind::paged && static_cast<std::int64_t>(rows.size() / 3) > c.sequences) {
      bad("more sequences than it allows");
    }
    std::size_t at = 0;
    std::vector<bool> owned(pages.size());
    for (std::size_t r = 0; r < rows.size(); r += 3) {
      KVSequence sequence;
      sequence.id = rows[r];
      sequence.first = rows[r + 1];
      sequence.length = rows[r + 2];
      sequence.written.resize(static_cast<std::size_t>(c.layers));
      if (rows[r] < 0 || rows[r] >= state.next || (r > 0 && rows[r] <= rows[r - 3])) bad("its ids");
      check_positions(state, sequence);
      for (std::int64_t n = 0; n < state.pages_for(sequence.length); ++n, ++at) {
        if (at >= table.size()) bad("a table that ends early");
        const auto page = static_cast<std::size_t>(table[at]);
        if (table[at] < 0 || page >= pages.size()) bad("a page that is not there");
        if (used_[page] < used_of(state, sequence, n)) bad("a page with too few tokens");
        if (owned[page]) state.pages.share(pages[page]);
        owned[page] = true;
        sequence.pages.push_back(pages[page]);
      }
      state.sequences.emplace(rows[r], std::move(sequence));
    }
    if (at != table.size()) bad("a table that goes on");
    if (std::find(owned.begin(), owned.end(), false) != owned.end()) bad("a page of no sequence");
  }

  void check_positions(const KVState& state, const KVSequence& sequence) const {
    const KVCacheConfig& c = state.config;
    const bool in_order = sequence.first >= 0 && sequence.first <= sequence.length &&
                          sequence.length <= std::int64_t{1} << 58;
    const bool fits =
        state.ring()
            ? sequence.length - sequence.first <= c.capacity
            : sequence.first == 0 &&
                  sequence.length <= (c.kind == KVCacheKind::contiguous
                                          ? c.capacity
                                          : state.pages.count() * state.pages.page_tokens());
    if (in_order && fits) return;
    refuse(path_, "sequences", "tokens that fit the capacity",
           fmt::format("{} to {}", sequence.first, sequence.length));
  }

  const std::filesystem::path path_;
  const SafetensorsFile file_;
  std::vector<std::int64_t> used_;
};

}  // namespace

void save_kv_cache(const std::filesystem::path& path, const KVCache& cache) {
  const KVState& state = KVAccess::state(cache);
  std::vector<std::int64_t> rows, table, used;
  std::vector<PageIndex> pages;
  std::map<PageIndex, std::int64_t> numbers;  // of the pages that are saved
  for (const auto& [id, sequence] : state.sequences) {
    rows.insert(rows.end(), {id, sequence.first, sequence.length});
    for (std::int64_t n = 0; n < state.pages_for(sequence.length); ++n) {
      const PageIndex page = sequence.pages[static_cast<std::size_t>(n)];
      const auto [at, is_new] = numbers.try_emplace(page, static_cast<std::int64_t>(pages.size()));
      if (is_new) {
        pages.push_back(page);
        used.push_back(0);
      }
      std::int64_t& most = used[static_cast<std::size_t>(at->second)];
      most = std::max(most, used_of(state, sequence, n));
      table.push_back(at->second);
    }
  }
  const auto config = numbers_of(state);
  const auto n = static_cast<std::int64_t>(rows.size() / 3);
  std::vector<NamedTensor> tensors = {{"config", TensorView::of(config)},
                                      {"sequences", TensorView::of(rows, {n, 3})},
                                      {"table", TensorView::of(table)},
                                      {"used", TensorView::of(used)}};
  for (std::size_t i = 0; i < pages.size(); ++i) {
    for (const auto& [part, view] : page_views(state, pages[i], used[i])) {
      tensors.push_back({fmt::format("page.{}.{}", i, part), view});
    }
  }
  std::vector<std::int64_t> sums;
  for (const NamedTensor& tensor : tensors) sums.push_back(checksum(tensor.view));
  tensors.push_back({"checksums", TensorView::of(sums)});
  save_safetensors(path, tensors, {{"format", std::string(kFormat)}});
}

KVCache load_kv_cache(const std::filesystem::path& path) { return Reader(path).read(); }

void restore_kv_cache(const std::filesystem::path& path, KVCache& cache) {
  KVCache loaded = load_kv_cache(path);
  if (!(loaded.config() == cache.config())) {
    refuse(path, "config", "that of the cache to be restored", "another one");
  }
  cache = std::move(loaded);
}

}  // namespace qkv

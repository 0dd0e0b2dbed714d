#include "qkv/npy.h"

#include "io/file_writer.h"
#include "io/input_file.h"
#include "io/npy_format.h"

namespace qkv {

FileTensor load_npy(const std::filesystem::path& path, FileAccess access) {
  const auto file = io::InputFile::open(path, access);
  const io::NpyLayout layout = io::parse_npy(file->bytes(), file->name());
  const std::byte* data = file->bytes().data() + layout.data_offset;
  return {TensorView(data, layout.dtype, layout.shape, layout.strides), file};
}

void save_npy(const std::filesystem::path& path, const TensorView& tensor) {
  const std::string preamble = io::npy_preamble(tensor, path.string());
  io::FileWriter out(path);
  out.write(io::as_bytes(preamble));
  out.write(tensor);
  out.commit();
}

}  // namespace qkv

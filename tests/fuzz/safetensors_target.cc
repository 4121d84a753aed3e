#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/safetensors.h"
#include "tests/fuzz/targets.h"

namespace cpshard::fuzz {
namespace {

// A file in memory, made once and refilled. Never closed: it lives as long as the process.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", 0)) { Must(descriptor_ >= 0, "memfd_create"); }
  std::string path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

  void Fill(absl::string_view bytes) {
    Must(ftruncate(descriptor_, 0) == 0, "ftruncate");
    const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), 0);
    Must(written == static_cast<ssize_t>(bytes.size()), "pwrite");
  }

 private:
  int descriptor_;
};

using ByName = std::map<std::string, const Tensor*>;

ByName Index(const std::vector<Tensor>& tensors) {
  ByName by_name;
  for (const Tensor& tensor : tensors) {
    Must(tensor.buffer.size() == static_cast<size_t>(NumBytes(tensor.spec)), "size of a tensor");
    Must(by_name.emplace(tensor.spec.name, &tensor).second, "a name is there once");
  }
  return by_name;
}

void MustBeSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  const ByName left = Index(a), right = Index(b);
  Must(left.size() == right.size(), "as many tensors as were written");
  for (const auto& [name, tensor] : left) {
    const auto other = right.find(name);
    Must(other != right.end(), "names survive");
    Must(tensor->spec == other->second->spec, "dtype and shape survive");
    Must(tensor->bytes() == other->second->bytes(), "bytes survive");
  }
}

}  // namespace

void SafetensorsTarget(absl::string_view input) {
  static auto& read = *new MemoryFile;
  static auto& written = *new MemoryFile;
  static auto& pool = *new BufferPool;
  read.Fill(input);
  auto file = SafetensorsFile::Open(read.path());
  if (!file.ok()) return;
  const auto tensors = file->ReadAll(pool);
  Must(tensors.ok(), "what Open accepts can be read");
  for (size_t i = 0; i < tensors->size(); ++i) {
    const auto one = file->Read(i, pool);
    Must(one.ok() && one->spec == (*tensors)[i].spec && one->bytes() == (*tensors)[i].bytes(),
         "Read and ReadAll agree");
  }

  Must(WriteSafetensors(written.path(), *tensors, file->metadata()).ok(), "a write succeeds");
  auto again = SafetensorsFile::Open(written.path());
  Must(again.ok(), "what was written opens");
  const auto back = again->ReadAll(pool);
  Must(back.ok(), "what was written can be read");
  MustBeSame(*tensors, *back);
  Must(again->metadata() == file->metadata(), "metadata survive");

  std::map<std::string, std::string> scalars = file->metadata();
  scalars.erase("format");
  Must(ScalarsToMetadata(ScalarsFromMetadata(file->metadata())) == scalars, "scalars survive");
  (void)ReadBatch(read.path(), {.max_tensors = 8, .max_batch_bytes = 4096}, pool);
}

}  // namespace cpshard::fuzz

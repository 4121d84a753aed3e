#include "client/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/plan/partition.h"
#include "core/plan/status_macros.h"
#include "proto/strict_json.h"

namespace cpshard {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr absl::string_view kFileDTypes[] = {"BOOL", "U8",  "I8",   "I16", "I32",
                                             "I64",  "F16", "BF16", "F32", "F64"};

absl::Status Corrupt(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a safetensors file: ", why));
}

std::optional<DType> DTypeFromFile(absl::string_view name) {
  for (DType dtype : kAllDTypes) {
    if (kFileDTypes[static_cast<int>(dtype)] == name) return dtype;
  }
  return std::nullopt;
}

absl::StatusOr<Json> ParseHeader(const std::string& path, const std::string& text) {
  CPSHARD_RETURN_IF_ERROR(
      CheckStrictJson(text, absl::StrCat("'", path, "' is not a safetensors file: its header")));
  Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Corrupt(path, "its header is not a JSON object");
  return header;
}

std::optional<std::vector<int64_t>> Integers(const Json& array) {
  if (!array.is_array()) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Json& item : array) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > uint64_t{1} << 62) {
      return std::nullopt;
    }
    integers.push_back(item.get<int64_t>());
  }
  return integers;
}

struct Located {
  TensorSpec spec;
  int64_t begin, end;
};

absl::StatusOr<Located> ParseTensor(const std::string& path, const std::string& name,
                                    const Json& entry) {
  const auto corrupt = [&](absl::string_view why) {
    return Corrupt(path, absl::StrCat("tensor '", name, "': ", why));
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return corrupt("its entry has not dtype, shape and data_offsets");
  }
  const std::string dtype_name = entry["dtype"];
  const std::optional<DType> dtype = DTypeFromFile(dtype_name);
  if (!dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "': tensor '", name, "' has dtype ", dtype_name,
                     "; supported are BOOL, U8, I8, I16, I32, I64, F16, BF16, F32 and F64"));
  }
  const auto shape = Integers(entry["shape"]);
  const auto offsets = Integers(entry["data_offsets"]);
  if (!shape || !offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return corrupt("its shape or data_offsets are not numbers of bytes");
  }
  int64_t bytes = ItemSize(*dtype);
  for (int64_t dim : *shape) {
    CPSHARD_ASSIGN_OR_RETURN(bytes, CheckedMultiply(bytes, dim, name));
  }
  if (bytes != (*offsets)[1] - (*offsets)[0]) {
    return corrupt(absl::StrCat(dtype_name, DimsString(*shape), " has ", bytes,
                                " bytes, its data_offsets span ", (*offsets)[1] - (*offsets)[0]));
  }
  return Located{{name, *dtype, *shape}, (*offsets)[0], (*offsets)[1]};
}

// The tensors must lie one after the other, from the first byte to the last.
absl::Status CheckNoGaps(const std::string& path, std::vector<Located>& tensors, int64_t size) {
  std::sort(tensors.begin(), tensors.end(), [](const Located& a, const Located& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  int64_t at = 0;
  for (const Located& tensor : tensors) {
    if (tensor.begin != at) {
      return Corrupt(path, absl::StrCat("tensor '", tensor.spec.name, "' begins at byte ",
                                        tensor.begin, ", expected ", at));
    }
    at = tensor.end;
  }
  if (at == size) return absl::OkStatus();
  return Corrupt(path, absl::StrCat("its tensors have ", at, " bytes, the file has ", size,
                                    at > size ? " (truncated?)" : ""));
}

// Checks the length that the file states and reads the header's text.
absl::StatusOr<std::string> ReadHeader(const std::string& path, std::ifstream& file,
                                       uint64_t size) {
  uint64_t header_size = 0;
  if (size < 8 || !file.read(reinterpret_cast<char*>(&header_size), 8)) {
    return Corrupt(path, absl::StrCat("it has ", size, " bytes; 8 are needed for the header"));
  }
  if (header_size > kMaxHeaderBytes || header_size > size - 8) {
    return Corrupt(path, absl::StrCat("its header would have ", header_size, " bytes of ", size));
  }
  std::string text(header_size, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(header_size))) {
    return Corrupt(path, "it cannot be read to the end");
  }
  return text;
}

absl::StatusOr<std::map<std::string, std::string>> ParseMetadata(const std::string& path,
                                                                 const Json& entry) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object()) return Corrupt(path, "__metadata__ is not an object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) return Corrupt(path, "__metadata__ holds what is not a string");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile result;
  result.path_ = path;
  result.file_.open(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = result.file_ ? std::streamoff{result.file_.tellg()} : -1;
  // A folder opens, but has no size.
  if (size < 0 || size == std::numeric_limits<std::streamoff>::max()) {
    return absl::NotFoundError(absl::StrCat("file '", path, "' cannot be read"));
  }
  result.file_.seekg(0);
  CPSHARD_ASSIGN_OR_RETURN(const std::string text, ReadHeader(path, result.file_, size));
  CPSHARD_ASSIGN_OR_RETURN(const Json header, ParseHeader(path, text));
  std::vector<Located> located;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      CPSHARD_ASSIGN_OR_RETURN(result.metadata_, ParseMetadata(path, entry));
      continue;
    }
    CPSHARD_ASSIGN_OR_RETURN(Located tensor, ParseTensor(path, name, entry));
    located.push_back(std::move(tensor));
  }
  result.body_ = 8 + static_cast<int64_t>(text.size());
  CPSHARD_RETURN_IF_ERROR(CheckNoGaps(path, located, size - result.body_));
  for (Located& tensor : located) {
    result.tensors_.push_back(std::move(tensor.spec));
    result.begins_.push_back(tensor.begin);
  }
  return result;
}

absl::StatusOr<Buffer> SafetensorsFile::ReadBytes(int64_t begin, int64_t end, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(Buffer bytes, pool.Allocate(end - begin));
  file_.clear();
  file_.seekg(body_ + begin);
  if (begin < end && !file_.read(reinterpret_cast<char*>(bytes.data()), end - begin)) {
    return Corrupt(path_, "it cannot be read to the end");
  }
  return bytes;
}

absl::StatusOr<std::vector<Tensor>> SafetensorsFile::ReadAll(BufferPool& pool) {
  std::vector<Tensor> tensors;
  if (tensors_.empty()) return tensors;
  CPSHARD_ASSIGN_OR_RETURN(const Buffer body,
                           ReadBytes(0, begins_.back() + NumBytes(tensors_.back()), pool));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors.push_back({tensors_[i], body.Slice(begins_[i], NumBytes(tensors_[i]))});
  }
  return tensors;
}

absl::StatusOr<Tensor> SafetensorsFile::Read(size_t index, BufferPool& pool) {
  const TensorSpec& spec = tensors_[index];
  CPSHARD_ASSIGN_OR_RETURN(Buffer bytes,
                           ReadBytes(begins_[index], begins_[index] + NumBytes(spec), pool));
  return Tensor{spec, std::move(bytes)};
}

absl::StatusOr<Tensor> SafetensorsFile::ReadElements(size_t index, int64_t first, int64_t count,
                                                     BufferPool& pool) {
  const TensorSpec& spec = tensors_[index];
  const int64_t item = ItemSize(spec.dtype);
  const int64_t begin = begins_[index] + first * item;
  CPSHARD_ASSIGN_OR_RETURN(Buffer bytes, ReadBytes(begin, begin + count * item, pool));
  return Tensor{{spec.name, spec.dtype, {count}}, std::move(bytes)};
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const Tensor*> ordered;
  for (const Tensor& tensor : tensors) ordered.push_back(&tensor);
  std::sort(ordered.begin(), ordered.end(), [](const Tensor* a, const Tensor* b) {
    return std::make_pair(-ItemSize(a->spec.dtype), a->spec.name) <
           std::make_pair(-ItemSize(b->spec.dtype), b->spec.name);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t at = 0;
  for (const Tensor* tensor : ordered) {
    const int64_t end = at + static_cast<int64_t>(tensor->buffer.size());
    header[tensor->spec.name] = {
        {"dtype", std::string(kFileDTypes[static_cast<int>(tensor->spec.dtype)])},
        {"shape", tensor->spec.dims},
        {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');  // the tensors begin 64-byte aligned
  const uint64_t header_size = text.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&header_size), 8);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const Tensor* tensor : ordered) {
    file.write(reinterpret_cast<const char*>(tensor->buffer.data()),
               static_cast<std::streamsize>(tensor->buffer.size()));
  }
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write '", path, "'"));
}

absl::StatusOr<Batch> ReadBatch(const std::string& path, const Limits& limits, BufferPool& pool) {
  CPSHARD_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  Batch batch;
  batch.scalars = ScalarsFromMetadata(file.metadata());
  CPSHARD_RETURN_IF_ERROR(ValidateSpec({file.tensors(), batch.scalars, std::nullopt}, limits));
  CPSHARD_ASSIGN_OR_RETURN(batch.tensors, file.ReadAll(pool));
  return batch;
}

std::map<std::string, std::string> ScalarsToMetadata(const std::vector<ScalarEntry>& scalars) {
  std::map<std::string, std::string> metadata;
  for (const ScalarEntry& scalar : scalars) {
    const std::string* text = std::get_if<std::string>(&scalar.value);
    metadata[scalar.name] =
        text != nullptr
            ? *text
            : std::visit([](const auto& value) { return Json(value).dump(); }, scalar.value);
  }
  return metadata;
}

std::vector<ScalarEntry> ScalarsFromMetadata(const std::map<std::string, std::string>& metadata) {
  std::vector<ScalarEntry> scalars;
  for (const auto& [name, text] : metadata) {
    if (name == "format") continue;
    Scalar value = text;
    // Only what JSON prints for an integer is one: "007" and "1.0" stay text.
    int64_t integer;
    if (text == "true" || text == "false") {
      value = text == "true";
    } else if (absl::SimpleAtoi(text, &integer) && absl::StrCat(integer) == text) {
      value = integer;
    }
    scalars.push_back({name, std::move(value)});
  }
  return scalars;
}

}  // namespace cpshard

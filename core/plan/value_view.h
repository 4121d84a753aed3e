// Values of streams, as a plan reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/dtype.h"
#include "core/plan/spec.h"

namespace cpshard {

// Values of a stream, read from where they lie, row-major. Copies are cheap but for dims; the bytes
// must outlive them.
class ValueView {
 public:
  ValueView() = default;
  // Precondition: `data` has Product(dims) elements of `dtype`, at any alignment.
  ValueView(DType dtype, std::vector<int64_t> dims, const std::byte* data)
      : dtype_(dtype), dims_(std::move(dims)), size_(Product(dims_)), data_(data) {}

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t size() const { return size_; }
  const std::byte* data() const { return data_; }
  // Preconditions: 0 <= index < size(); for the first a bool or integer dtype.
  int64_t operator[](int64_t index) const;
  double Number(int64_t index) const;

  // The same for `count` of them from `first` on, into out[0 ... count): what reads every token
  // reads so, since asking for the dtype at each of them costs more than reading it.
  // Precondition: 0 <= first, first + count <= size().
  void Read(int64_t first, int64_t count, int64_t* out) const;
  void ReadNumbers(int64_t first, int64_t count, double* out) const;

  std::vector<int64_t> ToVector() const;

 private:
  DType dtype_ = DType::kI64;
  std::vector<int64_t> dims_ = {0};
  int64_t size_ = 0;
  const std::byte* data_ = nullptr;
};

// The streams that Sharder::Needs named, by name.
using PlanValues = std::map<std::string, ValueView, std::less<>>;

}  // namespace cpshard

#include "core/oracle/tensors.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cpshard::oracle {
namespace {

int64_t Product(const std::vector<int64_t>& dims, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= dims[i];
  return product;
}

Element ElementAt(const Tensor& tensor, int64_t index) {
  const int64_t size = ElementSize(tensor.dtype);
  Element element = {};
  std::copy_n(tensor.bytes.begin() + index * size, size, element.begin());
  return element;
}

void Append(const Element& element, Tensor& tensor) {
  tensor.bytes.insert(tensor.bytes.end(), element.begin(),
                      element.begin() + ElementSize(tensor.dtype));
}

}  // namespace

std::optional<Tensor> CutAxis(const Tensor& tensor, int64_t axis, const Columns& columns,
                              const Fill& fill) {
  const int64_t outer = Product(tensor.dims, 0, axis);
  const int64_t inner = Product(tensor.dims, axis + 1, tensor.dims.size());
  const bool has_fill = columns.padded_len > columns.source_len;
  const Value* value = std::get_if<Value>(&fill);

  // Asked once and for the layout as a whole: every rank accepts or every rank refuses.
  std::optional<Element> constant;
  if (has_fill) {
    constant = value != nullptr ? FillElement(*value, tensor.dtype)
                                : ContinuedElement(Element{}, 1, tensor.dtype);
    if (!constant) return std::nullopt;
  }

  Tensor out{.dtype = tensor.dtype, .dims = tensor.dims, .bytes = {}};
  out.dims[axis] = static_cast<int64_t>(columns.local.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t column : columns.local) {
      for (int64_t i = 0; i < inner; ++i) {
        const auto at = [&](int64_t c) {
          return ElementAt(tensor, (o * columns.source_len + c) * inner + i);
        };
        if (column < columns.source_len) {
          Append(at(column), out);
        } else if (value != nullptr) {
          Append(*constant, out);
        } else {
          const int64_t last = columns.source_len - 1;
          Append(*ContinuedElement(at(last), column - last, tensor.dtype), out);
        }
      }
    }
  }
  return out;
}

Tensor RepeatedRow(const Tensor& row, int64_t rows) {
  Tensor out{.dtype = row.dtype, .dims = {rows, row.dims[1]}, .bytes = {}};
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t s = 0; s < row.dims[1]; ++s) Append(ElementAt(row, s), out);
  }
  return out;
}

Tensor CountingRows(int64_t rows, int64_t length) {
  Tensor out{.dtype = "i64", .dims = {rows, length}, .bytes = {}};
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t s = 0; s < length; ++s) Append(*FillElement(s, "i64"), out);
  }
  return out;
}

std::optional<Tensor> HeadZeroDiagonal(const Tensor& tensor) {
  const std::vector<int64_t>& dims = tensor.dims;
  if (dims[1] == 0) return std::nullopt;
  const int64_t diagonal = std::min(dims[2], dims[3]);
  const int64_t size = ElementSize(tensor.dtype);
  Tensor out{.dtype = tensor.dtype, .dims = {dims[0], diagonal}, .bytes = {}};
  for (int64_t b = 0; b < dims[0]; ++b) {
    for (int64_t i = 0; i < diagonal; ++i) {
      const int64_t index = b * dims[1] * dims[2] * dims[3] + i * dims[3] + i;
      const auto element = tensor.bytes.begin() + index * size;
      out.bytes.insert(out.bytes.end(), element, element + size);
    }
  }
  return out;
}

std::vector<int64_t> ZeroFlags(const Tensor& tensor) {
  std::vector<int64_t> flags;
  const int64_t count = Product(tensor.dims, 0, tensor.dims.size());
  for (int64_t i = 0; i < count; ++i) flags.push_back(IsZero(ElementAt(tensor, i), tensor.dtype));
  return flags;
}

std::optional<Tensor> PaddingMaskOf(const Tensor& attention_mask) {
  if (attention_mask.dims.size() != 4) {  // pad where it is zero, whatever the dtype
    return FromIntegers("bool", attention_mask.dims, ZeroFlags(attention_mask));
  }
  const bool is_bias = IsFloat(attention_mask.dtype);                   // attends with 0
  if (attention_mask.dtype != "bool" && !is_bias) return std::nullopt;  // D6
  const std::optional<Tensor> diagonal = HeadZeroDiagonal(attention_mask);
  if (!diagonal) return std::nullopt;
  std::vector<int64_t> flags = ZeroFlags(*diagonal);
  for (int64_t& flag : flags) flag = is_bias ? 1 - flag : flag;
  return FromIntegers("bool", diagonal->dims, flags);
}

Tensor TakeRows(const Tensor& tensor, int64_t first, int64_t count) {
  Tensor out{.dtype = tensor.dtype, .dims = tensor.dims, .bytes = {}};
  out.dims[0] = count;
  const int64_t inner = Product(tensor.dims, 1, tensor.dims.size());
  for (int64_t i = first * inner; i < (first + count) * inner; ++i) {
    Append(ElementAt(tensor, i), out);
  }
  return out;
}

Tensor Flattened(const Tensor& tensor) {
  const int64_t rest = Product(tensor.dims, 2, tensor.dims.size());
  Tensor out = tensor;
  out.dims = {tensor.dims[0] * tensor.dims[1]};
  if (rest != 1) out.dims.push_back(rest);
  return out;
}

Tensor AsInt64(const Tensor& tensor) { return FromIntegers("i64", tensor.dims, Integers(tensor)); }

std::vector<int64_t> Integers(const Tensor& tensor) {
  std::vector<int64_t> values;
  const int64_t count = Product(tensor.dims, 0, tensor.dims.size());
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(IntegerOf(ElementAt(tensor, i), tensor.dtype));
  }
  return values;
}

Tensor FromIntegers(const std::string& dtype, std::vector<int64_t> dims,
                    const std::vector<int64_t>& values) {
  Tensor out{.dtype = dtype, .dims = std::move(dims), .bytes = {}};
  for (const int64_t value : values) Append(*FillElement(value, dtype), out);
  return out;
}

Tensor Stacked(const std::vector<Tensor>& tensors) {
  Tensor out = tensors.front();
  out.dims.insert(out.dims.begin(), static_cast<int64_t>(tensors.size()));
  for (size_t i = 1; i < tensors.size(); ++i) {
    out.bytes.insert(out.bytes.end(), tensors[i].bytes.begin(), tensors[i].bytes.end());
  }
  return out;
}

}  // namespace cpshard::oracle

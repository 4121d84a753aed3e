#include "core/exec/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/plan/half.h"

namespace cpshard {
namespace {

// A C++ type per dtype. The 16-bit floats compute in float and are stored rounded.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) : bits(FloatToF16Bits(value)) {}
  explicit operator float() const { return F16BitsToFloat(bits); }
};
struct BFloat {
  uint16_t bits = 0;
  BFloat() = default;
  explicit BFloat(float value) : bits(FloatToBf16Bits(value)) {}
  explicit operator float() const { return Bf16BitsToFloat(bits); }
};
struct Bool {
  uint8_t value = 0;
};

template <typename T>
constexpr bool kIsSmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat>;

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void Store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// Calls fn with a value of the type that stands for `dtype`.
template <typename Fn>
void Visit(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::kBool:
      return fn(Bool{});
    case DType::kU8:
      return fn(uint8_t{});
    case DType::kI8:
      return fn(int8_t{});
    case DType::kI16:
      return fn(int16_t{});
    case DType::kI32:
      return fn(int32_t{});
    case DType::kI64:
      return fn(int64_t{});
    case DType::kF16:
      return fn(Half{});
    case DType::kBF16:
      return fn(BFloat{});
    case DType::kF32:
      return fn(float{});
    case DType::kF64:
      return fn(double{});
  }
}

// The arithmetic value of an element.
template <typename T>
auto Value(T element) {
  if constexpr (std::is_same_v<T, Bool>) {
    return static_cast<uint8_t>(element.value != 0);
  } else if constexpr (kIsSmallFloat<T>) {
    return static_cast<float>(element);
  } else {
    return element;
  }
}

template <typename To, typename From>
To Cast(From element) {
  const auto value = Value(element);
  if constexpr (std::is_same_v<To, Bool>) {
    return Bool{static_cast<uint8_t>(value != 0)};
  } else if constexpr (kIsSmallFloat<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<decltype(value)>) {
    // Out of range is undefined in C++. The reference has what x86-64 makes of it: the smallest
    // integer, of NaN too; so has this, on every processor.
    constexpr To kSmallest = std::numeric_limits<To>::min();
    const double whole = std::trunc(static_cast<double>(value));
    const double beyond = -static_cast<double>(kSmallest);  // one past the largest, of signed types
    const double largest = static_cast<double>(std::numeric_limits<To>::max());
    const bool fits = whole >= static_cast<double>(kSmallest) &&
                      (std::is_signed_v<To> ? whole < beyond : whole <= largest);
    return fits ? static_cast<To>(whole) : kSmallest;
  } else {
    return static_cast<To>(value);
  }
}

template <typename T>
bool Test(Op op, T element, int64_t operand) {
  const auto value = Value(element);
  switch (op) {
    case Op::kIsZero:
      return value == 0;
    case Op::kNotZero:
      return value != 0;
    case Op::kNotPositive:
      return value <= 0;
    default:
      return value == static_cast<decltype(value)>(operand) &&
             static_cast<double>(value) == static_cast<double>(operand);
  }
}

template <typename T>
T BitwiseNot(T element) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<uint8_t>(element.value == 0)};
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(~element);
  } else {
    return element;  // the plan refuses this op on a floating stream
  }
}

// dest[i] = fn(source element first + i) for the elements that the task names.
template <typename From, typename To, typename Fn>
void Transform(const DeriveTask& task, int64_t first, Fn fn) {
  if (!task.is_diagonal) {
    // Copies: a store through std::byte might change the task, as far as a compiler knows.
    const std::byte* const source = task.source + first * sizeof(From);
    std::byte* const dest = task.dest;
    const int64_t count = task.count;
    for (int64_t i = 0; i < count; ++i) {
      Store<To>(dest + i * sizeof(To), fn(Load<From>(source + i * sizeof(From))));
    }
    return;
  }
  const DeriveTask::Diagonal& shape = task.diagonal;
  const int64_t per_row = std::min(shape.queries, shape.keys);
  for (int64_t i = 0; i < task.count; ++i) {
    const int64_t row = (first + i) / per_row;
    const int64_t k = (first + i) % per_row;
    const int64_t at = row * shape.heads * shape.queries * shape.keys + k * shape.keys + k;
    Store<To>(task.dest + i * sizeof(To), fn(Load<From>(task.source + at * sizeof(From))));
  }
}

// The comparing ops. The test for zero, which makes masks, has a loop of its own.
template <typename From, typename To>
void Compare(const DeriveTask& task, int64_t first) {
  if constexpr (std::is_same_v<To, Bool>) {
    if (task.op == Op::kIsZero) {
      return Transform<From, To>(task, first, [](From x) { return Bool{Value(x) == 0}; });
    }
  }
  Transform<From, To>(task, first, [op = task.op, operand = task.operand](From x) {
    return Cast<To>(Bool{Test(op, x, operand)});
  });
}

// cast(op(x)) of the elements from `first` on; there is no cast before the op.
void ApplyOp(const DeriveTask& task, int64_t first) {
  Visit(task.source_dtype, [&]<typename From>(From) {
    Visit(task.dest_dtype, [&]<typename To>(To) {
      if (task.op == Op::kNone) {
        Transform<From, To>(task, first, [](From x) { return Cast<To>(x); });
      } else if (task.op == Op::kBitwiseNot) {
        Transform<From, To>(task, first, [](From x) { return Cast<To>(BitwiseNot(x)); });
      } else {
        Compare<From, To>(task, first);
      }
    });
  });
}

// The cast before the op, a block at a time: all pairs of dtypes twice instead of all triples.
void CastThenApply(const DeriveTask& task) {
  constexpr int64_t kBlock = 512;
  alignas(8) std::byte block[kBlock * 8];
  DeriveTask cast = task;
  cast.dest = block;
  cast.dest_dtype = *task.cast;
  cast.cast.reset();
  cast.op = Op::kNone;
  DeriveTask apply = task;
  apply.source = block;
  apply.source_dtype = *task.cast;
  apply.cast.reset();
  apply.is_diagonal = false;
  for (int64_t begin = 0; begin < task.count; begin += kBlock) {
    cast.count = apply.count = std::min(kBlock, task.count - begin);
    apply.dest = task.dest + begin * ItemSize(task.dest_dtype);
    ApplyOp(cast, begin);
    ApplyOp(apply, 0);
  }
}

}  // namespace

void RunDerive(const DeriveTask& task) {
  if (task.cast && *task.cast != task.source_dtype) return CastThenApply(task);
  ApplyOp(task, 0);
}

void FillElements(std::byte* dest, Element element, int64_t item_size, int64_t count) {
  const int64_t bytes = item_size * count;
  if (bytes == 0) return;
  std::byte pattern[8];
  std::memcpy(pattern, &element.bits, sizeof pattern);
  bool uniform = true;
  for (int64_t i = 1; i < item_size; ++i) uniform = uniform && pattern[i] == pattern[0];
  if (uniform) {
    std::memset(dest, static_cast<int>(pattern[0]), bytes);
    return;
  }
  std::memcpy(dest, pattern, item_size);
  for (int64_t done = item_size; done < bytes;) {  // double what stands there
    const int64_t take = std::min(done, bytes - done);
    std::memcpy(dest + done, dest, take);
    done += take;
  }
}

void ContinueElements(std::byte* dest, const std::byte* last, DType dtype, int64_t start,
                      int64_t length, int64_t inner) {
  Visit(dtype, [&]<typename T>(T) {
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t e = 0; e < inner; ++e) {
        const auto base = Value(Load<T>(last + e * sizeof(T)));
        T next{};
        if constexpr (std::is_integral_v<T>) {
          next = static_cast<T>(static_cast<uint64_t>(base) + static_cast<uint64_t>(start + i));
        } else if constexpr (kIsSmallFloat<T>) {
          next = T(base + static_cast<float>(T(static_cast<float>(start + i))));
        } else if constexpr (std::is_floating_point_v<T>) {
          next = base + static_cast<T>(start + i);
        }
        Store<T>(dest + (i * inner + e) * sizeof(T), next);
      }
    }
  });
}

void RampElements(std::byte* dest, DType dtype, int64_t start, int64_t step, int64_t length,
                  int64_t inner) {
  Visit(dtype, [&]<typename T>(T) {
    if (step == 0) {
      const T value = Cast<T>(start);
      Element element;
      std::memcpy(&element.bits, &value, sizeof(T));
      return FillElements(dest, element, sizeof(T), length * inner);
    }
    for (int64_t i = 0; i < length; ++i) {
      const T value = Cast<T>(start + step * i);
      if (inner == 1) {  // apart, for a loop over one byte becomes a call of memset
        Store<T>(dest + i * sizeof(T), value);
        continue;
      }
      for (int64_t e = 0; e < inner; ++e) Store<T>(dest + (i * inner + e) * sizeof(T), value);
    }
  });
}

}  // namespace cpshard

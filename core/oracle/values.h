// Single elements for the restatement: what a fill value is in a dtype, how a row of positions goes
// on, what counts as zero. The 16-bit formats are worked out with ordinary arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace cpshard::oracle {

using Value = std::variant<int64_t, double>;

// The bytes of one element come first, little endian; the rest is zero.
using Element = std::array<uint8_t, 8>;

// Bytes of one element; 0 for a name that is not one of the ten dtypes.
int64_t ElementSize(const std::string& dtype);

bool IsFloat(const std::string& dtype);

// -0.0 is zero, NaN is not.
bool IsZero(const Element& element, const std::string& dtype);

// The element as an integer: what a cast to int64 gives, floats truncated toward zero. A float that
// is not within int64, NaN too, becomes the smallest one, as the reference's does on x86-64.
int64_t IntegerOf(const Element& element, const std::string& dtype);

// A fill value in a stream's dtype (contract 2.2). nullopt = out of range, which for bool and u8 is
// every negative value (D5), or NaN or infinity for an integer.
std::optional<Element> FillElement(const Value& value, const std::string& dtype);

// The position `offset` places after `last` (contract 2.3): integers wrap in their dtype, f16 and
// bf16 add in float. nullopt for bool, which does not count.
std::optional<Element> ContinuedElement(const Element& last, int64_t offset,
                                        const std::string& dtype);

}  // namespace cpshard::oracle

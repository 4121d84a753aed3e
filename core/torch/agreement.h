// Agreement (environment CPSHARD_CHECK=1): before a collective the ranks tell each other what they
// are about to do. Ranks that disagree would hang, or mix up each other's bytes; so each of them
// raises instead, and says both. A rank that refuses its arguments tells the others too. Without
// the switch nothing is sent, and what cannot be seen on one rank is not found: lengths that differ
// between the ranks of gather_sequence, orders, dtypes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "core/torch/group.h"

namespace cpshard {

// Whether the environment asks for it. Read at every call, for it is cheap beside a collective.
bool AgreementIsChecked();

// A collective of a fixed size, whatever the ranks say: `what` and `numbers`, of which about 500
// characters and 60 numbers are shown and all are compared. ValueError on every rank, with the
// first two that differ, unless all ranks say the same. No group: nothing.
void Agree(at::IntArrayRef numbers, const std::string& what, const TokenGroup& group);

// Where agreement is checked: says that this rank refuses, in the place of what it would have been
// at. ValueError, unless all ranks refuse in the same words. The caller throws `error` then.
void TellRefusal(const c10::Error& error, const char* verb, const TokenGroup& group);

// check(), or its c10::Error once the other ranks know of it.
template <typename Check>
auto OrTellRefusal(const char* verb, const TokenGroup& group, Check check) {
  try {
    return check();
  } catch (const c10::Error& error) {
    TellRefusal(error, verb, group);
    throw;
  }
}

// A number that differs between tensors that differ in dtype, shape or contents, but for chance.
int64_t Fingerprint(const at::Tensor& tensor);

}  // namespace cpshard

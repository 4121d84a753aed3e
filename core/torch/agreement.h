// Agreement (environment CPSHARD_CHECK=1): before a collective the ranks tell each other what they
// are about to do. Ranks that disagree would hang, or mix up each other's bytes; so each of them
// raises instead, and says both. Without the switch nothing is sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "core/torch/group.h"

namespace cpshard {

// Whether the environment asks for it. Read at every call, for it is cheap beside a collective.
bool AgreementIsChecked();

// A collective of a fixed size, whatever the ranks say: `what` and `numbers`, of which about 500
// characters and 60 numbers are shown and all are compared. ValueError on every rank, with the
// first two that differ, unless all ranks say the same. No group: nothing.
void Agree(at::IntArrayRef numbers, const std::string& what, const Group& group);

// A number that differs between tensors that differ in dtype, shape or contents, but for chance.
int64_t Fingerprint(const at::Tensor& tensor);

}  // namespace cpshard

// Entries of a batch: names, dtypes, shapes and where the bytes lie. Used inside proto/ only.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"
#include "core/exec/shard.h"
#include "cpshard/v1/types.pb.h"

namespace cpshard {

using Entries = google::protobuf::RepeatedPtrField<v1::Entry>;

v1::DType EncodeDType(DType dtype);

void EncodeScalar(const ScalarEntry& scalar, v1::Entry* entry);

// Name, dtype and dims; offset and nbytes stay 0.
void EncodeSpec(const TensorSpec& spec, v1::Entry* entry);
void EncodeCut(const StreamCut& cut, v1::Entry* entry);
absl::StatusOr<StreamCut> DecodeCut(const v1::Entry& entry);

// Rounds up to the alignment of tensors in a body.
constexpr int64_t AlignBody(int64_t offset) { return (offset + 63) / 64 * 64; }

// Specs of all entries (cp_size is left absent). InvalidArgument: an unknown dtype, a scalar
// without a value, an entry that is both tensor and scalar.
absl::StatusOr<BatchSpec> DecodeSpecs(const Entries& entries);

// Whether tensors of one list may share bytes (a reply: whole streams travel once).
enum class Sharing { kNone, kAllowed };

// Windows on `body` for the tensors of `entries`, whose specs passed ValidateSpec.
// With `specs_alone`, a tensor with nbytes 0 but elements is left out.
// InvalidArgument: nbytes disagree with dims; an offset is misaligned, out of range or overlaps.
absl::StatusOr<Batch> DecodeTensors(const Entries& entries, const BatchSpec& spec,
                                    const Buffer& body, Sharing sharing, bool specs_alone);

}  // namespace cpshard

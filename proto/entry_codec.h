// Entries of a batch: names, dtypes, shapes and where the bytes lie. Used inside proto/ only.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/batch/batch.h"
#include "core/exec/shard.h"
#include "cpshard/v1/types.pb.h"
#include "proto/tensor_places.h"

namespace cpshard {

using Entries = google::protobuf::RepeatedPtrField<v1::Entry>;

v1::DType EncodeDType(DType dtype);

void EncodeScalar(const ScalarEntry& scalar, v1::Entry* entry);

// Name, dtype and dims; offset and nbytes stay 0.
void EncodeSpec(const TensorSpec& spec, v1::Entry* entry);
void EncodeCut(const StreamCut& cut, v1::Entry* entry);
absl::StatusOr<StreamCut> DecodeCut(const v1::Entry& entry);

// Specs of all entries (cp_size is left absent). InvalidArgument: an unknown dtype, a scalar
// without a value, an entry that is both tensor and scalar.
absl::StatusOr<BatchSpec> DecodeSpecs(const Entries& entries);

// Whether tensors of one list may share bytes (a reply: whole streams travel once).
enum class Sharing { kNone, kAllowed };

// Where the tensors of `entries`, whose specs passed ValidateSpec, lie in `body_size` bytes; one
// without bytes lies at 0. With `specs_alone`, nbytes 0 is right for a tensor with elements too.
// InvalidArgument: nbytes disagree with dims; an offset is misaligned, out of range or overlaps.
absl::StatusOr<std::vector<TensorPlace>> CheckPlaces(const Entries& entries, const BatchSpec& spec,
                                                     uint64_t body_size, Sharing sharing,
                                                     bool specs_alone);

// Windows on `body` at the places that CheckPlaces finds. With `specs_alone`, a tensor with nbytes
// 0 but elements is left out.
absl::StatusOr<Batch> DecodeTensors(const Entries& entries, const BatchSpec& spec,
                                    const Buffer& body, Sharing sharing, bool specs_alone);

}  // namespace cpshard

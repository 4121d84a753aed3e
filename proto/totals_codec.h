// Totals, loads and what else a reply says of a batch beside its layouts and shards. Used inside
// proto/ only.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/batch_totals.h"
#include "core/plan/explain.h"
#include "core/plan/pad_rule.h"
#include "cpshard/v1/service.pb.h"
#include "proto/replies.h"

namespace cpshard {

void EncodeTotals(const BatchTotals& totals, v1::Totals* message);
BatchTotals DecodeTotals(const v1::Totals& message);

void EncodeLoad(const RankLoad& load, v1::RankLoad* message);
RankLoad DecodeLoad(const v1::RankLoad& message);

void EncodeDocument(const DocumentCounts& document, v1::DocumentTotals* message);
DocumentCounts DecodeDocument(const v1::DocumentTotals& message);

// But for the choice, which the reply has anyway.
void EncodePadCosts(const PadCosts& costs, v1::PadCosts* message);
PadCosts DecodePadCosts(const v1::PadCosts& message);

void EncodeQuery(const PlaceQuery& query, v1::PlaceQuery* message);
// InvalidArgument: it asks for neither a token nor a slot.
absl::StatusOr<PlaceQuery> DecodeQuery(const v1::PlaceQuery& message);

void EncodePlaceAnswer(const Explanation& explanation, v1::PlaceAnswer* message);
Explanation DecodePlaceAnswer(const v1::PlaceAnswer& message);

}  // namespace cpshard

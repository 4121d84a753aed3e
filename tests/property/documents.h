// Packed documents for the samples: how they fill the rows, and how their lengths are sent.
#pragma once

#include <string>
#include <vector>

#include "tests/property/samples.h"

namespace cpshard::property {

constexpr int64_t kSentinel = -1000;  // fills unused places of the lengths

// One row of documents: as many real as padded lengths.
struct Row {
  std::vector<int64_t> real, padded;
};

// seq_lens and seq_lens_padded [rows, places] of `dtype`, sentinels after the lengths.
// Precondition: no row has more documents than there are places.
void SendLengths(const std::vector<Row>& rows, int64_t places, const std::string& dtype,
                 Sample& sample);

// Draws documents that fill the rows, in multiples of 2 * cp_size where cp_size > 1: empty ones,
// shorter ones, sentinels in any place, padded lengths or none, [n] for one row, and tails that
// only absorption fills; now and then, at cp_size <= 1, no lengths but padding ids as a suffix.
// Most samples are ones that a layout of packed documents accepts.
void PutDocuments(const Point& point, int64_t num_chunks, Rng& rng, Sample& sample);

}  // namespace cpshard::property

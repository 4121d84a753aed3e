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

// What a layout asks of documents that are packed into one stream.
struct DocumentRules {
  int64_t num_chunks = 1;
  int64_t block = 1;           // padded lengths are multiples of it
  bool fill = false;           // the last row too must be full, if only by absorption
  bool needs_lengths = false;  // padding ids will not do
  bool strict = false;         // no document is empty, and nothing is left to absorption
};

// Draws documents that fill the rows as the rules say: empty ones, shorter ones, sentinels in any
// place, padded lengths or none, [n] for one row, and tails that only absorption fills; now and
// then no lengths but padding ids as a suffix. Most samples are ones that the layout accepts.
void PutDocuments(const Point& point, const DocumentRules& rules, Rng& rng, Sample& sample);

// Draws documents for every row on its own: [B, n] of both lengths, or of the real ones alone, with
// sentinels at the same places of both, empty documents and rows that end early. A document without
// tokens has no padding. No row is without a document.
void PutRowDocuments(const Point& point, Rng& rng, Sample& sample);

}  // namespace cpshard::property

// What the layouts ask of a drawn sample: each function makes it one that the layout will mostly
// accept, with the streams that it alone reads.
#pragma once

#include <vector>

#include "core/plan/index_map.h"
#include "tests/property/samples.h"

namespace cpshard::property {

void AdjustDeepseekV4(const Point& point, Rng& rng, Sample& sample);
void AdjustDeepseekV41(const Point& point, Rng& rng, Sample& sample);
void AdjustGemma4(const Point& point, Rng& rng, Sample& sample);
void AdjustKimi(const Point& point, Rng& rng, Sample& sample);
void AdjustGlm5Next(const Point& point, Rng& rng, Sample& sample);
void AdjustQwen38(const Point& point, Rng& rng, Sample& sample);
void AdjustBlockDiagonal(const Point& point, Rng& rng, Sample& sample);
void AdjustMagiHf(const Point& point, Rng& rng, Sample& sample);
void AdjustMagiCustom(const Point& point, Rng& rng, Sample& sample);
void AdjustMimo(const Point& point, Rng& rng, Sample& sample);

// Some partition of S columns and a few of padding: runs in any order, ranks of any length. Depends
// on the point alone.
std::vector<std::vector<Run>> DrawPartition(const Point& point);

}  // namespace cpshard::property

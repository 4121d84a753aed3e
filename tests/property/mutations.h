// Small damage to a sample: what callers get wrong.
#pragma once

#include "tests/property/samples.h"

namespace cpshard::property {

// Does one thing, drawn from: a stream lost, shortened, lengthened, of another dtype, without an
// axis or with one more, with two axes swapped; both primaries; unsigned labels; 1-D positions; no
// or an unfit pad id; an extra that is absent, on no axis, with an unfit pad; packed metadata; no
// mesh. Often the sample stays valid: that is for the oracle to say.
void Mutate(Rng& rng, Sample& sample, Point& point);

// The same for the lengths of packed documents: one of them changed, swapped, moved to another row;
// real and padded ones confused, lost, transposed, of another dtype or number of axes.
void MutateDocuments(Rng& rng, Sample& sample);

}  // namespace cpshard::property

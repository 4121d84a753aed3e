#include "client/cli/demo/chaos_table.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace cpshard::demo {
namespace {

long long Int(int64_t number) { return number; }

constexpr char kLegend[] =
    "killed   with SIGKILL, when a rank had consumed that step; started again at\n"
    "         once, the rank with nothing but the state that it would have saved\n"
    "back     from the kill to the first word of the new process\n"
    "waited   the longest wait of any rank for a step, from the kill to the next\n"
    "verdict  EQUAL: every rank has had every step in order, each once, every element\n"
    "         as the restated contract says, with the digests of a run in one process\n";

}  // namespace

void PrintChaos(const ChaosWork& work, uint64_t seed) {
  std::printf(
      "chaos    %lld loaders and %lld ranks, %lld steps of %lld microbatches, %s;\n"
      "         --seed %llu makes the same plan again\n%s",
      Int(work.loaders), Int(kCpSize), Int(work.steps), Int(work.microbatches), work.layout.c_str(),
      static_cast<unsigned long long>(seed), kLegend);
}

void PrintChaosFigures(const ChaosWork& work, const ChaosFigures& figures) {
  std::printf("\n%-12s %-20s %8s %8s\n", "killed", "after", "back", "waited");
  for (const KillFigures& one : figures.kills) {
    std::printf("%-12s %-20s %6.2f s %6.2f s\n", NameOf(one.kill).c_str(),
                absl::StrCat("step ", one.kill.step, " of rank ", one.kill.gate).c_str(),
                absl::ToDoubleSeconds(one.back), absl::ToDoubleSeconds(one.longest));
  }
  std::printf("%-12s %lld ranks x %lld steps in %.1f s\n", "consumed", Int(kCpSize),
              Int(work.steps), absl::ToDoubleSeconds(figures.taken));
  std::printf("%-12s %s\n", "verdict",
              figures.difference.empty() ? "EQUAL"
                                         : absl::StrCat("DIFFERENT: ", figures.difference).c_str());
}

}  // namespace cpshard::demo

#include "client/cli/demo/table.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/demo/layouts.h"
#include "client/cli/demo/loader.h"

namespace cpshard::demo {
namespace {

long long Int(int64_t number) { return number; }

constexpr char kLegend[] =
    "streams  input_ids, labels, position_ids, padding_mask; no document lengths are sent, since\n"
    "         round_robin cannot keep documents apart and refuses a batch that has them\n"
    "loaders  processes, each with its share of the batches and a stream of its own, up to %lld\n"
    "         batches in flight\n"
    "EQUAL =  every batch was reported exactly once, every element of every shard is what the\n"
    "         restated contract says, and every stream, gathered and trimmed, is bit for bit what\n"
    "         was sent\n"
    "MB/s  =  of one loader, the median of all: bytes sent over the seconds of its own clock, "
    "which\n"
    "         runs from the first batch of a round to its last answer and stands still while the\n"
    "         loader packs and checks (M tokens/s likewise)\n";

}  // namespace

void PrintInput(const std::vector<Document>& documents, const PackOptions& pack) {
  std::printf("text     %zu documents, from %s to %s\n", documents.size(),
              documents.front().name.c_str(), documents.back().name.c_str());
  std::printf(
      "batches  byte tokens packed into rows [%lld, %lld], and the last batch again as [%lld, "
      "%lld]; "
      "cp_size %lld\n",
      Int(pack.rows), Int(pack.length), Int(pack.rows), Int(pack.last_length), Int(kCpSize));
  std::printf(kLegend, Int(kMaxInFlight));
}

void PrintServer(const ServerInfo& info, const std::string& address) {
  std::printf("server   cpshardd %s at %s, executor %s\n", info.version.c_str(), address.c_str(),
              info.executor.c_str());
}

void PrintHeading() {
  std::printf("\n%-12s %8s %10s %9s %8s %17s %11s   %s\n", "layout", "batches", "tokens", "padding",
              "loaders", "per loader: MB/s", "M tokens/s", "tokens per rank");
}

void PrintRow(const std::string& layout, int64_t loaders, const Figures& figures) {
  const double columns = static_cast<double>(figures.columns);
  const double pads = columns - static_cast<double>(figures.real_tokens);
  std::printf("%-12s %8lld %10lld %7.1f %% %8lld %17.0f %11.2f   %s\n", layout.c_str(),
              Int(figures.batches), Int(figures.real_tokens),
              columns > 0 ? 100.0 * pads / columns : 0.0, Int(loaders),
              figures.bytes_per_second / 1e6, figures.tokens_per_second / 1e6,
              absl::StrJoin(figures.tokens_of_rank, " ").c_str());
  std::printf("%-12s %s\n", "",
              figures.difference.empty() ? "EQUAL"
                                         : absl::StrCat("DIFFERENT: ", figures.difference).c_str());
}

Progress::Progress(std::string layout)
    : layout_(std::move(layout)), on_(isatty(STDERR_FILENO) != 0) {}

void Progress::Show(const Tally& tally) const {
  if (!on_) return;
  std::fprintf(stderr, "\r  %-12s %lld of %lld batches", layout_.c_str(), Int(tally.reported()),
               Int(tally.batches()));
}

void Progress::Clear() const {
  if (on_) std::fprintf(stderr, "\r\033[K");
}

}  // namespace cpshard::demo

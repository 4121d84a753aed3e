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
    "loaders  processes, each with its share of the batches and a stream of its own,\n"
    "         up to %lld batches in flight\n"
    "MB/s     of one loader, the median of all: bytes sent over the seconds of its own\n"
    "         clock, which runs from the first batch of a round to its last answer and\n"
    "         stands still while the loader packs and checks (M tokens/s likewise)\n"
    "streams  EQUAL: gathered and trimmed, bit for bit what was sent; in thd the mask,\n"
    "         the indices and the lengths are compared with what the packing knows\n"
    "verdict  EQUAL: so are all streams, every element of every shard is what the\n"
    "         restated contract says, and every batch was reported exactly once\n";

void PrintBatches(const DemoLayout& layout) {
  const PackOptions& pack = layout.pack;
  std::printf("         %-12s [%lld, %lld], the last batch again as [%lld, %lld]\n",
              layout.name.c_str(), Int(pack.rows), Int(pack.length), Int(pack.rows),
              Int(pack.last_length));
  if (!pack.document_multiple) return;
  std::printf("         %-12s every document padded to a multiple of %lld; lengths are sent\n", "",
              Int(*pack.document_multiple));
}

void PrintStreams(const Figures& figures) {
  for (const StreamFigure& stream : figures.streams) {
    const bool equal = stream.equal == figures.batches;
    std::printf(
        "%-12s %-19s %s\n", "", stream.name.c_str(),
        equal ? "EQUAL"
              : absl::StrCat("equal in ", stream.equal, " batches of ", figures.batches).c_str());
  }
}

}  // namespace

void PrintInput(const std::vector<Document>& documents, const std::vector<DemoLayout>& layouts) {
  std::printf("text     %zu documents, from %s\n         to %s\n", documents.size(),
              documents.front().name.c_str(), documents.back().name.c_str());
  std::printf("batches  byte tokens packed into rows for cp_size %lld\n", Int(kCpSize));
  for (const DemoLayout& layout : layouts) PrintBatches(layout);
  std::printf(kLegend, Int(kMaxInFlight));
}

void PrintServer(const ServerInfo& info, const std::string& address) {
  std::printf("server   cpshardd %s at %s, executor %s\n", info.version.c_str(), address.c_str(),
              info.executor.c_str());
}

void PrintHeading() {
  std::printf("\n%-12s %7s %10s %8s %8s %17s %11s\n", "layout", "batches", "tokens", "padding",
              "loaders", "per loader: MB/s", "M tokens/s");
}

void PrintLayout(const std::string& layout, int64_t loaders, const Figures& figures) {
  const double columns = static_cast<double>(figures.columns);
  const double pads = columns - static_cast<double>(figures.real_tokens);
  std::printf("%-12s %7lld %10lld %6.1f %% %8lld %17.0f %11.2f\n", layout.c_str(),
              Int(figures.batches), Int(figures.real_tokens),
              columns > 0 ? 100.0 * pads / columns : 0.0, Int(loaders),
              figures.bytes_per_second / 1e6, figures.tokens_per_second / 1e6);
  std::printf("%-12s tokens per rank     %s\n", "",
              absl::StrJoin(figures.tokens_of_rank, " ").c_str());
  PrintStreams(figures);
  std::printf("%-12s verdict             %s\n", "",
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

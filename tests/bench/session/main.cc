// cpshard_session_bench: delivery against what it stands beside, measured in the same run. It
// prints; it never fails on a number.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/session/delivery_rows.h"
#include "tests/bench/session/traffic.h"
#include "tests/bench/stream/subject_server.h"

namespace cpshard::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Effort {
  int64_t rounds = 6;
  int64_t steps = 100'000;  // of the state machine
  int64_t batches = 48;     // of a round
  int64_t calls = 300;      // of a round
};

Json Spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {{"median", values[values.size() / 2]}, {"min", values.front()}, {"max", values.back()}};
}

std::string Text(const Json& spread) {
  return absl::StrFormat("%.3g (%.3g - %.3g)", spread["median"].get<double>(),
                         spread["min"].get<double>(), spread["max"].get<double>());
}

void Print(const Json& row) {
  std::string text = absl::StrFormat("%-14s %-44s %s %s", row["group"].get<std::string>(),
                                     row["name"].get<std::string>(), Text(row["value"]),
                                     row["unit"].get<std::string>());
  if (!row["of_anchor"].is_null()) {
    absl::StrAppend(&text, "   ", Text(row["of_anchor"]), " of ", row["anchor"].get<std::string>());
  }
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

Json Row(const std::string& group, const std::string& name, const std::string& unit,
         const std::vector<double>& values, Json goals, const std::string& anchor = "",
         const std::vector<double>& ratios = {}) {
  Json row = {{"group", group},           {"name", name},     {"unit", unit},
              {"value", Spread(values)},  {"anchor", anchor}, {"of_anchor", nullptr},
              {"goals", std::move(goals)}};
  if (!ratios.empty()) row["of_anchor"] = Spread(ratios);
  Print(row);
  return row;
}

void AddStateMachine(const Effort& effort, std::vector<Json>& rows) {
  std::vector<double> rates, growth;
  for (int64_t round = 0; round < effort.rounds; ++round) {
    const DeliveryRates measured = MeasureDelivery(effort.steps);
    rates.push_back(measured.operations_per_second / 1e6);
    growth.push_back(static_cast<double>(measured.heap_growth) / 1e6);
  }
  rows.push_back(Row("state machine", absl::StrCat(kRanks, " ranks, ", kLoaders, " loaders"),
                     "M operations/s", rates, {{{"figure", "value"}, {"at_least", 1.0}}}));
  rows.push_back(Row("state machine", absl::StrCat("heap over ", effort.steps, " steps"), "MB",
                     growth, {{{"figure", "value"}, {"at_most", 0.1}}}));
}

void AddTraffic(const std::string& where, const std::string& address, const Effort& effort,
                std::vector<Json>& rows) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  const auto session = SessionTraffic(address, kBytes);
  const auto stateless = StatelessTraffic(address, kBytes);
  std::vector<double> rates, ratios;
  for (int64_t round = 0; round < effort.rounds; ++round) {
    const double with = session->Seconds(effort.batches);
    const double without = stateless->Seconds(effort.batches);
    rates.push_back(2.0 * kBytes * static_cast<double>(effort.batches) / with / 1e9);
    ratios.push_back(without / with);
  }
  rows.push_back(Row("16 MB, " + where, absl::StrCat(kRanks, " ranks, ", kLoaders, " loaders"),
                     "GB/s in and out", rates, {{{"figure", "of_anchor"}, {"at_least", 0.9}}},
                     "ShardBatches", ratios));
}

void AddPulls(const std::string& where, const std::string& address, const Effort& effort,
              std::vector<Json>& rows) {
  const auto pulls = ReadyPulls(address, int64_t{64} << 10);
  const auto unary = UnaryCalls(address);
  std::vector<double> times, ratios;
  for (int64_t round = 0; round < effort.rounds; ++round) {
    const double pull = pulls->Median(effort.calls);
    const double call = unary->Median(effort.calls);
    times.push_back(1e6 * pull);
    ratios.push_back(pull / call);
  }
  rows.push_back(Row("64 KB, " + where, "pull of a ready shard, p50", "us", times,
                     {{{"figure", "of_anchor"}, {"at_most", 3.0}}}, "a unary call", ratios));
}

int Main(int argc, char** argv) {
  CLI::App app("Sessions against stateless calls, measured in the same run");
  Effort effort;
  std::string json;
  app.add_option("--json", json, "write the table here as JSON");
  app.add_option("--rounds", effort.rounds, "measured rounds per row")->check(CLI::PositiveNumber);
  app.add_option("--batches", effort.batches, "of a round")->check(CLI::PositiveNumber);
  app.add_option("--calls", effort.calls, "of a round")->check(CLI::PositiveNumber);
  app.add_option("--steps", effort.steps, "of the state machine")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  // As cpshard does: received bytes are freed and allocated again all the time.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_TOP_PAD, 64 << 20);
  const SubjectServer server(int64_t{1} << 30);  // forks: before there are threads
  std::vector<Json> rows;
  AddStateMachine(effort, rows);
  for (const auto& [where, address] :
       {std::pair<std::string, std::string>{"TCP", server.tcp()}, {"unix", server.unix_path()}}) {
    AddTraffic(where, address, effort, rows);
    AddPulls(where, address, effort, rows);
  }
  if (json.empty()) return 0;
  std::ofstream file(json);
  file << Json{{"rows", rows}}.dump(1) << "\n";
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "error: cannot write %s\n", json.c_str());
  return 1;
}

}  // namespace
}  // namespace cpshard::bench

int main(int argc, char** argv) { return cpshard::bench::Main(argc, argv); }

#include "tests/bench/stream/report.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cpshard::bench {
namespace {

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

Stats StatsOfField(const std::vector<Sample>& samples, double Sample::*field) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*field);
  return StatsOf(std::move(values));
}

std::optional<Stats> Ratio(const std::vector<Contender>& contenders, size_t row, Anchor anchor,
                           double Sample::*field, const std::vector<std::vector<Sample>>& samples) {
  for (size_t i = 0; i < contenders.size(); ++i) {
    if (contenders[i].anchor != anchor || i == row) continue;
    std::vector<double> ratios;
    for (size_t round = 0; round < samples[i].size(); ++round) {
      ratios.push_back(samples[row][round].*field / samples[i][round].*field);
    }
    return StatsOf(std::move(ratios));
  }
  return std::nullopt;
}

std::string Text(const std::optional<Stats>& stats) {
  if (!stats) return "";
  return absl::StrFormat("%.2f (%.2f-%.2f)", stats->median, stats->min, stats->max);
}

nlohmann::json Json(const std::optional<Stats>& stats) {
  if (!stats) return nullptr;
  return {{"median", stats->median}, {"min", stats->min}, {"max", stats->max}};
}

// Goals of cpshardd over TCP.
struct StreamGoal {
  const char* figure;  // as ToJson names it
  const char* text;    // how PrintGoals does
  bool at_least;       // else at most
  double number;
  int64_t min_bytes, max_bytes;  // of the batches that it is for
  int64_t in_flight;             // 0: any
  const char* batches;
};

constexpr int64_t kSmall = 1'000'000, kLarge = 100'000'000,
                  kAny = std::numeric_limits<int64_t>::max();
constexpr StreamGoal kGoals[] = {
    {"of_raw_touch", "of R_touch", true, 0.75, kSmall, kAny, 0, "16 MB and more"},
    {"of_raw", "of R", true, 0.60, kSmall, kAny, 0, "16 MB and more"},
    {"of_naive", "of N", true, 5, kSmall, kLarge, 0, "16 MB"},
    {"of_naive", "of N", true, 8, kLarge, kAny, 0, "128 MB"},
    {"of_memcpy", "of memcpy", true, 0.33, kSmall, kAny, 0, "16 MB and more"},
    {"cpu_seconds_per_gb", "CPU s/GB", false, 0.50, kSmall, kAny, 0, "16 MB and more"},
    {"cpu_of_raw", "of R's CPU s/GB", false, 1.6, kSmall, kAny, 0, "16 MB and more"},
    {"client_minor_faults_per_gb", "faults/GB of the client", false, 1000, kSmall, kAny, 0,
     "16 MB and more"},
    {"server_minor_faults_per_gb", "faults/GB of the server", false, 1000, kSmall, kAny, 0,
     "16 MB and more"},
    {"gb_per_second", "GB/s", true, 1.5, 0, kSmall, 8, "64 KB, 8 in flight"},
    {"of_naive", "of N", true, 4, 0, kSmall, 8, "64 KB, 8 in flight"},
};

bool IsFor(const StreamGoal& goal, const StreamRow& row) {
  const int64_t bytes = row.shape.bytes();
  return row.over_tcp && bytes >= goal.min_bytes && bytes < goal.max_bytes &&
         (goal.in_flight == 0 || goal.in_flight == row.in_flight);
}

nlohmann::json GoalsOf(const StreamRow& row) {
  nlohmann::json list = nlohmann::json::array();
  for (const StreamGoal& goal : kGoals) {
    if (!IsFor(goal, row)) continue;
    list.push_back(
        {{"figure", goal.figure}, {goal.at_least ? "at_least" : "at_most", goal.number}});
  }
  return list;
}

void PrintLine(const std::array<std::string, 10>& cells) {
  constexpr std::array<int, 10> kWidths = {8, 27, 19, 16, 19, 15, 18, 18, 19, 18};
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    absl::StrAppendFormat(&line, "| %-*s ", kWidths[i], cells[i]);
  }
  std::puts(absl::StrCat(line, "|").c_str());
  std::fflush(stdout);
}

}  // namespace

Host DescribeHost(const Loopback& loopback) {
  Host host{ProcessorName(), sysconf(_SC_NPROCESSORS_ONLN), 0, loopback};
  std::ifstream("/proc/loadavg") >> host.load;
  return host;
}

std::vector<StreamRow> MakeRows(const std::vector<Contender>& contenders, const TokenShape& shape,
                                const std::vector<std::vector<Sample>>& samples) {
  std::vector<StreamRow> rows;
  for (size_t i = 0; i < contenders.size(); ++i) {
    StreamRow row{shape, contenders[i].name};
    row.over_tcp = contenders[i].over_tcp;
    row.in_flight = contenders[i].in_flight;
    row.gb_per_second = StatsOfField(samples[i], &Sample::gb_per_second);
    row.cpu_seconds_per_gb = StatsOfField(samples[i], &Sample::cpu_seconds_per_gb);
    row.client_faults_per_gb = StatsOfField(samples[i], &Sample::client_faults_per_gb);
    row.server_faults_per_gb = StatsOfField(samples[i], &Sample::server_faults_per_gb);
    row.of_touch = Ratio(contenders, i, Anchor::kRawTouch, &Sample::gb_per_second, samples);
    row.of_raw = Ratio(contenders, i, Anchor::kRaw, &Sample::gb_per_second, samples);
    row.of_naive = Ratio(contenders, i, Anchor::kNaive, &Sample::gb_per_second, samples);
    row.of_memcpy = Ratio(contenders, i, Anchor::kMemcpy, &Sample::gb_per_second, samples);
    row.cpu_of_raw = Ratio(contenders, i, Anchor::kRaw, &Sample::cpu_seconds_per_gb, samples);
    rows.push_back(std::move(row));
  }
  return rows;
}

void PrintHost(const Host& host) {
  absl::PrintF("%s, %d cores, load %.2f before the run; all TCP rows: %s, %s\n", host.processor,
               host.cores, host.load, host.loopback.congestion_control,
               host.loopback.is_private ? "in a network namespace of their own"
                                        : "on the host's own loopback");
  absl::PrintF(
      "batches of 25 bytes a token, cp_size %d, round robin, all shards back; GB/s: batch and "
      "shards (memcpy: once) over wall time; CPU: user and system of both processes; faults: "
      "minor, client + server; median (min-max), ratios taken inside a round\n",
      kCpSize);
}

void PrintHead() {
  PrintLine({"batch", "what", "GB/s", "CPU s/GB", "CPU over R's", "faults/GB", "of R_touch", "of R",
             "of N", "of memcpy"});
  PrintLine({"---", "---", "---", "---", "---", "---", "---", "---", "---", "---"});
}

void Print(const std::vector<StreamRow>& rows) {
  for (const StreamRow& row : rows) {
    const double megabytes = 1e-6 * static_cast<double>(row.shape.bytes());
    PrintLine({absl::StrFormat("%.*f MB", megabytes < 1 ? 3 : 1, megabytes), row.name,
               Text(row.gb_per_second), Text(row.cpu_seconds_per_gb), Text(row.cpu_of_raw),
               absl::StrFormat("%.0f + %.0f", row.client_faults_per_gb.median,
                               row.server_faults_per_gb.median),
               Text(row.of_touch), Text(row.of_raw), Text(row.of_naive), Text(row.of_memcpy)});
  }
}

void PrintGoals() {
  std::puts("goals of cpshardd over TCP:");
  for (const StreamGoal& goal : kGoals) {
    absl::PrintF("  %s %g %s (%s)\n", goal.at_least ? ">=" : "<=", goal.number, goal.text,
                 goal.batches);
  }
}

std::string ToJson(const Host& host, const std::vector<StreamRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const StreamRow& row : rows) {
    list.push_back({{"batch_bytes", row.shape.bytes()},
                    {"dims", {row.shape.rows, row.shape.columns}},
                    {"name", row.name},
                    {"gb_per_second", Json(row.gb_per_second)},
                    {"cpu_seconds_per_gb", Json(row.cpu_seconds_per_gb)},
                    {"client_minor_faults_per_gb", Json(row.client_faults_per_gb)},
                    {"server_minor_faults_per_gb", Json(row.server_faults_per_gb)},
                    {"cpu_of_raw", Json(row.cpu_of_raw)},
                    {"of_raw_touch", Json(row.of_touch)},
                    {"of_raw", Json(row.of_raw)},
                    {"of_naive", Json(row.of_naive)},
                    {"of_memcpy", Json(row.of_memcpy)},
                    {"goals", GoalsOf(row)}});
  }
  const nlohmann::json about = {{"processor", host.processor},
                                {"cores", host.cores},
                                {"load_before", host.load},
                                {"private_network", host.loopback.is_private},
                                {"tcp_congestion_control", host.loopback.congestion_control}};
  return nlohmann::json{{"host", about}, {"rows", std::move(list)}}.dump(2) + "\n";
}

}  // namespace cpshard::bench

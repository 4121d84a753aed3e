// gpu_check --traffic: counts what the warps of the measured jobs do to memory; needs no device.
// gpu_check [--json FILE] [--no-speed] [--rehearse]: the tests of this program on the first GPU,
// then how fast it is. Exit status 0: all passed; 1: a test failed; 77: no device, with the reason.
// Speed never fails: a row says whether its goal is met.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/exec/cuda.h"
#include "tests/gpu/rows.h"
#include "tests/gpu/traffic.h"

namespace cpshard {
namespace {

struct Item {
  std::string name, verdict, reason;
};

class Collector : public testing::EmptyTestEventListener {
 public:
  explicit Collector(std::vector<Item>& items) : items_(items) {}

 private:
  void OnTestEnd(const testing::TestInfo& info) override {
    const testing::TestResult& result = *info.result();
    Item item{absl::StrCat(info.test_suite_name(), ".", info.name()),
              result.Passed() ? "PASS" : "FAIL", ""};
    for (int i = 0; i < result.total_part_count() && item.reason.empty(); ++i) {
      item.reason = result.GetTestPartResult(i).message();
    }
    items_.push_back(item);
    std::printf("%s  %s\n", item.verdict.c_str(), item.name.c_str());
    if (!item.reason.empty()) std::printf("      %s\n", item.reason.c_str());
  }

  std::vector<Item>& items_;
};

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return quoted + "\"";
}

void WriteJson(const std::string& path, const std::string& device, const std::vector<Item>& items,
               const std::vector<GpuRow>& rows) {
  std::ofstream out(path);
  out << "{\"device\": " << Quoted(device) << ",\n \"items\": [";
  for (size_t i = 0; i < items.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n") << "  {\"name\": " << Quoted(items[i].name)
        << ", \"verdict\": " << Quoted(items[i].verdict)
        << ", \"reason\": " << Quoted(items[i].reason) << "}";
  }
  out << "],\n \"rows\": [";
  for (size_t i = 0; i < rows.size(); ++i) {
    out << (i == 0 ? "\n" : ",\n") << "  {\"what\": " << Quoted(rows[i].what)
        << ", \"gb_per_s\": " << rows[i].gb_per_s
        << ", \"anchor_gb_per_s\": " << rows[i].anchor_gb_per_s << ", \"goal\": " << rows[i].goal
        << "}";
  }
  out << "]}\n";
}

std::string Described(const CudaDevice& device) {
  return absl::StrCat(device.name, ", compute capability ", device.major, ".", device.minor, ", ",
                      device.memory_bytes >> 20, " MB");
}

int Check(const std::string& json, bool with_speed, const GpuRowOptions& options) {
  std::vector<Item> items;
  std::vector<GpuRow> rows;
  const auto devices = CudaDevices();
  if (!devices.ok()) {
    items.push_back({"all", "SKIP", std::string(devices.status().message())});
    std::printf("SKIP  all: %s\n", items.back().reason.c_str());
    if (!json.empty()) WriteJson(json, "none", items, rows);
    return 77;
  }
  const std::string device = Described(devices->front());
  std::printf("%s\n", device.c_str());
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Collector(items));
  bool failed = RUN_ALL_TESTS() != 0;
  if (with_speed) {
    const auto measured = MeasureGpu(options);
    items.push_back(
        {"speed", measured.ok() ? "PASS" : "FAIL", std::string(measured.status().message())});
    failed = failed || !measured.ok();
    if (measured.ok()) rows = *measured;
    std::printf("%s  speed %s\n", items.back().verdict.c_str(), items.back().reason.c_str());
    for (const GpuRow& row : rows) {
      std::printf("%-70s %8.1f GB/s %6.2f x a copy %s\n", row.what.c_str(), row.gb_per_s,
                  row.ratio(),
                  row.goal == 0             ? ""
                  : row.ratio() >= row.goal ? "goal met"
                                            : "goal NOT MET");
    }
  }
  if (!json.empty()) WriteJson(json, device, items, rows);
  return failed ? 1 : 0;
}

int PrintTraffic(int64_t shrink) {
  const auto rows = CountTraffic(shrink);
  if (!rows.ok()) {
    std::cerr << rows.status() << "\n";
    return 1;
  }
  std::printf(
      "per byte of shard: read, written; sectors read, written; table | sectors per access\n");
  for (const TrafficRow& row : *rows) {
    std::printf("%-46s %5.3f %5.3f; %5.3f %5.3f; %5.3f | %4.1f %4.1f\n", row.what.c_str(), row.read,
                row.written, row.read_sectors, row.written_sectors, row.table,
                row.read_transactions, row.written_transactions);
  }
  return 0;
}

}  // namespace
}  // namespace cpshard

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string json;
  bool with_speed = true, traffic = false;
  cpshard::GpuRowOptions options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--no-speed") == 0) {
      with_speed = false;
    } else if (std::strcmp(argv[i], "--traffic") == 0) {
      traffic = true;
    } else if (std::strcmp(argv[i], "--rehearse") == 0) {
      options = {.shrink = 64, .rounds = 1};
    } else {
      std::cerr << "usage: gpu_check [--json FILE] [--no-speed] [--rehearse] [--traffic]\n";
      return 64;
    }
  }
  if (traffic) return cpshard::PrintTraffic(options.shrink);
  return cpshard::Check(json, with_speed, options);
}

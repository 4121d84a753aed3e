// gpu_check [--json FILE] [--parts LIST] [--corpus FOLDER] [--rehearse]: how the executor for a GPU
// does on the first one. LIST is some of suites,corpus,speed,lost, which are done in that order:
// the tests of this program; the golden corpus; how fast it is; a process that loses the device.
// --rehearse: small jobs without goals. Exit status 0: all passed; 1: a test failed or a goal is
// not met; 77: no device, with the reason.
// gpu_check --lose-device: loses it, see lost.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/exec/cuda.h"
#include "core/exec/cuda_error.h"
#include "tests/gpu/corpus.h"
#include "tests/gpu/findings.h"
#include "tests/gpu/lost.h"
#include "tests/gpu/rows.h"

namespace cpshard {
namespace {

// One line a suite, and one a test that did not pass.
class Collector : public testing::EmptyTestEventListener {
 public:
  explicit Collector(Findings& findings) : findings_(findings) {}

 private:
  void OnTestEnd(const testing::TestInfo& info) override {
    const testing::TestResult& result = *info.result();
    Item item{absl::StrCat(info.test_suite_name(), ".", info.name()),
              result.Passed()    ? "PASS"
              : result.Skipped() ? "SKIP"
                                 : "FAIL",
              ""};
    for (int i = 0; i < result.total_part_count() && item.reason.empty(); ++i) {
      item.reason = result.GetTestPartResult(i).message();
    }
    findings_.Add(std::move(item), false);
  }

  void OnTestSuiteEnd(const testing::TestSuite& suite) override {
    std::printf("      %s: %d passed of %d\n", suite.name(), suite.successful_test_count(),
                suite.test_to_run_count());
  }

  Findings& findings_;
};

void RunSuites(Findings& findings) {
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Collector(findings));
  // What fails outside of tests is in no item.
  if (RUN_ALL_TESTS() != 0 && !findings.has_failed()) {
    findings.Add({"suites", "FAIL", "GoogleTest says so, of no test"});
  }
}

// An item for each kind of memory. A corpus that was asked for must be there.
std::vector<Item> CheckCorpus(const std::string& named, const std::string& beside) {
  const auto outcomes = RunCorpus(named.empty() ? beside : named);
  if (!outcomes.ok()) {
    const bool may_miss = absl::IsNotFound(outcomes.status()) && named.empty();
    const std::string why(outcomes.status().message());
    return {{"golden corpus", may_miss ? "SKIP" : "FAIL", why}};
  }
  std::vector<Item> items;
  for (const CorpusOutcome& outcome : *outcomes) {
    items.push_back({absl::StrCat("golden corpus, ", outcome.memory, " memory"),
                     outcome.passed ? "PASS" : "FAIL", outcome.text});
  }
  return items;
}

const std::vector<std::string> kParts = {"suites", "corpus", "speed", "lost"};

bool Contains(const std::vector<std::string>& parts, absl::string_view part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

struct CheckOptions {
  std::string json, corpus, corpus_beside;
  std::vector<std::string> parts = kParts;
  GpuRowOptions rows;
  bool Has(absl::string_view part) const { return Contains(parts, part); }
};

std::string Described(const CudaDevice& device) {
  return absl::StrCat(device.name, ", compute capability ", device.major, ".", device.minor, ", ",
                      device.memory_bytes >> 20, " MB");
}

// "No device" is what a machine is like; anything else that CUDA says is a fault: an old driver
// too.
int WithoutDevice(const absl::Status& why, const CheckOptions& options) {
  const bool has_none = IsNoDevice(why) || absl::IsUnimplemented(why);
  Findings findings(options.json, "none");
  findings.Add({"device", has_none ? "SKIP" : "FAIL", std::string(why.message())});
  return has_none && !findings.has_failed() ? 77 : 1;
}

int Check(const CheckOptions& options) {
  const auto devices = CudaDevices();
  if (!devices.ok()) return WithoutDevice(devices.status(), options);
  const std::string device = Described(devices->front());
  Findings findings(options.json, device);
  if (options.Has("suites")) RunSuites(findings);
  if (options.Has("corpus")) {
    for (Item& item : CheckCorpus(options.corpus, options.corpus_beside)) {
      findings.Add(std::move(item));
    }
  }
  if (options.Has("speed")) {
    MeasureGpu(options.rows, [&findings](const GpuRow& row) { findings.Add(row); });
  }
  if (options.Has("lost")) findings.Add(CheckLost());
  return findings.has_failed() ? 1 : 0;
}

// False: not understood.
bool Parse(int argc, char** argv, CheckOptions& options) {
  options.corpus_beside = std::filesystem::path(argv[0]).replace_filename("golden_corpus");
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--json") == 0 && has_value) {
      options.json = argv[++i];
    } else if (std::strcmp(argv[i], "--corpus") == 0 && has_value) {
      options.corpus = argv[++i];
    } else if (std::strcmp(argv[i], "--parts") == 0 && has_value) {
      options.parts = absl::StrSplit(argv[++i], ',');
    } else if (std::strcmp(argv[i], "--rehearse") == 0) {
      options.rows = {.shrink = 64, .rounds = 1, .decides = false};
    } else {
      return false;
    }
  }
  return std::all_of(options.parts.begin(), options.parts.end(),
                     [](const std::string& part) { return Contains(kParts, part); });
}

}  // namespace
}  // namespace cpshard

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--lose-device") == 0) return cpshard::LoseDevice();
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // what was done stays seen if it is stopped
  testing::InitGoogleTest(&argc, argv);
  cpshard::CheckOptions options;
  if (cpshard::Parse(argc, argv, options)) return cpshard::Check(options);
  std::cerr << "usage: gpu_check [--json FILE] [--parts suites,corpus,speed,lost] "
               "[--corpus FOLDER] [--rehearse]\n";
  return 64;
}

#include "tests/bench/measure.h"

#include <time.h>

#include <algorithm>

namespace cpshard::bench {
namespace {

// Processor time of this thread: while others hold the core, this clock stands still.
double Now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double SecondsPerCall(const Subject& subject, int repeat) {
  const double start = Now();
  for (int i = 0; i < repeat; ++i) subject.run();
  return (Now() - start) / repeat;
}

}  // namespace

Stats StatsOf(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return {median, samples.front(), samples.back()};
}

std::vector<std::vector<double>> Interleave(const std::vector<Subject>& subjects, int rounds,
                                            int repeat) {
  std::vector<std::vector<double>> seconds(subjects.size());
  for (int round = -1; round < rounds; ++round) {
    for (size_t i = 0; i < subjects.size(); ++i) {
      const size_t turn = (i + static_cast<size_t>(round + 1)) % subjects.size();
      const double taken = SecondsPerCall(subjects[turn], repeat);
      if (round >= 0) seconds[turn].push_back(taken);
    }
  }
  return seconds;
}

std::vector<double> Quotients(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> quotients(a.size());
  for (size_t i = 0; i < a.size(); ++i) quotients[i] = a[i] / b[i];
  return quotients;
}

std::vector<double> Rates(double scale, const std::vector<double>& seconds) {
  std::vector<double> rates = seconds;
  for (double& rate : rates) rate = scale / rate;
  return rates;
}

std::vector<double> Scaled(double scale, const std::vector<double>& seconds) {
  std::vector<double> scaled = seconds;
  for (double& value : scaled) value *= scale;
  return scaled;
}

}  // namespace cpshard::bench

// Measuring on a machine that is shared with others: what is compared runs in turn, and ratios are
// taken inside one round, so that a slow second hits both sides.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace cpshard::bench {

struct Stats {
  double median = 0, min = 0, max = 0;
};
Stats StatsOf(std::vector<double> samples);

// Something whose time is taken. `run` does the work once; it must not be optimised away.
struct Subject {
  std::string name;
  std::function<void()> run;
};

// Seconds of processor time per call: seconds[subject][round]. In every round each subject runs
// `repeat` times in a row; the one that begins changes from round to round, as each leaves the
// caches in its own state. One round more, at the start, is not counted.
std::vector<std::vector<double>> Interleave(const std::vector<Subject>& subjects, int rounds,
                                            int repeat);

// a[i] / b[i], scale / a[i], scale * a[i].
std::vector<double> Quotients(const std::vector<double>& a, const std::vector<double>& b);
std::vector<double> Rates(double scale, const std::vector<double>& seconds);
std::vector<double> Scaled(double scale, const std::vector<double>& seconds);

// Makes the compiler believe that `value` is used.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace cpshard::bench

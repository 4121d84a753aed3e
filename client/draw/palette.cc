#include "client/draw/palette.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_format.h"

namespace cpshard::draw {
namespace {

// Evenly spaced in lightness and hue (OKLCH: lightness 0.39 to 0.86, hue 290 to 78 degrees).
constexpr std::array<Colour, 9> kRamp = {{{0x48, 0x2c, 0x90},
                                          {0x2c, 0x52, 0xa4},
                                          {0x09, 0x6f, 0x9e},
                                          {0x15, 0x87, 0x97},
                                          {0x0b, 0x9e, 0x91},
                                          {0x3a, 0xb4, 0x78},
                                          {0x8d, 0xbe, 0x5b},
                                          {0xcd, 0xc3, 0x4a},
                                          {0xfe, 0xc7, 0x6c}}};

int Between(int from, int to, double share) {
  return static_cast<int>(std::lround(from + (to - from) * share));
}

double Linear(int channel) {
  const double value = channel / 255.0;
  return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
}

int Distance(Colour a, Colour b) {
  const int red = a.red - b.red, green = a.green - b.green, blue = a.blue - b.blue;
  return red * red + green * green + blue * blue;
}

}  // namespace

Colour RankColour(int64_t rank, int64_t num_ranks) {
  if (num_ranks <= 1) return kRamp[3];
  const double place =
      static_cast<double>(rank) * (kRamp.size() - 1) / static_cast<double>(num_ranks - 1);
  const size_t from = std::min(static_cast<size_t>(place), kRamp.size() - 2);
  const double share = place - static_cast<double>(from);
  const Colour a = kRamp[from], b = kRamp[from + 1];
  return {Between(a.red, b.red, share), Between(a.green, b.green, share),
          Between(a.blue, b.blue, share)};
}

double Luminance(Colour colour) {
  return 0.2126 * Linear(colour.red) + 0.7152 * Linear(colour.green) + 0.0722 * Linear(colour.blue);
}

Colour InkOn(Colour colour) {
  // The contrast with white is 1.05 / (l + 0.05), that with black (l + 0.05) / 0.05.
  const double l = Luminance(colour) + 0.05;
  return 1.05 / l >= l / 0.05 ? Colour{255, 255, 255} : Colour{0, 0, 0};
}

std::string Hex(Colour colour) {
  return absl::StrFormat("#%02x%02x%02x", colour.red, colour.green, colour.blue);
}

int Ansi256(Colour colour) {
  constexpr int kLevels[] = {0, 95, 135, 175, 215, 255};
  const auto nearest = [&](int channel) {
    int best = 0;
    for (int i = 1; i < 6; ++i) {
      if (std::abs(kLevels[i] - channel) < std::abs(kLevels[best] - channel)) best = i;
    }
    return best;
  };
  const int r = nearest(colour.red), g = nearest(colour.green), b = nearest(colour.blue);
  const int mean = (colour.red + colour.green + colour.blue) / 3;
  const int grey = std::clamp((mean - 8 + 5) / 10, 0, 23);
  const int level = 8 + 10 * grey;
  const Colour cube = {kLevels[r], kLevels[g], kLevels[b]};
  if (Distance({level, level, level}, colour) < Distance(cube, colour)) return 232 + grey;
  return 16 + 36 * r + 6 * g + b;
}

}  // namespace cpshard::draw

// Colours of ranks: one ramp from dark indigo over teal and green to light amber. Lightness rises
// steadily along it, so that ranks keep their order for every kind of colour vision and in grey,
// and both ends stand out from white and from black.
#pragma once

#include <cstdint>
#include <string>

namespace cpshard::draw {

struct Colour {
  int red = 0, green = 0, blue = 0;  // 0 ... 255
  friend bool operator==(const Colour&, const Colour&) = default;
};

inline constexpr Colour kGrey = {0x8b, 0x94, 0x9e};  // what is no rank's

// Precondition: 0 <= rank < num_ranks.
Colour RankColour(int64_t rank, int64_t num_ranks);

// Relative luminance, 0 (black) ... 1 (white), as the web's contrast rules define it.
double Luminance(Colour colour);

// Black or white, whichever reads better on the colour.
Colour InkOn(Colour colour);

std::string Hex(Colour colour);  // "#482c90"

// The nearest of the 240 fixed colours of a 256-colour terminal.
int Ansi256(Colour colour);

}  // namespace cpshard::draw

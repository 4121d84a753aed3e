#include "client/draw/svg.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/draw/palette.h"
#include "client/draw/ranks.h"
#include "client/draw/svg_panel.h"
#include "client/draw/svg_writer.h"

namespace cpshard::draw {
namespace {

// s small, h heading, m muted, c code, x numbers in tokens; w and k inks; n not shown;
// d0 and d1 documents; b where one begins; g axes; e the mean; v and p the veil of padding.
constexpr char kStyle[] = R"(<style>
text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1f2328}
text.s{font-size:9px}text.x{font-size:7.5px}
text.h{font-size:17px;font-weight:600}
text.c{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
text.c{font-size:10px}
text.m{fill:#59636e}text.w{fill:#fff}text.k{fill:#000}
.bg{fill:#fff}.n{fill:#f0f2f4}.d0{fill:#d5dbe2}.d1{fill:#e9edf1}
.b{stroke:#1f2328;stroke-width:1.5}.g{stroke:#aeb6bf}.e{stroke:#1f2328;stroke-dasharray:3 2}
.v{fill:#fff;fill-opacity:.45}.p{fill:#fff;fill-opacity:.75}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}text.m{fill:#9198a1}
.bg{fill:#0d1117}.n{fill:#1c2128}.d0{fill:#3a424c}.d1{fill:#272d36}
.b{stroke:#e6edf3}.g{stroke:#59636e}.e{stroke:#e6edf3}
.v{fill:#0d1117}.p{fill:#0d1117}
}
</style>
)";

// Padding inside documents is striped, that of no document dotted; documents that are too narrow to
// be told apart are hatched.
constexpr char kPatterns[] = R"svg(<defs>
<pattern id="inner" width="5" height="5" patternUnits="userSpaceOnUse"
 patternTransform="rotate(45)">
<rect class="v" width="5" height="5"/><rect class="p" width="2" height="5"/></pattern>
<pattern id="tail" width="5" height="5" patternUnits="userSpaceOnUse">
<rect class="v" width="5" height="5"/><circle class="p" cx="2.5" cy="2.5" r="1.4"/></pattern>
<pattern id="many" width="3" height="3" patternUnits="userSpaceOnUse">
<rect class="d1" width="3" height="3"/><rect class="d0" width="1.5" height="3"/></pattern>
</defs>
)svg";

// Swatches with words, from left to right.
class Legend {
 public:
  Legend(double y, SvgWriter& svg) : y_(y), svg_(svg) {}

  void Swatch(absl::string_view paint, absl::string_view hatch, absl::string_view text) {
    svg_.Rect(x_, y_, 16, 12, paint);
    if (!hatch.empty()) svg_.Rect(x_, y_, 16, 12, hatch);
    Words(text);
  }
  bool empty() const { return x_ == kSvgMargin; }
  void Stroke(absl::string_view text) {
    svg_.Line(x_ + 8, y_ - 1, x_ + 8, y_ + 13, "class=\"b\"");
    Words(text);
  }

 private:
  void Words(absl::string_view text) {
    svg_.Text(x_ + 22, y_ + 10, text, "class=\"m\"");
    x_ += 22 + static_cast<double>(text.size()) * 6.2 + 18;
  }

  double x_ = kSvgMargin, y_;
  SvgWriter& svg_;
};

double DrawLegend(const SvgUsed& used, double y, SvgWriter& svg) {
  const std::string grey = absl::StrCat("fill=\"", Hex(kGrey), "\"");
  Legend legend(y, svg);
  if (used.borders) legend.Stroke("a document begins");
  if (used.dense) {
    legend.Swatch("fill=\"url(#many)\"", "", "documents too narrow to tell apart");
  }
  if (used.document_pad) legend.Swatch(grey, "fill=\"url(#inner)\"", "padding in a document");
  if (used.tail_pad) legend.Swatch(grey, "fill=\"url(#tail)\"", "padding of no document");
  if (used.mixed) legend.Swatch(grey, "", "no rank has more than half");
  if (used.every) legend.Swatch(grey, "", "every rank holds it");
  if (used.hidden) legend.Swatch("class=\"n\"", "", "ranks not asked for");
  return legend.empty() ? y : y + 18;
}

std::string Summary(absl::Span<const Panel> panels) {
  std::vector<std::string> parts;
  for (const Panel& panel : panels) {
    parts.push_back(absl::StrCat(panel.title, ": ", Describe(panel),
                                 absl::StrFormat("; I_attn %.3f", panel.attention_imbalance)));
  }
  return absl::StrJoin(parts, ". ");
}

}  // namespace

std::string DrawSvg(absl::Span<const Panel> panels) {
  SvgWriter body;
  SvgUsed used;
  double y = kSvgMargin - 6;
  const double most_share = MostShare(panels);
  int64_t longest = 0;
  for (const Panel& panel : panels) longest = std::max(longest, panel.columns);
  for (size_t i = 0; i < panels.size(); ++i) {
    if (i > 0) {
      body.Line(kSvgMargin, y + 8, kSvgWidth - kSvgMargin, y + 8, "class=\"g\"");
      y += 22;
    }
    const bool alike = 2 * panels[i].columns >= longest;
    const SvgScale scale = {SvgColumnWidth(alike ? longest : panels[i].columns), most_share};
    y = DrawSvgPanel(panels[i], scale, y, body, used);
  }
  y = DrawLegend(used, y + 10, body);
  const std::string size = absl::StrCat(SvgNumber(kSvgWidth), " ", SvgNumber(y + kSvgMargin - 10));
  const std::string summary = SvgEscaped(Summary(panels));
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", size,
      "\" role=\"img\" aria-label=\"", summary, "\">\n", "<title>", summary, "</title>\n", kStyle,
      kPatterns, "<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n", body.Take(), "</svg>\n");
}

}  // namespace cpshard::draw

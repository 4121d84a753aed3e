#include "client/draw/svg_panel.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/draw/cells.h"
#include "client/draw/palette.h"
#include "client/draw/ranks.h"
#include "client/draw/scale.h"
#include "client/draw/svg_ranks.h"

namespace cpshard::draw {
namespace {

using Anchor = SvgWriter::Anchor;

constexpr double kRight = kSvgWidth - kSvgMargin;
constexpr double kBarHeight = 26, kStripHeight = 13, kStripGap = 2, kBarGap = 12;
constexpr double kLetter = 6.4;        // width of a letter of 11 px, rounded up
constexpr double kSmallLetter = 5.2;   // ... of 9 px
constexpr double kMinTokenWidth = 12;  // for two digits
constexpr double kMinDocument = 6;     // narrower ones have no border
constexpr size_t kMaxBars = 8;
constexpr int64_t kMaxRuns = 2000;  // beyond these, cells
constexpr int64_t kBands = 64;      // colours of ranks

class SvgPanel {
 public:
  SvgPanel(const Panel& panel, const SvgScale& scale, double top, SvgWriter& svg, SvgUsed& used)
      : panel_(panel),
        width_(scale.column_width),
        most_share_(scale.most_share),
        y_(top),
        svg_(svg),
        used_(used) {
    tokens_ = panel.columns <= kSvgTokens && width_ >= kMinTokenWidth;
    for (const ChunkRuns& chunk : panel.chunks) exact_ = exact_ && CountRuns(chunk) <= kMaxRuns;
    band_ = exact_ ? 1 : BandOf(panel, kBands);
    axis_ = exact_ ? Axis{panel.columns, 1} : Axis::Of(panel.columns, kSvgCells);
  }

  double Draw() {
    Header();
    if (!tokens_) Ticks();
    int64_t left = 0;
    const std::vector<Bar> bars = BarsOf(panel_, kMaxBars, &left);
    for (const Bar& bar : bars) DrawBar(bar);
    if (tokens_ && !bars.empty()) RankNumbers(OwnersOf(bars.back().chunk));
    if (left > 0) {
      y_ += 10;
      svg_.Text(kSvgPlotLeft, y_,
                absl::StrCat("and ", Grouped(left), " more ",
                             panel_.chunks.size() > 1 ? "chunks" : "rows"),
                "class=\"m\"");
      y_ += 6;
    }
    return DrawSvgRanks(panel_, most_share_, y_ + 12, svg_);
  }

 private:
  double X(int64_t column) const { return kSvgPlotLeft + static_cast<double>(column) * width_; }

  std::string PaintOf(int64_t owner) const {
    if (owner == kNotShown) return "class=\"n\"";
    const Colour colour = owner >= 0 ? RankColour(owner, panel_.num_ranks) : kGrey;
    return absl::StrCat("fill=\"", Hex(colour), "\"");
  }

  std::string InkOf(int64_t owner) const {
    if (owner == kNotShown) return "";
    const Colour colour = owner >= 0 ? RankColour(owner, panel_.num_ranks) : kGrey;
    return InkOn(colour).red == 0 ? "k" : "w";
  }

  void Header() {
    y_ += 18;
    svg_.Text(kSvgMargin, y_, panel_.title, "class=\"h\"");
    svg_.Text(kRight, y_, absl::StrFormat("I_attn %.3f", panel_.attention_imbalance), "class=\"h\"",
              Anchor::kEnd);
    y_ += 18;
    svg_.Text(kSvgMargin, y_, SvgClipped(panel_.options, 92), "class=\"c m\"");
    svg_.Text(kRight, y_, DescribeArea(panel_), "class=\"m\"", Anchor::kEnd);
    y_ += 16;
    svg_.Text(kSvgMargin, y_, SvgClipped(Describe(panel_), 112), "class=\"m\"");
    svg_.Text(kRight, y_,
              absl::StrFormat("I_tok %.3f, padding %.1f %%", panel_.slot_imbalance,
                              100 * panel_.pad_fraction),
              "class=\"m\"", Anchor::kEnd);
    for (const std::string& remark : Remarks()) {
      y_ += 16;
      svg_.Text(kSvgMargin, y_, remark, "class=\"m\"");
    }
    y_ += 12;
  }

  std::vector<std::string> Remarks() const {
    std::vector<std::string> remarks = DescribeGaps(panel_);
    if (axis_.scale == 1) return remarks;
    std::string cells = absl::StrCat("drawn in cells of ", Grouped(axis_.scale), " columns");
    if (band_ > 1) absl::StrAppend(&cells, " and bands of ", band_, " neighbouring ranks");
    remarks.push_back(std::move(cells));
    return remarks;
  }

  void Ticks() {
    y_ += 14;
    const int64_t columns = panel_.columns;
    const auto room = static_cast<int64_t>(static_cast<double>(columns) * width_ / 56);
    const int64_t step = TickStep(columns, std::max<int64_t>(1, room));
    svg_.Text(kSvgMargin, y_, "column", "class=\"s m\"");
    for (int64_t column = 0; column < columns; column += step) {
      svg_.Text(X(column) + 3, y_, Grouped(column), "class=\"s m\"");
      svg_.Line(X(column), y_ - 6, X(column), y_ + 5, "class=\"g\"");
    }
    y_ += 7;
  }

  // A band for each span, in two shades in turn, numbered where there is room; spans too narrow to
  // be told apart are one hatched band.
  void Strip(absl::string_view label, absl::string_view one,
             const std::vector<DocumentSpan>& spans) {
    svg_.Text(kSvgMargin, y_ + 10, label, "class=\"s m\"");
    int64_t dense = kNone, end = 0;  // a band of narrow spans
    const auto flush = [&] {
      if (dense != kNone) {
        used_.dense = true;
        svg_.Rect(X(dense), y_, X(end) - X(dense), kStripHeight, "fill=\"url(#many)\"");
      }
      dense = kNone;
    };
    for (size_t i = 0; i < spans.size(); ++i) {
      const double width = static_cast<double>(spans[i].length) * width_;
      if (width < 3) {
        if (dense != kNone && X(spans[i].begin) - X(end) > 1) flush();
        if (dense == kNone) dense = spans[i].begin;
        end = spans[i].begin + spans[i].length;
        continue;
      }
      flush();
      svg_.Rect(X(spans[i].begin), y_, width - 1, kStripHeight, i % 2 == 0 ? kEven : kOdd);
      Number(X(spans[i].begin) + (width - 1) / 2, one, i, width - 5);
    }
    flush();
    y_ += kStripHeight + kStripGap;
  }

  void Number(double middle, absl::string_view one, size_t number, double room) {
    for (const std::string& text : {absl::StrCat(one, " ", number), absl::StrCat(number)}) {
      if (static_cast<double>(text.size()) * kSmallLetter > room) continue;
      svg_.Text(middle, y_ + 10, text, "class=\"s\"", Anchor::kMiddle);
      return;
    }
  }

  void DrawBar(const Bar& bar) {
    const std::vector<DocumentSpan>& documents = panel_.DocumentsOf(bar.chunk, bar.first);
    const std::vector<DocumentSpan> rows = FlattenedRows(panel_);
    if (!rows.empty()) Strip("rows", "row", rows);
    if (panel_.draws_documents()) Strip("documents", "doc", documents);
    svg_.Text(kSvgMargin, y_ + kBarHeight / 2 + 4, bar.label, "");
    const std::vector<KindRun> kinds = KindsOf(documents);
    const std::vector<OwnerRun>& owners = OwnersOf(bar.chunk);
    svg_.Raw("<g shape-rendering=\"crispEdges\">\n");
    if (tokens_) {
      Tokens(owners, kinds);
    } else {
      Runs(owners, kinds);
    }
    svg_.Raw("</g>\n");
    if (tokens_) {
      TokenNumbers(owners, kinds);
    } else {
      RunNumbers(owners, kinds, documents);
    }
    if (panel_.draws_documents()) Borders(documents);
    y_ += kBarHeight + kBarGap;
  }

  std::vector<KindRun> KindsOf(const std::vector<DocumentSpan>& documents) {
    std::vector<KindRun> runs = KindRuns(panel_, documents);
    if (static_cast<int64_t>(runs.size()) > kMaxRuns) {
      const Axis axis = Axis::Of(panel_.columns, kSvgCells);
      runs = MergedKinds(KindCells(runs, axis), axis);
    }
    for (const KindRun& run : runs) {
      used_.document_pad |= run.kind == Kind::kDocumentPad;
      used_.tail_pad |= run.kind == Kind::kTailPad;
    }
    return runs;
  }

  const std::vector<OwnerRun>& OwnersOf(size_t chunk) {
    if (owners_chunk_ == chunk) return owners_;
    owners_chunk_ = chunk;
    owners_ = exact_ ? OwnerRuns(panel_, chunk)
                     : MergedCells(OwnerCells(panel_, chunk, axis_, band_), axis_);
    for (const OwnerRun& run : owners_) {
      used_.mixed |= run.owner == kMixed;
      used_.every |= run.owner == kEveryRank;
      used_.hidden |= run.owner == kNotShown;
    }
    return owners_;
  }

  static const char* Hatch(Kind kind) {
    return kind == Kind::kDocumentPad ? "fill=\"url(#inner)\"" : "fill=\"url(#tail)\"";
  }

  void Runs(const std::vector<OwnerRun>& owners, const std::vector<KindRun>& kinds) {
    for (const OwnerRun& run : owners) {
      svg_.Rect(X(run.begin), y_, static_cast<double>(run.length) * width_, kBarHeight,
                PaintOf(run.owner));
    }
    for (const KindRun& run : kinds) {
      if (run.kind == Kind::kReal) continue;
      svg_.Rect(X(run.begin), y_, static_cast<double>(run.length) * width_, kBarHeight,
                Hatch(run.kind));
    }
  }

  // One number for each run, in the middle of the widest piece of it that no border or padding
  // crosses; of a run of padding alone, on the padding.
  void RunNumbers(const std::vector<OwnerRun>& owners, const std::vector<KindRun>& kinds,
                  const std::vector<DocumentSpan>& documents) {
    size_t kind = 0, span = 0;
    for (const OwnerRun& run : owners) {
      const int64_t end = run.begin + run.length;
      KindRun best;
      for (int64_t column = run.begin; column < end;) {
        while (column >= kinds[kind].begin + kinds[kind].length) ++kind;
        while (span < documents.size() && documents[span].begin <= column) ++span;
        int64_t stop = std::min(end, kinds[kind].begin + kinds[kind].length);
        if (span < documents.size()) stop = std::min(stop, documents[span].begin);
        const bool real = kinds[kind].kind == Kind::kReal;
        const bool better = real == (best.kind == Kind::kReal) ? stop - column > best.length : real;
        if (best.length == 0 || better) best = {column, stop - column, kinds[kind].kind};
        column = stop;
      }
      if (run.owner >= 0) RunNumber(run.owner, best);
    }
  }

  void RunNumber(int64_t owner, const KindRun& piece) {
    const std::string text = BandLabel(panel_, owner, band_);
    const double width = static_cast<double>(piece.length) * width_;
    if (static_cast<double>(text.size()) * kLetter + 4 > width) return;
    const std::string ink = piece.kind == Kind::kReal ? InkOf(owner) : "";
    svg_.Text(X(piece.begin) + width / 2, y_ + kBarHeight / 2 + 4, text,
              absl::StrCat("class=\"", ink, "\""), Anchor::kMiddle);
  }

  void Tokens(const std::vector<OwnerRun>& owners, const std::vector<KindRun>& kinds) {
    for (const OwnerRun& run : owners) {
      for (int64_t column = run.begin; column < run.begin + run.length; ++column) {
        svg_.Rect(X(column), y_, width_ - 1, kBarHeight, PaintOf(run.owner));
      }
    }
    for (const KindRun& run : kinds) {
      if (run.kind == Kind::kReal) continue;
      for (int64_t column = run.begin; column < run.begin + run.length; ++column) {
        svg_.Rect(X(column), y_, width_ - 1, kBarHeight, Hatch(run.kind));
      }
    }
  }

  void TokenNumbers(const std::vector<OwnerRun>& owners, const std::vector<KindRun>& kinds) {
    size_t kind = 0;
    for (const OwnerRun& run : owners) {
      for (int64_t column = run.begin; column < run.begin + run.length; ++column) {
        while (column >= kinds[kind].begin + kinds[kind].length) ++kind;
        const bool real = kinds[kind].kind == Kind::kReal;
        svg_.Text(X(column) + (width_ - 1) / 2, y_ + kBarHeight / 2 + 3, absl::StrCat(column),
                  absl::StrCat("class=\"x ", real ? InkOf(run.owner) : "", "\""), Anchor::kMiddle);
      }
    }
  }

  // Below bars of single tokens: whose runs they are.
  void RankNumbers(const std::vector<OwnerRun>& owners) {
    y_ -= kBarGap - 3;
    svg_.Text(kSvgMargin, y_ + 9, "rank", "class=\"s m\"");
    for (const OwnerRun& run : owners) {
      const double width = static_cast<double>(run.length) * width_ - 1;
      const std::string text = run.owner == kEveryRank ? "all" : absl::StrCat(run.owner);
      if (run.owner == kNotShown) continue;
      svg_.Rect(X(run.begin), y_ - 1, width, 2, PaintOf(run.owner));
      if (static_cast<double>(text.size()) * kSmallLetter > width + 1) continue;
      svg_.Text(X(run.begin) + width / 2, y_ + 10, text, "class=\"s\"", Anchor::kMiddle);
    }
    y_ += 20;
  }

  // Where a document begins, across the bar, but for those that would be a thicket of lines.
  void Borders(const std::vector<DocumentSpan>& documents) {
    double before = 0;  // width of the one before
    for (const DocumentSpan& span : documents) {
      const double width = static_cast<double>(span.length) * width_;
      const bool apart = std::max(width, before) >= kMinDocument;
      before = width;
      if (span.begin == 0 || span.length == 0 || !apart) continue;
      used_.borders = true;
      const double x = X(span.begin) - (tokens_ ? 0.5 : 0);
      svg_.Line(x, y_ - 2, x, y_ + kBarHeight + 3, "class=\"b\"");
    }
  }

  static constexpr int64_t kNone = -1;
  static constexpr char kEven[] = "class=\"d0\"", kOdd[] = "class=\"d1\"";

  const Panel& panel_;
  const double width_, most_share_;
  double y_;
  SvgWriter& svg_;
  SvgUsed& used_;
  bool tokens_ = false, exact_ = true;
  int64_t band_ = 1;
  Axis axis_;
  std::vector<OwnerRun> owners_;
  std::optional<size_t> owners_chunk_;
};

}  // namespace

double SvgColumnWidth(int64_t columns) {
  if (columns == 0) return 1;
  const double width = kSvgPlotWidth / static_cast<double>(columns);
  return columns <= kSvgTokens ? std::min(32.0, std::floor(width)) : width;
}

double DrawSvgPanel(const Panel& panel, const SvgScale& scale, double top, SvgWriter& svg,
                    SvgUsed& used) {
  return SvgPanel(panel, scale, top, svg, used).Draw();
}

}  // namespace cpshard::draw

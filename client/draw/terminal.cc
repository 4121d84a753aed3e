#include "client/draw/terminal.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/draw/cells.h"
#include "client/draw/palette.h"
#include "client/draw/ranks.h"
#include "client/draw/scale.h"
#include "client/draw/terminal_text.h"

namespace cpshard::draw {
namespace {

constexpr absl::string_view kMarks =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@&";
constexpr size_t kMaxBars = 6;
constexpr int64_t kMaxLines = 16;  // of the table of ranks
constexpr int64_t kMaxZoom = 4;    // characters of a cell
constexpr int64_t kMaxAreaBar = 60;
constexpr int64_t kSwatch = 2;  // characters of a rank's colour

char MarkOf(int64_t owner, int64_t band) {
  if (owner == kMixed) return '*';
  if (owner == kEveryRank) return '=';
  if (owner == kNotShown) return ' ';
  return kMarks[owner / band];
}

// What the legend has to explain.
struct Used {
  bool document_pad = false, tail_pad = false, mixed = false, every = false, hidden = false;
  bool many_begin = false, ruler = false;
};

class PanelDrawing {
 public:
  PanelDrawing(const Panel& panel, Scale scale, int64_t gutter, double most_share,
               const TerminalStyle& style, Used& used)
      : panel_(panel),
        axis_{panel.columns, scale.columns_per_cell},
        zoom_(scale.cell_width),
        gutter_(gutter),
        band_(BandOf(panel, static_cast<int64_t>(kMarks.size()))),
        most_share_(most_share),
        style_(style),
        used_(used) {}

  std::string Draw() {
    Header();
    int64_t left = 0;
    const std::vector<Bar> bars = BarsOf(panel_, kMaxBars, &left);
    Ticks();
    for (const Bar& bar : bars) DrawBar(bar);
    if (left > 0) {
      absl::StrAppend(&out_, "... and ", Grouped(left), " more ",
                      panel_.chunks.size() > 1 ? "chunks" : "rows", "\n");
    }
    out_ += "\n";
    Table();
    return std::move(out_);
  }

 private:
  void Emit(const Line& line) { out_ += line.Render(style_.depth); }
  void Say(const std::vector<std::string>& parts, absl::string_view separator) {
    out_ += Wrapped(parts, separator, style_.columns, 2);
  }
  void SayWords(absl::string_view text) { Say(absl::StrSplit(text, ' '), " "); }
  int64_t X(int64_t cell) const { return gutter_ + cell * zoom_; }
  Colour ColourOf(int64_t owner) const {
    return owner >= 0 ? RankColour(owner, panel_.num_ranks) : kGrey;
  }

  void Header() {
    const bool bold = style_.depth != ColourDepth::kNone;
    absl::StrAppend(&out_, bold ? "\033[1m" : "", panel_.title, bold ? "\033[0m" : "", "\n");
    Say({absl::StrCat("options ", panel_.options)}, "");
    Say(absl::StrSplit(Describe(panel_), ", "), ", ");
    Say({absl::StrFormat("I_attn %.3f (%s)", panel_.attention_imbalance, DescribeArea(panel_)),
         absl::StrFormat("I_tok %.3f", panel_.slot_imbalance),
         absl::StrFormat("padding %.1f %%", 100 * panel_.pad_fraction)},
        "   ");
    Say({axis_.scale == 1 ? "a cell is one column"
                          : absl::StrCat("a cell is ", Grouped(axis_.scale), " columns")},
        "");
    if (band_ > 1) SayWords(absl::StrCat("a mark or colour is ", band_, " neighbouring ranks"));
    for (const std::string& gap : DescribeGaps(panel_)) SayWords(gap);
    out_ += "\n";
  }

  int64_t TickWidth() const { return static_cast<int64_t>(absl::StrCat(axis_.columns).size()) + 4; }

  // Numbers of columns above the cells in which they lie.
  void Ticks() {
    Line line(style_.columns);
    line.Put(0, "column");
    int64_t free = 0;  // first character that may be written
    const int64_t step =
        TickStep(axis_.columns, std::max<int64_t>(1, axis_.cells() * zoom_ / TickWidth()));
    for (int64_t column = 0; column < axis_.columns; column += step) {
      const std::string text = absl::StrCat(column);
      const int64_t at = X(column / axis_.scale);
      const int64_t end = at + static_cast<int64_t>(text.size());
      if (at < free || end > style_.columns) continue;
      line.Put(at, text);
      free = end + 1;
    }
    Emit(line);
  }

  // '|' where a span begins, '#' where several do, then its number if there is room.
  void Ruler(absl::string_view label, const std::vector<DocumentSpan>& spans,
             const std::vector<Kind>& kinds) {
    used_.ruler = true;
    Line line(style_.columns);
    line.Put(0, label);
    for (int64_t cell = 0; cell < axis_.cells(); ++cell) {
      const char mark = kinds[cell] == Kind::kReal          ? '-'
                        : kinds[cell] == Kind::kDocumentPad ? ':'
                                                            : '.';
      line.Put(X(cell), std::string(zoom_, mark));
    }
    int64_t last = -1;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].length == 0) continue;
      const int64_t cell = spans[i].begin / axis_.scale;
      const bool several = cell == last;
      used_.many_begin |= several;
      line.Put(X(cell), several ? "#" : "|");
      last = cell;
      const int64_t end = (spans[i].begin + spans[i].length) / axis_.scale;
      const std::string number = absl::StrCat(i);
      if (!several && static_cast<int64_t>(number.size()) < (end - cell) * zoom_) {
        line.Put(X(cell) + 1, number);
      }
    }
    Emit(line);
  }

  void DrawBar(const Bar& bar) {
    const std::vector<DocumentSpan>& documents = panel_.DocumentsOf(bar.chunk, bar.first);
    const std::vector<Kind> kinds = KindCells(KindRuns(panel_, documents), axis_);
    const std::vector<DocumentSpan> rows = FlattenedRows(panel_);
    if (!rows.empty()) {
      Ruler("rows", rows, std::vector<Kind>(axis_.cells(), Kind::kReal));
    }
    if (panel_.draws_documents()) Ruler("documents", documents, kinds);
    Cells(bar.label, OwnersOf(bar.chunk), kinds);
  }

  const std::vector<int64_t>& OwnersOf(size_t chunk) {
    if (owners_chunk_ != chunk) {
      owners_ = OwnerCells(panel_, chunk, axis_, band_);
      owners_chunk_ = chunk;
    }
    return owners_;
  }

  void Cells(absl::string_view label, const std::vector<int64_t>& owners,
             const std::vector<Kind>& kinds) {
    Line line(style_.columns);
    line.Put(0, label);
    const bool plain = style_.depth == ColourDepth::kNone;
    for (int64_t cell = 0; cell < axis_.cells(); ++cell) {
      const int64_t owner = owners[cell];
      Note(owner, kinds[cell]);
      if (owner != kNotShown) line.Ground(X(cell), zoom_, ColourOf(owner));
      if (kinds[cell] != Kind::kReal && owner != kNotShown) {
        line.Put(X(cell), kinds[cell] == Kind::kDocumentPad ? ":" : ".");
      } else if (plain || owner < 0) {
        line.Put(X(cell), std::string(1, MarkOf(owner, band_)));
      }
    }
    if (!plain) Numbers(owners, kinds, line);
    Emit(line);
  }

  // On colours: the number of the rank in the middle of its cells, where it fits.
  void Numbers(const std::vector<int64_t>& owners, const std::vector<Kind>& kinds,
               Line& line) const {
    for (int64_t begin = 0, end = 0; begin < axis_.cells(); begin = end) {
      for (end = begin;
           end < axis_.cells() && owners[end] == owners[begin] && kinds[end] == kinds[begin];) {
        ++end;
      }
      if (owners[begin] < 0 || kinds[begin] != Kind::kReal) continue;
      const std::string number = BandLabel(panel_, owners[begin], band_);
      const int64_t room = (end - begin) * zoom_ - static_cast<int64_t>(number.size());
      if (room >= 0) line.Put(X(begin) + room / 2, number);
    }
  }

  void Note(int64_t owner, Kind kind) {
    used_.document_pad |= kind == Kind::kDocumentPad;
    used_.tail_pad |= kind == Kind::kTailPad;
    used_.mixed |= owner == kMixed;
    used_.every |= owner == kEveryRank;
    used_.hidden |= owner == kNotShown;
  }

  void Table() {
    const std::vector<RankLine> lines = RankLines(panel_, kMaxLines);
    const bool grouped = lines.front().first != lines.front().last;
    using Row = std::array<std::string, 4>;
    std::vector<Row> rows = {Row{grouped ? "ranks" : "rank", "slots", "real", "pad"}};
    for (const RankLine& line : lines) {
      rows.push_back({line.label(), Grouped(line.slots), Grouped(line.real), Grouped(line.pad)});
    }
    std::array<int64_t, 4> right = {kSwatch + 1, 2, 2, 2};  // where each column ends
    for (size_t i = 0; i < right.size(); ++i) {
      size_t width = 0;
      for (const Row& row : rows) width = std::max(width, row[i].size());
      right[i] += (i > 0 ? right[i - 1] : 0) + static_cast<int64_t>(width);
    }
    for (size_t k = 0; k < rows.size(); ++k) {
      Line line(style_.columns);
      line.Put(kSwatch + 1, rows[k][0]);
      for (size_t i = 1; i < right.size(); ++i) {
        line.Put(right[i] - static_cast<int64_t>(rows[k][i].size()), rows[k][i]);
      }
      const int64_t area = right.back() + 2;
      if (k == 0) {
        const absl::string_view title =
            grouped ? "area of the heaviest / mean" : "attention area / mean";
        const bool fits = area + static_cast<int64_t>(title.size()) <= style_.columns;
        line.Put(area, fits ? title : "area");
      } else {
        Swatch(lines[k - 1], grouped, line);
        AreaBar(lines[k - 1], area, line);
      }
      Emit(line);
    }
  }

  void Swatch(const RankLine& ranks, bool grouped, Line& line) const {
    if (style_.depth != ColourDepth::kNone) {
      line.Ground(0, kSwatch, ColourOf(ranks.first));
    } else if (!grouped) {
      line.Put(0, std::string(1, MarkOf(ranks.first, band_)));
    }
  }

  // The value, then a bar; that of the heaviest rank of all panels fills the room.
  void AreaBar(const RankLine& ranks, int64_t at, Line& line) const {
    const int64_t room = std::clamp<int64_t>(style_.columns - at - 8, 0, kMaxAreaBar);
    const double share = ShareOf(panel_, ranks.area);
    line.Put(at, absl::StrFormat("%6.3f", share));
    const auto length = static_cast<int64_t>(share / most_share_ * static_cast<double>(room) + 0.5);
    if (style_.depth == ColourDepth::kNone) {
      line.Put(at + 8, std::string(length, '#'));
    } else {
      line.Ground(at + 8, length, ColourOf(ranks.first));
    }
  }

  const Panel& panel_;
  const Axis axis_;
  const int64_t zoom_, gutter_, band_;
  const double most_share_;
  const TerminalStyle& style_;
  Used& used_;
  std::string out_;
  std::vector<int64_t> owners_;
  std::optional<size_t> owners_chunk_;
};

std::string Legend(const Used& used, const TerminalStyle& style) {
  std::vector<std::string> parts;
  if (style.depth == ColourDepth::kNone) parts.push_back("digits and letters: ranks");
  if (used.ruler) parts.push_back("| begins");
  if (used.many_begin) parts.push_back("# several begin");
  if (used.document_pad) parts.push_back(": padding inside a document");
  if (used.tail_pad) parts.push_back(". padding of no document");
  if (used.mixed) parts.push_back("* no rank has more than half");
  if (used.every) parts.push_back("= every rank holds it");
  if (used.hidden) parts.push_back("blank: a rank that was not asked for");
  return parts.empty() ? "" : Wrapped(parts, ";  ", style.columns, 2);
}

}  // namespace

absl::StatusOr<std::string> DrawInTerminal(absl::Span<const Panel> panels,
                                           const TerminalStyle& style) {
  if (style.columns < kMinTerminalColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat("a picture needs ", kMinTerminalColumns, " columns and the terminal has ",
                     style.columns, "; widen it, set COLUMNS, or draw to a file (--svg FILE)"));
  }
  int64_t gutter = 0;
  for (const Panel& panel : panels) {
    int64_t left = 0;
    for (const Bar& bar : BarsOf(panel, kMaxBars, &left)) {
      gutter = std::max<int64_t>(gutter, static_cast<int64_t>(bar.label.size()) + 1);
    }
    if (panel.draws_documents()) gutter = std::max<int64_t>(gutter, sizeof("documents"));
  }
  gutter = std::max<int64_t>(gutter, sizeof("column"));
  const std::vector<Scale> scales = ScalesOf(panels, style.columns - gutter, kMaxZoom);
  const double most_share = MostShare(panels);
  Used used;
  std::string out;
  for (size_t i = 0; i < panels.size(); ++i) {
    absl::StrAppend(
        &out, PanelDrawing(panels[i], scales[i], gutter, most_share, style, used).Draw(), "\n");
  }
  return out + Legend(used, style);
}

}  // namespace cpshard::draw

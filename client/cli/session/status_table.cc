#include "client/cli/session/status_table.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/cli/printable.h"

namespace cpshard {
namespace {

constexpr size_t kMaxRows = 8;
constexpr int64_t kMinColumns = 20;
constexpr char kRow[] = "  %6s %4s %6s %8s %5s  %s";

// A line of a table about a reader or loader.
struct Row {
  int64_t behind = 0;  // for the order: those furthest behind come first
  std::string who, lag, next, received, stall, notes;
};

bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Of UTF-8 characters, each taken for one column.
std::string Cut(const std::string& line, int64_t columns) {
  int64_t used = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (!ContinuesCharacter(line[i]) && ++used > columns) return line.substr(0, i);
  }
  return line;
}

class Page {
 public:
  explicit Page(int64_t columns) : columns_(std::max(columns, kMinColumns)) {}

  void Line(const std::string& line) {
    std::string text = Cut(OneLine(line), columns_);
    text.erase(text.find_last_not_of(' ') + 1);
    absl::StrAppend(&text_, text, "\n");
  }

  // Words on as many lines as they need, further ones indented by two more.
  void Sentence(int64_t indent, const std::string& sentence) {
    std::string line(indent, ' ');
    bool empty = true;
    for (absl::string_view word : absl::StrSplit(OneLine(sentence), ' ', absl::SkipEmpty())) {
      if (!empty && static_cast<int64_t>(line.size() + 1 + word.size()) > columns_) {
        Line(line);
        line = std::string(indent + 2, ' ');
        empty = true;
      }
      absl::StrAppend(&line, empty ? "" : " ", word);
      empty = false;
    }
    Line(line);
  }

  // `received`, `stall`: the columns that loaders do not have, or "".
  void Rows(const char* one, const char* received, const char* stall, std::vector<Row> rows) {
    if (rows.empty()) return;
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.behind > b.behind; });
    Line(absl::StrFormat(kRow, one, "lag", "next", received, stall, ""));
    const size_t shown = std::min(rows.size(), kMaxRows);
    for (size_t i = 0; i < shown; ++i) {
      const Row& row = rows[i];
      Line(absl::StrFormat(kRow, row.who, row.lag, row.next, row.received, row.stall, row.notes));
    }
    if (shown == rows.size()) return;
    Sentence(2, absl::StrCat("and ", rows.size() - shown, " more ", one, "s, lag ", rows[shown].lag,
                             " at most"));
  }

  std::string TakeText() { return std::move(text_); }

 private:
  const int64_t columns_;
  std::string text_;
};

std::string Bytes(int64_t bytes) {
  const double number = static_cast<double>(bytes);
  if (bytes < 1'000'000) return absl::StrFormat("%.1f kB", number / 1e3);
  if (bytes < 1'000'000'000) return absl::StrFormat("%.1f MB", number / 1e6);
  return absl::StrFormat("%.1f GB", number / 1e9);
}

std::string Seconds(double seconds) {
  return seconds < 1 ? "0s"
                     : absl::FormatDuration(absl::Trunc(absl::Seconds(seconds), absl::Seconds(1)));
}

std::string Percent(double part, double whole) {
  return absl::StrFormat("%.0f%%", 100 * part / whole);
}

// Microseconds as trainers tell them, whatever that is: in floating point, where no sum overflows.
struct Waited {
  double loader = 0, peer = 0, server = 0, copy = 0;

  void Add(const StallTime& stall) {
    loader += static_cast<double>(stall.loader);
    peer += static_cast<double>(stall.peer);
    server += static_cast<double>(stall.server);
    copy += static_cast<double>(stall.copy);
  }
  double Total() const { return loader + peer + server + copy; }
};

std::string OrDash(const std::optional<int64_t>& number) {
  return number ? absl::StrCat(*number) : "-";
}

const ReaderStreamView* StreamOf(const ReaderView& reader, const std::string& stream) {
  for (const ReaderStreamView& of : reader.streams) {
    if (of.stream == stream) return &of;
  }
  return nullptr;
}

Row ReaderRow(const ReaderView& reader, const ReaderStreamView& at, const DataStreamView& stream,
              int64_t furthest) {
  Row row{.who = absl::StrCat(reader.cp_rank), .lag = "-", .next = absl::StrCat(at.next_step)};
  row.received = at.delivered < 0 ? "-" : absl::StrCat(at.delivered);
  Waited waited;
  waited.Add(reader.stall);
  row.stall =
      reader.elapsed_us > 0 ? Percent(waited.Total(), static_cast<double>(reader.elapsed_us)) : "-";
  std::vector<std::string> notes;
  if (reader.reader != absl::StrCat("rank", reader.cp_rank)) notes.push_back(reader.reader);
  if (reader.closed) {
    notes.push_back("closed");
  } else if (at.pass != stream.pass) {
    notes.push_back(absl::StrCat("in pass ", at.pass));
  } else {
    row.behind = furthest - at.next_step;
    row.lag = absl::StrCat(row.behind);
    if (!at.open) notes.push_back("between passes");
  }
  if (!reader.closed && !reader.connected && reader.away_seconds) {
    notes.push_back(absl::StrCat("no connection for ", Seconds(*reader.away_seconds)));
  }
  if (reader.wants > 0) notes.push_back(absl::StrCat("asks for ", reader.wants));
  row.notes = absl::StrJoin(notes, ", ");
  return row;
}

std::vector<Row> ReaderRows(const GroupView& group, const DataStreamView& stream) {
  int64_t furthest = 0;
  for (const ReaderView& reader : group.readers) {
    const ReaderStreamView* at = StreamOf(reader, stream.stream);
    if (at != nullptr && at->pass == stream.pass) furthest = std::max(furthest, at->next_step);
  }
  std::vector<Row> rows;
  for (const ReaderView& reader : group.readers) {
    const ReaderStreamView* at = StreamOf(reader, stream.stream);
    if (at != nullptr) rows.push_back(ReaderRow(reader, *at, stream, furthest));
  }
  return rows;
}

std::vector<Row> LoaderRows(const DataStreamView& stream) {
  int64_t furthest = 0;
  for (const LoaderView& loader : stream.loaders) {
    furthest = std::max(furthest, loader.next_step.value_or(0));
  }
  std::vector<Row> rows;
  for (const LoaderView& loader : stream.loaders) {
    Row row{.who = absl::StrCat(loader.loader), .lag = "-", .next = OrDash(loader.next_step)};
    if (loader.next_step) {
      row.behind = (furthest - *loader.next_step) / std::max<int64_t>(stream.num_loaders, 1);
      row.lag = absl::StrCat(row.behind);
    }
    if (!loader.known) {
      row.behind = std::numeric_limits<int64_t>::max();
      row.notes = "has not come";
    } else if (loader.silent_seconds) {
      row.notes = absl::StrCat(loader.connected ? "heard " : "no connection, heard ",
                               Seconds(*loader.silent_seconds), " ago");
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string Window(const DataStreamView& stream) {
  const std::string end =
      stream.end_step ? absl::StrCat("end at step ", *stream.end_step) : "no end yet";
  if (!stream.floor || !stream.frontier) return absl::StrCat("no position yet, ", end);
  return absl::StrCat("steps from ", *stream.floor, " on in memory, complete before ",
                      *stream.frontier, ", ", end);
}

void ShowStream(const GroupView& group, const DataStreamView& stream, Page& page) {
  page.Sentence(0, absl::StrCat(stream.stream, ": pass ", stream.pass, ", ", Window(stream)));
  if (!stream.waiting_for.empty()) {
    page.Sentence(2, absl::StrCat("waits for ", stream.waiting_for));
  }
  page.Sentence(2, absl::StrCat("memory: ", Bytes(stream.used_bytes), " in use, ",
                                Bytes(stream.guaranteed_bytes),
                                " guaranteed; window: ", stream.complete_steps, " steps complete, ",
                                stream.granted_steps - stream.complete_steps, " granted, of ",
                                stream.window_steps));
  if (!stream.notice.empty()) {
    page.Sentence(2, absl::StrCat("notice: ", stream.digest_changes,
                                  " batches came again as other ones; ", stream.notice));
  }
  page.Rows("rank", "received", "stall", ReaderRows(group, stream));
  page.Rows("loader", "", "", LoaderRows(stream));
}

// Of the time of all trainers that have told.
void ShowStall(const GroupView& group, Page& page) {
  Waited all;
  double elapsed_us = 0;
  for (const ReaderView& reader : group.readers) {
    all.Add(reader.stall);
    elapsed_us += static_cast<double>(reader.elapsed_us);
  }
  if (elapsed_us <= 0) return;
  page.Sentence(2, absl::StrCat("the ranks have waited ", Percent(all.Total(), elapsed_us),
                                " of their time: for loaders ", Percent(all.loader, elapsed_us),
                                ", for other ranks ", Percent(all.peer, elapsed_us),
                                ", for the server ", Percent(all.server, elapsed_us),
                                ", for copies ", Percent(all.copy, elapsed_us)));
}

void ShowGroup(const GroupView& group, Page& page) {
  std::set<int64_t> ranks;
  int64_t away = 0;
  for (const ReaderView& reader : group.readers) {
    if (!reader.closed) ranks.insert(reader.cp_rank);
    away += !reader.closed && !reader.connected ? 1 : 0;
  }
  page.Sentence(
      0, absl::StrCat(
             "group ", group.group, ": ",
             !group.opened
                 ? absl::StrCat("no reader has opened it", group.declared ? ", it is declared" : "")
                 : absl::StrCat("generation ", group.generation, group.ended ? " has ended" : ""),
             !group.opened || group.ended
                 ? ""
                 : absl::StrCat(", ", ranks.size(), " of ", group.cp_size, " ranks have opened"),
             group.executor == ExecutorKind::kAuto
                 ? ""
                 : absl::StrCat(", executor ", ToString(group.executor)),
             away > 0 ? absl::StrCat(", ", away, " without a connection") : ""));
  if (!group.failure.empty()) {
    page.Sentence(2, absl::StrCat("the generation has failed: ", group.failure));
  }
  ShowStall(group, page);
  for (const DataStreamView& stream : group.streams) ShowStream(group, stream, page);
}

}  // namespace

std::string StatusTable(const std::vector<GroupView>& groups, int64_t columns) {
  Page page(columns);
  if (groups.empty()) page.Line("no groups");
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0) page.Line("");
    ShowGroup(groups[i], page);
  }
  return page.TakeText();
}

std::string FirstLines(const std::string& text, int64_t lines) {
  const int64_t all = std::count(text.begin(), text.end(), '\n');
  if (all <= lines) return text;
  size_t end = 0;
  for (int64_t i = 0; i + 1 < lines; ++i) end = text.find('\n', end) + 1;
  return absl::StrCat(text.substr(0, end), "... ", all - std::max<int64_t>(lines - 1, 0),
                      " lines more\n");
}

}  // namespace cpshard

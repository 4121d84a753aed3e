// The decisions of the token verbs, contract section 9.
#include "core/plan/token_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cpshard {
namespace {

using ::testing::HasSubstr;
using Layout = TokenLayout<int64_t>;
using Columns = TokenColumns<int64_t>;
using Sizes = std::vector<int64_t>;
using Trim = GatherTokenSteps<int64_t>::Trim;
using Kind = Refusal::Kind;

std::string KindName(Kind kind) {
  switch (kind) {
    case Kind::kArgument:
      return "argument";
    case Kind::kOtherLayout:
      return "other layout";
    case Kind::kNoLayout:
      return "no layout";
    case Kind::kNoAxis:
      return "no axis";
  }
  return "?";
}

template <typename Int>
std::string TextOf(const OrRefusal<ShardTokenSteps<Int>>& decided) {
  if (const Refusal* refusal = std::get_if<Refusal>(&decided)) return KindName(refusal->kind);
  const auto& steps = std::get<ShardTokenSteps<Int>>(decided);
  std::ostringstream text;
  text << (steps.reposition ? "reposition " : "") << "merge " << steps.merged_axes << " axis "
       << steps.axis << " pad " << steps.pad << " columns " << steps.columns;
  return text.str();
}

template <typename Int>
std::string TextOf(const OrRefusal<GatherTokenSteps<Int>>& decided) {
  if (const Refusal* refusal = std::get_if<Refusal>(&decided)) return KindName(refusal->kind);
  const auto& steps = std::get<GatherTokenSteps<Int>>(decided);
  std::ostringstream text;
  text << "axis " << steps.axis << " columns " << steps.columns << " trim "
       << static_cast<int>(steps.trim) << " shape";
  for (const Int& size : steps.shape) text << " " << size;
  return text.str();
}

// What the contract says, once more, in its own order and words.

std::string MapSays(const Columns& map, int64_t n) {  // 9.1; "" = it has indices for n
  if (map.captured) return n == *map.captured ? "" : "other layout";
  if (!map.divisor) return "no layout";
  return n % *map.divisor == 0 ? "" : "argument";
}

std::string ShardSays(const Layout& layout, const Columns& map, Sizes t, int64_t seq_dim,
                      bool fill) {  // 9.2
  const int64_t axes = static_cast<int64_t>(t.size());
  std::string done;
  if (layout.positions_shape && t == *layout.positions_shape) {
    if (!fill) return "argument";
    if (!layout.padded_seq_len) return "other layout";
    t[1] = *layout.padded_seq_len;
    seq_dim = 1;
    done = "reposition merge 0";
  } else if (layout.input_row_shape && axes >= 2 &&
             Sizes(t.begin(), t.begin() + 2) == *layout.input_row_shape) {
    t[1] *= t[0];
    t.erase(t.begin());
    seq_dim = 0;
    done = "merge 2";
  } else {
    if (seq_dim < -axes || seq_dim >= axes) return "no axis";
    seq_dim = (seq_dim + axes) % axes;
    done = "merge 0";
  }
  int64_t n = t[seq_dim];
  int64_t pad = 0;
  if (layout.padded_seq_len && n != *layout.padded_seq_len) {
    if (!fill || layout.original_seq_len != n) return "other layout";
    pad = *layout.padded_seq_len - n;
    if (pad < 0) return "other layout";
    n += pad;
  }
  const std::string refused = MapSays(map, n);
  if (!refused.empty()) return refused;
  return absl::StrCat(done, " axis ", seq_dim, " pad ", pad, " columns ", n);
}

std::string GatherSays(const Layout& layout, const Columns& map, const Sizes& t, int64_t seq_dim,
                       bool trim, bool fill, int64_t cp, bool collective) {  // 9.3
  const int64_t axes = static_cast<int64_t>(t.size());
  if (trim && layout.positions_shape && axes == 2) seq_dim = 1;  // T49
  if (seq_dim < -axes || seq_dim >= axes) return "no axis";
  seq_dim = (seq_dim + axes) % axes;
  const std::string refused = MapSays(map, t[seq_dim] * cp);
  if (!refused.empty()) return refused;
  Sizes full = t;
  if (collective) full[seq_dim] *= cp;
  const int64_t n = full[seq_dim];
  const auto answer = [&](Trim kind, const Sizes& shape) {
    return absl::StrCat("axis ", seq_dim, " columns ", n, " trim ", static_cast<int>(kind),
                        " shape ", absl::StrJoin(shape, " "));
  };
  if (!trim) return answer(Trim::kNone, full);
  if (layout.padded_seq_len && n != *layout.padded_seq_len) return "other layout";
  if (layout.positions_shape) {
    if (!fill) return "argument";
    const bool rows_alike = axes == 2 && full[0] == (*layout.positions_shape)[0];
    return rows_alike ? answer(Trim::kPositions, *layout.positions_shape) : "other layout";
  }
  if (layout.input_row_shape) {
    Sizes rows = *layout.input_row_shape;
    if (rows[0] * rows[1] != n) return "other layout";
    for (int64_t axis = 0; axis < seq_dim; ++axis) {
      if (full[axis] != 1) return "other layout";
    }
    for (int64_t axis = seq_dim + 1; axis < axes; ++axis) rows.push_back(full[axis]);
    return answer(Trim::kRowShape, rows);
  }
  if (!layout.original_seq_len) return "no layout";
  full[seq_dim] = *layout.original_seq_len;
  return *layout.original_seq_len > n ? "other layout" : answer(Trim::kOriginal, full);
}

const std::vector<Sizes> kSizes = {{},        {4},    {6},       {8},         {2, 4}, {2, 6},
                                   {2, 8},    {8, 2}, {1, 8},    {0, 6},      {2, 0}, {2, 4, 3},
                                   {2, 6, 3}, {1, 4}, {1, 4, 8}, {2, 4, 6, 1}};

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const std::optional<int64_t> original : {std::optional<int64_t>(), {6}, {8}, {12}}) {
    for (const std::optional<int64_t> padded : {std::optional<int64_t>(), {8}, {16}}) {
      for (const Sizes& rows : {Sizes{}, {2, 4}, {1, 8}, {2, 0}}) {
        for (const Sizes& positions : {Sizes{}, {2, 6}, {2, 8}, {0, 6}}) {
          Layout layout{original, padded, {}, {}};
          if (!rows.empty()) layout.input_row_shape = rows;
          if (!positions.empty()) layout.positions_shape = positions;
          layouts.push_back(layout);
        }
      }
    }
  }
  return layouts;
}

const std::vector<Columns> kMaps = {{},      {8, {}}, {8, 4},  {12, 3},
                                    {0, {}}, {{}, 1}, {{}, 4}, {{}, 3}};

// A symbolic length, as far as the decisions may use one.
struct Symbol {
  int64_t value = 0;
  Symbol(int64_t number = 0) : value(number) {}  // NOLINT(runtime/explicit)
  Symbol operator-(const Symbol& other) const { return value - other.value; }
  Symbol operator+(const Symbol& other) const { return value + other.value; }
  Symbol operator*(const Symbol& other) const { return value * other.value; }
  Symbol operator%(const Symbol& other) const { return value % other.value; }
  bool operator==(const Symbol& other) const { return ++asked, value == other.value; }
  bool operator<(const Symbol& other) const { return ++asked, value < other.value; }
  bool operator>(const Symbol& other) const { return ++asked, value > other.value; }
  static inline int asked = 0;
};
std::ostream& operator<<(std::ostream& out, const Symbol& symbol) { return out << symbol.value; }

std::optional<Symbol> Symbolic(const std::optional<int64_t>& number) {
  return number ? std::optional<Symbol>(*number) : std::nullopt;
}
std::vector<Symbol> Symbolic(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }
std::optional<std::vector<Symbol>> Symbolic(const std::optional<Sizes>& sizes) {
  return sizes ? std::optional(Symbolic(*sizes)) : std::nullopt;
}
TokenLayout<Symbol> Symbolic(const Layout& layout) {
  return {Symbolic(layout.original_seq_len), Symbolic(layout.padded_seq_len),
          Symbolic(layout.input_row_shape), Symbolic(layout.positions_shape)};
}
TokenColumns<Symbol> Symbolic(const Columns& map) { return {Symbolic(map.captured), map.divisor}; }

TEST(TokenVerbs, ShardingTakesTheStepsThatTheContractNames) {
  int64_t accepted = 0;
  for (const Layout& layout : Layouts()) {
    for (const Columns& map : kMaps) {
      for (const Sizes& sizes : kSizes) {
        for (int64_t seq_dim = -4; seq_dim <= 4; ++seq_dim) {
          for (const bool fill : {false, true}) {
            const std::string want = ShardSays(layout, map, sizes, seq_dim, fill);
            const auto got = DecideShardToken<int64_t>(layout, map, sizes, {seq_dim, fill});
            ASSERT_EQ(TextOf(got), want)
                << "[" << absl::StrJoin(sizes, ", ") << "] dim " << seq_dim << " fill " << fill;
            const auto symbolic = DecideShardToken<Symbol>(Symbolic(layout), Symbolic(map),
                                                           Symbolic(sizes), {seq_dim, fill});
            ASSERT_EQ(TextOf(symbolic), want);
            accepted += std::holds_alternative<ShardTokenSteps<int64_t>>(got);
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 10000);
}

TEST(TokenVerbs, GatheringTakesTheStepsThatTheContractNames) {
  int64_t accepted = 0;
  for (const Layout& layout : Layouts()) {
    for (const Columns& map : kMaps) {
      for (const Sizes& sizes : kSizes) {
        for (int64_t seq_dim = -4; seq_dim <= 4; ++seq_dim) {
          for (const int how : {0, 1, 2, 3, 4, 5}) {
            const bool trim = how > 0, fill = how % 2 == 0, collective = how < 4;
            const int64_t cp = 2;
            const std::string want =
                GatherSays(layout, map, sizes, seq_dim, trim, fill, cp, collective);
            const auto got = DecideGatherToken<int64_t>(layout, map, sizes,
                                                        {seq_dim, trim, fill, cp, collective, {}});
            ASSERT_EQ(TextOf(got), want)
                << "[" << absl::StrJoin(sizes, ", ") << "] dim " << seq_dim << " how " << how;
            const auto symbolic =
                DecideGatherToken<Symbol>(Symbolic(layout), Symbolic(map), Symbolic(sizes),
                                          {seq_dim, trim, fill, cp, collective, {}});
            ASSERT_EQ(TextOf(symbolic), want);
            accepted += std::holds_alternative<GatherTokenSteps<int64_t>>(got);
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 10000);
}

// Every question about a symbolic length is a guard of the compiled program.
TEST(TokenVerbs, ASymbolicLengthIsAskedLittle) {
  const auto asked = [](const Layout& layout, const Sizes& sizes, bool fill) {
    Symbol::asked = 0;
    const auto decided =
        DecideShardToken<Symbol>(Symbolic(layout), {{}, 1}, Symbolic(sizes), {1, fill});
    EXPECT_TRUE(std::holds_alternative<ShardTokenSteps<Symbol>>(decided));
    return Symbol::asked;
  };
  EXPECT_EQ(asked({}, {2, 8}, false), 0);
  EXPECT_EQ(asked({6, 8, {}, {}}, {2, 8}, false), 1);
  EXPECT_EQ(asked({6, 8, {}, {}}, {2, 6}, true), 3);
}

TEST(TokenVerbs, UnevenShardsAreAsLongAsTheyAreTogether) {
  GatherTokenArgs<int64_t> args{.trim = true, .cp_size = 3};
  args.all_slots = 11;
  const auto decided = DecideGatherToken<int64_t>({9, 11, {}, {}}, {11, {}}, Sizes{2, 5}, args);
  EXPECT_EQ(TextOf(decided), "axis 1 columns 11 trim 3 shape 2 9");
}

struct Named {
  std::string what;
  Refusal refusal;
  absl::StatusCode code;
  std::vector<std::string> parts;
};

Refusal ShardRefusal(const Layout& layout, const Columns& map, const Sizes& sizes,
                     const ShardTokenArgs& args) {
  const auto decided = DecideShardToken<int64_t>(layout, map, sizes, args);
  EXPECT_TRUE(std::holds_alternative<Refusal>(decided));
  return std::holds_alternative<Refusal>(decided) ? std::get<Refusal>(decided) : Refusal();
}

Refusal GatherRefusal(const Layout& layout, const Columns& map, const Sizes& sizes,
                      const GatherTokenArgs<int64_t>& args) {
  const auto decided = DecideGatherToken<int64_t>(layout, map, sizes, args);
  EXPECT_TRUE(std::holds_alternative<Refusal>(decided));
  return std::holds_alternative<Refusal>(decided) ? std::get<Refusal>(decided) : Refusal();
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

void ExpectNamed(const std::vector<Named>& all) {
  for (const Named& named : all) {
    SCOPED_TRACE(named.what);
    const absl::Status status = ToStatus(named.refusal);
    EXPECT_EQ(status.code(), named.code) << status;
    for (const std::string& part : named.parts) EXPECT_THAT(named.refusal.text, HasSubstr(part));
  }
}

// R4, R5, R8, R14, R15 and their neighbours; decision D9 has the codes.
TEST(TokenVerbs, ARefusalToShardNamesTheNumbersAndTheWayOut) {
  const Layout rows{6, 8, {}, {}};
  const Layout moved{{}, 8, {}, Sizes{1, 3}};
  ExpectNamed({
      {"no fill",
       ShardRefusal(rows, {{}, 2}, {1, 6}, {}),
       kPrecondition,
       {"[1, 6]", "6 tokens on axis 1", "padded_seq_len=8", "original_seq_len=6", "`fill`",
        "not given"}},
      {"another length",
       ShardRefusal(rows, {{}, 2}, {1, 4}, {1, true}),
       kPrecondition,
       {"[1, 4]", "4 tokens", "padded_seq_len=8", "original_seq_len=6"}},
      {"no original",
       ShardRefusal({{}, 8, {}, {}}, {{}, 2}, {1, 4}, {1, true}),
       kPrecondition,
       {"original_seq_len=none"}},
      {"no room",
       ShardRefusal({9, 8, {}, {}}, {{}, 2}, {1, 9}, {1, true}),
       kPrecondition,
       {"original_seq_len=9", "padded_seq_len=8"}},
      {"moved, no fill", ShardRefusal(moved, {{}, 2}, {1, 3}, {}), kInvalid, {"[1, 3]", "`fill`"}},
      {"moved, no length",
       ShardRefusal({{}, {}, {}, Sizes{1, 3}}, {{}, 2}, {1, 3}, {1, true}),
       kPrecondition,
       {"[1, 3]", "padded_seq_len"}},
      {"no map",
       ShardRefusal({}, {}, {8}, {0}),
       kPrecondition,
       {"data-dependent", "before the first shard"}},
      {"captured",
       ShardRefusal({}, {8, {}}, {6}, {0}),
       kPrecondition,
       {"8 columns", "6", "does not match the batch"}},
      {"indivisible",
       ShardRefusal({}, {{}, 16}, {4, 17}, {}),
       kInvalid,
       {"divisible by cp_size", "divisible by 2 * cp_size", "17", "16"}},
      {"no axis", ShardRefusal({}, {{}, 1}, {4, 17}, {2}), kInvalid, {"[4, 17]", "axis 2"}},
      {"0-d", ShardRefusal({}, {{}, 1}, {}, {0}), kInvalid, {"[]", "axis 0"}},
      {"far axis",
       ShardRefusal({}, {{}, 1}, {4, 17}, {INT64_MIN}),
       kInvalid,
       {"-9223372036854775808"}},
  });
}

// R21 and its neighbours.
TEST(TokenVerbs, ARefusalToGatherNamesTheNumbersAndTheWayOut) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const GatherTokenArgs<int64_t> trim{.trim = true}, pair{.trim = true, .cp_size = 2};
  GatherTokenArgs<int64_t> filled = trim;
  filled.has_fill = true;
  ExpectNamed({
      {"length",
       GatherRefusal({6, 8, {}, {}}, {{}, 1}, {1, 4}, trim),
       kPrecondition,
       {"gathered length 4", "axis 1", "padded_seq_len=8"}},
      {"no collective",
       GatherRefusal({6, 8, {}, {}}, {{}, 1}, {1, 4}, {1, true, false, 2, false, {}}),
       kPrecondition,
       {"gathered length 4", "no collective"}},
      {"nothing",
       GatherRefusal({{}, 8, {}, {}}, {{}, 1}, {1, 4}, pair),
       kPrecondition,
       {"no shard layout to trim to", "without trim"}},
      {"no map", GatherRefusal({}, {}, {1, 4}, trim), kPrecondition, {"data-dependent"}},
      {"captured", GatherRefusal({}, {12, {}}, {1, 4}, pair), kPrecondition, {"12 columns", "8"}},
      {"no fill",
       GatherRefusal({{}, 8, {}, Sizes{1, 3}}, {{}, 1}, {1, 4}, pair),
       kInvalid,
       {"[1, 3]", "`fill`"}},
      {"three axes",
       GatherRefusal({{}, 8, {}, Sizes{1, 3}}, {{}, 1}, {1, 8, 2}, filled),
       kPrecondition,
       {"[1, 8, 2]", "[1, 3]"}},
      {"other rows",
       GatherRefusal({{}, 8, {}, Sizes{1, 3}}, {{}, 1}, {2, 8}, filled),
       kPrecondition,
       {"[2, 8]", "[1, 3]"}},
      {"row shape",
       GatherRefusal({{}, {}, Sizes{2, 3}, {}}, {{}, 1}, {1, 4}, pair),
       kPrecondition,
       {"[1, 8]", "[2, 3]", "axis 1"}},
      {"axes before",
       GatherRefusal({{}, {}, Sizes{2, 4}, {}}, {{}, 1}, {2, 4}, pair),
       kPrecondition,
       {"[2, 8]", "[2, 4]"}},
      {"negative rows",
       GatherRefusal({{}, {}, Sizes{-2, -4}, {}}, {{}, 1}, {1, 4}, pair),
       kPrecondition,
       {"[-2, -4]"}},
      {"huge rows",
       GatherRefusal({{}, {}, Sizes{kHuge, 4}, {}}, {{}, 1}, {1, 0}, pair),
       kPrecondition,
       {"[4611686018427387904, 4]"}},
      {"three rows",
       GatherRefusal({{}, {}, Sizes{2, 2, 2}, {}}, {{}, 1}, {1, 4}, pair),
       kPrecondition,
       {"[2, 2, 2]"}},
      {"original",
       GatherRefusal({9, {}, {}, {}}, {{}, 1}, {1, 4}, pair),
       kPrecondition,
       {"original_seq_len=9", "8"}},
      {"negative",
       GatherRefusal({-1, {}, {}, {}}, {{}, 1}, {1, 4}, pair),
       kPrecondition,
       {"original_seq_len=-1", "8"}},
      {"too long",
       GatherRefusal({}, {{}, 1}, {0, kHuge}, pair),
       kInvalid,
       {"4611686018427387904 * 2", "int64"}},
      {"no axis", GatherRefusal({}, {{}, 1}, {1, 4}, {-3}), kInvalid, {"[1, 4]", "axis -3"}},
  });
}

TEST(TokenVerbs, MergedAxesBeyondInt64AreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const Refusal refusal =
      ShardRefusal({{}, {}, Sizes{kHuge, 4}, {}}, {{}, 1}, {kHuge, 4, 0}, {1, true});
  EXPECT_EQ(refusal.kind, Kind::kArgument);
  EXPECT_THAT(refusal.text, HasSubstr("4611686018427387904 * 4"));
}

}  // namespace
}  // namespace cpshard

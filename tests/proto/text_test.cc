#include "proto/text.h"

#include <gtest/gtest.h>

#include <random>

#include "cpshard/v1/service.pb.h"

namespace cpshard {
namespace {

const std::string kFull(2048, 'x');
const std::string kCharacters[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};

// The generated code takes it as a text.
bool IsText(const std::string& bytes) {
  v1::BatchStatus message;
  const char size = static_cast<char>(bytes.size());  // one byte: below 128
  return message.ParseFromString(std::string("\x12") + size + bytes);
}

TEST(CutText, LeavesATextOf2KibibytesAlone) {
  EXPECT_EQ(CutText(""), "");
  EXPECT_EQ(CutText("text"), "text");
  EXPECT_EQ(CutText(kFull), kFull);
  EXPECT_EQ(CutText(kFull + "x"), kFull + "...");
}

TEST(CutText, CutsBetweenTwoCharacters) {
  for (const std::string& character : kCharacters) {
    for (size_t before = 1; before < character.size(); ++before) {
      const std::string kept = kFull.substr(before);
      EXPECT_EQ(CutText(kept + character + "more"), kept + "...") << character << before;
    }
    const std::string kept = kFull.substr(character.size()) + character;
    EXPECT_EQ(CutText(kept + character), kept + "...") << "it fits";
  }
}

TEST(CutText, HalfACharacterInsideBecomesQuestionMarks) {
  for (const std::string& character : kCharacters) {
    EXPECT_EQ(CutText("a" + character + "b"), "a" + character + "b");
    const std::string marks(character.size() - 1, '?');
    EXPECT_EQ(CutText("a" + character.substr(1) + "b"), "a" + marks + "b");
    EXPECT_EQ(CutText("a" + character.substr(0, character.size() - 1)), "a" + marks);
  }
}

TEST(CutText, MakesATextOfAnyBytesAndLeavesOneThatIsOneAlone) {
  std::mt19937 random(5);
  constexpr unsigned char kBytes[] = {'a',  0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1,
                                      0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF};
  int texts = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes(random() % 5, ' ');
    for (char& byte : bytes) byte = static_cast<char>(kBytes[random() % sizeof(kBytes)]);
    const std::string cut = CutText(bytes);
    ASSERT_EQ(cut == bytes, IsText(bytes)) << testing::PrintToString(bytes);
    ASSERT_TRUE(IsText(cut));
    texts += cut == bytes;
  }
  EXPECT_GT(texts, 1000);
}

}  // namespace
}  // namespace cpshard

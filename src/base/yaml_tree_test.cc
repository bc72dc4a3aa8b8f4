#include "base/yaml_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divvy {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::string& text) {
  const auto node = ParseYaml(text, "f.yaml");
  return node ? "no error" : node.error().message;
}

std::string Repeat(std::string_view unit, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += unit;
  return text;
}

TEST(YamlTreeTest, KeepsOrderLinesAndQuotes) {
  const auto root = ParseYaml("b: 1\na:\n  - 'x'\n  - y: [p, q]\n", "f.yaml");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->keys, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(root->key_lines, (std::vector<int>{1, 2}));
  const YamlNode* a = root->Find("a");
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->items.size(), 2U);
  EXPECT_TRUE(a->items[0].quoted);
  EXPECT_EQ(a->items[0].line, 3);
  EXPECT_EQ(a->items[1].Find("y")->items[1].text, "q");
  EXPECT_FALSE(a->items[1].Find("y")->items[1].quoted);
  EXPECT_EQ(root->Find("c"), nullptr);
}

TEST(YamlTreeTest, NothingButSpaceAndCommentsIsNull) {
  for (const char* text : {"", "\n\n", "# only this\n", "---\n", "\xEF\xBB\xBF"}) {
    const auto root = ParseYaml(text, "f.yaml");
    ASSERT_TRUE(root) << root.error().message;
    EXPECT_EQ(root->kind, YamlNode::Kind::kNull);
  }
}

TEST(YamlTreeTest, MissingValueStandsOnTheLineOfItsKey) {
  const auto root = ParseYaml("a: 1\nb:\n\n\nc: 2\n", "f.yaml");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->Find("b")->kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root->Find("b")->line, 2);
}

TEST(YamlTreeTest, RefusesWhatMakesAFileMeanSomethingElse) {
  EXPECT_EQ(ErrorOf("a: 1\nb: 2\na: 3\n"),
            "f.yaml:3: the key 'a' appears twice; it stands on line 1 already");
  EXPECT_THAT(ErrorOf("x:\n  - {k: 1, k: 2}\n"), StartsWith("f.yaml:2: the key 'k' appears twice"));
  EXPECT_THAT(ErrorOf("a: &x 1\nb: 2\n"), StartsWith("f.yaml:1: anchors"));
  EXPECT_THAT(ErrorOf("a: &x [1]\nb: *x\n"), StartsWith("f.yaml:1: anchors"));
  EXPECT_THAT(ErrorOf("a: 1\nb: !!int 2\n"), StartsWith("f.yaml:2: the tag"));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2\n"), HasSubstr("a second document begins"));
  EXPECT_THAT(ErrorOf("a: 1\n? [x, y]\n: 2\n"), StartsWith("f.yaml:2: a key must be a word"));
}

TEST(YamlTreeTest, RefusesBytesThatAreNotText) {
  EXPECT_EQ(ErrorOf("a: 1\nb: \xff\n"), "f.yaml:2: byte 0xFF is not UTF-8 text");
  EXPECT_THAT(ErrorOf("a: \xC0\x80"), HasSubstr("0xC0 is not UTF-8"));          // Overlong.
  EXPECT_THAT(ErrorOf("a: \xE0\x80\x80"), HasSubstr("0xE0 is not UTF-8"));      // Overlong.
  EXPECT_THAT(ErrorOf("a: \xED\xA0\x80"), HasSubstr("0xED is not UTF-8"));      // Surrogate.
  EXPECT_THAT(ErrorOf("a: \xF4\x90\x80\x80"), HasSubstr("0xF4 is not UTF-8"));  // Too large.
  EXPECT_THAT(ErrorOf("a: \xE2\x82"), HasSubstr("0xE2 is not UTF-8"));          // Cut short.
  EXPECT_THAT(ErrorOf(std::string("a: 1\n\0b", 7)), StartsWith("f.yaml:2: a control character"));
  EXPECT_THAT(ErrorOf("a: \x1b[31m"), HasSubstr("control character"));
  EXPECT_THAT(ErrorOf("a: 1\rb: 2\n"), HasSubstr("carriage return"));
  EXPECT_THAT(ErrorOf("a:\n\tb: 1\n"), StartsWith("f.yaml:2: a tab indents"));
  EXPECT_THAT(ErrorOf("a:\n  \tb: 1\n"), StartsWith("f.yaml:2: a tab indents"));
}

TEST(YamlTreeTest, AcceptsTextOfEveryLanguageAndWindowsLineEnds) {
  const auto root = ParseYaml("a: 模型-é-🙂\t# tab before a comment\r\nb: 2\r\n", "f.yaml");
  ASSERT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->Find("a")->text, "模型-é-🙂");
  EXPECT_EQ(root->Find("b")->text, "2");
  EXPECT_EQ(root->Find("b")->line, 2);
}

TEST(YamlTreeTest, RefusesDeepNesting) {
  EXPECT_TRUE(ParseYaml(Repeat("[", 32) + Repeat("]", 32), "f.yaml"));
  EXPECT_EQ(ErrorOf(Repeat("[", 33) + Repeat("]", 33)), "f.yaml:1: nested over 32 levels deep");
  EXPECT_THAT(ErrorOf(Repeat("[", 5000) + Repeat("]", 5000)), HasSubstr("nested over 32 levels"));
  EXPECT_THAT(ErrorOf(Repeat("- ", 5000)), HasSubstr("nested over 32 levels"));
}

TEST(YamlTreeTest, RefusesAFileOverOneMebibyte) {
  EXPECT_TRUE(ParseYaml("a: 1\n#" + std::string((1 << 20) - 6, 'x'), "f.yaml"));
  EXPECT_THAT(ErrorOf("a: 1\n#" + std::string((1 << 20) - 5, 'x')),
              StartsWith("f.yaml: 1048577 bytes"));
}

TEST(YamlTreeTest, SyntaxErrorHasTheParsersPosition) {
  EXPECT_THAT(ErrorOf("a: 1\nb: [1, 2\nc: 3\n"), StartsWith("f.yaml:3: not valid YAML: "));
  for (const char* end : {"", "\n", "\n\n  \n", "\nb: 2\n"}) {
    EXPECT_THAT(ErrorOf(std::string("a: \"never closed") + end), HasSubstr("not valid YAML: "));
    EXPECT_THAT(ErrorOf(std::string("a: 'never closed") + end), HasSubstr("not valid YAML: "));
  }
  EXPECT_THAT(ErrorOf("a: 1\n  b: 2\n"), HasSubstr("not valid YAML: "));
}

}  // namespace
}  // namespace divvy

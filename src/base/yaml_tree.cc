#include "base/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "base/text_safety.h"

namespace divvy {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDepth = 32;

struct Complaint {
  int line;
  std::string what;
};

// Collects the parser's events into a tree. After the first complaint it ignores
// what follows; the parser goes on to the end, which its own limits keep short.
class TreeBuilder : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) Complain(mark, "a second document begins; a file holds one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    Add({.kind = YamlNode::Kind::kNull, .line = LineOf(mark)});
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    Complain(mark, "aliases (*name) are not supported; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    // The parser tags scalars in quotes "!" and plain ones "?".
    RefuseTag(mark, tag);
    const bool null = tag != "!" && (value.empty() || value == "~" || value == "null");
    Add({.kind = null ? YamlNode::Kind::kNull : YamlNode::Kind::kScalar,
         .line = LineOf(mark),
         .text = value,
         .quoted = tag == "!"});
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, YamlNode::Kind::kSequence);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMapping);
  }
  void OnMapEnd() override {
    if (!complaint_ && !open_.empty()) RefuseRepeatedKeys(open_.back());
    Close();
  }

  const std::optional<Complaint>& complaint() const { return complaint_; }
  YamlNode TakeRoot() { return std::move(root_); }

  static int LineOf(const YAML::Mark& mark) { return std::max(mark.line, 0) + 1; }

 private:
  void Complain(const YAML::Mark& mark, std::string what) {
    if (!complaint_) complaint_ = Complaint{LineOf(mark), std::move(what)};
  }

  void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      Complain(mark, "anchors (&name) are not supported; write the value out");
    }
  }

  void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      Complain(mark,
               fmt::format("the tag {} is not supported; write the value alone", Quoted(tag)));
    }
  }

  void RefuseRepeatedKeys(const YamlNode& mapping) {
    std::map<std::string_view, int> first_lines;
    for (std::size_t i = 0; i < mapping.keys.size(); ++i) {
      const auto [first, is_new] = first_lines.emplace(mapping.keys[i], mapping.key_lines[i]);
      if (is_new) continue;
      complaint_ = Complaint{mapping.key_lines[i],
                             fmt::format("the key {} appears twice; it stands on line {} already",
                                         Quoted(mapping.keys[i]), first->second)};
      return;
    }
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (AwaitsKey()) Complain(mark, "a key must be a word, not a list or mapping");
    if (open_.size() >= kMaxDepth) {
      Complain(mark, fmt::format("nested over {} levels deep", kMaxDepth));
    }
    if (complaint_) return;
    open_.push_back({.kind = kind, .line = LineOf(mark)});
  }

  void Close() {
    if (complaint_ || open_.empty()) return;
    YamlNode done = std::move(open_.back());
    open_.pop_back();
    Add(std::move(done));
  }

  // True when the next scalar is a key.
  bool AwaitsKey() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMapping &&
           open_.back().keys.size() == open_.back().items.size();
  }

  void Add(YamlNode node) {
    if (complaint_) return;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    YamlNode& parent = open_.back();
    if (AwaitsKey()) {
      parent.keys.push_back(std::move(node.text));
      parent.key_lines.push_back(node.line);
      return;
    }
    // The parser marks a missing value where it noticed, a line or more too late.
    if (node.kind == YamlNode::Kind::kNull && !parent.key_lines.empty()) {
      node.line = parent.key_lines.back();
    }
    parent.items.push_back(std::move(node));
  }

  int documents_ = 0;
  YamlNode root_;
  std::vector<YamlNode> open_;  // Collections begun and not ended, outermost first.
  std::optional<Complaint> complaint_;
};

// Runs yaml-cpp over the text. It throws; nothing of that leaves this function.
std::optional<Complaint> Build(std::string_view text, TreeBuilder& builder) {
  // yaml-cpp misses the end of the file inside quotes when a line end precedes it,
  // and would take the rest of the file for the value.
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (!builder.complaint() && parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::DeepRecursion& error) {
    if (!builder.complaint()) {
      return Complaint{TreeBuilder::LineOf(error.mark),
                       fmt::format("nested over {} levels deep", kMaxDepth)};
    }
  } catch (const YAML::Exception& error) {
    if (!builder.complaint()) {
      return Complaint{TreeBuilder::LineOf(error.mark),
                       fmt::format("not valid YAML: {} (column {})", error.msg,
                                   std::max(error.mark.column, 0) + 1)};
    }
  } catch (const std::exception& error) {
    if (!builder.complaint()) return Complaint{1, fmt::format("not valid YAML: {}", error.what())};
  }
  return builder.complaint();
}

}  // namespace

const YamlNode* YamlNode::Find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return &items[i];
  }
  return nullptr;
}

Result<YamlNode> ParseYaml(std::string_view text, std::string_view file_name) {
  if (text.size() > kMaxBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} bytes; a file may have {}", file_name, text.size(), kMaxBytes));
  }
  const auto fail = [&](int line, std::string_view what) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file_name, line, what));
  };
  if (const auto unsafe = FindUnsafeByte(text)) return fail(unsafe->line, unsafe->what);
  TreeBuilder builder;
  if (const auto complaint = Build(text, builder)) return fail(complaint->line, complaint->what);
  return builder.TakeRoot();
}

}  // namespace divvy

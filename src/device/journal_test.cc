#include "device/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace divvy::device {
namespace {

using ::testing::HasSubstr;

// A state directory of its own for each test.
class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::string pattern = ::testing::TempDir() + "divvy-journal-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~JournalTest() override { std::filesystem::remove_all(dir_); }

  std::string Text() const {
    std::ifstream file(dir_ + "/journal");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void SetText(const std::string& text) const { std::ofstream(dir_ + "/journal") << text; }

  std::string dir_;
};

const Step kStep{.kind = Step::Kind::kCreate,
                 .gpu_uuid = "GPU-a",
                 .gpu_index = 0,
                 .instance = {19, "1g.18gb", 0, 1, 1, std::nullopt},
                 .effect = ""};

Change SomeChange() {
  return {
      .plan = "plan.yaml",
      .before = {{"GPU-a", true, {{9, "3g.71gb", 4, 4, 3, {{{0, 0, 1}, {1, 1, 2}}}}}},
                 {"GPU-b", false, {}}},
      .after = {{"GPU-a", true, {{19, "1g.18gb", 0, 1, 1, std::nullopt}}}, {"GPU-b", true, {}}}};
}

TEST_F(JournalTest, NothingIsUnfinishedAtFirst) {
  EXPECT_EQ(ReadUnfinished(dir_)->has_value(), false);
  EXPECT_EQ(ReadUnfinished(dir_ + "/missing")->has_value(), false);
  EXPECT_EQ(ReadLast(dir_)->has_value(), false);
}

TEST_F(JournalTest, AChangeIsOnDiskBeforeItsFirstStep) {
  auto journal = Journal::Begin(dir_, SomeChange());
  ASSERT_TRUE(journal) << journal.error().message;
  const auto record = ReadUnfinished(dir_);
  ASSERT_TRUE(record && *record);
  EXPECT_EQ((*record)->change, SomeChange());
  EXPECT_TRUE((*record)->begun.empty());
  EXPECT_FALSE((*record)->outcome);
}

TEST_F(JournalTest, KnowsWhatItSetOutToCreate) {
  auto journal = Journal::Begin(dir_, SomeChange());
  ASSERT_TRUE(journal->BeginStep(kStep));
  ASSERT_TRUE(journal->EndStep());
  Step other = kStep;
  other.instance.start = 5;
  ASSERT_TRUE(journal->BeginStep(other));
  const BegunCreate first{"GPU-a", 19, 0};
  const BegunCreate second{"GPU-a", 19, 5};
  EXPECT_EQ((*ReadUnfinished(dir_))->begun, (std::vector{first, second}));
  EXPECT_EQ(journal->begun(), (std::vector{first, second}));
  ASSERT_TRUE(journal->WithdrawStep());
  EXPECT_EQ((*ReadUnfinished(dir_))->begun, std::vector{first});
  EXPECT_EQ(Journal::Resume(dir_)->begun(), std::vector{first});
}

TEST_F(JournalTest, WhatWasRolledBackLeavesTheChangeBeforeItAsTheLast) {
  ASSERT_TRUE(Journal::Begin(dir_, SomeChange())->Finish(Outcome::kApplied));
  Change other = SomeChange();
  other.plan = "other.yaml";
  ASSERT_TRUE(Journal::Begin(dir_, other)->Finish(Outcome::kRolledBack));
  EXPECT_FALSE(ReadUnfinished(dir_)->has_value());
  EXPECT_EQ((*ReadLast(dir_))->change.plan, "plan.yaml");
}

TEST_F(JournalTest, AFileNameThatIsNotUtf8IsNoReasonToFail) {
  Change change = SomeChange();
  change.plan = "pl\xe4n.yaml";
  ASSERT_TRUE(Journal::Begin(dir_, change));
  EXPECT_TRUE((*ReadUnfinished(dir_)).has_value());
}

TEST_F(JournalTest, FinishedChangeBecomesTheLastOne) {
  auto journal = Journal::Begin(dir_, SomeChange());
  ASSERT_TRUE(journal->Finish(Outcome::kApplied));
  EXPECT_FALSE(ReadUnfinished(dir_)->has_value());
  const auto last = ReadLast(dir_);
  ASSERT_TRUE(last && *last);
  EXPECT_EQ((*last)->outcome, Outcome::kApplied);
  EXPECT_EQ((*last)->change, SomeChange());
}

TEST_F(JournalTest, AnUnfinishedChangeBlocksTheNext) {
  ASSERT_TRUE(Journal::Begin(dir_, SomeChange()));
  const auto second = Journal::Begin(dir_, SomeChange());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(second.error().message, HasSubstr("--recover"));
}

TEST_F(JournalTest, ALineTornAnywhereCountsAsNotWritten) {
  {
    auto journal = Journal::Begin(dir_, SomeChange());
    ASSERT_TRUE(journal->BeginStep(kStep));
  }
  const std::string whole = Text();
  const std::size_t header = whole.find('\n') + 1;
  for (std::size_t size = header; size < whole.size(); ++size) {
    SetText(whole.substr(0, size));
    const auto record = ReadUnfinished(dir_);
    ASSERT_TRUE(record && *record) << "torn after " << size << " bytes";
    EXPECT_TRUE((*record)->begun.empty()) << "torn after " << size << " bytes";

    auto resumed = Journal::Resume(dir_);
    ASSERT_TRUE(resumed);
    ASSERT_TRUE(resumed->BeginStep(kStep));
    EXPECT_EQ((*ReadUnfinished(dir_))->begun.size(), 1U) << "resumed after " << size << " bytes";
  }
}

TEST_F(JournalTest, ADamagedJournalIsReportedNotIgnored) {
  ASSERT_TRUE(Journal::Begin(dir_, SomeChange()));
  const std::string whole = Text();
  for (const std::string& text :
       {std::string("nonsense\n"), std::string("{}\n"), std::string("\n"), std::string(),
        whole + "nonsense\n", std::string("[1,2]\n"), std::string("{\"divvy_journal\":2}\n")}) {
    SetText(text);
    const auto record = ReadUnfinished(dir_);
    ASSERT_FALSE(record) << text;
    EXPECT_THAT(record.error().message, HasSubstr(dir_ + "/journal"));
  }
}

TEST_F(JournalTest, OnlyOneProcessHoldsTheLock) {
  const auto first = ChangeLock::Acquire(dir_);
  ASSERT_TRUE(first);
  const auto second = ChangeLock::Acquire(dir_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(getpid())));
}

TEST_F(JournalTest, TheLockIsFreeAgainAfterwards) {
  {
    ASSERT_TRUE(ChangeLock::Acquire(dir_));
  }
  EXPECT_TRUE(ChangeLock::Acquire(dir_));
}

TEST_F(JournalTest, TheStateDirectoryIsCreatedAndItsModeLeftAlone) {
  namespace fs = std::filesystem;
  fs::permissions(dir_, fs::perms::all);
  ASSERT_TRUE(ChangeLock::Acquire(dir_));
  EXPECT_EQ(fs::status(dir_).permissions(), fs::perms::all);
  EXPECT_TRUE(ChangeLock::Acquire(dir_ + "/a/b"));
}

}  // namespace
}  // namespace divvy::device

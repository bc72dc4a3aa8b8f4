#include "gate/ops.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace divvy::gate {
namespace {

const std::string kHeading = "kernel\tgrid\tblock\tshared_bytes\tduration_us\tfill\n";

class OpsFile {
 public:
  explicit OpsFile(const std::string& text) {
    const int fd = mkstemp(path_);
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(fd);
  }
  ~OpsFile() { unlink(path_); }
  OpsFile(const OpsFile&) = delete;
  OpsFile& operator=(const OpsFile&) = delete;
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/divvy-ops-XXXXXX";
};

// What a profile holds is never freed, so profiles are kept as well.
KnownOps& Fresh() {
  static auto* const kept = new std::vector<KnownOps*>;
  return *kept->emplace_back(new KnownOps);
}

LaunchShape Shape(std::uint32_t grid, std::uint32_t block, std::uint32_t shared) {
  return {.handle = 0, .grid = {grid, 1, 1}, .block = {block, 1, 1}, .shared_bytes = shared};
}

TEST(KnownOpsTest, FindsWhatTheFileSaysWhateverTheHandle) {
  const OpsFile file(kHeading + "gemm\t8x1x1\t256x1x1\t1024\t12.5\t0.25\n");
  KnownOps& ops = Fresh();
  char error[256];
  ASSERT_TRUE(ops.Load(file.path(), error, sizeof error)) << error;
  LaunchShape shape = Shape(8, 256, 1024);
  shape.handle = 0x1234;
  const KnownOp* found = ops.Find(OpKey("gemm", shape));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->ns, 12'500U);
  EXPECT_EQ(found->fill, 250);
}

TEST(KnownOpsTest, AnotherNameOrShapeIsAnotherKernel) {
  const OpsFile file(kHeading + "gemm\t8x1x1\t256x1x1\t1024\t12.5\t0.25\n");
  KnownOps& ops = Fresh();
  char error[256];
  ASSERT_TRUE(ops.Load(file.path(), error, sizeof error));
  EXPECT_EQ(ops.Find(OpKey("gemv", Shape(8, 256, 1024))), nullptr);
  EXPECT_EQ(ops.Find(OpKey("gemm", Shape(9, 256, 1024))), nullptr);
  EXPECT_EQ(ops.Find(OpKey("gemm", Shape(8, 128, 1024))), nullptr);
  EXPECT_EQ(ops.Find(OpKey("gemm", Shape(8, 256, 0))), nullptr);
}

TEST(KnownOpsTest, GrowsAndKeepsAll) {
  std::string text = kHeading;
  for (int i = 1; i <= 3000; ++i)
    text += "k" + std::to_string(i) + "\t1x1x1\t32x1x1\t0\t" + std::to_string(i) + "\t1\n";
  const OpsFile file(text);
  KnownOps& ops = Fresh();
  char error[256];
  ASSERT_TRUE(ops.Load(file.path(), error, sizeof error));
  EXPECT_EQ(ops.Count(), 3000U);
  for (std::uint32_t i = 1; i <= 3000; ++i) {
    const KnownOp* found = ops.Find(OpKey(("k" + std::to_string(i)).c_str(), Shape(1, 32, 0)));
    ASSERT_NE(found, nullptr) << i;
    EXPECT_EQ(found->ns, i * 1000);
  }
}

TEST(KnownOpsTest, AWrongLineIsNamedAndLeftOut) {
  for (const char* wrong :
       {"\t8x1x1\t1x1x1\t0\t1\t1", "k\t8x1\t1x1x1\t0\t1\t1", "k\t8x1x1\t1x1\t0\t1\t1",
        "k\t8x1x1\t1x1x1\tz\t1\t1", "k\t8x1x1\t1x1x1\t0\t-1\t1", "k\t8x1x1\t1x1x1\t0\t1",
        "k\t8x1x1\t1x1x1\t0\t1\t1\t1", "k"}) {
    const OpsFile file(kHeading + wrong + "\ngood\t1x1x1\t1x1x1\t0\t1\t1\n");
    KnownOps& ops = Fresh();
    char error[256];
    ASSERT_TRUE(ops.Load(file.path(), error, sizeof error));
    EXPECT_EQ(ops.Count(), 1U) << wrong;
    EXPECT_NE(std::string(error).find(std::string(file.path()) + ":2: "), std::string::npos)
        << error;
  }
}

TEST(KnownOpsTest, TheFirstWrongLineIsNamedAndTheOthersAreCounted) {
  const OpsFile file(kHeading + "one two\n\nk\t8x1\t1x1x1\t0\t1\t1\nthree\n");
  KnownOps& ops = Fresh();
  char error[512];
  ASSERT_TRUE(ops.Load(file.path(), error, sizeof error));
  EXPECT_NE(std::string(error).find(":2: a kernel has six fields"), std::string::npos) << error;
  EXPECT_NE(std::string(error).find("2 others"), std::string::npos) << error;
}

TEST(KnownOpsTest, RefusesWhatIsNoProfile) {
  const OpsFile file("name,ms\n");
  KnownOps& ops = Fresh();
  char error[256];
  EXPECT_FALSE(ops.Load(file.path(), error, sizeof error));
  EXPECT_NE(std::string(error).find("heading"), std::string::npos);
  EXPECT_FALSE(ops.Load(OpsFile("").path(), error, sizeof error));
  EXPECT_NE(std::string(error).find("is empty"), std::string::npos) << error;
  EXPECT_FALSE(ops.Load("/tmp", error, sizeof error));
  EXPECT_NE(std::string(error).find("cannot be read"), std::string::npos) << error;
  EXPECT_FALSE(ops.Load("/nonexistent/ops", error, sizeof error));
  EXPECT_NE(std::string(error).find("/nonexistent/ops"), std::string::npos);
}

}  // namespace
}  // namespace divvy::gate

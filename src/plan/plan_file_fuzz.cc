// libFuzzer target: any bytes give an error or a plan, a plan survives writing,
// and the validator takes every plan. See CMakeLists.txt for how to run it.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "plan/drawing.h"
#include "plan/mig_parted.h"
#include "plan/plan_file.h"
#include "plan/validate.h"

// The name and linkage are libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divvy;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)plan::ImportMigParted(text, "f", {.config = "divvy", .kind = "H200-141GB", .gpus = 8});
  const auto plan = plan::ParsePlan(text, "f");
  if (!plan) return 0;
  const auto again = plan::ParsePlan(plan::FormatPlan(*plan), "f");
  Check(again.has_value() && *again == *plan, "a plan survives writing");
  if (plan::Validate(*plan).empty()) {
    Check(!plan::DrawPlan(*plan, gpu::Ink::kPlain).empty(), "a valid plan can be drawn");
  }
  return 0;
}

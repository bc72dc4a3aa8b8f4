#include "run_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace divvy::app {
namespace {

constexpr int kBarColumns = 24;
constexpr std::size_t kTextColumns = 48;  // So that a line fits 80 columns and is not broken.

void Draw(const std::string& text) {
  // Not fmt::print, which throws when nobody can hear it any more.
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

RunProgress::RunProgress() : visible_(isatty(STDERR_FILENO) != 0) {}

RunProgress::~RunProgress() {
  if (visible_) Draw("\r\x1b[K");
}

void RunProgress::Begin(int total) {
  total_ = total;
  done_ = 0;
}

void RunProgress::Show(std::string_view what) {
  if (!visible_) return;
  const int filled = total_ > 0 ? std::min(kBarColumns, done_ * kBarColumns / total_) : 0;
  const std::string count = total_ > 0 ? fmt::format(" {}/{}", done_, total_) : "";
  Draw(fmt::format("\r\x1b[K[{:#>{}}{:{}}]{} {}", "", filled, "", kBarColumns - filled, count,
                   what.substr(0, kTextColumns - count.size())));
}

void RunProgress::Advance(int steps) { done_ += steps; }

}  // namespace divvy::app

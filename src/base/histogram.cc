#include "base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace divvy {
namespace {

// Values below 2^kBits have a bucket each; from there on, each doubling has
// 2^(kBits - 1) buckets, so a bucket is at most 2^-(kBits - 1) of its value wide.
constexpr int kBits = 8;
constexpr std::uint64_t kHalf = std::uint64_t{1} << (kBits - 1);
constexpr std::size_t kBuckets = (64 - kBits + 1) * kHalf + kHalf;

std::size_t BucketOf(std::uint64_t value) {
  const int width = static_cast<int>(std::bit_width(value));
  if (width <= kBits) return value;
  const int shift = width - kBits;
  return static_cast<std::size_t>(shift) * kHalf + (value >> shift);
}

std::uint64_t UpperEnd(std::size_t bucket) {
  if (bucket < 2 * kHalf) return bucket;
  const std::size_t shift = bucket / kHalf - 1;
  const std::uint64_t top = bucket - shift * kHalf;
  return ((top + 1) << shift) - 1;
}

}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::Add(Duration value) {
  value = std::max(value, Duration(0));
  ++buckets_[BucketOf(static_cast<std::uint64_t>(value.count()))];
  ++count_;
  sum_ms_ += Milliseconds(value);
  max_ = std::max(max_, value);
}

Duration Histogram::Quantile(double q) const {
  if (count_ == 0) return Duration(0);
  const auto wanted = std::clamp<std::uint64_t>(
      static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))), 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= wanted) return std::min(max_, Duration(static_cast<Duration::rep>(UpperEnd(i))));
  }
  return max_;
}

}  // namespace divvy

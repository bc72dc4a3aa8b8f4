#include "measure/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/csv.h"
#include "base/text_safety.h"

namespace divvy::measure {
namespace {

constexpr std::string_view kMagic = "divvy profile 1: ";
constexpr std::string_view kColumns =
    "partition,processes,batch,latency_ms,p50_ms,p95_ms,p99_ms,utilization,memory_mib,power_w,"
    "error,batches\n";
constexpr std::string_view kWhat = "a journal of divvy profile";
constexpr IntRange kCounts{1, 1'000'000'000};
constexpr RealRange kAny{0, 1e9};
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

std::string Text(std::optional<double> value) {
  return value ? fmt::format("{}", *value) : std::string();
}

Point ReadPoint(CsvReader& csv) {
  const auto column = [&](std::string_view name) { return csv.Require(name, kWhat); };
  const auto real = [&](std::string_view name) { return csv.OptionalReal(column(name), kAny); };
  Point point;
  auto size = workload::ParsePartitionSize(csv.Field(column("partition")));
  if (size) {
    point.size = std::move(*size);
  } else {
    csv.Complain(fmt::format("partition: {}", size.error().message));
  }
  point.processes = csv.Integer(column("processes"), kCounts);
  point.figures = {.batch = csv.Integer(column("batch"), kCounts),
                   .latency_ms = csv.Real(column("latency_ms"), kAny),
                   .p95_ms = real("p95_ms"),
                   .utilization = real("utilization"),
                   .memory_mib = real("memory_mib"),
                   .row = 0,
                   .p50_ms = real("p50_ms"),
                   .p99_ms = real("p99_ms"),
                   .power_w = real("power_w")};
  point.error = csv.Real(column("error"), kAny);
  point.batches = csv.Integer(column("batches"), kCounts);
  return point;
}

Result<std::string> ReadAll(int fd, const std::string& path) {
  std::string text;
  std::array<char, 65536> buffer;
  ssize_t got = 0;
  while ((got = read(fd, buffer.data(), buffer.size())) > 0 && text.size() <= kMostBytes) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  if (got < 0) {
    return Fail(ErrorCode::kUnavailable, fmt::format("cannot read {}: {}", path, strerror(errno)));
  }
  return text;
}

}  // namespace

std::string JournalHead(std::string_view asked) {
  return fmt::format("{}{}\n{}", kMagic, asked, kColumns);
}

std::string JournalRow(const Point& point) {
  const workload::ProfilePoint& f = point.figures;
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", Describe(point.size), point.processes,
                     f.batch, f.latency_ms, Text(f.p50_ms), Text(f.p95_ms), Text(f.p99_ms),
                     Text(f.utilization), Text(f.memory_mib), Text(f.power_w), point.error,
                     point.batches);
}

Result<std::vector<Point>> ParseJournal(std::string_view text, std::string_view asked,
                                        std::string_view file_name) {
  text = text.substr(0, text.rfind('\n') + 1);  // All of it when there is none: npos + 1 is 0.
  const std::size_t end = text.find('\n');
  if (text.empty()) return std::vector<Point>{};
  std::string_view head = text.substr(0, end);
  if (!head.starts_with(kMagic)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:1: not {}; remove it, or save elsewhere", file_name, kWhat));
  }
  head.remove_prefix(kMagic.size());
  text.remove_prefix(end + 1);
  std::vector<Point> points;
  if (text.empty()) return points;
  CsvReader csv(text, file_name);
  while (csv.NextRow()) points.push_back(ReadPoint(csv));
  if (!csv.ok()) return Fail(csv.error());
  if (head != asked && !points.empty()) {
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{} is what is left of another measurement ({}; now: {}); go on with "
                            "that one, or begin anew with --restart",
                            file_name, head, asked));
  }
  return points;
}

Result<Journal> Journal::Open(const std::string& path, std::string_view asked, bool anew) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    const ErrorCode code = errno == EACCES || errno == EPERM || errno == EROFS
                               ? ErrorCode::kPermissionDenied
                           : errno == ENOENT ? ErrorCode::kNotFound
                                             : ErrorCode::kUnavailable;
    return Fail(code, fmt::format("cannot write {}: {}", path, strerror(errno)));
  }
  Journal journal(path, fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("another divvy profile is writing {}", path));
  }
  // The other one may have ended, and its journal with it, since we opened the file.
  struct stat ours{};
  struct stat there{};
  if (fstat(fd, &ours) != 0 || stat(path.c_str(), &there) != 0 || ours.st_ino != there.st_ino) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("another divvy profile has just written {}; try again", path));
  }
  const auto text = ReadAll(fd, path);
  if (!text) return Fail(text.error());
  auto points =
      anew ? Result<std::vector<Point>>(std::vector<Point>{}) : ParseJournal(*text, asked, path);
  if (!points) return Fail(points.error());
  // What a crash cut short goes; the rest is not touched, for there may be another crash.
  const std::size_t whole = points->empty() ? 0 : text->rfind('\n') + 1;
  const auto kept = static_cast<off_t>(whole);
  if (ftruncate(fd, kept) != 0 || lseek(fd, kept, SEEK_SET) != kept) {
    return Fail(ErrorCode::kUnavailable, fmt::format("cannot write {}: {}", path, strerror(errno)));
  }
  if (whole == 0) {
    if (auto written = journal.Write(JournalHead(asked)); !written) return Fail(written.error());
  }
  journal.points_ = *std::move(points);
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      points_(std::move(other.points_)) {}

Journal::~Journal() {
  if (fd_ >= 0) close(fd_);
}

Result<void> Journal::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("cannot write {}: {}", path_, strerror(errno)));
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (fsync(fd_) != 0) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("cannot write {}: {}", path_, strerror(errno)));
  }
  return {};
}

Result<void> Journal::Append(const Point& point) { return Write(JournalRow(point)); }

void Journal::Remove() { unlink(path_.c_str()); }

}  // namespace divvy::measure

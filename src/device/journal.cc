#include "device/journal.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace divvy::device {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
// Everybody may read it, so that everybody's commands can warn.
constexpr mode_t kJournalMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
constexpr const char* kApplied = "applied";
constexpr const char* kRolledBack = "rolled back";

std::string JournalPath(const std::string& state_dir) { return state_dir + "/journal"; }
std::string LastPath(const std::string& state_dir) { return state_dir + "/journal.last"; }

tl::unexpected<Error> SystemError(std::string_view doing, const std::string& path) {
  const int error = errno;
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return Fail(denied ? ErrorCode::kPermissionDenied : ErrorCode::kUnavailable,
              fmt::format("{} {}: {}", doing, path, std::strerror(error)));
}

Result<void> SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("cannot open", path);
  const bool synced = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  errno = error;
  if (!synced) return SystemError("cannot write to disk", path);
  return {};
}

Result<void> WriteAll(int fd, const std::string& text, const std::string& path) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = write(fd, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError("cannot write", path);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (fsync(fd) != 0) return SystemError("cannot write to disk", path);
  return {};
}

json ToJson(const GpuTarget& target) {
  json instances = json::array();
  for (const InstanceTarget& t : target.instances) {
    json instance = {{"profile_id", t.profile_id},
                     {"profile", t.profile},
                     {"start", t.start},
                     {"size", t.size},
                     {"compute_slices", t.compute_slices}};
    if (t.compute) {
      instance["compute"] = json::array();
      for (const ComputeSpec& c : *t.compute) {
        instance["compute"].push_back(
            {{"profile_id", c.profile_id}, {"start", c.start}, {"size", c.size}});
      }
    }
    instances.push_back(std::move(instance));
  }
  return {{"uuid", target.uuid}, {"mig", target.mig}, {"instances", std::move(instances)}};
}

// Throws json::exception on anything unexpected; callers are Parse only.
GpuTarget TargetFromJson(const json& j) {
  GpuTarget target{j.at("uuid").get<std::string>(), j.at("mig").get<bool>(), {}};
  for (const json& instance : j.at("instances")) {
    InstanceTarget t{.profile_id = instance.at("profile_id").get<int>(),
                     .profile = instance.at("profile").get<std::string>(),
                     .start = instance.at("start").get<int>(),
                     .size = instance.at("size").get<int>(),
                     .compute_slices = instance.at("compute_slices").get<int>(),
                     .compute = std::nullopt};
    if (instance.contains("compute")) {
      t.compute.emplace();
      for (const json& c : instance.at("compute")) {
        t.compute->push_back({c.at("profile_id").get<unsigned>(), c.at("start").get<unsigned>(),
                              c.at("size").get<unsigned>()});
      }
    }
    target.instances.push_back(std::move(t));
  }
  return target;
}

std::string HeaderLine(const Change& change) {
  json before = json::array();
  json after = json::array();
  for (const GpuTarget& target : change.before) before.push_back(ToJson(target));
  for (const GpuTarget& target : change.after) after.push_back(ToJson(target));
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return json{{"divvy_journal", kFormat},
              {"started", fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(now))},
              {"pid", getpid()},
              {"plan", change.plan},
              {"before", std::move(before)},
              {"after", std::move(after)}}  // File names need not be UTF-8.
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

// What a line about a step says about who creates what. Throws as above.
void NoteStep(const json& line, std::vector<BegunCreate>& begun) {
  if (line.contains("create")) {
    const json& create = line.at("create");
    begun.push_back({line.at("gpu").get<std::string>(), create.at("profile_id").get<int>(),
                     create.at("start").get<int>()});
  }
  if (line.contains("withdrawn") && !begun.empty()) begun.pop_back();
}

Result<JournalRecord> Parse(const std::string& path, const std::string& text) {
  JournalRecord record;
  int line_number = 0;
  std::size_t begin = 0;
  try {
    for (;;) {
      const std::size_t end = text.find('\n', begin);
      // Without its end, the last line never counted.
      if (end == std::string::npos) break;
      const json line = json::parse(text.substr(begin, end - begin));
      begin = end + 1;
      if (++line_number == 1) {
        if (const int format = line.at("divvy_journal").get<int>(); format != kFormat) {
          return Fail(ErrorCode::kUnavailable,
                      fmt::format("{}:1: journal format {}, while this divvy reads format {}; "
                                  "recover with the divvy that wrote it",
                                  path, format, kFormat));
        }
        record.started = line.at("started").get<std::string>();
        record.change.plan = line.at("plan").get<std::string>();
        for (const json& j : line.at("before")) record.change.before.push_back(TargetFromJson(j));
        for (const json& j : line.at("after")) record.change.after.push_back(TargetFromJson(j));
        continue;
      }
      NoteStep(line, record.begun);
      if (line.contains("outcome")) {
        record.outcome = line.at("outcome") == kApplied ? Outcome::kApplied : Outcome::kRolledBack;
      }
    }
  } catch (const json::exception& error) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}:{}: the journal is damaged ({}); compare the GPUs with it by hand "
                            "(divvy gpus), then remove it",
                            path, line_number + 1, error.what()));
  }
  if (line_number == 0 || record.change.before.size() != record.change.after.size()) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}: the journal is damaged; compare the GPUs with it by hand (divvy "
                            "gpus), then remove it",
                            path));
  }
  return record;
}

Result<std::optional<JournalRecord>> ReadRecord(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    // A directory that may not be searched may hide one.
    if (error && error != std::errc::no_such_file_or_directory) {
      return Fail(ErrorCode::kPermissionDenied,
                  fmt::format("cannot read {}: {}", path, error.message()));
    }
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // Copying nothing counts as a failure, but an empty journal is a damaged one.
  const bool empty = file.peek() == std::ifstream::traits_type::eof();
  if (!file.is_open() || file.bad() || (!empty && !(text << file.rdbuf()))) {
    return SystemError("cannot read", path);
  }
  auto record = Parse(path, text.str());
  if (!record) return Fail(record.error());
  return *std::move(record);
}

}  // namespace

Result<ChangeLock> ChangeLock::Acquire(const std::string& state_dir) {
  std::error_code error;
  const bool created = std::filesystem::create_directories(state_dir, error);
  // Whatever root's umask: others should be able to see that a change is unfinished.
  if (created) chmod(state_dir.c_str(), S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
  if (error) {
    return Fail(ErrorCode::kPermissionDenied,
                fmt::format("cannot create the state directory {}: {}; choose another with "
                            "--state-dir or DIVVY_STATE_DIR",
                            state_dir, error.message()));
  }
  const std::string path = state_dir + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return SystemError("cannot open", path);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char holder[32] = {};
    const ssize_t n = pread(fd, holder, sizeof(holder) - 1, 0);
    close(fd);
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("another divvy is changing this node's layout (process {}); try again "
                            "when it is done",
                            n > 0 ? holder : "unknown"));
  }
  const std::string pid = std::to_string(getpid());
  // Only the message above reads it, so a failure costs a name, not safety.
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) errno = 0;
  return ChangeLock(fd);
}

ChangeLock::ChangeLock(ChangeLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

ChangeLock::~ChangeLock() {
  if (fd_ >= 0) close(fd_);
}

Result<Journal> Journal::Begin(const std::string& state_dir, const Change& change) {
  const std::string path = JournalPath(state_dir);
  auto unfinished = ReadUnfinished(state_dir);
  if (!unfinished) return Fail(unfinished.error());
  if (*unfinished) return Fail(UnfinishedError(**unfinished));
  // Written aside and renamed: a journal that exists is whole.
  const std::string draft = path + ".new";
  const int fd =
      open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, kJournalMode);
  if (fd < 0) return SystemError("cannot create", draft);
  Journal journal(state_dir, fd);
  fchmod(fd, kJournalMode);
  if (auto written = WriteAll(fd, HeaderLine(change), draft); !written) {
    return Fail(written.error());
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) return SystemError("cannot create", path);
  if (auto synced = SyncDirectory(state_dir); !synced) {
    std::remove(path.c_str());
    return Fail(synced.error());
  }
  return journal;
}

Result<Journal> Journal::Resume(const std::string& state_dir) {
  const std::string path = JournalPath(state_dir);
  const int fd = open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (fd < 0) return SystemError("cannot open", path);
  Journal journal(state_dir, fd);
  // What was torn off at the end must not run into the next line.
  const off_t size = lseek(fd, 0, SEEK_END);
  off_t end = size;
  for (char c = 0; end > 0; --end) {
    if (pread(fd, &c, 1, end - 1) != 1) return SystemError("cannot read", path);
    if (c == '\n') break;
  }
  if (end != size && ftruncate(fd, end) != 0) return SystemError("cannot mend", path);
  auto record = ReadUnfinished(state_dir);
  if (!record) return Fail(record.error());
  if (*record) journal.begun_ = std::move((*record)->begun);
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : state_dir_(std::move(other.state_dir_)),
      fd_(std::exchange(other.fd_, -1)),
      torn_(other.torn_),
      steps_(other.steps_),
      begun_(std::move(other.begun_)) {}

Journal::~Journal() {
  if (fd_ >= 0) close(fd_);
}

Result<void> Journal::Append(const std::string& line) {
  const std::string path = JournalPath(state_dir_);
  if (torn_) return Fail(ErrorCode::kUnavailable, fmt::format("{} could not be mended", path));
  const off_t good = lseek(fd_, 0, SEEK_END);
  auto written = WriteAll(fd_, line + "\n", path);
  // The next line must not run into half of this one.
  if (!written) torn_ = good < 0 || ftruncate(fd_, good) != 0;
  return written;
}

Result<void> Journal::BeginStep(const Step& step) {
  json line = {{"begin", ++steps_}, {"gpu", step.gpu_uuid}, {"step", Describe(step)}};
  if (step.kind == Step::Kind::kCreate) {
    line["create"] = {{"profile_id", step.instance.profile_id}, {"start", step.instance.start}};
    begun_.push_back({step.gpu_uuid, step.instance.profile_id, step.instance.start});
  }
  auto noted = Append(line.dump());
  // Not noted, it will not be taken.
  if (!noted && step.kind == Step::Kind::kCreate) begun_.pop_back();
  return noted;
}

Result<void> Journal::EndStep() { return Append(json{{"end", steps_}}.dump()); }

Result<void> Journal::WithdrawStep() {
  begun_.pop_back();
  return Append(json{{"withdrawn", steps_}}.dump());
}

Result<void> Journal::Finish(Outcome outcome) {
  const char* const word = outcome == Outcome::kApplied ? kApplied : kRolledBack;
  if (auto noted = Append(json{{"outcome", word}}.dump()); !noted) return noted;
  const std::string path = JournalPath(state_dir_);
  // What was rolled back leaves the change before it as the last one.
  const int retired = outcome == Outcome::kApplied
                          ? std::rename(path.c_str(), LastPath(state_dir_).c_str())
                          : std::remove(path.c_str());
  if (retired != 0) return SystemError("cannot retire", path);
  return SyncDirectory(state_dir_);
}

Result<std::optional<JournalRecord>> ReadUnfinished(const std::string& state_dir) {
  return ReadRecord(JournalPath(state_dir));
}

Error UnfinishedError(const JournalRecord& unfinished) {
  return {ErrorCode::kFailedPrecondition,
          fmt::format("the change to {} begun at {} is unfinished; run 'divvy apply --recover'",
                      unfinished.change.plan, unfinished.started)};
}

Result<std::optional<JournalRecord>> ReadLast(const std::string& state_dir) {
  return ReadRecord(LastPath(state_dir));
}

}  // namespace divvy::device

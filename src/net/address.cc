#include "net/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

#include "base/check.h"

namespace divvy::net {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
// Of one connection to a worker, where messages are batches of tensors.
constexpr int kUnixBuffer = 4 << 20;
constexpr std::string_view kForms =
    "it is HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000, or unix:/PATH";

std::string Why(int error) { return std::error_code(error, std::generic_category()).message(); }

Result<Address> ParseUnix(std::string_view text) {
  const std::string_view path = text.substr(kUnixPrefix.size());
  sockaddr_storage storage{};
  auto* const to = reinterpret_cast<sockaddr_un*>(&storage);
  if (path.empty() || path.find('\0') != std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("address '{}': {}", text, kForms));
  }
  if (path.size() >= sizeof to->sun_path) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("address '{}': a socket's path has at most {} bytes, this one {}", text,
                            sizeof to->sun_path - 1, path.size()));
  }
  to->sun_family = AF_UNIX;
  path.copy(to->sun_path, path.size());
  return Address::Of(storage,
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1));
}

std::optional<std::uint16_t> ParsePort(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

// A stale socket file is one that nobody answers at: its server died. A file that is no socket, or
// one with a server behind it, is left alone.
bool IsStale(const Address& address, const char* path) {
  struct stat info{};
  if (lstat(path, &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  const bool refused = connect(probe, address.get(), address.size()) != 0 && errno == ECONNREFUSED;
  close(probe);
  return refused;
}

int Bind(int fd, const Address& address) {
  if (!address.is_unix()) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(fd, address.get(), address.size()) == 0 ? 0 : errno;
  }
  const char* const path = reinterpret_cast<const sockaddr_un*>(address.get())->sun_path;
  // Linux gives the file the mode of the socket, so there is no moment in which others may connect;
  // the chmod is for kernels that do not.
  fchmod(fd, S_IRUSR | S_IWUSR);
  int error = bind(fd, address.get(), address.size()) == 0 ? 0 : errno;
  if (error == EADDRINUSE && IsStale(address, path) && unlink(path) == 0) {
    error = bind(fd, address.get(), address.size()) == 0 ? 0 : errno;
  }
  if (error == 0 && chmod(path, S_IRUSR | S_IWUSR) != 0) error = errno;
  return error;
}

}  // namespace

Result<Address> Address::Parse(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return ParseUnix(text);
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("address '{}': {}", text, kForms));
  }
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  // "::1:80" could be a host alone; we do not guess.
  if (!bracketed && host.find(':') != std::string_view::npos) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("address '{}': an IPv6 host is written in brackets, as in [::1]:8000", text));
  }
  const std::optional<std::uint16_t> port = ParsePort(text.substr(colon + 1));
  if (!port) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("address '{}': the port '{}' is not a number from 0 to 65535", text,
                            text.substr(colon + 1)));
  }
  addrinfo hints{};
  hints.ai_family = bracketed ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(std::string(host).c_str(), std::to_string(*port).c_str(), &hints, &found);
  if (error != 0) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("address '{}': no address for '{}': {}",
                                                         text, host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  sockaddr_storage storage{};
  std::memcpy(&storage, found->ai_addr, found->ai_addrlen);
  return Of(storage, found->ai_addrlen);
}

Address Address::Of(const sockaddr_storage& storage, socklen_t size) {
  Address address;
  address.storage_ = storage;
  address.size_ = size;
  return address;
}

bool Address::is_loopback() const {
  if (is_unix()) return true;
  if (family() == AF_INET) {
    const auto* const in = reinterpret_cast<const sockaddr_in*>(&storage_);
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* const in6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) != 0;
}

std::string Address::Describe() const {
  if (is_unix()) {
    const auto* const un = reinterpret_cast<const sockaddr_un*>(&storage_);
    const std::size_t most =
        size_ > offsetof(sockaddr_un, sun_path) ? size_ - offsetof(sockaddr_un, sun_path) : 0;
    return fmt::format("unix:{}", std::string_view(un->sun_path, strnlen(un->sun_path, most)));
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (family() == AF_INET) {
    const auto* const in = reinterpret_cast<const sockaddr_in*>(&storage_);
    inet_ntop(AF_INET, &in->sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(in->sin_port));
  }
  const auto* const in6 = reinterpret_cast<const sockaddr_in6*>(&storage_);
  inet_ntop(AF_INET6, &in6->sin6_addr, text.data(), text.size());
  return fmt::format("[{}]:{}", text.data(), ntohs(in6->sin6_port));
}

Result<int> Listen(const Address& address, int backlog) {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("cannot listen at {}: {}", address.Describe(), Why(errno)));
  }
  int error = Bind(fd, address);
  if (error == 0 && listen(fd, backlog) != 0) error = errno;
  if (error != 0) {
    close(fd);
    return Fail(ErrorCode::kUnavailable,
                fmt::format("cannot listen at {}: {}", address.Describe(), Why(error)));
  }
  return fd;
}

Address LocalAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  Check(getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0, "a socket of Listen");
  return Address::Of(storage, size);
}

void PrepareToSend(int fd) {
  int family = 0;
  socklen_t size = sizeof family;
  Check(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0, "a socket");
  const int on = 1;
  if (family == AF_UNIX) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
  } else {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
}

ErrorCode ConnectErrorCode(int error) {
  const bool ours = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
                    error == EADDRNOTAVAIL;
  return ours ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable;
}

Result<int> StartConnecting(const Address& address) {
  const auto fail = [&address](int error) {
    return Fail(ConnectErrorCode(error),
                fmt::format("cannot connect to {}: {}", address.Describe(), Why(error)));
  };
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(errno);
  if (address.is_unix()) {
    // They do not grow by themselves as TCP's do: a large message would go by 200 KiB, each when
    // the peer has been scheduled. The kernel takes what it allows.
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnixBuffer, sizeof kUnixBuffer);
  } else {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (connect(fd, address.get(), address.size()) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    close(fd);
    return fail(error);
  }
  return fd;
}

}  // namespace divvy::net

#include "server/backend.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace divvy::server {

Backend::Backend(net::Loop& loop, net::Address address, std::string host, Kind kind)
    : loop_(loop), address_(std::move(address)), host_(std::move(host)), kind_(kind) {}

net::HttpClient& Backend::Client(std::size_t index) {
  while (clients_.size() <= index) {
    clients_.push_back(std::make_unique<net::HttpClient>(loop_, address_, host_, streams_));
  }
  return *clients_[index];
}

void Backend::Run(std::vector<net::HttpQuestion> batch, Callback callback) {
  Check(!busy() && !batch.empty(), "one batch at a time");
  callback_ = std::move(callback);
  responses_.assign(batch.size(), {});
  missing_ = batch.size();
  const std::uint64_t run = ++run_;
  if (kind_ == Kind::kWorker && batch.size() > 1) {
    batch.front().headers.emplace_back("divvy-batch", std::to_string(batch.size()));
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    net::HttpClient& client = Client(kind_ == Kind::kWorker ? 0 : i);
    client.Send(std::move(batch[i]), [this, run, i](Result<net::HttpResponse> response) {
      Take(run, i, std::move(response));
    });
  }
}

void Backend::Take(std::uint64_t run, std::size_t index, Result<net::HttpResponse> response) {
  if (run != run_ || !busy()) return;  // Of a batch that was given up.
  if (!response) {
    Callback callback = std::exchange(callback_, nullptr);
    // Answers to the rest may still come on this connection: they are nobody's.
    for (const auto& client : clients_) client->Close();
    callback(Fail(response.error()));
    return;
  }
  responses_[index] = std::move(*response);
  if (--missing_ != 0) return;
  Callback callback = std::exchange(callback_, nullptr);
  callback(std::exchange(responses_, {}));
}

void Backend::Abandon() {
  callback_ = nullptr;
  ++run_;
  for (const auto& client : clients_) client->Close();
}

}  // namespace divvy::server

#include "server/backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace divvy::server {

Backend::Backend(net::Loop& loop, net::Address address, std::string host, Kind kind)
    : loop_(loop), address_(std::move(address)), host_(std::move(host)), kind_(kind) {}

net::HttpClient& Backend::Client() {
  for (const auto& client : clients_) {
    if (kind_ == Kind::kWorker || client->pending() == 0) return *client;
  }
  return *clients_.emplace_back(
      std::make_unique<net::HttpClient>(loop_, address_, host_, streams_));
}

void Backend::Run(std::span<const net::HttpQuestion* const> batch, Callback callback) {
  Check(!batch.empty(), "a batch of something");
  const std::uint64_t number = ++batches_made_;
  batches_.push_back({number, batch.size(), {}, std::move(callback)});
  batches_.back().responses.resize(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto take = [this, number, i](Result<net::HttpResponse> response) {
      Take(number, i, std::move(response));
    };
    if (i > 0 || batch.size() == 1 || kind_ != Kind::kWorker) {
      Client().Send(*batch[i], take, net::HttpClient::Leaves::kWithTheRound);
      continue;
    }
    net::HttpQuestion first = *batch[i];
    first.headers.emplace_back("divvy-batch", std::to_string(batch.size()));
    Client().Send(first, take, net::HttpClient::Leaves::kWithTheRound);
  }
}

void Backend::Take(std::uint64_t number, std::size_t index, Result<net::HttpResponse> response) {
  const auto batch = std::ranges::find(batches_, number, &Batch::number);
  if (batch == batches_.end()) return;  // It was given up.
  const bool ended = !response || batch->missing == 1;
  if (response) {
    batch->responses[index] = std::move(*response);
    --batch->missing;
  }
  if (!ended) return;
  Batch done = std::move(*batch);
  batches_.erase(batch);
  if (response) return done.callback(std::move(done.responses));
  // Answers to the rest may still come on this connection: they are nobody's.
  for (const auto& client : clients_) client->Close();
  done.callback(Fail(std::move(response.error())));
}

void Backend::Abandon() {
  batches_.clear();
  for (const auto& client : clients_) client->Close();
}

}  // namespace divvy::server

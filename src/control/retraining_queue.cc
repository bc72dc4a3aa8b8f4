#include "control/retraining_queue.h"

#include <algorithm>
#include <cmath>

namespace divvy::control {
namespace {

// Enough for four tenants with three options on one place.
constexpr int kMostSteps = 4000;

class QueueSearch {
 public:
  explicit QueueSearch(const QueueProblem& problem)
      : problem_(problem), free_at_(problem.free_at), waits_(problem.tenants.size(), true) {}

  RetrainingQueue Run() {
    Step();
    return best_;
  }

 private:
  struct Choice {
    std::size_t waiting;  // Into tenants.
    QueuedRetraining retraining;
    double gain;
    double rate;  // Gain a slot that it takes.
  };

  // What the tenant's best option would still gain if it had the best place at once.
  double MostOf(std::size_t waiting, double from) const {
    double most = 0;
    for (std::size_t option = 0; option < problem_.options; ++option) {
      for (std::size_t place = 0; place < free_at_.size(); ++place) {
        most = std::max(most, GainOf(problem_.tenants[waiting], option, place, from).gain);
      }
    }
    return most;
  }

  Choice GainOf(std::size_t tenant, std::size_t option, std::size_t place, double from) const {
    const double takes = problem_.takes(tenant, option, place);
    const int end = static_cast<int>(std::ceil(from + takes - 1e-9));
    if (takes <= 0 || end > problem_.slots) return {};
    const double gain = problem_.gain(tenant, option, end);
    return {0, {place, tenant, option, from, end}, gain, gain / takes};
  }

  std::vector<Choice> ChoicesOn(std::size_t place) const {
    std::vector<Choice> choices;
    for (std::size_t i = 0; i < waits_.size(); ++i) {
      for (std::size_t option = 0; waits_[i] && option < problem_.options; ++option) {
        Choice choice = GainOf(problem_.tenants[i], option, place, free_at_[place]);
        choice.waiting = i;
        if (choice.gain > 0) choices.push_back(choice);
      }
    }
    std::ranges::stable_sort(choices, std::greater(), &Choice::rate);
    return choices;
  }

  // Gives the place that is free first its next retraining, or none any more.
  void Step() {
    if (now_.gain > best_.gain) best_ = now_;
    const auto first = std::ranges::min_element(free_at_);
    if (first == free_at_.end() || *first >= problem_.slots || ++steps_ > kMostSteps) return;
    double hope = now_.gain;
    for (std::size_t i = 0; i < waits_.size(); ++i) hope += waits_[i] ? MostOf(i, *first) : 0;
    if (hope <= best_.gain) return;
    const auto place = static_cast<std::size_t>(first - free_at_.begin());
    const double from = free_at_[place];
    for (const Choice& choice : ChoicesOn(place)) {
      const RetrainingQueue before = now_;
      now_.retrainings.push_back(choice.retraining);
      now_.gain += choice.gain;
      waits_[choice.waiting] = false;
      free_at_[place] = choice.retraining.end;
      Step();
      now_ = before;
      waits_[choice.waiting] = true;
      free_at_[place] = from;
    }
    free_at_[place] = problem_.slots;
    Step();
    free_at_[place] = from;
  }

  const QueueProblem& problem_;
  std::vector<double> free_at_;
  std::vector<bool> waits_;  // By position in tenants.
  RetrainingQueue now_;
  RetrainingQueue best_;
  int steps_ = 0;
};

}  // namespace

RetrainingQueue BestQueue(const QueueProblem& problem) { return QueueSearch(problem).Run(); }

}  // namespace divvy::control
